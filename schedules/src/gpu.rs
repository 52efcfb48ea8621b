//! Tilings: the plan of all sketches of contractions on GPUs. A block of threads computes a tile of
//! the output, with both operands staged in shared memory.
//!
//! ```text
//! block loops over reduction parts, batch axes, spatial tiles         [Tiling::split, blocks]
//!   thread loops                                                      [Tiling::threads]
//!     acc = 0                                                         [Tiling::sums]
//!     chunks of the reduction                                         [Tiling::reduce, Pipeline]
//!       data_shared, weight_shared = inputs of the chunk              [Staged]
//!       acc += data_shared * weight_shared                            [MicroKernel]
//!     output = act(acc + bias + residual)                             (guarded at the edges)
//! ```
//!
//! | part | file | decides |
//! |---|---|---|
//! | [`AxisRoles`] | `roles.rs` | the role of each axis, and the location of elements in memory |
//! | [`TileLevel`] | here | the elements of an axis per block, thread and register |
//! | [`Staged`] | `staged.rs`, `lower/copy.rs` | the layout in shared memory; packing |
//! | [`Pipeline`] | `lower/pipeline.rs` | which threads copy, when, and how far ahead |
//! | [`MicroKernel`] | `lower/registers.rs`, `lower/matrix.rs` | the multiplication of a chunk |
//! | | `lower/output.rs` | epilogue, guards, partial sums |
//! | | `limits.rs` | rules between the parts, limits of the target |
//!
//! A sketch ([`GpuSketch`]) decides the tiled axes and the threads that multiply together. Its
//! knobs are read into a [`Tiling`]: those of single threads by `threads.rs`, those of teams by
//! `teams.rs`. The matrix products of [`crate::winograd::gpu`] and both contractions of
//! `fused/gpu.rs` use the knobs of single threads, too.
//!
//! # Splits
//!
//! With `split=n`, each of `n` blocks computes a part of the chunks, for outputs too small to fill
//! a device. Partial sums go through global memory. A separate stage adds them up, always in the
//! same order:
//!
//! ```text
//! for q in 0..Q { acc += .. }; output = act(acc + ..)
//!   →  block s in 0..n { for q in 0..Q/n { acc += .. }; partial[s] = acc }
//!      sum = 0; for s in 0..n { sum += partial[s] }; output = act(sum + ..)
//! ```
//!
//! # Pipelines
//!
//! [`Pipeline::Serial`] has one chunk in shared memory, [`Pipeline::Fetched`] two. The latter loads
//! the next chunk into registers while one is multiplied, and stores it afterwards, so that one
//! barrier per chunk is enough:
//!
//! ```text
//! for q in 0..Q { copy q; barrier; multiply q; barrier }
//!   →  copy 0 to slot 0; barrier
//!      for q in 0..Q-1 { load q+1; multiply slot q%2; store to slot (q+1)%2; barrier }
//!      multiply slot (Q-1)%2
//! ```
//!
//! [`Pipeline::Asynchronous`] is the multistage kernel of CUTLASS for Ampere: copies run while
//! threads multiply.
//!
//! ```text
//! copy group { chunk 0 to slot 0 }  ..  copy group { chunk ahead-1 to slot ahead-1 }
//! for q in 0..Q
//!   await copies but of ahead-1 groups            (chunk q has arrived)
//!   barrier                                       (for all threads; the next slot is free)
//!   copy group { chunk q + ahead to its slot, if there is such a chunk }
//!   multiply slot q % slots
//! ```
//!
//! For warps, the loop is unrolled by a few chunks if slots and positions in a convolution's kernel
//! are then constants.
//!
//! `ahead` is `slots-1` for warps. Instructions of warp groups for a chunk still run while the
//! threads wait for the next one. The slot that is overwritten meanwhile is that of the chunk
//! before, so `ahead` is `slots-2`.
//!
//! With [`Pipeline::Producer`], one thread of an additional warp group does all copies, as in
//! CUTLASS's warp-specialised kernels. No barrier covers all threads, and consumer warp groups need
//! not run in step. Registers move from the producer to the consumers ([`WarpRole::registers`]).
//!
//! ```text
//! producer
//!   for q in 0..Q
//!     await release but of slots-1 groups         (all consumers have finished chunk q-slots)
//!     copy group { chunk q to its slot }
//! consumers
//!   acc = 0
//!   for q in 0..Q
//!     await the next group                        (chunk q has arrived)
//!     multiply slot q % slots
//!     release but 1 group                         (the instructions for chunk q-1 are done)
//!   output = act(acc + bias + residual)
//! ```
//!
//! On a [`Tiling::persistent`] grid there are only as many blocks as multiprocessors, and each
//! computes tile after tile. The producer then fills the slots for the next tile while the
//! consumers store the last one:
//!
//! ```text
//! block (m.o, n.b, m.b) in tiles {
//!   producer { chunks }; consumers { acc = 0; chunks; output = .. } }
//!   →  block w in 0..W
//!        producer  { for t in 0..T { unflatten (m.o, n.b, m.b) = W*t + w { chunks } } }
//!        consumers { for t in 0..T { unflatten (m.o, n.b, m.b) = W*t + w {
//!          acc = 0; chunks; output = .. } } }
//!                                                    (chunk q of tile t is chunk t*Q + q of all)
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
pub(crate) use teams::staged_for_warps;

