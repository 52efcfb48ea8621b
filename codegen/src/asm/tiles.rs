//! Products of tiles: the order of their instructions.
//!
//! A product of tiles ([`TileNest`]) becomes a leaf of its own. Its sums stay in tile registers
//! until all reduction steps are added:
//!
//! ```text
//! tilezero tmm0                              sums of 2 x 2 tiles, in tmm0 to tmm3
//! ...
//! tileloadd tmm6,[rsi+r9]                    weights of the first columns, in each iteration
//! tileloadd tmm4,[rdi+r8]                    data of the first rows
//! tdpbf16ps tmm0,tmm4,tmm6
//! tileloadd tmm7,[rsi+r9+40h]                weights of the next columns
//! tdpbf16ps tmm1,tmm4,tmm7
//! ...
//! tilestored [rdx+r10],tmm0                  after the last iteration
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use smallvec::SmallVec;

use super::block::{self, Common};
use super::error::{AssembleError, Failure};
use super::instruction_set::{Address, InstructionSet, PrefetchHint};
use super::leaf::{Item, Leaf};
use super::nest::LeafNest;
use super::plan::EmitOrder;
use super::stage::advance;
use super::tile_grid::{FactorParts, LINE_BYTES, TileNest};
use autotune_ir::instruction::TileStrides;
use autotune_ir::program::PrefetchLevel;

/// Number of data, weights and sums in their arrays.
const DATA: usize = 0;
pub(super) const WEIGHTS: usize = 1;
const SUMS: usize = 2;

/// Maximum number of parts of the code between reduction steps. The steps are written out, and the
/// sums that the code reads are evicted from the first-level cache after some of them.
const MOST_PARTS: usize = 4;
/// Operations that a part holds a multiple of.
const PART_GROUP: usize = 4;

/// Addresses of tiles while a leaf is emitted.
struct TileAddresses<'t> {
    nest: &'t LeafNest,
    tiles: &'t TileNest,
    /// Registers of the distances between rows.
    strides: [u8; 3],
}

impl TileAddresses<'_> {
    /// Returns the address of a tile at an offset in elements, and the register of the distance
    /// between its rows.
    fn at(&self, of: usize, offset: i64) -> Result<(Address, u8), Failure> {
        let (pointer, first) = self.tiles.places[of];
        Ok((Address { pointer, disp: self.disp(of, first + offset)? }, self.strides[of]))
    }

    /// Returns a distance in bytes, given in elements.
    fn disp(&self, of: usize, elements: i64) -> Result<i32, Failure> {
        let (pointer, _) = self.tiles.places[of];
        let bytes = elements * self.nest.types[usize::from(pointer)].bytes();
        Ok(i32::try_from(bytes).map_err(|_| AssembleError::Displacement { bytes })?)
    }
}

/// Straight-line code to emit between the reduction steps of a product.
struct OverlappedBlock<'m> {
    leaf: &'m Leaf,
    common: Common,
    plan: &'m mut EmitOrder,
    /// Parts of the block that are left: operations and sources.
    parts: VecDeque<[Range<usize>; 2]>,
}

impl<'m> OverlappedBlock<'m> {
    /// Splits the block of a leaf, which has no loops, into at most `steps` parts.
    fn of(leaf: &'m Leaf, common: Common, plan: &'m mut EmitOrder, steps: usize) -> Self {
        let mut parts = VecDeque::new();
        for item in &leaf.items {
            let Item::Block { ops, sources } = item else { continue };
            // Parts of whole groups, because similar operations are emitted together.
            let size = ops.len().div_ceil(steps.min(MOST_PARTS)).next_multiple_of(PART_GROUP);
            let part = |first: usize| [first..ops.end.min(first + size), sources.clone()];
            parts.extend(ops.clone().step_by(size).map(part));
        }
        Self { leaf, common, plan, parts }
    }

    /// Emits the next part, if one is left.
    fn emit_part(&mut self, isa: &mut impl InstructionSet, nest: &LeafNest) -> Result<(), Failure> {
        let Some([ops, sources]) = self.parts.pop_front() else { return Ok(()) };
        block::emit(isa, self.leaf.block(nest, &ops, &sources), self.common, self.plan)
    }
}

impl TileNest {
    /// Returns the number of integer registers that the leaf needs. After the pointers, they hold
    /// the loop counters, then the distances between rows, then addresses of gathers.
    pub(super) fn integers(&self, nest: &LeafNest) -> usize {
        self.scratch(nest) + usize::from(nest.fetches())
    }

    fn scratch(&self, nest: &LeafNest) -> usize {
        self.first_stride(nest) + self.distinct_strides(nest).len()
    }

    /// Returns the number of reduction steps in the loops from the one of this number on.
    pub(super) fn steps(&self, number: usize) -> usize {
        self.outer_loops[number..].iter().map(|(_, extent)| extent).product()
    }

    fn first_stride(&self, nest: &LeafNest) -> usize {
        nest.pointers.len() + self.outer_loops.len()
    }

    /// Returns the distances in bytes between rows of data, weights and sums.
    fn strides(&self, nest: &LeafNest) -> [i64; 3] {
        let bytes = |of: usize| nest.types[usize::from(self.places[of].0)].bytes();
        let TileStrides { data, weights, sums } = self.grid.strides;
        [data * bytes(DATA), weights * bytes(WEIGHTS), sums * bytes(SUMS)]
    }

