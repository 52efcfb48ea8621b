//! How many loops are parallel.

use super::chain::Chain;
use super::knobs;
use autotune_ir::target::CpuTarget;

/// Tasks for each thread.
pub(super) const TASKS: usize = 4;
/// Iterations that are not worth a second thread.
const LEAST_SHARED: usize = 1 << 13;

/// The number of the outermost loops, of which the extents are given, that together make work for
/// every thread; none of them if there is little to do.
pub(super) fn parallel_loops(chain: &Chain, loops: impl Iterator<Item = usize>, cpu: &CpuTarget) -> usize {
    if cpu.threads == 1 {
        return 1;
    }
    if knobs::iterations(chain) <= LEAST_SHARED {
        return 0;
    }
    let mut tasks = 1;
    let enough = loops.filter(|&extent| extent > 1).position(|extent| {
        tasks *= extent;
        tasks >= TASKS * cpu.threads
    });
    enough.map_or(1, |at| at + 1).min(3)
}
