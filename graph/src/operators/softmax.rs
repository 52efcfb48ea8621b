//! Softmax and log-softmax.

use autotune_workloads::{self as workload, Workload};

use super::prelude::*;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("Softmax", |call| import(call, false)),
    OnnxOperator::one("LogSoftmax", |call| import(call, true)),
];

/// `exp(x) / sum(exp(x))` along an axis, or its logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// Axis of the sum.
    pub axis: usize,
    /// True for the logarithm.
    pub log: bool,
}

impl Operator for Softmax {
    fn name(&self) -> &'static str {
        if self.log { "LogSoftmax" } else { "Softmax" }
    }

    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shapes = shapes_of(operands, 1..=1, DType::F32)?;
        axis_of(self.axis, shapes[0])?;
        Ok((shapes[0].to_vec(), DType::F32))
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let (before, rest) = node.shape(0).split_at(self.axis);
        let (m, n, k) = (before.iter().product(), rest[0], rest[1..].iter().product());
        let op = workload::SoftmaxWorkload { m, n, k, log: self.log };
        Some(Anchor::new(Workload::new(op).ok()?, node))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator(self.name(), vec![int("axis", self.axis)])
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        true
    }
}

/// Imports a softmax. Before opset 13 it runs over all axes from `axis` on together.
fn import(call: &mut Call, log: bool) -> call::Result<ImportValue> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    // A tensor without axes is a row of one element.
    if shape.is_empty() {
        let zero_or_one = Tensor::scalar(if log { 0.0 } else { 1.0 });
        return Ok(call.constant(zero_or_one));
    }
    if call.version >= 13 {
        let axis = axis(call.int_or("axis", -1)?, shape.len())?;
        return call.add(Softmax { axis, log }, &[x]);
    }

    let axis = axis(call.int_or("axis", if shape.len() > 1 { 1 } else { 0 })?, shape.len())?;
    if shape[axis + 1..].iter().all(|&extent| extent == 1) {
        return call.add(Softmax { axis, log }, &[x]);
    }
    // All axes from `axis` on form a row.
    let rows = call.reshape(&[elements(&shape[..axis])?, elements(&shape[axis..])?], x)?;
    let rows = call.add(Softmax { axis: 1, log }, &[rows])?;
    call.reshape(&shape, rows)
}
