//! The loop nest: what a config is lowered to, and what features, interpreter and code generators
//! read.
//!
//! A [`Program`] is a list of buffers and a list of stages. A stage is a forest of loops; its
//! leaves are stores and prefetches. Every loop has a constant extent, every index is affine in the
//! loop variables, and on a CPU there are no branches: remainders are nests of their own and
//! padding is resolved while lowering.
//!
//! # GPU stages
//!
//! A stage for a GPU is one tree and one kernel launch. Its block loops are outermost, its thread
//! loops directly within, and what is within those is run by every thread of a block, in step from
//! [`Node::Barrier`] to barrier only:
//!
//! ```text
//! block m.b in 0..8
//!   thread m.t in 0..16
//!     thread n.t in 0..16                     linear thread number: 16*m.t + n.t
//!       alloc tile                            shared: one for the block
//!         serial k.0 in 0..32
//!           unrolled i in 0..2
//!             unflatten (x, y) in 8x64 = 256*i + 16*m.t + n.t
//!               tile[x, y] = if m.b*64 + y in 0..500 then input[..] else 0
//!           barrier
//!           ...
//! ```
//!
//! Tiles that stick out are guarded ([`InBounds`]) instead of peeled.
//!
//! Copies to shared memory may be under way while a block computes ([`Node::CopyGroup`]), and the
//! warps of a block may multiply together by one instruction ([`Node::Call`]). Warps may be
//! specialised: a block has a warp group more that only copies ([`Node::Specialised`]).

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::spec::{Axis, AxisId, Spec};

mod buffer;
mod expr;
mod grid;
mod local;
mod node;
mod op;
mod preorder;
mod specialised;
mod store;
mod warp_role;

pub use buffer::{Buffer, BufferId, Layout, Role, Scope};
pub use expr::{Access, Expr, Gather, InBounds, Index, gathered_index};
pub use grid::Grid;
pub use node::{Digit, Loop, LoopKind, Node, Stage, When, parallel_prefix};
pub use op::{BinaryOp, Compare, UnaryOp};
pub use preorder::preorder;
pub use store::{Iteration, Store, StoreMode};
pub use warp_role::{Mbarrier, PRODUCER_THREADS, WarpRole};

/// Most memory that one thread of a CPU's kernel has to itself.
pub const MAX_LOCAL_BYTES: usize = 64 << 20;

/// One axis of a program's iteration space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisInfo {
    /// Name, as in the main equation; `oi`, `ci`, `gi` for the lanes of a channel block, `p` for
    /// the pixels of all outputs.
    pub name: &'static str,
    /// Number of iterations.
    pub extent: usize,
    /// True for a reduction axis, false for a spatial one.
    pub reduce: bool,
    /// What it is of the main equation.
    pub of: AxisOf,
}

/// What an axis of a program is of the axes of the main equation of [`Program::algorithm`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxisOf {
    /// An axis, or a digit of it: the value of the equation's axis is the sum of `step` times the
    /// value over all its digits.
    Part {
        /// The equation's axis.
        axis: AxisId,
        /// By how much it grows.
        step: usize,
    },
    /// Several axes taken as one, the outermost first.
    Fused(SmallVec<[AxisId; 3]>),
}

impl AxisInfo {
    /// An axis of the main equation as it is.
    pub fn whole(id: AxisId, axis: &Axis) -> Self {
        let Axis { name, extent, reduce } = *axis;
        Self { name, extent, reduce, of: AxisOf::Part { axis: id, step: 1 } }
    }
}

/// Name of a loop variable.
pub type VarName = Cow<'static, str>;

/// A lowered schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// What it computes.
    pub spec: Arc<Spec>,
    /// How: the spec, or another one with the same operands and result that it was rewritten to.
    pub algorithm: Arc<Spec>,
    /// The iteration space of the algorithm's main equation, the meaning of [`Iteration::point`].
    pub axes: Vec<AxisInfo>,
    /// Name of every loop variable, by [`VarId`](crate::VarId).
    pub vars: Vec<VarName>,
    /// Every buffer, by [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// What runs, in this order.
    pub stages: Vec<Stage>,
    /// True if its constants are in no cache when a run begins. Nothing that is computed depends on
    /// it.
    pub cold: bool,
}

impl Program {
    /// The buffer behind an id.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// Type of a buffer's elements.
    pub fn dtype(&self, id: BufferId) -> DType {
        self.buffer(id).dtype
    }

    /// True if some buffer holds integers.
    pub fn has_integers(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.dtype.is_integer())
    }

    /// The first buffer of a role, if there is one.
    pub fn find(&self, role: Role) -> Option<BufferId> {
        self.buffers.iter().position(|b| b.role == role).map(|i| BufferId(i as u32))
    }
}
