//! The sketch for CPUs of what is no contraction: maps, and reductions such as poolings.
//!
//! Loops over the axes of the result go by tiles, whose values stay in registers. The innermost loop of a tile is a vector along one axis
//! of the result, or along one that is reduced: lanes are combined at the end.
//!
//! ```text
//! for y { for x.t { acc[0..16] = neutral; for ky { for kx { acc[i] = max(acc[i], in[y + ky, 16*x.t + i + kx]) } }; out[y, ..] = acc } }
//! for m { acc[0..16] = neutral; for n.t { acc[i] += in[m, 16*n.t + i] }; lanes = acc; out[m] = Σ lanes }
//! ```
//!
//! What a window reads beyond a tensor is left out: tiles that touch padding are single positions with shorter loops over the window.

use std::sync::Arc;

use smallvec::SmallVec;

use autotune_ir::analyse::pieces;
use autotune_ir::program::Access;
use autotune_ir::spec::{AxisId, Equation, Source, Spec};
use autotune_ir::target::CpuTarget;
use autotune_ir::{Affine, VarId};

use crate::axes::Axes;
use crate::config::{KnobValues, Value};
use crate::error::LowerError;
use crate::workload::Workload;

mod knobs;
mod sketch;

pub(crate) use sketch::MapReduceSketch;
pub use sketch::SKETCH;

/// Loop nests that all tiles together may become, with the least tiles as well.
const MAX_LEAVES: usize = 1 << 10;
/// Statements of all tiles together that are written out.
const MAX_CODE: usize = 1 << 13;
/// Single positions beside the padding at either end of an axis.
const MAX_EDGE: usize = 64;
/// Vector registers that hold no results.
const SPARE_REGISTERS: usize = 4;

/// A dimension of an operand that is read at `stride * spatial + dilation * tap - pad`, some of it beyond the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    extent: i64,
    spatial: AxisId,
    stride: i64,
    tap: AxisId,
    dilation: i64,
    constant: i64,
}

/// Neighbouring tiles of an axis of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The first position.
    pub(crate) start: usize,
    /// Number of tiles.
    pub(crate) count: usize,
    /// Positions of each.
    pub(crate) tile: usize,
    /// The axis of the window along it and the first and last but one of its positions that are inside, where that is not all.
    pub(crate) taps: Option<(AxisId, usize, usize)>,
}

/// A schedule: tiles, and the order of loops over them.
#[derive(Clone, Debug)]
pub struct MapReduce {
    pub(crate) spec: Arc<Spec>,
    /// The axis along which vectors go.
    pub(crate) vector: AxisId,
    /// By axis of the main equation: positions of a tile; lanes of a vector along one that is reduced, elsewhere 1 there.
    pub(crate) tiles: Vec<usize>,
    /// Axes of the result by their loops, outermost first.
    pub(crate) order: Vec<AxisId>,
    /// So many of the outermost loops are parallel.
    pub(crate) parallel: usize,
    /// Iterations of loops that are reduced, written out.
    pub(crate) unroll: usize,
    windows: Vec<Window>,
}

/// True for the specs that the sketch is for: one equation that is no contraction, and a map of what it defines, with so little padding
/// that the least schedule is not too long.
fn is_for(spec: &Arc<Spec>) -> bool {
    let Some(windows) = windows(spec).filter(|_| is_map_reduce(spec)) else { return false };
    let main = spec.main();
    let order = (0..main.axes.len()).filter(|&axis| !main.axes[axis].reduce).collect();
    let (spec, tiles) = (Arc::clone(spec), vec![1; main.axes.len()]);
    let least = MapReduce { spec, vector: 0, tiles, order, parallel: 1, unroll: 1, windows };
    least.leaves().is_some_and(|leaves| leaves <= MAX_LEAVES)
}

