//! Tiles of a product, their registers and their configuration.

use smallvec::{SmallVec, smallvec};

use super::error::{AssembleError, Failure};
use autotune_ir::DType;
use autotune_ir::instruction::{SPLIT_PRODUCTS, TILE_REGISTERS, TileProduct, TileSpan, TileStrides, tile_registers_of};
use autotune_ir::machine::cpu;
use autotune_ir::program::Program;

/// Bytes of a cache line.
pub(super) const LINE_BYTES: usize = cpu::LINE_BYTES as usize;

/// Product of two words of tiles, added to a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TileArithmetic {
    /// Pairs of bf16 in each word, with sums in f32.
    Bf16,
    /// Four bytes in each word, with sums in 32-bit integers; true for each factor whose bytes are
    /// signed.
    Bytes([bool; 2]),
}

impl TileArithmetic {
    /// Returns the product of factors of these types, if there is one.
    pub(super) fn of(dtypes: [DType; 2]) -> Option<Self> {
        match dtypes {
            [DType::Bf16, DType::Bf16] => Some(TileArithmetic::Bf16),
            [DType::I8 | DType::U8, DType::I8 | DType::U8] => {
                Some(TileArithmetic::Bytes(dtypes.map(|dtype| dtype == DType::I8)))
            }
            _ => None,
        }
    }
}

/// Rows, and bytes of a row, of the tile in each register; zeros for unused registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct TileConfiguration(pub(super) [[u8; 2]; TILE_REGISTERS]);

/// Tiles of a product. The sums are in the first registers, row by row; the data of each row tile
/// and the weights of each column tile follow.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TileGrid {
    pub(super) by: TileArithmetic,
    /// Words of a row of data.
    pub(super) words: usize,
    pub(super) strides: TileStrides,
    pub(super) rows: Vec<TileSpan>,
    pub(super) columns: Vec<TileSpan>,
    /// Distances in elements from the high to the low parts of data and weights; `None` if factors
    /// have one part.
    pub(super) low: Option<[i64; 2]>,
}

/// Parts of the factors to multiply: distances in elements of data and weights from the high part.
pub(super) type FactorParts = [i64; 2];

/// Product of tiles that a leaf computes.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TileNest {
    pub(super) grid: TileGrid,
    /// Serial loops, outermost first: their variables and numbers of iterations.
    pub(super) outer_loops: Vec<(u32, usize)>,
    /// Pointer, and offset from it in elements, of data, weights and sums.
    pub(super) places: [(u8, i64); 3],
    /// Pointer to weights to prefetch, and number of cache lines in each reduction step.
    pub(super) prefetch: Option<(u8, usize)>,
}

impl TileGrid {
    /// Returns the tiles of a product; `None` if no tile instruction computes it.
    pub(super) fn of(product: &TileProduct, program: &Program) -> Result<Option<Self>, Failure> {
        let dtypes = [product.data, product.weights].map(|factor| program.dtype(factor.buffer));
        let Some((by, (rows, strides))) = TileArithmetic::of(dtypes).zip(product.row_tiles(program)) else {
            return Ok(None);
        };
        let (columns, low) = (product.column_tiles(program), product.low_distances(program));
        if low.is_some() != product.low.is_some() {
            return Ok(None);
        }

        if tile_registers_of([rows.len(), columns.len()]) > TILE_REGISTERS {
            return Err(AssembleError::Tiles { rows: rows.len(), columns: columns.len() }.into());
        }
        Ok(Some(Self { by, words: product.row_words(), strides, rows, columns, low }))
    }

    /// Returns the parts of data and weights that are multiplied in one reduction step, in an order
    /// in which one of the two is the same in consecutive products.
    pub(super) fn products(&self) -> SmallVec<[FactorParts; SPLIT_PRODUCTS]> {
        match self.low {
            Some([data, weights]) => SmallVec::from([[data, 0], [0, 0], [0, weights]]),
            None => smallvec![[0, 0]],
        }
    }

    /// Returns the sizes of the tiles in all registers.
    pub(super) fn configuration(&self) -> TileConfiguration {
        let mut sizes = TileConfiguration::default();
        let mut set = |register: u8, rows: usize, words: usize| {
            sizes.0[usize::from(register)] = [rows as u8, 4 * words as u8];
        };
        for (i, row) in self.rows.iter().enumerate() {
            set(self.data(i), row.count, self.words);
            for (j, column) in self.columns.iter().enumerate() {
                set(self.sums(i, j), row.count, column.count);
                // A row of weights holds one word of each column, so there are as many rows as
                // words.
                set(self.weights(j), self.words, column.count);
            }
        }
        sizes
    }

    /// Returns the number of bytes of each part of the weights in one reduction step.
    pub(super) fn weight_bytes(&self) -> usize {
        4 * self.words * self.columns.iter().map(|column| column.count).sum::<usize>()
    }

    /// Returns the register of the sums of a row tile and a column tile.
    pub(super) fn sums(&self, row: usize, column: usize) -> u8 {
        (row * self.columns.len() + column) as u8
    }

    /// Returns the register of the data of a row tile.
    pub(super) fn data(&self, row: usize) -> u8 {
        (self.rows.len() * self.columns.len() + row) as u8
    }

    /// Returns the register of the weights of a column tile.
    pub(super) fn weights(&self, column: usize) -> u8 {
        self.data(self.rows.len() + column)
    }

    /// Returns the register and the offset of the sums of each row tile and column tile.
    pub(super) fn all_sums(&self) -> impl Iterator<Item = (u8, i64)> {
        let offset = |i: usize, j: usize| self.rows[i].sums + self.columns[j].sums;
        let columns = self.columns.len();
        (0..self.rows.len()).flat_map(move |i| (0..columns).map(move |j| (self.sums(i, j), offset(i, j))))
    }
}
