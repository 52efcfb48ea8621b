//! Sums over all leaves, and the load balance among threads.

use super::nest::{RunNest, RunStore};
use super::processor::Core;
use super::registers::{CopyCost, RegisterTile};
use crate::program::{Buffer, LoopKind, Node, Role, Scope, When, preorder};
use crate::spec::TensorSpec;

/// Sums over all leaves of the stages that are executed in every run.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Number of leaves: stores in the text of the program.
    pub leaves: f64,
    /// Number of leaves that are multiply-accumulates.
    pub mac_leaves: f64,
    /// Number of top-level trees.
    pub trees: f64,
    /// Number of stages executed per run.
    pub stages: f64,
    /// Multiply-adds, counted per element.
    pub fmas: f64,
    /// Multiply-add instructions executed on vectors.
    pub fma_instructions: f64,
    /// Multiply-adds, counted per element, of leaves that leave vector lanes idle.
    pub partial_fmas: f64,
    /// Bytes loaded and stored by copies into packed buffers that all threads share.
    pub global_copy_bytes: f64,
    /// Bytes loaded and stored by copies into packed buffers that are private to a thread.
    pub local_copy_bytes: f64,
    /// Load and store instructions of all copies into packed buffers.
    pub copy_instructions: f64,
    /// Partial sums that are read back from the output.
    pub reloaded_elements: f64,
    /// Elements written to the output, counted each time.
    pub stored_elements: f64,
    /// Number of prefetches executed per run.
    pub prefetches: f64,
    /// Bytes of straight-line code.
    pub code_bytes: f64,
    /// Estimated cycles of all multiply-adds on one thread.
    pub mac_cycles: f64,
    /// Estimated cycles of all other leaves on one thread.
    pub other_cycles: f64,
    /// Bytes of the shared packed buffers that are filled in every run.
    pub packed_bytes: f64,
    /// Bytes of packed buffers per thread.
    pub local_bytes: f64,
    /// Bytes of constants that a run fetches from memory; 0 if they may be cached.
    pub cold_bytes: f64,
    /// Load balance among threads.
    pub division: Division,
}

/// Load balance among threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Division {
    /// Number of tasks of the dominant stage, the one with the most cycles.
    pub tasks: f64,
    /// Cycles of the dominant stage's longest task, over the mean cycles of a thread.
    pub longest_task: f64,
    /// Cycles until the last thread finishes, over the mean cycles of a thread, both summed over
    /// all stages: 1 if all threads have equal work. Each thread gets an equal number of
    /// neighbouring tasks.
    pub imbalance: f64,
    /// Cycles until the last thread finishes, over all stages, including barriers.
    pub wall_cycles: f64,
}

impl Totals {
    /// Computes the sums. Also returns the position of the multiply-accumulate that is executed
    /// most often (the first of several) and its register tile.
    pub(super) fn new(nest: &RunNest, core: &Core) -> (Self, Option<(usize, RegisterTile)>) {
        let mut totals = Self {
            leaves: nest.leaves.len() as f64,
            trees: nest.trees.len() as f64,
            stages: nest.stages as f64,
            prefetches: nest.prefetches,
            local_bytes: nest.program.local_bytes() as f64,
            packed_bytes: filled_bytes(nest),
            cold_bytes: if nest.program.cold { constant_bytes(nest) } else { 0.0 },
            ..Self::default()
        };

        let mut tree_cycles = vec![0.0; nest.trees.len()];
        let mut dominant: Option<(usize, RegisterTile)> = None;
        for (i, leaf) in nest.leaves.iter().enumerate() {
            let cycles = if nest.is_mac(leaf) {
                let tile = RegisterTile::new(nest, leaf, core);
                let cycles = totals.add_mac(leaf, &tile);
                if dominant.as_ref().is_none_or(|(best, _)| nest.leaves[*best].trips < leaf.trips) {
                    dominant = Some((i, tile));
                }
                cycles
            } else {
                totals.add_copy(nest, leaf, core.lanes)
            };
            tree_cycles[leaf.tree] += cycles;
        }

        totals.division = Division::new(nest, &tree_cycles, core);
        (totals, dominant)
    }

    fn add_mac(&mut self, leaf: &RunStore, tile: &RegisterTile) -> f64 {
        let cycles = tile.steps(leaf) * tile.cycles;
        self.mac_leaves += 1.0;
        self.fmas += leaf.trips;
        self.fma_instructions += tile.steps(leaf) * tile.fmas;
        if tile.lane_use < 1.0 {
            self.partial_fmas += leaf.trips;
        }
        self.code_bytes += tile.code_bytes;
        self.mac_cycles += cycles;
        cycles
    }

