//! Knobs of the direct sketch and their values.

use super::roles::{LoopNames, Roles};
use super::rules::{MIN_PANEL_CHANNELS, MIN_PANEL_COLUMNS, pads_far};
use super::{block_size, default};
use crate::contraction::{AxisId, Contraction};
use crate::knob_space::Knob;
use autotune_ir::target::CpuTarget;

/// Register tiles along axes that are not vectorised: small ones for any axis, large ones for all
/// but the height of images.
const SMALL_TILES: std::ops::RangeInclusive<usize> = 1..=8;
const LARGE_TILES: [usize; 9] = [9, 10, 12, 13, 14, 16, 20, 24, 28];

/// Further register tiles along rows for tile instructions: those of one and two tiles.
const TILED_ROWS: [usize; 4] = [18, 26, 30, 32];

/// Maximum numbers of reduction steps in one straight-line body.
pub(crate) const UNROLLS: [&str; 5] = ["1", "2", "4", "8", "16"];

/// Returns every knob of the sketch with its values, for one workload and target.
pub(super) fn knobs(roles: &Roles, target: &CpuTarget) -> Vec<Knob> {
    let contraction = &roles.contraction;
    let [input_blocks, output_blocks] = roles.blockable(block_size(target));
    let vectors = roles.vectors(target);
    let layouts =
        |name: &str, blocks: bool| Knob::choice(name, if blocks { &["plain", "blocked"] } else { &["plain"] });

    // Only vectors along the width read data vectors, so only they gain from another layout of a
    // copy.
    let copies = vectors.len() > 1;
    let mut knobs = vec![Knob::choice("data", &data_modes(roles, target))];
    if !roles.is_product() {
        knobs.push(layouts("layout.in", input_blocks));
        knobs.push(layouts("layout.out", output_blocks));
    }
    if copies {
        knobs.push(layouts("layout.data", input_blocks));
    }

    knobs.push(weights(contraction));
    let names: Vec<&str> = vectors.iter().map(|&axis| roles.name(axis)).collect();
    knobs.push(Knob::choice("vector", &names));
    for &axis in &roles.spatial {
        let mut registers = register_tiles(roles, axis, &vectors, target.lanes());
        if roles.tile(target).is_some() && roles.is_row(axis) {
            registers.extend(TILED_ROWS.into_iter().filter(|&rows| rows <= roles.extent(axis)));
        }
        // Products that stream a matrix divide its columns among the threads.
        let is_shared = axis == roles.channel && default::streams(roles, target);
        let tiles = spatial_tiles(roles.extent(axis), &registers, if is_shared { target.threads } else { 1 });
        knobs.push(Knob::tile(&format!("tile.{}", roles.name(axis)), tiles));
    }
    let chunks = |step| Knob::tile(&format!("tile.{}", roles.name(step)), reduce_tiles(roles.extent(step)));
    knobs.extend(roles.step.map(chunks));

    let names = LoopNames::of(roles, input_blocks);
    let orders = [("order", &names.cache), ("order.inner", &names.spatial), ("order.reduce", &names.reduce)];
    knobs.extend(orders.into_iter().filter(|(_, axes)| !axes.is_empty()).map(|(name, axes)| Knob::order(name, axes)));
    if roles.tile(target).is_some() {
        knobs.push(Knob::choice("instruction", &["vector", "tile"]).optional());
    }
    knobs.push(Knob::choice("unroll", &UNROLLS));
    if default::streams(roles, target) {
        knobs.push(Knob::choice("prefetch", &["0", "1"]).optional());
    }
    let parallel: &[&str] = if target.threads > 1 { &["1", "2", "3"] } else { &["1"] };
    knobs.push(Knob::choice("parallel", &parallel[..parallel.len().min(names.spatial.len().max(1))]));
    knobs
}

