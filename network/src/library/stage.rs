//! Stages of kernels on several threads: the record that these share, and the code that
//! distributes the tasks.

use autotune_codegen::asm::x86::Integer::{R8, R9, R12, R13, Rax, Rcx, Rdi, Rdx, Rsi, Rsp};
use autotune_codegen::asm::x86::{Condition, Label, Routine};

/// Offsets of a stage's shared record on the stack.
pub(super) const FUNCTION: i32 = 0;
pub(super) const BUFFERS: i32 = 8;
pub(super) const PRIVATE: i32 = 16;
pub(super) const PRIVATE_STRIDE: i32 = 24;
pub(super) const TASKS: i32 = 32;
pub(super) const PARTS: i32 = 40;
/// Offset of the kernel's buffer table, after the record.
pub(super) const TABLE: i32 = 48;

/// Emits the code that runs a stage on several threads, and returns the label of `share(stage)`. It
/// calls the caller's `parallel_for(context, parts, part, stage)`, if there is one. `part(stage,
/// number)` runs the tasks from `tasks * number / parts` to `tasks * (number + 1) / parts`.
pub(super) fn emit(routine: &mut Routine) -> Label {
    let share = routine.label();
    let (part, alone, nothing) = (routine.label(), routine.label(), routine.label());
    routine.bind(part);
    // Parts from `parts` on have no tasks.
    routine.compare_with(Rsi, Rdi, PARTS);
    routine.jump_if(Condition::AtLeast, nothing);
    // The first task of the part: `tasks * number / parts`.
    routine.copy(R8, Rsi);
    routine.load(Rax, Rdi, TASKS);
    routine.multiply(Rax, R8);
    routine.divide(Rdi, PARTS);

    // The part ends where the next one begins.
    routine.copy(R9, Rax);
    routine.load(Rax, Rdi, TASKS);
    routine.add_value(R8, 1);
    routine.multiply(Rax, R8);
    routine.divide(Rdi, PARTS);
    routine.copy(Rcx, Rax);

    // Each part has private memory of its own.
    routine.load(Rax, Rdi, PRIVATE_STRIDE);
    routine.multiply(Rsi, Rax);
    routine.copy(Rdx, R9);
    routine.load(Rax, Rdi, PRIVATE);
    routine.add(Rsi, Rax);

    // A tail call: the kernel's function returns to the caller.
    routine.load(Rax, Rdi, FUNCTION);
    routine.load(Rdi, Rdi, BUFFERS);
    routine.jump_register(Rax);
    routine.bind(nothing);
    routine.ret();

    routine.align();
    routine.bind(share);
    routine.compare_value(R12, 0);
    routine.jump_if(Condition::Equal, alone);
    // Aligns the stack to 16 bytes for the call.
    routine.add_value(Rsp, -8);
    routine.copy(Rcx, Rdi);
    routine.load(Rsi, Rdi, PARTS);
    routine.point_label(Rdx, part);
    routine.copy(Rdi, R13);
    routine.call_register(R12);
    routine.add_value(Rsp, 8);
    routine.ret();
    routine.bind(alone);
    routine.set(Rdx, 0);
    // Without `parallel_for`, the calling thread runs all tasks.
    routine.load(Rcx, Rdi, TASKS);
    routine.load(Rsi, Rdi, PRIVATE);
    routine.load(Rax, Rdi, FUNCTION);
    routine.load(Rdi, Rdi, BUFFERS);
    routine.jump_register(Rax);
    share
}
