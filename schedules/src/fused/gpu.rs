//! Two fused contractions in one GPU kernel: those of a [`Pair`](super::Pair), or attention, where
//! a softmax turns the first one's scores into weights of the second.
//!
//! ```text
//! block loops over batch axes and tiles of rows
//!   thread loops
//!     acc = 0
//!     tiles of intermediate channels   (`tile.` of the second's reduction axis)
//!       first:   first_acc = Σ data * weight         like the `tiled` sketch, by chunks
//!       between: data_shared = map of first_acc      barrier
//!       second:  acc += data_shared * weight_shared  in chunks of its own (`second.tile.`)
//!     output = act(acc + bias + residual)
//! ```
//!
//! A block computes all columns of the second contraction, so that no intermediate value is
//! computed twice. If that leaves too few blocks, or the intermediate tile is too large,
//! `between=whole` stores the intermediate tensor in global memory: each contraction is a kernel of
//! its own, in the same tiles.
//!
//! # Softmax
//!
//! The scores of a row are processed in chunks of keys. Sums are relative to the largest score so
//! far; they are rescaled when a larger score comes (Milakov and Gimelshein, "Online normalizer
//! calculation for softmax", 2018; Dao et al., "FlashAttention", 2022):
//!
//! ```text
//! largest[m] = max scores[m, n];  total[m] = Σ exp(scores[m, n] - largest[m])
//! sum[m, d] = Σ exp(scores[m, n] - largest[m]) / total[m] * value[n, d]
//!   →  largest = least;  total = 0;  acc = 0
//!      for chunks of n
//!        before = largest;  largest = max(largest, scores of the chunk)
//!        total *= exp(before - largest);  acc *= exp(before - largest)
//!        data_shared = exp(scores - largest);  total += data_shared;  acc += data_shared * value
//!      acc *= 1 / total
//! ```
//!
//! A causal mask leaves out chunks of keys that are later than all queries of a block
//! (`lower/hide.rs`). With matrix instructions (`matrix.rs`), chunks are copied asynchronously
//! (`lower/stream.rs`).

use std::sync::Arc;

use autotune_ir::DType;
use autotune_ir::instruction::LANES;
use autotune_ir::machine::gpu::{ASYNC_COPY_REGISTERS, MMA_THREAD_REGISTERS, THREAD_REGISTERS, WARP_THREADS};
use autotune_ir::target::GpuTarget;
use autotune_workloads::Workload;

use crate::config::KnobValues;
use crate::contraction::AxisId;
use crate::direct::reader::KnobReader;
use crate::error::LowerError;
use crate::gpu::{MAX_BODY, MicroKernel, Tiling, threads};

use super::SKETCH;
use super::part::PARTS;
use pair::{GpuPair, PairMiddle};

pub(super) mod knobs;
pub(super) mod lower;
pub(super) mod matrix;
mod pair;
mod parts;
mod softmax;

/// Type of the values that the online softmax stores.
const KEPT: DType = DType::F32;

/// Elements per copy of the intermediate tensor if it is in global memory, widest first.
const VECTORS: [usize; 3] = [4, 2, 1];

/// Largest number of the second contraction's chunks per tile of the intermediate: their code is
/// unrolled.
const MAX_CHUNKS: usize = 8;

/// A config in typed form.
pub(super) struct GpuFused {
    pair: Arc<GpuPair>,
    first: Tiling,
    second: Tiling,
    /// True if the intermediate tensor is stored whole in global memory.
    is_whole: bool,
    /// Number of chunks of keys and values in shared memory, if they are copied asynchronously.
    slots: Option<usize>,
}

impl GpuFused {
    /// Reads the values of the knobs, or fails with the first that is malformed, does not fit the
    /// workload, or breaks a limit of the target.
    pub(super) fn new(workload: &Workload, target: &GpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let pair = GpuPair::of(workload).ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        let words = intermediate_words(&pair);
        let is_whole = words.len() > 1 && KnobReader(knobs).one_of("between", words)? == "whole";

        let part = |number: usize, written_out: Option<usize>| {
            let values = parts::values(&pair, number, written_out, knobs)?;
            let tiling = threads::tiling(Arc::clone(pair.part(number)), workload.dtype(), &values);
            tiling.and_then(|tiling| tiling.within_limits(target)).map_err(|error| parts::named(error, number, knobs))
        };
        let first = part(0, None)?;
        // The widest copy of the intermediate tensor that the tiling allows.
        let widest = || VECTORS.into_iter().find(|&vector| part(1, Some(vector)).is_ok()).unwrap_or(1);
        let mut second = part(1, is_whole.then(widest))?;
        if let Some([channel, step]) = pair.channel.filter(|_| !is_whole) {
            read_intermediate(&mut second, step, first.tile(channel))?;
        }
        let fused = Self { first, second, is_whole, slots: None, pair };
        fused.check(target)?;
        Ok(fused)
    }

    /// Returns the number of tiles of intermediate channels.
    fn channel_tiles(&self) -> usize {
        let tiles = |[channel, _]: [AxisId; 2]| self.first.roles.extent(channel).div_ceil(self.first.tile(channel));
        self.pair.channel.map_or(1, tiles)
    }

    /// Returns the number of the second contraction's chunks per tile of the intermediate.
    fn chunks(&self) -> usize {
        let tiles = self.pair.channel.map(|[channel, step]| self.first.tile(channel) / self.second.tile(step));
        tiles.unwrap_or(1)
    }

