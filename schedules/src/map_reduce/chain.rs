//! View of a spec as passes over the same rows.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use autotune_ir::program::Access;
use autotune_ir::spec::{Axis, AxisId, Equation, Spec, TensorSource};
use autotune_ir::{Affine, VarId};
use autotune_workloads::axes::Axes;

/// Equations that share their leading axes, the *rows*. All of them run for a tile of rows before
/// the next tile begins, so that intermediate results stay in cache. All but the last are *passes*;
/// the last, the *tail*, is a map of the last pass's output.
///
/// ```text
/// max[m] = max input[m, n];
/// sum[m] = Σ exp(input[m, n] - max[m]);
/// output[m, n] = exp(input[m, n] - max[m]) / sum[m]     rows: m
/// ```
///
/// Leading maps of operands that share fewer rows, such as a transpose of an operand, are not
/// passes. Each is a chain of its own that runs before.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) spec: Arc<Spec>,
    /// Positions of the equations that are passes.
    pub(crate) numbers: Range<usize>,
    /// Number of leading axes that are rows.
    pub(crate) rows: usize,
}

impl Chain {
    /// Returns the spec as a chain. `None` if it is none, or if it is a contraction, which register
    /// tiles serve better. Excepted are products with one vector, or with a few that are contiguous
    /// along the reduction axis.
    pub(crate) fn of(spec: &Arc<Spec>) -> Option<Self> {
        let [passes @ .., tail] = &spec.equations[..] else { return None };
        let last = passes.last()?;
        // The tail must read the last pass's output element by element.
        let is_map_of_last = last.axes.iter().filter(|axis| !axis.reduce).eq(&tail.axes)
            && last.axes.starts_with(&tail.axes)
            && last.output.index == tail.output.index
            && tail.loads().into_iter().all(|access| *access == last.output || is_not_computed(spec, access));
        let is_contraction = !spec.is_chain() && Axes::of(spec).is_some_and(|axes| !has_few_vectors(spec, &axes));
        if !is_map_of_last || is_contraction || passes.iter().any(|pass| pass.axes.is_empty()) {
            return None;
        }

        // Leading maps run before the chain as long as each shares fewer rows with the last pass
        // than all later ones do.
        let shared = |pass: &Equation| {
            let is_row = |(own, last): &(&Axis, &Axis)| own == last && !own.reduce;
            pass.axes.iter().zip(&last.axes).take_while(is_row).count()
        };
        let rows_from = |first: usize| passes[first..].iter().map(shared).min().unwrap_or(0);
        let is_before = |&first: &usize| {
            let pass = &passes[first];
            first + 1 < passes.len()
                && !pass.reduces()
                && pass.loads().into_iter().all(|access| is_not_computed(spec, access))
                && shared(pass) < rows_from(first + 1)
        };
        let first = (0..passes.len()).take_while(is_before).count();
        let chain = Self { spec: Arc::clone(spec), numbers: first..passes.len(), rows: rows_from(first) };

        // Every pass must find its operands in tensors, or in what earlier passes stored for the
        // same rows.
        let known = |number: usize| {
            let pass = &spec.equations[number];
            let is_known = |access| chain.is_at_hand(access) || chain.reads_earlier_pass(number, pass, access);
            pass.loads().into_iter().all(is_known)
        };
        chain.numbers.clone().all(known).then_some(chain)
    }

    /// Returns each map that runs before as a chain of its own, in which all axes are rows.
    pub(super) fn before(&self) -> impl Iterator<Item = Self> {
        let alone = |number: usize| {
            let rows = self.spec.equations[number].axes.len();
            Self { spec: Arc::clone(&self.spec), numbers: number..number + 1, rows }
        };
        (0..self.numbers.start).filter(|_| self.tail().is_some()).map(alone)
    }

    /// True for a product of a matrix with one vector or a few.
    pub(crate) fn is_product(&self) -> bool {
        let is_main = self.numbers == (self.spec.main..self.spec.main + 1);
        is_main && Axes::of(&self.spec).is_some_and(|axes| has_few_vectors(&self.spec, &axes))
    }

    /// Returns the equations that run for each tile of rows.
    pub(crate) fn passes(&self) -> &[Equation] {
        &self.spec.equations[self.numbers.clone()]
    }

    /// Returns the pass that computes the result, before the tail.
    pub(crate) fn last(&self) -> &Equation {
        &self.spec.equations[self.numbers.end - 1]
    }

