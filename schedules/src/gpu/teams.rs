//! Tensor cores: teams of threads multiply tiles by matrix instructions while the next tiles are
//! copied to shared memory.
//!
//! ```text
//! block loops over parts of the reduction, batch, tiles of rows and columns
//!   thread loops: teams along rows, teams along columns, the 8 and 4 lanes of Fragments
//!     acc = 0
//!     for the chunks of kernel positions and channels, with `stages` of them under way or in shared memory
//!       mma { acc += data_shared * weight_shared }
//!     output = act(acc + bias + residual)                      (guarded where the tile sticks out)
//! ```
//!
//! What is multiplied is a matrix product ([`AxisRoles::of_matrix`]): the pixels of a convolution
//! are the rows, numbered over images, height and width, its output channels the columns, kernel
//! positions and channels the reduction. Its data has the channels last (`NHWC`), so that what a
//! row needs at a kernel position lies together, and weights are packed ahead of time in the same
//! way:
//!
//! ```text
//! for n, o, y, x { for c, kh, kw { out[n,o,y,x] += in[n,c,y+kh,x+kw] * w[o,c,kh,kw] } }
//!   →  for p in 0..N*OH*OW, o { for kh, kw, c { (n, y, x) = p;  out[n,y,x,o] += in[n,y+kh,x+kw,c] * packed[o,kh,kw,c] } }
//! ```
//!
//! The data of a chunk is gathered by the copies themselves: each copies some channels of a pixel
//! at a kernel position, or zeros where that is in the padding. Rows of shared memory are 16 bytes
//! longer than what they hold, which keeps the eight rows that an `ldmatrix` reads at once in
//! different banks.
//!
//! With `raster=n` the blocks that run at the same time share `n` tiles of rows, so that they find
//! what they read in the second-level cache.
//!
//! Warp groups are for compute capability 9.0, matrix products with packed weights, and types of 16
//! bits. Four warps multiply by one instruction, which reads both operands from shared memory while
//! the warps go on; one thread starts the copy of each operand's tile, which the copy engine does
//! by itself: with `producer=group` one of a warp group that does nothing else, with
//! `grid=persistent` for tile after tile. Their data has the steps last; that of warps may lie
//! transposed, too.

use std::sync::{Arc, OnceLock};

use super::limits::require;
use super::{AxisRoles, Kernel, Level, Packing, Pipeline, Staged, Tiling};
use crate::config::KnobValues;
use crate::contraction::{AxisId, Operand};
use crate::direct::reader::Reader;
use crate::error::LowerError;
use crate::knob_space::Knob;
use autotune_ir::DType;
use autotune_ir::instruction::{BOX_ROW_BYTES, LANES, ThreadGroup};
use autotune_ir::target::{GpuApi, GpuTarget};

/// Bytes of the widest copy, and those by which rows of shared memory are longer than what they
/// hold.
const COPY_BYTES: usize = 16;
/// Rows of a box, and columns of an instruction of a warp group.
const MAX_BOX: usize = 256;
/// Columns of the narrowest tile.
const LEAST_COLUMNS: usize = 16;

/// Words of the knobs that only warp groups have.
const PRODUCER: &[&str] = &["inline", "group"];
const GRID: &[&str] = &["tiles", "persistent"];

/// True if a team has matrix instructions for the product on the target.
pub(super) fn are_for(roles: &AxisRoles, dtype: DType, target: &GpuTarget, by: ThreadGroup) -> bool {
    let GpuApi::Cuda { sm } = target.api else { return false };
    let [rows, _, steps] = sizes(roles);
    let steps_last = roles.reduce.last().and_then(|&step| roles.operands[0].dim_of(step));
    let is_plain =
        roles.pixels.is_none() && roles.own.weight_is_constant && steps_last == Some(roles.operands[0].index.len() - 1);
    let batch = roles.batch.iter().map(|&axis| roles.extent(axis)).product::<usize>();
    match by {
        ThreadGroup::Warp => {
            let can_pack = roles.own.weight_is_constant || !must_pack(roles, by);
            by.instruction().feature.is_of_gpu(target) && can_pack && by.instruction().steps(dtype).is_some()
        }
        ThreadGroup::WarpGroup => {
            let bytes = dtype.bytes();
            let is_copied = bytes == 2 && (steps * bytes).is_multiple_of(COPY_BYTES);
            sm == 90 && is_copied && is_plain && batch == 1 && rows > 1 && !are_groups_off()
        }
    }
}