    /// Checks the limits that both contractions together must satisfy.
    fn check(&self, target: &GpuTarget) -> Result<(), LowerError> {
        let (bytes, limit) = (self.shared_bytes(), target.shared_bytes_per_block);
        if bytes > limit {
            return Err(LowerError::knob(
                "tile",
                format!("{bytes} bytes of shared memory exceed the limit of {limit}"),
            ));
        }
        // The chunks of the second contraction are unrolled.
        let body = self.second.sums() * self.chunks();
        if let MicroKernel::Registers { unroll } = self.second.kernel
            && !self.is_whole
            && body * unroll > MAX_BODY
        {
            let reason = format!("{} unrolled multiply-adds exceed the limit of {MAX_BODY}", body * unroll);
            return Err(LowerError::knob("unroll", reason));
        }
        let (registers, limit) = (self.registers(), self.second.most_registers(target));
        if registers > limit && !self.is_whole {
            return Err(LowerError::knob(
                "tile",
                format!("{registers} registers per thread exceed the limit of {limit}"),
            ));
        }
        Ok(())
    }

    /// Returns the bytes of shared memory that a block needs.
    pub(super) fn shared_bytes(&self) -> usize {
        let more_slots = self.slots.map_or(0, |slots| slots - 1);
        let [first, second] = [&self.first, &self.second].map(|tiling| {
            let weights = &tiling.staged[1];
            let slot = weights.shape().iter().product::<usize>() * weights.dtype.bytes();
            tiling.shared_bytes() + more_slots * slot.next_multiple_of(16)
        });
        let stored = &self.second.staged[0];
        let stored = stored.shape().iter().product::<usize>() * stored.dtype.bytes();
        let second = second - self.held_shape().map_or(0, |_| stored.next_multiple_of(16));
        match self.pair.between {
            _ if self.is_whole => first.max(second),
            PairMiddle::Softmax(_) => {
                let parts = KEPT.bytes() * self.parts_shape().iter().product::<usize>();
                first + second + parts.next_multiple_of(16)
            }
            PairMiddle::Map => first + second,
        }
    }

    /// Estimates the registers of a thread: the accumulators of the second contraction are live
    /// while the first one runs.
    fn registers(&self) -> usize {
        let both = self.first.registers() + self.second.sums();
        match (&self.pair.between, self.first.kernel, self.second.kernel) {
            (
                PairMiddle::Softmax(_),
                MicroKernel::Matrix { instructions: [rows, keys], .. },
                MicroKernel::Matrix { instructions: [_, columns], .. },
            ) => {
                // Queries are copied before there are sums, and weights are not copied.
                let copies = ASYNC_COPY_REGISTERS * (self.first.rounds()[1] + self.second.rounds()[1]);
                let factors = 4 * rows + 2 * keys.max(columns);
                self.first.sums() + self.second.sums() + factors + copies + MMA_THREAD_REGISTERS + THREAD_REGISTERS
            }
            // The softmax has values for each row of a thread.
            (PairMiddle::Softmax(_), ..) => both.max(self.second.registers()) + THREAD_REGISTERS,
            (PairMiddle::Map, ..) => both.max(self.second.registers()),
        }
    }

    /// Returns the shape in which warps hold the weights of the softmax in registers, if matrix
    /// instructions multiply them: that of the first contraction's sums, with warps and lanes.
    fn held_shape(&self) -> Option<Vec<usize>> {
        let MicroKernel::Matrix { instructions: [rows, columns], .. } = self.first.kernel else { return None };
        let warps = self.first.threads() / WARP_THREADS;
        Some(vec![warps, rows, columns, 2, LANES[0], LANES[1], 2])
    }

    /// Returns the shape of the buffer in which the threads of each row exchange values: rows of a
    /// block, and threads.
    fn parts_shape(&self) -> Vec<usize> {
        let rows = self.pair.rows.iter().map(|row| self.first.tile(row[0]));
        rows.chain([self.row_threads()]).collect()
    }

    /// Returns the number of threads that share a row.
    fn row_threads(&self) -> usize {
        let channel = self.pair.channel.map(|channel| channel[0]);
        let level = self.first.threads.iter().find(|level| Some(level.axis) == channel);
        level.map_or(1, |level| level.extent)
    }
}

/// Makes the second contraction read the intermediate tile from shared memory: `tile` elements
/// along its reduction axis `step`, in several chunks.
fn read_intermediate(second: &mut Tiling, step: AxisId, tile: usize) -> Result<(), LowerError> {
    let chunk = second.tile(step);
    let knob = format!("{}.tile.{}", PARTS[1], second.roles.name(step));
    if !tile.is_multiple_of(chunk) || tile / chunk > MAX_CHUNKS {
        let reason = format!("{chunk} must divide the {tile} intermediate elements into at most {MAX_CHUNKS} chunks");
        return Err(LowerError::knob(&knob, reason));
    }
    let staged = &mut second.staged[0];
    if let Some(dim) = staged.source.dim_of(step) {
        staged.extents[dim] = tile;
    }
    Ok(())
}

/// Returns the columns of an attention's result, as name and extent: a block computes all of them,
/// and nothing else of an attention can exceed the limits of a block.
pub(super) fn widest(workload: &Workload) -> Option<(&'static str, usize)> {
    let pair = GpuPair::of(workload).filter(|pair| matches!(pair.between, PairMiddle::Softmax(_)))?;
    let (column, second) = (pair.column?, pair.part(1));
    Some((second.name(column), second.extent(column)))
}

/// Returns the words of the knob for the place of the intermediate tensor.
fn intermediate_words(pair: &GpuPair) -> &'static [&'static str] {
    match pair.between {
        PairMiddle::Map => &["shared", "whole"],
        PairMiddle::Softmax(_) => &["shared"],
    }
}
