//! The sketches for tensor cores: warps multiply tiles by matrix instructions while the next tiles are copied to shared memory. The
//! composition is that of [`crate::gpu`]:
//!
//! ```text
//! block loops over parts of the reduction, batch, tiles of rows and columns
//!   thread loops: warps along rows, warps along columns, the 8 and 4 lanes of Fragments
//!     acc = 0
//!     for the chunks of kernel positions and channels, with `stages` of them under way or in shared memory
//!       mma { acc += data_shared * weight_shared }
//!     output = act(acc + bias + residual)                      (guarded where the tile sticks out)
//! ```
//!
//! Every workload is a matrix product here (`AxisRoles::of_matrix`): the pixels of a convolution are the rows, numbered over images, height
//! and width, its output channels the columns, kernel positions and channels the reduction. Its data has the channels last
//! (`NHWC`), so that what a row needs at a kernel position lies together, and weights are packed ahead of time in the same way:
//!
//! ```text
//! for n, o, y, x { for c, kh, kw { out[n,o,y,x] += in[n,c,y+kh,x+kw] * w[o,c,kh,kw] } }
//!   →  for p in 0..N*OH*OW, o { for kh, kw, c { (n, y, x) = p;  out[n,y,x,o] += in[n,y+kh,x+kw,c] * packed[o,kh,kw,c] } }
//! ```
//!
//! The data of a chunk is gathered by the copies themselves: each copies some channels of a pixel at a kernel position, or
//! zeros where that is in the padding. Rows of shared memory are 16 bytes longer than what they hold, which keeps the eight
//! rows that an `ldmatrix` reads at once in different banks.
//!
//! With `raster=n` the blocks that run at the same time share `n` tiles of rows, so that they find what they read in the second-level
//! cache.
//!
//! A second sketch, `wgmma`, is for compute capability 9.0, matrix products with packed weights, and types of 16 bits. Four warps
//! multiply by one instruction, which reads both operands from shared memory while the warps go on; one thread starts the copy of
//! each operand's tile, which the copy engine does by itself: with `producer=group` one of a warp group that does nothing else, with
//! `grid=persistent` for tile after tile.

use crate::config::Config;
use crate::contraction::{AxisId, Operand};
use crate::direct::reader::Reader;
use crate::error::LowerError;
use crate::gpu::{AxisRoles, Kernel, Level, Packing, Pipeline, Staged, Tiling, lower};
use crate::knob_space::{Knob, KnobSpace};
use crate::sketch::{self, Plan, Sketch};
use crate::workload::{Known, Workload};
use autotune_ir::DType;
use autotune_ir::affine::VarId;
use autotune_ir::instruction::{BOX_ROW_BYTES, Fragments, LANES, ThreadGroup};
use autotune_ir::target::{GpuApi, GpuTarget, Target};

mod knobs;

/// Name in configs of the sketch for instructions of warps.
pub const SKETCH: &str = "mma";
/// That of the sketch for instructions of warp groups.
pub const GROUP_SKETCH: &str = "wgmma";

/// Bytes of the widest copy, and those by which rows of shared memory are longer than what they hold.
const COPY_BYTES: usize = 16;
/// Rows of a box, and columns of an instruction of a warp group.
const MAX_BOX: usize = 256;

/// A sketch for instructions of a team.
pub(crate) struct MmaSketch(pub(crate) ThreadGroup);

impl Sketch for MmaSketch {
    fn name(&self) -> &'static str {
        match self.0 {
            ThreadGroup::Warp => SKETCH,
            ThreadGroup::WarpGroup => GROUP_SKETCH,
        }
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        is_for(workload, target.gpu()?, self.0).then(|| knobs::knobs(workload, self.0))
    }

    fn plan<'a>(
        &self,
        workload: &'a Workload,
        target: &'a Target,
        config: &Config,
    ) -> Result<Box<dyn Plan + 'a>, LowerError> {
        let gpu = sketch::gpu_of(self, workload, target)?;
        Ok(sketch::plan(workload, tiling(workload, gpu, self.0, config)?, lower::lower))
    }

    fn default_config(&self, workload: &Workload, target: &Target, knobs: &KnobSpace) -> Option<(f64, Config)> {
        knobs.least(|config| sketch::cycles(self, workload, target, config))
    }

    /// Where there are enough columns for tensor cores, and where only they have the type.
    fn outdoes_later_tiers(&self, workload: &Workload) -> bool {
        self.0 == ThreadGroup::Warp && (fills(workload) || workload.dtype() == DType::Tf32)
    }
}

/// True if a team has matrix instructions for the workload on the target.
pub fn is_for(workload: &Workload, target: &GpuTarget, by: ThreadGroup) -> bool {
    let GpuApi::Cuda { sm } = target.api else { return false };
    let bytes = workload.dtype().bytes();
    match (by, workload.known()) {
        (ThreadGroup::Warp, _) => sm >= 80 && Fragments::steps(workload.dtype()).is_some(),
        (ThreadGroup::WarpGroup, Known::Matmul(m)) => {
            sm == 90 && bytes == 2 && m.b == 1 && (m.k * bytes).is_multiple_of(COPY_BYTES) && m.m > 1
        }
        (ThreadGroup::WarpGroup, Known::Conv2d(_)) => false,
    }
}

