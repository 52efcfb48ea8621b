//! Instruction encoding: prefixes, opcode, operands (Intel 64 and IA-32 Architectures Software
//! Developer's Manual, volume 2).

use super::constants::CodeConstants;
use crate::asm::error::{AssembleError, Failure};
use crate::asm::tile_grid::TileConfiguration;

/// An integer register; its discriminant is its number in encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Integer {
    Rax,
    Rcx,
    Rdx,
    Rbx,
    Rsp,
    Rbp,
    Rsi,
    Rdi,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

/// Memory at `[base + disp]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryOperand {
    pub(super) base: Integer,
    pub(super) disp: i32,
}

/// A register or memory operand (the ModRM r/m field).
#[derive(Clone, Copy, Debug)]
pub(super) enum RegisterOrMemory {
    /// A register, by number.
    Register(u8),
    Memory(MemoryOperand),
    /// RIP-relative memory. The last four bytes of the instruction are the displacement from its
    /// end.
    Constant,
}

impl From<Integer> for RegisterOrMemory {
    fn from(register: Integer) -> Self {
        RegisterOrMemory::Register(register as u8)
    }
}

impl From<MemoryOperand> for RegisterOrMemory {
    fn from(at: MemoryOperand) -> Self {
        RegisterOrMemory::Memory(at)
    }
}

impl RegisterOrMemory {
    /// Returns bits 3 and 4 of the number of the register, or of the base register.
    fn high_bits(self) -> u8 {
        match self {
            RegisterOrMemory::Register(number) => number >> 3,
            RegisterOrMemory::Memory(at) => at.base as u8 >> 3,
            RegisterOrMemory::Constant => 0,
        }
    }
}

/// Opcode of a vector instruction.
#[derive(Clone, Copy)]
pub(super) struct Opcode {
    /// Opcode map: 1 for 0F, 2 for 0F38, 3 for 0F3A.
    pub(super) map: u8,
    /// Implied prefix: 0 for none, 1 for 66, 2 for F3, 3 for F2.
    pub(super) prefix: u8,
    pub(super) code: u8,
}

/// Flags of [`CodeBuffer::evex`], to be added to the number of a mask register.
pub(super) mod evex {
    pub(in super::super) const ZEROING: u8 = 0x80;
    pub(in super::super) const BITS_512: u8 = 0x40;
    pub(in super::super) const BITS_256: u8 = 0x20;
    pub(in super::super) const BROADCAST: u8 = 0x10;
}

/// Target of a 32-bit displacement at the end of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Goal {
    /// The leaf of this number.
    Leaf(usize),
    /// An offset in the code.
    Code(usize),
    /// An address outside the code, as a distance from the code's first byte.
    Outside(i64),
    /// A mask of eight words, of which the first ones, this many, have all bits set.
    Mask(u8),
    /// A 32-bit constant in memory.
    Constant(u32),
    /// A vector of lane numbers: the first is `first`, each further one is larger by `step`, modulo
    /// `modulus`.
    Lanes { first: u32, step: u32, modulus: u32, lanes: u8 },
    /// A vector of lane numbers: a matrix of 4 columns, numbered by rows, in the order of columns.
    TransposedLanes { lanes: u8 },
    /// Operand of `ldtilecfg`: the sizes of all tiles.
    Tiles(TileConfiguration),
}

/// Scale factors of an index, as powers of two.
pub(super) const TIMES_ONE: u8 = 0;
pub(super) const TIMES_TWO: u8 = 1;
pub(super) const TIMES_FOUR: u8 = 2;

/// Encoded instructions, in order.
#[derive(Default)]
pub(super) struct CodeBuffer {
    /// Code in the first `len` bytes; the rest is reserved.
    bytes: Vec<u8>,
    len: usize,
    /// Displacements to resolve: the offset of their end, and their target.
    goals: Vec<(usize, Goal)>,
}

/// Maximum number of bytes of one write.
const ROOM: usize = 16;

impl CodeBuffer {
    /// Returns the offset of the next instruction.
    pub(super) fn position(&self) -> usize {
        self.len
    }

