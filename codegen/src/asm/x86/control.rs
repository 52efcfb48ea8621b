//! Functions of the System V ABI, stack slots, loops and calls.

use super::encode::Integer::{self, R8, R9, R10, R11, R12, R13, R14, R15, Rax, Rbp, Rbx, Rcx, Rdi, Rdx, Rsi, Rsp};
use super::encode::{Goal, MemoryOperand, RegisterOrMemory};
use super::{IndexRegisters, X86};
use crate::asm::error::Failure;
use crate::asm::instruction_set::{Address as At, Control, Limit, SignedOrder, VECTOR_SLOTS, Vector};
use crate::asm::leaf::Leaf;

/// Registers of a leaf's pointers, then of its loop counters. Not among them is rax: it is the
/// accumulator outside leaves and a scratch register inside.
const INTEGERS: [Integer; 14] = [Rdi, Rsi, Rdx, Rcx, R8, R9, R10, R11, Rbx, Rbp, R12, R13, R14, R15];

/// Registers that a function must preserve.
const PRESERVED: [Integer; 6] = [Rbx, Rbp, R12, R13, R14, R15];

/// Returns the register of a pointer or counter.
pub(super) fn integer(number: u8) -> Integer {
    INTEGERS[usize::from(number)]
}

pub(super) fn address(at: At) -> MemoryOperand {
    MemoryOperand { base: integer(at.pointer), disp: at.disp }
}

fn slot(number: usize) -> MemoryOperand {
    MemoryOperand { base: Rsp, disp: 8 * number as i32 }
}

/// Condition codes of jumps and conditional moves.
const EQUAL: u8 = 4;
const NOT_EQUAL: u8 = 5;
const LESS: u8 = 12;
const GREATER: u8 = 15;

impl Control for X86 {
    /// Bytes of code and constants, and the number of bytes that are code.
    type Code = (Vec<u8>, usize);

    fn integers(&self) -> usize {
        INTEGERS.len()
    }

    fn position(&self) -> usize {
        self.code.position()
    }

    fn enter(&mut self, slots: usize, begin: usize, end: usize) {
        PRESERVED.iter().for_each(|&r| self.push(r));
        self.add_to(Rsp, -8 * slots as i64);
        // Arguments: buffers in rdi, thread-private memory in rsi, the range of tasks in rdx and
        // rcx.
        self.write_from(slot(begin), Rdx);
        self.write_from(slot(end), Rcx);
    }

    fn take_buffer(&mut self, to: usize, buffer: usize) {
        self.read_to(Rax, MemoryOperand { base: Rdi, disp: 8 * buffer as i32 });
        self.write(to);
    }

    fn take_local(&mut self, to: usize, bytes: i64) {
        self.write_from(slot(to), Rsi);
        self.add_to(Rsi, bytes);
    }

    fn fence(&mut self) {
        // `sfence`.
        self.code.plain(&[0x0f, 0xae, 0xf8]);
    }

    /// Executes `vzeroupper` before returning, so that SSE code of the caller has no transition
    /// penalty.
    fn leave(&mut self, slots: usize) {
        self.add_to(Rsp, 8 * slots as i64);
        PRESERVED.iter().rev().for_each(|&r| self.pop(r));
        self.code.plain(&[0xc5, 0xf8, 0x77]);
        self.end_leaf();
    }

    fn read(&mut self, from: usize) {
        self.read_to(Rax, slot(from));
    }

    fn write(&mut self, to: usize) {
        self.write_from(slot(to), Rax);
    }

    fn set(&mut self, to: usize, value: i32) {
        self.code.legacy(true, 0xc7, 0, slot(to));
        self.code.immediate(value.into(), 4);
    }

    fn add(&mut self, value: i64) {
        self.add_to(Rax, value);
    }

    fn split(&mut self, by: i64, to: usize) {
        // The dividend of `div` is in rdx and rax, so the upper half is cleared.
        self.code.legacy(false, 0x33, Rdx as u8, Rdx);
        self.set_to(Rcx, by);
        self.code.legacy(true, 0xf7, 6, Rcx);
        self.write_from(slot(to), Rdx);
    }

    fn clamp(&mut self, beyond: SignedOrder, limit: i64) {
        let condition = match beyond {
            SignedOrder::Less => LESS,
            SignedOrder::Greater => GREATER,
        };
        self.set_to(Rcx, limit);
        self.compare(Rcx);
        // A conditional move: no branch to predict.
        self.code.legacy(true, 0x0f40 | u16::from(condition), Rax as u8, Rcx);
    }

    fn jump_if_less(&mut self, than: Limit, to: usize) {
        match than {
            Limit::Slot(number) => self.compare(slot(number)),
            Limit::Value(value) => {
                self.set_to(Rcx, value);
                self.compare(Rcx);
            }
        }
        self.jump_to(LESS, to);
    }

    fn jump(&mut self) -> usize {
        self.code.plain(&[0xe9]);
        // The target is set by `bind_jump`.
        self.code.displacement_to(Goal::Code(0))
    }

    fn jump_unless_aligned(&mut self, pointers: &[u8], bytes: i64) -> usize {
        self.set_to(Rax, 0);
        pointers.iter().for_each(|&pointer| self.code.legacy(true, 0x0b, Rax as u8, integer(pointer)));
        // `test eax, bytes - 1` on the pointers combined by `or`.
        self.code.plain(&[0xa9]);
        self.code.immediate(bytes - 1, 4);
        self.jump_to(NOT_EQUAL, 0)
    }

