//! The default schedule for tile instructions, chosen without measuring.

use std::sync::Arc;

use super::balance::BalancedChoice;
use super::default::{PARALLEL, ending_with, starting_with};
use super::{DataMode, Direct, Roles};
use crate::config::KnobValue;
use crate::contraction::AxisId;
use crate::knob_space::{Knob, KnobSpace};
use crate::point::KnobIndices;
use autotune_ir::instruction::TILE_ROWS;
use autotune_ir::target::CpuTarget;
use autotune_workloads::axes::count;

/// Layouts and data modes of images, in the order in which the default tries them.
const IMAGES: [[&str; 2]; 4] = [["blocked", "tile"], ["plain", "tile"], ["blocked", "copy"], ["plain", "copy"]];
/// Layout and data mode of matrices, whose rows are contiguous.
const MATRICES: [[&str; 2]; 1] = [["plain", "inplace"]];
/// Layouts and data modes of matrices whose elements are split.
const SPLIT_MATRICES: [[&str; 2]; 2] = [["plain", "copy"], ["plain", "tile"]];
/// Maximum number of register tiles that the default tries. If all of these break a rule, others
/// usually do, too.
const MOST_TRIED: usize = 16;

/// A register tile along the row axes.
struct RowTile {
    /// Number of tiles of the whole workload along the rows.
    all: usize,
    /// Number of tiles in the register tile.
    in_registers: usize,
    /// Elements along each row axis, outermost first.
    sizes: Vec<(AxisId, usize)>,
}

/// Register tile and cache tile of a candidate.
struct TileSizes<'a> {
    columns: usize,
    /// Largest cache tile along the columns.
    most_columns: usize,
    /// Register tile along each row axis.
    rows: &'a [(AxisId, usize)],
    /// Number of register tiles in a cache tile along the outermost row axis.
    cached: usize,
}

/// Returns the default schedule with a tile instruction, if one fits. Of the register tiles of two
/// by two tiles or fewer, it is one that covers the rows by the fewest tiles. The copies of images
/// are as large as fits a part of the second-level cache, so that few rows are copied twice.
pub(super) fn tile_point(roles: &Roles, target: &CpuTarget, space: &Arc<KnobSpace>) -> Option<KnobIndices> {
    roles.tile(target)?;
    let data: &[[&str; 2]] = match (roles.is_product(), roles.splits()) {
        (true, true) => &SPLIT_MATRICES,
        (true, false) => &MATRICES,
        (false, _) => &IMAGES,
    };
    let columns = roles.extent(roles.channel).min(2 * TILE_ROWS);

    let mut rows = row_tiles(roles, space);
    // Register tiles of two tiles load each factor half as often.
    rows.sort_by_key(|tile| (tile.all, 2 - tile.in_registers));
    rows.truncate(MOST_TRIED);
    for data in data {
        for tile in &rows {
            let point = best_cached(roles, target, space, *data, (columns, &tile.sizes));
            if point.is_some() {
                return point;
            }
        }
    }
    None
}

/// Returns the register tiles along the row axes that consist of one or two tiles.
fn row_tiles(roles: &Roles, space: &KnobSpace) -> Vec<RowTile> {
    let axes: Vec<AxisId> = roles.spatial.iter().copied().filter(|&axis| axis != roles.channel).collect();
    let sizes = |axis: AxisId| {
        let name = format!("tile.{}", roles.name(axis));
        let of = |value: &KnobValue| match value {
            KnobValue::Tile(tile) => tile.last().copied(),
            _ => None,
        };
        let knob = space.knobs.iter().find(|knob| knob.name == name);
        let mut sizes: Vec<usize> = knob.into_iter().flat_map(|knob| knob.values.iter().filter_map(of)).collect();
        sizes.dedup();
        sizes
    };

    let several: Vec<AxisId> = axes.into_iter().filter(|&axis| roles.extent(axis) > 1).collect();
    let mut tiles = vec![Vec::new()];
    for &axis in &several {
        let with = |known: &Vec<(AxisId, usize)>| {
            let known = known.clone();
            sizes(axis).into_iter().map(move |size| known.iter().copied().chain([(axis, size)]).collect())
        };
        tiles = tiles.iter().flat_map(with).collect::<Vec<Vec<_>>>();
    }

    let tile = |sizes: Vec<(AxisId, usize)>| {
        let (mut all, mut in_registers) = (1, 1);
        for (place, &(axis, size)) in sizes.iter().rev().enumerate() {
            let height = if place == 0 { TILE_ROWS } else { 1 };
            let extent = roles.extent(axis);
            all *= extent / size * size.div_ceil(height) + (extent % size).div_ceil(height);
            in_registers *= size.div_ceil(height);
        }
        (in_registers <= 2).then_some(RowTile { all, in_registers, sizes })
    };
    tiles.into_iter().filter_map(tile).collect()
}

