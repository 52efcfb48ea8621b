//! What may be chosen in the direct sketch.

use super::roles::{LoopNames, Roles};
use super::rules::{MIN_PANEL_CHANNELS, MIN_PANEL_COLUMNS, pads_far};
use super::{block_size, default};
use crate::contraction::{AxisId, Contraction};
use crate::knob_space::Knob;
use autotune_ir::target::CpuTarget;

/// Register tiles that vectors do not run along: the small ones of any axis, and the others.
const SMALL_TILES: std::ops::RangeInclusive<usize> = 1..=8;
const LARGE_TILES: [usize; 9] = [9, 10, 12, 13, 14, 16, 20, 24, 28];

/// Reduction steps in one straight-line body.
pub(crate) const UNROLLS: [&str; 5] = ["1", "2", "4", "8", "16"];

/// Every knob of the sketch with its values, for one workload and target.
pub(super) fn knobs(roles: &Roles, target: &CpuTarget) -> Vec<Knob> {
    let contraction = &roles.contraction;
    let [input_blocks, output_blocks] = roles.blockable(block_size(target));
    let vectors = roles.vectors(target);
    let layouts =
        |name: &str, blocks: bool| Knob::choice(name, if blocks { &["plain", "blocked"] } else { &["plain"] });

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
        let registers = register_tiles(roles, axis, &vectors, target.lanes());
        let is_shared = axis == roles.channel && default::streams(roles, target);
        let tiles = spatial_tiles(roles.extent(axis), &registers, if is_shared { target.threads } else { 1 });
        knobs.push(Knob::tile(&format!("tile.{}", roles.name(axis)), tiles));
    }
    let chunks = |step| Knob::tile(&format!("tile.{}", roles.name(step)), reduce_tiles(roles.extent(step)));
    knobs.extend(roles.step.map(chunks));

    let names = LoopNames::of(roles, input_blocks);
    let orders = [("order", &names.cache), ("order.inner", &names.spatial), ("order.reduce", &names.reduce)];
    knobs.extend(orders.into_iter().filter(|(_, axes)| !axes.is_empty()).map(|(name, axes)| Knob::order(name, axes)));
    knobs.push(Knob::choice("unroll", &UNROLLS));
    if default::streams(roles, target) {
        knobs.push(Knob::choice("prefetch", &["0", "1"]).optional());
    }
    let parallel: &[&str] = if target.threads > 1 { &["1", "2", "3"] } else { &["1"] };
    knobs.push(Knob::choice("parallel", &parallel[..parallel.len().min(names.spatial.len().max(1))]));
    knobs
}

/// Ways of reading the data. Vectors along the channels read single elements of it, for which a
/// copy is no better, unless a prologue makes what is copied, or it has the steps of dot products
/// side by side.
pub(crate) fn data_modes(roles: &Roles, target: &CpuTarget) -> Vec<&'static str> {
    let (contraction, copies) = (&roles.contraction, roles.vectors(target).len() > 1);
    let has_dot = roles.dot(target).is_some();
    let panel = (panels_pay(roles, copies) || has_dot).then_some("panel");
    if contraction.prologue().is_some() {
        return ["copy", "tile"].into_iter().chain(panel).collect();
    }

    let mut data = vec!["inplace"];
    let pays = copies && (contraction.is_padded() || roles.blockable(block_size(target))[0]);
    data.extend((pays || pads_far(contraction)).then_some("copy"));
    data.extend((copies || roles.is_product() || roles.widens(target) || has_dot).then_some("tile"));
    data.extend(panel);
    data
}

/// Ways of reading the weights: constant ones are packed for nothing, and those that are read
/// beyond their ends have zeros there when they are packed.
pub(crate) fn weights(contraction: &Contraction) -> Knob {
    let is_packed = contraction.weight_is_constant || !contraction.axes_beyond_weights().is_empty();
    let ways = if is_packed { &["packed"][..] } else { &["packed", "inplace"][..] };
    Knob::choice("weights", ways)
}

/// Whether some schedule may have panels: of matrices with many columns, and of strided
/// convolutions that vectors may run along the width of.
fn panels_pay(roles: &Roles, copies: bool) -> bool {
    let is_strided = |axis: AxisId| roles.axes.windows.iter().any(|window| window.row == axis && window.stride > 1);
    match roles.is_product() {
        true => roles.columns() >= MIN_PANEL_COLUMNS,
        false => copies && roles.width.is_some_and(is_strided) && roles.columns() >= MIN_PANEL_CHANNELS,
    }
}

/// Register tiles of an axis: whole vectors or the whole axis where the vector may run along it,
/// single elements where it may run along another.
pub(crate) fn register_tiles(roles: &Roles, axis: AxisId, vectors: &[AxisId], lanes: usize) -> Vec<usize> {
    let extent = roles.extent(axis);
    let mut tiles = Vec::new();
    if vectors.contains(&axis) {
        tiles.extend([1, 2, 3, 4].map(|v| v * lanes));
        tiles.extend((extent <= 4 * lanes).then_some(extent));
    }
    if vectors != [axis] {
        let is_height = roles.axes.is_windowed(axis) && roles.width != Some(axis);
        tiles.extend(SMALL_TILES);
        tiles.extend(LARGE_TILES.into_iter().filter(|_| !is_height));
    }
    tiles.retain(|&t| t <= extent);
    tiles.sort_unstable();
    tiles.dedup();
    tiles
}

/// `[cache tile, register tile]` values: the cache tile is a multiple of the register tile, or
/// covers the whole axis, or one of `parts` equal parts of it.
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

/// `[chunk]` values of the tiled reduction axis; the last covers it whole.
pub(crate) fn reduce_tiles(extent: usize) -> Vec<Vec<usize>> {
    let chunks = [4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048];
    chunks.into_iter().filter(|&c| c < extent).chain([extent]).map(|c| vec![c]).collect()
}
