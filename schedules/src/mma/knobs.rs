//! What may be chosen in the sketches for tensor cores.

use super::{COPY_BYTES, sizes, weight_choices};
use crate::knob_space::Knob;
use crate::workload::Workload;
use autotune_ir::instruction::{BOX_ROW_BYTES, ThreadGroup};

/// Every knob of the sketch for a team with its values.
pub(super) fn knobs(workload: &Workload, by: ThreadGroup) -> Vec<Knob> {
    let [rows, columns, steps] = sizes(workload);
    let bytes = workload.dtype().bytes();
    let of_team = match by {
        ThreadGroup::Warp => {
            // Rows of a chunk of 32, 64 or 128 bytes.
            let chunks = [1, 2, 4].map(|n| vec![2 * COPY_BYTES / bytes * n]);
            let fits = |chunk: &&Vec<usize>| chunk[0] < 2 * steps || chunk[0] == chunks[0][0];
            vec![
                Knob::tile("tile.m", tiles(rows)),
                Knob::tile("tile.n", tiles(columns)),
                Knob::tile("tile.k", chunks.iter().filter(fits).cloned().collect()),
                Knob::choice("weights", weight_choices(workload)),
                Knob::choice("stages", &["2", "3", "4", "5"]),
            ]
        }
        ThreadGroup::WarpGroup => {
            let tiles = [[64, 64], [128, 64], [128, 128], [192, 64], [256, 64], [256, 128]];
            let fits = |tile: &&[usize; 2]| tile[0] == 64 || tile[0] < 2 * rows.next_multiple_of(64);
            let widths = (1..=16).map(|n| 16 * n).filter(|&n| n == 16 || n < 2 * columns.next_multiple_of(16));
            vec![
                Knob::tile("tile.m", tiles.iter().filter(fits).map(|tile| tile.to_vec()).collect()),
                Knob::tile("tile.n", widths.map(|n| vec![n, n]).collect()),
                Knob::tile("tile.k", vec![vec![BOX_ROW_BYTES / bytes]]),
                Knob::choice("weights", &["packed"]),
                Knob::choice("stages", &["3", "4", "5", "6", "8"]),
                Knob::choice("producer", &["inline", "group"]),
                Knob::choice("grid", &["tiles", "persistent"]),
            ]
        }
    };
    let of_both = [
        Knob::choice("raster", &["1", "2", "4", "8", "16", "all"]),
        Knob::choice("split", &["1", "2", "3", "4", "6", "8", "16"]),
    ];
    of_team.into_iter().chain(of_both).collect()
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
