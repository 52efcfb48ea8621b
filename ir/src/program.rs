//! The loop nest: the result of lowering a config. Features, analysis, interpreter and code
//! generators read it.
//!
//! A [`Program`] is a list of buffers and a list of stages. A stage is a forest of loops, whose
//! leaves are stores and prefetches. Every loop has a constant extent, and every index is affine in
//! the loop variables. On a CPU there are no branches: remainders are separate nests, and padding
//! is resolved during lowering.
//!
//! # GPU stages
//!
//! A stage for a GPU is one tree and one kernel launch. Its block loops are outermost, with its
//! thread loops directly inside. Every thread of a block executes the body of the thread loops; the
//! threads are synchronised only by [`Node::Barrier`]s:
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
//! Tiles that exceed a tensor are guarded ([`InBounds`]) instead of peeled.
//!
//! Copies to shared memory may be asynchronous ([`Node::CopyGroup`]), and the warps of a block may
//! execute a matrix instruction together ([`Node::Call`]). With warp specialisation, a block has an
//! additional warp group that only copies ([`Node::Specialised`]).

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
pub use expr::{Access, Expr, GatherAccess, InBounds, Index, TABLE_LEN, gathered_index};
pub use grid::GpuGrid;
pub use node::{Digit, Loop, LoopKind, Node, PrefetchLevel, Stage, When, parallel_prefix};
pub use op::{BinaryOp, Compare, UnaryOp};
pub use preorder::preorder;
pub use store::{Iteration, Store, StoreMode};
pub use warp_role::{Mbarrier, PRODUCER_THREADS, WarpRole};

/// Maximum bytes of private memory per thread of a CPU kernel.
pub const MAX_LOCAL_BYTES: usize = 64 << 20;

/// Axis of a program's iteration space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisInfo {
    /// Name as in the main equation; `oi`, `ci`, `gi` for the lanes of a channel block, `p` for the
    /// pixels of all outputs.
    pub name: &'static str,
    /// Number of iterations, at least 1.
    pub extent: usize,
    /// True for a reduction axis, false for a spatial one.
    pub reduce: bool,
    /// Relation to the axes of the main equation.
    pub of: AxisOf,
}

/// Relation of a program's axis to the axes of the main equation of [`Program::algorithm`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxisOf {
    /// Whole axis, or a digit of one. The value of the equation's axis is the sum of `step` times
    /// the value over all its digits.
    Part {
        /// Axis of the equation.
        axis: AxisId,
        /// Weight of the digit; 1 for a whole axis.
        step: usize,
    },
    /// Several axes fused into one, outermost first.
    Fused(SmallVec<[AxisId; 3]>),
}

impl AxisInfo {
    /// Returns an unchanged axis of the main equation.
    pub fn whole(id: AxisId, axis: &Axis) -> Self {
        let Axis { name, extent, reduce } = *axis;
        Self { name, extent, reduce, of: AxisOf::Part { axis: id, step: 1 } }
    }
}

/// Name of a loop variable.
pub type VarName = Cow<'static, str>;

/// Lowered schedule of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Specification of the computation.
    pub spec: Arc<Spec>,
    /// Algorithm: the spec itself, or a rewritten one with the same operands and result.
    pub algorithm: Arc<Spec>,
    /// Iteration space of the algorithm's main equation, which [`Iteration::point`] refers to.
    pub axes: Vec<AxisInfo>,
    /// Name of every loop variable, indexed by [`VarId`](crate::VarId).
    pub vars: Vec<VarName>,
    /// Every buffer, indexed by [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// Stages in order of execution.
    pub stages: Vec<Stage>,
    /// True if constants are uncached when a run begins. Affects estimates only, no result.
    pub cold: bool,
}

impl Program {
    /// Returns the buffer with this id.
    pub fn buffer(&self, id: BufferId) -> &Buffer {
        &self.buffers[id.0 as usize]
    }

    /// Returns the element type of a buffer.
    pub fn dtype(&self, id: BufferId) -> DType {
        self.buffer(id).dtype
    }

    /// Returns true if some buffer has an integer type.
    pub fn has_integers(&self) -> bool {
        self.buffers.iter().any(|buffer| buffer.dtype.is_integer())
    }

    /// Returns the first buffer with this role, if there is one.
    pub fn find(&self, role: Role) -> Option<BufferId> {
        self.buffers.iter().position(|b| b.role == role).map(|i| BufferId(i as u32))
    }
}
