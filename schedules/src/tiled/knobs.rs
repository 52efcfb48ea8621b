//! What may be chosen in the sketches of tiles.

use super::pixels::Pixels;
use super::{Form, Roles, can_pack, extent, rules, weight_source};
use crate::contraction::{Contraction, Operand};
use crate::space::Knob;
use crate::workload::Workload;
use autotune_ir::target::GpuTarget;

/// Every knob with its values, for one workload in a form; none if it has not that form.
pub(super) fn knobs(workload: &Workload, target: &GpuTarget, form: Form) -> Option<Vec<Knob>> {
    let (contraction, pixels) = form.of(workload)?;
    let roles = Roles::of(workload, &contraction);
    Some(knobs_of(&contraction, &roles, pixels.as_ref(), target))
}

/// The knobs for a contraction.
pub(crate) fn knobs_of(
    contraction: &Contraction,
    roles: &Roles,
    pixels: Option<&Pixels>,
    target: &GpuTarget,
) -> Vec<Knob> {
    let mut knobs = Vec::new();
    for name in &roles.spatial {
        knobs.push(Knob::tile(&format!("tile.{name}"), spatial_tiles(extent(contraction, name), target)));
    }
    for name in roles.reduce.iter().filter(|n| extent(contraction, n) > 1) {
        let whole = extent(contraction, name);
        let chunks = if *name == roles.long() { long_chunks(whole) } else { vec![vec![1], vec![whole]] };
        knobs.push(Knob::tile(&format!("tile.{name}"), chunks));
    }
    if !roles.spatial.is_empty() {
        knobs.push(Knob::order("order", &roles.spatial));
    }
    knobs.push(Knob::choice("weights", if can_pack(contraction) { &["packed", "inplace"] } else { &["inplace"] }));
    let packed = weight_source(contraction, can_pack(contraction));
    let weights = [&contraction.weight, &packed].map(widest).into_iter().max().unwrap_or(1);
    let data = pixels.map_or_else(|| widest(&contraction.data), |pixels| pixels.vector);
    knobs.push(Knob::choice("vector.data", vectors(data)));
    knobs.push(Knob::choice("vector.weight", vectors(weights)));
    knobs.push(Knob::choice("pad", &["0", "2", "4"]));
    knobs.push(Knob::choice("stages", &["1", "2"]));
    knobs.push(Knob::choice("unroll", &["1", "2", "4", "8", "16", "32", "64"]));
    let splits: &[&str] =
        if roles.reduce.iter().any(|n| extent(contraction, n) > 1) { &["1", "2", "4", "8", "16"] } else { &["1"] };
    knobs.push(Knob::choice("split", splits));
    knobs
}

/// The widest aligned copy of whole rows.
fn widest(operand: &Operand) -> usize {
    match (operand.index.last(), operand.shape.last()) {
        (Some(index), Some(&row)) => rules::widest(index, row),
        _ => 1,
    }
}

fn vectors(widest: usize) -> &'static [&'static str] {
    match widest {
        4 => &["1", "2", "4"],
        2 => &["1", "2"],
        _ => &["1"],
    }
}

/// `[block, strand, register]` values: threads are powers of two or divide the axis, and no block is wholly outside.
fn spatial_tiles(extent: usize, target: &GpuTarget) -> Vec<Vec<usize>> {
    let most_threads = target.threads_per_block.min(extent.next_power_of_two()).min(256);
    let threads = (1..=most_threads).filter(|&t| t.is_power_of_two() || (t <= 64 && extent.is_multiple_of(t)));
    let registers = (1..=8).filter(|&r| [1, 2, 4, 8].contains(&r) || extent.is_multiple_of(r));
    let mut tiles = Vec::new();
    for register in registers {
        for threads in threads.clone() {
            let strand = threads * register;
            let fits = |strands: usize| strands * strand < 2 * extent.max(1);
            tiles.extend([1, 2, 4].into_iter().filter(|&s| fits(s)).map(|s| vec![s * strand, strand, register]));
        }
    }
    tiles
}

/// `[chunk]` values of the long reduction axis.
fn long_chunks(extent: usize) -> Vec<Vec<usize>> {
    let chunks = [1, 2, 4, 8, 16, 32, 64];
    let some = chunks.into_iter().filter(|&c| c < extent).chain((extent <= 64).then_some(extent));
    some.map(|c| vec![c]).collect()
}
