//! What occurs in a kernel.

use std::collections::HashSet;

use autotune_ir::program::{Access, BufferId, Expr, InBounds, Loop, Node, Team};

/// What occurs in some nodes.
#[derive(Default)]
pub(super) struct Used<'a> {
    pub(super) accesses: Vec<&'a Access>,
    pub(super) conditions: Vec<&'a InBounds>,
    pub(super) stored: HashSet<BufferId>,
    /// Copies that may be under way, and matrix instructions.
    pub(super) copies: bool,
    pub(super) matrices: bool,
    /// Copies of boxes, and matrix instructions of warp groups.
    pub(super) boxes: bool,
    pub(super) groups: bool,
    pub(super) allocated: HashSet<BufferId>,
}

impl<'a> Used<'a> {
    pub(super) fn of(nodes: &'a [Node]) -> Self {
        let mut used = Self::default();
        used.nodes(nodes);
        used
    }

    fn nodes(&mut self, nodes: &'a [Node]) {
        for node in nodes {
            match node {
                Node::Barrier | Node::AwaitCopies { .. } | Node::Prefetch { .. } | Node::Signal(_) => {}
                Node::CopyGroup { body } => {
                    self.copies = true;
                    self.nodes(body);
                }
                Node::BoxCopy { body } => {
                    self.boxes = true;
                    self.nodes(body);
                }
                Node::Mma { by, body } => {
                    match by {
                        Team::Warp => self.matrices = true,
                        Team::WarpGroup => self.groups = true,
                    }
                    self.nodes(body);
                }
                Node::Loop(Loop { body, .. }) | Node::Unflatten { body, .. } | Node::Side { body, .. } => {
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
