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

use smallvec::SmallVec;

use super::error::{AssembleError, Failure};
use super::instruction_set::{Address, InstructionSet};
use super::leaf::Leaf;
use super::nest::LeafNest;
use super::stage::advance;
use super::tile_grid::TileNest;
use autotune_ir::instruction::TileStrides;

/// Number of data, weights and sums in their arrays.
const DATA: usize = 0;
const WEIGHTS: usize = 1;
const SUMS: usize = 2;

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
        let bytes = (first + offset) * self.nest.types[usize::from(pointer)].bytes();
        let disp = i32::try_from(bytes).map_err(|_| AssembleError::Displacement { bytes })?;
        Ok((Address { pointer, disp }, self.strides[of]))
    }
}

impl TileNest {
    /// Emits the product as a subroutine. After the pointers, the integer registers hold the loop
    /// counters, then the distances between rows.
    pub(super) fn emit(&self, isa: &mut impl InstructionSet, nest: &LeafNest) -> Result<(), Failure> {
        let first_counter = nest.pointers.len();
        let first_stride = first_counter + self.outer_loops.len();
        let bytes = |of: usize| nest.types[usize::from(self.places[of].0)].bytes();
        let TileStrides { data, weights, sums } = self.grid.strides;
        let strides = [data * bytes(DATA), weights * bytes(WEIGHTS), sums * bytes(SUMS)];
        // Equal distances share a register.
        let mut distinct: SmallVec<[i64; 3]> = SmallVec::from(strides);
        distinct.sort_unstable();
        distinct.dedup();
        let (needed, available) = (first_stride + distinct.len(), isa.integers());
        if needed > available {
            return Err(AssembleError::Pointers { needed, available }.into());
        }

        isa.begin_leaf(&Leaf::default(), false);
        for (number, &stride) in distinct.iter().enumerate() {
            isa.set_integer((first_stride + number) as u8, stride);
        }
        self.grid.all_sums().for_each(|(register, _)| isa.clear_tile(register));
        let strides = strides.map(|stride| (first_stride + distinct.partition_point(|&other| other < stride)) as u8);
        let places = TileAddresses { nest, tiles: self, strides };
        self.emit_loops(isa, &places, first_counter)?;

        for (register, offset) in self.grid.all_sums() {
            let (at, stride) = places.at(SUMS, offset)?;
            isa.store_tile(register, at, stride);
        }
        isa.end_leaf();
        Ok(())
    }

    /// Emits the loops over reduction steps.
    fn emit_loops(
        &self,
        isa: &mut impl InstructionSet,
        places: &TileAddresses,
        first_counter: usize,
    ) -> Result<(), Failure> {
        let mut tops: SmallVec<[(u8, usize); 4]> = SmallVec::new();
        for (number, &(_, extent)) in self.outer_loops.iter().enumerate() {
            let counter = (first_counter + number) as u8;
            isa.set_integer(counter, extent as i64);
            tops.push((counter, isa.position()));
        }

        self.emit_products(isa, places)?;
        for (&(var, extent), (counter, top)) in self.outer_loops.iter().zip(tops).rev() {
            advance(isa, places.nest, var, 1);
            isa.count_down(counter, top);
            // The pointers return to the loop's first iteration, as outer loops expect.
            advance(isa, places.nest, var, -(extent as i64));
        }
        Ok(())
    }

    /// Emits one reduction step of all tiles. Every tile is loaded right before its first product.
    fn emit_products(&self, isa: &mut impl InstructionSet, places: &TileAddresses) -> Result<(), Failure> {
        let grid = &self.grid;
        for (i, row) in grid.rows.iter().enumerate() {
            for (j, column) in grid.columns.iter().enumerate() {
                if i == 0 {
                    let (at, stride) = places.at(WEIGHTS, column.factor)?;
                    isa.load_tile(grid.weights(j), at, stride);
                }
                if j == 0 {
                    let (at, stride) = places.at(DATA, row.factor)?;
                    isa.load_tile(grid.data(i), at, stride);
                }
                isa.multiply_tiles(grid.by, grid.sums(i, j), [grid.data(i), grid.weights(j)]);
            }
        }
        Ok(())
    }
}
