//! The one composition for GPUs of which all their sketches are made: tiles of a contraction by
//! blocks of threads, both operands staged in shared memory.
//!
//! ```text
//! block loops over parts of the reduction, batch axes, tiles of the other spatial axes      [Tiling::split, blocks]
//!   thread loops                                                                            [Tiling::threads]
//!     acc = 0                                                                               [Tiling::sums]
//!     chunks of the reduction                                                               [Tiling::reduce, Pipeline]
//!       data_shared, weight_shared = what the block's tile needs of the chunk               [Staged]
//!       acc += data_shared * weight_shared                                                  [Kernel]
//!     output = act(acc + bias + residual)                                                   (guarded where the tile sticks out)
//! ```
//!
//! | part | file | what it decides |
//! |---|---|---|
//! | [`AxisRoles`] | `roles.rs` | which axes play which part, and where an element of an operand is |
//! | [`Level`] | here | the elements of an axis that blocks, threads and registers have |
//! | [`Staged`] | `staged.rs`, `lower/copy.rs` | what is copied to shared memory, in which order and vectors; packing ahead of time |
//! | [`Pipeline`] | `lower/pipeline.rs` | who copies when, and how many chunks are in shared memory |
//! | [`Kernel`] | `lower/registers.rs`, `lower/matrix.rs` | how a chunk is multiplied |
//! | | `lower/output.rs` | epilogue, guards, partial sums |
//! | | `limits.rs` | rules between the parts, limits of the target |
//!
//! A sketch ([`GpuSketch`]) says which axes are tiled and who multiplies. The knobs of threads that
//! multiply by themselves are those of `threads.rs`, which the matrix products of
//! [`crate::winograd::gpu`] and both contractions of `fused/gpu.rs` have, too, those of teams those
//! of `teams.rs`; both are read into a [`Tiling`].
//!
//! # Splits
//!
//! With `split=n` each of `n` blocks takes a part of the chunks, for outputs too small to fill a
//! device; partial sums go through global memory, and a stage of its own adds them up, always in
//! the same order:
//!
//! ```text
//! for q in 0..Q { acc += .. }; output = act(acc + ..)
//!   →  block s in 0..n { for q in 0..Q/n { acc += .. }; partial[s] = acc }
//!      sum = 0; for s in 0..n { sum += partial[s] }; output = act(sum + ..)
//! ```
//!
//! # Pipelines
//!
//! [`Pipeline::Serial`] has one chunk in shared memory, [`Pipeline::Fetched`] two: the next one is
//! loaded into registers while one is multiplied, and stored behind that, so that one barrier a
//! chunk is enough:
//!
//! ```text
//! for q in 0..Q { copy q; barrier; multiply q; barrier }
//!   →  copy 0 to slot 0; barrier
//!      for q in 0..Q-1 { load q+1; multiply slot q%2; store to slot (q+1)%2; barrier }
//!      multiply slot (Q-1)%2
//! ```
//!
//! With [`Pipeline::Asynchronous`], CUTLASS's multistage kernel for the Ampere generation, copies
//! are under way while threads multiply:
//!
//! ```text
//! copy group { chunk 0 to slot 0 }  ..  copy group { chunk ahead-1 to slot ahead-1 }
//! for q in 0..Q
//!   await copies but of ahead-1 groups            (chunk q is there)
//!   barrier                                       (for all threads; and nobody reads the next slot any more)
//!   copy group { chunk q + ahead to its slot, if there is such a chunk }
//!   multiply slot q % slots
//! ```
//!
//! `ahead` is `slots-1`; instructions of warp groups for a chunk run while the threads wait for the
//! next one, so that what is overwritten meanwhile is the slot of the chunk before: `slots-2`.
//!
//! With [`Pipeline::Producer`] a warp group more does the copies, one thread of it, as in CUTLASS's
//! warp-specialised kernels: nobody waits for all threads, and warp groups of consumers need not be
//! in step. Registers go from the producer to the consumers ([`WarpRole::registers`]).
//!
//! ```text
//! producer
//!   for q in 0..Q
//!     await release but of slots-1 groups         (all consumers have done with chunk q-slots)
//!     copy group { chunk q to its slot }
//! consumers
//!   acc = 0
//!   for q in 0..Q
//!     await the next group                        (chunk q is there)
//!     multiply slot q % slots
//!     release but 1 group                         (the instructions for chunk q-1 are done)
//!   output = act(acc + bias + residual)
//! ```
//!
//! On a [`Tiling::persistent`] grid there are only as many blocks as multiprocessors, and each goes
//! from tile to tile, so that the producer fills the slots for the next tile while the consumers
//! store the last one:
//!
//! ```text
//! block (m.o, n.b, m.b) in tiles { producer { for q { .. } }; consumers { acc = 0; for q { .. }; output = .. } }
//!   →  block w in 0..W
//!        producer  { for t in 0..T { unflatten (m.o, n.b, m.b) = W*t + w { for q { .. } } } }      (chunk t*Q + q of all)
//!        consumers { for t in 0..T { unflatten (m.o, n.b, m.b) = W*t + w { acc = 0; for q { .. }; output = .. } } }
//! ```

