//! Where a plan's tensors and its kernels' scratch lie in the memory of a workspace.

use std::sync::Arc;

use autotune_ir::may_overwrite;
use autotune_ir::program::Role;
use autotune_runtime::{Device, Kernel, STAGGER_BYTES};

use crate::arena::{self, Need};
use crate::error::CompileError;
use crate::plan::{Content, Doing, Operand, Plan, Slot, Span, given};

/// Tensors begin at multiples of this.
const ALIGNMENT: usize = 256;

/// The steps from the first to the last at which something is in memory.
type Life = (usize, usize);

/// The first bytes of slots and of scratch, and the bytes of all.
pub(crate) fn places<D: Device>(
    plan: &Plan,
    kernels: &[Arc<Kernel<D>>],
    device: &D,
) -> Result<(Vec<usize>, Vec<usize>, usize), CompileError> {
    let mut lives = lives(plan);
    let holders = holders(plan, kernels, &mut lives)?;

    // Scratch has bytes of its own behind it.
    let bytes = |slot: &Slot| slot.bytes()?.checked_add(STAGGER_BYTES);
    let mut needs = Vec::new();
    for (number, (slot, life)) in plan.slots.iter().zip(&lives).enumerate() {
        let held = life.filter(|_| slot.content == Content::Run && holders[number] == number);
        let (first, last) = held.unwrap_or((0, 0));
        let bytes = if held.is_some() { bytes(slot).ok_or(CompileError::TooLarge)? } else { 0 };
        needs.push(Need { bytes, steps: first..=last });
    }
    for (number, action) in plan.actions.iter().enumerate() {
        let bytes = match action.work {
            Doing::Kernel(kernel) => kernels[kernel].scratch_bytes(device)?,
            _ => 0,
        };
        needs.push(Need { bytes, steps: number..=number });
    }

    let (mut places, bytes) = arena::offsets(&needs, ALIGNMENT).ok_or(CompileError::TooLarge)?;
    let scratch = places.split_off(plan.slots.len());
    let places = holders.iter().map(|&holder| places[holder]).collect();
    Ok((places, scratch, bytes))
}

/// From when to when slots are used, where they are.
fn lives(plan: &Plan) -> Vec<Option<Life>> {
    let mut lives: Vec<Option<Life>> = vec![None; plan.slots.len()];
    let mut live = |span: Span, step: usize| {
        let life = lives[span.slot].get_or_insert((step, step));
        *life = (life.0.min(step), life.1.max(step));
    };
    plan.inputs.iter().for_each(|&span| live(span, 0));
    for (number, action) in plan.actions.iter().enumerate() {
        action.operands.iter().filter_map(Operand::span).for_each(|span| live(span, number));
        live(action.output, number);
    }
    plan.outputs.iter().for_each(|&span| live(span, plan.actions.len()));
    lives
}

/// For each slot the one in whose memory it is: its own, or that of an operand which is used for
/// the last time where the slot is first written, by a kernel that [may overwrite](may_overwrite)
/// it. That one then lives as long as both.
///
/// Inputs stay as they are, for who does single steps again.
fn holders<D: Device>(
    plan: &Plan,
    kernels: &[Arc<Kernel<D>>],
    lives: &mut [Option<Life>],
) -> Result<Vec<usize>, CompileError> {
    let mut holders: Vec<usize> = (0..plan.slots.len()).collect();
    let mut is_input = vec![false; plan.slots.len()];
    plan.inputs.iter().for_each(|input| is_input[input.slot] = true);
    for (number, action) in plan.actions.iter().enumerate() {
        let Doing::Kernel(kernel) = action.work else { continue };
        let (to, own) = (action.output, lives[action.output.slot]);
        let is_new = own.is_some_and(|(first, _)| first == number);
        // A compiler takes pointers of operands and output to be different.
        if !is_new || to.first != 0 || !kernels[kernel].takes_any_address() {
            continue;
        }

        let spans: Vec<Option<Span>> = action.operands.iter().map(Operand::span).collect();
        for (buffer, from) in given(kernels[kernel].plan()).zip(&spans) {
            let (Some(from), Role::Operand(operand)) = (from, buffer.role) else { continue };
            let (slot, holder) = (&plan.slots[from.slot], holders[from.slot]);
            let is_whole = *slot == plan.slots[to.slot] && from.first == 0 && slot.content == Content::Run;
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
