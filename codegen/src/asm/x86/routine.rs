//! Functions written instruction by instruction, for code around kernels.

use super::encode::{CodeBuffer, Goal, Integer, MemoryOperand, RegisterOrMemory};
use crate::asm::error::AssembleError;

/// Builder of consecutive functions, with 64-bit integers, addresses `[register + constant]`, and
/// addresses outside the code as distances.
///
/// ```
/// use autotune_codegen::asm::x86::{Condition, Integer::{Rax, Rdi}, Routine};
///
/// let mut sum = Routine::default(); // of 1 to rdi, which is at least 1
/// sum.set(Rax, 0);
/// let top = sum.label_here();
/// sum.add(Rax, Rdi);
/// sum.add_value(Rdi, -1);
/// sum.jump_if(Condition::NotEqual, top);
/// sum.ret();
/// assert_eq!(sum.finish()?.len(), 22);
/// # Ok::<(), autotune_codegen::asm::AssembleError>(())
/// ```
#[derive(Default)]
pub struct Routine {
    code: CodeBuffer,
    /// Offset of each label, if bound.
    labels: Vec<Option<usize>>,
    /// Number of each displacement to a label.
    jumps: Vec<(usize, Label)>,
}

/// A position in the code, known once it is [bound](Routine::bind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Result of a comparison, by its condition code. `Below` and `AtLeast` compare unsigned numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Condition {
    Below = 2,
    AtLeast = 3,
    Equal = 4,
    NotEqual = 5,
}

impl Routine {
    /// Returns the offset of the next instruction.
    pub fn offset(&self) -> usize {
        self.code.position()
    }

    /// Pads to a multiple of 16 with `int3`; execution must not reach the padding.
    pub fn align(&mut self) {
        while !self.offset().is_multiple_of(16) {
            self.code.plain(&[0xcc]);
        }
    }

