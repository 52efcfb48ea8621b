//! CPU sketch of maps, of reductions such as pooling, of chains of both such as a softmax, and of
//! products of a matrix with a few vectors.
//!
//! The equations share their leading axes, called rows. Loops over rows are tiled; for each tile
//! the equations (passes) run one after the other. Intermediate results of a tile are stored in
//! thread-private memory; a map whose only consumer is the next reduction is fused with it.
//! Accumulators are in registers, or in cache if the reduction runs outside of a long row which is
//! read in order. Long sums are split into partial sums. The innermost loop is a vector, along a
//! row or along an axis of the pass's own. If that axis is reduced, a remainder goes to the first
//! lanes, and lanes are combined at the end.
//!
//! ```text
//! for y { for x.t {
//!   acc[0..16] = neutral;
//!   for ky { for kx { acc[i] = max(acc[i], in[y + ky, 16*x.t + i + kx]) } };
//!   out[y, ..] = acc
//! } }
//!
//! for m {
//!   acc[0..16] = neutral; for n.t { acc[i] += in[m, 16*n.t + i] }; acc[0..r] += rest;
//!   acc[0..8] += acc[8..16]; ..; out[m] = acc[0]
//! }
//!
//! for m {
//!   .. max = max in[m, ..];
//!   for n.t { e[16*n.t + i] = exp(..); sum[i] += e[16*n.t + i] }; ..;
//!   for n.t { out[m, ..] = e[..] / sum }
//! }
//! ```
//!
//! A pass that finds its operands in cache can prefetch the next tile (knob `prefetch`). A result
//! that exceeds the caches can bypass them, or its lines can be prefetched before the stores (knob
//! `result`).
//!
//! If the channels of images are a multiple of a block, a config may choose channel-blocked layouts
//! for input and output; vectors then go along the channels of a block. Window elements outside a
//! tensor are skipped: next to padding, tiles are single positions with shorter loops over the
//! window.

use std::sync::Arc;

use smallvec::SmallVec;

use autotune_ir::Affine;
use autotune_ir::VarId;
use autotune_ir::analyse::pieces;
use autotune_ir::program::{Access, Expr};
use autotune_ir::spec::{Axis, AxisId, Spec};
use autotune_ir::target::CpuTarget;

use crate::config::{KnobValue, KnobValues};
use crate::direct::block_size;
use crate::direct::reader::KnobReader;
use crate::error::LowerError;

mod chain;
mod default;
mod knobs;
mod layouts;
mod lower;
mod memory;
mod rewritten;
mod separable;
mod sketch;
mod storing;
mod tasks;
mod window;

pub(crate) use chain::{Chain, axis_of, contiguous_axis, is_given};
use layouts::ChainLayout;
pub(crate) use memory::LONGEST_SUM;
pub(crate) use separable::SeparableSketch;
pub(crate) use sketch::MapReduceSketch;
pub(crate) use storing::Storing;
pub(crate) use window::{AxisTiles, Taps};
use window::{ChainWindow, whole, windows};

/// Name of the sketch in configs.
pub const SKETCH: &str = "map_reduce";

/// Largest number of innermost loop nests over all tiles. Workloads with wide windows next to
/// padding may have up to twice as many as with tiles of one element.
const MAX_LEAVES: usize = 1 << 10;
/// Largest number of innermost loop nests with tiles of one element.
const MAX_LEAST_LEAVES: usize = 1 << 12;
/// Largest number of unrolled statements over all tiles.
const MAX_CODE: usize = 1 << 13;
/// Vector registers that are kept free of accumulators.
const SPARE_REGISTERS: usize = 4;
/// Vector registers needed to reduce the lanes of several rows together, besides the rows' own and
/// one per halving of a register's lanes.
const FOLDING_REGISTERS: usize = 4;
/// Largest number of accumulators of a tile in cache.
const MOST_IN_CACHE: usize = 1 << 15;
/// Largest number of intermediate values that a tile stores for later passes; a single row may have
/// more.
const MAX_KEPT: usize = 1 << 22;

/// Vector registers of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VectorUnit {
    pub(crate) registers: usize,
    /// Elements (f32) per register.
    pub(crate) lanes: usize,
}

impl VectorUnit {
    fn of(target: &CpuTarget) -> Self {
        Self { registers: target.isa.vector_registers(), lanes: target.lanes() }
    }
}

