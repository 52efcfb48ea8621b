//! Lowering: from a config to loop nests.

use thiserror::Error;

use crate::config::Config;
use crate::sketch;
use crate::workload::{Activation, Workload};
use autotune_ir::DType;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{
    Access, BufferId, Expr, Layout, Loop, LoopKind, Node, Program, Role, Scope, Store, StoreMode,
};
use autotune_ir::target::Target;

use nest::Nest;

pub(crate) mod direct;
pub(crate) mod nest;
pub(crate) mod partial;
pub(crate) mod winograd;

/// Version of the code that configs become. It grows when the same config is lowered to other loop nests or other instructions, so that
/// its run times are no longer those that were measured.
pub const LOWERING_VERSION: u32 = 1;

/// Why a config cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LowerError {
    /// The config belongs to no known sketch of the target.
    #[error("unknown sketch '{0}'")]
    UnknownSketch(String),
    /// The target has no kernels for elements of the workload's type.
    #[error("no kernels for elements of type {} on {target}", dtype.word())]
    DType {
        /// The target's key.
        target: String,
        /// The type.
        dtype: DType,
    },
    /// An operand has more elements than indices of kernels on the target can tell apart.
    #[error("{elements} elements of the {operand} exceed {limit} on {target}")]
    TooLarge {
        /// The target's key.
        target: String,
        /// The operand.
        operand: &'static str,
        /// Its elements.
        elements: usize,
        /// Most elements.
        limit: usize,
    },
    /// The sketch is not for such workloads.
    #[error("no sketch '{sketch}' of {workload}")]
    Unfit {
        /// The sketch.
        sketch: String,
        /// The workload.
        workload: String,
    },
    /// A knob is malformed, does not fit the workload, or breaks a limit of the target.
    #[error("knob '{name}': {reason}")]
    Knob {
        /// The knob.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

impl LowerError {
    pub(crate) fn unfit(sketch: &str, workload: &Workload) -> Self {
        Self::Unfit { sketch: sketch.into(), workload: workload.to_string() }
    }

    pub(crate) fn knob(name: &str, reason: impl Into<String>) -> Self {
        Self::Knob { name: name.to_string(), reason: reason.into() }
    }
}

/// Elements of an operand on a GPU; indices within a kernel are 32 bits wide.
const MAX_GPU_ELEMENTS: usize = i32::MAX as usize;

/// Fails where the target has no kernels at all for a workload, whatever the config.
pub(crate) fn check_target(workload: &Workload, target: &Target) -> Result<(), LowerError> {
    if !target.supports(workload.dtype) {
        return Err(LowerError::DType { target: target.key(), dtype: workload.dtype });
    }
    let operands =
        [("input", workload.input_shape()), ("weights", workload.weight_shape()), ("output", workload.output_shape())];
    for (operand, shape) in operands.into_iter().filter(|_| target.gpu().is_some()) {
        let elements = shape.into_iter().fold(1, usize::saturating_mul);
        let limit = MAX_GPU_ELEMENTS;
        if elements > limit {
            return Err(LowerError::TooLarge { target: target.key(), operand, elements, limit });
        }
    }
    Ok(())
}

/// The loop nests of a config.
pub fn lower(workload: &Workload, target: &Target, config: &Config) -> Result<Program, LowerError> {
    check_target(workload, target)?;
    let sketch =
        sketch::find(&config.sketch, target).ok_or_else(|| LowerError::UnknownSketch(config.sketch.clone()))?;
    Ok(sketch.plan(workload, target, config)?.lower())
}

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
