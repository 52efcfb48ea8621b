//! Register tile of a multiply-accumulate, and instruction cost of the other leaves.

use std::ops::Range;

use crate::formula::{Formula, Primitive};
use crate::instruction::{TILE_REGISTERS, TILE_ROWS, tile_registers_of};
use crate::machine::cpu::{
    FMA_LATENCY_CYCLES, FMAS_PER_CYCLE, FORWARD_LATENCY_CYCLES, INSTRUCTION_BYTES, INSTRUCTIONS_PER_CYCLE,
    LOADS_PER_CYCLE, LOOP_EXIT_CYCLES, TILE_CYCLES, TILE_LATENCY_CYCLES, primitive_cycles,
};
use crate::program::{Access, Expr, Loop, LoopKind, Scope};

use super::nest::{RunNest, RunStore, TileCounts, vector_loop};
use super::processor::Core;

/// Returns the number of instructions for `extent` neighbouring elements: whole vectors, then one
/// narrower access for each power of two in the remainder.
pub fn pieces(extent: usize, lanes: usize) -> usize {
    extent / lanes + (extent % lanes).count_ones() as usize
}

/// Returns the number of vector registers that a register tile needs: its accumulators, all vectors
/// of the operand that has fewer, and one vector of the other operand.
pub fn tile_registers(accumulators: usize, operand_vectors: [usize; 2]) -> usize {
    accumulators + operand_vectors[0].min(operand_vectors[1]) + 1
}

/// Returns the number of copies of a leaf in the code, if these loops are the ones around it.
fn written_out(loops: &[&Loop]) -> f64 {
    loops.iter().filter(|l| l.kind == LoopKind::Unrolled).map(|l| l.extent as f64).product()
}

/// Cost of one reduction step of a multiply-accumulate. A step is one iteration of all reduction
/// loops: it adds once to every accumulator.
#[derive(Clone, Debug, Default)]
pub struct RegisterTile {
    /// Number of loops outside the lifetime of the accumulators.
    pub tile: usize,
    /// Number of loops outside the straight-line code, which the innermost unrolled and vectorised
    /// loops form.
    pub body: usize,
    /// Extent of the vectorised loop; 1 if there is none.
    pub vector_extent: f64,
    /// Share of the vector lanes that are used, in `0.0..=1.0`.
    pub lane_use: f64,
    /// Vector multiply-adds per step, equal to the number of accumulators.
    pub fmas: f64,
    /// Elements in the accumulators.
    pub elements: f64,
    /// Reduction steps that one instruction combines in one lane. All counts per step are per such
    /// group.
    pub group: f64,
    /// Vector loads of neighbouring elements per step.
    pub vector_loads: f64,
    /// Loads per step that broadcast one element to all lanes.
    pub broadcasts: f64,
    /// Loads per step of one element into one lane.
    pub gathers: f64,
    /// Vector registers that are live at once: [`tile_registers`].
    pub registers: f64,
    /// Vector registers of the target that remain free; negative if registers spill.
    pub free_registers: f64,
    /// Steps in the straight-line code.
    pub unrolled_steps: f64,
    /// Steps during one lifetime of the accumulators.
    pub inner_steps: f64,
    /// Bytes of the straight-line code.
    pub code_bytes: f64,
    /// True if the accumulators are in memory instead of registers.
    pub in_memory: bool,
    /// Estimated cycles per step, including its share of loop and tile overhead.
    pub cycles: f64,
    /// Achieved share of the core's peak multiply-add rate, in `0.0..=1.0`.
    pub efficiency: f64,
}