    fn jump_if_numbers(&mut self, v: Vector) -> usize {
        self.compare_with_itself(v);
        self.jump_to(EQUAL, 0)
    }

    fn bind_jump(&mut self, jump: usize) {
        self.code.retarget(jump, Goal::Code(self.code.position()));
    }

    fn point(&mut self, pointer: u8, from: usize) {
        self.read_to(integer(pointer), slot(from));
    }

    fn advance_by_slot(&mut self, pointer: u8, number: usize, factor: i64) {
        let at = slot(number);
        match i32::try_from(factor) {
            Ok(factor) => {
                self.code.legacy(true, 0x69, Rax as u8, at);
                self.code.immediate(factor.into(), 4);
            }
            Err(_) => {
                self.set_to(Rax, factor);
                self.code.legacy(true, 0x0faf, Rax as u8, at);
            }
        }
        self.code.legacy(true, 0x03, integer(pointer) as u8, Rax);
    }

    fn advance(&mut self, pointer: u8, bytes: i64) {
        self.add_to(integer(pointer), bytes);
    }

    fn call(&mut self, leaf: usize) {
        self.code.plain(&[0xe8]);
        self.code.displacement_to(Goal::Leaf(leaf));
    }

    fn begin_leaf(&mut self, leaf: &Leaf, has_steps: bool) {
        self.held = self.for_leaf(leaf);
        self.set_masks(&leaf.parts);
        self.load_held();
        self.has_steps = has_steps;
        self.add_to(Rsp, -self.slot_bytes());
    }

    fn end_leaf(&mut self) {
        self.add_to(Rsp, self.slot_bytes());
        self.has_steps = false;
        self.held = IndexRegisters::default();
        self.code.plain(&[0xc3]);
    }

    fn set_integer(&mut self, register: u8, value: i64) {
        self.set_to(integer(register), value);
    }

    fn count_down(&mut self, counter: u8, to: usize) {
        self.code.legacy(true, 0xff, 1, integer(counter));
        self.jump_to(NOT_EQUAL, to);
    }

    fn finish(self, leaves: &[usize]) -> Result<Self::Code, Failure> {
        self.code.finish(leaves)
    }
}

/// Operations on 64-bit integers, unless stated otherwise.
impl X86 {
    /// Returns the size in bytes of a leaf's vector slots.
    fn slot_bytes(&self) -> i64 {
        if self.has_steps { (VECTOR_SLOTS * self.isa.vector_bytes()) as i64 } else { 0 }
    }

    fn push(&mut self, register: Integer) {
        self.code.short(false, 0x50, register, 0, 0);
    }

    fn pop(&mut self, register: Integer) {
        self.code.short(false, 0x58, register, 0, 0);
    }

    /// Computes `to = pointer + bytes * to`, where `bytes` is a power of two.
    pub(super) fn point_after(&mut self, to: u8, pointer: u8, bytes: i64) {
        self.code.legacy(true, 0xc1, 4, RegisterOrMemory::Register(integer(to) as u8));
        self.code.immediate(bytes.trailing_zeros().into(), 1);
        self.code.legacy(true, 0x03, integer(to) as u8, integer(pointer));
    }

    /// Loads a register, `register = [at]`.
    fn read_to(&mut self, register: Integer, at: MemoryOperand) {
        self.code.legacy(true, 0x8b, register as u8, at);
    }

    /// Stores a register, `[at] = register`.
    fn write_from(&mut self, at: MemoryOperand, register: Integer) {
        self.code.legacy(true, 0x89, register as u8, at);
    }

    /// Sets a register, `register = value`.
    fn set_to(&mut self, register: Integer, value: i64) {
        // A sign-extended 32-bit immediate has a shorter encoding than a 64-bit one.
        match i32::try_from(value) {
            Ok(value) => {
                self.code.legacy(true, 0xc7, 0, register);
                self.code.immediate(value.into(), 4);
            }
            Err(_) => self.code.short(true, 0xb8, register, value as u64, 8),
        }
    }

    /// Sets 32 bits, `eax = value`.
    pub(super) fn set_eax(&mut self, value: u32) {
        self.code.short(false, 0xb8, Rax, u64::from(value), 4);
    }

    /// Adds a constant, `register += value`; may overwrite rax.
    fn add_to(&mut self, register: Integer, value: i64) {
        if value == 0 {
            return;
        }
        // The shortest encoding that holds the value.
        if let Ok(value) = i8::try_from(value) {
            self.code.legacy(true, 0x83, 0, register);
            self.code.immediate(value.into(), 1);
        } else if let Ok(value) = i32::try_from(value) {
            self.code.legacy(true, 0x81, 0, register);
            self.code.immediate(value.into(), 4);
        } else {
            self.set_to(Rax, value);
            self.code.legacy(true, 0x03, register as u8, Rax);
        }
    }

    /// Compares rax with an operand.
    fn compare(&mut self, with: impl Into<RegisterOrMemory>) {
        self.code.legacy(true, 0x3b, Rax as u8, with);
    }

    /// Jumps to an offset in the code if a condition holds. Returns a number by which the jump can
    /// be redirected.
    fn jump_to(&mut self, condition: u8, to: usize) -> usize {
        self.code.plain(&[0x0f, 0x80 | condition]);
        self.code.displacement_to(Goal::Code(to))
    }
}
