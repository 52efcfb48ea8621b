//! Accesses, buffers and instructions that occur in a kernel.

use std::collections::HashSet;

use autotune_ir::instruction::Instruction;
use autotune_ir::program::{Access, BufferId, Expr, InBounds, Node, Store, preorder};

/// Summary of some nodes.
#[derive(Default)]
pub(super) struct Used<'a> {
    pub(super) accesses: Vec<&'a Access>,
    pub(super) conditions: Vec<&'a InBounds>,
    pub(super) stored: HashSet<BufferId>,
    /// True if there are asynchronous copies.
    pub(super) copies: bool,
    /// Instructions that are called, with the nest of each call.
    pub(super) calls: Vec<(&'static Instruction, &'a [Node])>,
    pub(super) allocated: HashSet<BufferId>,
}

impl<'a> Used<'a> {
    pub(super) fn of(nodes: &'a [Node]) -> Self {
        let mut used = Self::default();
        for node in preorder(nodes) {
            match node {
                Node::CopyGroup { .. } => used.copies = true,
                Node::Call { instruction, body } => used.calls.push((instruction, body)),
                Node::Guard { when, .. } => used.conditions.extend(when),
                Node::Alloc { buffer, .. } => drop(used.allocated.insert(*buffer)),
                Node::Store(store) => used.store(store),
                _ => {}
            }
        }
        used
    }

    fn store(&mut self, store: &'a Store) {
        self.stored.insert(store.dst.buffer);
        self.accesses.push(&store.dst);
        store.value.for_each(&mut |expr| match expr {
            Expr::Load(access) => self.accesses.push(access),
            Expr::Guarded { when, .. } => self.conditions.extend(when),
            _ => {}
        });
    }

    /// True if some node calls the instruction.
    pub(super) fn calls(&self, instruction: &Instruction) -> bool {
        self.calls.iter().any(|call| call.0 == instruction)
    }
}