/// Returns the point with these register tiles and the largest copies that fit the cache and
/// balance the load.
fn best_cached(
    roles: &Roles,
    target: &CpuTarget,
    space: &Arc<KnobSpace>,
    data: [&str; 2],
    (columns, rows): (usize, &[(AxisId, usize)]),
) -> Option<KnobIndices> {
    const CACHED: [usize; 10] = [64, 32, 16, 12, 8, 6, 4, 3, 2, 1];
    let most_columns = if roles.is_product() { most_columns(roles, target).max(columns) } else { columns };
    let mut choice = BalancedChoice::new(roles, target);

    for cached in CACHED.into_iter().filter(|&cached| cached == 1 || !roles.is_product()) {
        let sizes = TileSizes { columns, most_columns, rows, cached };
        let fits = |direct: &Direct| {
            let copied = direct.tile_shape().iter().product::<usize>() * direct.copied_bytes();
            direct.data_mode != DataMode::Tile || copied <= target.l2_bytes / 4 || cached == 1
        };
        let alike = PARALLEL.iter().filter_map(|parallel| candidate(roles, space, (data, parallel), &sizes));
        if let Some(point) = choice.first(alike, fits) {
            return Some(point);
        }
    }
    choice.best()
}

/// Returns the number of columns whose weights stay in the second-level cache while all rows of a
/// matrix pass, together with these rows if they fit.
fn most_columns(roles: &Roles, target: &CpuTarget) -> usize {
    let steps = roles.step.map_or(1, |step| roles.extent(step));
    let rows = count(roles.contraction.equation(), &roles.axes.rows);
    let [row_bytes, column_bytes] = roles.factors.map(|dtype| steps * dtype.bytes());

    let available = target.l2_bytes / 2;
    let left = available.checked_sub(rows.saturating_mul(row_bytes)).unwrap_or(available);
    left / column_bytes
}

/// Returns the point with the given words and sizes, if the space has it.
fn candidate(
    roles: &Roles,
    space: &Arc<KnobSpace>,
    ([layout, data], parallel): ([&str; 2], &str),
    sizes: &TileSizes,
) -> Option<KnobIndices> {
    let outermost_tap = roles.axes.taps().next();
    space.point_of(|knob| {
        let position = |word: &str| knob.position_of(word);
        match knob.parts() {
            ("tile", axis) => tile(roles, knob, roles.contraction.axis(axis)?, sizes),
            ("order", "reduce") => Some(outermost_tap.map_or(0, |tap| starting_with(knob, roles.name(tap)))),
            // Matrices of weights stay in the cache while all rows pass; copies stay while all
            // columns do.
            ("order", "") if roles.is_product() => Some(starting_with(knob, roles.name(roles.channel))),
            ("order", "") => ending_with(knob, roles.name(roles.channel)).or(Some(0)),
            ("layout", _) => position(layout).or(Some(0)),
            ("vector", _) => position(roles.name(roles.channel)),
            ("instruction", _) => position("tile"),
            ("weights", _) => position("packed"),
            ("data", _) => position(data),
            ("parallel", _) => position(parallel),
            _ => Some(0),
        }
    })
}

/// Returns the index of an axis's tile among the values of its knob.
fn tile(roles: &Roles, knob: &Knob, axis: AxisId, sizes: &TileSizes) -> Option<usize> {
    let last = |fits: &dyn Fn(&[usize]) -> bool| {
        knob.values.iter().rposition(|value| matches!(value, KnobValue::Tile(tile) if fits(tile)))
    };
    if roles.step == Some(axis) {
        return Some(knob.values.len() - 1);
    }
    if axis == roles.channel {
        return last(&|tile| tile[1] == sizes.columns && tile[0] <= sizes.most_columns);
    }
    let size = sizes.rows.iter().find(|rows| rows.0 == axis)?.1;
    // Along the outermost axis, copies end after some register tiles; they cover the others.
    match sizes.rows.first() {
        Some(rows) if rows.0 == axis => last(&|tile| tile[1] == size && tile[0] <= sizes.cached * size),
        _ => last(&|tile| tile[1] == size),
    }
}
