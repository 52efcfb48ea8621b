//! Tilings for tensor cores: teams of threads multiply by matrix instructions while the next chunks
//! are copied to shared memory. A team is the group of threads that executes an instruction
//! together: a warp (`mma`), or a warp group of four warps (`wgmma`).
//!
//! ```text
//! block loops over parts of the reduction, batch, tiles of rows and columns
//!   thread loops: teams along rows, teams along columns, the 8 and 4 lanes of Fragments
//!     acc = 0
//!     for chunks of kernel positions and channels, `stages` of them in flight or in shared memory
//!       mma { acc += data_shared * weight_shared }
//!     output = act(acc + bias + residual)                      (guarded where the tile sticks out)
//! ```
//!
//! The contraction is a matrix product ([`AxisRoles::of_matrix`]). The rows of a convolution are
//! its pixels, numbered over images, height and width. The columns are output channels, and the
//! reduction is over kernel positions and channels. Data has the channels last (`NHWC`), so that
//! the elements of a row at a kernel position are contiguous. Weights are packed to the same order
//! ahead of time:
//!
//! ```text
//! for n, o, y, x { for c, kh, kw { out[n,o,y,x] += in[n,c,y+kh,x+kw] * w[o,c,kh,kw] } }
//!   →  for p in 0..N*OH*OW, o { for kh, kw, c {
//!        (n, y, x) = p;  out[n,y,x,o] += in[n,y+kh,x+kw,c] * packed[o,kh,kw,c] } }
//! ```
//!
//! The copies gather the data of a chunk. Each copies some channels of a pixel at a kernel
//! position, or zeros for padding. Rows of shared memory have 16 bytes of padding, so that the
//! eight rows that an `ldmatrix` reads at once are in different banks.
//!
//! With `raster=n`, blocks that run at the same time share `n` tiles of rows, so that they find
//! their inputs in the second-level cache.
//!
//! Warp groups are for compute capability 9.0, matrix products with packed weights, and 16-bit
//! types. Four warps share an instruction, which reads both operands from shared memory while the
//! warps go on. One thread starts the copy of each operand's tile, which the copy engine then does.
//! With `producer=group`, that thread is in a warp group that only copies; with `grid=persistent`,
//! it copies tile after tile. Data for warp groups has the reduction steps last. Data for warps may
//! also be transposed.

use std::sync::{Arc, OnceLock};

use super::limits::require;
use super::{AxisRoles, MicroKernel, Packing, Pipeline, Staged, TileLevel, Tiling};
use crate::config::KnobValues;
use crate::contraction::{AxisId, Operand};
use crate::direct::reader::KnobReader;
use crate::error::LowerError;
use crate::knob_space::Knob;
use autotune_ir::DType;
use autotune_ir::instruction::{BOX_ROW_BYTES, LANES, ThreadGroup};
use autotune_ir::target::{GpuApi, GpuTarget};

/// Bytes of the widest copy, which are also the padding of a row of shared memory.
const COPY_BYTES: usize = 16;
/// Maximum number of rows in a TMA box, and of columns in an instruction of a warp group.
const MAX_BOX: usize = 256;
/// Number of columns of the narrowest tile.
const LEAST_COLUMNS: usize = 16;

/// Values of the knobs that only warp groups have.
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
            // Teams pack only constant weights.
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

/// True if the environment variable `AUTOTUNE_NO_WGMMA` is set. It disables warp groups on devices
/// on which their instructions fail.
fn are_groups_off() -> bool {
    static OFF: OnceLock<bool> = OnceLock::new();
    *OFF.get_or_init(|| std::env::var_os("AUTOTUNE_NO_WGMMA").is_some_and(|value| !value.is_empty()))
}

/// Returns the numbers of rows and columns of the product, and the extent of its innermost
/// reduction axis.
fn sizes(roles: &AxisRoles) -> [usize; 3] {
    [roles.spatial[0], roles.spatial[1], roles.reduce[roles.reduce.len() - 1]].map(|axis| roles.extent(axis))
}

/// True if at least half of an instruction's columns and steps are used.
pub(super) fn fill(roles: &AxisRoles) -> bool {
    let [_, columns, steps] = sizes(roles);
    columns >= 8 && steps >= 4
}

/// True if the weights can only be read in packed form, because their reduction steps are not
/// contiguous.
fn must_pack(roles: &AxisRoles, by: ThreadGroup) -> bool {
    let taps = &roles.reduce[..roles.reduce.len() - 1];
    roles.unfolded || taps.iter().any(|&axis| roles.extent(axis) > 1) || by == ThreadGroup::WarpGroup
}