/// Returns the data modes of a workload. With vectors along the channels, each load of data is a
/// single element, and a copy does not help. It helps if a prologue computes the copied elements,
/// or if it makes the steps of dot products adjacent.
pub(crate) fn data_modes(roles: &Roles, target: &CpuTarget) -> Vec<&'static str> {
    let (contraction, copies) = (&roles.contraction, roles.vectors(target).len() > 1);
    let has_dot = roles.dot(target).is_some();
    let panel = (panels_pay(roles, copies) || has_dot).then_some("panel");
    if contraction.prologue().is_some() {
        return ["copy", "tile"].into_iter().chain(panel).collect();
    }

    let mut data = vec!["inplace"];
    let pays = copies && (contraction.is_padded() || roles.blockable(block_size(target))[0]);
    let is_split = roles.splits() && roles.tile(target).is_some();
    data.extend((pays || pads_far(contraction) || is_split && roles.is_product()).then_some("copy"));
    data.extend((copies || roles.is_product() || roles.widens(target) || has_dot || is_split).then_some("tile"));
    data.extend(panel);
    data
}

/// Returns the knob for reading weights. Constant weights are packed ahead of time at no cost.
/// Weights that are read out of bounds must be packed, because packing writes the zeros.
pub(crate) fn weights(contraction: &Contraction) -> Knob {
    let is_packed = contraction.weight_is_constant || !contraction.axes_beyond_weights().is_empty();
    let ways = if is_packed { &["packed"][..] } else { &["packed", "inplace"][..] };
    Knob::choice("weights", ways)
}

/// True if some schedule may use panels: products with many columns, and strided convolutions that
/// may be vectorised along the width.
fn panels_pay(roles: &Roles, copies: bool) -> bool {
    let is_strided = |axis: AxisId| roles.axes.windows.iter().any(|window| window.row == axis && window.stride > 1);
    match roles.is_product() {
        true => roles.columns() >= MIN_PANEL_COLUMNS,
        false => copies && roles.width.is_some_and(is_strided) && roles.columns() >= MIN_PANEL_CHANNELS,
    }
}

/// Returns the register tiles of an axis: whole vectors or the whole axis if vectors may run along
/// it, small numbers of elements if vectors may run along another axis.
pub(crate) fn register_tiles(roles: &Roles, axis: AxisId, vectors: &[AxisId], lanes: usize) -> Vec<usize> {
    let extent = roles.extent(axis);
    let mut tiles = Vec::new();
    if vectors.contains(&axis) {
        tiles.extend([1, 2, 3, 4].map(|v| v * lanes));
        tiles.extend((extent <= 4 * lanes).then_some(extent));
    }
    if vectors != [axis] {
        // Rows of images are written out with their padding taps, so tall tiles would be too much
        // code.
        let is_height = roles.axes.is_windowed(axis) && roles.width != Some(axis);
        tiles.extend(SMALL_TILES);
        tiles.extend(LARGE_TILES.into_iter().filter(|_| !is_height));
    }
    tiles.retain(|&t| t <= extent);
    tiles.sort_unstable();
    tiles.dedup();
    tiles
}

/// Returns pairs `[cache tile, register tile]`. The cache tile is a multiple of the register tile,
/// and covers the whole axis, one of `parts` equal parts, or less.
fn spatial_tiles(extent: usize, registers: &[usize], parts: usize) -> Vec<Vec<usize>> {
    let mut tiles = Vec::new();
    for &register in registers {
        let whole = extent.div_ceil(register);
        let mut counts = vec![1, 2, 3, 4, 6, 8, 12, 16, 32, 64, whole.div_ceil(parts), whole];
        counts.retain(|&m| m <= whole);
        counts.sort_unstable();
        counts.dedup();
        tiles.extend(counts.into_iter().map(|m| vec![m * register, register]));
    }
    tiles
}

/// Returns values `[chunk]` of the tiled reduction axis; the last one covers the whole axis.
pub(crate) fn reduce_tiles(extent: usize) -> Vec<Vec<usize>> {
    let chunks = [4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048];
    chunks.into_iter().filter(|&c| c < extent).chain([extent]).map(|c| vec![c]).collect()
}
