//! Buffers of a plan as a trial uses them, and their memory.

use autotune_ir::plan::{Binding, PlanBuffer};
use autotune_ir::program::{Layout, Role};
use autotune_ir::{DType, KernelPlan};
use autotune_measurement::CandidateError;
use autotune_runtime::{Bound, Device};

use crate::expected::Expected;
use crate::fixed::FixedTensors;
use crate::guarded::{self, Guarded};
use crate::problem::{TestProblem, misfit};
use crate::resident::Resident;

/// Buffer that is not private to a thread.
pub(super) struct BufferSlot {
    /// Position in the plan.
    pub(super) position: usize,
    pub(super) role: Role,
    pub(super) binding: Binding,
    pub(super) layout: Layout,
    pub(super) dtype: DType,
    /// Number of elements; `words` is the number of 32-bit words that they occupy.
    pub(super) len: usize,
    pub(super) words: usize,
}

/// Allocates undefined memory for all slots that are not fixed and for the threads' private memory.
/// Returns it together with the bindings of all of a plan's memory.
pub(super) fn bound<D: Device>(
    resident: &Resident<D>,
    plan: &KernelPlan,
    slots: &[BufferSlot],
    fixed: &FixedTensors<D>,
) -> Result<(Guarded<D>, Bound<D::Memory>), CandidateError> {
    let device = &resident.device;
    let fixed_at = |slot: &BufferSlot| fixed.iter().find(|(position, _)| *position == slot.position);
    let own_words = slots.iter().filter(|slot| fixed_at(slot).is_none()).map(|slot| slot.words);
    let lens: Vec<usize> = own_words.chain(private_words(device, plan)).collect();
    let own = resident.undefined(&lens)?;

    let mut parts = 0..lens.len();
    // SAFETY: the caller that binds the memory guarantees that accesses do not overlap in time.
    let mut part = || unsafe { own.part(device, parts.next().unwrap_or(usize::MAX)) };
    let memory = |slot: &BufferSlot| match fixed_at(slot) {
        // SAFETY: as above.
        Some((_, fixed)) => unsafe { fixed.tensor(device) },
        None => part(),
    };
    let buffers = slots.iter().map(memory).collect::<Result<_, _>>()?;
    let private = private_words(device, plan).map(|_| part()).collect::<Result<_, _>>()?;
    Ok((own, Bound { buffers, private }))
}

/// Returns, for each thread of the host, the words of its private memory.
pub(super) fn private_words<D: Device>(device: &D, plan: &KernelPlan) -> impl Iterator<Item = usize> {
    let threads = if plan.local_bytes > 0 { device.host_threads() } else { 0 };
    std::iter::repeat_n(plan.local_bytes.div_ceil(4), threads)
}

/// Returns the operands on the device, with their positions in the plan.
pub(super) fn operands<D: Device>(
    resident: &Resident<D>,
    problem: &TestProblem,
    slots: &[BufferSlot],
) -> Result<FixedTensors<D>, CandidateError> {
    let are_given = slots.iter().filter(|slot| matches!(slot.binding, Binding::Data | Binding::Constant { .. }));
    let operand = |slot: &BufferSlot| {
        let fixed = resident.operand(problem, slot.role, slot.layout, slot.dtype)?;
        let fixed = fixed.ok_or_else(|| misfit(slot.role, "the workload does not have it"))?;
        if fixed.words() != slot.words {
            return Err(misfit(slot.role, "its size differs from that of the tensor"));
        }
        Ok((slot.position, fixed))
    };
    are_given.map(operand).collect()
}

/// Returns the expected output in the layout of the plan's output buffer.
pub(super) fn expected_output(problem: &TestProblem, slots: &[BufferSlot]) -> Result<Expected, CandidateError> {
    let BufferSlot { layout, len, .. } = slots[output(slots)?];
    let expected = problem.expected(layout)?;
    if expected.len() != len {
        return Err(misfit(Role::Output, "its size differs from that of the tensor"));
    }
    Ok(expected)
}

/// Returns the buffers of a plan that are not private to a thread.
pub(super) fn slots(plan: &KernelPlan) -> Result<Vec<BufferSlot>, CandidateError> {
    let slot = |(position, buffer): (usize, &PlanBuffer)| {
        let bytes = buffer.bytes().filter(|&bytes| bytes <= isize::MAX as usize);
        let words = bytes.ok_or_else(guarded::no_memory)?.div_ceil(4);
        let &PlanBuffer { role, binding, layout, dtype, .. } = buffer;
        Ok(BufferSlot { position, role, binding, layout, dtype, len: buffer.elements().unwrap_or(0), words })
    };
    plan.buffers.iter().enumerate().filter(|(_, buffer)| buffer.is_global()).map(slot).collect()
}

/// Returns the index of the output among the slots.
pub(super) fn output(slots: &[BufferSlot]) -> Result<usize, CandidateError> {
    slots.iter().position(|slot| slot.binding == Binding::Output).ok_or_else(no_output)
}

pub(super) fn no_output() -> CandidateError {
    misfit(Role::Output, "it is missing")
}
