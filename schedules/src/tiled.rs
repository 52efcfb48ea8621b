//! The sketches of register tiles on GPUs: each thread multiplies by itself what a block has staged in shared memory. The composition is
//! that of [`crate::gpu`]:
//!
//! ```text
//! block loops over batch axes and block tiles, in `order`
//!   thread loops: one per spatial axis
//!     acc = 0
//!     serial loops over chunks of the reduction, with `stages` in shared memory
//!       data_shared, weight_shared = what the block's tile needs of the chunk    (all threads together, `vector.*` wide)
//!       loops over the chunk, unrolled up to `unroll` steps
//!         data_frag, weight_frag = what the thread's tile needs of the step
//!         acc += data_frag * weight_frag                                         (unrolled)
//!     output = act(acc + bias + residual)
//! ```
//!
//! A tile `[block, strand, register]` of an axis of elements `0..block` gives thread `t` the elements
//! `v*strand + t*register + r` with `r` in `0..register`, for each virtual thread `v` in `0..block/strand`: neighbouring
//! threads stay neighbours in memory however large a thread's tile is.
//!
//! The sketch `implicit_gemm` is the same with the pixels of all images as one axis.
//!
//! The sketch is the one of Volkov and Demmel (SC 2008) and of AutoTVM's GPU templates.

use crate::config::Config;
use crate::contraction::AxisId;
use crate::direct::reader::Reader;
use crate::error::LowerError;
use crate::gpu::{AxisRoles, Kernel, Level, Pipeline, Staged, Tiling, lower, reduce_first};
use crate::knob_space::{Knob, KnobSpace};
use crate::sketch::{self, Plan, Sketch};
use crate::workload::Workload;
use autotune_ir::DType;
use autotune_ir::affine::VarId;
use autotune_ir::target::{GpuTarget, Target};

mod knobs;

pub(crate) use knobs::knobs_of;

/// Name in configs of the sketch that tiles the axes of a workload.
pub const SKETCH: &str = "tiled";
/// That of the sketch for which the pixels of all images are the rows of one matrix product.
pub const IMPLICIT_GEMM: &str = "implicit_gemm";

/// Chunks of a reduction with two stages, whose even and odd ones are separate sets of what [`autotune_ir::verify`] adds up.
const MAX_STAGED_CHUNKS: usize = 1 << 17;

/// What is tiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The axes of the workload.
    Axes,
    /// The pixels of all images as the rows of one matrix product, where the workload is a convolution.
    Pixels,
}

impl Form {
    /// The workload in this form; none if it has none.
    fn roles(self, workload: &Workload) -> Option<AxisRoles> {
        match self {
            Self::Axes => Some(AxisRoles::of_axes(workload)),
            Self::Pixels => AxisRoles::of_pixels(workload),
        }
    }
}

/// A sketch of tiles.
pub(crate) struct TiledSketch(pub(crate) Form);

impl Sketch for TiledSketch {
    fn name(&self) -> &'static str {
        match self.0 {
            Form::Axes => SKETCH,
            Form::Pixels => IMPLICIT_GEMM,
        }
    }

    fn knobs(&self, workload: &Workload, target: &Target) -> Option<Vec<Knob>> {
        let target = target.gpu()?;
        Some(knobs_of(&self.0.roles(workload)?, target))
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
}

/// What a config asks for, or the first knob that is malformed, does not fit the workload, or breaks a limit of the target.
pub fn tiling(workload: &Workload, target: &GpuTarget, form: Form, config: &Config) -> Result<Tiling, LowerError> {
    let roles = form.roles(workload).filter(|_| workload.dtype() != DType::Tf32);
    let roles = roles.ok_or_else(|| LowerError::unfit(&config.sketch, workload))?;
    tiling_of(roles, workload.dtype(), target, config)
}

