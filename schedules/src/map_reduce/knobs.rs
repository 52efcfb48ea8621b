//! What may be chosen.

use autotune_ir::program::Access;
use autotune_ir::spec::{AxisId, Equation, Spec};
use autotune_ir::target::CpuTarget;
use autotune_ir::{Affine, VarId};

use crate::knob_space::Knob;

/// Loops whose order is chosen, the innermost ones.
const ORDERED: usize = 4;
/// Tiles that vectors do not run along.
const TILES: [usize; 4] = [1, 2, 4, 8];

/// Axes of the result that have tiles.
pub(super) fn tiled(main: &Equation) -> impl Iterator<Item = AxisId> {
    (0..main.axes.len()).filter(|&axis| !main.axes[axis].reduce && main.axes[axis].extent > 1)
}

/// Axes of the result whose order is chosen, or those around them.
pub(super) fn ordered(main: &Equation, is_chosen: bool) -> Vec<AxisId> {
    let mut chosen: Vec<AxisId> = tiled(main).collect();
    chosen.drain(..chosen.len().saturating_sub(ORDERED));
    let spatial = (0..main.axes.len()).filter(|&axis| !main.axes[axis].reduce);
    spatial.filter(|axis| chosen.contains(axis) == is_chosen).collect()
}

/// Axes that vectors may run along: those along which something is contiguous, of more than one position.
pub(super) fn vectors(spec: &Spec) -> Vec<AxisId> {
    let main = spec.main();
    let is_contiguous = |access: &Access, axis: AxisId| {
        let stride = |index: Option<&Affine>| index.map_or(0, |index| index.coefficient(VarId(axis as u32)));
        stride(access.index.last()) == 1
    };
    let loads = main.loads();
    let is_vector = |axis: &AxisId| {
        let contiguous = loads.iter().any(|access| is_contiguous(access, *axis));
        main.axes[*axis].extent > 1 && (contiguous || !main.axes[*axis].reduce && is_contiguous(&main.output, *axis))
    };
    let mut vectors: Vec<AxisId> = (0..main.axes.len()).filter(is_vector).collect();
    if vectors.is_empty() {
        // Of one position, or of what is scattered.
        vectors.extend(tiled(main).last().or((!main.axes.is_empty()).then_some(0)));
    }
    vectors
}

/// Every knob with its values.
pub(super) fn knobs(spec: &Spec, target: &CpuTarget) -> Vec<Knob> {
    let (main, lanes) = (spec.main(), target.lanes());
    let name = |axis: AxisId| main.axes[axis].name;
    let vectors = vectors(spec);
    let names: Vec<&str> = vectors.iter().map(|&axis| name(axis)).collect();
    let mut knobs = vec![Knob::choice("vector", &names)];
    for axis in tiled(main) {
        let extent = main.axes[axis].extent;
        let mut tiles = TILES.to_vec();
        if vectors.contains(&axis) {
            tiles.extend([lanes, 2 * lanes, 4 * lanes, 8 * lanes]);
            tiles.extend((extent < lanes).then_some(extent));
        }
        tiles.retain(|&tile| tile <= extent);
        tiles.sort_unstable();
        tiles.dedup();
        knobs.push(Knob::tile(&format!("tile.{}", name(axis)), tiles.into_iter().map(|tile| vec![tile]).collect()));
    }

    let order: Vec<&str> = ordered(main, true).into_iter().map(name).collect();
    knobs.extend((!order.is_empty()).then(|| Knob::order("order", &order)));
    let unroll: &[&str] = if main.reduces() { &["1", "2", "4", "8", "16"] } else { &["1"] };
    knobs.push(Knob::choice("unroll", unroll));
    let parallel: &[&str] = if target.threads > 1 { &["1", "2", "3"] } else { &["1"] };
    knobs.push(Knob::choice("parallel", parallel));
    knobs
}
