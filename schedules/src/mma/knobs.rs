//! What may be chosen in the sketches for tensor cores.

use super::{COPY_BYTES, Gemm};
use crate::space::Knob;
use crate::workload::Workload;
use autotune_ir::program::{BOX_ROW_BYTES, Team, WarpTile};
use autotune_ir::target::GpuTarget;

/// Every knob of the sketch with its values; none for workloads that it is not for.
pub(super) fn knobs(workload: &Workload, target: &GpuTarget) -> Option<Vec<Knob>> {
    let steps = WarpTile::steps(workload.dtype).filter(|_| super::is_for(workload, target, Team::Warp))?;
    let gemm = Gemm::new(workload, false);
    // Rows of a chunk of 32, 64 or 128 bytes.
    let chunks = [1, 2, 4].map(|n| vec![2 * COPY_BYTES / workload.dtype.bytes() * n]);
    debug_assert!(chunks.iter().all(|chunk| chunk[0].is_multiple_of(steps)));
    let fits = |chunk: &Vec<usize>| chunk[0] < 2 * gemm.steps.extent || chunk[0] == chunks[0][0];
    Some(vec![
        Knob::tile("tile.m", tiles(gemm.rows.extent)),
        Knob::tile("tile.n", tiles(gemm.columns.extent)),
        Knob::tile("tile.k", chunks.iter().filter(|chunk| fits(chunk)).cloned().collect()),
        Knob::choice("weights", Gemm::weight_choices(workload)),
        Knob::choice("stages", &["2", "3", "4", "5"]),
        Knob::choice("raster", &["1", "2", "4", "8", "16", "all"]),
        Knob::choice("split", &["1", "2", "3", "4", "6", "8", "16"]),
    ])
}

/// Every knob of the sketch for warp groups with its values; none for workloads that it is not for.
pub(super) fn group_knobs(workload: &Workload, target: &GpuTarget) -> Option<Vec<Knob>> {
    let gemm = Gemm::new(workload, true);
    if !super::is_for(workload, target, Team::WarpGroup) {
        return None;
    }
    let rows = [[64, 64], [128, 64], [128, 128], [192, 64], [256, 64], [256, 128]];
    let fits = |tile: &[usize; 2]| tile[0] == 64 || tile[0] < 2 * gemm.rows.extent.next_multiple_of(64);
    let columns = (1..=16).map(|n| 16 * n).filter(|&n| n == 16 || n < 2 * gemm.columns.extent.next_multiple_of(16));
    let chunk = BOX_ROW_BYTES / workload.dtype.bytes();
    Some(vec![
        Knob::tile("tile.m", rows.iter().filter(|tile| fits(tile)).map(|tile| tile.to_vec()).collect()),
        Knob::tile("tile.n", columns.map(|n| vec![n, n]).collect()),
        Knob::tile("tile.k", vec![vec![chunk]]),
        Knob::choice("weights", &["packed"]),
        Knob::choice("stages", &["3", "4", "5", "6", "8"]),
        Knob::choice("producer", &["inline", "group"]),
        Knob::choice("grid", &["tiles", "persistent"]),
        Knob::choice("raster", &["1", "2", "4", "8", "16", "all"]),
        Knob::choice("split", &["1", "2", "3", "4", "6", "8", "16"]),
    ])
}

/// `[block, warp]` values: one to eight warps, and no block that is half outside but for the smallest.
fn tiles(extent: usize) -> Vec<Vec<usize>> {
    let blocks = [16, 32, 64, 96, 128, 192, 256].into_iter();
    let blocks = blocks.filter(|&block| block == 16 || block < 2 * extent.next_multiple_of(16));
    let warps = |block: usize| {
        let warps = [16, 32, 48, 64, 96, 128].into_iter();
        warps.filter(move |warp| block.is_multiple_of(*warp) && block / warp <= 8).map(move |warp| vec![block, warp])
    };
    blocks.flat_map(warps).collect()
}
