//! Memory that a network needs on a device, checked before kernels and constants are loaded.

use std::collections::HashMap;

use autotune_ir::plan::Binding;
use autotune_ir::program::{Layout, When};
use autotune_ir::{DType, KernelPlan};
use autotune_runtime::Device;

use crate::error::CompileError;
use crate::places::lifetimes;
use crate::plan::{ActionKind, ActionOperand, NetworkPlan, SlotContent, given};
use autotune_graph::NodeId;

/// Fails if a device reports that it has less free memory than a network needs at least.
pub(crate) fn check_memory<D: Device>(plan: &NetworkPlan, device: &D) -> Result<(), CompileError> {
    let Some(free) = device.free_bytes()? else { return Ok(()) };
    let (constants, tensors) = (constant_bytes(plan)?, tensor_bytes(plan)?);
    match constants.checked_add(tensors).ok_or(CompileError::TooLarge)? {
        needed if needed <= free => Ok(()),
        needed => Err(CompileError::Memory { needed, constants, free, device: device.name() }),
    }
}

/// Returns the bytes of packed and other constants. Kernels may pack the same constants alike, so
/// each set of constants counts once.
fn constant_bytes(plan: &NetworkPlan) -> Result<usize, CompileError> {
    let mut packed: HashMap<Vec<NodeId>, usize> = HashMap::new();
    let mut copied: HashMap<(NodeId, Layout, DType), usize> = HashMap::new();
    for slot in &plan.slots {
        if let SlotContent::Constant(node, layout) = slot.content {
            copied.insert((node, layout, slot.dtype), slot.bytes().ok_or(CompileError::TooLarge)?);
        }
    }
    for action in &plan.actions {
        let ActionKind::Kernel(kernel) = action.work else { continue };
        let kernel = plan.kernels[kernel].plan()?;
        let most = packed.entry(action.operands.iter().filter_map(ActionOperand::constant).collect()).or_default();
        *most = packed_bytes(kernel).ok_or(CompileError::TooLarge)?.max(*most);

        for (buffer, operand) in given(kernel).zip(&action.operands) {
            if let (Binding::Constant { read_in_runs: true }, Some(node)) = (buffer.binding, operand.constant()) {
                let bytes = buffer.bytes().ok_or(CompileError::TooLarge)?;
                copied.insert((node, buffer.layout, buffer.dtype), bytes);
            }
        }
    }

    let mut all = packed.into_values().chain(copied.into_values());
    all.try_fold(0usize, |sum, bytes| sum.checked_add(bytes)).ok_or(CompileError::TooLarge)
}

/// Returns the bytes that a kernel packs ahead of time; `None` on overflow.
fn packed_bytes(kernel: &KernelPlan) -> Option<usize> {
    let packs = kernel.stages.iter().any(|stage| stage.when == When::AheadOfTime);
    let mut buffers = kernel.buffers.iter().filter(|buffer| packs && buffer.binding == Binding::Packed);
    buffers.try_fold(0usize, |sum, buffer| sum.checked_add(buffer.bytes()?))
}

/// Returns the bytes of the tensors that a run needs at a time.
fn tensor_bytes(plan: &NetworkPlan) -> Result<usize, CompileError> {
    // Bytes of slots by the first step of their lives, and by the first step after them.
    let mut begin = vec![0usize; plan.actions.len() + 2];
    let mut end = begin.clone();
    for (slot, life) in plan.slots.iter().zip(lifetimes(plan)) {
        let Some((first, last)) = life.filter(|_| slot.content == SlotContent::Run) else { continue };
        let bytes = slot.bytes().ok_or(CompileError::TooLarge)?;
        // A kernel may overwrite an operand whose last use it is.
        for (sums, step) in [(&mut begin, first), (&mut end, last.max(first + 1))] {
            sums[step] = sums[step].checked_add(bytes).ok_or(CompileError::TooLarge)?;
        }
    }

    let (mut live, mut most) = (0usize, 0);
    for (begin, end) in begin.into_iter().zip(end) {
        live = (live - end).checked_add(begin).ok_or(CompileError::TooLarge)?;
        most = live.max(most);
    }
    Ok(most)
}
