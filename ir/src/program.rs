//! The loop nest: what a config is lowered to, and what features, interpreter and code generators read.
//!
//! A [`Program`] is a list of buffers and a list of stages. A stage is a forest of loops; its leaves are stores and
//! prefetches. Every loop has a constant extent, every index is affine in the loop variables, and on a CPU there are no branches:
//! remainders are nests of their own and padding is resolved while lowering.
//!
//! # GPU stages
//!
//! A stage for a GPU is one tree and one kernel launch. Its block loops are outermost, its thread loops directly within,
//! and what is within those is run by every thread of a block, in step from [`Node::Barrier`] to barrier only:
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
//! Copies to shared memory may be under way while a block computes ([`Node::CopyGroup`]), and the warps of a block may multiply
//! together by one instruction ([`Node::Call`]). Warps may be specialised: a block has a warp group more that only copies
//! ([`Node::Specialised`]).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use crate::affine::{Affine, VarId};
use crate::dtype::DType;
use crate::instruction::Instruction;
use crate::spec::{Axis, AxisId, Spec};

mod expr;
mod grid;
mod local;
mod op;
mod preorder;
mod warp_role;

pub use expr::{Access, Expr, Gather, InBounds, Index, gathered_index};
pub use grid::Grid;
pub use op::{BinaryOp, Compare, UnaryOp};
pub use preorder::preorder;
pub use warp_role::{Mbarrier, PRODUCER_THREADS, WarpRole};

/// Most memory that one thread of a CPU's kernel has to itself.
pub const MAX_LOCAL_BYTES: usize = 64 << 20;

/// A buffer, by its position in [`Program::buffers`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Given by the caller: of [`Spec::operands`], the one of this number.
    Operand(usize),
    /// The result.
    Output,
    /// A copy of an operand in another layout, a transform of it, or what a transform keeps on the way.
    Packed,
    /// Partial sums of one register tile.
    Accumulator,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Operand(number) => write!(f, "operand {number}"),
            Role::Output => f.write_str("output"),
            Role::Packed => f.write_str("packed"),
            Role::Accumulator => f.write_str("accumulator"),
        }
    }
}

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Memory that every thread sees and that outlives the stages.
    Global,
    /// Memory of one block of threads, valid inside the [`Node::Alloc`] that names it. GPU only.
    Shared,
    /// Memory of one thread, valid inside the [`Node::Alloc`] that names it.
    Local,
    /// Registers of one thread: every index is constant once unrolled and vectorised loops are expanded.
    /// Valid inside the [`Node::Alloc`] that names it.
    Register,
}

/// How the logical tensor (axes as in its [`crate::spec::Tensor`]) lies in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// The logical axes, row-major. For operands of role packed or accumulator it says nothing.
    Plain,
    /// `[n, c/block, h, w, block]` for a logical `[n, c, h, w]`, alike for images of other dimensions; `block` divides `c`.
    ChannelBlocked(usize),
}

/// A dense row-major array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// A name that is a C identifier and unique within the program.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Where it lives.
    pub scope: Scope,
    /// Physical shape, outermost first.
    pub shape: Vec<usize>,
    /// How the logical tensor lies in it.
    pub layout: Layout,
    /// Type of its elements.
    pub dtype: DType,
    /// True if nothing reads soon what is stored there: stores of whole vectors may go past the caches. On CPUs only.
    pub streamed: bool,
}

impl Buffer {
    /// A buffer of plain layout, whose elements are stored as they come.
    pub fn plain(name: impl Into<String>, role: Role, scope: Scope, shape: Vec<usize>, dtype: DType) -> Self {
        Self { name: name.into(), role, scope, shape, layout: Layout::Plain, dtype, streamed: false }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Size of the elements in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.len() * self.dtype.bytes()
    }

    /// True if some dimension is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> SmallVec<[i64; 6]> {
        let mut strides = smallvec![1; self.shape.len()];
        for d in (1..self.shape.len()).rev() {
            strides[d - 1] = strides[d] * self.shape[d] as i64;
        }
        strides
    }
}

