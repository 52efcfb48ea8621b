//! Knobs of two fused contractions on CPUs.

use autotune_ir::target::CpuTarget;

use super::pair::Pair;
use super::part::PARTS;
use crate::direct::block_size;
use crate::direct::knobs::{UNROLLS, data_modes, reduce_tiles, register_tiles, weights};
use crate::direct::roles::Roles;
use crate::knob_space::Knob;

/// Tile sizes of rows that are offered besides the whole row.
const ROW_TILES: [usize; 22] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 42, 48, 56, 64, 96];

/// Returns all knobs with their values, for one workload and target.
pub(super) fn knobs(pair: &Pair, target: &CpuTarget) -> Vec<Knob> {
    let Pair { first, second, rows, step, .. } = pair;
    let mut knobs = vec![Knob::choice("between", &["tile", "whole"])];
    let layouts =
        |name: &str, blocks: bool| Knob::choice(name, if blocks { &["plain", "blocked"] } else { &["plain"] });
    let blocks = pair.blockable(block_size(target));
    if !first.is_product() {
        let named = ["layout.in", "layout.between", "layout.out"].into_iter().zip(blocks);
        knobs.extend(named.map(|(name, blocks)| layouts(name, blocks)));
    }

    let names: Vec<&str> = rows.iter().map(|row| second.name(row[1])).collect();
    for (row, name) in rows.iter().zip(&names) {
        knobs.push(Knob::tile(&format!("tile.{name}"), row_tiles(second.extent(row[1]))));
    }
    knobs.push(Knob::tile(&format!("tile.{}", second.name(*step)), reduce_tiles(second.extent(*step))));
    knobs.extend((rows.len() > 1).then(|| Knob::order("order", &names)));

    let data = data_modes(first, target);
    let copies = data.len() > 1 && !first.is_product();
    let mut own = vec![Knob::choice("data", &data)];
    own.extend(copies.then(|| layouts("layout.data", blocks[0])));
    let steps = first.step.filter(|&step| first.extent(step) > 1);
    own.extend(steps.map(|step| Knob::tile(&format!("tile.{}", first.name(step)), reduce_tiles(first.extent(step)))));
    own.extend(of_part(first, target));
    for (name, part) in PARTS.into_iter().zip([own, of_part(second, target)]) {
        knobs.extend(part.into_iter().map(|knob| Knob { name: format!("{name}.{}", knob.name), ..knob }));
    }
    knobs
}

/// Returns the knobs that either contraction has.
fn of_part(roles: &Roles, target: &CpuTarget) -> Vec<Knob> {
    let vectors = roles.vectors(target);
    let names: Vec<&str> = vectors.iter().map(|&axis| roles.name(axis)).collect();
    let mut knobs = vec![weights(&roles.contraction), Knob::choice("vector", &names)];
    let several = || roles.spatial.iter().copied().filter(|&axis| roles.extent(axis) > 1);
    for axis in several() {
        let tiles = register_tiles(roles, axis, &vectors, target.lanes());
        let tiles = tiles.into_iter().map(|tile| vec![tile]).collect();
        knobs.push(Knob::tile(&format!("tile.{}", roles.name(axis)), tiles));
    }
    let spatial: Vec<&str> = several().map(|axis| roles.name(axis)).collect();
    knobs.extend((!spatial.is_empty()).then(|| Knob::order("order.inner", &spatial)));
    knobs.push(Knob::choice("unroll", &UNROLLS));
    knobs
}

fn row_tiles(extent: usize) -> Vec<Vec<usize>> {
    ROW_TILES.into_iter().filter(|&tile| tile < extent).chain([extent]).map(|tile| vec![tile]).collect()
}
