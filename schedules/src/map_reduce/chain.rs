//! A spec as passes over the same rows.

use std::sync::Arc;

use autotune_ir::program::Access;
use autotune_ir::spec::{Axis, AxisId, Equation, Source, Spec};
use autotune_ir::{Affine, VarId};

use crate::axes::Axes;

/// Equations with the same first axes, the *rows*: all of them are done for a tile of rows before the next begins, so that what they
/// compute for each other need not leave the cache. Each but the last, which is a map of what the one before it defines, is a *pass*.
///
/// ```text
/// max[m] = max input[m, n];  sum[m] = Σ exp(input[m, n] - max[m]);  output[m, n] = exp(input[m, n] - max[m]) / sum[m]     rows: m
/// ```
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) spec: Arc<Spec>,
    /// Number of axes that are rows.
    pub(crate) rows: usize,
}

impl Chain {
    /// The spec as a chain; `None` if it is none, or a contraction.
    pub(super) fn of(spec: &Arc<Spec>) -> Option<Self> {
        let [passes @ .., tail] = &spec.equations[..] else { return None };
        let last = passes.last()?;
        let is_map_of_last = last.axes.iter().filter(|axis| !axis.reduce).eq(&tail.axes)
            && last.axes.starts_with(&tail.axes)
            && last.output.index == tail.output.index
            && tail.loads().into_iter().all(|access| *access == last.output || is_given(spec, access));
        let is_contraction = passes.len() == 1 && Axes::of(spec).is_some();
        if !is_map_of_last || is_contraction || passes.iter().any(|pass| pass.axes.is_empty()) {
            return None;
        }

        let is_row = |&axis: &AxisId| {
            let own = last.axes.get(axis);
            own.is_some_and(|own| !own.reduce) && passes.iter().all(|pass| pass.axes.get(axis) == own)
        };
        let rows = (0..last.axes.len()).take_while(is_row).count();
        let chain = Self { spec: Arc::clone(spec), rows };
        let known = |(number, pass): (usize, &Equation)| {
            pass.loads().into_iter().all(|access| is_given(spec, access) || chain.reads_kept(number, pass, access))
        };
        passes.iter().enumerate().all(known).then_some(chain)
    }

    /// All equations but the last.
    pub(crate) fn passes(&self) -> &[Equation] {
        &self.spec.equations[..self.spec.equations.len() - 1]
    }

    /// The pass that makes the result, but for the last equation.
    pub(crate) fn last(&self) -> &Equation {
        &self.spec.equations[self.spec.equations.len() - 2]
    }

    /// The map of what the last pass defines.
    pub(crate) fn tail(&self) -> &Equation {
        &self.spec.equations[self.spec.equations.len() - 1]
    }

    /// The axes that all passes have.
    pub(crate) fn row_axes(&self) -> &[Axis] {
        &self.last().axes[..self.rows]
    }

    /// True if any pass combines values.
    pub(super) fn reduces(&self) -> bool {
        self.passes().iter().any(Equation::reduces)
    }

    /// True for an access of a pass to what an earlier one defines for the same rows.
    fn reads_kept(&self, number: usize, pass: &Equation, access: &Access) -> bool {
        let before = &self.spec.equations[..number];
        let Some(known) = before.iter().find(|known| known.output.buffer == access.buffer) else { return false };
        let is_alike = |(index, own): (&Affine, &Affine)| match (axis_of(index), axis_of(own)) {
            (Some(axis), Some(own)) if own < self.rows => axis == own,
            (Some(axis), Some(own)) => axis >= self.rows && pass.axes[axis].extent == known.axes[own].extent,
            _ => false,
        };
        access.index.iter().zip(&known.output.index).all(is_alike)
    }
}

/// The axis that an index is.
pub(crate) fn axis_of(index: &Affine) -> Option<AxisId> {
    match index.terms[..] {
        [(VarId(axis), 1)] if index.constant == 0 => Some(axis as usize),
        _ => None,
    }
}

/// True for an access to an operand.
pub(super) fn is_given(spec: &Spec, access: &Access) -> bool {
    matches!(spec.tensor(access).source, Source::Given { .. })
}
