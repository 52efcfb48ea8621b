//! Loops over the elements of a row.

use super::{RowsLowering, Values, elements};
use crate::lower::nest::{NestParts, StageBuilder};
use crate::rows::Neighbours;
use autotune_ir::program::{LoopKind, Node};
use autotune_ir::spec::AxisId;

/// Callback for the values of all axes at an element.
type Body<'b, 'p> = &'b mut dyn FnMut(&mut RowsLowering<'p>, Values) -> Vec<Node>;

impl StageBuilder for RowsLowering<'_> {
    fn all(&mut self) -> &mut NestParts {
        &mut self.all
    }
}

impl<'p> RowsLowering<'p> {
    /// Runs `body` at each element of a row: by one thread in loops over the axes, or by several in
    /// turn.
    pub(super) fn steps(&mut self, row: Values, body: Body<'_, 'p>) -> Vec<Node> {
        match self.plan.row_threads {
            1 => {
                let own: Vec<AxisId> = (self.plan.chain.rows..self.equation().axes.len()).collect();
                self.looped(&own, row, body)
            }
            threads => self.strided_loop(threads, row, body),
        }
    }

    /// Returns the loops of several threads over the elements of a row:
    ///
    /// ```text
    /// for step.0 { unrolled step.1 {
    ///   unflatten (n) in N = threads*(unroll*step.0 + step.1) + x { body } } }
    /// ```
    fn strided_loop(&mut self, threads: usize, row: Values, body: Body<'_, 'p>) -> Vec<Node> {
        let plan = self.plan;
        let vectors = elements(&plan.chain, self.equation()) / plan.lanes_of(Neighbours::Elements);
        let turns = vectors.div_ceil(threads);
        let unroll = plan.unroll.min(turns);
        let own = &plan.chain.passes()[self.pass].axes[plan.chain.rows..];
        self.repeat("step.0", turns.div_ceil(unroll), LoopKind::Serial, |lowering, outer| {
            lowering.repeat("step.1", unroll, LoopKind::Unrolled, |lowering, inner| {
                let value = (outer * unroll as i64 + inner) * threads as i64 + &lowering.x;
                let (digits, values) = lowering.starts(own, Neighbours::Elements);
                let body = lowering.at_once(row.into_iter().chain(values).collect(), body);
                vec![Node::Unflatten { value, digits, body }]
            })
        })
    }

    /// Returns nested loops over axes. The innermost ones are unrolled within the plan's limit; the
    /// last of them by a divisor of its extent.
    fn looped(&mut self, axes: &[AxisId], mut values: Values, body: Body<'_, 'p>) -> Vec<Node> {
        let [axis, rest @ ..] = axes else { return self.at_once(values, body) };
        let (name, all) = (self.equation().axes[*axis].name, self.equation().axes.len());
        let step = |axis: AxisId| if axis + 1 == all { self.plan.lanes_of(Neighbours::Elements) } else { 1 };
        let extent_of = |axis: AxisId| self.equation().axes[axis].extent / step(axis);
        let (extent, step) = (extent_of(*axis), step(*axis));
        let within: usize = rest.iter().map(|&axis| extent_of(axis)).product();
        let most = (self.plan.unroll / within).clamp(1, extent);
        let unroll = (1..=most).rfind(|&unroll| extent.is_multiple_of(unroll)).unwrap_or(1);
        self.repeat(format!("{name}.0"), extent / unroll, LoopKind::Serial, |lowering, outer| {
            lowering.repeat(format!("{name}.1"), unroll, LoopKind::Unrolled, |lowering, inner| {
                values.push((outer * unroll as i64 + inner) * step as i64);
                lowering.looped(rest, values, body)
            })
        })
    }

    /// Runs `body` for each lane of the vector at the values of all axes.
    fn at_once(&mut self, mut values: Values, body: Body<'_, 'p>) -> Vec<Node> {
        let axis = match self.plan.neighbours {
            Neighbours::Rows => self.plan.chain.rows,
            Neighbours::Elements => values.len(),
        };
        self.for_lanes(|lowering| {
            if let Some(value) = axis.checked_sub(1).and_then(|axis| values.get_mut(axis)) {
                value.add_scaled(&lowering.lane, 1);
            }
            body(lowering, values)
        })
    }
}
