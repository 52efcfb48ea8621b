//! Working sets and cache traffic of one multiply-accumulate and of the copies and stores around
//! it.
//!
//! A *level* is the number of outer loops that are held fixed: level 0 is the whole tree, level
//! `depth` is one execution of the leaf. Traffic is the classic reuse estimate: each iteration of a
//! loop fetches its data again, unless the working set of one iteration fits the cache; then each
//! line is fetched once for the whole loop.

use crate::program::{Access, Loop, Role, Scope};

use super::footprint::Region;
use super::nest::{OperandSide, RunNest, RunStore, operand_accesses};
use crate::machine::cpu::{LINE_BYTES, PAGE_BYTES};

/// Part of one buffer that the loops inside a level access.
#[derive(Clone, Copy, Debug, Default)]
pub struct Footprint {
    /// Number of distinct elements.
    pub elements: f64,
    /// Bytes of the cache lines that contain them.
    pub bytes: f64,
}

/// A buffer that the tree accesses, represented by one of its accesses.
#[derive(Clone, Debug)]
struct Tracked {
    operand: OperandSide,
    /// Number of loops that the access shares with the multiply-accumulate.
    shared: usize,
    /// Footprint by level, up to `shared`; loops at deeper levels do not access the buffer.
    footprints: Vec<Footprint>,
}

/// Pages and cache-set conflicts of one operand inside a level.
#[derive(Clone, Copy, Debug, Default)]
pub struct Locality {
    /// Number of pages accessed.
    pub pages: f64,
    /// Lines that compete for one set of the first-level cache, averaged over the sets in use.
    pub lines_per_set: f64,
}

/// Cache model of the buffers that the tree of one multiply-accumulate accesses.
#[derive(Clone, Debug)]
pub struct CacheModel {
    tracked: Vec<Tracked>,
    extents: Vec<f64>,
    /// Multiply-adds of the whole tree.
    trips: f64,
    /// Bytes of all buffers together, by level.
    working_set: Vec<f64>,
    /// Positions in `tracked` of the data operand, the weight operand and the output.
    operands: [Option<usize>; 3],
    /// Locality of the data and the weight operand during one lifetime of the accumulators.
    pub tile_locality: [Locality; 2],
    /// Locality of the data and the weight operand within one task of a thread.
    pub task_locality: [Locality; 2],
}

impl CacheModel {
    /// Models the tree of `leaf`. The accumulators live inside the `tile` outermost loops, and the
    /// `task` outermost loops number the tasks.
    pub(super) fn new(nest: &RunNest, leaf: &RunStore, tile: usize, task: usize) -> Self {
        let loops = nest.loops_of(leaf);
        let mut model = Self {
            tracked: Vec::with_capacity(8),
            extents: loops.iter().map(|l| l.extent as f64).collect(),
            trips: leaf.trips,
            working_set: vec![0.0; loops.len() + 1],
            operands: [None; 3],
            tile_locality: Default::default(),
            task_locality: Default::default(),
        };

        for (slot, access) in operand_accesses(nest, leaf).into_iter().enumerate() {
            let Some(access) = access else { continue };
            model.operands[slot] = Some(model.tracked.len());
            let (locality_tile, locality_task) = (&mut model.tile_locality[slot], &mut model.task_locality[slot]);
            let tracked = Tracked::new(nest, access, loops, loops.len(), |level, region| {
                if level == tile {
                    *locality_tile = Locality::of(region);
                }
                if level == task {
                    *locality_task = Locality::of(region);
                }
            });
            model.tracked.push(tracked);
        }

        // Copies and stores around the multiply-accumulate occupy the caches as well.
        for Companion { access, loops, shared, .. } in other_accesses(nest, leaf) {
            if nest.program.buffer(access.buffer).role == Role::Output {
                model.operands[2] = Some(model.tracked.len());
            }
            model.tracked.push(Tracked::new(nest, access, loops, shared, |_, _| {}));
        }

        for (level, bytes) in model.working_set.iter_mut().enumerate() {
            *bytes = model.tracked.iter().map(|t| t.at(level).bytes).sum();
        }

        model
    }

    /// Returns the footprint inside `level` of the data operand (0), the weight operand (1) or the
    /// output (2).
    pub fn footprint(&self, operand: usize, level: usize) -> Footprint {
        let tracked = self.operands.get(operand).copied().flatten().and_then(|i| self.tracked.get(i));
        tracked.map_or(Footprint::default(), |t| t.at(level))
    }

    /// Returns the bytes of all buffers inside `level`, in whole cache lines.
    pub fn working_set(&self, level: usize) -> f64 {
        self.working_set.get(level).copied().unwrap_or(0.0)
    }

