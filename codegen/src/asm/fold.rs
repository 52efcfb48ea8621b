//! Horizontal reductions: lanes of several accumulators are combined into lanes of one.
//!
//! ```text
//! sum[r] = acc[r, 0]; sum[r] += acc[r, 1]; ..        for each row r, all of them at once
//! ```
//!
//! Consecutive statements read successive lanes of the same rows. Together they become one
//! operation, which merges vectors of rows pair by pair.

use super::error::{AssembleError, Failure};
use super::expander::Expander;
use super::instruction_set::Arithmetic;
use super::leaf::{BlockOp, Lanes, LeafInput};
use super::nest::{ElementBase, LeafNest, ValueKind, ValueTree};
use autotune_ir::formula::Primitive;
use autotune_ir::program::StoreMode;
use autotune_ir::spec::Reduction;

/// Returns the reduction operator, if a statement only combines its destination with a value that
/// it reads.
pub(super) fn combined_by(mode: StoreMode, value: ValueKind) -> Option<Reduction> {
    match (mode, value) {
        (StoreMode::Accumulate, ValueKind::Input(_)) => Some(Reduction::Sum),
        (StoreMode::Assign, ValueKind::Binary(Arithmetic::Mul, ..)) => Some(Reduction::Product),
        (StoreMode::Assign, ValueKind::Binary(Arithmetic::Max, ..)) => Some(Reduction::MaxNumber),
        (StoreMode::Assign, ValueKind::Step(Primitive::Maximum, _)) => Some(Reduction::Max),
        (StoreMode::Assign, ValueKind::Step(Primitive::Minimum, _)) => Some(Reduction::Min),
        _ => None,
    }
}

impl Expander<'_> {
    /// True if a value reads one lane of each of several accumulators.
    #[inline]
    pub(super) fn folds(&self, nest: &LeafNest, value: ValueTree) -> bool {
        let is_of_rows = |element: u32| {
            let is_register = matches!(nest.elements[element as usize].place, ElementBase::Accumulators(_));
            is_register && self.lanes_of(nest, element).stride > 1
        };
        (value.inputs.0..value.inputs.1).any(is_of_rows)
    }

    /// Adds one more lane to a horizontal reduction, or starts one.
    pub(super) fn fold(
        &mut self,
        nest: &LeafNest,
        (dst, mode, value): (u32, StoreMode, ValueTree),
    ) -> Result<(), Failure> {
        let inputs: Vec<Lanes> = (value.inputs.0..value.inputs.1).map(|element| self.lanes_of(nest, element)).collect();
        let to = self.lanes_of(nest, dst);
        let refused = match to.place {
            ElementBase::Accumulators(buffer) => AssembleError::register_index(self.program, buffer),
            _ => AssembleError::Fold.into(),
        };
        let kind = nest.values[value.root as usize].kind;
        let by = combined_by(mode, kind);
        if by.is_none() && !matches!((mode, kind), (StoreMode::Assign, ValueKind::Input(_))) {
            return Err(refused);
        }
        let of_rows = match inputs[..] {
            [only] if by.is_none_or(|by| by == Reduction::Sum) => only,
            [a, b] if b == to => a,
            [a, b] if a == to => b,
            _ => return Err(refused),
        };
        let LeafInput::Accumulator(acc) = self.input(nest, dst)? else { return Err(refused) };
        let Some((rows, lane)) = self.leaf.rows_of(of_rows) else { return Err(refused) };

        let known = &self.leaf.rows;
        // Reductions of other rows may be interleaved with this one.
        let folds = self.leaf.ops.iter_mut().rev().take_while(|op| matches!(op, BlockOp::Fold { .. }));
        let mut folds = folds.filter(|op| matches!(op, BlockOp::Fold { acc: to, .. } if *to == acc));
        match (folds.next(), by) {
            // An assignment of lane 0 starts a reduction.
            (_, None) if lane == 0 => {
                let first = known.len() as u32;
                let rows_at = (first, first + rows.len() as u32);
                self.leaf.rows.extend(rows);
                self.leaf.ops.push(BlockOp::Fold { acc, rows: rows_at, lanes: 1, by: None });
            }
            // The next lane of the same rows continues it.
            (Some(BlockOp::Fold { rows: at, lanes, by: so_far, .. }), Some(by))
                if *lanes == lane
                    && so_far.is_none_or(|so_far| so_far == by)
                    && known[at.0 as usize..at.1 as usize] == rows[..] =>
            {
                *lanes += 1;
                *so_far = Some(by);
            }
            _ => return Err(refused),
        }
        Ok(())
    }
}