use std::sync::Arc;

use crate::contraction::AxisId;
use autotune_ir::DType;
use autotune_ir::affine::Affine;
use autotune_ir::instruction::{self, ThreadGroup};
use autotune_ir::launch::ARRIVAL_BYTES;
use autotune_ir::machine::gpu::{
    ASYNC_COPY_REGISTERS, COPY_REGISTERS, MMA_THREAD_REGISTERS, PREFETCH_REGISTERS, THREAD_REGISTERS,
    registers_of_block,
};
use autotune_ir::program::{PRODUCER_THREADS, WarpRole};
use autotune_ir::target::GpuTarget;

mod limits;
pub(crate) mod lower;
mod roles;
mod sketch;
mod staged;
mod teams;
pub(crate) mod threads;

pub(crate) use limits::MAX_BODY;
pub(crate) use roles::is_forward;
pub use roles::{AxisRoles, PIXELS, Pixels};
pub use sketch::{GpuSketch, IMPLICIT_GEMM, MMA, TILED, WGMMA};
pub use staged::{Packing, Staged};

/// Rounds of a copy that are written out where registers do not hold what is copied; more are a
/// loop.
pub(crate) const MAX_UNROLLED_ROUNDS: usize = 8;

/// Elements of an axis that lie `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The axis.
    pub axis: AxisId,
    /// The name of its loop; with a dot in front what that has behind the axis.
    pub name: &'static str,
    /// How many.
    pub extent: usize,
    /// How far apart.
    pub step: usize,
}

/// How threads multiply what is in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Each thread by itself, from registers.
    Registers {
        /// Most reduction steps in one straight-line body.
        unroll: usize,
    },
    /// Teams by matrix instructions.
    Matrix {
        /// Who multiplies together.
        by: ThreadGroup,
        /// Instructions of a team's tile along the rows, and pairs of columns of a lane; for a warp
        /// group the latter are of one instruction.
        instructions: [usize; 2],
        /// Pairs of columns that a lane has one after the other, for which packed weights lie in
        /// another order ([`Packing::run`]).
        run: usize,
    },
}

/// How chunks come to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipeline {
    /// One after the other.
    Serial,
    /// The next one by way of registers.
    Fetched,
    /// By copies that run while the threads multiply.
    Asynchronous,
    /// By a producer's copies.
    Producer,
}

/// A contraction in tiles.
#[derive(Clone, Debug)]
pub struct Tiling {
    /// What is tiled.
    pub roles: Arc<AxisRoles>,
    /// Type of the operands.
    pub dtype: DType,
    /// Spatial axes with the elements of a block.
    pub spatial: Vec<(AxisId, usize)>,
    /// Reduction axes with the elements of a chunk, outermost first.
    pub reduce: Vec<(AxisId, usize)>,
    /// Block loops over tiles, outermost first.
    pub blocks: Vec<Level>,
    /// Thread loops, outermost first: all threads, or the consumers.
    pub threads: Vec<Level>,
    /// The sums of a thread, in the order of their registers.
    pub sums: Vec<Level>,
    /// The data operand and the weight operand.
    pub staged: [Staged; 2],
    /// How weights are copied ahead of time, if they are.
    pub packing: Option<Packing>,
    /// The inner kernel.
    pub kernel: Kernel,
    /// Who copies when.
    pub pipeline: Pipeline,
    /// Chunks in shared memory.
    pub slots: usize,
    /// Blocks that share the reduction of one tile.
    pub split: usize,
    /// Blocks that share all tiles, if not each tile has one.
    pub persistent: Option<usize>,
}

fn product(levels: &[Level]) -> usize {
    levels.iter().map(|level| level.extent).product()
}

impl Tiling {
    /// Elements of an axis that a block works on at a time.
    pub fn tile(&self, axis: AxisId) -> usize {
        self.spatial.iter().chain(&self.reduce).find(|tile| tile.0 == axis).map_or(1, |tile| tile.1)
    }

    /// The same with what a chunk of each operand has.
    fn measured(mut self) -> Self {
        let extent = |index: &Affine| {
            let (low, high) = index.range(|axis| self.tile(axis.0 as usize));
            (high - low + 1) as usize
        };
        let extents = self.staged.each_ref().map(|staged| staged.source.index.iter().map(extent).collect());
        self.staged.iter_mut().zip(extents).for_each(|(staged, extents)| staged.extents = extents);
        self
    }

    /// Threads of a block that multiply.
    pub fn threads(&self) -> usize {
        product(&self.threads)
    }

    /// Threads of a block, those of a producer included.
    pub fn all_threads(&self) -> usize {
        self.threads() + if self.pipeline == Pipeline::Producer { PRODUCER_THREADS } else { 0 }
    }