    /// Returns the number of multiply-adds inside `level`.
    pub fn fmas(&self, level: usize) -> f64 {
        self.extents.iter().skip(level).product()
    }

    /// Returns the outermost level whose working set fits a cache of `capacity` bytes; the
    /// innermost level if none fits.
    pub fn fitting_level(&self, capacity: f64) -> usize {
        self.working_set.iter().position(|&bytes| bytes <= capacity).unwrap_or(self.extents.len())
    }

    /// Returns the bytes moved into a cache of `capacity` bytes per floating-point operation of the
    /// tree, by operand: data, weight, output.
    pub fn traffic(&self, capacity: f64) -> [f64; 3] {
        let mut bytes = [0.0; 3];
        for tracked in &self.tracked {
            bytes[tracked.operand as usize] += self.traffic_of(tracked, capacity);
        }

        // A multiply-add is two floating-point operations.
        bytes.map(|b| if self.trips > 0.0 { b / (2.0 * self.trips) } else { 0.0 })
    }

    fn traffic_of(&self, tracked: &Tracked, capacity: f64) -> f64 {
        // From the innermost level outward: fetched once if an iteration's working set fits, else
        // once per iteration.
        (0..tracked.shared).rev().fold(tracked.at(tracked.shared).bytes, |bytes, level| {
            if self.working_set(level + 1) <= capacity { tracked.at(level).bytes } else { bytes * self.extents[level] }
        })
    }
}

impl Tracked {
    /// Computes the footprints of `access` from the innermost of its `loops` outward. Only the
    /// first `shared` loops count as levels.
    fn new(
        nest: &RunNest,
        access: &Access,
        loops: &[&Loop],
        shared: usize,
        mut at_level: impl FnMut(usize, &Region),
    ) -> Self {
        let mut region = nest.region(access);
        // Loops that are not shared run in full at every level.
        for l in &loops[shared..] {
            region.widen(l.var, l.extent);
        }

        let mut footprints = vec![Footprint::default(); shared + 1];
        for level in (0..=shared).rev() {
            if level < shared {
                region.widen(loops[level].var, loops[level].extent);
            }
            footprints[level] =
                Footprint { elements: region.elements(), bytes: region.blocks(LINE_BYTES) * LINE_BYTES };
            at_level(level, &region);
        }
        Self { operand: nest.operand(access.buffer), shared, footprints }
    }

    fn at(&self, level: usize) -> Footprint {
        self.footprints.get(level).copied().unwrap_or_default()
    }
}

impl Locality {
    fn of(region: &Region) -> Self {
        Self { pages: region.blocks(PAGE_BYTES), lines_per_set: region.lines_per_set() }
    }
}

/// Representative access to a buffer that is no operand of the multiply-accumulate.
struct Companion<'n> {
    access: &'n Access,
    /// Loops around the access.
    loops: &'n [&'n Loop],
    /// Number of those loops that also enclose the multiply-accumulate.
    shared: usize,
    trips: f64,
}

/// Returns one access for every buffer in memory that the tree of `leaf` accesses and that is no
/// operand of `leaf`: the access that shares the most loops with `leaf`; among those, the one
/// executed most often.
fn other_accesses<'n>(nest: &'n RunNest, leaf: &RunStore<'n>) -> Vec<Companion<'n>> {
    let own = nest.loops_of(leaf);
    let mut taken = vec![false; nest.program.buffers.len()];
    for access in operand_accesses(nest, leaf).into_iter().flatten() {
        taken[access.buffer.0 as usize] = true;
    }

    let mut best: Vec<Option<Companion>> = taken.iter().map(|_| None).collect();

    for other in nest.leaves.iter().filter(|other| other.tree == leaf.tree) {
        // Other multiply-accumulates have models of their own.
        if nest.is_mac(other) && !std::ptr::eq(other.store, leaf.store) {
            continue;
        }
        let loops = nest.loops_of(other);
        let shared = own.iter().zip(loops).take_while(|(a, b)| std::ptr::eq(**a, **b)).count();
        other.for_each_access(|access| {
            let buffer = access.buffer.0 as usize;
            // Operands are tracked already, and registers occupy no cache.
            if taken[buffer] || nest.scope(access.buffer) == Scope::Register {
                return;
            }
            let companion = Companion { access, loops, shared, trips: other.trips };
            if best[buffer].as_ref().is_none_or(|b| (b.shared, b.trips) < (shared, other.trips)) {
                best[buffer] = Some(companion);
            }
        });
    }
    best.into_iter().flatten().collect()
}
