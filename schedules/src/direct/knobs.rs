//! What may be chosen in the direct sketch.

use super::rules::{MIN_PANEL_CHANNELS, MIN_PANEL_COLUMNS, pads_far};
use super::{LoopNames, Roles, block_size, blockable, extent};
use crate::contraction::Contraction;
use crate::knob_space::Knob;
use crate::workload::{Known, Workload};
use autotune_ir::target::CpuTarget;

/// Every knob of the sketch with its values, for one workload and target.
pub(super) fn knobs(workload: &Workload, target: &CpuTarget) -> Vec<Knob> {
    let contraction = Contraction::of(workload);
    let roles = Roles::of(workload);
    let (input_blocks, output_blocks) = blockable(workload, block_size(target));
    let vectors = vectors(workload, target);
    let layouts =
        |name: &str, blocks: bool| Knob::choice(name, if blocks { &["plain", "blocked"] } else { &["plain"] });
    // Vectors along the channels read single elements of the data, for which a copy is no better.
    let is_matmul = matches!(workload.known(), Known::Matmul(_));
    let copies = !is_matmul && vectors.len() > 1;
    let mut data = vec!["inplace"];
    let pays = copies && (contraction.is_padded() || input_blocks);
    data.extend((pays || pads_far(&contraction)).then_some("copy"));
    data.extend((copies || is_matmul).then_some("tile"));
    data.extend(panels_pay(workload, copies).then_some("panel"));
    let mut knobs = vec![Knob::choice("data", &data)];
    if !is_matmul {
        knobs.push(layouts("layout.in", input_blocks));
        knobs.push(layouts("layout.out", output_blocks));
    }
    if copies {
        knobs.push(layouts("layout.data", input_blocks));
    }
    // Constant weights are packed for nothing.
    let weights = if contraction.weight_is_constant { &["packed"][..] } else { &["packed", "inplace"][..] };
    knobs.push(Knob::choice("weights", weights));
    knobs.push(Knob::choice("vector", &vectors));
    for name in &roles.spatial {
        let extent = extent(&contraction, name);
        let registers = register_tiles(extent, name, &vectors, target.lanes());
        knobs.push(Knob::tile(&format!("tile.{name}"), spatial_tiles(extent, &registers)));
    }
    knobs.push(Knob::tile(&format!("tile.{}", roles.reduce), reduce_tiles(extent(&contraction, roles.reduce))));
    let names = LoopNames::of(&roles, &contraction, input_blocks);
    let orders = [("order", &names.cache), ("order.inner", &names.spatial), ("order.reduce", &names.reduce)];
    knobs.extend(orders.into_iter().filter(|(_, axes)| !axes.is_empty()).map(|(name, axes)| Knob::order(name, axes)));
    knobs.push(Knob::choice("unroll", &["1", "2", "4", "8", "16"]));
    let parallel: &[&str] = if target.threads > 1 { &["1", "2", "3"] } else { &["1"] };
    knobs.push(Knob::choice("parallel", &parallel[..parallel.len().min(names.spatial.len().max(1))]));
    knobs
}

/// Whether some schedule may have panels: of matrices with many columns, and of strided convolutions that vectors may run along
/// the width of.
fn panels_pay(workload: &Workload, copies: bool) -> bool {
    match workload.known() {
        Known::Matmul(m) => m.n >= MIN_PANEL_COLUMNS,
        Known::Conv2d(c) => copies && c.stride[1] > 1 && c.o / c.groups >= MIN_PANEL_CHANNELS,
    }
}

/// Axes that vectors may run along: the channels; the width, too, where the channels are not whole vectors or the input has no
/// lanes that go with them.
pub(super) fn vectors(workload: &Workload, target: &CpuTarget) -> Vec<&'static str> {
    let roles = Roles::of(workload);
    let whole = extent(&Contraction::of(workload), roles.channel).is_multiple_of(target.lanes());
    let lanes_match = roles.channel != "g" || blockable(workload, block_size(target)).0;
    let width = roles.width.filter(|_| !whole || !lanes_match);
    [Some(roles.channel), width].into_iter().flatten().collect()
}

/// Register tiles of an axis: whole vectors or the whole axis where the vector may run along it, single elements where it may
/// run along another.
fn register_tiles(extent: usize, name: &str, vectors: &[&str], lanes: usize) -> Vec<usize> {
    let mut tiles = Vec::new();
    if vectors.contains(&name) {
        tiles.extend([1, 2, 3, 4].map(|v| v * lanes));
        tiles.extend((extent <= 4 * lanes).then_some(extent));
    }
    if vectors != [name] {
        tiles.extend(1..=8);
        tiles.extend(if name == "oh" { &[][..] } else { &[9, 10, 12, 13, 14, 16, 20, 24, 28][..] });
    }
    tiles.retain(|&t| t <= extent);
    tiles.sort_unstable();
    tiles.dedup();
    tiles
}

/// `[cache tile, register tile]` values: the cache tile is a multiple of the register tile, or covers the whole axis.
fn spatial_tiles(extent: usize, registers: &[usize]) -> Vec<Vec<usize>> {
    let mut tiles = Vec::new();
    for &register in registers {
        let whole = extent.div_ceil(register);
        let counts = [1, 2, 3, 4, 6, 8, 12, 16, 32, 64].into_iter().filter(|&m| m < whole);
        tiles.extend(counts.chain([whole]).map(|m| vec![m * register, register]));
    }
    tiles
}

/// `[chunk]` values of the tiled reduction axis; the last covers it whole.
fn reduce_tiles(extent: usize) -> Vec<Vec<usize>> {
    let chunks = [4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048];
    chunks.into_iter().filter(|&c| c < extent).chain([extent]).map(|c| vec![c]).collect()
}
