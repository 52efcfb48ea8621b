//! How evenly the tasks of a schedule keep the threads busy.

use autotune_ir::analyse::busiest_thread;
use smallvec::SmallVec;

use super::{DataMode, Direct};
use crate::contraction::AxisId;
use autotune_ir::target::CpuTarget;

/// Largest share of the work that one thread may have, as a multiple of its fair share, where there
/// is enough to divide and it can be divided so evenly.
pub(crate) const MAX_SHARE: f64 = 1.12;
/// Vectors of outputs per thread from which on there is enough to divide.
const MANY_VECTORS: usize = 16;

/// A number of consecutive tasks and the outputs of each.
type Run = (usize, usize);

impl Direct {
    /// The largest share of the work that one of the target's threads has, as a multiple of a fair
    /// share; 1 where the workload is too small for that to matter.
    ///
    /// Thread `i` of `t` gets the tasks `tasks*i/t..tasks*(i+1)/t`, and the time of a task is
    /// proportional to its outputs.
    pub fn largest_share(&self, target: &CpuTarget) -> f64 {
        let axes = self.contraction.axes.iter().enumerate();
        let vectors_along = |(a, extent): (AxisId, usize)| {
            if a == self.vector { extent.div_ceil(target.lanes()) } else { extent }
        };
        let vectors: usize =
            axes.filter(|(_, axis)| !axis.reduce).map(|(a, axis)| vectors_along((a, axis.extent))).product();
        let is_small = vectors < MANY_VECTORS * target.threads;
        if target.threads == 1 || is_small { 1.0 } else { self.share_of(target.threads) }
    }

    /// The same for `threads` threads and any workload.
    fn share_of(&self, threads: usize) -> f64 {
        let mut runs: Vec<Run> = vec![(1, 1)];
        for level in self.parallel_loops() {
            let segments = self.runs_along(level.axis, level.tile);
            let along = |&(count, size): &Run| {
                segments.iter().map(move |s| (count * s.0, size * s.1)).collect::<SmallVec<[Run; 4]>>()
            };
            runs = runs.iter().flat_map(along).collect();
        }
        let outputs: Vec<(f64, f64)> =
            runs.iter().map(|&(count, size)| (count as f64, (count * size) as f64)).collect();
        let total: f64 = outputs.iter().map(|run| run.1).sum();
        busiest_thread(&outputs, threads) * threads as f64 / total.max(1.0)
    }

    /// Numbers and extents of the tiles of a parallel loop, in the order of their tasks.
    fn runs_along(&self, axis: AxisId, tile: usize) -> SmallVec<[Run; 4]> {
        let extent = self.contraction.axes[axis].extent;
        let (whole, rest) = (extent / tile, extent % tile);
        let peels = self.data_mode != DataMode::Copy && self.padded_taps(axis).is_some();
        let first = usize::from(peels && whole > 1);
        let last = if rest > 0 { 0 } else { first };
        let sizes = [(first, tile), (whole - first - last, tile), (last, tile), (1, rest)];
        sizes.into_iter().filter(|s| s.0 * s.1 > 0).collect()
    }
}
