//! The sketch for CPUs of two contractions in one program, such as a depthwise convolution and the pointwise one behind it, or two matrix
//! products with a function of elements between them.
//!
//! ```text
//! parallel batch, tiles of rows                       (cache tiles, `order`)
//!   chunks of the channels between                    (`tile.` of the axis that the second sums over)
//!     first:  register tiles: acc = Σ data * weight;  mid = map of acc              between=tile: beside the tile, in cache
//!     second: register tiles: acc (+)= Σ mid * weight;  output = act(acc + bias + residual), or partial sums
//! ```
//!
//! With `between=whole` what is between is written out: each contraction is a stage of its own, in the same tiles of rows. Either one's
//! register tiles, and the copies that they read from, are those of the direct sketch; its own knobs have the names of that sketch, behind
//! `first.` and `second.`.

use std::sync::Arc;

use autotune_ir::spec::AxisId;
use autotune_ir::target::CpuTarget;

use crate::config::{KnobValues, Value};
use crate::direct::laid::{Laid, Layouts, layout};
use crate::direct::reader::Reader;
use crate::direct::roles::Roles;
use crate::direct::{DataMode, Direct, TileLoop, block_size};
use crate::error::LowerError;
use crate::workload::Workload;

mod default;
mod knobs;
mod pair;
mod sketch;

pub(crate) use pair::{Pair, is_pair};
pub(crate) use sketch::FusedSketch;
pub use sketch::SKETCH;

/// Prefixes of the knobs of either contraction.
const PARTS: [&str; 2] = ["first", "second"];

/// The typed form of a config.
pub(crate) struct Fused {
    pub(crate) pair: Arc<Pair>,
    pub(crate) first: Direct,
    pub(crate) second: Direct,
    /// True if what is between is written out whole.
    pub(crate) is_whole: bool,
    /// Channels that a step counts of the axes between, in the first and in the second.
    pub(crate) units: [usize; 2],
}

/// Tiles that both contractions have alike, in elements.
struct Shared<'a> {
    /// By row, in the order of their loops.
    rows: Vec<(&'a [AxisId; 2], usize)>,
    /// Channels between.
    chunk: usize,
}

impl Shared<'_> {
    fn read<'p>(reader: &Reader, pair: &'p Pair) -> Result<Shared<'p>, LowerError> {
        let name = |row: &[AxisId; 2]| pair.second.name(row[1]);
        let names: Vec<&str> = pair.rows.iter().map(name).collect();
        let order = if names.len() > 1 { reader.order("order", &names)? } else { names.clone() };
        let tile = |knob: &str| reader.tile::<1>(&format!("tile.{knob}")).map(|[size]| size);

        let mut rows = Vec::new();
        for word in order {
            let row = pair.rows.iter().find(|row| name(row) == word);
            rows.extend(row.map(|row| Ok((row, tile(word)?))).transpose()?);
        }
        Ok(Shared { rows, chunk: tile(pair.second.name(pair.step))? })
    }
}

impl Fused {
    /// What values of the knobs ask for, or the first that is malformed, does not fit the workload, or breaks a limit of the target.
    pub(crate) fn new(workload: &Workload, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let pair = Pair::of(workload).ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        Self::of_pair(&pair, target, knobs)
    }

    fn of_pair(pair: &Arc<Pair>, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let (reader, block) = (Reader(knobs), block_size(target));
        let is_whole = reader.one_of("between", &["tile", "whole"])? == "whole";
        let shared = Shared::read(&reader, pair)?;
        let Pair { first, second, step, .. } = &**pair;

        let blocks = pair.blockable(block);
        let [input, between, output] = [("in", blocks[0]), ("between", blocks[1]), ("out", blocks[2])]
            .map(|(name, fits)| layout(&reader, &format!("layout.{name}"), fits, block));
        let (input, between, output) = (input?, between?, output?);
        let own = "first.layout.data";
        let data = if reader.has(own) { layout(&reader, own, blocks[0], block)? } else { input };
        let layouts = [Layouts { input, data, output: between }, Layouts { input: between, data: between, output }];

        let rows = |part: usize| shared.rows.iter().map(move |(row, tile)| (row[part], *tile)).collect::<Vec<_>>();
        let laid = [first.laid(layouts[0], block), second.laid(layouts[1], block)];
        let unit = |part: usize, axis| if laid[part].lane_of(axis).is_some() { block } else { 1 };
        let units = [unit(0, first.channel), unit(1, *step)];
        let chunk = format!("tile.{}", second.name(*step));
        if units.iter().any(|unit| !shared.chunk.is_multiple_of(*unit)) {
            return Err(LowerError::knob(&chunk, format!("{} is no multiple of {block}", shared.chunk)));
        }

        let part = |number: usize, tiles: Vec<(AxisId, usize)>| {
            let own = Own { name: PARTS[number], all: knobs };
            let of = Part { roles: [first, second][number], laid: &laid[number], layouts: layouts[number], block };
            of.direct(target, &Reader(&own), tiles, shared.rows.len()).map_err(|error| own.named(error))
        };
        let mut tiles = [rows(0), rows(1)];
        tiles[0].push((first.channel, shared.chunk / units[0]));
        tiles[1].push((*step, shared.chunk / units[1]));
        let [of_first, of_second] = tiles;
        let [first, second] = [part(0, of_first)?, part(1, of_second)?];

        // Packed weights are numbered by register tiles.
        let (channel, register) = (pair.first.channel, first.register_extent(pair.first.channel) * units[0]);
        if shared.chunk < pair.first.extent(channel) && !shared.chunk.is_multiple_of(register) {
            return Err(LowerError::knob(&chunk, format!("{} is no multiple of {register}", shared.chunk)));
        }
        let fused = Self { pair: Arc::clone(pair), first, second, is_whole, units };
        fused.check_memory(target)?;
        Ok(fused)
    }