/// Maximum number of rounds of a copy that are unrolled, if the copied elements are not held in
/// registers. Longer copies are loops.
pub(crate) const MAX_UNROLLED_ROUNDS: usize = 8;

/// Maximum number of instructions of matrices and copies in the loop over chunks, if iterations are
/// unrolled. All instructions are two to three times as many, 32 KiB at most; a multiprocessor's
/// instruction cache has 128 KiB (Jia et al., "Dissecting the NVIDIA Volta GPU Architecture",
/// 2018).
const MAX_UNROLLED_CODE: usize = 700;

/// A loop over elements of an axis, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileLevel {
    /// Axis of the contraction.
    pub axis: AxisId,
    /// Name of the loop; with a leading dot, a suffix to the name of the axis.
    pub name: &'static str,
    /// Number of elements along the level.
    pub extent: usize,
    /// Distance between the elements.
    pub step: usize,
}

/// Multiplication of a chunk in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MicroKernel {
    /// Each thread multiplies its own tile, from registers.
    Registers {
        /// Maximum number of reduction steps in one straight-line body.
        unroll: usize,
    },
    /// Teams of threads multiply by matrix instructions.
    Matrix {
        /// Size of a team: warp or warp group.
        by: ThreadGroup,
        /// Instructions along the rows of a team's tile, and pairs of columns per lane. For a warp
        /// group, the pairs are those of a single instruction.
        instructions: [usize; 2],
        /// Pairs of adjacent columns per lane, for which packed weights are reordered
        /// ([`Packing::run`]).
        run: usize,
    },
}

/// Schedule of the copies of chunks to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipeline {
    /// Each chunk is copied, then multiplied.
    Serial,
    /// The next chunk is loaded into registers while one is multiplied.
    Fetched,
    /// Asynchronous copies run while the threads multiply.
    Asynchronous,
    /// A producer warp group starts the copies.
    Producer,
}

/// A plan for GPUs, parsed: a contraction in tiles.
#[derive(Clone, Debug)]
pub struct Tiling {
    /// Contraction and the roles of its axes.
    pub roles: Arc<AxisRoles>,
    /// Element type of the operands.
    pub dtype: DType,
    /// Spatial axes, with the extent of a block's tile along each.
    pub spatial: Vec<(AxisId, usize)>,
    /// Reduction axes, with the extent of a chunk along each; outermost first.
    pub reduce: Vec<(AxisId, usize)>,
    /// Block loops over tiles, outermost first.
    pub blocks: Vec<TileLevel>,
    /// Thread loops, outermost first, over all threads that multiply.
    pub threads: Vec<TileLevel>,
    /// Loops over the sums of a thread, in register order.
    pub sums: Vec<TileLevel>,
    /// Staging of the data and of the weights.
    pub staged: [Staged; 2],
    /// Packing of the weights ahead of time, if they are packed.
    pub packing: Option<Packing>,
    /// Multiplication of a chunk.
    pub kernel: MicroKernel,
    /// Schedule of the copies of chunks.
    pub pipeline: Pipeline,
    /// Number of chunks in shared memory.
    pub slots: usize,
    /// Number of blocks that share the reduction of one tile.
    pub split: usize,
    /// Number of blocks on a persistent grid, which share all tiles; `None` for a block per tile.
    pub persistent: Option<usize>,
}

