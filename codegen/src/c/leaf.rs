//! What a register tile's function gets.

use std::collections::BTreeSet;

use crate::{bound_vars, flat_offset};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{Access, BufferId, Node, Program, Scope, preorder};

/// A pointer that a register tile gets: elements of `buffer` from `base` on, affine in the
/// variables outside.
pub(super) struct Pointer {
    pub(super) buffer: BufferId,
    pub(super) base: Affine,
}

/// What a register tile reads and writes.
pub(super) struct Leaf {
    pub(super) pointers: Vec<Pointer>,
    /// Variables bound inside, in order of appearance.
    pub(super) inner: Vec<VarId>,
    /// Global and local buffers that it writes.
    pub(super) written: BTreeSet<BufferId>,
}

impl Leaf {
    pub(super) fn of(program: &Program, node: &Node) -> Self {
        let mut leaf = Leaf { pointers: Vec::new(), inner: bound_vars(node), written: BTreeSet::new() };
        for node in preorder(std::slice::from_ref(node)) {
            match node {
                Node::Store(store) => {
                    leaf.written.insert(store.dst.buffer);
                    store.value.for_each_load(&mut |access| leaf.touch(program, access));
                    leaf.touch(program, &store.dst);
                }
                Node::Prefetch { access, .. } => leaf.touch(program, access),
                _ => {}
            }
        }
        leaf
    }

    fn touch(&mut self, program: &Program, access: &Access) {
        if program.buffer(access.buffer).scope != Scope::Register {
            let offset = flat_offset(program, access);
            if self.find(access.buffer, &offset).is_none() {
                let terms = offset.terms.into_iter().filter(|t| !self.inner.contains(&t.0)).collect();
                self.pointers
                    .push(Pointer { buffer: access.buffer, base: Affine { constant: offset.constant, terms } });
            }
        }
    }

    /// The pointer from which `offset` is constant in the variables outside.
    pub(super) fn find(&self, buffer: BufferId, offset: &Affine) -> Option<usize> {
        let is_outer = |t: &&(VarId, i64)| !self.inner.contains(&t.0);
        self.pointers
            .iter()
            .position(|p| p.buffer == buffer && p.base.terms.iter().eq(offset.terms.iter().filter(is_outer)))
    }
}
