//! Knobs of maps and reductions.

use std::sync::LazyLock;

use autotune_ir::program::Access;
use autotune_ir::spec::{AxisId, Equation};
use autotune_ir::target::CpuTarget;
use autotune_ir::{Affine, VarId};
use autotune_workloads::axes::FEW;

use super::chain::Chain;
use super::layouts;
use super::storing::Storing;
use crate::direct::block_size;
use crate::knob_space::Knob;

/// Number of innermost loops whose order is a knob.
const ORDERED: usize = 4;
/// Channel blocks per tile.
const BLOCKS: [usize; 3] = [1, 2, 4];
/// Tile sizes along rows other than the vector axis, for a single pass.
const TILES: [usize; 4] = [1, 2, 4, 8];
/// Tile sizes along such rows, for several passes and for products with a few vectors.
const TILES_OF_CHAINS: [usize; 7] = [1, 2, 3, 4, 6, 8, 12];

/// Vectors per tile for column sums in cache.
const ROWS: [usize; 3] = [32, 64, 128];
/// Largest whole row, in elements, that is offered as a tile of column sums.
const MOST_OF_ROW: usize = 1 << 14;
/// Tile sizes along the other rows of column sums.
const BESIDE: [usize; 4] = [16, 32, 64, 128];

/// Largest number of iterations for which a single thread may be faster than several: starting and
/// joining threads takes about as long.
const FEW_ITERATIONS: usize = 1 << 16;

/// True if a row is inside the reduced axes of the only pass (a column sum), so that accumulators
/// of several positions are updated together.
pub(super) fn is_inside(chain: &Chain, axis: AxisId) -> bool {
    let [pass] = chain.passes() else { return false };
    pass.reduces() && chain.is_inside(pass, axis) && !chain.spec.reads_beyond(pass)
}

/// Returns the number of iterations of all passes.
pub(super) fn iterations(chain: &Chain) -> usize {
    let of_pass = |pass: &Equation| pass.axes.iter().fold(1, |all: usize, axis| all.saturating_mul(axis.extent));
    chain.passes().iter().map(of_pass).fold(0, usize::saturating_add)
}

/// Returns the rows that have tiles: those of more than one position.
pub(super) fn tiled(chain: &Chain) -> impl Iterator<Item = AxisId> {
    (0..chain.rows).filter(|&axis| chain.row_axes()[axis].extent > 1)
}

/// Returns the rows whose loop order is chosen by a knob, or the other ones.
pub(super) fn ordered(chain: &Chain, is_chosen: bool) -> Vec<AxisId> {
    let mut chosen: Vec<AxisId> = tiled(chain).collect();
    chosen.drain(..chosen.len().saturating_sub(ORDERED));
    (0..chain.rows).filter(|axis| chosen.contains(axis) == is_chosen).collect()
}

/// Counts the accesses of a pass, to operands or the result, that are contiguous along one of its
/// axes.
fn contiguous(chain: &Chain, pass: &Equation, axis: AxisId) -> usize {
    let along = |index: Option<&Affine>| index.is_some_and(|index| index.coefficient(VarId(axis as u32)) == 1);
    let is_read_along = |access: &&Access| chain.is_at_hand(access) && along(access.index.last());
    let reads = pass.loads().into_iter().filter(is_read_along).count();
    let is_last = pass.output.buffer == chain.last().output.buffer;
    let writes = is_last && !pass.axes[axis].reduce && along(pass.output.index.last());
    reads + usize::from(writes)
}

fn is_contiguous(chain: &Chain, pass: &Equation, axis: AxisId) -> bool {
    contiguous(chain, pass, axis) > 0
}

/// Returns the name of the axes along which most accesses are contiguous; of several the last.
pub(super) fn most_contiguous(chain: &Chain) -> &'static str {
    let accesses = |name: &&'static str| {
        let of_pass = |pass: &Equation| {
            let axis = pass.axes.iter().position(|axis| axis.name == *name);
            axis.map_or(0, |axis| contiguous(chain, pass, axis))
        };
        chain.passes().iter().map(of_pass).sum::<usize>()
    };
    vectors(chain).into_iter().max_by_key(accesses).unwrap_or_default()
}

/// Returns the names of possible vector axes: axes of more than one position along which some
/// access is contiguous, rows first, and the row of pairs.
pub(super) fn vectors(chain: &Chain) -> Vec<&'static str> {
    let mut vectors: Vec<&'static str> = Vec::new();
    for is_row in [true, false] {
        for pass in chain.passes() {
            let is_vector = |&axis: &AxisId| {
                (axis < chain.rows) == is_row && pass.axes[axis].extent > 1 && is_contiguous(chain, pass, axis)
            };
            for axis in (0..pass.axes.len()).filter(is_vector) {
                if !vectors.contains(&pass.axes[axis].name) {
                    vectors.push(pass.axes[axis].name);
                }
            }
        }
    }
    vectors.extend(row_of_pairs(chain).filter(|name| !vectors.contains(name)));
    if vectors.is_empty() {
        // Only one position, or no contiguous access: any row may be the vector axis. Channels
        // cannot, as vectors go along them in blocked layouts only.
        let channel = layouts::channel(chain);
        let plain = tiled(chain).filter(|&axis| Some(axis) != channel).last();
        let axis = plain.unwrap_or(usize::from(channel == Some(0)));
        vectors.push(chain.last().axes[axis].name);
    }
    vectors
}

