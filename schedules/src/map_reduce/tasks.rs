//! Number of parallel loops.

use super::chain::Chain;
use super::knobs;
use autotune_ir::target::CpuTarget;

/// Tasks per thread to aim at, so that threads finish at about the same time.
pub(super) const TASKS: usize = 4;
/// Largest number of iterations that are not worth starting a second thread.
const LEAST_SHARED: usize = 1 << 13;

/// Returns the number of outermost loops, at most three, that together have enough iterations to
/// keep every thread busy; 0 if there is little work. `loops` yields the extents, outermost first.
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
