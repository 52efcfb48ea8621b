//! The stage that adds up the sums of the parts of a split reduction, on a GPU.

use super::{OperandBuffers, assign, epilogue, load, nest};
use crate::workload::Workload;
use autotune_ir::DType;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{
    Access, Buffer, BufferId, Digit, Expr, Layout, LoopKind, Node, Role, Scope, Store, StoreMode, VarName,
};

/// Threads of a block that packs weights or adds up partial sums.
pub(crate) const COPY_THREADS: usize = 256;

/// What is added up.
pub(crate) struct Sums<'a> {
    pub(crate) workload: &'a Workload,
    pub(crate) operands: &'a OperandBuffers,
    /// `[parts]` and the shape of the output.
    pub(crate) partial: BufferId,
    pub(crate) parts: usize,
    /// The dimension of the output that the bias goes along.
    pub(crate) channel: usize,
}

/// `for every element: sum = 0; for s in 0..parts { sum += partial[s] }; output = act(sum + bias + residual)`, a thread per
/// element.
pub(crate) fn add_partial(sums: &Sums, vars: &mut Vec<VarName>, buffers: &mut Vec<Buffer>) -> Vec<Node> {
    let shape = buffers[sums.operands.output.0 as usize].shape.clone();
    let mut var = |name: VarName| {
        vars.push(name);
        VarId(vars.len() as u32 - 1)
    };
    let blocks = shape.iter().product::<usize>().div_ceil(COPY_THREADS);
    let (block, thread, part) = (var("b".into()), var("t".into()), var("s".into()));
    let digit = |(dim, &extent): (usize, &usize)| Digit { var: var(format!("d{dim}").into()), extent };
    let digits: Vec<Digit> = shape.iter().enumerate().map(digit).collect();
    let index: Vec<Affine> = digits.iter().map(|d| Affine::var(d.var)).collect();
    let (name, role, scope, shape) = ("sum".into(), Role::Accumulator, Scope::Register, Vec::new());
    buffers.push(Buffer { name, role, scope, shape, layout: Layout::Plain, dtype: DType::F32 });
    let sum = BufferId(buffers.len() as u32 - 1);
    let add = Node::Store(Store {
        dst: Access { buffer: sum, index: Vec::new() },
        mode: StoreMode::Accumulate,
        value: load(sums.partial, [&[Affine::var(part)], &index[..]].concat()),
        point: Vec::new(),
    });
    let mut body = vec![assign(sum, Vec::new(), Expr::Const(0.0))];
    body.extend(nest(vec![(part, sums.parts, LoopKind::Unrolled)], vec![add]));
    let value = fused(sums.workload, sums.operands, load(sum, Vec::new()), index[sums.channel].clone(), &index);
    body.push(assign(sums.operands.output, index, value));
    let value = Affine::var(block) * COPY_THREADS as i64 + Affine::var(thread);
    let body = vec![Node::Alloc { buffer: sum, body: vec![Node::Unflatten { value, digits, body }] }];
    nest(vec![(block, blocks, LoopKind::Block), (thread, COPY_THREADS, LoopKind::Thread)], body)
}

/// `act(sum + bias + residual)` for the element `index` of the output.
pub(crate) fn fused(
    workload: &Workload,
    operands: &OperandBuffers,
    sum: Expr,
    channel: Affine,
    index: &[Affine],
) -> Expr {
    let bias = operands.bias.map(|bias| load(bias, vec![channel]));
    let residual = operands.residual.map(|residual| load(residual, index.to_vec()));
    epilogue(workload.epilogue.activation, sum, bias, residual)
}
