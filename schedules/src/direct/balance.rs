//! Load balance of a schedule's tasks among the threads.

use autotune_ir::analyse::busiest_thread;
use smallvec::SmallVec;

use super::{DataMode, Direct, Roles};
use crate::contraction::AxisId;
use crate::point::KnobIndices;
use autotune_ir::target::CpuTarget;

/// Largest acceptable share of the work for one thread, as a multiple of a fair share. It applies
/// where a workload is large enough and can be divided that evenly.
pub(crate) const MAX_SHARE: f64 = 1.12;
/// Minimum number of output vectors per thread for load balance to matter.
const MANY_VECTORS: usize = 16;

/// Choice of the first schedule that balances the load, else of the most balanced one.
pub(super) struct BalancedChoice<'a> {
    roles: &'a Roles,
    target: &'a CpuTarget,
    /// Largest share of a thread, and its schedule.
    best: Option<(f64, KnobIndices)>,
}

impl<'a> BalancedChoice<'a> {
    pub(super) fn new(roles: &'a Roles, target: &'a CpuTarget) -> Self {
        Self { roles, target, best: None }
    }

    /// Returns the first of some points that balances the load. The points differ only in the
    /// number of parallel loops, on which neither their rules nor `fits` depend.
    pub(super) fn first(
        &mut self,
        alike: impl Iterator<Item = KnobIndices>,
        fits: impl Fn(&Direct) -> bool,
    ) -> Option<KnobIndices> {
        for point in alike {
            let direct = Direct::with_roles(self.roles, self.target, &point).ok().filter(&fits)?;
            let share = direct.largest_share(self.target);
            if share <= MAX_SHARE {
                return Some(point);
            }
            if self.best.as_ref().is_none_or(|(least, _)| share < *least) {
                self.best = Some((share, point));
            }
        }
        None
    }

    /// Returns the most balanced point that was seen.
    pub(super) fn best(self) -> Option<KnobIndices> {
        self.best.map(|(_, point)| point)
    }
}

/// A number of consecutive tasks, and the outputs of each.
type Run = (usize, usize);

impl Direct {
    /// Returns the largest share of the work that one of the target's threads has, as a multiple of
    /// a fair share. Returns 1 where the workload is too small for that to matter.
    ///
    /// Thread `i` of `t` gets the tasks `tasks*i/t..tasks*(i+1)/t`. The time of a task is
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

    /// Returns the largest share for `threads` threads and a workload of any size.
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

    /// Returns runs of equal tiles along a parallel loop, in task order.
    fn runs_along(&self, axis: AxisId, tile: usize) -> SmallVec<[Run; 4]> {
        let extent = self.contraction.axes[axis].extent;
        let (whole, rest) = (extent / tile, extent % tile);
        // Lowering peels the first and last tiles that touch padding, so that they are tasks of
        // other loops.
        let peels = self.data_mode != DataMode::Copy && self.padded_taps(axis).is_some();
        let first = usize::from(peels && whole > 1);
        // With a remainder, no whole tile touches the padding at the end.
        let last = if rest > 0 { 0 } else { first };
        let sizes = [(first, tile), (whole - first - last, tile), (last, tile), (1, rest)];
        sizes.into_iter().filter(|s| s.0 * s.1 > 0).collect()
    }
}