/// The same for any contraction, of operands of a type.
pub(crate) fn tiling_of(
    roles: AxisRoles,
    dtype: DType,
    target: &GpuTarget,
    config: &Config,
) -> Result<Tiling, LowerError> {
    let reader = Reader(config);
    let (mut spatial, mut threads, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    for &axis in &roles.spatial {
        let knob = format!("tile.{}", roles.name(axis));
        let [block, strand, register] = reader.tile::<3>(&knob)?;
        if !block.is_multiple_of(strand) || !strand.is_multiple_of(register) {
            return Err(LowerError::knob(&knob, "a level does not divide the one before it"));
        }
        if block >= 2 * roles.extent(axis) {
            return Err(LowerError::knob(&knob, format!("a block of {block} is mostly beyond the axis")));
        }
        spatial.push((axis, block));
        threads.push(Level { axis, name: ".t", extent: strand / register, step: register });
        sums.push(Level { axis, name: ".v", extent: block / strand, step: strand });
        sums.push(Level { axis, name: ".r", extent: register, step: 1 });
    }

    let mut reduce = Vec::new();
    for &axis in roles.reduce.iter().filter(|&&axis| roles.extent(axis) > 1) {
        let (knob, whole) = (format!("tile.{}", roles.name(axis)), roles.extent(axis));
        let [chunk] = reader.tile::<1>(&knob)?;
        if chunk > whole || (Some(&axis) != roles.reduce.last() && !whole.is_multiple_of(chunk)) {
            return Err(LowerError::knob(&knob, format!("{chunk} does not divide {whole}")));
        }
        reduce.push((axis, chunk));
    }

    let names: Vec<&str> = roles.spatial.iter().map(|&axis| roles.name(axis)).collect();
    let order = reader.order("order", &names)?;
    let tiles = order.into_iter().filter_map(|name| spatial.iter().find(|tile| roles.name(tile.0) == name));
    let blocks = tiles.map(|&(axis, block)| {
        let extent = roles.extent(axis).div_ceil(block);
        Level { axis, name: ".b", extent, step: block }
    });
    let blocks = blocks.collect();

    let misfit = |word: &str| LowerError::knob("weights", format!("'{word}' does not fit the workload"));
    let packing = match reader.choice("weights")? {
        word @ "packed" => Some(roles.packing().ok_or_else(|| misfit(word))?),
        "inplace" => None,
        word => return Err(misfit(word)),
    };
    let pad = pad(&reader)?;
    let weight = &roles.contraction.weight;
    let sources = [
        roles.contraction.data.clone(),
        packing.as_ref().map_or_else(|| weight.clone(), |packing| packing.packed(weight)),
    ];
    let vectors = [reader.number("vector.data")?, reader.number("vector.weight")?];
    let [data, weight] = sources.map(|source| {
        let order = reduce_first(&roles.contraction, &source);
        Staged { source, order, extents: Vec::new(), vector: 1, pad }
    });

    let slots = reader.number("stages")?;
    let mut tiling = Tiling {
        dtype,
        spatial,
        reduce,
        blocks,
        threads,
        sums,
        staged: [Staged { vector: vectors[0], ..data }, Staged { vector: vectors[1], ..weight }],
        packing,
        kernel: Kernel::Registers { unroll: reader.number("unroll")? },
        pipeline: if slots == 1 { Pipeline::Serial } else { Pipeline::Fetched },
        slots,
        split: reader.number("split")?,
        persistent: None,
        roles,
    };
    tiling.measure();
    check(&tiling, target)?;
    tiling.check(target)?;
    Ok(tiling)
}

fn pad(reader: &Reader) -> Result<usize, LowerError> {
    let word = reader.choice("pad")?;
    let pad = word.parse().ok().filter(|&pad| pad <= 32);
    pad.ok_or_else(|| LowerError::knob("pad", format!("'{word}' is not a number from 0 to 32")))
}

/// Rules between the knobs.
fn check(tiling: &Tiling, target: &GpuTarget) -> Result<(), LowerError> {
    let Tiling { roles, slots, split, .. } = tiling;
    let threads = tiling.threads();
    let possible = tiling
        .spatial
        .iter()
        .fold(1usize, |product, &(axis, _)| product.saturating_mul(roles.extent(axis).next_power_of_two()));
    if !threads.is_multiple_of(target.warp_threads) && possible >= target.warp_threads {
        return Err(LowerError::knob("tile", format!("{threads} threads are not whole warps")));
    }
    if (split - 1) * tiling.chunks() >= tiling.all_chunks() {
        return Err(LowerError::knob("split", "a block without a chunk"));
    }
    let has_two = *slots == 2 && tiling.chunks() > 1 && tiling.all_chunks() <= MAX_STAGED_CHUNKS;
    if *slots != 1 && !has_two {
        return Err(LowerError::knob("stages", "is not 1, or 2 with two chunks at least and not too many"));
    }
    if roles.pixels.as_ref().is_some_and(|pixels| tiling.staged[0].vector > pixels.vector) {
        return Err(LowerError::knob("vector.data", "neighbouring pixels do not lie together"));
    }
    for (staged, knob) in tiling.staged.iter().zip(["vector.data", "vector.weight"]) {
        check_vector(tiling, staged, knob)?;
    }
    Ok(())
}

/// Vectors that are aligned and lie within the tensor or outside of it as a whole.
fn check_vector(tiling: &Tiling, staged: &Staged, knob: &str) -> Result<(), LowerError> {
    let vector = staged.vector;
    if ![1, 2, 4].contains(&vector) {
        return Err(LowerError::knob(knob, "is not 1, 2 or 4"));
    }
    let (Some(&row), Some(index), Some(&extent)) =
        (staged.source.shape.last(), staged.source.index.last(), staged.extents.last())
    else {
        return Ok(());
    };
    // Elements between the chunks that follow each other along an axis.
    let step = |axis: AxisId, c: i64| {
        let (chunk, roles) = (tiling.tile(axis), &tiling.roles);
        let is_whole = chunk >= roles.extent(axis) && !roles.batch.contains(&axis);
        if is_whole { 0 } else { chunk * c.unsigned_abs() as usize }
    };
    let steps = index.terms.iter().all(|&(VarId(axis), c)| step(axis as usize, c).is_multiple_of(vector));
    let aligned = [row, extent, index.constant.unsigned_abs() as usize].iter().all(|n| n.is_multiple_of(vector));
    if vector > 1 && !(aligned && steps) {
        return Err(LowerError::knob(knob, format!("rows do not begin at multiples of {vector}")));
    }
    Ok(())
}
