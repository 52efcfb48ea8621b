//! Tiles of an axis along which a window reads past a tensor (padding).

use smallvec::SmallVec;

use autotune_ir::spec::{AxisId, Equation};
use autotune_ir::{Affine, VarId};

use super::chain::Chain;

/// Largest number of single positions next to the padding at either end of an axis.
const MAX_EDGE: usize = 1 << 10;

/// A dimension of an operand that is read at `stride * spatial + dilation * tap - pad`, partly
/// outside the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainWindow {
    pub(super) pass: usize,
    extent: i64,
    /// Axis of the pass along which the window moves: a row, or an axis of the pass's own.
    pub(super) spatial: AxisId,
    stride: i64,
    tap: AxisId,
    dilation: i64,
    constant: i64,
}

/// Consecutive tiles of equal size along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AxisTiles {
    /// First position of the first tile.
    pub(crate) start: usize,
    /// Number of tiles in sequence.
    pub(crate) count: usize,
    /// Positions of each tile.
    pub(crate) tile: usize,
    /// Taps that are inside the tensor, if these are not all taps of the window.
    pub(crate) taps: Option<Taps>,
}

/// Range of taps of a window that are inside the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taps {
    /// Pass that reads the window.
    pub(crate) pass: usize,
    /// Axis of the pass over the taps.
    pub(crate) axis: AxisId,
    /// First tap inside the tensor.
    pub(crate) first: usize,
    /// End of the range, exclusive.
    pub(crate) end: usize,
}

/// Returns the windows that read past a tensor. `None` if such an index is not a window along an
/// axis of the result, if two windows share an axis, or if a pass has several windows along axes of
/// its own.
pub(super) fn windows(chain: &Chain) -> Option<Vec<ChainWindow>> {
    let mut windows: Vec<ChainWindow> = Vec::new();
    for (number, pass) in chain.passes().iter().enumerate() {
        for access in pass.loads() {
            for (index, &extent) in access.index.iter().zip(&chain.spec.tensor(access).shape) {
                if !pass.is_beyond(index, extent) {
                    continue;
                }
                let window = window((number, pass), index, extent as i64)?;
                // Several loads may have the same window.
                if windows.contains(&window) {
                    continue;
                }

                // Every axis can have the edges of one window only.
                let shares = |known: &ChainWindow| {
                    let is_row = |window: &ChainWindow| window.spatial < chain.rows;
                    let is_along_same = known.spatial == window.spatial && is_row(known);
                    let is_of_same =
                        known.pass == window.pass && (known.tap == window.tap || !(is_row(known) || is_row(&window)));
                    is_along_same || is_of_same
                };
                if windows.iter().any(shares) {
                    return None;
                }
                windows.push(window);
            }
        }
    }
    Some(windows)
}

fn window((number, pass): (usize, &Equation), index: &Affine, extent: i64) -> Option<ChainWindow> {
    let [a, b] = index.terms[..] else { return None };
    let is_tap = |axis: VarId| pass.axes[axis.0 as usize].reduce;
    let ((spatial, stride), (tap, dilation)) = if is_tap(a.0) { (b, a) } else { (a, b) };
    let (is_window, constant) = (is_tap(tap) && !is_tap(spatial) && stride > 0 && dilation > 0, index.constant);
    let (spatial, tap) = (spatial.0 as usize, tap.0 as usize);
    is_window.then_some(ChainWindow { pass: number, extent, spatial, stride, tap, dilation, constant })
}

impl ChainWindow {
    /// Returns the range of taps, out of `taps`, that are inside the tensor for a position of the
    /// result.
    fn inside(&self, position: usize, taps: usize) -> (usize, usize) {
        let at = self.stride * position as i64 + self.constant;
        // The least tap with `at + dilation * tap >= 0`.
        let first = (-at).max(0).unsigned_abs().div_ceil(self.dilation.unsigned_abs()) as usize;
        // One past the largest tap with `at + dilation * tap < extent`.
        let behind = (self.extent - 1 - at).div_euclid(self.dilation) + 1;
        let behind = behind.clamp(0, taps as i64) as usize;
        (first.min(behind), behind)
    }

    /// Returns the tiles along the window's axis: single positions at either end, as long as their
    /// window touches padding, and tiles of `tile` positions between. `None` if too many positions
    /// touch padding.
    pub(super) fn pieces(&self, pass: &Equation, tile: usize) -> Option<SmallVec<[AxisTiles; 4]>> {
        let [extent, taps] = [self.spatial, self.tap].map(|axis| pass.axes[axis].extent);
        let edge = |position: usize| {
            let (first, end) = self.inside(position, taps);
            let taps = ((first, end) != (0, taps)).then_some(Taps { pass: self.pass, axis: self.tap, first, end });
            taps.map(|taps| AxisTiles { start: position, count: 1, tile: 1, taps: Some(taps) })
        };
        let mut pieces: SmallVec<[AxisTiles; 4]> = (0..extent).map_while(edge).take(MAX_EDGE + 1).collect();
        let low = pieces.len();
        let high: Vec<AxisTiles> = (low..extent).rev().map_while(edge).take(MAX_EDGE + 1).collect();
        if low > MAX_EDGE || high.len() > MAX_EDGE {
            return None;
        }
        pieces.extend(whole(low, extent - high.len(), tile));
        pieces.extend(high.into_iter().rev());
        Some(pieces)
    }
}

/// Returns the whole tiles of a range, and the remainder as one smaller tile.
pub(super) fn whole(start: usize, end: usize, tile: usize) -> impl Iterator<Item = AxisTiles> {
    let (count, rest) = ((end - start) / tile, (end - start) % tile);
    let pieces = [(start, count, tile), (end - rest, 1, rest)];
    let piece = |(start, count, tile)| AxisTiles { start, count, tile, taps: None };
    pieces.into_iter().filter(|(_, count, tile)| count * tile > 0).map(piece)
}
