//! The tiled sketch on a GPU: register tiles of threads inside a tile of a block, both operands staged in shared memory.
//!
//! ```text
//! block loops over batch axes and block tiles, in `order`
//!   thread loops: one per spatial axis
//!     acc = 0
//!     serial loops over chunks of the reduction
//!       data_shared, weight_shared = what the block's tile needs of the chunk    (all threads together, `vector.*` wide)
//!       barrier
//!       loops over the chunk, unrolled up to `unroll` steps
//!         data_frag, weight_frag = what the thread's tile needs of the step
//!         acc += data_frag * weight_frag                                         (unrolled)
//!       barrier
//!     output = act(acc + bias + residual)                                        (guarded where the tile sticks out)
//! ```
//!
//! A tile `[block, strand, register]` of an axis of elements `0..block` gives thread `t` the elements
//! `v*strand + t*register + r` with `r` in `0..register`, for each virtual thread `v` in `0..block/strand`: neighbouring
//! threads stay neighbours in memory however large a thread's tile is.
//!
//! With `stages=2` shared memory holds two chunks; the next one is loaded into registers while one is multiplied, and stored
//! behind that, so that one barrier a chunk is enough:
//!
//! ```text
//! for q in 0..Q { copy q; barrier; multiply q; barrier }
//!   →  copy 0 to slot 0; barrier
//!      for q in 0..Q-1 { load q+1; multiply slot q%2; store to slot (q+1)%2; barrier }
//!      multiply slot (Q-1)%2
//! ```
//!
//! With `split=n` each of `n` blocks takes a part of the innermost chunked axis, for outputs too small to fill a device; partial sums go
//! through global memory, and a stage of its own adds them up, always in the same order:
//!
//! ```text
//! for q in 0..Q { acc += .. }; output = act(acc + ..)
//!   →  block s in 0..n { for q in 0..Q/n { acc += .. }; partial[s] = acc }
//!      sum = 0; for s in 0..n { sum += partial[s] }; output = act(sum + ..)
//! ```
//!
//! The sketch `implicit_gemm` is the same for the contraction over [`pixels`].
//!
//! The sketch is the one of Volkov and Demmel (SC 2008) and of AutoTVM's GPU templates.

use crate::config::Config;
use crate::contraction::{AxisId, Contraction, Operand};
use crate::lower::LowerError;
use crate::workload::{Operator, Workload};
use autotune_ir::DType;
use autotune_ir::target::GpuTarget;

mod estimate;
mod knobs;
pub(crate) mod lower;
pub mod pixels;
mod rules;
mod sketch;

pub(crate) use knobs::knobs_of;
use pixels::Pixels;
pub(crate) use rules::check_parts;
pub(crate) use sketch::TiledSketch;
pub use sketch::{IMPLICIT_GEMM, SKETCH};

use crate::direct::reader::Reader;

/// Rounds of a copy that are written out with one stage; more are a loop.
const MAX_UNROLLED_ROUNDS: usize = 8;

/// The tile of one spatial axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpatialTile {
    /// The axis.
    pub axis: AxisId,
    /// Elements of a block.
    pub block: usize,
    /// Elements of one virtual thread of all threads; divides `block`.
    pub strand: usize,
    /// Neighbouring elements of one thread; divides `strand`.
    pub register: usize,
}

impl SpatialTile {
    /// Virtual threads of a thread.
    pub fn strands(&self) -> usize {
        self.block / self.strand
    }

    /// Threads along the axis.
    pub fn threads(&self) -> usize {
        self.strand / self.register
    }

    /// Elements of one thread.
    pub fn per_thread(&self) -> usize {
        self.strands() * self.register
    }
}

/// One operand on its way to the threads.
#[derive(Clone, Debug)]
pub struct Staged {
    /// As it lies in global memory when the compute stage reads it.
    pub source: Operand,
    /// Dimensions of `source` in the order in which they lie in shared memory: those of the reduction first, so that what one
    /// step needs lies together.
    pub order: Vec<usize>,
    /// Elements that a block needs of each dimension of `source` for one chunk.
    pub extents: Vec<usize>,
    /// Elements along the last dimension that one thread copies at once.
    pub vector: usize,
}

