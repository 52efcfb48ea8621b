//! Inputs that kernels read in the caller's memory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicPtr;

use autotune_runtime::{CpuCall, Device, Kernel};

use super::border::has_caller_representation;
use crate::plan::{ActionKind, ActionOperand, NetworkPlan, SlotContent, SlotSpan, given_at};

/// Minimum size in bytes of an input that is read in place. Copying less takes hardly any time, and
/// aligns it to cache lines.
const LEAST_BYTES: usize = 1 << 10;

/// Returns the inputs that only kernels read, by slot. Such slots hold nothing else at any time.
pub(crate) fn slots_in_place(plan: &NetworkPlan) -> HashMap<usize, usize> {
    let is_input = |(number, span): (usize, &SlotSpan)| {
        let slot = &plan.slots[span.slot];
        let is_large = slot.bytes().is_some_and(|bytes| bytes >= LEAST_BYTES);
        (span.first == 0 && is_large && has_caller_representation(slot.dtype) && slot.content == SlotContent::Run)
            .then_some((span.slot, number))
    };
    let mut slots: HashMap<usize, usize> = plan.inputs.iter().enumerate().filter_map(is_input).collect();

    // A slot that anything but a kernel uses cannot be redirected.
    for output in &plan.outputs {
        slots.remove(&output.slot);
    }
    for action in &plan.actions {
        slots.remove(&action.output.slot);
        if !matches!(action.work, ActionKind::Kernel(_)) {
            for span in action.operands.iter().filter_map(ActionOperand::span) {
                slots.remove(&span.slot);
            }
        }
    }
    slots
}

/// A buffer of a kernel that refers to an input or a part of it.
struct InputBuffer {
    /// Number of the action in the plan.
    action: usize,
    /// Position among the buffers of the kernel's plan.
    buffer: usize,
    /// Offset in the input, in elements.
    first: usize,
    /// Buffer's address in the workspace while it is bound to the caller's memory, else null.
    workspace_address: AtomicPtr<f32>,
}

/// Buffers of kernels for each input that is read in place; `None` for inputs that are copied.
pub(crate) struct InputReads(Vec<Option<Vec<InputBuffer>>>);

impl InputReads {
    pub(super) fn of<D: Device>(plan: &NetworkPlan, kernels: &[Arc<Kernel<D>>], slots: &HashMap<usize, usize>) -> Self {
        let is_in_place = |span: &SlotSpan| slots.contains_key(&span.slot);
        let mut reads: Vec<_> = plan.inputs.iter().map(|span| is_in_place(span).then(Vec::new)).collect();
        for (number, action) in plan.actions.iter().enumerate() {
            let ActionKind::Kernel(kernel) = action.work else { continue };
            for ((buffer, _), operand) in given_at(kernels[kernel].plan()).zip(&action.operands) {
                let Some(span) = operand.span() else { continue };
                let Some(&input) = slots.get(&span.slot) else { continue };
                let read =
                    InputBuffer { action: number, buffer, first: span.first, workspace_address: AtomicPtr::default() };
                reads[input].get_or_insert_default().push(read);
            }
        }
        Self(reads)
    }

    /// True if an input is copied before a run.
    pub(super) fn is_copied(&self, input: usize) -> bool {
        self.0[input].is_none()
    }
}

/// Calls with buffers in the caller's memory, until this is dropped.
pub(crate) struct BoundCalls<'a> {
    calls: &'a mut [CpuCall],
    reads: &'a mut InputReads,
}

impl<'a> BoundCalls<'a> {
    pub(crate) fn new(calls: &'a mut [CpuCall], reads: &'a mut InputReads) -> Self {
        Self { calls, reads }
    }

    pub(crate) fn calls(&self) -> &[CpuCall] {
        self.calls
    }

    /// Binds the inputs that are not copied to the caller's memory.
    ///
    /// # Safety
    ///
    /// The inputs have the sizes of the graph's inputs, and outlive all calls that are started
    /// meanwhile.
    pub(crate) unsafe fn bind(&mut self, inputs: &[&[f32]]) {
        for (content, reads) in inputs.iter().zip(&mut self.reads.0) {
            for InputBuffer { action, buffer, first, workspace_address } in reads.iter_mut().flatten() {
                let start = content[*first..].as_ptr().cast_mut();
                // SAFETY: kernels do not write to their inputs; the caller guarantees size and
                // lifetime.
                let before = unsafe { self.calls[*action].exchange(*buffer, start) };
                *workspace_address.get_mut() = before.unwrap_or_default();
            }
        }
    }
}

impl Drop for BoundCalls<'_> {
    fn drop(&mut self) {
        for InputBuffer { action, buffer, workspace_address, .. } in self.reads.0.iter_mut().flatten().flatten() {
            let workspace_address = std::mem::take(workspace_address.get_mut());
            if !workspace_address.is_null() {
                // SAFETY: the call was created with this buffer, which lives in the workspace.
                unsafe { self.calls[*action].exchange(*buffer, workspace_address) };
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_ir::Target;

    use crate::{Builder, Compiled, DType, Graph, Seeded};
    use autotune_graph::operators::{Binary, Concat, MatMul};

    #[test]
    fn large_inputs_of_kernels_alone_are_not_copied() {
        let mut graph = Graph::new("inputs");
        let mut input = |name: &str, shape: &[usize]| graph.input(name, DType::F32, shape).unwrap();
        let (read, small) = (input("read", &[64, 64]), input("small", &[1, 64]));
        let (given, joined) = (input("given", &[64, 64]), input("joined", &[64, 64]));
        let product = graph.add("product", MatMul, &[read, given]).unwrap();
        let sum = graph.add("sum", Binary::Add, &[product, small]).unwrap();
        let both = graph.add("both", Concat { axis: 1 }, &[sum, joined]).unwrap();
        graph.output("given", given);
        graph.output("both", both);

        let network = Compiled::new(&graph, None, &Target::detect("cpu", Some(1)).unwrap()).unwrap();
        assert_eq!(network.in_place.values().collect::<Vec<_>>(), [&0]);
    }

    /// Inputs with unaligned start, whose memory is freed before the steps are timed.
    #[test]
    fn inputs_may_begin_anywhere_and_are_read_in_one_run() {
        let net = Builder::new("anywhere", Seeded { seed: 1 });
        let (a, b) = (net.input("a", &[33, 40]), net.input("b", &[40, 50]));
        net.output("y", a.matmul(b));
        let graph = net.finish().unwrap();
        let network = Compiled::new(&graph, None, &Target::detect("cpu", Some(2)).unwrap()).unwrap();
        assert_eq!(network.in_place.len(), 2);

        let mut workspace = network.workspace().unwrap();
        let mut results = vec![vec![0.0; 33 * 50]; 3];
        for (run, result) in results.iter_mut().enumerate() {
            let of = |elements: usize| (0..elements + run).map(|x| (x % 7 + run) as f32).collect::<Vec<_>>();
            let (a, b) = (of(33 * 40), of(40 * 50));
            workspace.run(&[&a[run..], &b[run..]], &mut [result]).unwrap();
            let at = |row: usize, column: usize| -> f32 {
                (0..40).map(|k| a[run + 40 * row + k] * b[run + 50 * k + column]).sum()
            };
            assert!((0..33 * 50).all(|place| result[place] == at(place / 50, place % 50)), "run {run}");
            drop((a, b));
            workspace.profile(1).unwrap();
        }
    }
}