fn product(levels: &[TileLevel]) -> usize {
    levels.iter().map(|level| level.extent).product()
}

impl Tiling {
    /// Elements of an axis that a block processes at a time.
    pub fn tile(&self, axis: AxisId) -> usize {
        self.spatial.iter().chain(&self.reduce).find(|tile| tile.0 == axis).map_or(1, |tile| tile.1)
    }

    /// Sets the extents of the operands' chunks.
    pub(crate) fn measured(mut self) -> Self {
        let extent = |index: &Affine| {
            let (low, high) = index.range(|axis| self.tile(axis.0 as usize));
            (high - low + 1) as usize
        };
        let extents = self.staged.each_ref().map(|staged| staged.source.index.iter().map(extent).collect());
        self.staged.iter_mut().zip(extents).for_each(|(staged, extents)| staged.extents = extents);
        self
    }

    /// Number of threads in a block that multiply.
    pub fn threads(&self) -> usize {
        product(&self.threads)
    }

    /// Number of threads in a block, including a producer's.
    pub fn all_threads(&self) -> usize {
        self.threads() + if self.pipeline == Pipeline::Producer { PRODUCER_THREADS } else { 0 }
    }

    /// Number of output tiles, counted once per part of a split reduction.
    pub fn all_tiles(&self) -> usize {
        let batch = self.roles.batch.iter().map(|&axis| self.roles.extent(axis));
        self.split * product(&self.blocks) * batch.product::<usize>()
    }

    /// Number of blocks in the grid of the compute stage.
    pub fn blocks(&self) -> usize {
        self.persistent.unwrap_or(self.all_tiles())
    }

    /// Number of sums per thread.
    pub fn sums(&self) -> usize {
        product(&self.sums)
    }

    /// Loops over a thread's sums that an operand depends on, with their positions in `sums`.
    pub(crate) fn sums_of(&self, which: usize) -> impl Iterator<Item = (usize, &TileLevel)> {
        self.sums.iter().enumerate().filter(move |(_, level)| self.staged[which].source.uses(level.axis))
    }

    /// True if one loop counts the chunks of all reduction axes. Otherwise each axis has a loop.
    pub(crate) fn counts_all_chunks(&self) -> bool {
        matches!(self.pipeline, Pipeline::Asynchronous | Pipeline::Producer)
    }

    /// Number of chunks along each reduction axis.
    pub(crate) fn chunk_counts(&self) -> impl DoubleEndedIterator<Item = usize> {
        self.reduce.iter().map(|&(axis, chunk)| self.roles.extent(axis).div_ceil(chunk))
    }

    /// Number of chunks that the blocks of a split share: those of the innermost reduction axis, or
    /// all.
    pub fn all_chunks(&self) -> usize {
        self.chunk_counts().rev().take(if self.counts_all_chunks() { usize::MAX } else { 1 }).product()
    }

    /// Number of chunks that one block of a split processes.
    pub fn chunks(&self) -> usize {
        self.all_chunks().div_ceil(self.split)
    }

    /// Returns the reduction axes with their chunks and the number of these, in the order of one
    /// loop over all chunks. Positions in a kernel vary fastest, so that neighbouring chunks read
    /// the same input.
    pub(crate) fn chunk_order(&self) -> Vec<(&(AxisId, usize), usize)> {
        let mut order: Vec<_> = self.reduce.iter().zip(self.chunk_counts()).collect();
        if let Some(steps) = order.pop() {
            order.insert(0, steps);
        }
        order
    }

    /// Number of chunks that one iteration of the loop over all chunks copies and multiplies. It is
    /// the smallest with most slots and positions in a kernel constant, if the code is short
    /// enough.
    pub(crate) fn unrolled_chunks(&self) -> usize {
        let MicroKernel::Matrix { by: ThreadGroup::Warp, instructions: [rows, columns], .. } = self.kernel else {
            return 1;
        };
        let steps = self.reduce.last().map_or(1, |reduce| reduce.1) / self.instruction_steps();
        let code = steps * (rows * columns + rows + columns / 2) + self.rounds().iter().sum::<usize>();

        // A digit of a chunk's number is constant if its period divides the unrolled chunks, and in
        // a single iteration. Positions also depend on the block's part.
        let positions = self.chunk_order().into_iter().skip(1).rev();
        let periods = positions.scan(1, |period, (_, count)| {
            *period *= count;
            Some(*period)
        });
        let (periods, chunks): (Vec<usize>, _) = (periods.collect(), self.chunks());
        let constant = |n: usize| {
            let is_known = |&&period: &&usize| n.is_multiple_of(period) || n == chunks && self.split == 1;
            periods.iter().filter(is_known).count() + usize::from(n.is_multiple_of(self.slots) || n == chunks)
        };
        let fits = |n: &usize| chunks.is_multiple_of(*n) && n * code <= MAX_UNROLLED_CODE;
        (2..=chunks).filter(fits).rev().max_by_key(|&n| constant(n)).filter(|&n| constant(n) > constant(1)).unwrap_or(1)
    }