/// How a loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoopKind {
    /// One iteration after another.
    Serial,
    /// Iterations in any order on any thread. Only at the top of a stage: every loop around a parallel loop is parallel.
    Parallel,
    /// Written out.
    Unrolled,
    /// All iterations at once in vector registers; the extent may be any number of lanes.
    /// It has no loops inside. An accumulate in it adds to distinct elements.
    Vectorized,
    /// Each iteration by a block of threads of its own, in any order. Only at the top of a GPU stage.
    Block,
    /// Each iteration by a thread of its own; nested thread loops number the threads of a block, the innermost fastest.
    /// Only directly within the block loops.
    Thread,
}

/// `for var in 0..extent { body }`.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// The variable.
    pub var: VarId,
    /// Number of iterations, at least 1.
    pub extent: usize,
    /// How it runs.
    pub kind: LoopKind,
    /// What is repeated.
    pub body: Vec<Node>,
}

/// What a store does with the old value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreMode {
    /// Overwrites it.
    Assign,
    /// Adds to it.
    Accumulate,
}

/// `dst = value` or `dst += value`.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    /// Where to.
    pub dst: Access,
    /// Overwrite or add.
    pub mode: StoreMode,
    /// What.
    pub value: Expr,
    /// For the statement of an equation of the algorithm, such as the multiply-accumulate of a contraction: which iteration it is, by
    /// which the verifier proves that every iteration is covered exactly once.
    pub iteration: Option<Iteration>,
}

/// One iteration of an equation of [`Program::algorithm`].
#[derive(Clone, Debug, PartialEq)]
pub struct Iteration {
    /// The equation, by its position.
    pub equation: usize,
    /// The value of each of [`Program::axes`] for the main equation; for others that of each of its own axes.
    pub point: Vec<Affine>,
}

impl Store {
    /// The factors of a multiply-accumulate, `dst += a * b`.
    pub fn factors(&self) -> Option<[&Access; 2]> {
        match (&self.value, self.mode) {
            (Expr::Binary(BinaryOp::Mul, factors), StoreMode::Accumulate) => match &**factors {
                [Expr::Load(a), Expr::Load(b)] => Some([a, b]),
                _ => None,
            },
            _ => None,
        }
    }

    /// What is copied by `dst = a`, and under which conditions.
    pub fn copied(&self) -> Option<(&Access, &[InBounds])> {
        let (value, when) = match &self.value {
            Expr::Guarded { when, value } => (&**value, when.as_slice()),
            value => (value, &[][..]),
        };
        match (value, self.mode) {
            (Expr::Load(from), StoreMode::Assign) => Some((from, when)),
            _ => None,
        }
    }
}

/// A node of the tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// A loop.
    Loop(Loop),
    /// A leaf.
    Store(Store),
    /// The scope of a local or register buffer; its contents are undefined at the start.
    Alloc {
        /// The buffer.
        buffer: BufferId,
        /// Where it is valid.
        body: Vec<Node>,
    },
    /// A hint that memory is read soon; without effect on any value. Not in a vectorized loop.
    Prefetch {
        /// An element in global or local memory.
        access: Access,
        /// What is read soon is at this distance behind it in elements, which may lie beyond the end of the buffer.
        ahead: usize,
    },
    /// The body, whose stores to shared memory may be done later, but before the thread passes an [`Node::AwaitCopies`] that
    /// does not leave this group out. Till then what they store to is undefined. Each of them is a load of global memory,
    /// guarded or not. GPU only; for all threads of a block, like a barrier.
    CopyGroup {
        /// The copies.
        body: Vec<Node>,
    },
    /// Each thread waits for the copies of all its groups but the latest `but` ones. Only a barrier behind that shows them to
    /// other threads. GPU only.
    AwaitCopies {
        /// Groups that may still be under way.
        but: usize,
    },
    /// A nest that one instruction does, in a group of copies or by the threads of a block together; all of them come by. GPU only.
    Call {
        /// Which one.
        instruction: &'static Instruction,
        /// The nest.
        body: Vec<Node>,
    },
    /// What warps of one role do; a grid that has this has both roles, the producer's first, directly within allocations. They run
    /// at once and meet by [`Node::Mbarrier`]s only. The producer's copies of boxes are written as if the threads of the thread
    /// loops did them, and nothing else of it depends on those. CUDA only.
    Specialised {
        /// Which one.
        role: WarpRole,
        /// What it does.
        body: Vec<Node>,
    },
    /// How producer and consumers meet; for all threads of a role. Both may have these and groups of copies under the
    /// same digits of numbers that are the same for all threads of a block, and skip them together.
    Mbarrier(Mbarrier),
    /// All threads of a block wait for each other; what they have stored to shared memory is seen behind it. GPU only, and
    /// only where all threads of a block come by: within loops and allocations, nothing else.
    Barrier,
    /// The body where every condition holds, else nothing. GPU only.
    Guard {
        /// The conditions.
        when: Vec<InBounds>,
        /// What is done where they hold.
        body: Vec<Node>,
    },
    /// Binds each digit's variable such that `value = (d0 * extent(d1) + d1) * extent(d2) + d2 ..` and `0 <= d < extent(d)`;
    /// where there are no such digits, the body is not run. GPU only.
    Unflatten {
        /// The number that is taken apart; never negative.
        value: Affine,
        /// Its digits, the most significant first.
        digits: Vec<Digit>,
        /// What is done with them.
        body: Vec<Node>,
    },
}

