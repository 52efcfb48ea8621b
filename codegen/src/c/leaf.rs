//! Parameters of a register tile's C function.

use std::collections::BTreeSet;

use crate::{bound_vars, flat_offset};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{Access, BufferId, Node, Program, Scope, preorder};

/// A pointer parameter of a register tile's function: the address of element `base` of `buffer`,
/// where `base` is affine in the variables outside the tile.
pub(super) struct TilePointer {
    pub(super) buffer: BufferId,
    pub(super) base: Affine,
}

/// The memory that a register tile reads and writes.
pub(super) struct TileInterface {
    pub(super) pointers: Vec<TilePointer>,
    /// Variables bound inside the tile, in order of appearance.
    pub(super) inner: Vec<VarId>,
    /// Global and local buffers that the tile writes.
    pub(super) written: BTreeSet<BufferId>,
}

impl TileInterface {
    pub(super) fn of(program: &Program, node: &Node) -> Self {
        let mut leaf = TileInterface { pointers: Vec::new(), inner: bound_vars(node), written: BTreeSet::new() };
        for node in preorder(std::slice::from_ref(node)) {
            match node {
                Node::Store(store) => {
                    leaf.written.insert(store.dst.buffer);
                    store.value.for_each_load(&mut |access| leaf.record_access(program, access));
                    leaf.record_access(program, &store.dst);
                }
                Node::Prefetch { access, .. } => leaf.record_access(program, access),
                _ => {}
            }
        }
        leaf
    }

    fn record_access(&mut self, program: &Program, access: &Access) {
        if program.buffer(access.buffer).scope != Scope::Register {
            let offset = flat_offset(program, access);
            if self.find(access.buffer, &offset).is_none() {
                // Accesses that differ by a constant share a pointer, so the base has the outer
                // terms only.
                let terms = offset.terms.into_iter().filter(|t| !self.inner.contains(&t.0)).collect();
                self.pointers
                    .push(TilePointer { buffer: access.buffer, base: Affine { constant: offset.constant, terms } });
            }
        }
    }

    /// Returns the pointer from which `offset` is constant in the variables outside the tile.
    pub(super) fn find(&self, buffer: BufferId, offset: &Affine) -> Option<usize> {
        let is_outer = |t: &&(VarId, i64)| !self.inner.contains(&t.0);
        self.pointers
            .iter()
            .position(|p| p.buffer == buffer && p.base.terms.iter().eq(offset.terms.iter().filter(is_outer)))
    }
}
