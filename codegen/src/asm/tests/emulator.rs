//! Emulator of the x86 instructions in products of tiles, and in the copies around them, for hosts
//! without tile registers. It decodes the bytes of the code.

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

use super::tile_registers::TileRegisters;
use crate::asm::tile_grid::{TileArithmetic, TileConfiguration};
use autotune_ir::MachineCode;

/// Bits of an address within a segment of memory; the others are the segment's number plus one.
const SEGMENT_BITS: u32 = 32;
/// Bytes of the stack.
const STACK: usize = 1 << 12;
const LANES: usize = 16;

/// Registers and memory of a thread.
pub(super) struct Emulator<'c> {
    code: &'c MachineCode,
    /// Buffers, thread-private memory, pointers to the buffers, stack, and code.
    segments: Vec<Vec<u8>>,
    buffers: usize,
    integers: [u64; 16],
    vectors: [[u32; LANES]; 32],
    masks: [u32; 8],
    tiles: Option<TileRegisters>,
    /// Result of the last comparison: if the first operand was less, and if both were equal.
    is_less: bool,
    is_equal: bool,
}

fn address_of(segment: usize) -> u64 {
    (segment as u64 + 1) << SEGMENT_BITS
}

impl<'c> Emulator<'c> {
    /// Creates an emulator with these buffers, the last of which is thread-private memory.
    pub(super) fn new(code: &'c MachineCode, memory: Vec<Vec<u8>>) -> Self {
        let (buffers, mut segments) = (memory.len() - 1, memory);
        segments.push((0..buffers).flat_map(|buffer| address_of(buffer).to_le_bytes()).collect());
        segments.push(vec![0; STACK]);
        segments.push(code.bytes.clone());
        Self {
            code,
            segments,
            buffers,
            integers: [0xdead; 16],
            vectors: [[0; LANES]; 32],
            masks: [0; 8],
            tiles: None,
            is_less: false,
            is_equal: false,
        }
    }

    /// Returns the bytes of every buffer.
    pub(super) fn memory(self) -> Vec<Vec<u8>> {
        self.segments
    }

    /// Runs a range of tasks of a stage.
    pub(super) fn run(&mut self, stage: usize, tasks: [i64; 2]) {
        let (pointers, stack, code) = (self.buffers + 1, self.buffers + 2, self.buffers + 3);
        // The return address is 0.
        let top = address_of(stack) + STACK as u64 - 8;
        for (register, value) in [
            (Register::RDI, address_of(pointers)),
            (Register::RSI, address_of(self.buffers)),
            (Register::RDX, tasks[0].cast_unsigned()),
            (Register::RCX, tasks[1].cast_unsigned()),
            (Register::RSP, top),
        ] {
            self.integers[register.number()] = value;
        }

        let mut decoder = Decoder::new(64, &self.code.bytes[..self.code.code_bytes], DecoderOptions::NONE);
        let mut ip = address_of(code) + self.code.entries[stage] as u64;
        while ip != 0 {
            decoder.set_position((ip - address_of(code)) as usize).unwrap();
            decoder.set_ip(ip);
            let instruction = decoder.decode();
            ip = self.execute(&instruction);
        }
        assert_eq!(self.integers[Register::RSP.number()], top + 8, "the stack is not restored");
        assert!(self.tiles.is_none(), "tiles are in use after a stage");
    }

    /// Executes an instruction; returns the address of the next one.
    fn execute(&mut self, it: &Instruction) -> u64 {
        let jumps = match it.mnemonic() {
            Mnemonic::Jmp | Mnemonic::Call => true,
            Mnemonic::Jl => self.is_less,
            Mnemonic::Jne => !self.is_equal,
            _ => false,
        };
        match it.mnemonic() {
            Mnemonic::Call => self.push(it.next_ip()),
            Mnemonic::Ret => return self.pop(),
            Mnemonic::Jmp | Mnemonic::Jl | Mnemonic::Jne => {}
            _ if self.execute_integers(it) || self.execute_vectors(it) || self.execute_tiles(it) => {}
            other => panic!("{other:?} is not emulated"),
        }
        if jumps { it.near_branch64() } else { it.next_ip() }
    }

