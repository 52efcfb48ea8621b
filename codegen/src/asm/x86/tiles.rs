//! Tile instructions (AMX).

use super::X86;
use super::control::{address, integer};
use super::encode::{Goal, Opcode, RegisterOrMemory, TIMES_ONE};
use super::vectors::opcode;
use crate::asm::instruction_set::{Address, TileInstructions};
use crate::asm::tile_grid::{TileArithmetic, TileConfiguration};

/// `ldtilecfg`, and `tilerelease` with a register.
const CONFIGURE: Opcode = opcode(2, 0, 0x49);
/// `tilezero`: sets a tile to zero.
const CLEAR: Opcode = opcode(2, 3, 0x49);
/// `tileloadd` and `tilestored`: rows at `[base + disp + row * index]`.
const LOAD_TILE: Opcode = opcode(2, 3, 0x4b);
const STORE_TILE: Opcode = opcode(2, 2, 0x4b);
const DOT_BF16: Opcode = opcode(2, 2, 0x5c);
/// Products of bytes: `tdpbuud`, `tdpbusd`, `tdpbsud`, `tdpbssd`, whose names give the signs.
const DOT_BYTES: [Opcode; 4] = [opcode(2, 0, 0x5e), opcode(2, 1, 0x5e), opcode(2, 2, 0x5e), opcode(2, 3, 0x5e)];

impl TileInstructions for X86 {
    fn has_tiles(&self) -> bool {
        self.has_tiles
    }

    fn configure_tiles(&mut self, sizes: TileConfiguration) {
        self.code.vex(CONFIGURE, false, [0, 0], RegisterOrMemory::Constant);
        // The configuration is stored after the code and addressed relative to the instruction.
        self.code.goal(Goal::Tiles(sizes));
    }

    fn release_tiles(&mut self) {
        self.code.vex(CONFIGURE, false, [0, 0], RegisterOrMemory::Register(0));
    }

    fn clear_tile(&mut self, tile: u8) {
        self.code.vex(CLEAR, false, [tile, 0], RegisterOrMemory::Register(0));
    }

    fn load_tile(&mut self, tile: u8, at: Address, stride: u8) {
        self.code.vex_indexed(LOAD_TILE, false, [tile, 0], (address(at), TIMES_ONE), integer(stride) as u8);
    }

    fn store_tile(&mut self, tile: u8, at: Address, stride: u8) {
        self.code.vex_indexed(STORE_TILE, false, [tile, 0], (address(at), TIMES_ONE), integer(stride) as u8);
    }

    fn multiply_tiles(&mut self, by: TileArithmetic, sums: u8, [data, weights]: [u8; 2]) {
        let op = match by {
            TileArithmetic::Bf16 => DOT_BF16,
            TileArithmetic::Bytes([data, weights]) => DOT_BYTES[2 * usize::from(data) + usize::from(weights)],
        };
        // The first source is encoded in ModRM, the second one in the prefix.
        self.code.vex(op, false, [sums, weights], RegisterOrMemory::Register(data));
    }
}

#[cfg(test)]
mod tests {
    use autotune_ir::{CpuTarget, Isa, MachineCode};

    use super::*;
    use crate::asm::instruction_set::Control;
    use crate::asm::x86::disassemble;

    #[test]
    fn tile_instructions_have_their_operands() {
        let features = vec!["amx".into()];
        let mut x86 = X86::new(&CpuTarget { isa: Isa::Avx512, features, ..CpuTarget::generic_avx2(1) });
        x86.configure_tiles(TileConfiguration([[16, 64]; 8]));
        x86.clear_tile(7);
        x86.load_tile(1, Address { pointer: 0, disp: 0 }, 1);
        // r12 and r13 as bases, and r12 as an index: their lowest bits mean other operands.
        x86.load_tile(6, Address { pointer: 10, disp: -64 }, 11);
        x86.load_tile(5, Address { pointer: 11, disp: 1 << 20 }, 10);
        x86.store_tile(4, Address { pointer: 9, disp: 256 }, 13);
        x86.multiply_tiles(TileArithmetic::Bf16, 1, [2, 3]);
        x86.multiply_tiles(TileArithmetic::Bytes([true, true]), 4, [5, 6]);
        x86.multiply_tiles(TileArithmetic::Bytes([false, true]), 7, [0, 1]);
        x86.multiply_tiles(TileArithmetic::Bytes([true, false]), 2, [3, 4]);
        x86.multiply_tiles(TileArithmetic::Bytes([false, false]), 0, [7, 6]);
        x86.release_tiles();

        let (bytes, code_bytes) = x86.finish(&[]).unwrap();
        let code = MachineCode { bytes, code_bytes, entries: Vec::new() };
        let text = disassemble(&code);
        let lines: Vec<&str> = text.lines().filter_map(|line| Some(line.trim_start().split_once("  ")?.1)).collect();
        assert_eq!(
            lines,
            [
                &format!("ldtilecfg [rel {:X}h]", code_bytes),
                "tilezero tmm7",
                "tileloadd tmm1, [rdi+rsi]",
                "tileloadd tmm6, [r12+r13-40h]",
                "tileloadd tmm5, [r13+r12+100000h]",
                "tilestored [rbp+r15+100h], tmm4",
                "tdpbf16ps tmm1, tmm2, tmm3",
                "tdpbssd tmm4, tmm5, tmm6",
                "tdpbusd tmm7, tmm0, tmm1",
                "tdpbsud tmm2, tmm3, tmm4",
                "tdpbuud tmm0, tmm7, tmm6",
                "tilerelease",
            ]
        );
    }
}
