//! The sketch for CPUs of what is no contraction: maps, reductions such as poolings, and chains of
//! both such as a softmax.
//!
//! Loops over the axes that all equations share, the rows, go by tiles. For each tile the equations
//! are done one after the other; what one computes for the next is kept beside it, in memory of the
//! thread; a map is done with the reduction that combines its values. The values that an equation
//! combines stay in registers, or, where several rows within what is combined are read in order, in
//! the cache; a long sum is added up in parts. The innermost loop is a vector along a row, or along
//! an axis of the equation's own: where that is reduced, what is left over goes to the first lanes,
//! and lanes are combined at the end.
//!
//! ```text
//! for y { for x.t { acc[0..16] = neutral; for ky { for kx { acc[i] = max(acc[i], in[y + ky, 16*x.t + i + kx]) } }; out[y, ..] = acc } }
//! for m { acc[0..16] = neutral; for n.t { acc[i] += in[m, 16*n.t + i] }; acc[0..r] += rest; acc[0..8] += acc[8..16]; ..; out[m] = acc[0] }
//! for m { .. max = max in[m, ..]; for n.t { e[16*n.t + i] = exp(..); sum[i] += e[16*n.t + i] }; ..; for n.t { out[m, ..] = e[..] / sum } }
//! ```
//!
//! What the next tile reads may be asked for meanwhile (`prefetch`), where this one has all it
//! needs in the cache. A result that caches do not hold may go past them, or its lines be asked for
//! before they are stored to (`result`).
//!
//! Of images whose channels are whole blocks, a config may have either in blocks of channels:
//! vectors go along the lanes of a block then. What a window reads beyond a tensor is left out:
//! tiles that touch padding are single positions with shorter loops over the window.

use std::sync::Arc;

use smallvec::SmallVec;

use autotune_ir::Affine;
use autotune_ir::VarId;
use autotune_ir::analyse::pieces;
use autotune_ir::program::{Access, Expr};
use autotune_ir::spec::{Axis, AxisId, Spec};
use autotune_ir::target::CpuTarget;

use crate::config::{KnobValues, Value};
use crate::direct::block_size;
use crate::direct::reader::Reader;
use crate::error::LowerError;

mod chain;
mod default;
mod knobs;
mod laid;
mod lower;
mod memory;
mod separable;
mod sketch;
mod storing;
mod tasks;
mod turned;
mod window;

pub(crate) use chain::{Chain, axis_of, is_given};
use laid::Laid;
pub(crate) use memory::LONGEST_SUM;
pub(crate) use separable::SeparableSketch;
pub(crate) use sketch::MapReduceSketch;
pub(crate) use storing::Storing;
pub(crate) use window::{Piece, Taps};
use window::{Window, whole, windows};

/// Name of the sketch in configs.
pub const SKETCH: &str = "map_reduce";

/// Loop nests that all tiles together may become; more where tiles of one element become half as
/// many, as wide windows beside padding do.
const MAX_LEAVES: usize = 1 << 10;
/// Loop nests that tiles of one element may become.
const MAX_LEAST_LEAVES: usize = 1 << 12;
/// Statements of all tiles together that are written out.
const MAX_CODE: usize = 1 << 13;
/// Vector registers that hold no results.
const SPARE_REGISTERS: usize = 4;
/// Vector registers that rows are folded in, besides those of the rows and one for each time that
/// the lanes of a register are halved.
const FOLDING_REGISTERS: usize = 4;
/// Results that a tile has in memory.
const MOST_IN_CACHE: usize = 1 << 15;
/// Values that a tile keeps for later equations; more where a single row has more.
const MAX_KEPT: usize = 1 << 22;

/// Vector registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VectorUnit {
    pub(crate) registers: usize,
    /// Elements of each.
    pub(crate) lanes: usize,
}

impl VectorUnit {
    fn of(target: &CpuTarget) -> Self {
        Self { registers: target.isa.vector_registers(), lanes: target.lanes() }
    }
}

