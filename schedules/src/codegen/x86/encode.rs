//! Bytes of instructions: prefixes, opcode, operands (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2).

use super::AssembleError;

/// An integer register, by its number in an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Integer {
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

/// `[base + disp]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    pub(super) base: Integer,
    pub(super) disp: i32,
}

/// The operand that may be in memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// The number of a register.
    Register(u8),
    Memory(Address),
    /// Memory at a distance from the end of the instruction, of which the last four bytes are that distance.
    Constant,
}

impl From<Integer> for Place {
    fn from(register: Integer) -> Self {
        Place::Register(register as u8)
    }
}

impl From<Address> for Place {
    fn from(at: Address) -> Self {
        Place::Memory(at)
    }
}

impl Place {
    /// Bits 3 and 4 of the number of the register that it is, or of its base.
    fn high_bits(self) -> u8 {
        match self {
            Place::Register(number) => number >> 3,
            Place::Memory(at) => at.base as u8 >> 3,
            Place::Constant => 0,
        }
    }
}

/// An instruction of vectors.
#[derive(Clone, Copy)]
pub(super) struct Opcode {
    /// Number of the table of opcodes.
    pub(super) map: u8,
    /// Number of the implied prefix.
    pub(super) prefix: u8,
    pub(super) code: u8,
}

/// Flags of [`Code::evex`], to be added to the number of a mask.
pub(super) mod evex {
    pub(in super::super) const ZEROING: u8 = 0x80;
    pub(in super::super) const BITS_512: u8 = 0x40;
    pub(in super::super) const BROADCAST: u8 = 0x10;
}

/// What a 32-bit displacement at the end of an instruction leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// The leaf of this number.
    Leaf(usize),
    /// An offset in the code.
    Code(usize),
    /// Eight words of which the first so many have all bits set.
    Mask(u8),
}

/// Encoded instructions, one behind the other.
#[derive(Default)]
pub(super) struct Code {
    bytes: Vec<u8>,
    goals: Vec<(usize, Goal)>,
}

impl Code {
    /// Offset of the next instruction.
    pub(super) fn here(&self) -> usize {
        self.bytes.len()
    }

    /// The first `len` bytes of a number, the lowest first.
    fn put(&mut self, bytes: u64, len: usize) {
        self.bytes.extend_from_slice(&bytes.to_le_bytes());
        self.bytes.truncate(self.bytes.len() - 8 + len);
    }

    /// The operands; displacements of one byte count in units of `scale`.
    fn operands(&mut self, reg: u8, place: Place, scale: i32) {
        let reg = u64::from(reg & 7) << 3;
        let Address { base, disp } = match place {
            Place::Register(number) => return self.put(0xc0 | reg | u64::from(number & 7), 1),
            Place::Constant => return self.put(reg | 5, 5),
            Place::Memory(at) => at,
        };
        let base = u64::from(base as u8 & 7);
        // As a base, 4 takes another byte, and 5 a displacement.
        let (head, len) = if base == 4 { (reg | 4 | 0x24 << 8, 2) } else { (reg | base, 1) };
        if disp == 0 && base != 5 {
            return self.put(head, len);
        }
        match i8::try_from(disp / scale) {
            Ok(short) if disp % scale == 0 => self.put(head | 0x40 | u64::from(short as u8) << (8 * len), len + 1),
            _ => self.put(head | 0x80 | u64::from(disp as u32) << (8 * len), len + 4),
        }
    }

    /// An instruction of integers: a flag for 64 bits, the opcode's bytes, and operands.
    pub(super) fn legacy(&mut self, wide: bool, opcode: &[u8], reg: u8, place: impl Into<Place>) {
        let place = place.into();
        let rex = u8::from(wide) << 3 | reg >> 3 << 2 | place.high_bits();
        if rex != 0 {
            self.bytes.push(0x40 | rex);
        }
        self.bytes.extend_from_slice(opcode);
        self.operands(reg, place, 1);
    }

