//! Trees of loops and statements, and the stages that they form.

use serde::{Deserialize, Serialize};

use super::buffer::BufferId;
use super::expr::{Access, InBounds};
use super::store::Store;
use super::warp_role::{Mbarrier, WarpRole};
use crate::affine::{Affine, VarId};
use crate::instruction::Instruction;

/// Execution of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoopKind {
    /// Iterations run one after another.
    Serial,
    /// Iterations run in any order on any thread. Only at the top of a stage: every loop around a
    /// parallel loop is parallel.
    Parallel,
    /// Iterations are unrolled in the code.
    Unrolled,
    /// All iterations run at once in vector registers; the extent may be any number of lanes. The
    /// body has no loops. An accumulation adds to a different element in each iteration.
    Vectorized,
    /// Each iteration runs on a block of threads, in any order. Only at the top of a GPU stage.
    Block,
    /// Each iteration runs on a thread. Nested thread loops number the threads of a block, the
    /// innermost fastest. Only directly inside the block loops.
    Thread,
}

/// Loop `for var in 0..extent { body }`.
#[derive(Clone, Debug, PartialEq)]
pub struct Loop {
    /// Variable that takes the values `0..extent`.
    pub var: VarId,
    /// Number of iterations, at least 1.
    pub extent: usize,
    /// Execution of the iterations.
    pub kind: LoopKind,
    /// Nodes that are repeated.
    pub body: Vec<Node>,
}

/// Cache that a prefetch brings a line to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefetchLevel {
    /// First-level cache: for lines that are read soon.
    L1,
    /// Second-level cache: for lines that may be as many as the first-level cache holds.
    L2,
}

/// A node of a tree.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// Loop around other nodes.
    Loop(Loop),
    /// Statement; a leaf of the tree.
    Store(Store),
    /// Scope of a shared, local or register buffer; its content is undefined at the start.
    Alloc {
        /// Buffer that is allocated.
        buffer: BufferId,
        /// Nodes within the scope.
        body: Vec<Node>,
    },
    /// Hint that memory will be read soon; no effect on any value. Not within a vectorised loop.
    Prefetch {
        /// Element of global or local memory.
        access: Access,
        /// Distance in elements from `access` to the memory that will be read; may exceed the
        /// buffer.
        ahead: usize,
        /// Cache that it is brought to.
        level: PrefetchLevel,
    },
    /// Group of asynchronous copies. Each store in `body` copies from global to shared memory,
    /// guarded or not. It may complete late, but before the thread passes a [`Node::AwaitCopies`]
    /// that covers this group; until then its destination is undefined. GPU only; all threads of a
    /// block must execute it, like a barrier.
    CopyGroup {
        /// Loop nest of the copies.
        body: Vec<Node>,
    },
    /// Each thread waits for its copies of all groups except the latest. Other threads see the data
    /// only after a following barrier. GPU only.
    AwaitCopies {
        /// Number of the latest groups that may still be in progress.
        pending: usize,
    },
    /// A loop nest that one instruction computes. On a GPU, it is within a group of copies or
    /// executed by all threads of a block together; on a CPU, by one thread.
    Call {
        /// Instruction that computes the nest.
        instruction: &'static Instruction,
        /// Loop nest that the instruction computes.
        body: Vec<Node>,
    },
    /// Nodes for the warps of one role. A grid with warp specialisation has both roles, the
    /// producer first, directly inside allocations. They run concurrently and synchronise by
    /// [`Node::Mbarrier`]s only. The producer's box copies are written as if the threads of the
    /// thread loops executed them; nothing else in the producer depends on these loops. CUDA only.
    Specialised {
        /// Role of the warps.
        role: WarpRole,
        /// Nodes that they execute.
        body: Vec<Node>,
    },
    /// Synchronisation of producer and consumers, for all threads of a role. In both roles, these
    /// nodes and groups of copies may be within the same digit splits, of values equal for all
    /// threads of a block, so that both roles skip them together.
    Mbarrier(Mbarrier),
    /// All threads of a block wait for each other; stores to shared memory before the barrier are
    /// visible after it. GPU only, and only where all threads of a block reach it: within loops,
    /// allocations, and guards that are equal for all threads of the block, nothing else.
    Barrier,
    /// Executes the body if every condition holds. GPU only.
    Guard {
        /// Conditions, all of which must hold.
        when: Vec<InBounds>,
        /// Nodes that are executed if they hold.
        body: Vec<Node>,
    },
    /// Splits a value into mixed-radix digits:
    /// `value = (d0 * extent(d1) + d1) * extent(d2) + d2 ..` with `0 <= d < extent(d)`. The body is
    /// skipped if the value is too large for the digits. GPU only.
    Unflatten {
        /// Value that is split; never negative.
        value: Affine,
        /// Digits, most significant first.
        digits: Vec<Digit>,
        /// Nodes in which the digits are bound.
        body: Vec<Node>,
    },
}

impl Node {
    /// Returns the child nodes; empty for a leaf.
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

    /// Returns the child nodes for modification; `None` for a leaf.
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

/// A digit of a [`Node::Unflatten`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digit {
    /// Variable that is bound to the digit.
    pub var: VarId,
    /// Exclusive upper bound of the digit.
    pub extent: usize,
}

/// Time at which a stage runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// Runs once, when the constants are known; its cost is not part of a run.
    AheadOfTime,
    /// Runs in every run of the kernel.
    EveryRun,
}

/// Forest of loops, followed by a barrier.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Name, a C identifier that is unique within the program.
    pub name: String,
    /// Time at which the stage runs.
    pub when: When,
    /// Top-level trees, independent of each other: they may run concurrently and in any order.
    pub body: Vec<Node>,
}

impl Stage {
    /// Returns the number of tasks, which may run in any order: summed over top-level trees, the
    /// product of the extents of the leading parallel loops (1 if there are none).
    pub fn tasks(&self) -> usize {
        self.body.iter().map(|node| parallel_prefix(node).iter().map(|l| l.extent).product::<usize>()).sum()
    }
}

/// Returns the perfectly nested parallel loops at the top of a tree, outermost first.
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