    /// Returns the map of the last pass's output; `None` for a chain that runs before another.
    pub(crate) fn tail(&self) -> Option<&Equation> {
        let is_end = self.numbers.end + 1 == self.spec.equations.len();
        self.spec.equations.last().filter(|_| is_end)
    }

    /// Returns the axes that all passes share.
    pub(crate) fn row_axes(&self) -> &[Axis] {
        &self.last().axes[..self.rows]
    }

    /// True for an access to an operand, a known table, or the output of a map that ran before.
    pub(super) fn is_at_hand(&self, access: &Access) -> bool {
        let before = &self.spec.equations[..self.numbers.start];
        is_not_computed(&self.spec, access) || before.iter().any(|known| known.output.buffer == access.buffer)
    }

    /// True if any pass is a reduction.
    pub(super) fn reduces(&self) -> bool {
        self.passes().iter().any(Equation::reduces)
    }

    /// Returns the pass during which memory is the least busy and the operand access that can be
    /// prefetched then. It is the only pass, or the first one whose operand an earlier pass has
    /// loaded into cache. Of several operands, the largest.
    pub(crate) fn prefetchable_access(&self) -> Option<(usize, &Access)> {
        let passes = self.passes();
        let is_axis = |index: &Affine, is_own: bool| axis_of(index).is_some_and(|axis| (axis >= self.rows) == is_own);
        let is_along = |access: &Access| {
            let [of_rows @ .., last] = &access.index[..] else { return false };
            is_given(&self.spec, access) && is_axis(last, true) && of_rows.iter().any(|index| is_axis(index, false))
        };
        let is_loaded = |number: usize, access: &Access| {
            passes.len() == 1 || passes[..number].iter().any(|earlier| earlier.loads().contains(&access))
        };
        let elements = |access: &Access| self.spec.tensor(access).shape.iter().product::<usize>();
        passes.iter().enumerate().find_map(|(number, pass)| {
            let loads = pass.loads().into_iter().filter(|access| is_along(access) && is_loaded(number, access));
            Some((number, loads.min_by_key(|access| Reverse(elements(access)))?))
        })
    }

    /// True for an access to what an earlier pass computed for the same rows.
    fn reads_earlier_pass(&self, number: usize, pass: &Equation, access: &Access) -> bool {
        let before = &self.spec.equations[self.numbers.start..number];
        let Some(known) = before.iter().find(|known| known.output.buffer == access.buffer) else { return false };
        // Windows may slide over a stored tensor's own axes, but not over rows: only the tile's
        // positions of these are stored.
        let is_alike = |(index, own): (&Affine, &Affine)| match (axis_of(index), axis_of(own)) {
            (Some(axis), Some(own)) if own < self.rows => axis == own,
            (Some(axis), Some(own)) => axis >= self.rows && pass.axes[axis].extent == known.axes[own].extent,
            (None, Some(own)) => own >= self.rows && self.is_window(pass, index),
            _ => false,
        };
        access.index.iter().zip(&known.output.index).all(is_alike)
    }

    /// True if an index is a window that moves along an axis of the pass's own: one reduced axis
    /// plus one other.
    fn is_window(&self, pass: &Equation, index: &Affine) -> bool {
        let [(VarId(a), _), (VarId(b), _)] = index.terms[..] else { return false };
        let [a, b] = [a as usize, b as usize];
        a.min(b) >= self.rows && pass.axes[a].reduce != pass.axes[b].reduce
    }
}

/// True for a product with one vector, or with a few along which both operands are contiguous.
fn has_few_vectors(spec: &Spec, axes: &Axes) -> bool {
    let main = spec.main();
    axes.is_of_vector(main)
        || axes.few(main).is_some() && axes.are_contiguous_along_step(main) && spec.prologue().is_none()
}

/// Returns the axis that an index consists of; `None` for other indices.
pub(crate) fn axis_of(index: &Affine) -> Option<AxisId> {
    match index.terms[..] {
        [(VarId(axis), 1)] if index.constant == 0 => Some(axis as usize),
        _ => None,
    }
}

/// Returns the axis along which an access is contiguous, if its last index consists of one axis.
pub(crate) fn contiguous_axis(access: &Access) -> Option<AxisId> {
    access.index.last().and_then(axis_of)
}

/// True for an access to an operand of the workload.
pub(crate) fn is_given(spec: &Spec, access: &Access) -> bool {
    matches!(spec.tensor(access).source, TensorSource::Given { .. })
}

/// True for an access to an operand or a known table.
pub(crate) fn is_not_computed(spec: &Spec, access: &Access) -> bool {
    spec.tensor(access).source != TensorSource::Computed
}