    /// What is kept beside a tile must stay in the second-level cache.
    fn check_memory(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let bytes = self.second.tile_shape().into_iter().fold(4usize, usize::saturating_mul);
        if !self.is_whole && bytes > target.l2_bytes {
            let reason = format!("{bytes} bytes between the contractions exceed {}", target.l2_bytes);
            return Err(LowerError::knob("between", reason));
        }
        Ok(())
    }

    /// The loops around both contractions, outermost first.
    pub(crate) fn shared_loops(&self) -> Vec<TileLoop> {
        let batch = self.first.batch.iter().map(|&axis| TileLoop { axis, tile: 1 });
        batch.chain(self.first.cache[..self.first.parallel].iter().copied()).collect()
    }
}

/// The values of the knobs of one contraction, by their names in the direct sketch.
struct Own<'a> {
    name: &'static str,
    all: &'a dyn KnobValues,
}

impl Own<'_> {
    /// An error with the name that a knob has in this sketch.
    fn named(&self, error: LowerError) -> LowerError {
        match error {
            LowerError::Knob { name, reason } => LowerError::Knob { name: format!("{}.{name}", self.name), reason },
            other => other,
        }
    }
}

impl KnobValues for Own<'_> {
    fn sketch(&self) -> &str {
        self.all.sketch()
    }

    fn value(&self, knob: &str) -> Option<&Value> {
        self.all.value(&format!("{}.{knob}", self.name))
    }
}

/// One of the contractions, laid out.
struct Part<'a> {
    roles: &'a Roles,
    laid: &'a Laid,
    layouts: Layouts,
    block: usize,
}

impl Part<'_> {
    /// As the direct sketch has it, in cache tiles that are known but for that of its own reduction, the first `parallel` of which are
    /// parallel.
    fn direct(
        &self,
        target: &CpuTarget,
        reader: &Reader,
        mut cache: Vec<(AxisId, usize)>,
        parallel: usize,
    ) -> Result<Direct, LowerError> {
        let Self { roles, laid, layouts, block } = *self;
        let unit = |axis| if laid.lane_of(axis).is_some() { block } else { 1 };
        let tile = |axis: AxisId| -> Result<usize, LowerError> {
            let knob = format!("tile.{}", roles.name(axis));
            let [size] = reader.tile::<1>(&knob)?;
            let fits = size.is_multiple_of(unit(axis));
            if fits {
                Ok(size / unit(axis))
            } else {
                Err(LowerError::knob(&knob, format!("{size} is no multiple of {block}")))
            }
        };
        let several = |axis: &AxisId| roles.extent(*axis) > 1;
        let own_step = roles.step.filter(several).filter(|step| cache.iter().all(|known| known.0 != *step));
        cache.extend(own_step.map(|step| Ok((step, tile(step)?))).transpose()?);

        let axes = &laid.contraction.axes;
        let tile_loop = |(axis, tile): (AxisId, usize)| TileLoop { axis, tile: tile.min(axes[axis].extent) };
        let inner = reader.order("order.inner", &laid.names.spatial)?;
        let inner = inner.into_iter().filter_map(|name| laid.contraction.axis(name));
        let inner = inner.map(|axis| Ok(tile_loop((axis, tile(axis)?)))).collect::<Result<_, LowerError>>()?;
        let vector = roles.vector_of(reader.choice("vector")?)?;
        let direct = Direct {
            contraction: Arc::clone(&laid.contraction),
            input: Arc::clone(&laid.input),
            in_layout: layouts.input,
            data: Arc::clone(&laid.data),
            output: Arc::clone(&laid.output),
            out_layout: layouts.output,
            data_mode: if reader.has("data") { reader.data_mode()? } else { DataMode::InPlace },
            packed_weights: reader.one_of("weights", &["packed", "inplace"])? == "packed",
            vector: laid.lane_of(vector).unwrap_or(vector),
            batch: roles.batch.clone(),
            cache: cache.into_iter().filter(|loops| several(&loops.0)).map(tile_loop).collect(),
            parallel,
            inner,
            reduce: laid.names.reduce.iter().filter_map(|name| laid.contraction.axis(name)).collect(),
            unroll: reader.number("unroll")?,
            prefetch: 0,
        };
        direct.check(&roles.axes, target, layouts.data)?;
        Ok(direct)
    }
}
