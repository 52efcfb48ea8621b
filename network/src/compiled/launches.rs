//! Calls of a workspace, and the places of its tensors.

use super::Workspace;
use crate::device::NetworkOps;
use crate::plan::SlotSpan;

impl<D: NetworkOps> Workspace<D> {
    /// Returns the device of the workspace.
    pub(crate) fn device(&self) -> &D {
        &self.device
    }

    /// Returns the calls of a run, in order.
    pub(crate) fn calls(&self) -> &[D::Call] {
        &self.bound.calls
    }

    /// Returns the memory of the tensors of a run.
    pub(crate) fn memory(&self) -> &D::Memory {
        &self.memory
    }

    /// Returns the memory that contains a span, and its first byte there.
    pub(super) fn place(&self, span: SlotSpan) -> (&D::Memory, usize) {
        let network = &self.bound.network;
        let first = network.plan.offset(span);
        match network.constants.slots[span.slot].as_deref() {
            Some(constant) => (constant, first),
            None => (&self.memory, network.places[span.slot] + first),
        }
    }

    /// Returns the place of each input and each output.
    pub(crate) fn ends(&self) -> [Vec<(&D::Memory, usize)>; 2] {
        let plan = &self.bound.network.plan;
        [&plan.inputs, &plan.outputs].map(|spans| spans.iter().map(|&span| self.place(span)).collect())
    }
}