    fn add_copy(&mut self, nest: &RunNest, leaf: &RunStore, lanes: usize) -> f64 {
        let cost = CopyCost::new(nest, leaf, lanes);
        let dst = nest.program.buffer(leaf.store.dst.buffer);
        match (dst.role, dst.scope) {
            (Role::Packed, Scope::Global) => self.global_copy_bytes += cost.bytes,
            (Role::Packed, _) => self.local_copy_bytes += cost.bytes,
            (Role::Output, _) => self.stored_elements += leaf.trips,
            (_, Scope::Register) => {
                // An accumulator that is loaded from the output continues an earlier partial sum.
                let mut reloads = false;
                leaf.store
                    .value
                    .for_each_load(&mut |load| reloads |= nest.program.buffer(load.buffer).role == Role::Output);
                if reloads {
                    self.reloaded_elements += leaf.trips;
                }
            }
            _ => {}
        }
        if dst.role == Role::Packed {
            self.copy_instructions += cost.instructions;
        }
        self.code_bytes += cost.code_bytes;
        self.other_cycles += cost.instructions;
        cost.instructions
    }
}

impl Division {
    /// Computes the load balance; `tree_cycles` are the cycles of all executions of each tree on
    /// one thread.
    fn new(nest: &RunNest, tree_cycles: &[f64], core: &Core) -> Self {
        let threads = core.threads;
        let mut division = Self::default();
        let (mut total, mut most) = (0.0, -1.0);
        for stage in 0..nest.stages {
            let trees: Vec<(f64, f64)> = nest
                .trees
                .iter()
                .zip(tree_cycles)
                .filter(|(tree, _)| tree.stage == stage)
                .map(|(tree, &cycles)| (tree.tasks, cycles))
                .collect();

            let cycles: f64 = trees.iter().map(|t| t.1).sum();
            total += cycles;
            division.wall_cycles += busiest_thread(&trees, threads);
            if cycles > most && cycles > 0.0 {
                most = cycles;
                let longest = trees.iter().map(|(tasks, cycles)| cycles / tasks).fold(0.0, f64::max);
                division.tasks = trees.iter().map(|t| t.0).sum();
                division.longest_task = longest / (cycles / threads as f64);
            }
        }

        if total > 0.0 {
            division.imbalance = division.wall_cycles / (total / threads as f64);
        }
        // A single thread needs no barrier.
        if threads > 1 {
            division.wall_cycles += f64::from(core.rates.fork_join_cycles) * nest.stages as f64;
        }
        division
    }
}

/// Returns the cycles of the busiest of `threads` threads if each gets an equal number of
/// neighbouring tasks. Each item of `trees` is a number of tasks and their total cycles.
pub fn busiest_thread(trees: &[(f64, f64)], threads: usize) -> f64 {
    let tasks: f64 = trees.iter().map(|t| t.0).sum();

    // Cycles of the first `task` tasks.
    let cycles_before = |task: f64| {
        let mut left = task;
        let mut cycles = 0.0;
        for &(tasks, tree_cycles) in trees {
            let taken = left.min(tasks);
            cycles += tree_cycles * taken / tasks;
            left -= taken;
            if left <= 0.0 {
                break;
            }
        }
        cycles
    };

    let (mut before, mut busiest) = (0.0, 0.0f64);
    for thread in 1..=threads {
        let after = cycles_before((tasks * thread as f64 / threads as f64).floor());
        busiest = busiest.max(after - before);
        before = after;
    }
    busiest
}

/// Returns the bytes of the shared packed buffers that some leaf writes.
fn filled_bytes(nest: &RunNest) -> f64 {
    let program = nest.program;
    let mut filled = vec![false; program.buffers.len()];
    for leaf in &nest.leaves {
        filled[leaf.store.dst.buffer.0 as usize] = true;
    }
    let packed = program.buffers.iter().zip(filled).filter(|(b, f)| *f && b.role == Role::Packed);
    packed.filter(|(b, _)| b.scope == Scope::Global).map(|(b, _)| 4.0 * b.len() as f64).sum()
}

/// Returns the bytes of the constants that some leaf reads, packed or in their original form.
fn constant_bytes(nest: &RunNest) -> f64 {
    let program = nest.program;
    let is_given = |buffer: &Buffer| match buffer.role {
        Role::Operand(_) => program.spec.find(buffer.role).is_some_and(TensorSpec::is_constant),
        Role::Output | Role::Packed | Role::Accumulator => false,
    };

    let mut constant: Vec<bool> = program.buffers.iter().map(is_given).collect();
    // Buffers filled ahead of time are constant as well.
    let ahead = program.stages.iter().filter(|stage| stage.when == When::AheadOfTime);
    for node in ahead.flat_map(|stage| preorder(&stage.body)) {
        if let Node::Store(store) = node {
            constant[store.dst.buffer.0 as usize] = true;
        }
    }

    let mut read = vec![false; program.buffers.len()];
    nest.leaves.iter().for_each(|leaf| leaf.for_each_access(|access| read[access.buffer.0 as usize] = true));
    let met = program.buffers.iter().zip(constant).zip(read).filter(|((_, constant), read)| *constant && *read);
    met.map(|((buffer, _), _)| (buffer.len() * buffer.dtype.bytes()) as f64).sum()
}

/// Returns the number of leading parallel loops around a leaf.
pub(super) fn parallel_depth(nest: &RunNest, leaf: &RunStore) -> usize {
    nest.loops_of(leaf).iter().take_while(|l| l.kind == LoopKind::Parallel).count()
}
