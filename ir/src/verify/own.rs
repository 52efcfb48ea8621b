//! Proof that threads and tasks store to disjoint elements.

use super::gpu::Digits;
use super::walk::{TreePath, Write, has};
use super::{Problem, ProgramError};
use crate::affine::{Affine, VarId};
use crate::instruction::LANES;
use crate::program::{Buffer, LoopKind, Store};
use crate::sets::IntervalSet;

impl TreePath<'_, '_> {
    /// Returns true if the digits never skip the body, or, if `values` depend on the digits, if
    /// every combination of digits occurs once.
    pub(super) fn covers_all_values(&self, number: &Digits, values: &[Affine]) -> bool {
        let Digits { value, digits } = number;
        let count: usize = digits.iter().map(|d| d.extent).product();
        let counted = |var: VarId| values.iter().any(|value| has(value, var));
        if !digits.iter().any(|d| counted(d.var)) {
            return value.range(|var| self.extent(var)).1 < count as i64;
        }
        let all = IntervalSet::of(value, |var| self.extent(var)).and_then(|set| set.as_prefix());
        // The split value must not depend on variables that `values` use directly.
        let apart = value.terms.iter().all(|&(var, _)| !counted(var));
        all.is_some_and(|n| n >= count) && apart && digits.iter().all(|d| d.extent == 1 || counted(d.var))
    }

    /// Returns true if the index determines the value of a variable, directly or through the digits
    /// of a single split value.
    fn determines(&self, index: &[Affine], var: VarId) -> bool {
        let through = |d: &Digits| {
            has(d.value, var)
                && IntervalSet::of(d.value, |var| self.extent(var)).is_some()
                && d.digits.iter().all(|d| self.determines(index, d.var))
        };
        self.extent(var) == 1 || index.iter().any(|value| has(value, var)) || self.digits.iter().any(through)
    }

    /// Returns true if the digits in the index of a store take every combination exactly once,
    /// independent of the rest of the index, and no other digits skip the store.
    fn digits_are_free(&self, store: &Store) -> bool {
        if self.digits.is_empty() {
            return true;
        }
        let guards = self.guards.iter().map(|guard| &guard.index);
        // Variables that decide which element is stored: those of the index, its conditions, and
        // recursively of the values whose digits occur.
        let mut deciding: Vec<&Affine> = store.dst.index.iter().chain(guards).collect();
        self.digits.iter().rev().all(|Digits { value, digits }| {
            let count: usize = digits.iter().map(|d| d.extent).product();
            let decides = |var: VarId| self.extent(var) > 1 && deciding.iter().any(|value| has(value, var));
            let always_runs = value.range(|var| self.extent(var)).1 < count as i64;
            if always_runs && !digits.iter().any(|d| decides(d.var)) {
                return true;
            }
            let all = IntervalSet::of(value, |var| self.extent(var)).and_then(|set| set.as_prefix());
            let free = all.is_some_and(|n| n >= count)
                && digits.iter().all(|d| self.determines(&store.dst.index, d.var))
                && !value.terms.iter().any(|&(var, _)| decides(var));
            // Splits further out must not depend on this value either.
            deciding.push(value);
            free
        })
    }

    /// Records a store to global memory; fails unless each task provably stores to elements of its
    /// own.
    pub(super) fn global_write(&mut self, store: &Store, dst: &Buffer) -> Result<(), ProgramError> {
        let index = &store.dst.index;
        // Two tasks could store to one element if the index did not determine the task.
        let own = self.prefix.iter().all(|&var| self.determines(index, var)) && self.digits_are_free(store);
        let (Some(covered), true) = (self.covered(index, &self.guards), own) else {
            let what = "cannot prove that every task stores to a different element".into();
            return self.fail(Problem::Conflict { buffer: dst.name.clone(), what });
        };
        let (buffer, mode) = (store.dst.buffer, store.mode);
        self.found.writes.push(Write { buffer, mode, tree: self.tree, covered });
        Ok(())
    }

    /// Checks that each thread stores to elements of its own, among those that the statement stores
    /// to between two barriers.
    pub(super) fn shared_write(&self, store: &Store, dst: &Buffer) -> Result<(), ProgramError> {
        let index = &store.dst.index;
        let mut threads = self.prefix.iter().copied().filter(|&var| self.extent(var) > 1 && self.is_thread(var));
        if threads.all(|var| self.determines(index, var)) && self.covered(index, &[]).is_some() {
            return Ok(());
        }
        let what = "cannot prove that every thread stores to a different element".into();
        self.fail(Problem::Conflict { buffer: dst.name.clone(), what })
    }

    /// Checks that each thread stores to elements of its own lane in a buffer of its warp.
    pub(super) fn warp_write(&self, store: &Store, dst: &Buffer) -> Result<(), ProgramError> {
        let threads: Vec<(VarId, usize)> =
            self.loops.iter().filter(|l| l.kind == LoopKind::Thread).map(|l| (l.var, l.extent)).collect();
        let (Some((warps, lanes)), Some(_)) = (threads.split_last_chunk::<2>(), dst.lane_dims()) else {
            return self.nesting("a buffer of warps needs the shape of a fragment and thread loops over lanes");
        };
        let number =
            warps.iter().fold(Affine::default(), |number, &(var, extent)| number * extent as i64 + Affine::var(var));
        let count = warps.iter().map(|warp| warp.1).product::<usize>();
        let is = |index: &Affine, wanted: &Affine| {
            let mut apart = index.clone();
            apart.add_scaled(wanted, -1);
            apart.constant == 0 && apart.terms.iter().all(|&(var, _)| self.extent(var) == 1)
        };

        let [warp, i, j, h, row, pair, c] = &store.dst.index[..] else {
            return self.nesting("the number of indices differs from the number of dimensions");
        };
        let is_own = is(warp, &number)
            && [row, pair].into_iter().zip(lanes).all(|(index, lane)| is(index, &Affine::var(lane.0)))
            && [dst.shape[4], dst.shape[5]] == LANES
            && lanes.each_ref().map(|lane| lane.1) == LANES
            && dst.shape[0] == count;
        let is_constant = |var: VarId| self.loops.iter().any(|l| l.var == var && l.kind == LoopKind::Unrolled);
        let is_register = [i, j, h, c].into_iter().all(|index| index.terms.iter().all(|term| is_constant(term.0)));
        if is_own && is_register {
            return Ok(());
        }
        let what = "a thread stores to an element that is not of its own lane, or not a register".into();
        self.fail(Problem::Conflict { buffer: dst.name.clone(), what })
    }
}