/// True if the environment variable `AUTOTUNE_NO_WGMMA` is set: a device on which instructions of
/// warp groups fail is tuned without.
fn are_groups_off() -> bool {
    static OFF: OnceLock<bool> = OnceLock::new();
    *OFF.get_or_init(|| std::env::var_os("AUTOTUNE_NO_WGMMA").is_some_and(|value| !value.is_empty()))
}

/// Rows and columns of the product, and steps of its innermost reduction axis.
fn sizes(roles: &AxisRoles) -> [usize; 3] {
    [roles.spatial[0], roles.spatial[1], roles.reduce[roles.reduce.len() - 1]].map(|axis| roles.extent(axis))
}

/// True if half of the columns and of the steps of an instruction are used at least.
pub(super) fn fill(roles: &AxisRoles) -> bool {
    let [_, columns, steps] = sizes(roles);
    columns >= 8 && steps >= 4
}

/// True if the weights are read as they are packed only: others lie between their steps.
fn must_pack(roles: &AxisRoles, by: ThreadGroup) -> bool {
    let taps = &roles.reduce[..roles.reduce.len() - 1];
    roles.unfolded || taps.iter().any(|&axis| roles.extent(axis) > 1) || by == ThreadGroup::WarpGroup
}

/// Where the weights may lie when they are read. Those that are not known ahead of time cannot be
/// packed, and those with the steps last lie right.
fn weight_words(roles: &AxisRoles, by: ThreadGroup) -> &'static [&'static str] {
    let weight = &roles.operands[1];
    let steps_last = roles.reduce.last().and_then(|&step| weight.dim_of(step)) > weight.dim_of(roles.spatial[1]);
    match must_pack(roles, by) {
        true => &["packed"],
        false if roles.own.weight_is_constant && !steps_last => &["packed", "inplace"],
        false => &["inplace"],
    }
}

/// Every knob with its values.
pub(super) fn knobs(roles: &AxisRoles, dtype: DType, by: ThreadGroup) -> Vec<Knob> {
    let ([rows, columns, steps], bytes) = (sizes(roles), dtype.bytes());
    let [row_tiles, column_tiles, chunks] = match by {
        ThreadGroup::Warp => {
            // Rows of a chunk of 32, 64 or 128 bytes.
            let least = 2 * COPY_BYTES / bytes;
            let chunks = [1, 2, 4].map(|n| n * least).into_iter().filter(|&chunk| chunk < 2 * steps || chunk == least);
            [warp_tiles(rows), warp_tiles(columns), chunks.map(|chunk| vec![chunk]).collect()]
        }
        ThreadGroup::WarpGroup => {
            let tiles = [[64, 64], [128, 64], [128, 128], [192, 64], [256, 64], [256, 128]];
            let tiles = tiles.iter().filter(|tile| reaches(tile[0], by.rows(), rows)).map(|tile| tile.to_vec());
            let widths = (1..=16).map(|n| LEAST_COLUMNS * n).filter(|&n| reaches(n, LEAST_COLUMNS, columns));
            [tiles.collect(), widths.map(|n| vec![n, n]).collect(), vec![vec![BOX_ROW_BYTES / bytes]]]
        }
    };

    let mut knobs = vec![
        Knob::tile("tile.m", row_tiles),
        Knob::tile("tile.n", column_tiles),
        Knob::tile("tile.k", chunks),
        Knob::choice("weights", weight_words(roles, by)),
    ];
    knobs.extend(match by {
        ThreadGroup::Warp => vec![Knob::choice("stages", &["2", "3", "4", "5"])],
        ThreadGroup::WarpGroup => vec![
            Knob::choice("stages", &["3", "4", "5", "6", "8"]),
            Knob::choice("producer", PRODUCER),
            Knob::choice("grid", GRID),
        ],
    });
    knobs.extend([
        Knob::choice("raster", &["1", "2", "4", "8", "16", "all"]),
        Knob::choice("split", &["1", "2", "3", "4", "6", "8", "16"]),
    ]);
    knobs
}

