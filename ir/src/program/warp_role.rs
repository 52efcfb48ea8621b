//! Warp specialisation: blocks with warps that only copy.

use crate::machine::gpu::{REGISTER_STEP, REGISTERS};

/// Threads of the producer: a warp group, since registers are dealt out to warp groups.
pub const PRODUCER_THREADS: usize = 128;

/// What warps of a block are for, where they are specialised; see
/// [`Node::Specialised`](super::Node::Specialised).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WarpRole {
    /// A warp group of its own, beside those that the thread loops number. One of its threads
    /// starts copies of boxes for all.
    Producer,
    /// The threads that the thread loops number.
    Consumers,
}

impl WarpRole {
    /// Registers of a thread of either role for `consumers` consumers, multiples of 8 that together
    /// are no more than what the block is given at its launch. `None` for one warp group of
    /// consumers, which may have as many as a thread can.
    pub fn registers(consumers: usize) -> Option<[usize; 2]> {
        const PRODUCER: usize = 32;
        let groups = consumers / PRODUCER_THREADS;
        if groups < 2 {
            return None;
        }
        let down = |registers: usize| registers / REGISTER_STEP * REGISTER_STEP;
        let all = down(REGISTERS / (consumers + PRODUCER_THREADS)) * (groups + 1);
        Some([PRODUCER, down(all.saturating_sub(PRODUCER) / groups)])
    }
}

/// How producer and consumers tell each other of groups of copies
/// ([`Node::CopyGroup`](super::Node::CopyGroup)), which both count: by two mbarriers for each slot,
/// *full* when what is copied has arrived, *empty* when it was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mbarrier {
    /// A consumer waits for the next group, the first that it has not awaited; what that has stored
    /// it sees then.
    WaitFull,
    /// A consumer does not read any more what the groups that it has awaited have stored, but for
    /// the latest.
    ArriveEmpty {
        /// Groups that it may still read.
        but: usize,
    },
    /// The producer waits until all consumers are done with all groups that it has begun, but for
    /// the latest.
    WaitEmpty {
        /// Groups that may still be read.
        but: usize,
    },
}

impl Mbarrier {
    /// Whose it is.
    pub fn role(self) -> WarpRole {
        match self {
            Mbarrier::WaitFull | Mbarrier::ArriveEmpty { .. } => WarpRole::Consumers,
            Mbarrier::WaitEmpty { .. } => WarpRole::Producer,
        }
    }
}
