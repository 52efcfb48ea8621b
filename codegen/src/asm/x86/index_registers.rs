//! Index vectors that a leaf keeps in the last vector registers, if these are free.

use super::encode::{Goal, Integer, Opcode, RegisterOrMemory};
use super::vectors::{EVERY_OTHER, LOAD, VECTOR, opcode};
use super::{IndexRegisters, X86};
use crate::asm::instruction_set::{ElementType, Vector, Vectors};
use crate::asm::leaf::Leaf;
use autotune_ir::target::Isa;

/// `kmovd`: a 32-bit register to a mask register.
const SET_LONG_MASK: Opcode = opcode(1, 3, 0x92);
/// Mask register that selects the upper halves of lanes.
pub(super) const UPPER_HALVES: u8 = 6;
/// Bits of the mask in [`UPPER_HALVES`]: every other 16-bit element.
const UPPER_BITS: u32 = 0xaaaa_aaaa;
/// Minimum number of bf16 loads for which a leaf without loops sets up the index vector.
const MIN_LOADS: usize = 4;

impl X86 {
    /// Chooses the index vectors that a leaf keeps: those that its loads use, as long as registers
    /// are free.
    pub(super) fn for_leaf(&self, leaf: &Leaf) -> IndexRegisters {
        if self.isa != Isa::Avx512 {
            return IndexRegisters::default();
        }
        let folding = if leaf.rows.is_empty() { 0 } else { self.folding_registers() };
        let needed = leaf.registers().max(leaf.reserved_registers() + folding);
        let mut free = (needed..self.isa.vector_registers()).rev().map(|register| register as Vector);

        let takes_even = leaf.strides.contains(&EVERY_OTHER) && leaf.registers() < self.isa.vector_registers();
        let even_numbers = if takes_even { Some(self.isa.vector_registers() as Vector - 1) } else { None };
        if takes_even {
            free.next();
        }
        let loads = leaf.loads(ElementType::Bf16, self.lanes());
        // In a loop, the index vector pays off for a single load.
        let takes_halves = loads >= if leaf.depth > 0 { 1 } else { MIN_LOADS };
        let halves = if takes_halves { free.next() } else { None };
        IndexRegisters { even_numbers, halves }
    }

    /// Loads the index vectors of the current leaf.
    pub(super) fn load_held(&mut self) {
        let lanes = self.lanes();
        let IndexRegisters { even_numbers, halves } = self.held;
        if let Some(numbers) = even_numbers {
            let lanes_of = Goal::Lanes { first: lanes.into(), step: 2, modulus: 2 * u32::from(lanes) - 1, lanes };
            self.load_indices(numbers, lanes_of);
        }
        if let Some(numbers) = halves {
            // Both halves of a lane have the lane's number.
            self.load_indices(numbers, Goal::Lanes { first: 0, step: 0x1_0001, modulus: u32::MAX, lanes });
            self.set_eax(UPPER_BITS);
            self.code.vex(SET_LONG_MASK, false, [UPPER_HALVES, 0], Integer::Rax.into());
        }
    }

    fn load_indices(&mut self, to: Vector, numbers: Goal) {
        self.whole(LOAD, [to, 0], RegisterOrMemory::Constant, VECTOR);
        self.code.goal(numbers);
    }
}
