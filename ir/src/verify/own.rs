//! That threads and tasks store to elements of their own.

use super::Problem;
use super::VerifyError;
use super::gpu::Digits;
use super::walk::{Walk, Write, has};
use crate::affine::{Affine, VarId};
use crate::instruction::Asynchrony;
use crate::program::{Buffer, Expr, LoopKind, Node, Scope, Store, StoreMode, WarpRole};
use crate::sets::Set;

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

    /// False for what warps of a role do not do: consumers copy nothing, the producer only boxes, which are the same for all
    /// threads; nobody waits for all threads of a block.
    pub(super) fn may_be_on(&self, node: &Node) -> bool {
        match (self.role, node) {
            (role, Node::Mbarrier(mbarrier)) => role == Some(mbarrier.role()),
            (None, _) => true,
            (Some(_), Node::Barrier | Node::AwaitCopies { .. } | Node::Alloc { .. } | Node::Prefetch { .. }) => false,
            (Some(WarpRole::Consumers), node) => !matches!(node, Node::CopyGroup { .. }),
            (Some(WarpRole::Producer), Node::Guard { .. }) => false,
            (Some(WarpRole::Producer), Node::Call { instruction, .. }) => instruction.asynchrony == Asynchrony::Copies,
            (Some(WarpRole::Producer), Node::Store(_)) => self.in_engine,
            (Some(WarpRole::Producer), Node::Unflatten { value, .. }) => {
                self.in_engine || value.terms.iter().all(|&(var, _)| !self.is_thread(var))
            }
            (Some(WarpRole::Producer), _) => true,
        }
    }

    fn is_thread(&self, var: VarId) -> bool {
        self.loops.iter().any(|l| l.var == var && l.kind == LoopKind::Thread)
    }

    /// True where all threads of the block, or of a role, come by, and there is no group of copies open.
    pub(super) fn is_for_all(&self) -> bool {
        let digits = if self.role.is_some() { self.is_uniform() } else { self.digits.is_empty() };
        !self.in_group && self.guards.is_empty() && digits
    }

    /// True if conditions and digits around are the same for all threads of a block.
    pub(super) fn is_uniform(&self) -> bool {
        let numbers = self.digits.iter().map(|d| d.value).chain(self.guards.iter().map(|guard| &guard.index));
        numbers.flat_map(|number| &number.terms).all(|&(var, _)| !self.is_thread(var))
    }

    /// True if every number has the digits, or, where the values depend on the digits, every combination of digits occurs once.
    pub(super) fn is_always_there(&self, number: &Digits, values: &[Affine]) -> bool {
        let Digits { value, digits } = number;
        let count: usize = digits.iter().map(|d| d.extent).product();
        let counted = |var: VarId| values.iter().any(|value| has(value, var));
        if !digits.iter().any(|d| counted(d.var)) {
            return value.range(|var| self.extent(var)).1 < count as i64;
        }
        let all = Set::of(value, |var| self.extent(var)).and_then(|set| set.as_prefix());
        let apart = value.terms.iter().all(|&(var, _)| !counted(var));
        all.is_some_and(|n| n >= count) && apart && digits.iter().all(|d| d.extent == 1 || counted(d.var))
    }

    /// True if the index tells the value of a variable, by itself or through digits, which are those of one value only.
    fn tells(&self, index: &[Affine], var: VarId) -> bool {
        let through = |d: &Digits| {
            has(d.value, var)
                && Set::of(d.value, |var| self.extent(var)).is_some()
                && d.digits.iter().all(|d| self.tells(index, d.var))
        };
        self.extent(var) == 1 || index.iter().any(|value| has(value, var)) || self.digits.iter().any(through)
    }

    /// True if the digits that the index of a store is made of take every combination, each once, whatever the rest of the index
    /// is, and the other digits keep nothing from being stored.
    fn digits_are_free(&self, store: &Store) -> bool {
        let guards = self.guards.iter().map(|guard| &guard.index);
        // What decides the place: the index and its conditions, and the numbers whose digits do.
        let mut deciding: Vec<&Affine> = store.dst.index.iter().chain(guards).collect();
        self.digits.iter().rev().all(|Digits { value, digits }| {
            let count: usize = digits.iter().map(|d| d.extent).product();
            let decides = |var: VarId| self.extent(var) > 1 && deciding.iter().any(|value| has(value, var));
            let always_runs = value.range(|var| self.extent(var)).1 < count as i64;
            if always_runs && !digits.iter().any(|d| decides(d.var)) {
                return true;
            }
            let all = Set::of(value, |var| self.extent(var)).and_then(|set| set.as_prefix());
            let free = all.is_some_and(|n| n >= count)
                && digits.iter().all(|d| self.tells(&store.dst.index, d.var))
                && !value.terms.iter().any(|&(var, _)| decides(var));
            deciding.push(value);
            free
        })
    }

    /// Notes a store to global memory; each task stores to elements of its own.
    pub(super) fn global_write(&mut self, store: &Store, dst: &Buffer) -> Result<(), VerifyError> {
        let index = &store.dst.index;
        let own = self.prefix.iter().all(|&var| self.tells(index, var)) && self.digits_are_free(store);
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
        let index = &store.dst.index;
        let mut threads = self.prefix.iter().copied().filter(|&var| self.extent(var) > 1 && self.is_thread(var));
        if threads.all(|var| self.tells(index, var)) && self.covered(index, &[]).is_some() {
            return Ok(());
        }
        let what = "not plainly an element of its own for every thread".into();
        self.fail(Problem::Conflict { buffer: dst.name.clone(), what })
    }
}
