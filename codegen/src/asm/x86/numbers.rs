//! NaN: propagation by maxima and minima, and detection.

use super::X86;
use super::control::address;
use super::encode::{Opcode, RegisterOrMemory, evex};
use super::vectors::{COMPARE, ELEMENT, MAX, MIN, VECTOR, opcode};
use crate::asm::instruction_set::{Arithmetic, ArithmeticOperand, MinMax, Vector, Vectors};
use autotune_ir::target::Isa;

/// Predicates of a comparison: neither operand is NaN, or one is.
const ORDERED: i64 = 7;
const UNORDERED: i64 = 3;
/// `kortestw`: sets the zero flag if a mask has no bits.
const TEST_MASK: Opcode = opcode(1, 0, 0x98);
/// `vtestps`: sets the zero flag if no lane is negative.
const TEST_SIGNS: Opcode = opcode(2, 1, 0x0e);

impl X86 {
    /// Sets `b` to the larger or smaller of `a` and `b`, or to NaN if either is NaN. Overwrites
    /// `spare` or the mask register k7.
    ///
    /// The hardware instruction returns `a` if either is NaN. So a NaN in `b` is kept by a mask
    /// (AVX-512), or all its bits are set (AVX2).
    pub(super) fn bound_value(&mut self, bound: MinMax, b: Vector, a: ArithmeticOperand, spare: Vector) {
        let (op, arithmetic) = match bound {
            MinMax::Larger => (MAX, Arithmetic::Max),
            MinMax::Smaller => (MIN, Arithmetic::Min),
        };
        if self.isa != Isa::Avx512 {
            // The instruction returns its second operand if either is NaN, so only NaN in `b` needs
            // care: all bits are set there, which is NaN again.
            self.code.vex(COMPARE, true, [spare, b], RegisterOrMemory::Register(b));
            self.code.immediate(UNORDERED, 1);
            self.arithmetic(arithmetic, b, b, a);
            self.arithmetic(Arithmetic::Or, b, b, ArithmeticOperand::Register(spare));
            return;
        }

        // A mask leaves lanes of `b` that are NaN unchanged.
        self.code.evex(COMPARE, evex::BITS_512, [7, b], RegisterOrMemory::Register(b), VECTOR);
        self.code.immediate(ORDERED, 1);
        let flags = evex::BITS_512 | 7;
        match a {
            ArithmeticOperand::Register(a) => self.code.evex(op, flags, [b, b], RegisterOrMemory::Register(a), VECTOR),
            ArithmeticOperand::Vector(at) => self.code.evex(op, flags, [b, b], address(at).into(), VECTOR),
            ArithmeticOperand::Splat(at) => {
                self.code.evex(op, flags | evex::BROADCAST, [b, b], address(at).into(), ELEMENT)
            }
        }
    }

    /// Sets the zero flag if no lane of a register is NaN. Overwrites the register or the mask
    /// register k7.
    pub(super) fn compare_with_itself(&mut self, v: Vector) {
        let of = RegisterOrMemory::Register(v);
        if self.isa == Isa::Avx512 {
            self.code.evex(COMPARE, evex::BITS_512, [7, v], of, VECTOR);
            self.code.immediate(UNORDERED, 1);
            self.code.vex(TEST_MASK, false, [7, 0], RegisterOrMemory::Register(7));
        } else {
            self.code.vex(COMPARE, true, [v, v], of);
            self.code.immediate(UNORDERED, 1);
            self.code.vex(TEST_SIGNS, true, [v, 0], of);
        }
    }
}