fn is_map_reduce(spec: &Spec) -> bool {
    let [main, tail] = &spec.equations[..] else { return false };
    let is_given = |access: &Access| matches!(spec.tensor(access).source, Source::Given { .. });
    let reads = |access: &&Access| **access == main.output || is_given(access);
    Axes::of(spec).is_none()
        && spec.main == 0
        && main.loads().into_iter().all(is_given)
        && main.axes.iter().filter(|axis| !axis.reduce).eq(&tail.axes)
        && main.axes.starts_with(&tail.axes)
        && main.output.index == tail.output.index
        && tail.loads().iter().all(reads)
}

/// The dimensions of operands that are read beyond; `None` if one is not of a window, or if windows share an axis.
fn windows(spec: &Spec) -> Option<Vec<Window>> {
    let main = spec.main();
    let mut windows: Vec<Window> = Vec::new();
    for access in main.loads() {
        for (index, &extent) in access.index.iter().zip(&spec.tensor(access).shape) {
            let (low, high) = main.range(index);
            if low >= 0 && high < extent as i64 {
                continue;
            }
            let window = window(main, index, extent as i64)?;
            if windows.contains(&window) {
                continue;
            }
            if windows.iter().any(|known| known.spatial == window.spatial || known.tap == window.tap) {
                return None;
            }
            windows.push(window);
        }
    }
    Some(windows)
}

fn window(main: &Equation, index: &Affine, extent: i64) -> Option<Window> {
    let [a, b] = index.terms[..] else { return None };
    let is_tap = |axis: VarId| main.axes[axis.0 as usize].reduce;
    let ((spatial, stride), (tap, dilation)) = if is_tap(a.0) { (b, a) } else { (a, b) };
    let (is_window, constant) = (is_tap(tap) && !is_tap(spatial) && stride > 0 && dilation > 0, index.constant);
    let (spatial, tap) = (spatial.0 as usize, tap.0 as usize);
    is_window.then_some(Window { extent, spatial, stride, tap, dilation, constant })
}

impl Window {
    /// The positions of the window at a position of the result that are inside, of so many.
    fn inside(&self, position: usize, taps: usize) -> (usize, usize) {
        let at = self.stride * position as i64 + self.constant;
        let first = (-at).max(0).unsigned_abs().div_ceil(self.dilation.unsigned_abs()) as usize;
        let behind = (self.extent - 1 - at).div_euclid(self.dilation) + 1;
        let behind = behind.clamp(0, taps as i64) as usize;
        (first.min(behind), behind)
    }
}

impl MapReduce {
    /// What values of the knobs ask for, or the first that is malformed, does not fit the workload, or breaks a limit of the target.
    pub fn new(workload: &Workload, target: &CpuTarget, knobs: &dyn KnobValues) -> Result<Self, LowerError> {
        let spec = workload.spec();
        let windows =
            windows(spec).filter(|_| is_map_reduce(spec)).ok_or_else(|| LowerError::unfit(SKETCH, workload))?;
        let main = spec.main();
        let vector = axis_of(main, "vector", &choice(knobs, "vector")?)?;
        let mut tiles = vec![1; main.axes.len()];
        for axis in knobs::tiled(main) {
            tiles[axis] = tile(knobs, &format!("tile.{}", main.axes[axis].name), main.axes[axis].extent)?;
        }
        if main.axes[vector].reduce {
            tiles[vector] = target.lanes().min(main.axes[vector].extent);
        }

        let names = match knobs.value("order") {
            Some(Value::Order(names)) => names.as_slice(),
            None => &[],
            Some(_) => return Err(LowerError::knob("order", "is no order of loops")),
        };
        let mut order = knobs::ordered(main, false);
        for name in names {
            let axis = axis_of(main, "order", name)?;
            if main.axes[axis].reduce || order.contains(&axis) {
                return Err(LowerError::knob("order", format!("'{name}' is no loop of it, or twice")));
            }
            order.push(axis);
        }
        if order.len() != main.axes.iter().filter(|axis| !axis.reduce).count() {
            return Err(LowerError::knob("order", "some loop is missing"));
        }

        let number = |knob: &str| -> Result<usize, LowerError> {
            let word = choice(knobs, knob)?;
            word.parse()
                .ok()
                .filter(|n| (1..=64).contains(n))
                .ok_or_else(|| LowerError::knob(knob, "is no number from 1 to 64"))
        };
        let (parallel, unroll) = (number("parallel")?, number("unroll")?);
        let plan = Self { spec: Arc::clone(spec), vector, tiles, order, parallel, unroll, windows };
        plan.check(target)?;
        Ok(plan)
    }