/// A schedule: tiles, and the order of loops over them.
#[derive(Clone, Debug)]
pub struct MapReduce {
    pub(crate) chain: Chain,
    /// How images lie that are in blocks of channels, over which the chain is.
    pub(crate) laid: Option<Laid>,
    /// By pass: the axis along which vectors go.
    pub(crate) vectors: Vec<AxisId>,
    /// Elements of the vectors along an axis that is no row.
    pub(crate) lanes: usize,
    /// The vector registers of the target.
    pub(crate) unit: VectorUnit,
    /// By row: positions of a tile.
    pub(crate) tiles: Vec<usize>,
    /// Rows by their loops, outermost first.
    pub(crate) order: Vec<AxisId>,
    /// The number of the outermost loops that are parallel; one that is 0 leaves all to one thread.
    pub(crate) parallel: usize,
    /// Iterations of other loops, written out.
    pub(crate) unroll: usize,
    /// True if what the next tile reads is asked for while this one is computed.
    pub(crate) prefetch: bool,
    pub(crate) storing: Storing,
    windows: Vec<Window>,
    /// What is done before.
    pub(crate) before: Vec<Self>,
}

/// The chain of a spec that the sketch is for: with so little padding that the least schedule is
/// not too long.
fn chain_for(spec: &Arc<Spec>) -> Option<Chain> {
    let chain = Chain::of(spec)?;
    let windows = windows(&chain)?;
    let least = MapReduce::least(chain, windows, VectorUnit { registers: 0, lanes: 1 });
    least.leaves().is_some_and(|leaves| leaves <= MAX_LEAST_LEAVES).then_some(least.chain)
}

