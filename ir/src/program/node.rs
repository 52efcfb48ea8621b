//! The trees of loops and statements, and the stages that they make.

use serde::{Deserialize, Serialize};

use super::buffer::BufferId;
use super::expr::{Access, InBounds};
use super::store::Store;
use super::warp_role::{Mbarrier, WarpRole};
use crate::affine::{Affine, VarId};
use crate::instruction::Instruction;

/// How a loop runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoopKind {
    /// One iteration after another.
    Serial,
    /// Iterations in any order on any thread. Only at the top of a stage: every loop around a
    /// parallel loop is parallel.
    Parallel,
    /// Written out.
    Unrolled,
    /// All iterations at once in vector registers; the extent may be any number of lanes.
    /// It has no loops inside. An accumulate in it adds to distinct elements.
    Vectorized,
    /// Each iteration by a block of threads of its own, in any order. Only at the top of a GPU
    /// stage.
    Block,
    /// Each iteration by a thread of its own; nested thread loops number the threads of a block,
    /// the innermost fastest. Only directly within the block loops.
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
        /// What is read soon is at this distance behind it in elements, which may lie beyond the
        /// end of the buffer.
        ahead: usize,
    },
    /// The body, whose stores to shared memory may be done later, but before the thread passes an
    /// [`Node::AwaitCopies`] that does not leave this group out. Till then what they store to is
    /// undefined. Each of them is a load of global memory, guarded or not. GPU only; for all
    /// threads of a block, like a barrier.
    CopyGroup {
        /// The copies.
        body: Vec<Node>,
    },
    /// Each thread waits for the copies of all its groups but the latest `but` ones. Only a barrier
    /// behind that shows them to other threads. GPU only.
    AwaitCopies {
        /// Groups that may still be under way.
        but: usize,
    },
    /// A nest that one instruction does, in a group of copies or by the threads of a block
    /// together; all of them come by. GPU only.
    Call {
        /// Which one.
        instruction: &'static Instruction,
        /// The nest.
        body: Vec<Node>,
    },
    /// What warps of one role do; a grid that has this has both roles, the producer's first,
    /// directly within allocations. They run at once and meet by [`Node::Mbarrier`]s only. The
    /// producer's copies of boxes are written as if the threads of the thread loops did them, and
    /// nothing else of it depends on those. CUDA only.
    Specialised {
        /// Which one.
        role: WarpRole,
        /// What it does.
        body: Vec<Node>,
    },
    /// How producer and consumers meet; for all threads of a role. Both may have these and groups
    /// of copies under the same digits of numbers that are the same for all threads of a block, and
    /// skip them together.
    Mbarrier(Mbarrier),
    /// All threads of a block wait for each other; what they have stored to shared memory is seen
    /// behind it. GPU only, and only where all threads of a block come by: within loops and
    /// allocations, nothing else.
    Barrier,
    /// The body where every condition holds, else nothing. GPU only.
    Guard {
        /// The conditions.
        when: Vec<InBounds>,
        /// What is done where they hold.
        body: Vec<Node>,
    },
    /// Binds each digit's variable such that `value = (d0 * extent(d1) + d1) * extent(d2) + d2 ..`
    /// and `0 <= d < extent(d)`; where there are no such digits, the body is not run. GPU only.
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
    /// Loops; the top-level trees are independent of one another and may run in any order and at
    /// once.
    pub body: Vec<Node>,
}

impl Stage {
    /// Number of units of work that may run in any order: for each top-level tree, the product of
    /// the extents of its leading parallel loops (1 where there is none).
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
