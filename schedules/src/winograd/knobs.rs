//! Knobs of the Winograd sketch on a CPU.

use super::conv::WinogradConv;
use super::{INPUT_KNOB, TILE_SIZE_KNOB, conv_on};
use crate::direct::block_size;
use crate::knob_space::Knob;
use autotune_ir::target::CpuTarget;
use autotune_workloads::Workload;

/// Numbers of tiles, channel blocks and the like that knobs offer, except for the whole.
const COUNTS: [usize; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32];

/// Prefetch distances in bytes. Products of few tiles read each weight once, and hardware
/// prefetching stops at page boundaries.
const PREFETCHES: [&str; 2] = ["0", "8192"];
/// Numbers of reduction steps in one straight-line body. Even with one step, the overhead of the
/// loop is negligible next to its multiply-adds.
const UNROLLS: [&str; 2] = ["1", "4"];

/// Minimum number of accumulators to hide the latency of multiply-adds.
const MIN_ACCUMULATORS: usize = 8;
/// Outputs of an image below which it may have too few tiles for [`MIN_ACCUMULATORS`].
const SMALL_IMAGE: usize = 64;

/// Returns every knob of the sketch with its values, for one workload and target. Returns `None` if
/// the sketch does not apply.
pub(super) fn knobs(workload: &Workload, target: &CpuTarget) -> Option<Vec<Knob>> {
    let conv = conv_on(workload, target)?;
    let block = block_size(target);
    let o_blocks = conv.o.div_ceil(block);
    let [oh, ow] = conv.output;
    let sizes: Vec<String> = conv.tile_sizes().filter(|&m| conv.pays(m, block)).map(|m| m.to_string()).collect();
    if sizes.is_empty() {
        return None;
    }
    let sizes: Vec<&str> = sizes.iter().map(String::as_str).collect();
    Some(vec![
        Knob::choice(TILE_SIZE_KNOB, &sizes),
        Knob::tile("tile.th", tiles(&conv, oh)),
        Knob::tile("tile.tw", tiles(&conv, ow)),
        Knob::tile("tile.register", registers(target, block, o_blocks, oh * ow)),
        Knob::tile("tile.o", counts(o_blocks).map(|count| vec![count * block]).collect()),
        Knob::choice(INPUT_KNOB, &["fused", "stage"]),
        Knob::choice("unroll", &UNROLLS),
        Knob::choice("prefetch", &PREFETCHES),
    ])
}

/// Returns the offered counts below `whole`, and `whole`.
fn counts(whole: usize) -> impl Iterator<Item = usize> {
    COUNTS.into_iter().filter(move |&count| count < whole).chain([whole])
}

/// Returns the rows or columns of tiles in a block: the offered counts, and all tiles of each tile
/// size.
fn tiles(conv: &WinogradConv, extent: usize) -> Vec<Vec<usize>> {
    let mut values: Vec<usize> = conv.tile_sizes().flat_map(|m| counts(extent.div_ceil(m))).collect();
    values.sort_unstable();
    values.dedup();
    values.into_iter().map(|count| vec![count]).collect()
}

/// Returns register tiles `[positions, channels]` with enough accumulators that fit the registers.
fn registers(target: &CpuTarget, block: usize, o_blocks: usize, positions: usize) -> Vec<Vec<usize>> {
    let budget = target.isa.vector_registers();
    let per_block = (block / target.lanes()).max(1);
    let mut values = Vec::new();
    for channels in 1..=o_blocks.min(4) {
        let vectors = channels * per_block;
        for t in (1..=positions).take_while(|t| t * vectors + vectors.min(*t) < budget) {
            if t * vectors >= MIN_ACCUMULATORS || positions < SMALL_IMAGE {
                values.push(vec![t, channels * block]);
            }
        }
    }
    values
}
