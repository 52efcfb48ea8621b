//! Accumulators in thread-private memory, and the order of steps that combine into them.

use smallvec::SmallVec;

use autotune_ir::spec::{AxisId, Equation, Reduction};

use super::chain::Chain;
use super::{MapReduce, SPARE_REGISTERS};
use crate::contraction::stride;

/// Largest number of values that are added up in sequence. Longer sums are split into partial sums:
/// a large f32 accumulator loses more of each added value than random rounding errors cancel (N. J.
/// Higham, "The accuracy of floating point summation", 1993).
pub(crate) const LONGEST_SUM: usize = 1 << 11;

impl MapReduce {
    /// True if the accumulators of a tile are in thread-private memory: if registers cannot hold
    /// them, or if sums are long, so that partial sums are added to memory.
    pub(crate) fn combines_in_memory(&self, pass: usize) -> bool {
        let equation = &self.chain.passes()[pass];
        let lanes = if self.reduces_lanes(pass) { self.width(pass) } else { 1 };
        let is_long = equation.reduction == Reduction::Sum && equation.reduction_len() / lanes > LONGEST_SUM;
        is_long || self.adds_up_in_cache(pass)
    }

    /// True if the accumulators of a tile are in cache because registers cannot hold them. It
    /// applies to a single pass whose tiled rows are inside the reduced axes in the operand's
    /// layout, so that the operand is read in order.
    pub(crate) fn adds_up_in_cache(&self, pass: usize) -> bool {
        let [only] = self.chain.passes() else { return false };
        let is_inside = |(axis, &tile): (AxisId, &usize)| tile == 1 || self.chain.is_inside(only, axis);
        only.reduces()
            && self.windows.is_empty()
            && self.vectors_of_tile(pass) + SPARE_REGISTERS > self.unit.registers
            && self.tiles.iter().enumerate().all(is_inside)
    }

    /// Returns the number of a row's lanes that registers can hold: a power of two of vectors.
    pub(crate) fn lanes_in_registers(&self) -> usize {
        let vectors = self.unit.registers.saturating_sub(SPARE_REGISTERS).max(1);
        self.unit.lanes << vectors.ilog2()
    }

    /// Returns the axes of the loops that combine the values of a tile, outermost first. If
    /// accumulators are in cache, these include the tile's rows, and all loops go in the order of
    /// the operand's layout, so that it is read in order.
    pub(crate) fn steps(&self, pass: usize) -> SmallVec<[AxisId; 8]> {
        let equation = &self.chain.passes()[pass];
        let adds_up_in_cache = self.adds_up_in_cache(pass);
        let is_row = |axis: AxisId| {
            adds_up_in_cache && axis != self.vectors[pass] && self.tiles.get(axis).is_some_and(|&tile| tile > 1)
        };
        let is_step = |&axis: &AxisId| equation.axes[axis].reduce || is_row(axis);
        let mut steps: SmallVec<_> = (0..equation.axes.len()).filter(is_step).collect();
        if adds_up_in_cache {
            steps.sort_by_key(|&axis| std::cmp::Reverse(self.chain.distance(equation, axis)));
        }
        steps
    }
}

impl Chain {
    /// True if a reduced axis has a larger stride in the operand than `row`: values of one result
    /// are then far apart, and neighbouring rows are between them.
    pub(super) fn is_inside(&self, pass: &Equation, row: AxisId) -> bool {
        let own = self.distance(pass, row);
        (0..pass.axes.len())
            .any(|axis| pass.axes[axis].reduce && pass.axes[axis].extent > 1 && self.distance(pass, axis) > own)
    }

    /// Returns the stride of an axis, in elements, in the first operand that a pass reads.
    fn distance(&self, pass: &Equation, axis: AxisId) -> i64 {
        let Some(access) = pass.loads().into_iter().find(|access| self.is_at_hand(access)) else { return 0 };
        stride(&access.index, &self.spec.tensor(access).shape, axis)
    }
}
