//! Tile registers with their contents (Intel, "Software Developer's Manual", volume 2).

use crate::asm::tile_grid::{TileArithmetic, TileConfiguration};
use autotune_ir::instruction::{TILE_REGISTERS, TILE_ROWS};

type Words = [[u32; TILE_ROWS]; TILE_ROWS];

/// Tile registers of a simulated processor, with the sizes that their configuration gives them.
pub(super) struct TileRegisters {
    sizes: TileConfiguration,
    contents: [Words; TILE_REGISTERS],
}

impl TileRegisters {
    pub(super) fn new(sizes: TileConfiguration) -> Self {
        for [rows, row_bytes] in sizes.0 {
            assert!(usize::from(rows) <= TILE_ROWS && usize::from(row_bytes) <= 4 * TILE_ROWS);
            assert!((rows == 0) == (row_bytes == 0), "{sizes:?}");
        }
        Self { sizes, contents: [[[0; TILE_ROWS]; TILE_ROWS]; TILE_REGISTERS] }
    }

    /// Returns the rows and the words of a row of a tile.
    fn size(&self, tile: usize) -> [usize; 2] {
        let [rows, row_bytes] = self.sizes.0[tile].map(usize::from);
        assert!(rows > 0 && row_bytes.is_multiple_of(4), "tile {tile} is not configured: {:?}", self.sizes);
        [rows, row_bytes / 4]
    }

    pub(super) fn clear(&mut self, tile: usize) {
        self.load(tile, |_, _| 0);
    }

    /// Sets each word of a tile, by its row and column.
    pub(super) fn load(&mut self, tile: usize, mut word: impl FnMut(usize, usize) -> u32) {
        let [rows, columns] = self.size(tile);
        self.contents[tile] = [[0; TILE_ROWS]; TILE_ROWS];
        (0..rows).for_each(|row| (0..columns).for_each(|at| self.contents[tile][row][at] = word(row, at)));
    }

    /// Passes on each word of a tile, with its row and column.
    pub(super) fn store(&self, tile: usize, mut set: impl FnMut(usize, usize, u32)) {
        let [rows, columns] = self.size(tile);
        (0..rows).for_each(|row| (0..columns).for_each(|at| set(row, at, self.contents[tile][row][at])));
    }

    pub(super) fn multiply(&mut self, by: TileArithmetic, sums: usize, [data, weights]: [usize; 2]) {
        let [[rows, columns], [data_rows, words], [weight_rows, weight_columns]] =
            [sums, data, weights].map(|tile| self.size(tile));
        assert_eq!([rows, words, columns], [data_rows, weight_rows, weight_columns], "tiles of other sizes");
        assert!(sums != data && sums != weights && data != weights, "a tile twice");
        for row in 0..rows {
            for word in 0..words {
                let a = self.contents[data][row][word];
                for column in 0..columns {
                    let sum = self.contents[sums][row][column];
                    self.contents[sums][row][column] = added(by, sum, a, self.contents[weights][word][column]);
                }
            }
        }
    }
}

/// Returns a sum and the products of the elements of two words.
fn added(by: TileArithmetic, sum: u32, a: u32, b: u32) -> u32 {
    let halves = |word: u32| [word << 16, word & 0xffff_0000].map(f32::from_bits);
    let bytes = |word: u32, is_signed: bool| {
        word.to_le_bytes().map(|byte| if is_signed { i32::from(byte.cast_signed()) } else { i32::from(byte) })
    };
    match by {
        TileArithmetic::Bf16 => {
            let products = halves(a).into_iter().zip(halves(b)).map(|(a, b)| a * b);
            (f32::from_bits(sum) + products.sum::<f32>()).to_bits()
        }
        TileArithmetic::Bytes([data, weights]) => {
            let products = bytes(a, data).into_iter().zip(bytes(b, weights)).map(|(a, b)| a * b);
            products.fold(sum, |sum, product| sum.wrapping_add(product.cast_unsigned()))
        }
    }
}
