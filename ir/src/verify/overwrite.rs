//! Analysis of whether the output of a program may overwrite an operand in place.

use crate::program::{BufferId, Expr, GpuGrid, Loop, Node, Program, Role, Stage, Store, StoreMode, When};

/// Returns true if the output of a [proven](super::verify) CPU program may use the memory of an
/// operand with the same shape and layout. This requires that each element of the operand is read
/// only by the statement that writes the same element of the output, and that every element is
/// stored once.
///
/// ```text
/// out[i] = relu(acc[i] + residual[i])              residual
/// out[i] = x[i] * y[i]                             x, y
/// out[i] = acc[i]; out[i] = out[i] + residual[i]   none: overwritten before it is read
/// ```
pub fn may_overwrite(program: &Program, operand: usize) -> bool {
    let (Some(from), Some(to)) = (program.find(Role::Operand(operand)), program.find(Role::Output)) else {
        return false;
    };
    let of = |id: BufferId| {
        let buffer = program.buffer(id);
        (&buffer.shape, buffer.layout, program.dtype(id))
    };
    let is_on_gpu = |stage: &Stage| GpuGrid::of(stage).is_some();
    if of(from) != of(to) || program.stages.iter().any(is_on_gpu) {
        return false;
    }

    let mut stores = Stores { from, to, are_fit: true, count: 0 };
    for stage in &program.stages {
        stage.body.iter().for_each(|node| stores.visit(node, stage.when, 1));
    }
    // The proof guarantees that every element is stored; with no more stores than elements, each is
    // stored once.
    stores.are_fit && stores.count == program.buffer(to).shape.iter().map(|&extent| extent as u128).product()
}

/// Result of a walk over the stores.
struct Stores {
    from: BufferId,
    to: BufferId,
    are_fit: bool,
    /// Number of stores to the output.
    count: u128,
}

impl Stores {
    /// Visits a node that is executed `times` times.
    fn visit(&mut self, node: &Node, when: When, times: u128) {
        let times = match node {
            Node::Store(store) => {
                self.are_fit &= self.is_fit(store, when);
                self.count += if store.dst.buffer == self.to { times } else { 0 };
                times
            }
            Node::Loop(Loop { extent, .. }) => times * *extent as u128,
            // A store that is sometimes skipped could leave elements to other stores.
            Node::Guard { .. } | Node::Unflatten { .. } => {
                self.are_fit = false;
                times
            }
            _ => times,
        };
        node.body().iter().for_each(|inner| self.visit(inner, when, times));
    }

    fn is_fit(&self, store: &Store, when: When) -> bool {
        let is_output = store.dst.buffer == self.to;
        let mut reads_well = true;
        store.value.for_each(&mut |expr| match expr {
            Expr::Load(access) if access.buffer == self.from => {
                reads_well &= is_output && access.index == store.dst.index && when == When::EveryRun;
            }
            // A load of the output implies an earlier store, which has overwritten the operand.
            Expr::Load(access) => reads_well &= access.buffer != self.to,
            Expr::Gather(gather) => reads_well &= ![self.from, self.to].contains(&gather.access.buffer),
            _ => {}
        });
        reads_well && (!is_output || store.mode == StoreMode::Assign)
    }
}