/// Rows and columns of the workload as a matrix product, and steps of its innermost reduction axis.
fn sizes(workload: &Workload) -> [usize; 3] {
    match workload.known() {
        Known::Matmul(m) => [m.m, m.n, m.k],
        Known::Conv2d(c) => [c.n * c.output_hw().iter().product::<usize>(), c.o / c.groups, c.c / c.groups],
    }
}

/// True if half of the columns and of the steps of an instruction are used at least.
pub fn fills(workload: &Workload) -> bool {
    let [_, columns, steps] = sizes(workload);
    columns >= 8 && steps >= 4
}

/// Where the weights may lie when they are read. Those of a matrix product with a batch are not known ahead of time, and those of a 1x1
/// convolution lie right.
fn weight_choices(workload: &Workload) -> &'static [&'static str] {
    match workload.known() {
        Known::Matmul(m) if m.b == 1 => &["packed", "inplace"],
        Known::Conv2d(c) if c.kh * c.kw > 1 => &["packed"],
        Known::Matmul(_) | Known::Conv2d(_) => &["inplace"],
    }
}

/// The knobs, read.
struct Knobs {
    /// Elements of a block and of a team along the rows and along the columns.
    rows: [usize; 2],
    columns: [usize; 2],
    chunk: usize,
    packed: bool,
    stages: usize,
    producer: bool,
    is_persistent: bool,
    split: usize,
    /// Tiles of rows that blocks of neighbouring numbers share; 0 for all.
    raster: usize,
}

impl Knobs {
    fn read(workload: &Workload, by: ThreadGroup, config: &Config) -> Result<Self, LowerError> {
        let reader = Reader(config);
        let flag = |name: &str, [off, on]: [&str; 2]| match reader.choice(name)? {
            word if word == off => Ok(false),
            word if word == on => Ok(true),
            word => Err(LowerError::knob(name, format!("'{word}' is not {off} or {on}"))),
        };
        let packed = match (reader.choice("weights")?, weight_choices(workload)) {
            (word, words) if words.contains(&word) => word == "packed",
            (word, _) => return Err(LowerError::knob("weights", format!("'{word}' does not fit the workload"))),
        };
        let is_group = by == ThreadGroup::WarpGroup;
        Ok(Self {
            rows: reader.tile("tile.m")?,
            columns: reader.tile("tile.n")?,
            chunk: reader.tile::<1>("tile.k")?[0],
            packed,
            stages: reader.number("stages")?,
            producer: is_group && flag("producer", ["inline", "group"])?,
            is_persistent: is_group && flag("grid", ["tiles", "persistent"])?,
            split: reader.number("split")?,
            raster: if reader.choice("raster")? == "all" { 0 } else { reader.number("raster")? },
        })
    }

    /// Rules for the tiles, the chunk and the raster.
    fn check(&self, workload: &Workload, by: ThreadGroup) -> Result<(), LowerError> {
        let fail = |name: &str, reason: &str| Err(LowerError::knob(name, reason));
        let [rows, columns, _] = sizes(workload);
        let bytes = workload.dtype().bytes();
        check_tile("tile.m", self.rows, by.rows(), rows)?;
        check_tile("tile.n", self.columns, 16, columns)?;
        if by == ThreadGroup::WarpGroup && self.chunk * bytes != BOX_ROW_BYTES {
            return fail("tile.k", "is not a row of a box");
        }
        let [one, all] = [self.columns[1], self.columns[0].max(self.rows[0])];
        if by == ThreadGroup::WarpGroup && (one != self.columns[0] || all > MAX_BOX || !self.packed) {
            return fail("tile", "is not one instruction of packed weights");
        }
        let steps = Fragments::steps(workload.dtype()).unwrap_or(1);
        if !self.chunk.is_multiple_of(2 * steps) && self.chunk != steps {
            return fail("tile.k", "is not whole instructions");
        }
        if self.raster > 0 && !rows.div_ceil(self.rows[0]).is_multiple_of(self.raster) {
            return fail("raster", "does not divide the tiles of rows");
        }
        if self.stages < if by == ThreadGroup::Warp || self.producer { 2 } else { 3 } {
            return fail("stages", "is less than copies and instructions need");
        }
        Ok(())
    }
}

/// Whole teams of whole instructions, and no block that is half outside but for the smallest.
fn check_tile(name: &str, [block, team]: [usize; 2], instruction: usize, extent: usize) -> Result<(), LowerError> {
    if !team.is_multiple_of(instruction) || !block.is_multiple_of(team) {
        return Err(LowerError::knob(name, "is not whole warps of whole instructions"));
    }
    if block > instruction && block >= 2 * extent.next_multiple_of(instruction) {
        return Err(LowerError::knob(name, format!("{block} is far more than {extent}")));
    }
    Ok(())
}