    /// Creates a label that is bound later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label to the next instruction.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.offset());
    }

    /// Creates a label bound to the next instruction.
    pub fn label_here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    fn displacement_to(&mut self, label: Label) {
        let goal = self.code.displacement_to(Goal::Code(0));
        self.jumps.push((goal, label));
    }

    /// Jumps to a label.
    pub fn jump(&mut self, to: Label) {
        self.code.plain(&[0xe9]);
        self.displacement_to(to);
    }

    /// Jumps to a label if the last comparison or computation had this result.
    pub fn jump_if(&mut self, condition: Condition, to: Label) {
        self.code.plain(&[0x0f, 0x80 | condition as u8]);
        self.displacement_to(to);
    }

    /// Jumps to the address in a register.
    pub fn jump_register(&mut self, to: Integer) {
        self.code.legacy(false, 0xff, 4, to);
    }

    /// Calls a function in this code.
    pub fn call(&mut self, function: Label) {
        self.code.plain(&[0xe8]);
        self.displacement_to(function);
    }

    /// Calls the function at an offset in bytes from the first byte of this code; the offset may be
    /// negative.
    pub fn call_outside(&mut self, distance: i64) {
        self.code.plain(&[0xe8]);
        self.code.displacement_to(Goal::Outside(distance));
    }

    /// Calls the function whose address is in a register.
    pub fn call_register(&mut self, function: Integer) {
        self.code.legacy(false, 0xff, 2, function);
    }

    /// Returns from a function.
    pub fn ret(&mut self) {
        self.code.plain(&[0xc3]);
    }

    /// Pushes a register on the stack.
    pub fn push(&mut self, register: Integer) {
        self.code.short(false, 0x50, register, 0, 0);
    }

    /// Pops a register from the stack.
    pub fn pop(&mut self, register: Integer) {
        self.code.short(false, 0x58, register, 0, 0);
    }

    /// Sets a register, `to = value`; leaves the flags unchanged.
    pub fn set(&mut self, to: Integer, value: i64) {
        match (u32::try_from(value), i32::try_from(value)) {
            // A 32-bit move clears the upper half.
            (Ok(low), _) => self.code.short(false, 0xb8, to, low.into(), 4),
            (_, Ok(low)) => {
                self.code.legacy(true, 0xc7, 0, to);
                self.code.immediate(low.into(), 4);
            }
            _ => self.code.short(true, 0xb8, to, value as u64, 8),
        }
    }

    /// Copies a register, `to = from`.
    pub fn copy(&mut self, to: Integer, from: Integer) {
        self.code.legacy(true, 0x8b, to as u8, from);
    }

    /// Loads 64 bits, `to = [base + disp]`.
    pub fn load(&mut self, to: Integer, base: Integer, disp: i32) {
        self.code.legacy(true, 0x8b, to as u8, MemoryOperand { base, disp });
    }

    /// Loads 32 bits, `to = [base + disp]`, zero-extended.
    pub fn load_half(&mut self, to: Integer, base: Integer, disp: i32) {
        self.code.legacy(false, 0x8b, to as u8, MemoryOperand { base, disp });
    }

    /// Loads 16 bits, `to = [base + disp]`, zero-extended.
    pub fn load_quarter(&mut self, to: Integer, base: Integer, disp: i32) {
        self.code.legacy(false, 0x0fb7, to as u8, MemoryOperand { base, disp });
    }

    /// Loads 8 bits, `to = [base + disp]`, zero-extended.
    pub fn load_byte(&mut self, to: Integer, base: Integer, disp: i32) {
        self.code.legacy(false, 0x0fb6, to as u8, MemoryOperand { base, disp });
    }

    /// Stores 64 bits, `[base + disp] = from`.
    pub fn store(&mut self, base: Integer, disp: i32, from: Integer) {
        self.code.legacy(true, 0x89, from as u8, MemoryOperand { base, disp });
    }

    /// Stores the lowest 32 bits, `[base + disp] = from`.
    pub fn store_half(&mut self, base: Integer, disp: i32, from: Integer) {
        self.code.legacy(false, 0x89, from as u8, MemoryOperand { base, disp });
    }

    /// Stores the lowest 16 bits, `[base + disp] = from`.
    pub fn store_quarter(&mut self, base: Integer, disp: i32, from: Integer) {
        self.code.plain(&[0x66]);
        self.store_half(base, disp, from);
    }

    /// Stores the lowest 8 bits, `[base + disp] = from`.
    ///
    /// `from` must be rax, rcx, rdx or rbx: without a REX prefix, other register numbers mean the
    /// second bytes of these.
    pub fn store_byte(&mut self, base: Integer, disp: i32, from: Integer) {
        self.code.legacy(false, 0x88, from as u8, MemoryOperand { base, disp });
    }

    /// Copies 16 bytes through xmm0.
    pub fn copy_16_bytes(&mut self, (to, to_disp): (Integer, i32), (from, from_disp): (Integer, i32)) {
        self.code.legacy(false, 0x0f10, 0, MemoryOperand { base: from, disp: from_disp });
        self.code.legacy(false, 0x0f11, 0, MemoryOperand { base: to, disp: to_disp });
    }

    /// Copies rcx bytes from `[rsi]` to `[rdi]`. Afterwards both point after the copied bytes, and
    /// rcx is 0.
    pub fn copy_bytes(&mut self) {
        self.code.plain(&[0xf3, 0xa4]);
    }

    /// Computes an address, `to = base + disp`.
    pub fn point(&mut self, to: Integer, base: Integer, disp: i32) {
        self.code.legacy(true, 0x8d, to as u8, MemoryOperand { base, disp });
    }

    /// Sets `to` to an address outside the code, given as a distance from the first byte of the
    /// code.
    pub fn point_outside(&mut self, to: Integer, distance: i64) {
        self.code.legacy(true, 0x8d, to as u8, RegisterOrMemory::Constant);
        self.code.goal(Goal::Outside(distance));
    }

    /// Sets `to` to the address of a label.
    pub fn point_label(&mut self, to: Integer, label: Label) {
        self.code.legacy(true, 0x8d, to as u8, RegisterOrMemory::Constant);
        let goal = self.code.goal(Goal::Code(0));
        self.jumps.push((goal, label));
    }

    /// Adds a register, `to += from`.
    pub fn add(&mut self, to: Integer, from: Integer) {
        self.code.legacy(true, 0x03, to as u8, from);
    }

    /// Adds a constant, `to += value`.
    pub fn add_value(&mut self, to: Integer, value: i32) {
        self.code.legacy(true, 0x81, 0, to);
        self.code.immediate(value.into(), 4);
    }

    /// Adds a constant to memory, `[base + disp] += value`.
    pub fn add_to(&mut self, base: Integer, disp: i32, value: i32) {
        self.code.legacy(true, 0x81, 0, MemoryOperand { base, disp });
        self.code.immediate(value.into(), 4);
    }

    /// Multiplies by a register, `to *= from`.
    pub fn multiply(&mut self, to: Integer, from: Integer) {
        self.code.legacy(true, 0x0faf, to as u8, from);
    }

    /// Multiplies by a constant, `to *= value`.
    pub fn multiply_value(&mut self, to: Integer, value: i32) {
        self.code.legacy(true, 0x69, to as u8, to);
        self.code.immediate(value.into(), 4);
    }

    /// Divides, `rax /= [base + disp]`, unsigned; the remainder goes to rdx.
    pub fn divide(&mut self, base: Integer, disp: i32) {
        // The dividend has 128 bits, of which RDX holds the upper half.
        self.set(Integer::Rdx, 0);
        self.code.legacy(true, 0xf7, 6, MemoryOperand { base, disp });
    }

    /// Compares two 64-bit registers.
    pub fn compare(&mut self, left: Integer, right: Integer) {
        self.code.legacy(true, 0x3b, left as u8, right);
    }

    /// Compares the lower 32 bits of two registers.
    pub fn compare_halves(&mut self, left: Integer, right: Integer) {
        self.code.legacy(false, 0x3b, left as u8, right);
    }

    /// Compares a register with `[base + disp]`.
    pub fn compare_with(&mut self, left: Integer, base: Integer, disp: i32) {
        self.code.legacy(true, 0x3b, left as u8, MemoryOperand { base, disp });
    }

    /// Compares a register with a value.
    pub fn compare_value(&mut self, left: Integer, right: i32) {
        self.code.legacy(true, 0x81, 7, left);
        self.code.immediate(right.into(), 4);
    }

    /// Masks a register, `register &= bits`, on 32 bits, zero-extended; the condition is `Equal` if
    /// no bit remains.
    pub fn and(&mut self, register: Integer, bits: u32) {
        self.code.legacy(false, 0x81, 4, register);
        self.code.immediate(bits.into(), 4);
    }

    /// Queries the processor's features: leaf eax, subleaf ecx, into eax, ebx, ecx and edx.
    pub fn cpuid(&mut self) {
        self.code.plain(&[0x0f, 0xa2]);
    }

    /// Queries the register sets that the operating system saves: number ecx, into eax and edx.
    pub fn xgetbv(&mut self) {
        self.code.plain(&[0x0f, 0x01, 0xd0]);
    }

    /// Calls the system: number rax, arguments rdi and rsi, result in rax. Overwrites rcx and r11.
    pub fn system_call(&mut self) {
        self.code.plain(&[0x0f, 0x05]);
    }

    /// Returns the code. Every label that is the target of a jump must be bound.
    pub fn finish(self) -> Result<Vec<u8>, AssembleError> {
        Ok(self.finish_with_references()?.0)
    }

    /// Returns the code, and the offsets of its 32-bit displacements to addresses outside of it.
    /// Each counts from its end.
    pub fn finish_with_references(mut self) -> Result<(Vec<u8>, Vec<usize>), AssembleError> {
        for (goal, label) in self.jumps {
            let at = self.labels[label.0].ok_or(AssembleError::Label)?;
            self.code.retarget(goal, Goal::Code(at));
        }
        let references = self.code.references();
        Ok((self.code.finish(&[]).map_err(|failure| *failure)?.0, references))
    }
}