    /// Returns the bytes after the code, at least [`ROOM`].
    #[inline]
    fn room(&mut self) -> &mut [u8; ROOM] {
        if self.bytes.len() < self.len + ROOM {
            self.bytes.resize((2 * self.bytes.len()).max(4096), 0);
        }
        let (room, _) = self.bytes[self.len..].as_chunks_mut();
        &mut room[0]
    }

    /// Writes the first `len` bytes of a number, lowest first.
    fn put(&mut self, bytes: u64, len: usize) {
        self.room()[..8].copy_from_slice(&bytes.to_le_bytes());
        self.len += len;
    }

    /// Writes an instruction: the first `len` bytes (at most 8) of a number, then operands.
    #[inline]
    fn instruction(&mut self, head: u64, len: usize, (operands, operands_len): (u64, usize)) {
        // Fixed-size copies are faster; excess bytes are overwritten by the next instruction.
        let room = self.room();
        room[..8].copy_from_slice(&head.to_le_bytes());
        room[len..len + 8].copy_from_slice(&operands.to_le_bytes());
        self.len += len + operands_len;
    }

    /// Writes an integer instruction. `wide` selects 64 bits; the opcode's bytes are a number with
    /// the first byte highest.
    pub(super) fn legacy(&mut self, wide: bool, opcode: u16, reg: u8, place: impl Into<RegisterOrMemory>) {
        let place = place.into();
        // The bits W, R and B of the REX prefix, which is omitted if all are zero.
        let rex = u8::from(wide) << 3 | reg >> 3 << 2 | place.high_bits();
        let [first, second] = opcode.to_be_bytes();
        let (head, len) = if first == 0 { (u64::from(second), 1) } else { (u64::from(opcode.swap_bytes()), 2) };
        let (head, len) = if rex == 0 { (head, len) } else { (head << 8 | u64::from(0x40 | rex), len + 1) };
        self.instruction(head, len, operands(reg, place, 0));
    }

    /// Writes an instruction whose opcode contains the register's number, and an immediate of `len`
    /// bytes.
    pub(super) fn short(&mut self, wide: bool, opcode: u8, register: Integer, immediate: u64, len: usize) {
        let rex = u8::from(wide) << 3 | register as u8 >> 3;
        if rex != 0 {
            self.put(u64::from(0x40 | rex), 1);
        }
        self.put(u64::from(opcode | register as u8 & 7), 1);
        self.put(immediate, len);
    }

