//! The elements of a row that a thread has.

use super::{Lowering, Values, elements};
use crate::lower::nest::{Builder, Nest};
use autotune_ir::program::{LoopKind, Node};
use autotune_ir::spec::AxisId;

/// What is done at the values of all axes.
type Body<'b, 'p> = &'b mut dyn FnMut(&mut Lowering<'p>, Values) -> Vec<Node>;

impl Builder for Lowering<'_> {
    fn all(&mut self) -> &mut Nest {
        &mut self.all
    }
}

impl<'p> Lowering<'p> {
    /// What is done at each element of a row: by one thread in loops over the axes, by several in turns.
    pub(super) fn steps(&mut self, row: Values, body: Body<'_, 'p>) -> Vec<Node> {
        match self.plan.row_threads {
            1 => {
                let own: Vec<AxisId> = (self.plan.chain.rows..self.equation().axes.len()).collect();
                self.looped(&own, row, body)
            }
            threads => self.turns(threads, row, body),
        }
    }

    /// ```text
    /// for step.0 { unrolled step.1 { unflatten (n) in N = threads*(unroll*step.0 + step.1) + x { body } } }
    /// ```
    fn turns(&mut self, threads: usize, row: Values, body: Body<'_, 'p>) -> Vec<Node> {
        let turns = elements(&self.plan.chain, self.equation()).div_ceil(threads);
        let (unroll, rows) = (self.plan.unroll.min(turns), self.plan.chain.rows);
        self.repeat("step.0", turns.div_ceil(unroll), LoopKind::Serial, |lowering, outer| {
            lowering.repeat("step.1", unroll, LoopKind::Unrolled, |lowering, inner| {
                let value = (outer * unroll as i64 + inner) * threads as i64 + &lowering.x;
                let own = lowering.equation().axes[rows..].iter().map(|axis| (axis.name, axis.extent));
                let own: Vec<(&str, usize)> = own.collect();
                let (digits, values) = lowering.all.digits(own);
                let body = body(lowering, row.into_iter().chain(values).collect());
                vec![Node::Unflatten { value, digits, body }]
            })
        })
    }

    /// Nested loops over axes; the innermost are written out as far as the plan says, of one some iterations at a time that divide it.
    fn looped(&mut self, axes: &[AxisId], mut values: Values, body: Body<'_, 'p>) -> Vec<Node> {
        let [axis, rest @ ..] = axes else { return body(self, values) };
        let extent_of = |axis: AxisId| self.equation().axes[axis].extent;
        let (name, extent) = (self.equation().axes[*axis].name, extent_of(*axis));
        let within: usize = rest.iter().map(|&axis| extent_of(axis)).product();
        let most = (self.plan.unroll / within).clamp(1, extent);
        let unroll = (1..=most).rfind(|&unroll| extent.is_multiple_of(unroll)).unwrap_or(1);
        self.repeat(format!("{name}.0"), extent / unroll, LoopKind::Serial, |lowering, outer| {
            lowering.repeat(format!("{name}.1"), unroll, LoopKind::Unrolled, |lowering, inner| {
                values.push(outer * unroll as i64 + inner);
                lowering.looped(rest, values, body)
            })
        })
    }
}