impl MapReduce {
    /// What values of the knobs ask for, or `None` where there is no chain for them; or the first
    /// that is malformed, does not fit the chain, or breaks a limit of the target.
    fn new(spec: &Arc<Spec>, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Option<Self>, LowerError> {
        let Some(chain) = Chain::of(spec) else { return Ok(None) };
        let laid = Laid::read(&chain, block_size(target), &Reader(knobs))?;
        let mut vectors = vectors(&chain, laid.as_ref(), &choice(knobs, "vector")?)?;
        let mut tiles = vec![1; chain.rows];
        for axis in knobs::tiled(&chain) {
            let Axis { name, extent, .. } = chain.row_axes()[axis];
            tiles[axis] = tile(knobs, &format!("tile.{name}"), extent)?;
        }

        let number = |knob: &str, least: usize| -> Result<usize, LowerError> {
            let number = choice(knobs, knob)?.parse().ok().filter(|n| (least..=64).contains(n));
            number.ok_or_else(|| LowerError::knob(knob, format!("is no number from {least} to 64")))
        };
        let (parallel, unroll) = (number("parallel", 0)?, number("unroll", 1)?);
        let width = if knobs.value("width").is_some() { number("width", 1)? } else { 1 };
        let prefetches = knobs::PREFETCH.position(knobs.value("prefetch"));
        let prefetch = prefetches.ok_or_else(|| LowerError::knob("prefetch", "is neither 0 nor 1"))? == 1;
        let storing = Storing::read(&chain, knobs)?;
        let (lanes, mut order) = (width * target.lanes(), order(&chain, knobs)?);
        let before = chain.before().map(|chain| Self::transposing(chain, target)).collect();

        let mut chain = chain;
        if let Some(laid) = &laid {
            chain = laid.chain(&chain);
            vectors = vec![laid.lane()];
            order.push(laid.lane());
            tiles = laid.tiles(tiles)?;
        }
        let Some(windows) = windows(&chain) else { return Ok(None) };
        let unit = VectorUnit::of(target);
        let plan = Self {
            chain,
            laid,
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

    /// A tile for each position, rows in their order; which way vectors go is left open.
    fn least(chain: Chain, windows: Vec<Window>, unit: VectorUnit) -> Self {
        Self {
            laid: None,
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

    /// A map that is done before, in square blocks of a vector's lanes.
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

    /// Registers, memory, and length of the code.
    fn check(&self) -> Result<(), LowerError> {
        let passes = self.chain.passes().len();
        let vectors = |pass: usize| match self.adds_up_in_cache(pass) {
            true => self.lanes_in_registers() / self.unit.lanes,
            false => self.vectors_of_tile(pass),
        };
        let most = (0..passes).map(vectors).max().unwrap_or(1);
        let registers = self.unit.registers;
        if most + SPARE_REGISTERS > registers {
            return Err(LowerError::knob("tile", format!("{most} vectors of results exceed {registers} registers")));
        }
        let results = self.tiles.iter().product::<usize>();
        if results > MOST_IN_CACHE && (0..passes).any(|pass| self.adds_up_in_cache(pass)) {
            return Err(LowerError::knob("tile", format!("{results} results exceed {MOST_IN_CACHE}")));
        }
        let kept = self.kept_values();
        let most_kept = || MAX_KEPT.max(self.single().kept_values());
        if kept > MAX_KEPT && kept > most_kept() {
            return Err(LowerError::knob("tile", format!("{kept} values on the way exceed {}", most_kept())));
        }

        let Some(leaves) = self.leaves() else {
            return Err(LowerError::knob("tile", "too many positions touch padding"));
        };
        let written_out = |pass: usize| {
            let has_loops = self.chain.passes()[pass].axes.len() > self.chain.rows;
            vectors(pass).saturating_mul(if has_loops { self.unroll } else { 1 })
        };
        let code = leaves.saturating_mul((0..passes).map(written_out).sum());
        let is_too_long = || self.single().leaves().is_none_or(|least| leaves > 2 * least);
        if (leaves > MAX_LEAVES && is_too_long()) || code > MAX_CODE.max(4 * leaves) {
            return Err(LowerError::knob("tile", format!("{leaves} nests with {code} statements")));
        }
        Ok(())
    }

    /// The same with tiles of one row.
    fn single(&self) -> Self {
        Self { tiles: vec![1; self.tiles.len()], ..self.clone() }
    }

    /// What is computed, as the workload says it.
    pub(crate) fn spec(&self) -> &Arc<Spec> {
        self.laid.as_ref().map_or(&self.chain.spec, Laid::spec)
    }

    /// Elements of the vectors of a pass, along a row those of a whole tile.
    pub(crate) fn width(&self, pass: usize) -> usize {
        let axis = self.vectors[pass];
        self.tiles.get(axis).copied().unwrap_or_else(|| self.lanes.min(self.chain.passes()[pass].axes[axis].extent))
    }

    /// Vectors of the results of a tile.
    fn vectors_of_tile(&self, pass: usize) -> usize {
        let row_tiles = self.tiles.iter().enumerate();
        let beside: usize = row_tiles.filter(|(axis, _)| *axis != self.vectors[pass]).map(|(_, tile)| tile).product();
        beside * pieces(self.width(pass), self.unit.lanes)
    }

    /// Values that a tile keeps for later passes.
    fn kept_values(&self) -> usize {
        let (before, _) = self.chain.passes().split_at(self.chain.passes().len() - 1);
        let kept = before.iter().map(|pass| {
            let own = pass.axes[self.chain.rows..].iter().filter(|axis| !axis.reduce).map(|axis| axis.extent);
            self.tiles.iter().copied().chain(own).fold(1, usize::saturating_mul)
        });
        kept.fold(0, usize::saturating_add)
    }

    /// Nests that all tiles become; `None` if too many are single positions beside padding.
    fn leaves(&self) -> Option<usize> {
        let of_rows = self.order.iter().map(|&axis| Some(self.pieces(axis)?.len()));
        let own = self.windows.iter().filter(|window| window.spatial >= self.chain.rows);
        let of_own = own.map(|window| Some(self.own_pieces(window.pass)?.1.len()));
        of_rows.chain(of_own).try_fold(1, |leaves: usize, pieces| Some(leaves.saturating_mul(pieces?)))
    }

    /// True if the vectors of a pass go along an axis that is reduced.
    pub(crate) fn reduces_lanes(&self, pass: usize) -> bool {
        self.chain.passes()[pass].axes[self.vectors[pass]].reduce
    }

    /// True if the lanes of results that lie beside each other, `along` of them one behind the
    /// other, are combined together: where each has whole registers of `lanes` lanes, and there are
    /// registers for that.
    pub(crate) fn folds(&self, results: usize, along: usize, lanes: usize) -> bool {
        let VectorUnit { registers, lanes: of_register } = self.unit;
        let totals = results / along * along.div_ceil(of_register);
        let needed = results * lanes.div_ceil(of_register) + totals + FOLDING_REGISTERS + of_register.ilog2() as usize;
        lanes.is_multiple_of(of_register) && needed <= registers
    }

    /// True for a map of which the next pass combines each value as it is, along the same vectors:
    /// both are done at once.
    pub(crate) fn goes_with_next(&self, number: usize) -> bool {
        let [map, next] = match self.chain.passes().get(number..) {
            Some([map, next, ..]) => [map, next],
            _ => return false,
        };
        let is_alike = |(own, other): (&Axis, &Axis)| (own.name, own.extent) == (other.name, other.extent);
        !map.reduces()
            && next.value == Expr::Load(map.output.clone())
            && map.axes.len() == next.axes.len()
            && map.axes.iter().zip(&next.axes).all(is_alike)
            && self.vectors[number] == self.vectors[number + 1]
            && self.reduces_lanes(number + 1)
    }

    /// Returns the operand of a pass whose part for the next tile is prefetched, and the distance
    /// to that in elements. The next tile is the next one of the innermost loop over several.
    pub(crate) fn next_tile(&self, number: usize) -> Option<(&Access, usize)> {
        let (at, access) = self.chain.reads_at_rest().filter(|_| self.prefetch)?;
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

    /// Where this tile's result goes, by the axes of a pass which asks for it.
    pub(crate) fn stored_to(&self, number: usize) -> Option<Access> {
        let (at, access) = (self.storing == Storing::Fetched).then(|| self.chain.result_beside())??;
        (at == number).then_some(access)
    }

    /// The tiles of a row; `None` if too many are single positions beside padding.
    pub(crate) fn pieces(&self, axis: AxisId) -> Option<SmallVec<[Piece; 4]>> {
        match self.windows.iter().find(|window| window.spatial == axis) {
            Some(window) => window.pieces(&self.chain.passes()[window.pass], self.tiles[axis]),
            None => Some(whole(0, self.chain.row_axes()[axis].extent, self.tiles[axis]).collect()),
        }
    }

    /// The axis of a pass's own that a window moves along beyond a tensor, and its tiles of one
    /// position; `None` if there is none, or too many touch padding.
    pub(crate) fn own_pieces(&self, number: usize) -> Option<(AxisId, SmallVec<[Piece; 4]>)> {
        let is_own = |window: &&Window| window.pass == number && window.spatial >= self.chain.rows;
        let window = self.windows.iter().find(is_own)?;
        Some((window.spatial, window.pieces(&self.chain.passes()[number], 1)?))
    }
}

/// By pass: the axis along which vectors go where the knob has this name.
fn vectors(chain: &Chain, laid: Option<&Laid>, name: &str) -> Result<Vec<AxisId>, LowerError> {
    let refused = |reason: String| Err(LowerError::knob("vector", reason));
    if !chain.passes().iter().any(|pass| pass.axes.iter().any(|axis| axis.name == name)) {
        return refused(format!("'{name}' is no axis of the workload"));
    }
    let channel = laid::channel(chain).map(|axis| chain.row_axes()[axis].name);
    match laid {
        Some(_) if channel != Some(name) => {
            refused(format!("'{name}' is not the channels, whose blocks vectors go along"))
        }
        None if channel == Some(name) => refused(format!("'{name}' is contiguous in blocks of channels only")),
        _ => Ok(chain.passes().iter().map(|pass| knobs::vector_of(chain, pass, name)).collect()),
    }
}

/// The rows whose order is not chosen, then the others as the knob has them.
fn order(chain: &Chain, knobs: &dyn KnobValues) -> Result<Vec<AxisId>, LowerError> {
    let names = match knobs.value("order") {
        Some(Value::Order(names)) => names.as_slice(),
        None => &[],
        Some(_) => return Err(LowerError::knob("order", "is no order of loops")),
    };
    let mut order = knobs::ordered(chain, false);
    for name in names {
        let row = chain.row_axes().iter().position(|axis| axis.name == name);
        match row.filter(|axis| !order.contains(axis)) {
            Some(axis) => order.push(axis),
            None => return Err(LowerError::knob("order", format!("'{name}' is no loop of it, or twice"))),
        }
    }
    if order.len() != chain.rows {
        return Err(LowerError::knob("order", "some loop is missing"));
    }
    Ok(order)
}

fn choice(knobs: &dyn KnobValues, knob: &str) -> Result<String, LowerError> {
    match knobs.value(knob) {
        Some(Value::Choice(word)) => Ok(word.clone()),
        Some(_) => Err(LowerError::knob(knob, "is no word")),
        None => Err(LowerError::knob(knob, "is missing")),
    }
}

fn tile(knobs: &dyn KnobValues, knob: &str, extent: usize) -> Result<usize, LowerError> {
    match knobs.value(knob) {
        Some(Value::Tile(sizes)) if matches!(sizes[..], [size] if (1..=extent).contains(&size)) => Ok(sizes[0]),
        Some(_) => Err(LowerError::knob(knob, format!("is no tile of {extent}"))),
        None => Err(LowerError::knob(knob, "is missing")),
    }
}