    /// Writes bytes as they are.
    pub(super) fn plain(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.put(u64::from(byte), 1));
    }

    /// Writes a VEX-encoded vector instruction, of 256 or 128 bits. `second` is the number of the
    /// middle operand, 0 for none.
    pub(super) fn vex(&mut self, op: Opcode, is_256: bool, [reg, second]: [u8; 2], place: RegisterOrMemory) {
        let (r, b) = (u64::from(!reg >> 3 & 1), u64::from(!place.high_bits() & 1));
        let rest = u64::from(!second & 15) << 3 | u64::from(is_256) << 2 | u64::from(op.prefix);
        let code = u64::from(op.code);
        let operands = operands(reg, place, 0);
        // The two-byte prefix has neither the opcode map nor the B bit.
        if op.map == 1 && b == 1 {
            self.instruction(0xc5 | (r << 7 | rest) << 8 | code << 16, 3, operands);
        } else {
            let first = r << 7 | 0x40 | b << 5 | u64::from(op.map);
            self.instruction(0xc4 | first << 8 | rest << 16 | code << 24, 4, operands);
        }
    }

    /// Writes an EVEX-encoded vector instruction, of 512 bits or fewer, with a mask and flags.
    ///
    /// One-byte displacements count in units of `1 << scale`, the size of the memory operand.
    pub(super) fn evex(&mut self, op: Opcode, flags: u8, [reg, second]: [u8; 2], place: RegisterOrMemory, scale: u32) {
        // The prefix stores bits of register numbers inverted.
        let fixed = [0x62, 0xf0 | op.map, 0x7c | op.prefix, flags | 8];
        let [reg_bits, second, high] = [reg, second, place.high_bits()].map(u32::from);
        let registers =
            (reg_bits & 8) << 12 | (reg_bits & 16) << 8 | high << 13 | (second & 15) << 19 | (second & 16) << 23;
        let head = u64::from(u32::from_le_bytes(fixed) ^ registers) | u64::from(op.code) << 32;
        self.instruction(head, 5, operands(reg, place, scale));
    }

    /// Writes a VEX-encoded instruction of 256 or 128 bits with an indexed address: a gather, whose
    /// index is a vector, or a load or store of a tile, whose index is an integer register.
    pub(super) fn vex_indexed(
        &mut self,
        op: Opcode,
        is_256: bool,
        [reg, second]: [u8; 2],
        (at, scale): (MemoryOperand, u8),
        index: u8,
    ) {
        let high = |number: u8, bit: u8| u64::from(!number >> 3 & 1) << bit;
        let first = high(reg, 7) | high(index, 6) | high(at.base as u8, 5) | u64::from(op.map);
        let rest = u64::from(!second & 15) << 3 | u64::from(is_256) << 2 | u64::from(op.prefix);
        self.put(0xc4 | first << 8 | rest << 16 | u64::from(op.code) << 24, 4);
        self.indexed(reg, (at, scale), index);
    }

    /// Writes an EVEX-encoded gather of 512 bits or fewer, with a mask and flags.
    pub(super) fn evex_indexed(&mut self, op: Opcode, flags: u8, reg: u8, (at, scale): (MemoryOperand, u8), index: u8) {
        let high = |number: u8, of: u8, bit: u8| (number >> of & 1) << bit;
        let registers = high(reg, 3, 7) | high(index, 3, 6) | high(at.base as u8, 3, 5) | high(reg, 4, 4);
        let head = [0x62, (0xf0 | op.map) ^ registers, 0x7c | op.prefix, (flags | 8) ^ high(index, 4, 3), op.code];
        self.plain(&head);
        self.indexed(reg, (at, scale), index);
    }

    /// Writes operands with an indexed address. The index is multiplied by two to the power of
    /// `scale`; the displacement has four bytes.
    fn indexed(&mut self, reg: u8, (at, scale): (MemoryOperand, u8), index: u8) {
        let scaled = scale << 6 | (index & 7) << 3 | at.base as u8 & 7;
        self.plain(&[0x84 | (reg & 7) << 3, scaled]);
        self.put(u64::from(at.disp as u32), 4);
    }

    /// Writes a 32-bit displacement to a target; returns the displacement's number.
    pub(super) fn displacement_to(&mut self, goal: Goal) -> usize {
        self.put(0, 4);
        self.goal(goal)
    }

    /// Makes the last four bytes a displacement to a target; returns the displacement's number.
    pub(super) fn goal(&mut self, goal: Goal) -> usize {
        // A displacement counts from the end of its four bytes.
        self.goals.push((self.position(), goal));
        self.goals.len() - 1
    }

    /// Changes the target of a displacement.
    pub(super) fn retarget(&mut self, number: usize, goal: Goal) {
        self.goals[number].1 = goal;
    }

    /// Returns the offsets of displacements to addresses outside of the code.
    pub(super) fn references(&self) -> Vec<usize> {
        let outside = self.goals.iter().filter(|(_, goal)| matches!(goal, Goal::Outside(_)));
        outside.map(|&(end, _)| end - 4).collect()
    }

    /// Writes an immediate of `len` bytes, which ends an instruction.
    pub(super) fn immediate(&mut self, value: i64, len: usize) {
        self.put(value as u64, len);
    }

    /// Resolves all displacements; returns the code followed by constants, and the length of the
    /// code.
    pub(super) fn finish(self, leaves: &[usize]) -> Result<(Vec<u8>, usize), Failure> {
        let (mut bytes, code_bytes) = (self.bytes, self.len);
        bytes.truncate(code_bytes);
        let constants = CodeConstants::append(&self.goals, &mut bytes);
        for (end, goal) in self.goals {
            let at = match goal {
                Goal::Leaf(i) => leaves[i] as i64,
                Goal::Code(at) => at as i64,
                Goal::Outside(at) => at,
                constant => constants.at(constant) as i64,
            };
            let distance = at - end as i64;
            let disp = i32::try_from(distance).map_err(|_| AssembleError::Displacement { bytes: distance })?;
            bytes[end - 4..end].copy_from_slice(&disp.to_le_bytes());
        }
        Ok((bytes, code_bytes))
    }
}

