//! The dominant multiply-accumulate, the one that runs most often.

use super::cache::{CacheModel, Footprint};
use super::nest::{AxisClass, Leaf, Nest, operand_accesses};
use super::processor::Core;
use super::registers::RegisterTile;
use super::totals::parallel_depth;
use crate::program::LoopKind;

/// One of the loops around the dominant multiply-accumulate.
#[derive(Clone, Copy, Debug)]
pub struct ChainLoop {
    /// Iterations.
    pub extent: f64,
    /// How it runs.
    pub kind: LoopKind,
    /// What its axis indexes; `None` if it belongs to no axis.
    pub class: Option<AxisClass>,
    /// Distance in elements of neighbouring iterations in the data and in the weight operand.
    pub strides: [f64; 2],
}

/// The dominant multiply-accumulate of a program.
#[derive(Clone, Debug)]
pub struct Dominant {
    /// Number of times it runs.
    pub trips: f64,
    /// The loops around it, outermost first.
    pub loops: Vec<ChainLoop>,
    /// Number of parallel loops at the head of them.
    pub task: usize,
    /// Its register tile.
    pub tile: RegisterTile,
    /// What it touches.
    pub cache: CacheModel,
    /// Bytes per floating-point operation into the first-, second- and third-level cache, by
    /// operand: data, weight, output.
    pub traffic: [[f64; 3]; 3],
    /// Bytes of the three caches; of the last, one thread's part.
    pub cache_bytes: [f64; 3],
}

impl Dominant {
    pub(super) fn new(nest: &Nest, leaf: &Leaf, tile: RegisterTile, core: &Core) -> Self {
        let loops = nest.loops_of(leaf);
        let task = parallel_depth(nest, leaf);
        let cache = CacheModel::new(nest, leaf, tile.tile, task);
        let [l1, l2, l3] = core.cache_bytes;
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

    /// What a level of the loops touches of the data (0), the weight (1) or the output (2).
    pub fn footprint(&self, operand: usize, level: usize) -> Footprint {
        self.cache.footprint(operand, level)
    }

    /// The outermost level whose working set fits a cache.
    pub fn fitting_level(&self, cache: usize) -> usize {
        self.cache.fitting_level(self.cache_bytes[cache])
    }
}