impl Node {
    /// The nodes within; none in a leaf.
    pub fn body(&self) -> &[Node] {
        match self {
            Node::Loop(Loop { body, .. })
            | Node::Alloc { body, .. }
            | Node::Guard { body, .. }
            | Node::CopyGroup { body }
            | Node::Call { body, .. }
            | Node::Specialised { body, .. }
            | Node::Unflatten { body, .. } => body,
            Node::Store(_) | Node::Prefetch { .. } | Node::Barrier | Node::AwaitCopies { .. } | Node::Mbarrier(_) => {
                &[]
            }
        }
    }

    /// The nodes within; `None` for a leaf.
    pub fn body_mut(&mut self) -> Option<&mut Vec<Node>> {
        match self {
            Node::Loop(Loop { body, .. })
            | Node::Alloc { body, .. }
            | Node::Guard { body, .. }
            | Node::CopyGroup { body }
            | Node::Call { body, .. }
            | Node::Specialised { body, .. }
            | Node::Unflatten { body, .. } => Some(body),
            Node::Store(_) | Node::Prefetch { .. } | Node::Barrier | Node::AwaitCopies { .. } | Node::Mbarrier(_) => {
                None
            }
        }
    }
}

/// One digit of a [`Node::Unflatten`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digit {
    /// The variable that is bound.
    pub var: VarId,
    /// It is in `0..extent`.
    pub extent: usize,
}

/// When a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Once, when the weights are known; its cost does not count.
    AheadOfTime,
    /// In every run.
    EveryRun,
}

/// A forest of loops with a barrier behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// A name that is a C identifier and unique within the program.
    pub name: String,
    /// When it runs.
    pub when: When,
    /// Loops; the top-level trees are independent of one another and may run in any order and at once.
    pub body: Vec<Node>,
}

impl Stage {
    /// Number of units of work that may run in any order: for each top-level tree, the product of the extents of its
    /// leading parallel loops (1 where there is none).
    pub fn tasks(&self) -> usize {
        self.body.iter().map(|node| parallel_prefix(node).iter().map(|l| l.extent).product::<usize>()).sum()
    }
}

/// The perfectly nested parallel loops at the top of a tree, outermost first.
pub fn parallel_prefix(node: &Node) -> Vec<&Loop> {
    let mut loops = Vec::new();
    let mut at = node;
    while let Node::Loop(l) = at {
        if l.kind != LoopKind::Parallel {
            break;
        }
        loops.push(l);
        match l.body.as_slice() {
            [only] => at = only,
            _ => break,
        }
    }
    loops
}

/// One axis of a program's iteration space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisInfo {
    /// Name, as in the main equation; `oi`, `ci`, `gi` for the lanes of a channel block, `p` for the pixels of all outputs.
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
    /// An axis, or a digit of it: the value of the equation's axis is the sum of `step` times the value over all its digits.
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
    /// Name of every loop variable, by [`VarId`].
    pub vars: Vec<VarName>,
    /// Every buffer, by [`BufferId`].
    pub buffers: Vec<Buffer>,
    /// What runs, in this order.
    pub stages: Vec<Stage>,
    /// True if its constants are in no cache when a run begins. Nothing that is computed depends on it.
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
