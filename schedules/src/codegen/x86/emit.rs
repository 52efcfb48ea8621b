//! Single instructions of either instruction set, encoded one behind the other.
//!
//! Values are whole vector registers: a scalar is the same value in every lane, a vector of fewer lanes has zeros behind it.

use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};

use super::AssembleError;
use crate::target::Isa;

/// Number of a vector register.
pub(super) type Vector = u8;

/// Where the lanes of a value lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    /// One element, the same for every lane.
    Splat,
    /// So many consecutive elements.
    Lanes(u8),
    /// So many elements, each `stride` bytes behind the one before.
    Strided {
        /// Number of elements.
        lanes: u8,
        /// Distance in bytes.
        stride: i32,
    },
}

impl Shape {
    /// True for 4 or 8 elements of which each is the second next of the one before.
    pub(super) fn is_every_other(self) -> bool {
        matches!(self, Shape::Strided { lanes: 4 | 8, stride: 8 })
    }
}

/// `[base + disp]`.
#[derive(Clone, Copy)]
pub(super) struct Address {
    pub(super) base: Register,
    pub(super) disp: i32,
}

/// Second operand of an arithmetic instruction.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    Register(Vector),
    /// A whole vector in memory.
    Vector(Address),
    /// An element in memory for every lane; AVX-512 only.
    Splat(Address),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Arithmetic {
    Add,
    Sub,
    Mul,
    /// The second operand where either is not a number.
    Max,
    /// Adds the product to the destination.
    MulAdd,
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

/// Bytes below the stack pointer through which strided lanes go; a leaf calls nothing, so that they are its own.
const LANES_AT: Address = Address { base: Register::RSP, disp: -64 };

/// Encodes instructions; keeps the first error for [`Emitter::finish`].
pub(super) struct Emitter {
    pub(super) isa: Isa,
    encoder: Encoder,
    len: usize,
    patches: Vec<(usize, Goal)>,
    error: Option<AssembleError>,
    /// Lanes of the masks in k1, k2, ...
    masks: Vec<u8>,
}

impl Emitter {
    pub(super) fn new(isa: Isa) -> Self {
        Self { isa, encoder: Encoder::new(64), len: 0, patches: Vec::new(), error: None, masks: Vec::new() }
    }

    /// Lanes of a register.
    pub(super) fn lanes(&self) -> u8 {
        (self.isa.vector_bytes() / 4) as u8
    }

    /// Offset of the next instruction.
    pub(super) fn here(&self) -> usize {
        self.len
    }

    /// The code with every goal resolved, constants behind it, and the length without them.
    pub(super) fn finish(mut self, leaves: &[usize]) -> Result<(Vec<u8>, usize), AssembleError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let mut bytes = self.encoder.take_buffer();
        let code_bytes = bytes.len();
        if self.patches.iter().any(|p| matches!(p.1, Goal::Mask(_))) {
            bytes.resize(code_bytes.next_multiple_of(64), 0xcc);
            bytes.extend([[0xff; 32], [0; 32]].concat());
        }
        let masks = bytes.len().saturating_sub(64);
        for (end, goal) in self.patches {
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

    fn fail(&mut self, error: AssembleError) {
        self.error.get_or_insert(error);
    }

    pub(super) fn push(&mut self, instruction: Result<Instruction, IcedError>) {
        match instruction.and_then(|i| self.encoder.encode(&i, self.len as u64)) {
            Ok(bytes) => self.len += bytes,
            Err(e) => self.fail(AssembleError::Encode(e.to_string())),
        }
    }

    fn push_with_mask(&mut self, instruction: Result<Instruction, IcedError>, mask: Register, zeroing: bool) {
        self.push(instruction.map(|mut i| {
            i.set_op_mask(mask);
            i.set_zeroing_masking(zeroing);
            i
        }));
    }

    fn push_to(&mut self, instruction: Result<Instruction, IcedError>, goal: Goal) -> usize {
        self.push(instruction);
        self.patches.push((self.len, goal));
        self.patches.len() - 1
    }
}

/// Vectors.
impl Emitter {
    fn pick(&self, avx2: Code, avx512: Code) -> Code {
        if self.isa == Isa::Avx512 { avx512 } else { avx2 }
    }

    fn full(&self, v: Vector) -> Register {
        (if self.isa == Isa::Avx512 { Register::ZMM0 } else { Register::YMM0 }) + u32::from(v)
    }

    /// Makes the masks of a leaf, which must come before anything else in it.
    pub(super) fn set_masks(&mut self, mut lanes: Vec<u8>) {
        lanes.truncate(if self.isa == Isa::Avx512 { 6 } else { 0 });
        for (i, &n) in lanes.iter().enumerate() {
            self.set_mask(Register::K1 + i as u32, n);
        }
        self.masks = lanes;
    }

    fn set_mask(&mut self, k: Register, lanes: u8) {
        self.push(Instruction::with2(Code::Mov_r32_imm32, Register::EAX, (1u32 << lanes) - 1));
        self.push(Instruction::with2(Code::VEX_Kmovw_kr_r32, k, Register::EAX));
    }

    fn mask(&mut self, lanes: u8) -> Register {
        match self.masks.iter().position(|&n| n == lanes) {
            Some(i) => Register::K1 + i as u32,
            None => {
                self.set_mask(Register::K7, lanes);
                Register::K7
            }
        }
    }

    /// `v = [at]`.
    pub(super) fn load(&mut self, v: Vector, shape: Shape, at: Address) {
        let full = self.full(v);
        match shape {
            Shape::Splat => {
                let code = self.pick(Code::VEX_Vbroadcastss_ymm_m32, Code::EVEX_Vbroadcastss_zmm_k1z_xmmm32);
                self.push(Instruction::with2(code, full, memory(at)));
            }
            Shape::Lanes(n) if n == self.lanes() => {
                let code = self.pick(Code::VEX_Vmovups_ymm_ymmm256, Code::EVEX_Vmovups_zmm_k1z_zmmm512);
                self.push(Instruction::with2(code, full, memory(at)));
            }
            Shape::Lanes(n) if self.isa == Isa::Avx512 => {
                let mask = self.mask(n);
                let load = Instruction::with2(Code::EVEX_Vmovups_zmm_k1z_zmmm512, full, memory(at));
                self.push_with_mask(load, mask, true);
            }
            Shape::Lanes(n) => self.load_part_avx2(v, n, at),
            Shape::Strided { lanes, .. } if shape.is_every_other() && v < 16 => self.load_every_other(v, lanes, at),
            Shape::Strided { lanes, stride } => {
                self.copy_elements((LANES_AT, 4), (at, stride), lanes);
                self.load(v, Shape::Lanes(lanes), LANES_AT);
            }
        }
    }

    /// `v` is every other element from `at` on, `lanes` of them: 4 or 8; nothing behind the last is read.
    fn load_every_other(&mut self, v: Vector, lanes: u8, at: Address) {
        // Elements 0 and 2 of the first factor, then 1 and 3 of the second, of each half.
        const EVEN_ODD: u32 = 0b11_01_10_00;
        let (part, full) = (Register::XMM0 + u32::from(v), Register::YMM0 + u32::from(v));
        let behind = memory(Address { disp: at.disp.wrapping_add(4 * (i32::from(lanes) - 1)), ..at });
        if lanes == 4 {
            self.push(Instruction::with2(Code::VEX_Vmovups_xmm_xmmm128, part, memory(at)));
            self.push(Instruction::with4(Code::VEX_Vshufps_xmm_xmm_xmmm128_imm8, part, part, behind, EVEN_ODD));
            return;
        }
        self.push(Instruction::with2(Code::VEX_Vmovups_ymm_ymmm256, full, memory(at)));
        self.push(Instruction::with4(Code::VEX_Vshufps_ymm_ymm_ymmm256_imm8, full, full, behind, EVEN_ODD));
        self.push(Instruction::with3(Code::VEX_Vpermpd_ymm_ymmm256_imm8, full, full, EVEN_ODD));
    }

    fn load_part_avx2(&mut self, v: Vector, lanes: u8, at: Address) {
        let (part, full) = (Register::XMM0 + u32::from(v), self.full(v));
        let code = match lanes {
            1 => Code::VEX_Vmovss_xmm_m32,
            2 => Code::VEX_Vmovsd_xmm_m64,
            4 => Code::VEX_Vmovups_xmm_xmmm128,
            _ => {
                self.load_mask_avx2(v, lanes);
                self.push(Instruction::with3(Code::VEX_Vmaskmovps_ymm_ymm_m256, full, full, memory(at)));
                return;
            }
        };
        self.push(Instruction::with2(code, part, memory(at)));
    }

    fn load_mask_avx2(&mut self, v: Vector, lanes: u8) {
        let load = Instruction::with2(
            Code::VEX_Vmovups_ymm_ymmm256,
            self.full(v),
            MemoryOperand::with_base_displ(Register::RIP, 0),
        );
        self.push_to(load, Goal::Mask(lanes));
    }

    /// True if a store of this shape needs a register of its own.
    pub(super) fn store_needs_register(&self, shape: Shape) -> bool {
        matches!(shape, Shape::Lanes(n) if self.isa != Isa::Avx512 && n != self.lanes() && !n.is_power_of_two())
    }

    /// `[at] = v`; changes `spare` where [`Emitter::store_needs_register`].
    pub(super) fn store(&mut self, v: Vector, shape: Shape, at: Address, spare: Vector) {
        let (part, full) = (Register::XMM0 + u32::from(v), self.full(v));
        match shape {
            Shape::Splat | Shape::Lanes(1) => {
                let code = self.pick(Code::VEX_Vmovss_m32_xmm, Code::EVEX_Vmovss_m32_k1_xmm);
                self.push(Instruction::with2(code, memory(at), part));
            }
            Shape::Lanes(n) if n == self.lanes() => {
                let code = self.pick(Code::VEX_Vmovups_ymmm256_ymm, Code::EVEX_Vmovups_zmmm512_k1z_zmm);
                self.push(Instruction::with2(code, memory(at), full));
            }
            Shape::Lanes(n) if self.isa == Isa::Avx512 => {
                let mask = self.mask(n);
                let store = Instruction::with2(Code::EVEX_Vmovups_zmmm512_k1z_zmm, memory(at), full);
                self.push_with_mask(store, mask, false);
            }
            Shape::Lanes(2) => self.push(Instruction::with2(Code::VEX_Vmovsd_m64_xmm, memory(at), part)),
            Shape::Lanes(4) => self.push(Instruction::with2(Code::VEX_Vmovups_xmmm128_xmm, memory(at), part)),
            Shape::Lanes(n) => {
                self.load_mask_avx2(spare, n);
                let mask = self.full(spare);
                self.push(Instruction::with3(Code::VEX_Vmaskmovps_m256_ymm_ymm, memory(at), mask, full));
            }
            Shape::Strided { lanes, stride } => {
                self.store(v, Shape::Lanes(self.lanes()), LANES_AT, spare);
                self.copy_elements((at, stride), (LANES_AT, 4), lanes);
            }
        }
    }

    /// Copies `lanes` elements between places with strides in bytes, first to last, through eax.
    pub(super) fn copy_elements(&mut self, to: (Address, i32), from: (Address, i32), lanes: u8) {
        let element = |(at, stride): (Address, i32), i: u8| {
            memory(Address { disp: at.disp.wrapping_add(stride.wrapping_mul(i32::from(i))), ..at })
        };
        for i in 0..lanes {
            self.push(Instruction::with2(Code::Mov_r32_rm32, Register::EAX, element(from, i)));
            self.push(Instruction::with2(Code::Mov_rm32_r32, element(to, i), Register::EAX));
        }
    }

    /// Asks for the cache line of an address.
    pub(super) fn prefetch(&mut self, at: Address) {
        self.push(Instruction::with1(Code::Prefetcht0_m8, memory(at)));
    }

    /// `v` is a constant of these bits in every lane.
    pub(super) fn constant(&mut self, v: Vector, bits: u32) {
        let full = self.full(v);
        if bits == 0 {
            let code = self.pick(Code::VEX_Vxorps_ymm_ymm_ymmm256, Code::EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32);
            self.push(Instruction::with3(code, full, full, full));
            return;
        }
        self.push(Instruction::with2(Code::Mov_r32_imm32, Register::EAX, bits));
        if self.isa == Isa::Avx512 {
            self.push(Instruction::with2(Code::EVEX_Vpbroadcastd_zmm_k1z_r32, full, Register::EAX));
        } else {
            let part = Register::XMM0 + u32::from(v);
            self.push(Instruction::with2(Code::VEX_Vmovd_xmm_rm32, part, Register::EAX));
            self.push(Instruction::with2(Code::VEX_Vbroadcastss_ymm_xmm, full, part));
        }
    }

    /// `to = from`.
    pub(super) fn copy(&mut self, to: Vector, from: Vector) {
        let code = self.pick(Code::VEX_Vmovaps_ymm_ymmm256, Code::EVEX_Vmovaps_zmm_k1z_zmmm512);
        self.push(Instruction::with2(code, self.full(to), self.full(from)));
    }

    /// `to = a op b`.
    pub(super) fn arithmetic(&mut self, op: Arithmetic, to: Vector, a: Vector, b: Operand) {
        let code = match op {
            Arithmetic::Add => self.pick(Code::VEX_Vaddps_ymm_ymm_ymmm256, Code::EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er),
            Arithmetic::Sub => self.pick(Code::VEX_Vsubps_ymm_ymm_ymmm256, Code::EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er),
            Arithmetic::Mul => self.pick(Code::VEX_Vmulps_ymm_ymm_ymmm256, Code::EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er),
            Arithmetic::Max => {
                self.pick(Code::VEX_Vmaxps_ymm_ymm_ymmm256, Code::EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae)
            }
            Arithmetic::MulAdd => {
                self.pick(Code::VEX_Vfmadd231ps_ymm_ymm_ymmm256, Code::EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er)
            }
        };
        let (to, a) = (self.full(to), self.full(a));
        self.push(match b {
            Operand::Register(b) => Instruction::with3(code, to, a, self.full(b)),
            Operand::Vector(at) => Instruction::with3(code, to, a, memory(at)),
            Operand::Splat(at) => {
                let splat = MemoryOperand::with_base_displ_bcst_seg(at.base, i64::from(at.disp), true, Register::None);
                Instruction::with3(code, to, a, splat)
            }
        });
    }
}

/// Integers and control flow.
impl Emitter {
    /// An instruction without operands.
    pub(super) fn plain(&mut self, code: Code) {
        self.push(Ok(Instruction::with(code)));
    }

    /// An instruction on one register.
    pub(super) fn unary(&mut self, code: Code, register: Register) {
        self.push(Instruction::with1(code, register));
    }

    /// An instruction on two registers.
    pub(super) fn binary(&mut self, code: Code, a: Register, b: Register) {
        self.push(Instruction::with2(code, a, b));
    }

    /// An instruction on a register and the word at an address.
    pub(super) fn with_memory(&mut self, code: Code, register: Register, at: Address) {
        self.push(Instruction::with2(code, register, memory(at)));
    }

    /// `[at] = register`.
    pub(super) fn write(&mut self, at: Address, register: Register) {
        self.push(Instruction::with2(Code::Mov_rm64_r64, memory(at), register));
    }

    /// `[at] = value`.
    pub(super) fn write_value(&mut self, at: Address, value: i32) {
        self.push(Instruction::with2(Code::Mov_rm64_imm32, memory(at), value));
    }

    /// `register = value`.
    pub(super) fn set(&mut self, register: Register, value: i64) {
        self.push(match i32::try_from(value) {
            Ok(value) => Instruction::with2(Code::Mov_rm64_imm32, register, value),
            Err(_) => Instruction::with2(Code::Mov_r64_imm64, register, value),
        });
    }

    /// `register += value`; may change rax.
    pub(super) fn add(&mut self, register: Register, value: i64) {
        if value == 0 {
            return;
        }
        match i32::try_from(value) {
            Ok(v) if i8::try_from(v).is_ok() => self.push(Instruction::with2(Code::Add_rm64_imm8, register, v)),
            Ok(v) => self.push(Instruction::with2(Code::Add_rm64_imm32, register, v)),
            Err(_) => {
                self.set(Register::RAX, value);
                self.binary(Code::Add_r64_rm64, register, Register::RAX);
            }
        }
    }

    /// `register += [at] * factor`; changes rax.
    pub(super) fn add_scaled(&mut self, register: Register, at: Address, factor: i64) {
        match i32::try_from(factor) {
            Ok(f) => self.push(Instruction::with3(Code::Imul_r64_rm64_imm32, Register::RAX, memory(at), f)),
            Err(_) => {
                self.set(Register::RAX, factor);
                self.with_memory(Code::Imul_r64_rm64, Register::RAX, at);
            }
        }
        self.binary(Code::Add_r64_rm64, register, Register::RAX);
    }

    /// A jump or call back to an offset in the code.
    pub(super) fn branch_back(&mut self, code: Code, to: usize) {
        self.push(Instruction::with_branch(code, to as u64));
    }

    /// A jump or call whose goal [`Emitter::aim`] may change.
    pub(super) fn branch(&mut self, code: Code, goal: Goal) -> usize {
        let branch = Instruction::with_branch(code, self.len as u64);
        self.push_to(branch, goal)
    }

    /// Lets a branch lead here.
    pub(super) fn aim(&mut self, branch: usize) {
        self.patches[branch].1 = Goal::Code(self.len);
    }
}

pub(super) fn memory(at: Address) -> MemoryOperand {
    MemoryOperand::with_base_displ(at.base, i64::from(at.disp))
}
