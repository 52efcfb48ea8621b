//! Sketch of two fused contractions, such as a depthwise convolution and the pointwise convolution
//! after it, or two matrix products with a map between them. On GPUs (`gpu.rs`) it has other knobs,
//! and a softmax may be between the contractions. On CPUs:
//!
//! ```text
//! parallel batch, tiles of rows         (cache tiles, `order`)
//!   chunks of intermediate channels     (`tile.` of the second's reduction axis)
//!     first:  register tiles: acc = Σ data * weight;  mid = map of acc
//!     second: register tiles: acc (+)= Σ mid * weight;
//!             output = act(acc + bias + residual), or partial sums
//! ```
//!
//! With `between=tile` the intermediate `mid` of a tile stays in cache. With `between=whole` it is
//! a whole tensor: each contraction is a stage of its own, in the same tiles of rows. Register
//! tiles and packed copies of both contractions are those of the direct sketch; the contractions'
//! own knobs have that sketch's names, prefixed by `first.` and `second.`.

use std::sync::Arc;

use autotune_ir::program::Layout;
use autotune_ir::spec::AxisId;
use autotune_ir::target::CpuTarget;
use autotune_workloads::Workload;

use crate::config::KnobValues;
use crate::direct::layouts::{DataLayouts, layout};
use crate::direct::reader::KnobReader;
use crate::direct::{Direct, TileLoop, block_size};
use crate::error::LowerError;

mod default;
mod gpu;
mod knobs;
mod lower;
mod mma_sketch;
mod pair;
mod part;
mod sketch;

pub(crate) use mma_sketch::FusedMmaSketch;
pub(crate) use pair::Pair;
use part::FusedPart;
pub(crate) use sketch::FusedSketch;

/// Name of the sketch in configs.
pub const SKETCH: &str = "fused";

/// f32 elements of a cache line.
const LINE: usize = 16;

/// A config in typed form.
pub(crate) struct Fused {
    pub(crate) pair: Arc<Pair>,
    pub(crate) first: Direct,
    pub(crate) second: Direct,
    /// True if the intermediate tensor is stored whole between two stages.
    pub(crate) is_whole: bool,
    /// Channels per step of the intermediate's axis, in the first and in the second contraction: a
    /// block in blocked layouts, else 1.
    pub(crate) units: [usize; 2],
}

impl Fused {
    /// Reads the values of the knobs, or fails with the first that is malformed, does not fit the
    /// workload, or breaks a limit of the target.
    pub(crate) fn new(workload: &Workload, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let pair = Pair::of(workload).ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        Self::of_pair(&pair, target, knobs)
    }

    fn of_pair(pair: &Arc<Pair>, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let (reader, block) = (KnobReader(knobs), block_size(target));
        let is_whole = reader.one_of("between", &["tile", "whole"])? == "whole";
        let tiles = FusedTiles::read(&reader, pair)?;
        let layouts = layouts(&reader, pair, block)?;
        let [of_first, of_second] = [0, 1].map(|number| FusedPart::new(pair, number, layouts[number], block));

        let units = [of_first.unit(pair.first.channel), of_second.unit(pair.step)];
        let chunk = format!("tile.{}", pair.second.name(pair.step));
        let is_multiple = |of: usize| match tiles.chunk.is_multiple_of(of) {
            true => Ok(()),
            false => Err(LowerError::knob(&chunk, format!("{} is not a multiple of {of}", tiles.chunk))),
        };
        // Blocked axes count blocks: a chunk must be whole blocks in both contractions.
        units.into_iter().try_for_each(is_multiple)?;

        let part = |of: &FusedPart, channels: AxisId, unit: usize| {
            let rows = tiles.rows.iter().map(|(row, tile)| (row[of.number], *tile));
            of.direct(target, knobs, rows.chain([(channels, tiles.chunk / unit)]).collect(), tiles.rows.len())
        };
        let first = part(&of_first, pair.first.channel, units[0])?;
        let second = part(&of_second, pair.step, units[1])?;

        // Packed weights are stored by register tile, so that a chunk must start at one.
        if tiles.chunk < pair.first.extent(pair.first.channel) {
            is_multiple(first.register_extent(pair.first.channel) * units[0])?;
        }
        let fused = Self { pair: Arc::clone(pair), first, second, is_whole, units };
        fused.check_memory(target)?;
        Ok(fused)
    }

    /// Returns the shape of a tile's intermediate buffer. Rows are padded to an odd number of cache
    /// lines, and the middle dimensions of blocked layouts to odd extents, so that rows and
    /// channels do not map to the same cache sets.
    pub(crate) fn kept_shape(&self) -> Vec<usize> {
        let mut shape = self.second.tile_shape();
        let is_blocked = self.second.in_layout != Layout::Plain;
        if let [_, middle @ .., last] = &mut shape[..] {
            match is_blocked {
                true => middle.iter_mut().skip(1).for_each(|extent| *extent |= 1),
                false if *last > LINE => *last = (last.div_ceil(LINE) | 1) * LINE,
                false => {}
            }
        }
        shape
    }

    /// Checks that a tile's intermediate values fit into the second-level cache.
    fn check_memory(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let bytes = self.kept_shape().into_iter().fold(self.pair.dtype.bytes(), usize::saturating_mul);
        if !self.is_whole && bytes > target.l2_bytes {
            let reason = format!("{bytes} bytes of intermediate values exceed the limit of {}", target.l2_bytes);
            return Err(LowerError::knob("between", reason));
        }
        Ok(())
    }

    /// Returns the loops around both contractions, by axes of the first, outermost first.
    pub(crate) fn shared_loops(&self) -> Vec<TileLoop> {
        let batch = self.first.batch.iter().map(|&axis| TileLoop { axis, tile: 1 });
        batch.chain(self.first.cache[..self.first.parallel].iter().copied()).collect()
    }
}

/// Tile sizes in elements, common to both contractions.
struct FusedTiles<'a> {
    /// Rows in the order of their loops, as axes of both contractions, with their tile sizes.
    rows: Vec<(&'a [AxisId; 2], usize)>,
    /// Intermediate channels per chunk.
    chunk: usize,
}

impl<'a> FusedTiles<'a> {
    fn read(reader: &KnobReader, pair: &'a Pair) -> Result<Self, LowerError> {
        let name = |row: &[AxisId; 2]| pair.second.name(row[1]);
        let names: Vec<&str> = pair.rows.iter().map(name).collect();
        let order = if names.len() > 1 { reader.order("order", &names)? } else { names.clone() };
        let tile = |axis: &str| reader.tile::<1>(&format!("tile.{axis}")).map(|[size]| size);

        let mut rows = Vec::new();
        for word in order {
            let row = pair.rows.iter().find(|row| name(row) == word);
            rows.extend(row.map(|row| Ok((row, tile(word)?))).transpose()?);
        }
        Ok(Self { rows, chunk: tile(pair.second.name(pair.step))? })
    }
}

/// Reads the layouts of both contractions; they share the layout of the intermediate tensor.
fn layouts(reader: &KnobReader, pair: &Pair, block: usize) -> Result<[DataLayouts; 2], LowerError> {
    let [in_blocks, between_blocks, out_blocks] = pair.blockable(block);
    let read = |name: &str, blocks| layout(reader, name, blocks, block);
    let input = read("layout.in", in_blocks)?;
    let (between, output) = (read("layout.between", between_blocks)?, read("layout.out", out_blocks)?);

    let copied = "first.layout.data";
    let data = if reader.has(copied) { read(copied, in_blocks)? } else { input };
    Ok([DataLayouts { input, data, output: between }, DataLayouts { input: between, data: between, output }])
}