/// A schedule in typed form: tiles, the order of loops over them, and how results are stored.
#[derive(Clone, Debug)]
pub struct MapReduce {
    pub(crate) chain: Chain,
    /// Layouts of images in channel blocks, if there are any; `chain` is then over the blocked
    /// shapes.
    pub(crate) blocked_layout: Option<ChainLayout>,
    /// Vector axis of each pass.
    pub(crate) vectors: Vec<AxisId>,
    /// Elements of a vector along an axis that is not a row.
    pub(crate) lanes: usize,
    /// Vector registers of the target.
    pub(crate) unit: VectorUnit,
    /// Positions per tile along each row axis.
    pub(crate) tiles: Vec<usize>,
    /// Row axes in the order of their loops, outermost first.
    pub(crate) order: Vec<AxisId>,
    /// Number of outermost loops that are parallel; 0 means that one thread does all the work.
    pub(crate) parallel: usize,
    /// Unroll factor of the loops inside a tile.
    pub(crate) unroll: usize,
    /// True if the next tile's operand is prefetched while this tile is computed.
    pub(crate) prefetch: bool,
    pub(crate) storing: Storing,
    windows: Vec<ChainWindow>,
    /// Maps that run in stages of their own before this one.
    pub(crate) before: Vec<Self>,
}

/// Returns the chain of a spec; `None` if the sketch does not apply, or if padding makes even the
/// shortest schedule too long.
fn chain_for(spec: &Arc<Spec>) -> Option<Chain> {
    let chain = Chain::of(spec)?;
    let windows = windows(&chain)?;
    let least = MapReduce::least(chain, windows, VectorUnit { registers: 0, lanes: 1 });
    least.leaves().is_some_and(|leaves| leaves <= MAX_LEAST_LEAVES).then_some(least.chain)
}

