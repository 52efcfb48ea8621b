//! Stage that adds up the partial sums of a split reduction, on a GPU.

use super::nest::NestParts;
use super::{OperandBuffers, assign, load, nest};
use autotune_ir::program::{Access, BufferId, Expr, LoopKind, Node, Role, Scope, Store, StoreMode};

/// Number of threads per block in stages that pack weights or add up partial sums.
pub(crate) const COPY_THREADS: usize = 256;

/// Names of a tensor's dimensions in stages with one thread per element.
pub(crate) const DIMENSIONS: [&str; 10] = ["d0", "d1", "d2", "d3", "d4", "d5", "d6", "d7", "d8", "d9"];

/// Returns the stage, with one thread per element of the output; the bias is indexed by dimension
/// `channel`:
///
/// ```text
/// sum = 0; for s in 0..parts { sum += partial[s] }; output = act(sum + bias + residual)
/// ```
pub(crate) fn add_partial(
    operands: &OperandBuffers,
    (partial, parts): (BufferId, usize),
    channel: usize,
    all: &mut NestParts,
) -> Vec<Node> {
    let extents = all.buffers[operands.output.0 as usize].shape.clone();
    let shape: Vec<(&str, usize)> = DIMENSIONS.into_iter().zip(extents).collect();
    let sum = all.buffer("sum", Role::Accumulator, Scope::Register, Vec::new());
    all.each(COPY_THREADS, &shape, &[sum], |all, index| {
        let mut loops = Vec::new();
        // The order of the sum is fixed, so that results are reproducible.
        let part = all.open("s", parts, LoopKind::Unrolled, &mut loops);
        let add = Node::Store(Store {
            dst: Access { buffer: sum, index: [].into() },
            mode: StoreMode::Accumulate,
            value: load(partial, [&[part], &index[..]].concat()),
            iteration: None,
        });

        let mut body = vec![assign(sum, Vec::new(), Expr::Const(0.0))];
        body.extend(nest(loops, vec![add]));
        let value = operands.fused(load(sum, Vec::new()), &index[channel], &index);
        body.push(assign(operands.output, index, value));
        body
    })
}
