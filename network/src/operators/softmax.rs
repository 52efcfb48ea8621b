//! Softmax, and its logarithm.

use autotune_workloads::{self as workload, Workload};

use crate::error::OpError;
use crate::onnx::attribute::int;
use crate::onnx::call::{self, Call, Value, axis};
use crate::onnx::error::ExportError;
use crate::onnx::operator::OnnxOperator;
use crate::onnx::writer::Writer;
use crate::op::{Anchor, Facts, NodeView, Operator, axis_of, shapes_of};
use crate::strided::strides;
use crate::tensor::{Element, Tensor, elements};
use crate::typed::{larger, tensor, values};
use crate::walk::offsets;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("Softmax", |call| import(call, false)),
    OnnxOperator::one("LogSoftmax", |call| import(call, true)),
];

/// `exp(x) / sum(exp(x))` along an axis, or its logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softmax {
    /// The axis.
    pub axis: usize,
    /// True for the logarithm.
    pub log: bool,
}

impl Operator for Softmax {
    fn name(&self) -> &'static str {
        if self.log { "LogSoftmax" } else { "Softmax" }
    }

    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, Element), OpError> {
        let shapes = shapes_of(operands, 1..=1, Element::F32)?;
        axis_of(self.axis, shapes[0])?;
        Ok((shapes[0].to_vec(), Element::F32))
    }

    fn compute(&self, operands: &[&Tensor], _: &[usize]) -> Result<Tensor, OpError> {
        evaluate(self.axis, self.log, operands)
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let (before, rest) = node.shape(0).split_at(self.axis);
        let (m, n, k) = (before.iter().product(), rest[0], rest[1..].iter().product());
        let op = workload::Softmax { m, n, k, log: self.log };
        Some(Anchor::new(Workload::new(op).ok()?, node))
    }

    fn export(&self, to: &mut Writer) -> Result<(), ExportError> {
        to.operator(self.name(), vec![int("axis", self.axis)]);
        Ok(())
    }

    fn is_steep(&self, _: bool) -> bool {
        true
    }
}

fn evaluate(axis: usize, log: bool, operands: &[&Tensor]) -> Result<Tensor, OpError> {
    let (x, shape) = (values::<f32>(operands, 0)?, operands[0].shape());
    let (steps, extent) = (strides(shape), shape[axis]);
    let mut firsts = shape.to_vec();
    firsts[axis] = 1;

    let mut result = vec![0.0; x.len()];
    for first in offsets(&firsts, &steps) {
        let row = || (0..extent).map(|i| first + i * steps[axis]);
        let largest = row().map(|at| x[at].into()).fold(f64::NEG_INFINITY, larger);
        let below = |at: usize| f64::from(x[at]) - largest;
        // The largest are 1 each: of one of them the logarithm is that of 1 and what is beside it.
        let largest_too = row().filter(|&at| below(at) == 0.0).count() as f64;
        let others: f64 = row().filter(|&at| below(at) != 0.0).map(|at| libm::exp(below(at))).sum();
        for at in row() {
            result[at] = match log {
                true => below(at) - libm::log1p(largest_too - 1.0 + others),
                false => libm::exp(below(at)) / (largest_too + others),
            } as f32;
        }
    }
    tensor(shape, result)
}

/// Before version 13 rows are made of all axes from one on.
fn import(call: &mut Call, log: bool) -> call::Result<Value> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    // A number without axes is a row of one.
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
    let rows = call.reshape(&[elements(&shape[..axis])?, elements(&shape[axis..])?], x)?;
    let rows = call.add(Softmax { axis: 1, log }, &[rows])?;
    call.reshape(&shape, rows)
}