impl MapReduce {
    /// Reads the values of the knobs. Returns `None` if the spec is not a chain, and an error for
    /// the first knob that is malformed, does not fit the chain, or breaks a limit of the target.
    fn new(spec: &Arc<Spec>, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Option<Self>, LowerError> {
        let Some(chain) = Chain::of(spec) else { return Ok(None) };
        let blocked_layout = ChainLayout::read(&chain, block_size(target), &KnobReader(knobs))?;
        let mut vectors = vectors(&chain, blocked_layout.as_ref(), &choice(knobs, "vector")?)?;
        let mut tiles = vec![1; chain.rows];
        for axis in knobs::tiled(&chain) {
            let Axis { name, extent, .. } = chain.row_axes()[axis];
            tiles[axis] = tile(knobs, &format!("tile.{name}"), extent)?;
        }

        let number = |knob: &str, least: usize| -> Result<usize, LowerError> {
            let number = choice(knobs, knob)?.parse().ok().filter(|n| (least..=64).contains(n));
            number.ok_or_else(|| LowerError::knob(knob, format!("must be a number from {least} to 64")))
        };
        let (parallel, unroll) = (number("parallel", 0)?, number("unroll", 1)?);
        // Workloads whose vectors go along rows only lack this knob.
        let width = if knobs.value("width").is_some() { number("width", 1)? } else { 1 };
        let prefetches = knobs::PREFETCH.position(knobs.value("prefetch"));
        let prefetch = prefetches.ok_or_else(|| LowerError::knob("prefetch", "must be 0 or 1"))? == 1;
        let storing = Storing::read(&chain, knobs)?;
        let (lanes, mut order) = (width * target.lanes(), order(&chain, knobs)?);
        // These maps have a fixed schedule, without knobs.
        let before = chain.before().map(|chain| Self::transposing(chain, target)).collect();

        // Blocked layouts add the axis over a block's channels: the last row, its vector axis and
        // innermost loop.
        let mut chain = chain;
        if let Some(blocked_layout) = &blocked_layout {
            chain = blocked_layout.chain(&chain);
            vectors = vec![blocked_layout.lane()];
            order.push(blocked_layout.lane());
            tiles = blocked_layout.tiles(tiles)?;
        }
        let Some(windows) = windows(&chain) else { return Ok(None) };
        let unit = VectorUnit::of(target);
        let plan = Self {
            chain,
            blocked_layout,
            vectors,
            lanes,
            unit,
            tiles,
            order,
            parallel,
            unroll,
            prefetch,
            storing,
            windows,
            before,
        };
        plan.check()?;
        Ok(Some(plan))
    }

    /// Returns a schedule with tiles of one position and rows in their order; vector axes are not
    /// set.
    fn least(chain: Chain, windows: Vec<ChainWindow>, unit: VectorUnit) -> Self {
        Self {
            blocked_layout: None,
            vectors: Vec::new(),
            lanes: unit.lanes,
            unit,
            tiles: vec![1; chain.rows],
            order: (0..chain.rows).collect(),
            parallel: 1,
            unroll: 1,
            prefetch: false,
            storing: Storing::Cached,
            chain,
            windows,
            before: Vec::new(),
        }
    }

    /// Returns the schedule of a map that runs in a stage before: square blocks of `lanes` by
    /// `lanes` elements, which vector shuffles can transpose.
    fn transposing(chain: Chain, target: &CpuTarget) -> Self {
        let map = chain.last();
        let contiguous = |index: Option<&Affine>| index.and_then(axis_of);
        let vector = contiguous(map.output.index.last()).unwrap_or(chain.rows - 1);
        let read = map.loads().into_iter().filter_map(|access| contiguous(access.index.last()));
        let mut tiles = vec![1; chain.rows];
        read.chain([vector]).for_each(|axis| tiles[axis] = target.lanes().min(map.axes[axis].extent));
        let parallel = tasks::parallel_loops(&chain, chain.row_axes().iter().map(|axis| axis.extent), target);
        Self { vectors: vec![vector], tiles, parallel, ..Self::least(chain, Vec::new(), VectorUnit::of(target)) }
    }

    /// Checks the limits of registers, memory and code length.
    fn check(&self) -> Result<(), LowerError> {
        let passes = self.chain.passes().len();
        let vectors = |pass: usize| match self.adds_up_in_cache(pass) {
            true => self.lanes_in_registers() / self.unit.lanes,
            false => self.vectors_of_tile(pass),
        };
        // Accumulators of different passes are never live together.
        let most = (0..passes).map(vectors).max().unwrap_or(1);
        let registers = self.unit.registers;
        if most + SPARE_REGISTERS > registers {
            return Err(LowerError::knob(
                "tile",
                format!("{most} vectors of results do not fit {registers} registers"),
            ));
        }

        let results = self.tiles.iter().product::<usize>();
        if results > MOST_IN_CACHE && (0..passes).any(|pass| self.adds_up_in_cache(pass)) {
            return Err(LowerError::knob("tile", format!("{results} results exceed the limit of {MOST_IN_CACHE}")));
        }
        // A single row may exceed the limit: no smaller tile exists.
        let kept = self.kept_values();
        let most_kept = || MAX_KEPT.max(self.single().kept_values());
        if kept > MAX_KEPT && kept > most_kept() {
            return Err(LowerError::knob(
                "tile",
                format!("{kept} intermediate values exceed the limit of {}", most_kept()),
            ));
        }

        let Some(leaves) = self.leaves() else {
            return Err(LowerError::knob("tile", "too many positions touch padding"));
        };
        let written_out = |pass: usize| {
            let has_loops = self.chain.passes()[pass].axes.len() > self.chain.rows;
            vectors(pass).saturating_mul(if has_loops { self.unroll } else { 1 })
        };
        // Every nest has its own copy of the unrolled code.
        let code = leaves.saturating_mul((0..passes).map(written_out).sum());
        let is_too_long = || self.single().leaves().is_none_or(|least| leaves > 2 * least);
        if (leaves > MAX_LEAVES && is_too_long()) || code > MAX_CODE.max(4 * leaves) {
            return Err(LowerError::knob("tile", format!("too much code: {leaves} loop nests, {code} statements")));
        }
        Ok(())
    }

    /// Returns the schedule with tiles of one position.
    fn single(&self) -> Self {
        Self { tiles: vec![1; self.tiles.len()], ..self.clone() }
    }

    /// Returns the spec of the workload, in its logical shapes.
    pub(crate) fn spec(&self) -> &Arc<Spec> {
        self.blocked_layout.as_ref().map_or(&self.chain.spec, ChainLayout::spec)
    }

    /// Returns the length of a pass's vectors in elements; along a row it is the extent of the
    /// tile.
    pub(crate) fn width(&self, pass: usize) -> usize {
        let axis = self.vectors[pass];
        self.tiles.get(axis).copied().unwrap_or_else(|| self.lanes.min(self.chain.passes()[pass].axes[axis].extent))
    }

    /// Returns the number of vector registers that the accumulators of a tile fill.
    fn vectors_of_tile(&self, pass: usize) -> usize {
        let row_tiles = self.tiles.iter().enumerate();
        let beside: usize = row_tiles.filter(|(axis, _)| *axis != self.vectors[pass]).map(|(_, tile)| tile).product();
        beside * pieces(self.width(pass), self.unit.lanes)
    }

    /// Returns the number of intermediate values that a tile stores for later passes.
    fn kept_values(&self) -> usize {
        let (before, _) = self.chain.passes().split_at(self.chain.passes().len() - 1);
        let kept = before.iter().map(|pass| {
            let own = pass.axes[self.chain.rows..].iter().filter(|axis| !axis.reduce).map(|axis| axis.extent);
            self.tiles.iter().copied().chain(own).fold(1, usize::saturating_mul)
        });
        kept.fold(0, usize::saturating_add)
    }

    /// Returns the number of innermost nests over all tiles; `None` if too many are single
    /// positions next to padding.
    fn leaves(&self) -> Option<usize> {
        // Each axis is split into pieces (edges and interior); nests are all their combinations.
        let of_rows = self.order.iter().map(|&axis| Some(self.pieces(axis)?.len()));
        let own = self.windows.iter().filter(|window| window.spatial >= self.chain.rows);
        let of_own = own.map(|window| Some(self.padded_pieces(window.pass)?.1.len()));
        of_rows.chain(of_own).try_fold(1, |leaves: usize, pieces| Some(leaves.saturating_mul(pieces?)))
    }

    /// True if the vectors of a pass go along a reduced axis, so that their lanes must be combined.
    pub(crate) fn reduces_lanes(&self, pass: usize) -> bool {
        self.chain.passes()[pass].axes[self.vectors[pass]].reduce
    }

    /// True if the lanes of neighbouring results, `along` of them consecutive, are reduced together
    /// by transposing them. This needs whole registers of lanes for each result and enough free
    /// registers.
    pub(crate) fn folds(&self, results: usize, along: usize, lanes: usize) -> bool {
        let VectorUnit { registers, lanes: of_register } = self.unit;
        let totals = results / along * along.div_ceil(of_register);
        let needed = results * lanes.div_ceil(of_register) + totals + FOLDING_REGISTERS + of_register.ilog2() as usize;
        lanes.is_multiple_of(of_register) && needed <= registers
    }

    /// True for a map whose values the next pass combines unchanged, along the same vectors: the
    /// two passes are fused.
    pub(crate) fn goes_with_next(&self, number: usize) -> bool {
        let [map, next] = match self.chain.passes().get(number..) {
            Some([map, next, ..]) => [map, next],
            _ => return false,
        };
        let is_alike = |(own, other): (&Axis, &Axis)| (own.name, own.extent) == (other.name, other.extent);
        // Equal axes and vectors let both passes run in one loop.
        !map.reduces()
            && next.value == Expr::Load(map.output.clone())
            && map.axes.len() == next.axes.len()
            && map.axes.iter().zip(&next.axes).all(is_alike)
            && self.vectors[number] == self.vectors[number + 1]
            && self.reduces_lanes(number + 1)
    }

    /// Returns the operand of a pass that is prefetched for the next tile, and the distance to that
    /// tile in elements. The next tile is along the innermost loop with more than one tile.
    pub(crate) fn next_tile(&self, number: usize) -> Option<(&Access, usize)> {
        // Prefetching whole lines needs an operand that is contiguous along the pass's vectors.
        let (at, access) = self.chain.prefetchable_access().filter(|_| self.prefetch)?;
        let last = self.chain.passes()[at].axes.get(self.vectors[at])?;
        let is_along = axis_of(access.index.last()?) == Some(self.vectors[at]) && last.extent > 1;
        let inner = self.order.iter().copied().rfind(|&axis| self.chain.row_axes()[axis].extent > self.tiles[axis])?;
        let mut ahead = 0;
        for (dim, index) in access.index.iter().enumerate() {
            let behind = self.chain.spec.tensor(access).shape[dim + 1..].iter().product::<usize>();
            ahead += index.coefficient(VarId(inner as u32)).max(0) as usize * behind * self.tiles[inner];
        }
        (at == number && is_along && ahead > 0).then_some((access, ahead))
    }

    /// Returns the result's elements, indexed by the axes of pass `number`, if that pass prefetches
    /// the lines that the last pass stores to.
    pub(crate) fn stored_to(&self, number: usize) -> Option<Access> {
        let (at, access) = (self.storing == Storing::Fetched).then(|| self.chain.result_prefetch())??;
        (at == number).then_some(access)
    }

    /// Returns the tiles along a row; `None` if too many are single positions next to padding.
    pub(crate) fn pieces(&self, axis: AxisId) -> Option<SmallVec<[AxisTiles; 4]>> {
        match self.windows.iter().find(|window| window.spatial == axis) {
            Some(window) => window.pieces(&self.chain.passes()[window.pass], self.tiles[axis]),
            None => Some(whole(0, self.chain.row_axes()[axis].extent, self.tiles[axis]).collect()),
        }
    }

    /// Returns the non-row axis along which a window of the pass reads past a tensor, and its tiles
    /// of one position. `None` if there is no such axis or too many positions touch padding.
    pub(crate) fn padded_pieces(&self, number: usize) -> Option<(AxisId, SmallVec<[AxisTiles; 4]>)> {
        let is_own = |window: &&ChainWindow| window.pass == number && window.spatial >= self.chain.rows;
        let window = self.windows.iter().find(is_own)?;
        Some((window.spatial, window.pieces(&self.chain.passes()[number], 1)?))
    }
}

/// Returns the vector axis of each pass for a value of the knob `vector`.
fn vectors(chain: &Chain, laid: Option<&ChainLayout>, name: &str) -> Result<Vec<AxisId>, LowerError> {
    let refused = |reason: String| Err(LowerError::knob("vector", reason));
    if !chain.passes().iter().any(|pass| pass.axes.iter().any(|axis| axis.name == name)) {
        return refused(format!("'{name}' is not an axis of the workload"));
    }
    let channel = layouts::channel(chain).map(|axis| chain.row_axes()[axis].name);
    match laid {
        Some(_) if channel != Some(name) => {
            refused(format!("'{name}' is not the channel axis, along which blocked layouts are vectorised"))
        }
        None if channel == Some(name) => refused(format!("'{name}' is contiguous only in channel-blocked layouts")),
        _ => Ok(chain.passes().iter().map(|pass| knobs::vector_of(chain, pass, name)).collect()),
    }
}

/// Returns the order of the row loops: first the rows whose order is fixed, then the others in the
/// order of the knob.
fn order(chain: &Chain, knobs: &dyn KnobValues) -> Result<Vec<AxisId>, LowerError> {
    let names = match knobs.value("order") {
        Some(KnobValue::Order(names)) => names.as_slice(),
        None => &[],
        Some(_) => return Err(LowerError::knob("order", "is not an order of loops")),
    };
    let mut order = knobs::ordered(chain, false);
    for name in names {
        let row = chain.row_axes().iter().position(|axis| axis.name == name);
        match row.filter(|axis| !order.contains(axis)) {
            Some(axis) => order.push(axis),
            None => {
                return Err(LowerError::knob("order", format!("'{name}' is not one of the loops, or occurs twice")));
            }
        }
    }
    if order.len() != chain.rows {
        return Err(LowerError::knob("order", "a loop is missing"));
    }
    Ok(order)
}

fn choice(knobs: &dyn KnobValues, knob: &str) -> Result<String, LowerError> {
    match knobs.value(knob) {
        Some(KnobValue::Choice(word)) => Ok(word.clone()),
        Some(_) => Err(LowerError::knob(knob, "is not a word")),
        None => Err(LowerError::knob(knob, "is missing")),
    }
}

fn tile(knobs: &dyn KnobValues, knob: &str, extent: usize) -> Result<usize, LowerError> {
    match knobs.value(knob) {
        Some(KnobValue::Tile(sizes)) if matches!(sizes[..], [size] if (1..=extent).contains(&size)) => Ok(sizes[0]),
        Some(_) => Err(LowerError::knob(knob, format!("must be one size from 1 to {extent}"))),
        None => Err(LowerError::knob(knob, "is missing")),
    }
}
