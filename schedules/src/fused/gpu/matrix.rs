//! Attention by matrix instructions of warps: both contractions are products of `mma`, in the
//! manner of FlashAttention-2 (Dao, 2023).
//!
//! ```text
//! block loops over batch axes and tiles of rows;  thread loops: warps along rows, 32 lanes
//!   data_shared = queries
//!   for chunks of keys, `stages` of them in flight or in shared memory
//!     mma { first_acc += queries * keys }                       scores, in registers
//!     online softmax of first_acc, weights stay in registers
//!     mma { acc += weights * values }
//!   output = act(acc / total + bias + residual)
//! ```
//!
//! Each warp computes all keys of a chunk for its rows, so that a row belongs to the four lanes
//! that matrix instructions assign to it. The distribution of scores over lanes is also that of a
//! factor of the second product.

use std::sync::Arc;

use autotune_ir::DType;
use autotune_ir::instruction::{LANES, MMA, ThreadGroup};
use autotune_ir::target::GpuTarget;
use autotune_workloads::Workload;

use super::GpuFused;
use super::pair::{GpuPair, PairMiddle};
use crate::config::{Config, KnobValues};
use crate::contraction::AxisId;
use crate::direct::reader::KnobReader;
use crate::error::LowerError;
use crate::gpu::{MicroKernel, Pipeline, Staged, TileLevel, Tiling, staged_for_warps};
use crate::knob_space::Knob;

/// Name of the sketch in configs.
pub(in crate::fused) const SKETCH: &str = "fused_mma";

/// Rows and columns of an instruction's fragments.
const ROWS: usize = 16;
const COLUMNS: usize = 8;
/// Fewest queries: with less, matrix instructions would be mostly idle.
const LEAST_ROWS: usize = ROWS / 2;
/// Values of the knobs: rows of a warp, warps of a block, keys of a chunk, and chunks in shared
/// memory.
const WARP_ROWS: [usize; 2] = [16, 32];
const WARPS: [usize; 5] = [1, 2, 4, 6, 8];
const CHUNKS: [usize; 6] = [16, 32, 48, 64, 96, 128];
const STAGES: &[&str] = &["2", "3", "4"];

/// Axes of attention in both contractions: queries and keys in the first, queries and columns of
/// the values in the second.
struct MatrixAxes {
    rows: [AxisId; 2],
    keys: [AxisId; 2],
    column: AxisId,
    step: AxisId,
}

impl MatrixAxes {
    /// Returns the axes if matrix instructions of the target apply to the pair.
    fn of(pair: &GpuPair, dtype: DType, target: &GpuTarget) -> Option<Self> {
        let &[rows] = &pair.rows[..] else { return None };
        let (keys, column, step) = (pair.channel?, pair.column?, *pair.part(0).reduce.last()?);
        let is_softmax = matches!(pair.between, PairMiddle::Softmax(_));
        // Other reduction axes would need chunks of their own.
        let is_plain = [0, 1].into_iter().all(|part| pair.part(part).reduce.len() == 1 && !pair.part(part).unfolded);
        // The weights of single precision would be rounded to 10 bits.
        let has_instruction = MMA.feature.is_of_gpu(target) && dtype.bytes() == 2 && MMA.steps(dtype).is_some();
        let is_filled = pair.part(0).extent(rows[0]) >= LEAST_ROWS && pair.part(0).extent(step) > 1;
        (is_softmax && is_plain && has_instruction && is_filled).then_some(Self { rows, keys, column, step })
    }
}

/// Returns all knobs with their values; `None` if the sketch does not apply.
pub(in crate::fused) fn knobs(workload: &Workload, target: &GpuTarget) -> Option<Vec<Knob>> {
    let pair = GpuPair::of(workload)?;
    let axes = MatrixAxes::of(&pair, workload.dtype(), target)?;
    let extents = [axes.rows, axes.keys].map(|axis| pair.part(0).extent(axis[0]));
    let rows = WARP_ROWS.into_iter().flat_map(|warp| WARPS.map(|warps| vec![warps * warp, warp]));
    let rows = rows.filter(|tile| tile[0] == ROWS || tile[0] < 2 * extents[0].next_multiple_of(ROWS));
    let chunks = CHUNKS.into_iter().filter(|&chunk| chunk == ROWS || chunk < 2 * extents[1].next_multiple_of(ROWS));

    let knobs = vec![
        Knob::tile("tile.m", rows.collect()),
        Knob::tile("tile.n", chunks.map(|chunk| vec![chunk]).collect()),
        Knob::choice("stages", STAGES),
    ];
    let is_valid = |config: &Config| GpuFused::by_matrices(workload, target, config).is_ok();
    let has_any = smallest(&knobs).any(|config| is_valid(&config));
    has_any.then_some(knobs)
}

