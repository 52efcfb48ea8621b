//! Where a plan's tensors and its kernels' scratch lie in the memory of a workspace.

use std::sync::Arc;

use autotune_runtime::{Cpu, Kernel, STAGGER_BYTES};

use crate::arena::{self, Need};
use crate::error::CompileError;
use crate::plan::{Content, Doing, Operand, Plan, Span};

/// Tensors begin at multiples of this.
const ALIGNMENT: usize = 256;

/// The first bytes of slots and of scratch, and the bytes of all.
pub(crate) fn places(
    plan: &Plan,
    kernels: &[Arc<Kernel>],
    cpu: &Cpu,
) -> Result<(Vec<usize>, Vec<usize>, usize), CompileError> {
    let last = plan.actions.len();
    let mut lives: Vec<Option<(usize, usize)>> = vec![None; plan.slots.len()];
    let mut live = |span: Span, step: usize| {
        let life = lives[span.slot].get_or_insert((step, step));
        *life = (life.0.min(step), life.1.max(step));
    };
    plan.inputs.iter().for_each(|&span| live(span, 0));
    for (number, action) in plan.actions.iter().enumerate() {
        for operand in &action.operands {
            if let Operand::Span(span) = operand {
                live(*span, number);
            }
        }
        live(action.output, number);
    }
    plan.outputs.iter().for_each(|&span| live(span, last));

    // Scratch has bytes of its own behind it.
    let bytes = |elements: usize| elements.checked_mul(size_of::<f32>())?.checked_add(STAGGER_BYTES);
    let mut needs = Vec::new();
    for (slot, life) in plan.slots.iter().zip(&lives) {
        let held = life.filter(|_| slot.content == Content::Run);
        let (first, last) = held.unwrap_or((0, 0));
        let bytes = if held.is_some() { bytes(slot.elements).ok_or(CompileError::TooLarge)? } else { 0 };
        needs.push(Need { bytes, steps: first..=last });
    }
    for (number, action) in plan.actions.iter().enumerate() {
        let bytes = match action.work {
            Doing::Kernel(kernel) => kernels[kernel].scratch_bytes(cpu)?,
            _ => 0,
        };
        needs.push(Need { bytes, steps: number..=number });
    }
    let (mut places, bytes) = arena::offsets(&needs, ALIGNMENT).ok_or(CompileError::TooLarge)?;
    let scratch = places.split_off(plan.slots.len());
    Ok((places, scratch, bytes))
}