    /// An instruction whose opcode has the register's number in it, and an immediate of `len` bytes.
    pub(super) fn short(&mut self, wide: bool, opcode: u8, register: Integer, immediate: u64, len: usize) {
        let rex = u8::from(wide) << 3 | register as u8 >> 3;
        if rex != 0 {
            self.bytes.push(0x40 | rex);
        }
        self.bytes.push(opcode | register as u8 & 7);
        self.put(immediate, len);
    }

    /// Bytes as they are.
    pub(super) fn plain(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// An instruction of vectors of 256 bits, or of fewer. `second` is the number of the operand between the others, 0 for none.
    pub(super) fn vex(&mut self, op: Opcode, is_256: bool, [reg, second]: [u8; 2], place: Place) {
        let (r, b) = (u64::from(!reg >> 3 & 1), u64::from(!place.high_bits() & 1));
        let rest = u64::from(!second & 15) << 3 | u64::from(is_256) << 2 | u64::from(op.prefix);
        let code = u64::from(op.code);
        if op.map == 1 && b == 1 {
            self.put(0xc5 | (r << 7 | rest) << 8 | code << 16, 3);
        } else {
            self.put(0xc4 | (r << 7 | 0x40 | b << 5 | u64::from(op.map)) << 8 | rest << 16 | code << 24, 4);
        }
        self.operands(reg, place, 1);
    }

    /// An instruction of vectors of 512 bits, or of fewer, with a mask and flags. Displacements of one byte count in units of
    /// `scale`, which is the size of what is in memory.
    pub(super) fn evex(&mut self, op: Opcode, flags: u8, [reg, second]: [u8; 2], place: Place, scale: i32) {
        let high = !place.high_bits();
        let (r, high_r) = (!reg >> 3 & 1, !reg >> 4 & 1);
        let first = r << 7 | (high >> 1 & 1) << 6 | (high & 1) << 5 | high_r << 4 | op.map;
        let middle = (!second & 15) << 3 | 4 | op.prefix;
        let last = flags | (!second >> 4 & 1) << 3;
        self.put(u64::from(u32::from_le_bytes([0x62, first, middle, last])) | u64::from(op.code) << 32, 5);
        self.operands(reg, place, scale);
    }

    /// Four bytes behind an opcode that lead to a goal; returns the number of the goal.
    pub(super) fn lead_to(&mut self, goal: Goal) -> usize {
        self.put(0, 4);
        self.goal(goal)
    }

    /// Lets the last four bytes lead to a goal; returns the number of the goal.
    pub(super) fn goal(&mut self, goal: Goal) -> usize {
        self.goals.push((self.here(), goal));
        self.goals.len() - 1
    }

    /// Changes a goal.
    pub(super) fn aim(&mut self, number: usize, goal: Goal) {
        self.goals[number].1 = goal;
    }

    /// An immediate of four bytes, the last part of an instruction.
    pub(super) fn immediate(&mut self, value: i32) {
        self.put(u64::from(value as u32), 4);
    }

    /// An immediate of one byte, the last part of an instruction.
    pub(super) fn immediate_byte(&mut self, value: i8) {
        self.bytes.push(value as u8);
    }

    /// The code with every goal resolved, constants behind it, and the length without them.
    pub(super) fn finish(self, leaves: &[usize]) -> Result<(Vec<u8>, usize), AssembleError> {
        let mut bytes = self.bytes;
        let code_bytes = bytes.len();
        if self.goals.iter().any(|g| matches!(g.1, Goal::Mask(_))) {
            bytes.resize(code_bytes.next_multiple_of(64), 0xcc);
            bytes.extend([[0xff; 32], [0; 32]].concat());
        }
        let masks = bytes.len().saturating_sub(64);
        for (end, goal) in self.goals {
            let at = match goal {
                Goal::Leaf(i) => leaves[i],
                Goal::Code(at) => at,
                Goal::Mask(lanes) => masks + 32 - 4 * lanes as usize,
            };
            let distance = at as i64 - end as i64;
            let disp = i32::try_from(distance).map_err(|_| AssembleError::Displacement { bytes: distance })?;
            bytes[end - 4..end].copy_from_slice(&disp.to_le_bytes());
        }
        Ok((bytes, code_bytes))
    }
}