/// Returns the values of the knob `weights`: whether weights are read packed or in place. Only
/// constant weights can be packed, and weights with the reduction steps last need no packing.
fn weight_words(roles: &AxisRoles, by: ThreadGroup) -> &'static [&'static str] {
    let weight = &roles.operands[1];
    let steps_last = roles.reduce.last().and_then(|&step| weight.dim_of(step)) > weight.dim_of(roles.spatial[1]);
    match must_pack(roles, by) {
        true => &["packed"],
        false if roles.own.weight_is_constant && !steps_last => &["packed", "inplace"],
        false => &["inplace"],
    }
}

/// Returns every knob of the sketch with its values.
pub(super) fn knobs(roles: &AxisRoles, dtype: DType, by: ThreadGroup) -> Vec<Knob> {
    let ([rows, columns, steps], bytes) = (sizes(roles), dtype.bytes());
    let [row_tiles, column_tiles, chunks] = match by {
        ThreadGroup::Warp => {
            // A row of a chunk has 32, 64 or 128 bytes.
            let least = 2 * COPY_BYTES / bytes;
            let chunks = [1, 2, 4].map(|n| n * least).into_iter().filter(|&chunk| chunk < 2 * steps || chunk == least);
            [warp_tiles(rows), warp_tiles(columns), chunks.map(|chunk| vec![chunk]).collect()]
        }
        ThreadGroup::WarpGroup => {
            let tiles = [[64, 64], [128, 64], [128, 128], [192, 64], [256, 64], [256, 128]];
            let tiles = tiles.iter().filter(|tile| is_filled(tile[0], by.rows(), rows)).map(|tile| tile.to_vec());
            let widths = (1..=16).map(|n| LEAST_COLUMNS * n).filter(|&n| is_filled(n, LEAST_COLUMNS, columns));
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

/// True for blocks that are less than half out of bounds, and for the smallest block, of one
/// instruction.
fn is_filled(block: usize, instruction: usize, extent: usize) -> bool {
    block <= instruction || block < 2 * extent.next_multiple_of(instruction)
}

/// Returns pairs `[block, warp]` of one to eight warps along an axis.
fn warp_tiles(extent: usize) -> Vec<Vec<usize>> {
    let blocks = [16, 32, 64, 96, 128, 192, 256].into_iter().filter(|&block| is_filled(block, 16, extent));
    let warps = |block: usize| {
        let warps = [16, 32, 48, 64, 96, 128].into_iter();
        warps.filter(move |warp| block.is_multiple_of(*warp) && block / warp <= 8).map(move |warp| vec![block, warp])
    };
    blocks.flat_map(warps).collect()
}

/// Parses the knobs of a config. Fails with the first knob that is malformed or does not fit.
pub(super) fn tiling(
    roles: Arc<AxisRoles>,
    dtype: DType,
    target: &GpuTarget,
    by: ThreadGroup,
    knobs: &dyn KnobValues,
) -> Result<Tiling, LowerError> {
    let reader = KnobReader(knobs);
    let is_group = by == ThreadGroup::WarpGroup;
    let (row, column) = (roles.spatial[0], roles.spatial[1]);
    let [rows, team_rows] = read_tile(&reader, "tile.m", by.rows(), roles.extent(row))?;
    let [columns, team_columns] = read_tile(&reader, "tile.n", LEAST_COLUMNS, roles.extent(column))?;
    let [chunk] = reader.tile("tile.k")?;
    let steps = by.instruction().steps(dtype).unwrap_or(1);
    require(
        chunk.is_multiple_of(2 * steps) || chunk == steps,
        "tile.k",
        "must be the steps of one instruction or of an even number of them",
    )?;
    if is_group {
        require(chunk * dtype.bytes() == BOX_ROW_BYTES, "tile.k", "must fill one row of a box")?;
        let is_one = team_columns == columns && columns.max(rows) <= MAX_BOX;
        require(is_one, "tile", "must be one instruction wide and fit one box")?;
    }

    // Copying threads, split, and order of tiles.
    let is_packed = reader.one_of("weights", weight_words(&roles, by))? == "packed";
    let is_producer = is_group && reader.one_of("producer", PRODUCER)? == "group";
    let is_persistent = is_group && reader.one_of("grid", GRID)? == "persistent";
    let (slots, split) = (reader.number("stages")?, reader.number("split")?);
    // A warp group's instruction may still read the previous chunk's slot, so copies need a third
    // one.
    let least = if is_group && !is_producer { 3 } else { 2 };
    require(slots >= least, "stages", "is too small for copies and instructions in progress")?;
    let [row_tiles, column_tiles] =
        [(row, rows), (column, columns)].map(|(axis, tile)| roles.extent(axis).div_ceil(tile));
    let raster = if reader.choice("raster")? == "all" { row_tiles } else { reader.number("raster")? };
    require(row_tiles.is_multiple_of(raster), "raster", "does not divide the number of row tiles")?;

    let instructions = [team_rows / by.rows(), team_columns / 8];
    // A lane has pairs of columns of each instruction. Runs of them make its stores up to 16 bytes
    // wide.
    let run = match by {
        ThreadGroup::Warp => 1,
        ThreadGroup::WarpGroup if columns.is_multiple_of(32) => 4,
        ThreadGroup::WarpGroup => 2,
    };

    let packing = is_packed.then(|| {
        let batch = roles.batch.iter().filter(|&&axis| roles.extent(axis) > 1);
        let axes = batch.chain([&column]).chain(&roles.reduce);
        let mut order: Vec<usize> = axes.filter_map(|&axis| roles.operands[1].dim_of(axis)).collect();
        // In grouped convolutions, the group is in the same dimension as the columns.
        order.dedup();
        Packing { order, run }
    });
    let step = roles.reduce[roles.reduce.len() - 1];
    let [data, weight] = roles.sources(&packing);
    let level = |axis: AxisId, name, extent, step| TileLevel { axis, name, extent, step };
    // A warp group is four warps along the rows, with 16 rows each.
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
        // All columns of `raster` tiles of rows come before the next rows.
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
        kernel: MicroKernel::Matrix { by, instructions, run },
        pipeline: if is_producer { Pipeline::Producer } else { Pipeline::Asynchronous },
        slots,
        split,
        persistent: is_persistent.then_some(target.multiprocessors),
        roles,
    };
    // A persistent grid, whose blocks compute several tiles each, pays only if consumers can store
    // one tile while the producer copies the next.
    let has_turns = is_producer && tiling.threads() > by.threads() && split == 1;
    let is_grid = tiling.persistent.is_none_or(|blocks| has_turns && tiling.all_tiles() > blocks);
    require(
        is_grid,
        "grid",
        "a persistent grid needs a producer, two warp groups, no split, and more tiles than blocks",
    )?;
    Ok(tiling.measured())
}

/// Reads a tile of whole teams of whole instructions. A block may not be half out of bounds, unless
/// it is the smallest.
fn read_tile(reader: &KnobReader, knob: &str, instruction: usize, extent: usize) -> Result<[usize; 2], LowerError> {
    let [block, team] = reader.tile(knob)?;
    let is_whole = team.is_multiple_of(instruction) && block.is_multiple_of(team);
    require(is_whole, knob, "the block must be a multiple of the team, and the team of the instruction")?;
    require(
        is_filled(block, instruction, extent),
        knob,
        format_args!("a block of {block} is too large for an axis of {extent}"),
    )?;
    Ok([block, team])
}

/// Stages the dimensions of an operand that use the tiled axis and the steps, in copies as wide as
/// its rows allow.
fn stage(source: Operand, [tiled, step]: [AxisId; 2], dtype: DType, by: ThreadGroup) -> Staged {
    let mut order: Vec<usize> = [tiled, step].iter().filter_map(|&axis| source.dim_of(axis)).collect();
    order.sort_unstable();
    let (bytes, along) = (dtype.bytes(), order[order.len() - 1]);
    let fits = |v: &usize| v.is_power_of_two() && source.shape[along].is_multiple_of(*v);
    let vector = (1..=COPY_BYTES / bytes).rev().find(fits).unwrap_or(1);

    // `ldmatrix` cannot transpose 32-bit elements. Instead, four lanes read eight elements each
    // from four rows, and two units of padding avoid bank conflicts.
    let copies = if source.dim_of(step) != Some(along) && dtype == DType::Tf32 { 2 } else { 1 };
    let pad = if by == ThreadGroup::Warp { copies * COPY_BYTES / bytes } else { 0 };
    Staged { source, dtype, order, extents: Vec::new(), vector, pad }
}

/// Returns the staging of an operand for matrix instructions of warps; see [`stage`].
pub(crate) fn staged_for_warps(source: Operand, axes: [AxisId; 2], dtype: DType) -> Staged {
    stage(source, axes, dtype, ThreadGroup::Warp)
}