    /// Number of chunks whose copies may be in flight before a chunk is multiplied.
    pub fn ahead(&self) -> usize {
        match (self.kernel, self.pipeline) {
            (MicroKernel::Matrix { by: ThreadGroup::WarpGroup, .. }, Pipeline::Asynchronous) => self.slots - 2,
            _ => self.slots - 1,
        }
    }

    /// Shared memory of a block in bytes.
    pub fn shared_bytes(&self) -> usize {
        // Each slot has mbarriers: full and empty with a producer, full only without.
        let words = match (self.kernel, self.pipeline) {
            (MicroKernel::Matrix { by: ThreadGroup::WarpGroup, .. }, Pipeline::Producer) => 2,
            (MicroKernel::Matrix { by: ThreadGroup::WarpGroup, .. }, _) => 1,
            _ => 0,
        };
        let bytes = |s: &Staged| self.slots * s.shape().iter().product::<usize>() * s.dtype.bytes();
        let buffers: usize = self.staged.iter().map(|staged| bytes(staged).next_multiple_of(16)).sum();
        buffers + (words * ARRIVAL_BYTES * self.slots).next_multiple_of(16)
    }

    /// Number of rounds in which the threads copy a chunk, for each operand.
    pub fn rounds(&self) -> [usize; 2] {
        [0, 1].map(|which| self.staged[which].rounds(self.threads()))
    }

    /// Estimated registers per thread: sums, operands of the multiplication, elements in flight to
    /// shared memory, and addresses and conditions. Compilers keep the latter for every unrolled
    /// round of a copy. The analysis counts the same number in the loop nests.
    pub fn registers(&self) -> usize {
        let rounds = self.rounds();
        match self.kernel {
            MicroKernel::Registers { .. } => {
                let fragments: usize =
                    [0, 1].map(|which| self.sums_of(which).map(|s| s.1.extent).product::<usize>()).iter().sum();
                let copies = self.staged.iter().zip(rounds).map(|(staged, rounds)| match self.pipeline {
                    Pipeline::Fetched => rounds * (staged.vector + PREFETCH_REGISTERS),
                    _ if rounds <= MAX_UNROLLED_ROUNDS => rounds * COPY_REGISTERS,
                    _ => COPY_REGISTERS,
                });
                self.sums() + fragments + copies.sum::<usize>() + THREAD_REGISTERS
            }
            MicroKernel::Matrix { by: ThreadGroup::Warp, instructions: [rows, columns], .. } => {
                let copies = rounds.iter().sum::<usize>();
                self.sums() + 4 * rows + 2 * columns + ASYNC_COPY_REGISTERS * copies + MMA_THREAD_REGISTERS
            }
            MicroKernel::Matrix { by: ThreadGroup::WarpGroup, .. } => self.sums() + MMA_THREAD_REGISTERS,
        }
    }

    /// Number of reduction steps of one matrix instruction.
    pub fn instruction_steps(&self) -> usize {
        instruction::MMA.steps(self.dtype).unwrap_or(1)
    }

    /// Maximum number of registers per thread at the launch of a block.
    pub fn launched_registers(&self, target: &GpuTarget) -> usize {
        registers_of_block(target, self.all_threads())
    }

    /// Maximum number of registers of a thread that multiplies.
    pub fn most_registers(&self, target: &GpuTarget) -> usize {
        match WarpRole::registers(self.threads()).filter(|_| self.pipeline == Pipeline::Producer) {
            // Consumers also have the registers that the producer gives up.
            Some([_, many]) => many,
            None => self.launched_registers(target),
        }
    }
}
