//! Working sets and cache traffic of one multiply-accumulate and of the copies and stores that
//! surround it.
//!
//! A *level* is a number of outer loops left out: level 0 is the whole tree, level `depth` one run
//! of the leaf. Traffic is the classic estimate: a loop re-reads what it touches, unless everything
//! that one of its iterations touches fits the cache; then each line comes in once for the whole
//! loop.

use crate::program::{Access, Loop, Role, Scope};

use super::footprint::Region;
use super::nest::{Leaf, Nest, Operand, operand_accesses};
use crate::machine::cpu::{LINE_BYTES, PAGE_BYTES};

/// What the loops inside a level touch of one buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Footprint {
    /// Distinct elements.
    pub elements: f64,
    /// Bytes of the lines that hold them.
    pub bytes: f64,
}

/// One buffer that the tree touches, through its most telling access.
#[derive(Clone, Debug)]
struct Tracked {
    operand: Operand,
    /// Number of loops that the access shares with the multiply-accumulate.
    shared: usize,
    /// By level, up to `shared`; deeper levels do not touch it.
    footprints: Vec<Footprint>,
}

/// Pages and set conflicts of one operand inside a level.
#[derive(Clone, Copy, Debug, Default)]
pub struct Locality {
    /// Pages touched.
    pub pages: f64,
    /// Lines that compete for one set of a first-level cache, on average over the sets in use.
    pub lines_per_set: f64,
}

/// The buffers that the tree of one multiply-accumulate touches.
#[derive(Clone, Debug)]
pub struct CacheModel {
    tracked: Vec<Tracked>,
    extents: Vec<f64>,
    /// Multiply-adds of the whole tree.
    trips: f64,
    /// Bytes that all buffers together take, by level.
    working_set: Vec<f64>,
    /// Position in `tracked` of the data operand, the weight operand and the output.
    operands: [Option<usize>; 3],
    /// Data and weight operand while the accumulators live.
    pub tile_locality: [Locality; 2],
    /// Data and weight operand in one task.
    pub task_locality: [Locality; 2],
}

impl CacheModel {
    /// Analyses the tree of `leaf`, whose accumulators live inside `tile` loops and whose tasks are
    /// `task` loops.
    pub(super) fn new(nest: &Nest, leaf: &Leaf, tile: usize, task: usize) -> Self {
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
        for Companion { access, loops, shared, .. } in companions(nest, leaf) {
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

    /// What the loops inside `level` touch of the data operand (0), the weight operand (1) or the
    /// output (2).
    pub fn footprint(&self, operand: usize, level: usize) -> Footprint {
        let tracked = self.operands.get(operand).copied().flatten().and_then(|i| self.tracked.get(i));
        tracked.map_or(Footprint::default(), |t| t.at(level))
    }

    /// Bytes that all buffers together take inside `level`, in whole lines.
    pub fn working_set(&self, level: usize) -> f64 {
        self.working_set.get(level).copied().unwrap_or(0.0)
    }

    /// Multiply-adds inside `level`.
    pub fn fmas(&self, level: usize) -> f64 {
        self.extents.iter().skip(level).product()
    }

    /// The outermost level whose working set fits a cache of `capacity` bytes; the innermost if
    /// none does.
    pub fn fitting_level(&self, capacity: f64) -> usize {
        self.working_set.iter().position(|&bytes| bytes <= capacity).unwrap_or(self.extents.len())
    }

    /// Bytes that cross into a cache of `capacity` bytes for each floating-point operation of the
    /// tree, by operand: data, weight, output side.
    pub fn traffic(&self, capacity: f64) -> [f64; 3] {
        let mut bytes = [0.0; 3];
        for tracked in &self.tracked {
            bytes[tracked.operand as usize] += self.traffic_of(tracked, capacity);
        }
        bytes.map(|b| if self.trips > 0.0 { b / (2.0 * self.trips) } else { 0.0 })
    }

    fn traffic_of(&self, tracked: &Tracked, capacity: f64) -> f64 {
        (0..tracked.shared).rev().fold(tracked.at(tracked.shared).bytes, |bytes, level| {
            if self.working_set(level + 1) <= capacity { tracked.at(level).bytes } else { bytes * self.extents[level] }
        })
    }
}

impl Tracked {
    /// Follows `access` outward through `loops`, the loops around it, of which the first `shared`
    /// count as levels.
    fn new(
        nest: &Nest,
        access: &Access,
        loops: &[&Loop],
        shared: usize,
        mut at_level: impl FnMut(usize, &Region),
    ) -> Self {
        let mut region = nest.region(access);
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

/// The most telling access of the tree to a buffer that the operands of the multiply-accumulate are
/// not.
struct Companion<'n> {
    access: &'n Access,
    /// The loops around it.
    loops: &'n [&'n Loop],
    /// How many of them are around the multiply-accumulate too.
    shared: usize,
    trips: f64,
}

/// For every buffer in memory that the tree of `leaf` touches and the operands of `leaf` do not:
/// the access that shares the most loops with `leaf`, then the one that runs most often.
fn companions<'n>(nest: &'n Nest, leaf: &Leaf<'n>) -> Vec<Companion<'n>> {
    let own = nest.loops_of(leaf);
    let mut taken = vec![false; nest.program.buffers.len()];
    for access in operand_accesses(nest, leaf).into_iter().flatten() {
        taken[access.buffer.0 as usize] = true;
    }
    let mut best: Vec<Option<Companion>> = taken.iter().map(|_| None).collect();
    for other in nest.leaves.iter().filter(|other| other.tree == leaf.tree) {
        if nest.is_mac(other) && !std::ptr::eq(other.store, leaf.store) {
            continue;
        }
        let loops = nest.loops_of(other);
        let shared = own.iter().zip(loops).take_while(|(a, b)| std::ptr::eq(**a, **b)).count();
        other.for_each_access(|access| {
            let buffer = access.buffer.0 as usize;
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
