//! Packing of a kernel's constants ahead of time.

use std::rc::Rc;

use autotune_ir::Artifact;
use autotune_ir::plan::Binding;
use autotune_ir::program::When;
use autotune_measurement::CandidateError;
use autotune_runtime::{Device, Kernel};

use super::slots::{BufferSlot, bound};
use crate::allocation_cache::PackingKey;
use crate::built::Built;
use crate::fixed::FixedTensors;
use crate::resident::Resident;

/// Returns the kernel's packed constants: from the cache, if a kernel with the same packing code
/// made them, else packed now. Buffers that the packing stages may not read are undefined
/// meanwhile.
pub(super) fn packed<D: Device>(
    resident: &Resident<D>,
    kernel: &Kernel<D>,
    built: &Built,
    slots: &[BufferSlot],
    operands: &FixedTensors<D>,
) -> Result<FixedTensors<D>, CandidateError> {
    let Artifact { plan, .. } = &built.artifact;
    if plan.stages.iter().all(|stage| stage.when != When::AheadOfTime) {
        return Ok(Vec::new());
    }
    let packing = PackingKey::of(&built.artifact);
    let known = packing.as_ref().and_then(|packing| resident.cache.borrow_mut().find(&built.workload, packing, plan));
    if let Some(packed) = known {
        return Ok(packed);
    }

    let is_constant = |(position, _): &&(usize, _)| matches!(plan.buffers[*position].binding, Binding::Constant { .. });
    let constants = operands.iter().filter(is_constant).map(|(position, fixed)| (*position, Rc::clone(fixed)));
    let mut fixed: FixedTensors<D> = constants.collect();
    let constants = fixed.len();
    for slot in slots.iter().filter(|slot| slot.binding == Binding::Packed) {
        fixed.push((slot.position, Rc::new(resident.blank(slot.words)?)));
    }
    let (own, memory) = bound(resident, plan, slots, &fixed)?;
    // SAFETY: this function owns all the memory except the constants, to which nothing writes.
    let call = unsafe { kernel.bind_memory(&resident.device, When::AheadOfTime, memory) }?;
    resident.device.start(&call)?;
    drop(call);

    // The packing stages are untrusted code too: check the guards before the result is cached.
    let mut packed = fixed.split_off(constants);
    let mut are_intact = own.is_intact(&resident.device)?;
    for (_, fixed) in &packed {
        are_intact &= !fixed.is_guard_broken(&resident.device)?;
    }
    if !are_intact {
        return Err(CandidateError::StrayWrite { message: "memory outside its buffers changed".into() });
    }
    resident.cache.borrow_mut().give(own.into_memory());
    for (_, fixed) in &mut packed {
        if let Some(fixed) = Rc::get_mut(fixed) {
            fixed.set_checksum(&resident.device, &*resident.checks)?;
        }
    }
    if let Some(packing) = packing {
        resident.cache.borrow_mut().keep(&built.workload, packing, packed.clone());
    }
    Ok(packed)
}
