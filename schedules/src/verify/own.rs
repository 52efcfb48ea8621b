//! That threads and tasks store to elements of their own.

use super::Problem;
use super::VerifyError;
use super::gpu::Digits;
use super::sets::Set;
use super::walk::{Walk, Write, has};
use crate::affine::{Affine, VarId};
use crate::program::{BoxCopy, Buffer, Expr, LoopKind, Scope, Store, StoreMode};

impl Walk<'_, '_> {
    /// Within a group of copies there are only copies from global to shared memory.
    pub(super) fn check_copy(&self, store: &Store, dst: &Buffer) -> Result<(), VerifyError> {
        let load = match &store.value {
            Expr::Guarded { value, .. } => value,
            value => value,
        };
        let is_copy = matches!(load, Expr::Load(from) if self.program.buffer(from.buffer).scope == Scope::Global)
            && dst.scope == Scope::Shared
            && store.mode == StoreMode::Assign;
        if self.in_group && !is_copy {
            return self.nesting("a group of copies with something else in it");
        }
        Ok(())
    }

    fn is_thread(&self, var: VarId) -> bool {
        self.loops.iter().any(|l| l.var == var && l.kind == LoopKind::Thread)
    }

    /// True if conditions and digits around are the same for all threads of a block.
    pub(super) fn is_uniform(&self) -> bool {
        let numbers = self.digits.iter().map(|d| d.value).chain(self.guards.iter().map(|guard| &guard.index));
        numbers.flat_map(|number| &number.terms).all(|&(var, _)| !self.is_thread(var))
    }

    /// True if a box is the same for all threads of a block, and they copy all of it together.
    pub(super) fn is_of_block(&self, copy: &BoxCopy) -> bool {
        let rounds = |var: VarId| copy.rounds.iter().find(|l| l.var == var).map(|l| l.extent);
        let all = Set::of(copy.number, |var| rounds(var).unwrap_or_else(|| self.extent(var)));
        let count: usize = copy.digits.iter().map(|d| d.extent).product();
        let origins = [copy.origin(copy.to), copy.origin(copy.from)].concat();
        self.is_uniform()
            && origins.iter().flat_map(|index| &index.terms).all(|&(var, _)| !self.is_thread(var))
            && all.and_then(|set| set.as_prefix()).is_some_and(|n| n >= count)
    }

    /// True if every number has the digits, and, where the values depend on the digits, every combination of digits occurs once.
    pub(super) fn is_always_there(&self, number: &Digits, values: &[Affine]) -> bool {
        let Digits { value, digits } = number;
        let count: usize = digits.iter().map(|d| d.extent).product();
        let counted = |var: VarId| values.iter().any(|value| has(value, var));
        if !digits.iter().any(|d| counted(d.var)) {
            return value.range(|var| self.extent(var)).1 < count as i64;
        }
        let all = Set::of(value, |var| self.extent(var)).and_then(|set| set.as_prefix());
        let apart = value.terms.iter().all(|&(var, _)| !counted(var));
        all == Some(count) && apart && digits.iter().all(|d| d.extent == 1 || counted(d.var))
    }

    /// Notes a store to global memory; each task stores to elements of its own.
    pub(super) fn global_write(&mut self, store: &Store, dst: &Buffer) -> Result<(), VerifyError> {
        let index = &store.dst.index;
        let indexed = |var: VarId| self.extent(var) == 1 || index.iter().any(|value| has(value, var));
        let own = match &self.digits[..] {
            [] => self.prefix.iter().all(|&var| indexed(var)),
            // Every combination of digits occurs, each once; what does not choose the digits is in the index.
            [Digits { value, digits }] => {
                let count: usize = digits.iter().map(|d| d.extent).product();
                let all = Set::of(value, |var| self.extent(var)).and_then(|set| set.as_prefix());
                let one = |&var: &VarId| has(value, var) != index.iter().any(|i| has(i, var)) || self.extent(var) == 1;
                all.is_some_and(|n| n >= count) && self.prefix.iter().all(one) && digits.iter().all(|d| indexed(d.var))
            }
            _ => false,
        };
        let (Some(covered), true) = (self.covered(index, &self.guards), own) else {
            let what = "not plainly an element of its own for every task".into();
            return self.fail(Problem::Conflict { buffer: dst.name.clone(), what });
        };
        let (buffer, mode) = (store.dst.buffer, store.mode);
        self.found.writes.push(Write { buffer, mode, tree: self.tree, covered });
        Ok(())
    }

    /// Each thread stores to elements of its own, among those that one store touches between two barriers.
    pub(super) fn shared_write(&self, store: &Store, dst: &Buffer) -> Result<(), VerifyError> {
        let threads = self.prefix.iter().copied().filter(|&var| self.extent(var) > 1 && self.is_thread(var));
        let indexed = |var: VarId| store.dst.index.iter().any(|i| has(i, var));
        // Numbers that are the same for all threads tell none of them.
        let mut numbers = self.digits.iter().filter(|d| d.value.terms.iter().any(|&(var, _)| self.is_thread(var)));
        let tells_threads = match (numbers.next(), numbers.next()) {
            (None, _) => threads.clone().all(indexed),
            (Some(Digits { value, digits }), None) => {
                threads.clone().all(|var| has(value, var))
                    && Set::of(value, |var| self.extent(var)).is_some()
                    && digits.iter().all(|d| d.extent == 1 || indexed(d.var))
            }
            _ => false,
        };
        if tells_threads && self.covered(&store.dst.index, &[]).is_some() {
            return Ok(());
        }
        let what = "not plainly an element of its own for every thread".into();
        self.fail(Problem::Conflict { buffer: dst.name.clone(), what })
    }
}