    fn execute_integers(&mut self, it: &Instruction) -> bool {
        match it.mnemonic() {
            Mnemonic::Push => self.push(self.value(it, 0)),
            Mnemonic::Pop => {
                let value = self.pop();
                self.set(it, value);
            }

            Mnemonic::Mov => self.set(it, self.value(it, 1)),
            Mnemonic::Xor => self.set(it, self.value(it, 0) ^ self.value(it, 1)),
            Mnemonic::Add => self.set(it, self.value(it, 0).wrapping_add(self.value(it, 1))),
            Mnemonic::Imul => {
                // With an immediate, the first operand is only written.
                let first = it.op_count() - 2;
                self.set(it, self.value(it, first).wrapping_mul(self.value(it, first + 1)));
            }
            Mnemonic::Div => {
                let [rax, rdx] = [Register::RAX, Register::RDX].map(Register::number);
                assert_eq!(self.integers[rdx], 0);
                let (dividend, by) = (self.integers[rax], self.value(it, 0));
                (self.integers[rax], self.integers[rdx]) = (dividend / by, dividend % by);
            }

            Mnemonic::Dec => {
                let value = self.value(it, 0).wrapping_sub(1);
                self.is_equal = value == 0;
                self.set(it, value);
            }
            Mnemonic::Cmp => {
                let [a, b] = [0, 1].map(|operand| self.value(it, operand).cast_signed());
                (self.is_less, self.is_equal) = (a < b, a == b);
            }
            Mnemonic::Cmovl if self.is_less => self.set(it, self.value(it, 1)),
            Mnemonic::Cmovg if !self.is_less && !self.is_equal => self.set(it, self.value(it, 1)),
            Mnemonic::Cmovl | Mnemonic::Cmovg => {}
            _ => return false,
        }
        true
    }

    /// Executes moves of 32-bit lanes.
    fn execute_vectors(&mut self, it: &Instruction) -> bool {
        match it.mnemonic() {
            Mnemonic::Vzeroupper | Mnemonic::Prefetcht1 => {}
            Mnemonic::Kmovw => self.masks[it.op0_register().number()] = self.value(it, 1) as u32,
            Mnemonic::Vxorps | Mnemonic::Vpxord => {
                assert_eq!(it.op1_register(), it.op2_register(), "only zeros are emulated");
                self.vectors[it.op0_register().number()] = [0; LANES];
            }
            Mnemonic::Vbroadcastss => {
                self.vectors[it.op0_register().number()] = [self.word(self.address(it)); LANES];
            }

            Mnemonic::Vmovups | Mnemonic::Vmovss => {
                let register = if it.op0_kind() == OpKind::Register { it.op0_register() } else { it.op1_register() };
                let lanes = if it.mnemonic() == Mnemonic::Vmovss { 1 } else { register.size() / 4 };
                let mask = match it.op_mask() {
                    Register::None => u32::MAX,
                    mask => self.masks[mask.number()],
                };
                let (at, v) = (self.address(it), register.number());
                let selected = (0..lanes).filter(|lane| mask & 1 << lane != 0);
                if it.op0_kind() == OpKind::Register {
                    self.vectors[v] = [0; LANES];
                    selected.for_each(|lane| self.vectors[v][lane] = self.word(at + 4 * lane as u64));
                } else {
                    selected.for_each(|lane| self.set_word(at + 4 * lane as u64, self.vectors[v][lane]));
                }
            }
            _ => return false,
        }
        true
    }

    fn execute_tiles(&mut self, it: &Instruction) -> bool {
        let tile = |operand: u32| it.op_register(operand).number();
        // Rows are at equal distances, which the index holds.
        let row_of = |this: &Self, row: usize| {
            assert!(it.memory_index_scale() == 1 && it.memory_index() != Register::None);
            let [base, index] = [it.memory_base(), it.memory_index()].map(|of| this.integers[of.number()]);
            base.wrapping_add(it.memory_displacement64()).wrapping_add(index.wrapping_mul(row as u64))
        };
        let by = match it.mnemonic() {
            Mnemonic::Ldtilecfg => {
                self.tiles = Some(TileRegisters::new(configuration(self.bytes(self.address(it), 64))));
                return true;
            }
            Mnemonic::Tilerelease => {
                self.tiles = None;
                return true;
            }
            Mnemonic::Tdpbf16ps => Some(TileArithmetic::Bf16),
            Mnemonic::Tdpbuud => Some(TileArithmetic::Bytes([false, false])),
            Mnemonic::Tdpbusd => Some(TileArithmetic::Bytes([false, true])),
            Mnemonic::Tdpbsud => Some(TileArithmetic::Bytes([true, false])),
            Mnemonic::Tdpbssd => Some(TileArithmetic::Bytes([true, true])),
            Mnemonic::Tilezero | Mnemonic::Tileloadd | Mnemonic::Tilestored => None,
            _ => return false,
        };

        let mut tiles = self.tiles.take().unwrap();
        match (by, it.mnemonic()) {
            (Some(by), _) => tiles.multiply(by, tile(0), [tile(1), tile(2)]),
            (None, Mnemonic::Tilezero) => tiles.clear(tile(0)),
            (None, Mnemonic::Tileloadd) => {
                tiles.load(tile(0), |row, word| self.word(row_of(self, row) + 4 * word as u64));
            }
            _ => tiles.store(tile(1), |row, word, bits| {
                let at = row_of(self, row) + 4 * word as u64;
                self.set_word(at, bits);
            }),
        }
        self.tiles = Some(tiles);
        true
    }

