//! Tile registers.

use super::super::tile_registers::TileRegisters;
use super::StepRecorder;
use super::machine::Machine;
use crate::asm::instruction_set::{Address, TileInstructions};
use crate::asm::tile_grid::{TileArithmetic, TileConfiguration};

impl Machine {
    fn tiles(&mut self) -> &mut TileRegisters {
        self.tiles.as_mut().expect("tiles that are not configured")
    }

    /// Returns the address of a row of a tile.
    fn row(&self, at: Address, stride: u8, row: usize) -> Address {
        at.offset_by(row, self.integer(stride) as i32)
    }
}

impl TileInstructions for StepRecorder {
    fn has_tiles(&self) -> bool {
        self.set.tiles
    }

    fn configure_tiles(&mut self, sizes: TileConfiguration) {
        self.record(move |m| m.tiles = Some(TileRegisters::new(sizes)));
    }

    fn release_tiles(&mut self) {
        self.record(|m| m.tiles = None);
    }

    fn clear_tile(&mut self, tile: u8) {
        self.record(move |m| m.tiles().clear(tile.into()));
    }

    fn load_tile(&mut self, tile: u8, at: Address, stride: u8) {
        self.check(&[], &[at.pointer, stride]);
        self.record(move |m| {
            let mut tiles = m.tiles.take().expect("tiles that are not configured");
            tiles.load(tile.into(), |row, word| m.word(m.row(at, stride, row), word).to_bits());
            m.tiles = Some(tiles);
        });
    }

    fn store_tile(&mut self, tile: u8, at: Address, stride: u8) {
        self.check(&[], &[at.pointer, stride]);
        self.record(move |m| {
            let tiles = m.tiles.take().expect("tiles that are not configured");
            tiles.store(tile.into(), |row, word, bits| {
                m.set_word(m.row(at, stride, row), word, f32::from_bits(bits));
            });
            m.tiles = Some(tiles);
        });
    }

    fn multiply_tiles(&mut self, by: TileArithmetic, sums: u8, factors: [u8; 2]) {
        self.record(move |m| m.tiles().multiply(by, sums.into(), factors.map(usize::from)));
    }
}