impl RegisterTile {
    /// Computes the register tile of a multiply-accumulate on a core.
    pub(super) fn new(nest: &RunNest, leaf: &RunStore, core: &Core) -> Self {
        let loops = nest.loops_of(leaf);
        let body = loops
            .iter()
            .rposition(|l| !matches!(l.kind, LoopKind::Unrolled | LoopKind::Vectorized))
            .map_or(0, |last| last + 1);
        // Accumulators in memory have no allocation; their tile is the straight-line code.
        let tile = leaf.register_depth.unwrap_or(body);
        let vector = vector_loop(loops);
        let extent = vector.map_or(1, |l| l.extent);
        let vectors = pieces(extent, core.lanes) as f64;

        let group = leaf.group as f64;
        let steps = |range: Range<usize>| -> f64 {
            let reductions = loops[range].iter().filter(|l| nest.is_reduction(l.var));
            reductions.map(|l| l.extent as f64).product::<f64>() / group
        };

        let mut tile_of_registers = Self {
            tile,
            body,
            vector_extent: extent as f64,
            lane_use: extent as f64 / (vectors * core.lanes as f64),
            fmas: vectors,
            elements: extent as f64,
            group,
            unrolled_steps: steps(body..loops.len()),
            inner_steps: steps(tile..loops.len()),
            in_memory: leaf.register_depth.is_none(),
            ..Self::default()
        };

        let scalar_end = loops.len() - usize::from(vector.is_some());
        // Unrolled loops over output axes multiply the accumulators.
        for l in loops[body..scalar_end].iter().filter(|l| !nest.is_reduction(l.var)) {
            tile_of_registers.fmas *= l.extent as f64;
            tile_of_registers.elements *= l.extent as f64;
        }

        let (mut operands, mut number) = ([1; 2], 0);
        leaf.store.value.for_each_load(&mut |load| {
            let held = tile_of_registers.add_load(nest, load, &loops[body..scalar_end], vector, vectors);
            operands[number.min(1)] = held as usize;
            number += 1;
        });

        match leaf.tiles {
            Some(tiles) => tile_of_registers.finish_tiles(tiles),
            None => {
                tile_of_registers.registers = tile_registers(tile_of_registers.fmas as usize, operands) as f64;
                tile_of_registers.finish(core, written_out(loops) * vectors);
            }
        }
        tile_of_registers
    }

    /// Counts the loads of one operand per step, one for each distinct element or vector. Returns
    /// the number of vectors that hold all of them.
    fn add_load(
        &mut self,
        nest: &RunNest,
        load: &Access,
        unrolled: &[&Loop],
        vector: Option<&Loop>,
        vectors: f64,
    ) -> f64 {
        let distinct: f64 = unrolled
            .iter()
            .filter(|l| !nest.is_reduction(l.var) && nest.stride_along(load, l.var) != 0)
            .map(|l| l.extent as f64)
            .product();
        // In a dot product, each lane reads a group of neighbouring steps.
        let stride = vector.map_or(0, |l| nest.stride_along(load, l.var)) as f64 / self.group;
        match stride as i64 {
            0 => self.broadcasts += distinct,
            1 => self.vector_loads += distinct * vectors,
            _ => self.gathers += distinct * self.vector_extent,
        }
        if stride == 0.0 { distinct } else { distinct * vectors }
    }

    /// Completes the tile for sums in tile registers. A product of tiles takes as long for few rows
    /// as for all, and each row of a tile is one load.
    fn finish_tiles(&mut self, TileCounts { rows, columns, words, products }: TileCounts) {
        let factor_tiles = (products * (rows + columns)) as f64;
        self.vector_loads = (products * words * columns) as f64;
        let products = (products * rows * columns) as f64;
        self.registers = tile_registers_of([rows, columns]) as f64;
        self.free_registers = TILE_REGISTERS as f64 - self.registers;
        self.code_bytes = (products + factor_tiles) * INSTRUCTION_BYTES;

        let loads = self.vector_loads + self.broadcasts;
        let issue = (TILE_CYCLES * products).max(loads / LOADS_PER_CYCLE);
        let overhead = 1.0 + LOOP_EXIT_CYCLES / self.inner_steps;
        self.cycles = issue.max(TILE_LATENCY_CYCLES) + overhead;
        // The peak is one row of a tile in each cycle.
        let peak = (TILE_ROWS * TILE_ROWS) as f64 / TILE_CYCLES;
        self.efficiency = self.elements / (peak * self.cycles);
    }