    /// Tiles of the output, for each part of a split reduction.
    pub fn all_tiles(&self) -> usize {
        let batch = self.roles.batch.iter().map(|&axis| self.roles.extent(axis));
        self.split * product(&self.blocks) * batch.product::<usize>()
    }

    /// Blocks of the grid of the compute stage.
    pub fn blocks(&self) -> usize {
        self.persistent.unwrap_or(self.all_tiles())
    }

    /// Sums of a thread.
    pub fn sums(&self) -> usize {
        product(&self.sums)
    }

    /// Sums of a thread over the axes that an operand depends on.
    pub(crate) fn sums_of(&self, which: usize) -> impl Iterator<Item = (usize, &Level)> {
        self.sums.iter().enumerate().filter(move |(_, level)| self.staged[which].source.uses(level.axis))
    }

    /// True if the chunks of all reduction axes are counted in one loop; else each axis has its
    /// own.
    pub(crate) fn counts_all_chunks(&self) -> bool {
        matches!(self.pipeline, Pipeline::Asynchronous | Pipeline::Producer)
    }

    /// Chunks of each reduction axis.
    pub(crate) fn chunk_counts(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.reduce.iter().map(|&(axis, chunk)| self.roles.extent(axis).div_ceil(chunk))
    }

    /// Chunks that the blocks of a split share: those of the innermost reduction axis, or all.
    pub fn all_chunks(&self) -> usize {
        self.chunk_counts().rev().take(if self.counts_all_chunks() { usize::MAX } else { 1 }).product()
    }

    /// Those that one block takes.
    pub fn chunks(&self) -> usize {
        self.all_chunks().div_ceil(self.split)
    }

    /// Chunks whose copies may begin before the first is multiplied, and later while one is.
    pub fn ahead(&self) -> usize {
        match (self.kernel, self.pipeline) {
            (Kernel::Matrix { by: ThreadGroup::WarpGroup, .. }, Pipeline::Asynchronous) => self.slots - 2,
            _ => self.slots - 1,
        }
    }

    /// Shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        let words = match (self.kernel, self.pipeline) {
            (Kernel::Matrix { by: ThreadGroup::WarpGroup, .. }, Pipeline::Producer) => 2,
            (Kernel::Matrix { by: ThreadGroup::WarpGroup, .. }, _) => 1,
            _ => 0,
        };
        let bytes = |s: &Staged| self.slots * s.shape().iter().product::<usize>() * s.dtype.bytes();
        let buffers: usize = self.staged.iter().map(|staged| bytes(staged).next_multiple_of(16)).sum();
        buffers + (words * ARRIVAL_BYTES * self.slots).next_multiple_of(16)
    }

    /// Rounds in which the threads copy a chunk of each operand.
    pub fn rounds(&self) -> [usize; 2] {
        [0, 1].map(|which| self.staged[which].rounds(self.threads()))
    }

    /// Registers that a thread needs, about: sums, what is multiplied, what is on its way to shared
    /// memory, and addresses and conditions, which compilers keep for every round of a copy that is
    /// written out. The analysis counts as many in the loop nests.
    pub fn registers(&self) -> usize {
        let rounds = self.rounds();
        match self.kernel {
            Kernel::Registers { .. } => {
                let fragments: usize =
                    [0, 1].map(|which| self.sums_of(which).map(|s| s.1.extent).product::<usize>()).iter().sum();
                let copies = self.staged.iter().zip(rounds).map(|(staged, rounds)| match self.pipeline {
                    Pipeline::Fetched => rounds * (staged.vector + PREFETCH_REGISTERS),
                    _ if rounds <= MAX_UNROLLED_ROUNDS => rounds * COPY_REGISTERS,
                    _ => COPY_REGISTERS,
                });
                self.sums() + fragments + copies.sum::<usize>() + THREAD_REGISTERS
            }
            Kernel::Matrix { by: ThreadGroup::Warp, instructions: [rows, columns], .. } => {
                // Copies of a convolution's data hold a pixel, too.
                let copies = rounds[1] + if self.roles.pixels.is_some() { 2 } else { 1 } * rounds[0];
                self.sums() + 4 * rows + 2 * columns + ASYNC_COPY_REGISTERS * copies + MMA_THREAD_REGISTERS
            }
            Kernel::Matrix { by: ThreadGroup::WarpGroup, .. } => self.sums() + MMA_THREAD_REGISTERS,
        }
    }

    /// Steps of one matrix instruction.
    pub fn instruction_steps(&self) -> usize {
        instruction::MMA.steps(self.dtype).unwrap_or(1)
    }

    /// Registers that each thread of a block is given at the launch, at most.
    pub fn launched_registers(&self, target: &GpuTarget) -> usize {
        registers_of_block(target, self.all_threads())
    }

    /// Registers that a thread may have which multiplies.
    pub fn most_registers(&self, target: &GpuTarget) -> usize {
        match WarpRole::registers(self.threads()).filter(|_| self.pipeline == Pipeline::Producer) {
            Some([_, many]) => many,
            None => self.launched_registers(target),
        }
    }
}
