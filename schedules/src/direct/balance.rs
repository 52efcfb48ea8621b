//! How evenly the tasks of a schedule keep the threads busy.

use smallvec::SmallVec;

use super::{DataMode, Direct};
use crate::contraction::AxisId;
use crate::target::CpuTarget;

/// Largest share of the work that one thread may have, as a multiple of its fair share, where there is enough to divide.
const MAX_SHARE: f64 = 1.12;
/// Vectors of outputs per thread from which on there is enough to divide.
const MANY_VECTORS: usize = 16;

/// Tasks of equal size.
type Equal = (usize, usize);

impl Direct {
    /// True if the threads of the target finish at about the same time, or the workload is too small for that.
    ///
    /// Thread `i` of `t` gets the tasks `tasks*i/t..tasks*(i+1)/t`, and the time of a task is proportional to the outputs of its
    /// tile.
    pub fn is_balanced(&self, target: &CpuTarget) -> bool {
        let outputs = |a: &AxisId| !self.contraction.axes[*a].reduce;
        let vectors: usize = (0..self.contraction.axes.len())
            .filter(outputs)
            .map(|a| {
                if a == self.vector {
                    self.contraction.axes[a].extent.div_ceil(target.lanes())
                } else {
                    self.contraction.axes[a].extent
                }
            })
            .product();
        target.threads == 1
            || vectors < MANY_VECTORS * target.threads
            || self.largest_share(target.threads) <= MAX_SHARE
    }

    /// The largest share of the work that one of so many threads has, as a multiple of a fair share.
    fn largest_share(&self, threads: usize) -> f64 {
        let mut runs: Vec<Equal> = vec![(1, 1)];
        for level in self.parallel_loops() {
            let segments = self.segment_sizes(level.axis, level.tile);
            let along = |&(count, size): &Equal| {
                segments.iter().map(move |s| (count * s.0, size * s.1)).collect::<SmallVec<[Equal; 4]>>()
            };
            runs = runs.iter().flat_map(along).collect();
        }
        let tasks: usize = runs.iter().map(|r| r.0).sum();
        let mut shares = vec![0; threads];
        let mut start = 0;
        for (count, size) in runs {
            for (i, share) in shares.iter_mut().enumerate() {
                let begin = (tasks * i / threads).max(start);
                let end = (tasks * (i + 1) / threads).min(start + count);
                *share += end.saturating_sub(begin) * size;
            }
            start += count;
        }
        let total: usize = shares.iter().sum();
        shares.into_iter().max().unwrap_or(0) as f64 * threads as f64 / total.max(1) as f64
    }

    /// Number and extent of the tiles of a parallel loop, in the order of their tasks.
    fn segment_sizes(&self, axis: AxisId, tile: usize) -> SmallVec<[Equal; 4]> {
        let extent = self.contraction.axes[axis].extent;
        let (whole, rest) = (extent / tile, extent % tile);
        let peels = self.data_mode != DataMode::Copy && self.padded_taps(axis).is_some();
        let ends = if peels && whole > 1 { [1, 1] } else { [0, 0] };
        let last = if rest > 0 { 0 } else { ends[1] };
        let sizes = [(ends[0], tile), (whole - ends[0] - last, tile), (last, tile), (1, rest)];
        sizes.into_iter().filter(|s| s.0 * s.1 > 0).collect()
    }
}