impl Staged {
    /// Shape in shared memory; `pad` elements more a row.
    pub fn shape(&self, pad: usize) -> Vec<usize> {
        let mut shape: Vec<usize> = self.order.iter().map(|&dim| self.extents[dim]).collect();
        if let Some(row) = shape.last_mut() {
            *row += pad;
        }
        shape
    }

    /// Elements of a chunk.
    pub fn elements(&self) -> usize {
        self.extents.iter().product()
    }

    /// Rounds in which `threads` threads copy a chunk.
    pub fn rounds(&self, threads: usize) -> usize {
        (self.elements() / self.vector).div_ceil(threads)
    }
}

/// The typed form of a config.
#[derive(Clone, Debug)]
pub struct Tiled {
    /// The contraction.
    pub contraction: Contraction,
    /// Type of the operands.
    pub dtype: DType,
    /// What its axis of pixels stands for, if it has one.
    pub pixels: Option<Pixels>,
    /// Axes of which a block has one element.
    pub batch: Vec<AxisId>,
    /// Tiles of the other spatial axes; threads are numbered with the last one fastest.
    pub spatial: Vec<SpatialTile>,
    /// Axes of `spatial` in the order of the block loops, outermost first.
    pub order: Vec<AxisId>,
    /// Reduction axes with the elements of a chunk, outermost first.
    pub reduce: Vec<(AxisId, usize)>,
    /// The data operand and the weight operand.
    pub staged: [Staged; 2],
    /// True if weights are copied ahead of time into the order of shared memory.
    pub packed_weights: bool,
    /// Elements more in each row of shared memory, against bank conflicts.
    pub pad: usize,
    /// Chunks in shared memory, 1 or 2.
    pub stages: usize,
    /// Most reduction steps in one straight-line body.
    pub unroll: usize,
    /// Blocks that share the reduction of one tile.
    pub split: usize,
}

/// The axes of a contraction as the knobs name them.
pub(crate) struct Roles {
    /// Spatial axes that are tiled, those along which the output is contiguous last.
    spatial: Vec<&'static str>,
    /// Spatial axes that are not: one block per element.
    batch: Vec<&'static str>,
    /// The reduction axes, the one of many elements last.
    reduce: &'static [&'static str],
}

impl Roles {
    fn of(workload: &Workload, contraction: &Contraction) -> Self {
        let (spatial, batch, reduce): (&[_], &[_], &'static [_]) = match workload.op {
            Operator::Conv2d(_) if contraction.axis(pixels::AXIS).is_some() => {
                (&["o", pixels::AXIS], &["g"], &["kh", "kw", "c"])
            }
            Operator::Conv2d(c) if c.groups > 1 && c.o == c.groups => {
                (&["n", "g", "oh", "ow"], &[], &["kh", "kw", "c"])
            }
            Operator::Conv2d(_) => (&["n", "o", "oh", "ow"], &["g"], &["kh", "kw", "c"]),
            Operator::Matmul(_) => (&["m", "n"], &["b"], &["k"]),
        };
        Self::new(contraction, spatial, batch, reduce)
    }

    /// Without the spatial axes that the contraction does not have or that have one element.
    pub(crate) fn new(
        contraction: &Contraction,
        spatial: &[&'static str],
        batch: &[&'static str],
        reduce: &'static [&'static str],
    ) -> Self {
        let present = |names: &[&'static str]| -> Vec<&'static str> {
            names.iter().copied().filter(|n| extent(contraction, n) > 1).collect()
        };
        Self { spatial: present(spatial), batch: present(batch), reduce }
    }

    /// The reduction axis of many elements.
    fn long(&self) -> &'static str {
        self.reduce.last().copied().unwrap_or_default()
    }
}

/// What is tiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The axes of the workload.
    Axes,
    /// The pixels of all images as the rows of one matrix product, where the workload is a convolution.
    Pixels,
}

impl Form {
    /// The contraction in this form; none if the workload has none.
    fn of(self, workload: &Workload) -> Option<(Contraction, Option<Pixels>)> {
        match self {
            Self::Axes => Some((Contraction::of(workload), None)),
            Self::Pixels => pixels::fuse(workload).map(|(contraction, pixels)| (contraction, Some(pixels))),
        }
    }
}