    /// Returns the distances between rows, each once: equal ones share a register.
    fn distinct_strides(&self, nest: &LeafNest) -> SmallVec<[i64; 3]> {
        let mut distinct = SmallVec::from(self.strides(nest));
        distinct.sort_unstable();
        distinct.dedup();
        distinct
    }

    /// Emits the product as a subroutine. The leaf's block, if it has one, is emitted between the
    /// reduction steps: it uses vector registers, so that the processor computes both at once.
    pub(super) fn emit(
        &self,
        isa: &mut impl InstructionSet,
        plan: &mut EmitOrder,
        (nest, leaf): (&LeafNest, &Leaf),
    ) -> Result<(), Failure> {
        let (first_stride, distinct) = (self.first_stride(nest), self.distinct_strides(nest));
        let (needed, available) = (self.integers(nest), isa.integers());
        if needed > available {
            return Err(AssembleError::Pointers { needed, available }.into());
        }
        let scratch = self.scratch(nest) as u8;
        let common = Common { accumulators: leaf.reserved_registers(), scratch, streamed: 0 };
        let mut block_parts = OverlappedBlock::of(leaf, common, plan, self.steps(0));

        isa.begin_leaf(leaf, nest.has_steps());
        for (number, &stride) in distinct.iter().enumerate() {
            isa.set_integer((first_stride + number) as u8, stride);
        }
        self.grid.all_sums().for_each(|(register, _)| isa.clear_tile(register));
        let register = |stride| (first_stride + distinct.partition_point(|&other| other < stride)) as u8;
        let places = TileAddresses { nest, tiles: self, strides: self.strides(nest).map(register) };
        self.emit_loops(isa, &places, 0, &mut block_parts)?;

        for (register, offset) in self.grid.all_sums() {
            let (at, stride) = places.at(SUMS, offset)?;
            isa.store_tile(register, at, stride);
        }
        isa.end_leaf();
        Ok(())
    }

    /// Emits the loops over reduction steps from the one of this number on. The first iterations
    /// are written out as long as code is left to emit between them.
    fn emit_loops(
        &self,
        isa: &mut impl InstructionSet,
        places: &TileAddresses,
        number: usize,
        block_parts: &mut OverlappedBlock,
    ) -> Result<(), Failure> {
        let Some(&(var, extent)) = self.outer_loops.get(number) else {
            self.emit_products(isa, places)?;
            return block_parts.emit_part(isa, places.nest);
        };
        let written = block_parts.parts.len().div_ceil(self.steps(number + 1)).min(extent);
        for _ in 0..written {
            self.emit_loops(isa, places, number + 1, block_parts)?;
            advance(isa, places.nest, var, 1);
        }

        if written < extent {
            let counter = (places.nest.pointers.len() + number) as u8;
            isa.set_integer(counter, (extent - written) as i64);
            let top = isa.position();
            self.emit_loops(isa, places, number + 1, block_parts)?;
            advance(isa, places.nest, var, 1);
            isa.count_down(counter, top);
        }
        // The pointers return to the loop's first iteration, as outer loops expect.
        advance(isa, places.nest, var, -(extent as i64));
        Ok(())
    }

    /// Emits one reduction step of all tiles. Every tile is loaded right before its first product.
    fn emit_products(&self, isa: &mut impl InstructionSet, places: &TileAddresses) -> Result<(), Failure> {
        self.emit_prefetches(isa, places)?;
        let mut loaded = None;
        for parts in self.grid.products() {
            self.emit_product(isa, places, (loaded, parts))?;
            loaded = Some(parts);
        }
        Ok(())
    }

    /// Emits the product of some parts of all tiles of data and weights. Tiles of the parts
    /// `loaded` are in their registers.
    fn emit_product(
        &self,
        isa: &mut impl InstructionSet,
        places: &TileAddresses,
        (loaded, parts): (Option<FactorParts>, FactorParts),
    ) -> Result<(), Failure> {
        let grid = &self.grid;
        let needs = |of: usize| loaded.is_none_or(|loaded| loaded[of] != parts[of]);
        for (i, row) in grid.rows.iter().enumerate() {
            for (j, column) in grid.columns.iter().enumerate() {
                if i == 0 && needs(WEIGHTS) {
                    let (at, stride) = places.at(WEIGHTS, column.factor + parts[WEIGHTS])?;
                    isa.load_tile(grid.weights(j), at, stride);
                }
                if j == 0 && needs(DATA) {
                    let (at, stride) = places.at(DATA, row.factor + parts[DATA])?;
                    isa.load_tile(grid.data(i), at, stride);
                }
                isa.multiply_tiles(grid.by, grid.sums(i, j), [grid.data(i), grid.weights(j)]);
            }
        }
        Ok(())
    }

    /// Emits prefetches of weights for one reduction step: of each part.
    fn emit_prefetches(&self, isa: &mut impl InstructionSet, places: &TileAddresses) -> Result<(), Failure> {
        let Some((pointer, lines)) = self.prefetch else { return Ok(()) };
        let parts = [Some(0), self.grid.low.map(|low| low[WEIGHTS])];
        for part in parts.into_iter().flatten() {
            let first = Address { pointer, disp: places.disp(WEIGHTS, part)? };
            for line in 0..lines {
                isa.prefetch(first.offset_by(line, LINE_BYTES as i32), PrefetchHint::Read(PrefetchLevel::L2));
            }
        }
        Ok(())
    }
}