/// True for blocks that are not half outside, and for the smallest, of one instruction.
fn reaches(block: usize, instruction: usize, extent: usize) -> bool {
    block <= instruction || block < 2 * extent.next_multiple_of(instruction)
}

/// `[block, warp]` values of one to eight warps.
fn warp_tiles(extent: usize) -> Vec<Vec<usize>> {
    let blocks = [16, 32, 64, 96, 128, 192, 256].into_iter().filter(|&block| reaches(block, 16, extent));
    let warps = |block: usize| {
        let warps = [16, 32, 48, 64, 96, 128].into_iter();
        warps.filter(move |warp| block.is_multiple_of(*warp) && block / warp <= 8).map(move |warp| vec![block, warp])
    };
    blocks.flat_map(warps).collect()
}

/// What a config asks for, or the first knob that is malformed or does not fit.
pub(super) fn tiling(
    roles: Arc<AxisRoles>,
    dtype: DType,
    target: &GpuTarget,
    by: ThreadGroup,
    knobs: &dyn KnobValues,
) -> Result<Tiling, LowerError> {
    let reader = Reader(knobs);
    let is_group = by == ThreadGroup::WarpGroup;
    let (row, column) = (roles.spatial[0], roles.spatial[1]);
    let [rows, team_rows] = read_tile(&reader, "tile.m", by.rows(), roles.extent(row))?;
    let [columns, team_columns] = read_tile(&reader, "tile.n", LEAST_COLUMNS, roles.extent(column))?;
    let [chunk] = reader.tile("tile.k")?;
    let steps = by.instruction().steps(dtype).unwrap_or(1);
    require(chunk.is_multiple_of(2 * steps) || chunk == steps, "tile.k", "is not whole instructions")?;
    if is_group {
        require(chunk * dtype.bytes() == BOX_ROW_BYTES, "tile.k", "is not a row of a box")?;
        let is_one = team_columns == columns && columns.max(rows) <= MAX_BOX;
        require(is_one, "tile", "is not one instruction, or larger than a box")?;
    }

    // Who copies when, and which tile follows which.
    let is_packed = reader.one_of("weights", weight_words(&roles, by))? == "packed";
    let is_producer = is_group && reader.one_of("producer", PRODUCER)? == "group";
    let is_persistent = is_group && reader.one_of("grid", GRID)? == "persistent";
    let (slots, split) = (reader.number("stages")?, reader.number("split")?);
    let least = if is_group && !is_producer { 3 } else { 2 };
    require(slots >= least, "stages", "is less than copies and instructions need")?;
    let [row_tiles, column_tiles] =
        [(row, rows), (column, columns)].map(|(axis, tile)| roles.extent(axis).div_ceil(tile));
    let raster = if reader.choice("raster")? == "all" { row_tiles } else { reader.number("raster")? };
    require(row_tiles.is_multiple_of(raster), "raster", "does not divide the tiles of rows")?;

    let instructions = [team_rows / by.rows(), team_columns / 8];
    let run = match by {
        ThreadGroup::Warp => 1,
        ThreadGroup::WarpGroup if columns.is_multiple_of(32) => 4,
        ThreadGroup::WarpGroup => 2,
    };
    let packing = is_packed.then(|| {
        let batch = roles.batch.iter().filter(|&&axis| roles.extent(axis) > 1);
        let axes = batch.chain([&column]).chain(&roles.reduce);
        let mut order: Vec<usize> = axes.filter_map(|&axis| roles.operands[1].dim_of(axis)).collect();
        // Groups of channels share the dimension of the columns.
        order.dedup();
        Packing { order, run }
    });
    let step = roles.reduce[roles.reduce.len() - 1];
    let [data, weight] = roles.sources(&packing);
    let level = |axis: AxisId, name, extent, step| Level { axis, name, extent, step };
    let group = is_group.then(|| level(row, "row.g", 4, 16));
    let warps = [
        level(row, "row.w", rows / team_rows, team_rows),
        level(column, "column.w", columns / team_columns, team_columns),
    ];
    let lanes = [level(row, "row.t", LANES[0], 1), level(column, "column.t", LANES[1], 2 * run)];

    let tiling = Tiling {
        dtype,
        spatial: vec![(row, rows), (column, columns)],
        reduce: roles.reduce.iter().map(|&axis| (axis, if axis == step { chunk } else { 1 })).collect(),
        // All columns for some rows before the next rows.
        blocks: vec![
            level(row, "row.o", row_tiles / raster, raster * rows),
            level(column, "column.b", column_tiles, columns),
            level(row, "row.b", raster, rows),
        ],
        threads: warps.into_iter().chain(group).chain(lanes).collect(),
        sums: vec![
            level(row, "i", instructions[0], by.rows()),
            level(column, "j", instructions[1] / run, 8 * run),
            level(row, "h", 2, LANES[0]),
            level(column, "c", 2 * run, 1),
        ],
        staged: [stage(data, [row, step], dtype, by), stage(weight, [column, step], dtype, by)],
        packing,
        kernel: Kernel::Matrix { by, instructions, run },
        pipeline: if is_producer { Pipeline::Producer } else { Pipeline::Asynchronous },
        slots,
        split,
        persistent: is_persistent.then_some(target.multiprocessors),
        roles,
    };
    let has_turns = is_producer && tiling.threads() > by.threads() && split == 1;
    let is_grid = tiling.persistent.is_none_or(|blocks| has_turns && tiling.all_tiles() > blocks);
    require(is_grid, "grid", "has no producer with two warp groups, parts, or few tiles")?;
    Ok(tiling.measured())
}