fn extent(contraction: &Contraction, name: &str) -> usize {
    contraction.axis(name).map_or(1, |a| contraction.axes[a].extent)
}

/// True if the element read along dimension `dim` depends on reduction axes only.
fn reduces(contraction: &Contraction, operand: &Operand, dim: usize) -> bool {
    let terms = &operand.index[dim].terms;
    !terms.is_empty() && terms.iter().all(|&(axis, _)| contraction.axes[axis.0 as usize].reduce)
}

/// Dimensions of the operand, those of the reduction first.
fn reduce_first(contraction: &Contraction, operand: &Operand) -> Vec<usize> {
    let mut order: Vec<usize> = (0..operand.shape.len()).collect();
    order.sort_by_key(|&dim| !reduces(contraction, operand, dim));
    order
}

/// The operand with its dimensions in another order.
fn permuted(operand: &Operand, order: &[usize]) -> Operand {
    Operand {
        shape: order.iter().map(|&dim| operand.shape[dim]).collect(),
        index: order.iter().map(|&dim| operand.index[dim].clone()).collect(),
    }
}

/// True if packing the weights ahead of time changes where they lie.
fn can_pack(contraction: &Contraction) -> bool {
    let order = reduce_first(contraction, &contraction.weight);
    let moved = order.iter().filter(|&&dim| contraction.weight.shape[dim] > 1);
    contraction.weight_is_constant && !moved.is_sorted()
}

impl Tiled {
    /// The typed form of `config`, or the first knob that is malformed, does not fit the workload, or breaks a limit of the
    /// target.
    pub fn new(workload: &Workload, target: &GpuTarget, form: Form, config: &Config) -> Result<Self, LowerError> {
        let form = form.of(workload).filter(|_| workload.dtype != DType::Tf32);
        let (contraction, pixels) = form.ok_or_else(|| LowerError::unfit(&config.sketch, workload))?;
        let roles = Roles::of(workload, &contraction);
        Self::of(contraction, workload.dtype, pixels, &roles, target, config)
    }

    /// The same for a contraction of operands of a type.
    pub(crate) fn of(
        contraction: Contraction,
        dtype: DType,
        pixels: Option<Pixels>,
        roles: &Roles,
        target: &GpuTarget,
        config: &Config,
    ) -> Result<Self, LowerError> {
        let reader = Reader(config);
        let axis_of = |name: &&str| contraction.axis(name);
        let mut spatial = Vec::new();
        for &name in &roles.spatial {
            let [block, strand, register] = reader.tile::<3>(&format!("tile.{name}"))?;
            if !block.is_multiple_of(strand) || !strand.is_multiple_of(register) {
                return Err(LowerError::knob(&format!("tile.{name}"), "a level does not divide the one before it"));
            }
            spatial.extend(axis_of(&name).map(|axis| SpatialTile { axis, block, strand, register }));
        }
        let mut reduce = Vec::new();
        for name in roles.reduce.iter().filter(|n| extent(&contraction, n) > 1) {
            let [chunk] = reader.tile::<1>(&format!("tile.{name}"))?;
            let whole = extent(&contraction, name);
            if chunk > whole || (*name != roles.long() && !whole.is_multiple_of(chunk)) {
                return Err(LowerError::knob(&format!("tile.{name}"), format!("{chunk} does not divide {whole}")));
            }
            reduce.extend(axis_of(name).map(|axis| (axis, chunk)));
        }
        let packed_weights = match reader.choice("weights")? {
            "packed" if can_pack(&contraction) => true,
            "inplace" => false,
            other => return Err(LowerError::knob("weights", format!("'{other}' does not fit the workload"))),
        };
        let order = reader.order("order", &roles.spatial)?.iter().filter_map(axis_of).collect();
        let mut tiled = Self {
            batch: roles.batch.iter().filter_map(axis_of).collect(),
            spatial,
            order,
            reduce,
            staged: [
                staged(&contraction, contraction.data.clone(), reader.number("vector.data")?),
                staged(&contraction, weight_source(&contraction, packed_weights), reader.number("vector.weight")?),
            ],
            packed_weights,
            pad: pad(&reader)?,
            stages: reader.number("stages")?,
            unroll: reader.number("unroll")?,
            split: reader.number("split")?,
            contraction,
            dtype,
            pixels,
        };
        tiled.measure_chunks();
        tiled.check(target)?;
        Ok(tiled)
    }