    fn push(&mut self, value: u64) {
        let rsp = Register::RSP.number();
        self.integers[rsp] -= 8;
        let at = self.integers[rsp];
        self.bytes_mut(at, 8).copy_from_slice(&value.to_le_bytes());
    }

    fn pop(&mut self) -> u64 {
        let rsp = Register::RSP.number();
        self.integers[rsp] += 8;
        number(self.bytes(self.integers[rsp] - 8, 8))
    }

    /// Returns the address of the operand in memory.
    fn address(&self, it: &Instruction) -> u64 {
        if it.is_ip_rel_memory_operand() {
            return it.memory_displacement64();
        }
        assert_eq!(it.memory_index(), Register::None);
        self.integers[it.memory_base().number()].wrapping_add(it.memory_displacement64())
    }

    /// Returns the value of an operand; registers of 32 bits are zero-extended.
    fn value(&self, it: &Instruction, operand: u32) -> u64 {
        match it.op_kind(operand) {
            OpKind::Register => {
                let value = self.integers[it.op_register(operand).number()];
                if it.op_register(operand).size() == 4 { value & u64::from(u32::MAX) } else { value }
            }
            OpKind::Memory => number(self.bytes(self.address(it), 8)),
            _ => it.immediate(operand),
        }
    }

    /// Sets the first operand.
    fn set(&mut self, it: &Instruction, value: u64) {
        match it.op0_kind() {
            OpKind::Register if it.op0_register().size() == 4 => {
                self.integers[it.op0_register().number()] = value & u64::from(u32::MAX);
            }
            OpKind::Register => self.integers[it.op0_register().number()] = value,
            _ => {
                let at = self.address(it);
                self.bytes_mut(at, 8).copy_from_slice(&value.to_le_bytes());
            }
        }
    }

    fn word(&self, at: u64) -> u32 {
        number(self.bytes(at, 4)) as u32
    }

    fn set_word(&mut self, at: u64, word: u32) {
        self.bytes_mut(at, 4).copy_from_slice(&word.to_le_bytes());
    }

    fn bytes(&self, at: u64, len: usize) -> &[u8] {
        let (segment, first) = place(at);
        &self.segments[segment][first..first + len]
    }

    fn bytes_mut(&mut self, at: u64, len: usize) -> &mut [u8] {
        let (segment, first) = place(at);
        assert!(segment < self.buffers + 3, "a store to the code");
        &mut self.segments[segment][first..first + len]
    }
}

/// Returns the segment of an address, and the position in it.
fn place(at: u64) -> (usize, usize) {
    ((at >> SEGMENT_BITS) as usize - 1, (at & ((1 << SEGMENT_BITS) - 1)) as usize)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Returns the sizes in an operand of `ldtilecfg`.
fn configuration(bytes: &[u8]) -> TileConfiguration {
    assert_eq!((bytes[0], bytes[1]), (1, 0), "palette and first row");
    let sizes = std::array::from_fn(|tile| [bytes[48 + tile], bytes[16 + 2 * tile]]);
    let known = [1, 16 + 2 * sizes.len(), 48 + sizes.len()];
    let is_reserved = |&at: &usize| {
        let is_size = (16..known[1]).contains(&at) && at % 2 == 0;
        at > 0 && !is_size && !(48..known[2]).contains(&at)
    };
    assert!((0..64).filter(is_reserved).all(|at| bytes[at] == 0), "{bytes:?}");
    TileConfiguration(sizes)
}