/// Whole teams of whole instructions, and no block that is half outside but for the smallest.
fn read_tile(reader: &Reader, knob: &str, instruction: usize, extent: usize) -> Result<[usize; 2], LowerError> {
    let [block, team] = reader.tile(knob)?;
    let is_whole = team.is_multiple_of(instruction) && block.is_multiple_of(team);
    require(is_whole, knob, "is not whole teams of whole instructions")?;
    require(reaches(block, instruction, extent), knob, format_args!("{block} is far more than {extent}"))?;
    Ok([block, team])
}

/// The dimensions of an operand along an axis that is tiled and the steps, in copies as wide as
/// rows allow.
fn stage(source: Operand, [tiled, step]: [AxisId; 2], dtype: DType, by: ThreadGroup) -> Staged {
    let mut order: Vec<usize> = [tiled, step].iter().filter_map(|&axis| source.dim_of(axis)).collect();
    order.sort_unstable();
    let (bytes, along) = (dtype.bytes(), order[order.len() - 1]);
    let fits = |v: &usize| v.is_power_of_two() && source.shape[along].is_multiple_of(*v);
    let vector = (1..=COPY_BYTES / bytes).rev().find(fits).unwrap_or(1);

    // There is no `ldmatrix` that transposes words: four lanes read four rows, eight elements of
    // each.
    let copies = if source.dim_of(step) != Some(along) && dtype == DType::Tf32 { 2 } else { 1 };
    let pad = if by == ThreadGroup::Warp { copies * COPY_BYTES / bytes } else { 0 };
    Staged { source, dtype, order, extents: Vec::new(), vector, pad }
}
