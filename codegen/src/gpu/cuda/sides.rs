//! The two sides of a block.

use super::Cuda;
use crate::gpu::writer::Writer;
use autotune_ir::program::{Node, Side, Signal};

impl Writer<'_, Cuda> {
    /// ```text
    /// producer { A }                if (threadIdx.x >= 256) { fewer registers;  if (threadIdx.x == 256) { A } }
    /// consumers { B }           →   else { more registers;  B }
    /// ```
    pub(super) fn side(&mut self, side: Side, body: &[Node]) {
        let consumers = self.dialect.block_threads;
        let registers = Side::registers(consumers);
        self.dialect.side = Some(side);
        match side {
            Side::Producer => {
                self.line(&format!("if (threadIdx.x >= {consumers}) {{"));
                self.depth += 1;
                registers.iter().for_each(|[few, _]| self.line(&format!("fewer_registers<{few}>();")));
                self.line("int issued = 0, released = 0;");
                self.block(&format!("if (threadIdx.x == {consumers})"), body);
            }
            Side::Consumers => {
                self.line("else {");
                self.depth += 1;
                registers.iter().for_each(|[_, many]| self.line(&format!("more_registers<{many}>();")));
                self.line("int awaited = 0, released = 0;");
                self.nodes(body);
            }
        }
        self.depth -= 1;
        self.line("}");
        self.dialect.side = None;
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        let slots = self.dialect.slots;
        self.line(&match signal {
            Signal::AwaitFilled => format!("await_boxes(arrivals, {slots}, awaited, awaited + 1);"),
            Signal::Release { but } => format!("release_boxes(releases, {slots}, released, awaited - {but});"),
            Signal::AwaitReleased { but } => format!("await_boxes(releases, {slots}, released, issued - {but});"),
        });
    }
}
