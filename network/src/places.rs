//! Placement of a plan's tensors and its kernels' scratch memory in a workspace.

use std::sync::Arc;

use autotune_ir::may_overwrite;
use autotune_ir::program::Role;
use autotune_runtime::{Device, Kernel, STAGGER_BYTES};

use crate::arena::{self, Need};
use crate::error::CompileError;
use crate::plan::{ActionKind, ActionOperand, NetworkPlan, Slot, SlotContent, SlotSpan, given};

/// Alignment of tensors in bytes; more if the device needs it.
const ALIGNMENT: usize = 256;

/// First and last step of a lifetime.
type Life = (usize, usize);

/// Returns the offsets of slots and of scratch memory, and the total size in bytes.
pub(crate) fn places<D: Device>(
    plan: &NetworkPlan,
    kernels: &[Arc<Kernel<D>>],
    device: &D,
) -> Result<(Vec<usize>, Vec<usize>, usize), CompileError> {
    let mut lives = lifetimes(plan);
    let holders = holders(plan, kernels, &mut lives)?;

    // Slots are padded so that vectors of consecutive slots do not map to the same cache sets;
    // scratch has its own padding.
    let bytes = |slot: &Slot| slot.bytes()?.checked_add(STAGGER_BYTES);
    let mut needs = Vec::new();
    for (number, (slot, life)) in plan.slots.iter().zip(&lives).enumerate() {
        // A slot in another's memory, or a constant, needs no bytes.
        let held = life.filter(|_| slot.content == SlotContent::Run && holders[number] == number);
        let (first, last) = held.unwrap_or((0, 0));
        let bytes = if held.is_some() { bytes(slot).ok_or(CompileError::TooLarge)? } else { 0 };
        needs.push(Need { bytes, steps: first..=last });
    }
    for (number, action) in plan.actions.iter().enumerate() {
        let bytes = match action.work {
            ActionKind::Kernel(kernel) => kernels[kernel].scratch_bytes(device)?,
            _ => 0,
        };
        needs.push(Need { bytes, steps: number..=number });
    }

    let (mut places, bytes) =
        arena::offsets(&needs, ALIGNMENT.max(device.alignment())).ok_or(CompileError::TooLarge)?;
    let scratch = places.split_off(plan.slots.len());
    let places = holders.iter().map(|&holder| places[holder]).collect();
    Ok((places, scratch, bytes))
}

/// Returns the lifetime of each slot.
pub(crate) fn lifetimes(plan: &NetworkPlan) -> Vec<Option<Life>> {
    let mut lives: Vec<Option<Life>> = vec![None; plan.slots.len()];
    let mut live = |span: SlotSpan, step: usize| {
        let life = lives[span.slot].get_or_insert((step, step));
        *life = (life.0.min(step), life.1.max(step));
    };
    // Inputs are written before the first step, and outputs are read after the last.
    plan.inputs.iter().for_each(|&span| live(span, 0));
    for (number, action) in plan.actions.iter().enumerate() {
        action.operands.iter().filter_map(ActionOperand::span).for_each(|span| live(span, number));
        live(action.output, number);
    }
    plan.outputs.iter().for_each(|&span| live(span, plan.actions.len()));
    lives
}

/// Returns for each slot the one whose memory it uses: its own, or that of an operand whose last
/// use is the slot's first write, by a kernel that [may overwrite](may_overwrite) it. The holder's
/// lifetime then covers both.
///
/// Inputs are never overwritten, so that single steps can be repeated.
fn holders<D: Device>(
    plan: &NetworkPlan,
    kernels: &[Arc<Kernel<D>>],
    lives: &mut [Option<Life>],
) -> Result<Vec<usize>, CompileError> {
    let mut holders: Vec<usize> = (0..plan.slots.len()).collect();
    let mut is_input = vec![false; plan.slots.len()];
    plan.inputs.iter().for_each(|input| is_input[input.slot] = true);
    for (number, action) in plan.actions.iter().enumerate() {
        let ActionKind::Kernel(kernel) = action.work else { continue };
        let (to, own) = (action.output, lives[action.output.slot]);
        let is_new = own.is_some_and(|(first, _)| first == number);
        // A C compiler may assume that pointers of operands and output do not alias.
        if !is_new || to.first != 0 || !kernels[kernel].takes_any_address() {
            continue;
        }

        let spans: Vec<Option<SlotSpan>> = action.operands.iter().map(ActionOperand::span).collect();
        for (buffer, from) in given(kernels[kernel].plan()).zip(&spans) {
            let (Some(from), Role::Operand(operand)) = (from, buffer.role) else { continue };
            let (slot, holder) = (&plan.slots[from.slot], holders[from.slot]);
            let is_whole = *slot == plan.slots[to.slot] && from.first == 0 && slot.content == SlotContent::Run;
            let is_last = lives[from.slot].is_some_and(|(_, last)| last == number);
            let is_alone = spans.iter().flatten().filter(|other| holders[other.slot] == holder).count() == 1;
            if is_whole
                && is_last
                && is_alone
                && !is_input[holder]
                && may_overwrite(plan.kernels[kernel].program()?, operand)
            {
                holders[to.slot] = holder;
                lives[holder] = lives[holder].zip(own).map(|((first, _), (_, last))| (first, last));
                break;
            }
        }
    }
    Ok(holders)
}
