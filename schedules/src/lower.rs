//! Parts that lowerings share. Each sketch has a lowering of its own.

use std::iter::{RepeatN, repeat_n};
use std::sync::Arc;

use crate::contraction::Contraction;
use autotune_ir::Spec;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{
    Access, BufferId, Expr, Index, Layout, Loop, LoopKind, Node, Role, Scope, Store, StoreMode,
};
use autotune_ir::spec::Equation;
use autotune_workloads::Workload;

use nest::NestParts;

pub(crate) mod nest;
pub(crate) mod partial;
pub(crate) mod tables;

/// Buffers of the caller's operands. For one of several contractions, the buffers that this one
/// reads and writes.
#[derive(Clone)]
pub(crate) struct OperandBuffers {
    spec: Arc<Spec>,
    /// Position of the equation with the epilogue, a map of the sums.
    tail: usize,
    pub(crate) input: BufferId,
    pub(crate) weight: BufferId,
    pub(crate) output: BufferId,
}

impl OperandBuffers {
    /// Adds the operands as the first buffers of a program. The data has the shape and layout of
    /// `input`. The result, and operands of its shape, have those of `output`. Other operands are
    /// in the plain layout.
    pub(crate) fn new(
        all: &mut NestParts,
        workload: &Workload,
        input: (&[usize], Layout),
        output: (&[usize], Layout),
    ) -> Self {
        let mut add = |name: &str, role, (shape, layout): (&[usize], Layout)| {
            let id = all.buffer(name, role, Scope::Global, shape.to_vec());
            all.buffers[id.0 as usize].layout = layout;
            id
        };

        let spec = workload.spec();
        let result = spec.find(Role::Output).map(|tensor| &tensor.shape);
        for (number, tensor) in spec.operands().enumerate() {
            let (shape, layout) = match number {
                0 => input,
                1 => (&tensor.shape[..], Layout::Plain),
                _ if Some(&tensor.shape) == result => output,
                _ => (&tensor.shape[..], Layout::Plain),
            };
            add(&tensor.name, Role::Operand(number), (shape, layout));
        }

        let output = add("output", Role::Output, output);
        let tail = spec.equations.len() - 1;
        // Data and weights are the first two operands.
        Self { spec: Arc::clone(spec), tail, input: BufferId(0), weight: BufferId(1), output }
    }

    /// Returns the buffers for one of several contractions, which reads its data from `input` and
    /// writes `output`.
    pub(crate) fn part(&self, of: &Contraction, [input, output]: [BufferId; 2]) -> Self {
        let weight = of.equation().loads().get(1).and_then(|access| self.operand(access));
        Self { spec: Arc::clone(&self.spec), tail: of.tail, input, weight: weight.unwrap_or(self.weight), output }
    }

    /// Returns the result of a sum by the epilogue's equation, such as
    /// `act(sum + bias + residual)`, for element `index` of the output. Operands with one dimension
    /// are read at `channel`.
    pub(crate) fn fused(&self, sum: Expr, channel: &Affine, index: &[Affine]) -> Expr {
        let tail = &self.spec.equations[self.tail];
        // Every load that is not an operand is the sum, which the equation may use several times.
        let mut uses = 0;
        tail.value.for_each_load(&mut |access| uses += usize::from(self.operand(access).is_none()));
        self.map(&tail.value, &mut repeat_n(sum, uses), channel, index)
    }

    /// Replaces loads of operands by loads of their buffers, and every other load by the next of
    /// `sums`. Gathers are of operands.
    fn map(&self, value: &Expr, sums: &mut RepeatN<Expr>, channel: &Affine, index: &[Affine]) -> Expr {
        let Expr::Load(access) = value else {
            let mut mapped = value.of_others(|of| self.map(of, sums, channel, index));
            if let Expr::Gather(gather) = &mut mapped {
                gather.access.buffer = self.operand(&gather.access).unwrap_or(gather.access.buffer);
            }
            return mapped;
        };
        match self.operand(access) {
            Some(buffer) if access.index.len() == 1 => load(buffer, vec![channel.clone()]),
            Some(buffer) => load(buffer, index.to_vec()),
            None => sums.next().unwrap_or(Expr::Const(0.0)),
        }
    }

    /// Returns the prologue's result for an element of the input; `physical` is its index in
    /// memory, `logical` its index in the plain layout.
    pub(crate) fn mapped(&self, map: &Equation, physical: &[Affine], logical: &[Affine]) -> Expr {
        let operand = |access: &Access| match self.operand(access) {
            Some(buffer) if buffer == self.input => load(buffer, physical.to_vec()),
            Some(buffer) => load(buffer, access.index.iter().map(|index| at(index, logical)).collect::<Index>()),
            None => Expr::Const(0.0),
        };
        map.value.replaced(&mut { operand })
    }

    /// Returns the buffer that an equation loads from, if it is an operand.
    fn operand(&self, access: &Access) -> Option<BufferId> {
        match self.spec.role(access.buffer) {
            Role::Operand(number) => Some(BufferId(number as u32)),
            _ => None,
        }
    }
}

/// Returns an index with every axis replaced by its value.
pub(crate) fn at(index: &Affine, values: &[Affine]) -> Affine {
    let mut total = Affine::constant(index.constant);
    index.terms.iter().for_each(|&(axis, c)| total.add_scaled(&values[axis.0 as usize], c));
    total
}

/// Converts an index in channel blocks, `[n, c, .., lane]`, to the plain layout,
/// `[n, block * c + lane, ..]`. Without a block it stays as it is.
pub(crate) fn without_blocks(mut index: Vec<Affine>, block: Option<usize>) -> Vec<Affine> {
    if let Some((block, lane)) = block.and_then(|block| Some((block, index.pop()?))) {
        index[1] = index[1].clone() * block as i64 + lane;
    }
    index
}

/// Wraps a body in perfectly nested loops, given outermost first.
pub(crate) fn nest<L>(loops: L, body: Vec<Node>) -> Vec<Node>
where
    L: IntoIterator<Item = (VarId, usize, LoopKind), IntoIter: DoubleEndedIterator>,
{
    let wrap = |body, (var, extent, kind)| vec![Node::Loop(Loop { var, extent, kind, body })];
    loops.into_iter().rev().fold(body, wrap)
}

pub(crate) fn load(buffer: BufferId, index: impl Into<Index>) -> Expr {
    Expr::Load(Access { buffer, index: index.into() })
}

pub(crate) fn add(a: Expr, b: Expr) -> Expr {
    Expr::sum(a, b)
}

pub(crate) fn assign(buffer: BufferId, index: impl Into<Index>, value: Expr) -> Node {
    let dst = Access { buffer, index: index.into() };
    Node::Store(Store { dst, mode: StoreMode::Assign, value, iteration: None })
}
