//! Which results are combined in memory of the thread, and in which order.

use smallvec::SmallVec;

use autotune_ir::spec::{AxisId, Equation, Reduction};

use super::chain::Chain;
use super::{MapReduce, SPARE_REGISTERS};
use crate::contraction::stride;

/// Values that are added up one after the other. Longer sums are added up in parts: an f32 that has
/// grown loses more of each value than rounding errors of either sign make up for (N. J. Higham,
/// "The accuracy of floating point summation", 1993).
pub(crate) const LONGEST_SUM: usize = 1 << 11;

impl MapReduce {
    /// True if the results of a tile stay in memory of the thread while they are combined.
    pub(crate) fn combines_in_memory(&self, pass: usize) -> bool {
        let equation = &self.chain.passes()[pass];
        let lanes = if self.reduces_lanes(pass) { self.width(pass) } else { 1 };
        let is_long = equation.reduction == Reduction::Sum && equation.reduction_len() / lanes > LONGEST_SUM;
        is_long || self.adds_up_in_cache(pass)
    }

    /// True if that is so because registers do not hold them: of the only pass, those of whole rows
    /// that lie within what is combined, so that the operand can be read in order.
    pub(crate) fn adds_up_in_cache(&self, pass: usize) -> bool {
        let [only] = self.chain.passes() else { return false };
        let is_inside = |(axis, &tile): (AxisId, &usize)| tile == 1 || self.chain.is_inside(only, axis);
        only.reduces()
            && self.windows.is_empty()
            && self.vectors_of_tile(pass) + SPARE_REGISTERS > self.unit.registers
            && self.tiles.iter().enumerate().all(is_inside)
    }

    /// Lanes of a row that registers hold, a power of two of vectors.
    pub(crate) fn lanes_in_registers(&self) -> usize {
        let vectors = self.unit.registers.saturating_sub(SPARE_REGISTERS).max(1);
        self.unit.lanes << vectors.ilog2()
    }

    /// The axes that a pass goes over to combine the values of a tile, outermost first; of a tile
    /// that is added up in the cache with its rows beside vectors, as the operand has them.
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
    /// True if something that a pass combines lies around the positions of a row in the operand:
    /// each is read in several places.
    pub(super) fn is_inside(&self, pass: &Equation, row: AxisId) -> bool {
        let own = self.distance(pass, row);
        (0..pass.axes.len())
            .any(|axis| pass.axes[axis].reduce && pass.axes[axis].extent > 1 && self.distance(pass, axis) > own)
    }

    /// Elements from one position of an axis to the next in what a pass reads first.
    fn distance(&self, pass: &Equation, axis: AxisId) -> i64 {
        let Some(access) = pass.loads().into_iter().find(|access| self.is_at_hand(access)) else { return 0 };
        stride(&access.index, &self.spec.tensor(access).shape, axis)
    }
}
