//! The dominant multiply-accumulate of a program: the one that is executed most often.

use super::cache::{CacheModel, Footprint};
use super::nest::{AxisClass, RunNest, RunStore, operand_accesses};
use super::processor::Core;
use super::registers::RegisterTile;
use super::totals::parallel_depth;
use crate::program::LoopKind;

/// A loop around the dominant multiply-accumulate.
#[derive(Clone, Copy, Debug)]
pub struct ChainLoop {
    /// Number of iterations of the loop.
    pub extent: f64,
    /// Execution of the iterations: serial, parallel, unrolled or vectorised.
    pub kind: LoopKind,
    /// Role of the loop's axis in the contraction; `None` if the loop belongs to no axis.
    pub class: Option<AxisClass>,
    /// Distance between neighbouring iterations in the data and in the weight operand, in elements.
    pub strides: [f64; 2],
}

/// The dominant multiply-accumulate of a program.
#[derive(Clone, Debug)]
pub struct Dominant {
    /// Number of executions, one multiply-add each.
    pub trips: f64,
    /// Loops around it, outermost first.
    pub loops: Vec<ChainLoop>,
    /// Number of leading parallel loops, which number the tasks.
    pub task: usize,
    /// Register tile of its accumulators.
    pub tile: RegisterTile,
    /// Footprints and working sets by level.
    pub cache: CacheModel,
    /// Bytes per floating-point operation moved into the first-, second- and third-level cache, by
    /// operand: data, weight, output.
    pub traffic: [[f64; 3]; 3],
    /// Capacity of the three caches in bytes; of the third, one thread's share.
    pub cache_bytes: [f64; 3],
}

impl Dominant {
    pub(super) fn new(nest: &RunNest, leaf: &RunStore, tile: RegisterTile, core: &Core) -> Self {
        let loops = nest.loops_of(leaf);
        let task = parallel_depth(nest, leaf);
        let cache = CacheModel::new(nest, leaf, tile.tile, task);
        let [l1, l2, l3] = core.cache_bytes;
        // Threads share the third-level cache; each is assumed to get an equal part.
        let cache_bytes = [l1, l2, l3 / core.threads as f64];

        let (classes, operands) = (nest.classes(leaf), operand_accesses(nest, leaf));
        let chain = loops.iter().map(|l| ChainLoop {
            extent: l.extent as f64,
            kind: l.kind,
            class: classes.of(nest, l.var),
            strides: operands.map(|access| access.map_or(0.0, |access| nest.stride_along(access, l.var) as f64)),
        });
        Self {
            trips: leaf.trips,
            loops: chain.collect(),
            task,
            traffic: cache_bytes.map(|capacity| cache.traffic(capacity)),
            cache_bytes,
            tile,
            cache,
        }
    }

    /// Returns the footprint inside `level` of the data operand (0), the weight operand (1) or the
    /// output (2).
    pub fn footprint(&self, operand: usize, level: usize) -> Footprint {
        self.cache.footprint(operand, level)
    }

    /// Returns the outermost level whose working set fits the cache: 0 for the first-level cache, 1
    /// for the second, 2 for the third.
    pub fn fitting_level(&self, cache: usize) -> usize {
        self.cache.fitting_level(self.cache_bytes[cache])
    }
}
