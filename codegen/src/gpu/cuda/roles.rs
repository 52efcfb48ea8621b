//! Warp specialisation: a producer and consumers in one block.

use super::Cuda;
use crate::gpu::writer::GpuWriter;
use autotune_ir::program::{Mbarrier, Node, WarpRole};

impl GpuWriter<'_, Cuda> {
    /// Writes the code of a producer or of consumers, with registers moved from the former to the
    /// latter:
    ///
    /// ```text
    /// producer { A }                if (threadIdx.x >= 256) { fewer registers;  if (threadIdx.x == 256) { A } }
    /// consumers { B }           →   else { more registers;  B }
    /// ```
    pub(super) fn role(&mut self, role: WarpRole, body: &[Node]) {
        let consumers = self.dialect.block_threads;
        let registers = WarpRole::registers(consumers);
        self.dialect.role = Some(role);
        match role {
            WarpRole::Producer => {
                self.line(&format!("if (threadIdx.x >= {consumers}) {{"));
                self.depth += 1;
                registers.iter().for_each(|[few, _]| self.line(&format!("fewer_registers<{few}>();")));
                self.line("int issued = 0, released = 0;");
                // One thread of the producer warps issues all copies.
                self.block(&format!("if (threadIdx.x == {consumers})"), body);
            }
            WarpRole::Consumers => {
                self.line("else {");
                self.depth += 1;
                registers.iter().for_each(|[_, many]| self.line(&format!("more_registers<{many}>();")));
                self.line("int awaited = 0, released = 0;");
                self.nodes(body);
            }
        }
        self.depth -= 1;
        self.line("}");
        self.dialect.role = None;
    }

    pub(super) fn mbarrier(&mut self, mbarrier: Mbarrier) {
        let slots = self.dialect.slots;
        self.line(&match mbarrier {
            Mbarrier::WaitFull => format!("await_boxes(arrivals, {slots}, awaited, awaited + 1);"),
            Mbarrier::ArriveEmpty { pending } => {
                format!("release_boxes(releases, {slots}, released, awaited - {pending});")
            }
            Mbarrier::WaitEmpty { pending } => format!("await_boxes(releases, {slots}, released, issued - {pending});"),
        });
    }
}
