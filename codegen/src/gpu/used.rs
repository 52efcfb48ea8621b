//! What occurs in a kernel.

use std::collections::HashSet;

use autotune_ir::instruction::Instruction;
use autotune_ir::program::{Access, BufferId, Expr, InBounds, Loop, Node};

/// What occurs in some nodes.
#[derive(Default)]
pub(super) struct Used<'a> {
    pub(super) accesses: Vec<&'a Access>,
    pub(super) conditions: Vec<&'a InBounds>,
    pub(super) stored: HashSet<BufferId>,
    /// True for copies that may be under way.
    pub(super) copies: bool,
    /// What is called, with the nest of each call.
    pub(super) calls: Vec<(&'static Instruction, &'a [Node])>,
    pub(super) allocated: HashSet<BufferId>,
}

impl<'a> Used<'a> {
    pub(super) fn of(nodes: &'a [Node]) -> Self {
        let mut used = Self::default();
        used.nodes(nodes);
        used
    }

    /// True if some node calls an instruction.
    pub(super) fn calls(&self, instruction: &Instruction) -> bool {
        self.calls.iter().any(|call| call.0 == instruction)
    }

    fn nodes(&mut self, nodes: &'a [Node]) {
        for node in nodes {
            match node {
                Node::Barrier | Node::AwaitCopies { .. } | Node::Prefetch { .. } | Node::Mbarrier(_) => {}
                Node::CopyGroup { body } => {
                    self.copies = true;
                    self.nodes(body);
                }
                Node::Call { instruction, body } => {
                    self.calls.push((instruction, body));
                    self.nodes(body);
                }
                Node::Loop(Loop { body, .. }) | Node::Unflatten { body, .. } | Node::Specialised { body, .. } => {
                    self.nodes(body)
                }
                Node::Guard { when, body } => {
                    self.conditions.extend(when);
                    self.nodes(body);
                }
                Node::Alloc { buffer, body } => {
                    self.allocated.insert(*buffer);
                    self.nodes(body);
                }
                Node::Store(store) => {
                    self.stored.insert(store.dst.buffer);
                    self.accesses.push(&store.dst);
                    self.expr(&store.value);
                }
            }
        }
    }

    fn expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::Const(_) => {}
            Expr::Load(access) => self.accesses.push(access),
            Expr::Add(of) | Expr::Mul(of) | Expr::Max(of) => of.iter().for_each(|expr| self.expr(expr)),
            Expr::Guarded { when, value } => {
                self.conditions.extend(when);
                self.expr(value);
            }
        }
    }
}