/// What a config asks for, or the first knob that is malformed, does not fit the workload, or breaks a limit of the target.
pub fn tiling(workload: &Workload, target: &GpuTarget, by: ThreadGroup, config: &Config) -> Result<Tiling, LowerError> {
    if !is_for(workload, target, by) {
        return Err(LowerError::unfit(&config.sketch, workload));
    }
    let knobs = Knobs::read(workload, by, config)?;
    knobs.check(workload, by)?;
    let tiling = build(workload, target, by, &knobs);
    tiling.check(target)?;

    let fail = |name: &str, reason: &str| Err(LowerError::knob(name, reason));
    if !tiling.all_chunks().is_multiple_of(tiling.split) {
        return fail("split", "does not divide the chunks");
    }
    if tiling.ahead() > tiling.chunks() {
        return fail("stages", "is more than chunks need");
    }
    let whole = knobs.producer && tiling.threads() > by.threads() && tiling.split == 1;
    if tiling.persistent.is_some_and(|blocks| !whole || tiling.all_tiles() <= blocks) {
        return fail("grid", "has no producer with two warp groups, parts, or few tiles");
    }
    Ok(tiling)
}

fn build(workload: &Workload, target: &GpuTarget, by: ThreadGroup, knobs: &Knobs) -> Tiling {
    let Knobs { rows: [rows, team_rows], columns: [columns, team_columns], chunk, .. } = *knobs;
    let roles = AxisRoles::of_matrix(workload);
    let (row, column) = (roles.spatial[0], roles.spatial[1]);
    let level = |axis: AxisId, name, extent, step| Level { axis, name, extent, step };
    let instructions = [team_rows / by.rows(), team_columns / 8];
    let run = match by {
        ThreadGroup::Warp => 1,
        ThreadGroup::WarpGroup if columns.is_multiple_of(32) => 4,
        ThreadGroup::WarpGroup => 2,
    };

    let packing = knobs.packed.then(|| {
        let order = if roles.pixels.is_some() { vec![0, 2, 3, 1] } else { vec![2, 1] };
        Packing { order, run }
    });
    let weight = &roles.contraction.weight;
    let weight = packing.as_ref().map_or_else(|| weight.clone(), |packing| packing.packed(weight));
    let stage = |source: Operand, tiled: AxisId| {
        let step = roles.reduce.last().copied().unwrap_or_default();
        let uses =
            |dim: &usize| [tiled, step].iter().any(|&axis| source.index[*dim].coefficient(VarId(axis as u32)) != 0);
        let order: Vec<usize> = (0..source.shape.len()).filter(uses).collect();
        let mut staged = Staged { order, source, extents: Vec::new(), vector: 1, pad: 0 };
        let (bytes, along) = (workload.dtype().bytes(), staged.along());
        let fits = |v: &usize| v.is_power_of_two() && staged.source.shape[along].is_multiple_of(*v);
        staged.vector = (1..=COPY_BYTES / bytes).rev().find(fits).unwrap_or(1);
        // There is no `ldmatrix` that transposes words: four lanes read four rows, eight elements of each.
        let is_transposed = !staged.source.index[along].terms.iter().any(|term| term.0.0 as usize == step);
        let copies = if is_transposed && workload.dtype() == DType::Tf32 { 2 } else { 1 };
        staged.pad = if by == ThreadGroup::Warp { copies * COPY_BYTES / bytes } else { 0 };
        staged
    };
    let staged = [stage(roles.contraction.data.clone(), row), stage(weight, column)];

    let [row_tiles, column_tiles] =
        [(row, rows), (column, columns)].map(|(axis, block)| roles.extent(axis).div_ceil(block));
    let raster = if knobs.raster == 0 { row_tiles } else { knobs.raster };
    let group = (by == ThreadGroup::WarpGroup).then(|| level(row, "row.g", 4, 16));
    let warps = [
        level(row, "row.w", rows / team_rows, team_rows),
        level(column, "column.w", columns / team_columns, team_columns),
    ];
    let lanes = [level(row, "row.t", LANES[0], 1), level(column, "column.t", LANES[1], 2 * run)];
    let reduce = roles.reduce.iter().enumerate();
    let mut tiling = Tiling {
        dtype: workload.dtype(),
        spatial: vec![(row, rows), (column, columns)],
        reduce: reduce.map(|(i, &axis)| (axis, if i + 1 == roles.reduce.len() { chunk } else { 1 })).collect(),
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
        staged,
        packing,
        kernel: Kernel::Matrix { by, instructions, run },
        pipeline: if knobs.producer { Pipeline::Producer } else { Pipeline::Asynchronous },
        slots: knobs.stages,
        split: knobs.split,
        persistent: knobs.is_persistent.then_some(target.multiprocessors),
        roles,
    };
    tiling.measure();
    tiling
}