    /// Registers, and length of the code.
    fn check(&self, target: &CpuTarget) -> Result<(), LowerError> {
        let main = self.spec.main();
        let beside: usize =
            (0..main.axes.len()).filter(|&axis| axis != self.vector).map(|axis| self.tiles[axis]).product();
        let vectors = beside * pieces(self.tiles[self.vector], target.lanes());
        let registers = target.isa.vector_registers();
        if vectors + SPARE_REGISTERS > registers {
            return Err(LowerError::knob("tile", format!("{vectors} vectors of results exceed {registers} registers")));
        }

        let Some(leaves) = self.leaves() else {
            return Err(LowerError::knob("tile", "too many positions touch padding"));
        };
        let code = leaves.saturating_mul(vectors).saturating_mul(if main.reduces() { self.unroll } else { 1 });
        if leaves > MAX_LEAVES || code > MAX_CODE.max(4 * leaves) {
            return Err(LowerError::knob("tile", format!("{leaves} nests with {code} statements")));
        }
        Ok(())
    }

    /// Nests that all tiles become; `None` if too many are single positions beside padding.
    fn leaves(&self) -> Option<usize> {
        let pieces = |&axis: &AxisId| Some(self.pieces(axis)?.len());
        self.order.iter().map(pieces).try_fold(1, |leaves: usize, pieces| Some(leaves.saturating_mul(pieces?)))
    }

    /// Lanes that are combined at the end, where vectors go along an axis that is reduced.
    pub(crate) fn reduced_lanes(&self) -> Option<usize> {
        self.spec.main().axes[self.vector].reduce.then(|| self.tiles[self.vector])
    }

    /// The tiles of an axis of the result; `None` if too many are single positions beside padding.
    pub(crate) fn pieces(&self, axis: AxisId) -> Option<SmallVec<[Piece; 4]>> {
        let (axes, tile) = (&self.spec.main().axes, self.tiles[axis]);
        let extent = axes[axis].extent;
        let Some(window) = self.windows.iter().find(|window| window.spatial == axis) else {
            return Some(whole(0, extent, tile).collect());
        };

        // From both ends up to the first window that is whole.
        let taps = axes[window.tap].extent;
        let edge = |position: usize| {
            let (first, behind) = window.inside(position, taps);
            ((first, behind) != (0, taps)).then_some(Piece {
                start: position,
                count: 1,
                tile: 1,
                taps: Some((window.tap, first, behind)),
            })
        };
        let mut pieces: SmallVec<[Piece; 4]> = (0..extent).map_while(edge).take(MAX_EDGE + 1).collect();
        let low = pieces.len();
        let high: Vec<Piece> = (low..extent).rev().map_while(edge).take(MAX_EDGE + 1).collect();
        if low > MAX_EDGE || high.len() > MAX_EDGE {
            return None;
        }
        pieces.extend(whole(low, extent - high.len(), tile));
        pieces.extend(high.into_iter().rev());
        Some(pieces)
    }
}

/// Whole tiles, and the rest.
fn whole(start: usize, end: usize, tile: usize) -> impl Iterator<Item = Piece> {
    let (count, rest) = ((end - start) / tile, (end - start) % tile);
    let pieces = [(start, count, tile), (end - rest, 1, rest)];
    let piece = |(start, count, tile)| Piece { start, count, tile, taps: None };
    pieces.into_iter().filter(|(_, count, tile)| count * tile > 0).map(piece)
}

fn axis_of(main: &Equation, knob: &str, name: &str) -> Result<AxisId, LowerError> {
    let axis = main.axes.iter().position(|axis| axis.name == name);
    axis.ok_or_else(|| LowerError::knob(knob, format!("'{name}' is no axis of the workload")))
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