/// Yields the configs with the fewest stages.
fn smallest(knobs: &[Knob]) -> impl Iterator<Item = Config> {
    let [rows, chunks, stages] = [0, 1, 2].map(|knob| &knobs[knob]);
    rows.values.iter().flat_map(move |row| {
        chunks.values.iter().map(move |chunk| {
            let values = [(rows, row), (chunks, chunk), (stages, &stages.values[0])];
            let knobs = values.into_iter().map(|(knob, value)| (knob.name.clone(), value.clone())).collect();
            Config { sketch: SKETCH.into(), knobs }
        })
    })
}

impl GpuFused {
    /// Reads the knobs of attention by matrix instructions, or fails with the first that is
    /// malformed, does not fit the workload, or breaks a limit of the target.
    pub(in crate::fused) fn by_matrices(
        workload: &Workload,
        target: &GpuTarget,
        knobs: &dyn KnobValues,
    ) -> Result<Self, LowerError> {
        let unfit = || LowerError::unfit(SKETCH, workload);
        let (pair, dtype) = (GpuPair::of(workload).ok_or_else(unfit)?, workload.dtype());
        let axes = MatrixAxes::of(&pair, dtype, target).ok_or_else(unfit)?;
        let reader = KnobReader(knobs);
        let ([block, warp], [chunk]) = (reader.tile("tile.m")?, reader.tile("tile.n")?);
        let stages: usize = reader.number("stages")?;
        let is_whole = warp > 0 && warp.is_multiple_of(ROWS) && block.is_multiple_of(warp) && block > 0;
        require(is_whole, "tile.m", "the block must be a multiple of the warp, and the warp of 16")?;
        require(chunk > 0 && chunk.is_multiple_of(ROWS), "tile.n", "must be a multiple of 16")?;

        let count = pair.part(0).extent(axes.keys[0]).div_ceil(chunk);
        require((2..=8).contains(&stages), "stages", "must be from 2 to 8")?;
        require(stages <= count + 1, "stages", "is too large for the number of chunks")?;

        let steps = MMA.steps(dtype).unwrap_or(ROWS);
        let whole = |number: usize, axis: AxisId| pair.part(number).extent(axis).next_multiple_of(steps);
        let tile = WarpTiles { dtype, rows: block, warp_rows: warp };
        let first = [axes.rows[0], axes.keys[0], axes.step];
        let second = [axes.rows[1], axes.column, axes.keys[1]];
        let first = tile.tiling(&pair, 0, first, [chunk, whole(0, axes.step)]);
        let mut second = tile.tiling(&pair, 1, second, [whole(1, axes.column), chunk]);
        // Weights stay in registers, without copies.
        second.staged[0].vector = ROWS / dtype.bytes();

        let [first, second] = [first.within_limits(target)?, second.within_limits(target)?];
        let fused = Self { first, second, is_whole: false, slots: Some(stages.min(count)), pair };
        fused.check(target)?;
        Ok(fused)
    }
}

/// Tiles of rows that warps share.
struct WarpTiles {
    dtype: DType,
    rows: usize,
    warp_rows: usize,
}

impl WarpTiles {
    /// Returns the tiling of a contraction: all columns of a chunk for the rows of each warp. The
    /// axes are rows, columns and steps, with the extents of columns and steps.
    fn tiling(
        &self,
        pair: &GpuPair,
        number: usize,
        [row, column, step]: [AxisId; 3],
        [columns, steps]: [usize; 2],
    ) -> Tiling {
        let (roles, dtype) = (Arc::clone(pair.part(number)), self.dtype);
        let level = |axis: AxisId, name, extent, step| TileLevel { axis, name, extent, step };
        let instructions = [self.warp_rows / ROWS, columns / COLUMNS];
        let [data, weight] = roles.operands.clone();
        let stage = |source, tiled| -> Staged { staged_for_warps(source, [tiled, step], dtype) };

        let tiling = Tiling {
            dtype,
            spatial: vec![(row, self.rows), (column, columns)],
            reduce: vec![(step, steps)],
            blocks: vec![level(row, ".b", roles.extent(row).div_ceil(self.rows), self.rows)],
            threads: vec![
                level(row, "row.w", self.rows / self.warp_rows, self.warp_rows),
                level(row, "row.t", LANES[0], 1),
                level(column, "column.t", LANES[1], 2),
            ],
            sums: vec![
                level(row, "i", instructions[0], ROWS),
                level(column, "j", instructions[1], COLUMNS),
                level(row, "h", 2, LANES[0]),
                level(column, "c", 2, 1),
            ],
            staged: [stage(data, row), stage(weight, column)],
            packing: None,
            kernel: MicroKernel::Matrix { by: ThreadGroup::Warp, instructions, run: 1 },
            pipeline: Pipeline::Serial,
            slots: 1,
            split: 1,
            persistent: None,
            roles,
        };
        tiling.measured()
    }
}

fn require(holds: bool, knob: &str, reason: &str) -> Result<(), LowerError> {
    if holds { Ok(()) } else { Err(LowerError::knob(knob, reason.to_string())) }
}