/// Returns the ModRM, SIB and displacement bytes of operands, lowest first, and their number.
/// One-byte displacements count in units of `1 << scale`.
fn operands(reg: u8, place: RegisterOrMemory, scale: u32) -> (u64, usize) {
    let reg = u64::from(reg & 7) << 3;
    let MemoryOperand { base, disp } = match place {
        RegisterOrMemory::Register(number) => return (0xc0 | reg | u64::from(number & 7), 1),
        RegisterOrMemory::Constant => return (reg | 5, 5),
        RegisterOrMemory::Memory(at) => at,
    };
    let base = u64::from(base as u8 & 7);
    // A base register numbered 4 (modulo 8) needs a SIB byte, one numbered 5 a displacement.
    let (head, len) = if base == 4 { (reg | 4 | 0x24 << 8, 2) } else { (reg | base, 1) };
    if disp == 0 && base != 5 {
        return (head, len);
    }
    match i8::try_from(disp >> scale) {
        Ok(short) if i32::from(short) << scale == disp => (head | 0x40 | u64::from(short as u8) << (8 * len), len + 1),
        _ => (head | 0x80 | u64::from(disp as u32) << (8 * len), len + 4),
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, Encoder, Instruction, OpKind, Register};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const INTEGERS: [Integer; 16] = {
        use Integer::*;
        [Rax, Rcx, Rdx, Rbx, Rsp, Rbp, Rsi, Rdi, R8, R9, R10, R11, R12, R13, R14, R15]
    };

    /// Returns the only instruction in some code, after checking that another encoder encodes it
    /// identically.
    fn only_instruction(code: CodeBuffer) -> Instruction {
        let (bytes, _) = code.finish(&[]).unwrap();
        let instruction = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
        assert_eq!(instruction.len(), bytes.len(), "{bytes:02x?}");
        let mut encoder = Encoder::new(64);
        encoder.encode(&instruction, 0).unwrap();
        assert_eq!(encoder.take_buffer(), bytes, "{instruction:?}");
        instruction
    }

    fn random_place(rng: &mut ChaCha8Rng, registers: u8) -> RegisterOrMemory {
        if rng.random_bool(0.3) {
            return RegisterOrMemory::Register(rng.random_range(0..registers));
        }
        let disp = match rng.random_range(0..4) {
            0 => 0,
            1 => rng.random_range(-130..130),
            2 => 64 * rng.random_range(-130..130),
            _ => rng.random(),
        };
        RegisterOrMemory::Memory(MemoryOperand { base: INTEGERS[rng.random_range(0..16)], disp })
    }

    fn assert_place(instruction: &Instruction, operand: u32, place: RegisterOrMemory, first: Register) {
        match place {
            RegisterOrMemory::Register(number) => {
                assert_eq!(instruction.op_register(operand), first + u32::from(number))
            }
            RegisterOrMemory::Memory(MemoryOperand { base, disp }) => {
                assert_eq!(instruction.op_kind(operand), OpKind::Memory);
                assert_eq!(instruction.memory_base(), Register::RAX + base as u32);
                assert_eq!(instruction.memory_index(), Register::None);
                assert_eq!(instruction.memory_displacement64() as i64, i64::from(disp));
            }
            RegisterOrMemory::Constant => assert!(instruction.is_ip_rel_memory_operand()),
        }
    }

    #[test]
    fn instructions_of_integers_have_their_operands() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..2000 {
            let (reg, place) = (rng.random_range(0..16u8), random_place(&mut rng, 16));
            let (wide, opcode) = if rng.random() { (true, 0x0faf) } else { (false, 0x8b) };
            let mut code = CodeBuffer::default();
            code.legacy(wide, opcode, reg, place);
            let first = if wide { Register::RAX } else { Register::EAX };
            let instruction = only_instruction(code);
            assert_eq!(instruction.op0_register(), first + u32::from(reg));
            assert_place(&instruction, 1, place, first);
        }
    }

    #[test]
    fn instructions_of_vectors_have_their_operands() {
        let (mut rng, add) = (ChaCha8Rng::seed_from_u64(2), Opcode { map: 1, prefix: 0, code: 0x58 });
        let multiply_add = Opcode { map: 2, prefix: 1, code: 0xb8 };
        for _ in 0..4000 {
            let wide: bool = rng.random();
            let (registers, first) = if wide { (32, Register::ZMM0) } else { (16, Register::YMM0) };
            let (a, b) = (rng.random_range(0..registers), rng.random_range(0..registers));
            let place = random_place(&mut rng, registers);
            let op = if rng.random() { add } else { multiply_add };
            let is_splat = wide && matches!(place, RegisterOrMemory::Memory(_)) && rng.random();
            let mask = if wide { rng.random_range(0..8u8) } else { 0 };
            let mut code = CodeBuffer::default();
            match (wide, is_splat) {
                (false, _) => code.vex(op, true, [a, b], place),
                (true, true) => code.evex(op, evex::BITS_512 | evex::BROADCAST | mask, [a, b], place, 2),
                (true, false) => code.evex(op, evex::BITS_512 | mask, [a, b], place, 6),
            }
            let instruction = only_instruction(code);
            assert_eq!(instruction.op0_register(), first + u32::from(a));
            assert_eq!(instruction.op1_register(), first + u32::from(b));
            assert_place(&instruction, 2, place, first);
            assert_eq!(instruction.is_broadcast(), is_splat);
            let k = if mask == 0 { Register::None } else { Register::K0 + u32::from(mask) };
            assert_eq!(instruction.op_mask(), k);
        }
    }

    #[test]
    fn elements_by_their_numbers_have_their_operands() {
        let (mut rng, gather) = (ChaCha8Rng::seed_from_u64(3), Opcode { map: 2, prefix: 1, code: 0x92 });
        for _ in 0..2000 {
            let wide: bool = rng.random();
            let (registers, first) = if wide { (32, Register::ZMM0) } else { (16, Register::YMM0) };
            let mut number = || rng.random_range(0..registers);
            let [to, index, mask] = [number(), number(), number()];
            let at =
                MemoryOperand { base: INTEGERS[rng.random_range(0..16)], disp: rng.random_range(1 << 20..1 << 30) };
            let mut code = CodeBuffer::default();
            match wide {
                true => code.evex_indexed(gather, evex::BITS_512 | 7, to, (at, TIMES_FOUR), index),
                false => code.vex_indexed(gather, true, [to, mask], (at, TIMES_FOUR), index),
            }

            let (bytes, _) = code.finish(&[]).unwrap();
            let instruction = Decoder::new(64, &bytes, DecoderOptions::NO_INVALID_CHECK).decode();
            assert_eq!(instruction.len(), bytes.len(), "{bytes:02x?}");
            assert_eq!(instruction.op0_register(), first + u32::from(to));
            assert_eq!(instruction.memory_index(), first + u32::from(index));
            assert_eq!(instruction.memory_base(), Register::RAX + at.base as u32);
            assert_eq!(instruction.memory_index_scale(), 4);
            assert_eq!(instruction.memory_displacement64() as i64, i64::from(at.disp));
            match wide {
                true => assert_eq!(instruction.op_mask(), Register::K7),
                false => assert_eq!(instruction.op2_register(), first + u32::from(mask)),
            }
        }
    }

    #[test]
    fn goals_are_led_to() {
        let mut code = CodeBuffer::default();
        code.plain(&[0xe9]);
        let jump = code.displacement_to(Goal::Code(0));
        code.vex(Opcode { map: 1, prefix: 0, code: 0x10 }, true, [3, 0], RegisterOrMemory::Constant);
        code.goal(Goal::Mask(3));
        code.retarget(jump, Goal::Code(code.position()));
        let leaf = code.position();
        code.plain(&[0xe8]);
        code.displacement_to(Goal::Leaf(0));
        let (bytes, code_bytes) = code.finish(&[leaf]).unwrap();
        let decoded: Vec<Instruction> = Decoder::new(64, &bytes[..code_bytes], DecoderOptions::NONE).iter().collect();
        assert_eq!(decoded[0].near_branch64(), leaf as u64);
        assert_eq!(decoded[2].near_branch64(), leaf as u64);
        let mask = decoded[1].ip_rel_memory_address() as usize;
        assert_eq!(
            bytes[mask..mask + 32],
            [[0xff; 4], [0xff; 4], [0xff; 4], [0; 4], [0; 4], [0; 4], [0; 4], [0; 4]].concat()
        );
    }
}