/// Returns the last row if the trailing dimensions hold two elements: vectors along that row access
/// every other element.
pub(super) fn row_of_pairs(chain: &Chain) -> Option<&'static str> {
    let elements = |pass: &Equation| pass.axes[chain.rows..].iter().map(|axis| axis.extent).product::<usize>();
    let is_of_pairs = chain.passes().iter().map(elements).max() == Some(2) && layouts::channel(chain).is_none();
    tiled(chain).last().filter(|_| is_of_pairs).map(|axis| chain.row_axes()[axis].name)
}

/// Returns the vector axis of a pass: the axis called `name`. A pass without it has its last own
/// axis along which some access is contiguous, preferring axes of the result over reduced ones, or
/// else its last axis.
pub(super) fn vector_of(chain: &Chain, pass: &Equation, name: &str) -> AxisId {
    let named = pass.axes.iter().position(|axis| axis.name == name);
    let own = |reduce: bool| {
        let is_own = |&axis: &AxisId| pass.axes[axis].reduce == reduce && is_contiguous(chain, pass, axis);
        (chain.rows..pass.axes.len()).rfind(is_own)
    };
    named.or_else(|| own(false)).or_else(|| own(true)).unwrap_or(pass.axes.len() - 1)
}

/// Knob that turns prefetching of the next tile on.
pub(super) static PREFETCH: LazyLock<Knob> = LazyLock::new(|| Knob::choice("prefetch", &["0", "1"]).optional());

/// Returns all knobs with their values.
pub(super) fn knobs(chain: &Chain, target: &CpuTarget) -> Vec<Knob> {
    let (rows, lanes) = (chain.row_axes(), target.lanes());
    let vectors = vectors(chain);
    let channel = layouts::blockable(chain, block_size(target));
    let names: Vec<&str> = vectors.iter().copied().chain(channel.map(|axis| rows[axis].name)).collect();
    let mut knobs = vec![Knob::choice("vector", &names)];
    let layouts = ["layout.in", "layout.out"].map(|name| Knob::choice(name, &["plain", "blocked"]));
    knobs.extend(layouts.into_iter().filter(|_| channel.is_some()));
    let is_product = chain.is_product();

    for axis in tiled(chain) {
        let extent = rows[axis].extent;
        let is_alone = chain.passes().len() == 1 && !is_product;
        let mut tiles = if is_alone { TILES.to_vec() } else { TILES_OF_CHAINS.to_vec() };
        if vectors.contains(&rows[axis].name) {
            // Whole vectors; rows shorter than a vector are one tile, below.
            tiles.extend([1, 2, 4, 8, 16].map(|vectors| vectors * lanes));
            if is_inside(chain, axis) {
                tiles.extend(ROWS.map(|vectors| vectors * lanes));
                tiles.extend((extent <= MOST_OF_ROW).then_some(extent));
            }
            tiles.extend((extent < lanes).then_some(extent));
        } else if is_inside(chain, axis) {
            tiles.extend(BESIDE);
        }
        // A tile of all vectors loads each matrix element once.
        if is_product && extent <= FEW {
            tiles.push(extent);
        }
        // Blocked layouts need tiles of whole blocks.
        if channel == Some(axis) {
            tiles.extend(BLOCKS.map(|blocks| blocks * block_size(target)));
        }
        tiles.retain(|&tile| tile <= extent);
        tiles.sort_unstable();
        tiles.dedup();
        knobs
            .push(Knob::tile(&format!("tile.{}", rows[axis].name), tiles.into_iter().map(|tile| vec![tile]).collect()));
    }

    let order: Vec<&str> = ordered(chain, true).into_iter().map(|axis| rows[axis].name).collect();
    knobs.extend((!order.is_empty()).then(|| Knob::order("order", &order)));
    let has_loops = chain.passes().iter().any(|pass| pass.axes.len() > chain.rows);
    let unroll: &[&str] = if has_loops { &["1", "2", "4", "8", "16"] } else { &["1"] };
    knobs.push(Knob::choice("unroll", unroll));
    // Along a row the tile is the vector's width; other vector axes need a knob for it.
    let is_wide = chain.passes().len() > 1 || vectors.iter().any(|name| rows.iter().all(|axis| axis.name != *name));
    knobs.extend(is_wide.then(|| Knob::choice("width", &["1", "2", "4"])));
    knobs.extend(chain.prefetchable_access().is_some().then(|| PREFETCH.clone()));
    let storing = Storing::of(chain, target);

    knobs.extend((storing.len() > 1).then(|| Storing::knob(&storing)));
    let parallel: &[&str] = match target.threads {
        1 => &["1"],
        _ if iterations(chain) > FEW_ITERATIONS => &["1", "2", "3"],
        _ => &["1", "2", "3", "0"],
    };
    knobs.push(Knob::choice("parallel", parallel));
    knobs
}
