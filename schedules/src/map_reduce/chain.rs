//! A spec as passes over the same rows.

use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

use autotune_ir::program::Access;
use autotune_ir::spec::{Axis, AxisId, Equation, Source, Spec};
use autotune_ir::{Affine, VarId};
use autotune_workloads::axes::Axes;

/// Equations with the same first axes, the *rows*: all of them are done for a tile of rows before
/// the next begins, so that what they compute for each other need not leave the cache. Each but the
/// last, which is a map of what the one before it defines, is a *pass*.
///
/// ```text
/// max[m] = max input[m, n];  sum[m] = Σ exp(input[m, n] - max[m]);  output[m, n] = exp(input[m, n] - max[m]) / sum[m]     rows: m
/// ```
///
/// Maps of operands that come first and share fewer rows, such as one that transposes an operand,
/// are no passes but a chain of their own each, done before.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) spec: Arc<Spec>,
    /// The equations that are passes.
    pub(crate) numbers: Range<usize>,
    /// Number of axes that are rows.
    pub(crate) rows: usize,
}

impl Chain {
    /// The spec as a chain; `None` if it is none, or a contraction other than a product with a
    /// vector, or with a few along which both operands lie.
    pub(crate) fn of(spec: &Arc<Spec>) -> Option<Self> {
        let [passes @ .., tail] = &spec.equations[..] else { return None };
        let last = passes.last()?;
        let is_map_of_last = last.axes.iter().filter(|axis| !axis.reduce).eq(&tail.axes)
            && last.axes.starts_with(&tail.axes)
            && last.output.index == tail.output.index
            && tail.loads().into_iter().all(|access| *access == last.output || is_not_computed(spec, access));
        let is_contraction = !spec.is_chain() && Axes::of(spec).is_some_and(|axes| !is_of_few(spec, &axes));
        if !is_map_of_last || is_contraction || passes.iter().any(|pass| pass.axes.is_empty()) {
            return None;
        }

        // What is done before: as long as it shares fewer rows with the last pass than any other.
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

        let known = |number: usize| {
            let pass = &spec.equations[number];
            let is_known = |access| chain.is_at_hand(access) || chain.reads_kept(number, pass, access);
            pass.loads().into_iter().all(is_known)
        };
        chain.numbers.clone().all(known).then_some(chain)
    }

    /// Each map that is done before as a chain of its own: all of its axes are rows.
    pub(super) fn before(&self) -> impl Iterator<Item = Self> {
        let alone = |number: usize| {
            let rows = self.spec.equations[number].axes.len();
            Self { spec: Arc::clone(&self.spec), numbers: number..number + 1, rows }
        };
        (0..self.numbers.start).filter(|_| self.tail().is_some()).map(alone)
    }

    /// True for a product with a vector, or a few.
    pub(crate) fn is_product(&self) -> bool {
        let is_main = self.numbers == (self.spec.main..self.spec.main + 1);
        is_main && Axes::of(&self.spec).is_some_and(|axes| is_of_few(&self.spec, &axes))
    }

    /// The equations that are done for each tile of rows.
    pub(crate) fn passes(&self) -> &[Equation] {
        &self.spec.equations[self.numbers.clone()]
    }

    /// The pass that makes the result, but for the tail.
    pub(crate) fn last(&self) -> &Equation {
        &self.spec.equations[self.numbers.end - 1]
    }

    /// The map of what the last pass defines; none of what is done before.
    pub(crate) fn tail(&self) -> Option<&Equation> {
        let is_end = self.numbers.end + 1 == self.spec.equations.len();
        self.spec.equations.last().filter(|_| is_end)
    }

    /// The axes that all passes have.
    pub(crate) fn row_axes(&self) -> &[Axis] {
        &self.last().axes[..self.rows]
    }

    /// True for an access to an operand, to what is known, or to what was computed before.
    pub(super) fn is_at_hand(&self, access: &Access) -> bool {
        let before = &self.spec.equations[..self.numbers.start];
        is_not_computed(&self.spec, access) || before.iter().any(|known| known.output.buffer == access.buffer)
    }

    /// True if any pass combines values.
    pub(super) fn reduces(&self) -> bool {
        self.passes().iter().any(Equation::reduces)
    }

    /// The pass that reads an operand along an axis of its own while memory has the least to do,
    /// and how it does: the first to which an earlier one has brought the operand, or the only one.
    /// Of several operands, the largest.
    pub(crate) fn reads_at_rest(&self) -> Option<(usize, &Access)> {
        let passes = self.passes();
        let is_axis = |index: &Affine, is_own: bool| axis_of(index).is_some_and(|axis| (axis >= self.rows) == is_own);
        let goes_along = |access: &Access| {
            let [of_rows @ .., last] = &access.index[..] else { return false };
            is_given(&self.spec, access) && is_axis(last, true) && of_rows.iter().any(|index| is_axis(index, false))
        };
        let is_brought = |number: usize, access: &Access| {
            passes.len() == 1 || passes[..number].iter().any(|earlier| earlier.loads().contains(&access))
        };
        let elements = |access: &Access| self.spec.tensor(access).shape.iter().product::<usize>();
        passes.iter().enumerate().find_map(|(number, pass)| {
            let loads = pass.loads().into_iter().filter(|access| goes_along(access) && is_brought(number, access));
            Some((number, loads.min_by_key(|access| Reverse(elements(access)))?))
        })
    }

    /// True for an access of a pass to what an earlier one defines for the same rows.
    fn reads_kept(&self, number: usize, pass: &Equation, access: &Access) -> bool {
        let before = &self.spec.equations[self.numbers.start..number];
        let Some(known) = before.iter().find(|known| known.output.buffer == access.buffer) else { return false };
        let is_alike = |(index, own): (&Affine, &Affine)| match (axis_of(index), axis_of(own)) {
            (Some(axis), Some(own)) if own < self.rows => axis == own,
            (Some(axis), Some(own)) => axis >= self.rows && pass.axes[axis].extent == known.axes[own].extent,
            (None, Some(own)) => own >= self.rows && self.is_window(pass, index),
            _ => false,
        };
        access.index.iter().zip(&known.output.index).all(is_alike)
    }

    /// True if an index is that of a window which moves along an axis of the pass's own.
    fn is_window(&self, pass: &Equation, index: &Affine) -> bool {
        let [(VarId(a), _), (VarId(b), _)] = index.terms[..] else { return false };
        let [a, b] = [a as usize, b as usize];
        a.min(b) >= self.rows && pass.axes[a].reduce != pass.axes[b].reduce
    }
}

/// True for a product with a vector, or with a few along which both operands lie.
fn is_of_few(spec: &Spec, axes: &Axes) -> bool {
    let main = spec.main();
    axes.is_of_vector(main) || axes.few(main).is_some() && axes.go_along_step(main) && spec.prologue().is_none()
}

/// The axis that an index is.
pub(crate) fn axis_of(index: &Affine) -> Option<AxisId> {
    match index.terms[..] {
        [(VarId(axis), 1)] if index.constant == 0 => Some(axis as usize),
        _ => None,
    }
}

/// True for an access to an operand.
pub(crate) fn is_given(spec: &Spec, access: &Access) -> bool {
    matches!(spec.tensor(access).source, Source::Given { .. })
}

/// True for an access to an operand, or to what is known.
pub(crate) fn is_not_computed(spec: &Spec, access: &Access) -> bool {
    spec.tensor(access).source != Source::Computed
}
