//! What lowerings share, and those for CPUs.

use crate::workload::{Activation, Workload};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{Access, BufferId, Expr, Layout, Loop, LoopKind, Node, Role, Scope, Store, StoreMode};

use nest::Nest;

pub(crate) mod direct;
pub(crate) mod nest;
pub(crate) mod partial;
pub(crate) mod winograd;

/// The buffers that the caller gives and gets.
#[derive(Clone, Copy)]
pub(crate) struct OperandBuffers {
    pub(crate) input: BufferId,
    pub(crate) weight: BufferId,
    pub(crate) bias: Option<BufferId>,
    pub(crate) residual: Option<BufferId>,
    pub(crate) output: BufferId,
}

impl OperandBuffers {
    /// Adds them to a program: weights and bias plain, input and output (and residual) of a physical shape and layout.
    pub(crate) fn new(
        all: &mut Nest,
        workload: &Workload,
        input: (&[usize], Layout),
        output: (&[usize], Layout),
    ) -> Self {
        let mut add = |name: &str, role, (shape, layout): (&[usize], Layout)| {
            let id = all.buffer(name, role, Scope::Global, shape.to_vec());
            all.buffers[id.0 as usize].layout = layout;
            id
        };
        let epilogue = workload.epilogue;
        Self {
            input: add("input", Role::Input, input),
            weight: add("weight", Role::Weight, (&workload.weight_shape(), Layout::Plain)),
            bias: epilogue.bias.then(|| add("bias", Role::Bias, (&[workload.bias_len()], Layout::Plain))),
            residual: epilogue.residual.then(|| add("residual", Role::Residual, output)),
            output: add("output", Role::Output, output),
        }
    }

    /// `act(sum + bias + residual)`, the last two where they exist, for the element `index` of the output, whose bias is that of a channel.
    pub(crate) fn fused(&self, workload: &Workload, sum: Expr, channel: Affine, index: &[Affine]) -> Expr {
        let bias = self.bias.map(|bias| load(bias, vec![channel]));
        let residual = self.residual.map(|residual| load(residual, index.to_vec()));
        let value = [bias, residual].into_iter().flatten().fold(sum, add);
        match workload.epilogue.activation {
            Activation::None => value,
            Activation::Relu => Expr::max(value, Expr::Const(0.0)),
        }
    }
}

/// The index with every axis replaced by its value.
pub(crate) fn at(index: &Affine, values: &[Affine]) -> Affine {
    let mut total = Affine::constant(index.constant);
    index.terms.iter().for_each(|&(axis, c)| total.add_scaled(&values[axis.0 as usize], c));
    total
}

/// The body within perfectly nested loops, given outermost first.
pub(crate) fn nest<L>(loops: L, body: Vec<Node>) -> Vec<Node>
where
    L: IntoIterator<Item = (VarId, usize, LoopKind), IntoIter: DoubleEndedIterator>,
{
    let wrap = |body, (var, extent, kind)| vec![Node::Loop(Loop { var, extent, kind, body })];
    loops.into_iter().rev().fold(body, wrap)
}

pub(crate) fn load(buffer: BufferId, index: Vec<Affine>) -> Expr {
    Expr::Load(Access { buffer, index })
}

pub(crate) fn add(a: Expr, b: Expr) -> Expr {
    Expr::sum(a, b)
}

pub(crate) fn assign(buffer: BufferId, index: Vec<Affine>, value: Expr) -> Node {
    Node::Store(Store { dst: Access { buffer, index }, mode: StoreMode::Assign, value, point: Vec::new() })
}
