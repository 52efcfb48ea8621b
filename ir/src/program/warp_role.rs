//! Warp specialisation: blocks with additional warps that only copy.

use crate::machine::gpu::{REGISTER_STEP, REGISTERS};

/// Threads of the producer: one warp group, since registers are assigned per warp group.
pub const PRODUCER_THREADS: usize = 128;

/// Role of warps in a block with warp specialisation; see
/// [`Node::Specialised`](super::Node::Specialised).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WarpRole {
    /// An additional warp group, not numbered by the thread loops. One of its threads starts the
    /// copies of boxes for the whole block.
    Producer,
    /// The threads that the thread loops number.
    Consumers,
}

impl WarpRole {
    /// Returns the registers per thread of producer and consumers, for `consumers` consumer
    /// threads. Both are multiples of 8; together they do not exceed the registers that the block
    /// has at its launch. `None` for a single warp group of consumers, whose threads may have the
    /// maximum anyway.
    pub fn registers(consumers: usize) -> Option<[usize; 2]> {
        const PRODUCER: usize = 32;
        let groups = consumers / PRODUCER_THREADS;
        if groups < 2 {
            return None;
        }
        let down = |registers: usize| registers / REGISTER_STEP * REGISTER_STEP;
        // Registers per thread at launch, summed over all warp groups of the block.
        let all = down(REGISTERS / (consumers + PRODUCER_THREADS)) * (groups + 1);
        Some([PRODUCER, down(all.saturating_sub(PRODUCER) / groups)])
    }
}

/// Synchronisation of producer and consumers. Both count the groups of copies
/// ([`Node::CopyGroup`](super::Node::CopyGroup)). Each slot has two mbarriers: *full* signals that
/// a copy has arrived, *empty* that it is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mbarrier {
    /// A consumer waits for the next group that it has not awaited yet, and sees its data from then
    /// on.
    WaitFull,
    /// A consumer releases all groups that it has awaited, except the latest.
    ArriveEmpty {
        /// Number of the latest groups that it may still read.
        pending: usize,
    },
    /// The producer waits until all consumers have released all groups that it has begun, except
    /// the latest.
    WaitEmpty {
        /// Number of the latest groups that may still be read.
        pending: usize,
    },
}

impl Mbarrier {
    /// Returns the role that executes the operation.
    pub fn role(self) -> WarpRole {
        match self {
            Mbarrier::WaitFull | Mbarrier::ArriveEmpty { .. } => WarpRole::Consumers,
            Mbarrier::WaitEmpty { .. } => WarpRole::Producer,
        }
    }
}