    fn finish(&mut self, core: &Core, written_out: f64) {
        // A gather takes a load and an insertion into its lane.
        let loads = self.vector_loads + self.broadcasts + 2.0 * self.gathers;
        self.free_registers = core.vector_registers as f64 - self.registers;
        self.code_bytes = written_out * (1.0 + loads / self.fmas) * INSTRUCTION_BYTES;

        let mut issue =
            (self.fmas / FMAS_PER_CYCLE).max(loads / LOADS_PER_CYCLE).max((self.fmas + loads) / INSTRUCTIONS_PER_CYCLE);

        // Each accumulator depends on its value of the step before: a step takes at least the
        // latency of a multiply-add.
        let mut chain = FMA_LATENCY_CYCLES;
        if self.in_memory {
            // Accumulators in memory are stored in every step.
            issue += self.fmas;
            chain += FORWARD_LATENCY_CYCLES;
        }

        // Each missing register costs about one load per step.
        let spilled = (-self.free_registers).max(0.0);
        let tile_exit = if self.body > self.tile { LOOP_EXIT_CYCLES } else { 0.0 };
        // Loop control is paid once per pass over the straight-line code, the exit once per tile.
        let overhead = 1.0 / self.unrolled_steps + tile_exit / self.inner_steps;
        self.cycles = issue.max(chain) + spilled + overhead;
        self.efficiency = self.elements / (core.lanes as f64 * FMAS_PER_CYCLE * self.cycles);
    }

    /// Returns the number of steps in all executions of the leaf.
    pub(super) fn steps(&self, leaf: &RunStore) -> f64 {
        leaf.trips / (self.elements * self.group)
    }
}

/// Returns the primitives of an operation that take extra time. A single sum, product or the like
/// is free: it overlaps with loads and stores.
fn own_primitives(operation: &Expr) -> impl Iterator<Item = Primitive> {
    let is_free = |formula: &Formula| formula.only().is_some_and(|only| primitive_cycles(only) <= 0.5);
    Formula::of(operation).filter(|formula| !is_free(formula)).into_iter().flat_map(Formula::primitives)
}

/// Cost of all executions of a leaf that is no multiply-accumulate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CopyCost {
    /// Load and store instructions, which also approximate cycles, plus the cycles of expensive
    /// primitives.
    pub(super) instructions: f64,
    /// Bytes loaded and stored.
    pub(super) bytes: f64,
    /// Bytes of the code.
    pub(super) code_bytes: f64,
}

impl CopyCost {
    pub(super) fn new(nest: &RunNest, leaf: &RunStore, lanes: usize) -> Self {
        let loops = nest.loops_of(leaf);
        let vector = vector_loop(loops);
        let extent = vector.map_or(1, |l| l.extent);
        let vectors = pieces(extent, lanes) as f64;
        let (mut once, mut elements) = (0.0, 0.0);
        let mut touch = |access: &Access| {
            if nest.scope(access.buffer) != Scope::Register {
                // Strided accesses take one instruction per element.
                let contiguous = vector.is_none_or(|l| matches!(nest.stride_along(access, l.var), 0 | 1));
                once += if contiguous { vectors } else { extent as f64 };
                elements += 1.0;
            }
        };

        touch(&leaf.store.dst);
        let (mut count, mut cycles) = (0.0, 0.0);
        leaf.store.value.for_each(&mut |expr| match expr {
            Expr::Load(access) => touch(access),
            Expr::Gather(gather) => touch(&gather.access),
            operation => own_primitives(operation).for_each(|primitive| {
                count += vectors;
                cycles += vectors * primitive_cycles(primitive);
            }),
        });
        Self {
            instructions: (once + cycles) * leaf.trips / extent as f64,
            bytes: 4.0 * elements * leaf.trips,
            code_bytes: written_out(loops) * (once + vectors + count) * INSTRUCTION_BYTES,
        }
    }
}
