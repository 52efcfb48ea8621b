//! Group normalisation and instance normalisation.

use autotune_workloads::{self as workload, Workload};

use super::layer_norm::{EPS, normal};
use super::prelude::*;
use super::window::check_channels;
use crate::onnx::error;

pub(super) static IMPORTS: &[OnnxOperator] =
    &[OnnxOperator::one("GroupNormalization", import), OnnxOperator::one("InstanceNormalization", instance_norm)];

/// `(x - mean) / sqrt(variance + eps) * scale + bias`, with statistics over the channels of a group
/// and all spatial axes of `[n, c, ..]`; scale and bias have shape `[c]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    /// Number of channel groups: 1 normalises all channels together, `c` is instance normalisation.
    pub groups: usize,
    /// Constant added to the variance.
    pub eps: f32,
}

impl Operator for GroupNorm {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shapes = shapes_of(operands, 3..=3, DType::F32)?;
        let &[_, c, ..] = shapes[0] else { return unfit(format!("cannot normalise images of shape {:?}", shapes[0])) };
        check_channels(self.groups, &[c])?;
        match shapes[1..].iter().find(|&&shape| shape != [c]) {
            Some(shape) => unfit(format!("scale or bias of shape {shape:?} does not match {c} channels")),
            None => Ok((shapes[0].to_vec(), DType::F32)),
        }
    }

    fn compute(&self, operands: &[&Tensor], _: &[usize]) -> Result<Tensor, OpError> {
        let (groups, eps) = (self.groups, self.eps);
        let (x, shape) = (values::<f32>(operands, 0)?, operands[0].shape());
        let (scale, bias) = (values::<f32>(operands, 1)?, values::<f32>(operands, 2)?);
        let pixels: usize = shape[2..].iter().product();
        let rows = x.chunks_exact(shape[1] / groups * pixels);
        let normal = rows.flat_map(|row| normal(row, eps)).enumerate();
        let scaled = normal.map(|(at, x)| {
            let channel = at / pixels % shape[1];
            (x * f64::from(scale[channel]) + f64::from(bias[channel])) as f32
        });
        tensor(shape, scaled.collect())
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let [n, c, spatial @ ..] = node.shape(0) else { return None };
        let Self { groups, eps } = *self;
        let op = workload::GroupNormWorkload { n: *n, c: *c, groups, s: spatial.iter().product(), eps };
        Some(Anchor::new(Workload::new(op).ok()?, node))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("GroupNormalization", vec![int("num_groups", self.groups), float("epsilon", self.eps)])
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        true
    }
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(3)?;
    call.ignore(&["stash_type"]);
    let eps = call.float_or("epsilon", EPS)?;
    let groups = call.int("num_groups")?.and_then(|groups| usize::try_from(groups).ok()).filter(|&groups| groups > 0);
    let groups = groups.ok_or_else(|| attribute("num_groups", "is missing or not positive"))?;
    let x = call.operand(0)?;
    let &[_, channels, ..] = &call.shape(x)[..] else { return error::unfit("images must have at least two axes") };

    let (mut scale, mut bias) = (call.operand(1)?, call.operand(2)?);
    // Before opset 21, scale and bias have one number for each group.
    if call.version < 21 {
        let of_channels = |call: &mut Call, numbers| {
            let numbers = call.reshape(&[groups, 1], numbers)?;
            let numbers = call.expand(&[groups, channels / groups], numbers)?;
            call.reshape(&[channels], numbers)
        };
        (scale, bias) = (of_channels(call, scale)?, of_channels(call, bias)?);
    }
    call.add(GroupNorm { groups, eps }, &[x, scale, bias])
}

fn instance_norm(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(3)?;
    let eps = call.float_or("epsilon", EPS)?;
    let operands = [call.operand(0)?, call.operand(1)?, call.operand(2)?];
    let &[_, groups, ..] = &call.shape(operands[0])[..] else {
        return error::unfit("images must have at least two axes");
    };
    call.add(GroupNorm { groups, eps }, &operands)
}
