//! Checks of where nodes may be in a tree.

use super::ProgramError;
use super::walk::TreePath;
use crate::affine::VarId;
use crate::instruction::{Asynchrony, Executor};
use crate::program::{Access, Buffer, BufferId, GatherAccess, LoopKind, Node, Role, Scope, Store, WarpRole};

impl TreePath<'_, '_> {
    /// Returns the reason why a node must not be at this place, if there is one.
    pub(super) fn misplaced(&self, node: &Node) -> Option<&'static str> {
        let in_vector = self.loops.last().is_some_and(|l| l.kind == LoopKind::Vectorized);
        let is_taken = |var: VarId| self.is_bound(var) || var.0 as usize >= self.program.vars.len();
        let is_top = || self.allocs.is_empty() && self.loops.iter().all(|l| l.kind == LoopKind::Parallel);
        let scope = |id: BufferId| self.program.buffers.get(id.0 as usize).map(|b| b.scope);
        let is_free = |id: BufferId| match scope(id) {
            Some(Scope::Global) | None => false,
            Some(scope) => {
                let is_of_gpu = matches!(scope, Scope::Shared | Scope::Warp);
                (!is_of_gpu || self.on_gpu) && self.allocs.iter().all(|(open, _)| *open != id)
            }
        };

        Some(match node {
            Node::Loop(_) | Node::Alloc { .. } | Node::Prefetch { .. } | Node::Unflatten { .. } if in_vector => {
                "a vectorized loop may contain only stores"
            }
            Node::CopyGroup { .. } | Node::AwaitCopies { .. } if in_vector || !self.is_for_all() => {
                "every thread must begin and await a group of copies"
            }

            node if !self.can_execute(node) => "this target, or the warps of this role, cannot execute this node",
            Node::Mbarrier(_) if in_vector || !self.is_for_all() => "every thread of its role must reach an mbarrier",
            Node::Call { .. } if in_vector || !self.is_uniform() => "every thread must reach an instruction call",
            Node::Call { instruction, .. } if instruction.asynchrony == Asynchrony::Copies => {
                return (!self.in_group).then_some("an asynchronous copy must be in a group of copies");
            }

            // A condition that is equal for all threads lets all of them skip a barrier together.
            Node::Barrier if in_vector || !self.is_uniform() || !self.digits.is_empty() => {
                "every thread must reach a barrier"
            }
            Node::Unflatten { value, digits, .. }
                if digits.iter().any(|d| d.extent == 0 || is_taken(d.var)) || value.range(|v| self.extent(v)).0 < 0 =>
            {
                "digits must split a number that is not negative, with extents of at least 1 and unused variables"
            }

            Node::Loop(l) if l.kind == LoopKind::Parallel && !is_top() => "a parallel loop must be at the top",
            Node::Loop(l) if matches!(l.kind, LoopKind::Block | LoopKind::Thread) && !self.prefix.contains(&l.var) => {
                "a loop over blocks or threads must be at the top"
            }
            Node::Loop(l) if l.extent == 0 || l.extent > i64::MAX as usize => "a loop has no iterations or too many",
            Node::Loop(l) if is_taken(l.var) => "a loop variable is already in use or has no name",
            Node::Alloc { buffer, .. } if !is_free(*buffer) => {
                "cannot allocate a buffer that is global or already allocated"
            }
            Node::Prefetch { access, .. } if matches!(scope(access.buffer), Some(Scope::Register | Scope::Warp)) => {
                "registers cannot be prefetched"
            }
            _ => return None,
        })
    }

    /// Checks that a gather reads an operand, which nothing writes; its index is in bounds for any
    /// values.
    pub(super) fn check_gather(&self, GatherAccess { access, dims, at }: &GatherAccess) -> Result<(), ProgramError> {
        let buffer = self.program.buffer(access.buffer);
        let is_zero = |dim: &usize| access.index.get(*dim).is_some_and(|index| index.as_constant() == Some(0));
        let is_once = |(place, dim): (usize, &usize)| !dims[..place].contains(dim) && is_zero(dim);
        let is_operand = matches!(buffer.role, Role::Operand(_));
        match is_operand && dims.len() == at.len() && dims.iter().enumerate().all(is_once) {
            true => Ok(()),
            false => self.nesting("a gather must read an operand, with each gathered dimension once and at index 0"),
        }
    }

    /// Checks that a group of copies contains only copies from global to shared memory.
    pub(super) fn check_copy(&self, store: &Store, dst: &Buffer) -> Result<(), ProgramError> {
        let is_global = |from: &Access| self.program.buffer(from.buffer).scope == Scope::Global;
        let is_copy = dst.scope == Scope::Shared && store.copied().is_some_and(|(from, _)| is_global(from));
        if self.in_group && !is_copy {
            return self.nesting("a group of copies may contain only copies from global to shared memory");
        }
        Ok(())
    }

    /// Returns false for a node that a CPU, or the warps of the current role, cannot execute.
    /// Consumers copy nothing, and the producer copies only boxes, which are equal for all threads;
    /// neither may wait for all threads of a block.
    fn can_execute(&self, node: &Node) -> bool {
        match (self.role, node) {
            _ if !self.on_gpu => match node {
                Node::Call { instruction, .. } => instruction.executor == Executor::Core,
                _ => matches!(node, Node::Loop(_) | Node::Alloc { .. } | Node::Store(_) | Node::Prefetch { .. }),
            },
            (_, Node::Call { instruction, .. }) if instruction.executor == Executor::Core => false,
            (role, Node::Mbarrier(mbarrier)) => role == Some(mbarrier.role()),
            (None, _) => true,
            // A barrier waits for all threads of a block, which the other role never reaches.
            (Some(_), Node::Barrier | Node::AwaitCopies { .. } | Node::Alloc { .. } | Node::Prefetch { .. }) => false,
            (Some(WarpRole::Consumers), node) => !matches!(node, Node::CopyGroup { .. }),
            // Boxes are copied whole; the copy engine fills elements out of bounds with zeros.
            (Some(WarpRole::Producer), Node::Guard { .. }) => false,
            (Some(WarpRole::Producer), Node::Call { instruction, .. }) => instruction.asynchrony == Asynchrony::Copies,
            (Some(WarpRole::Producer), Node::Store(_)) => self.in_engine,
            (Some(WarpRole::Producer), Node::Unflatten { value, .. }) => {
                self.in_engine || value.terms.iter().all(|&(var, _)| !self.is_thread(var))
            }
            (Some(WarpRole::Producer), _) => true,
        }
    }

    pub(super) fn is_thread(&self, var: VarId) -> bool {
        self.loops.iter().any(|l| l.var == var && l.kind == LoopKind::Thread)
    }

    /// Returns true if all threads of the block, or of the role, execute the current node, outside
    /// of a group of copies.
    fn is_for_all(&self) -> bool {
        // A role may skip the operation as a whole, if all its threads do.
        let digits = if self.role.is_some() { self.is_uniform() } else { self.digits.is_empty() };
        !self.in_group && self.guards.is_empty() && digits
    }

    /// Returns true if the enclosing conditions and digits are equal for all threads of a block.
    fn is_uniform(&self) -> bool {
        let numbers = self.digits.iter().map(|d| d.value).chain(self.guards.iter().map(|guard| &guard.index));
        numbers.flat_map(|number| &number.terms).all(|&(var, _)| !self.is_thread(var))
    }
}
