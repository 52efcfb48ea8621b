//! Initialisation and checks of workspaces. A workspace starts with the address of the library's
//! code, which marks it as initialised, the address of the weights, the library's own or a copy,
//! and the number of the instruction set whose code runs.

use autotune_codegen::asm::x86::Integer::{Rax, Rbx, Rdi};
use autotune_codegen::asm::x86::{Condition, Integer, Label, Routine};

use super::export::ALIGNMENT;
use super::processor::{self, Features};

/// Size in bytes of a workspace's header, before its tensors.
pub(super) const HEADER_BYTES: usize = ALIGNMENT;

/// Offset of the weights' address in a workspace.
pub(super) const WEIGHTS: i32 = 8;

/// Offset of the instruction set's number in a workspace.
pub(super) const SET: i32 = 16;

/// Values at the start of an initialised workspace.
pub(super) struct WorkspaceStart {
    /// Distances of the kernels and of the weights from the driver.
    pub(super) text: i64,
    pub(super) weights: i64,
    /// Number of the instruction set.
    pub(super) set: usize,
    /// Features of the CPU that the instruction set needs.
    pub(super) features: Features,
}

impl WorkspaceStart {
    /// Emits the initialisation of the workspace at rdi. Jumps to a label if the CPU lacks a
    /// feature, and to another if kernels use tile registers, which the system refuses. Preserves
    /// rdi, and rsi unless kernels use tile registers.
    pub(super) fn emit(&self, routine: &mut Routine, lacking: Label, refused: Label) {
        let [missing, done] = [(); 2].map(|()| routine.label());
        // `cpuid` overwrites rbx, which belongs to the caller.
        routine.push(Rbx);
        processor::emit_check(routine, self.features, missing);
        routine.pop(Rbx);
        if self.features.have_tiles() {
            processor::emit_request(routine, refused);
        }

        routine.point_outside(Rax, self.text);
        routine.store(Rdi, 0, Rax);
        routine.point_outside(Rax, self.weights);
        routine.store(Rdi, WEIGHTS, Rax);
        routine.set(Rax, self.set as i64);
        routine.store(Rdi, SET, Rax);
        routine.jump(done);

        routine.bind(missing);
        routine.pop(Rbx);
        routine.jump(lacking);
        routine.bind(done);
    }
}

/// Emits a jump to a label unless rdi is the address of an initialised workspace; `text` is the
/// distance of the kernels from the driver.
pub(super) fn emit_check(routine: &mut Routine, text: i64, bad: Label, not_initialised: Label) {
    emit_check_block(routine, Rdi, bad);
    routine.point_outside(Rax, text);
    routine.compare_with(Rax, Rdi, 0);
    routine.jump_if(Condition::NotEqual, not_initialised);
}

/// Emits a jump to a label if a register is null or unaligned.
pub(super) fn emit_check_block(routine: &mut Routine, block: Integer, bad: Label) {
    routine.compare_value(block, 0);
    routine.jump_if(Condition::Equal, bad);
    routine.copy(Rax, block);
    routine.and(Rax, ALIGNMENT as u32 - 1);
    routine.jump_if(Condition::NotEqual, bad);
}