    /// The contraction by the workload's own axes.
    pub(crate) fn own(&self) -> &Contraction {
        self.pixels.as_ref().map_or(&self.contraction, |pixels| &pixels.conv)
    }

    fn measure_chunks(&mut self) {
        for which in 0..2 {
            let extents = self.staged[which].source.index.iter().map(|index| {
                let (low, high) = index.range(|v| self.chunk_extent(v.0 as usize));
                (high - low + 1) as usize
            });
            self.staged[which].extents = extents.collect();
        }
    }

    /// Elements of an axis that a block works on at a time.
    fn chunk_extent(&self, axis: AxisId) -> usize {
        let spatial = self.spatial.iter().find(|t| t.axis == axis).map(|t| t.block);
        spatial.or(self.reduce.iter().find(|r| r.0 == axis).map(|r| r.1)).unwrap_or(1)
    }

    /// Threads of a block.
    pub fn threads(&self) -> usize {
        self.spatial.iter().map(SpatialTile::threads).product()
    }

    /// Blocks of the grid of the compute stage.
    pub fn blocks(&self) -> usize {
        let axes = &self.contraction.axes;
        let tiles: usize = self.spatial.iter().map(|t| axes[t.axis].extent.div_ceil(t.block)).product();
        tiles * self.split * self.batch.iter().map(|&a| axes[a].extent).product::<usize>()
    }

    /// Chunks of the innermost reduction axis.
    fn all_chunks(&self) -> usize {
        self.reduce.last().map_or(1, |&(axis, chunk)| self.contraction.axes[axis].extent.div_ceil(chunk))
    }

    /// Chunks of the innermost reduction axis that one block takes.
    pub fn chunks(&self) -> usize {
        self.all_chunks().div_ceil(self.split)
    }

    /// Shared memory of a block.
    pub fn shared_bytes(&self) -> usize {
        let bytes = |s: &Staged| self.stages * s.shape(self.pad).iter().product::<usize>() * self.dtype.bytes();
        self.staged.iter().map(|s| bytes(s).next_multiple_of(16)).sum()
    }

    /// Tiles of the axes that an operand depends on.
    fn tiles_of(&self, which: usize) -> Vec<SpatialTile> {
        self.spatial.iter().copied().filter(|t| self.staged[which].source.uses(t.axis)).collect()
    }

    /// Registers that a thread needs, about: partial sums, what a step multiplies, what is on its way to shared memory, and
    /// addresses and conditions, which compilers keep for every round of a copy that is written out. The numbers are those
    /// above which few of some hundred kernels spilled (NVRTC 13.0).
    pub fn registers(&self) -> usize {
        const OVERHEAD: usize = 24;
        let product = |tiles: &[SpatialTile]| tiles.iter().map(SpatialTile::per_thread).product::<usize>();
        let fragments: usize = (0..2).map(|which| product(&self.tiles_of(which))).sum();
        let copies = self.staged.iter().map(|s| match (self.stages, s.rounds(self.threads())) {
            (2, rounds) => rounds * (s.vector + 5),
            (_, rounds) if rounds <= MAX_UNROLLED_ROUNDS => rounds * 4,
            _ => 4,
        });
        product(&self.spatial) + fragments + copies.sum::<usize>() + OVERHEAD
    }
}

fn pad(reader: &Reader) -> Result<usize, LowerError> {
    let word = reader.choice("pad")?;
    let pad = word.parse().ok().filter(|&pad| pad <= 32);
    pad.ok_or_else(|| LowerError::knob("pad", format!("'{word}' is not a number from 0 to 32")))
}

fn weight_source(contraction: &Contraction, packed: bool) -> Operand {
    let weight = &contraction.weight;
    if packed { permuted(weight, &reduce_first(contraction, weight)) } else { weight.clone() }
}

fn staged(contraction: &Contraction, source: Operand, vector: usize) -> Staged {
    Staged { order: reduce_first(contraction, &source), source, extents: Vec::new(), vector }
}
