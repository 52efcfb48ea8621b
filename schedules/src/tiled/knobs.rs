//! What may be chosen in the sketches of tiles.

use crate::contraction::Operand;
use crate::gpu::AxisRoles;
use crate::knob_space::Knob;
use autotune_ir::target::GpuTarget;

/// Every knob with its values.
pub(crate) fn knobs_of(roles: &AxisRoles, target: &GpuTarget) -> Vec<Knob> {
    let tile = |axis: usize, values| Knob::tile(&format!("tile.{}", roles.name(axis)), values);
    let mut knobs: Vec<Knob> =
        roles.spatial.iter().map(|&axis| tile(axis, spatial_tiles(roles.extent(axis), target))).collect();
    let reduce: Vec<usize> = roles.reduce.iter().copied().filter(|&axis| roles.extent(axis) > 1).collect();
    for &axis in &reduce {
        let whole = roles.extent(axis);
        let is_long = roles.reduce.last() == Some(&axis);
        knobs.push(tile(axis, if is_long { long_chunks(whole) } else { vec![vec![1], vec![whole]] }));
    }
    if !roles.spatial.is_empty() {
        let names: Vec<&str> = roles.spatial.iter().map(|&axis| roles.name(axis)).collect();
        knobs.push(Knob::order("order", &names));
    }

    let (weight, packing) = (&roles.contraction.weight, roles.packing());
    let weights = packing.as_ref().map_or(1, |packing| widest(&packing.packed(weight))).max(widest(weight));
    let data = roles.pixels.as_ref().map_or_else(|| widest(&roles.contraction.data), |pixels| pixels.vector);
    knobs.push(Knob::choice("weights", if packing.is_some() { &["packed", "inplace"] } else { &["inplace"] }));
    knobs.push(Knob::choice("vector.data", vectors(data)));
    knobs.push(Knob::choice("vector.weight", vectors(weights)));
    knobs.push(Knob::choice("pad", &["0", "2", "4"]));
    knobs.push(Knob::choice("stages", &["1", "2"]));
    knobs.push(Knob::choice("unroll", &["1", "2", "4", "8", "16", "32", "64"]));
    knobs.push(Knob::choice("split", if reduce.is_empty() { &["1"] } else { &["1", "2", "4", "8", "16"] }));
    knobs
}

/// The widest aligned copy of whole rows.
fn widest(operand: &Operand) -> usize {
    let (Some(index), Some(&row)) = (operand.index.last(), operand.shape.last()) else { return 1 };
    let is_aligned = |w: &usize| row.is_multiple_of(*w) && (index.constant.unsigned_abs() as usize).is_multiple_of(*w);
    [4, 2].into_iter().find(is_aligned).unwrap_or(1)
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
