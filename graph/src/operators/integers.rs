//! Matrix products and convolutions of quantised tensors.

use super::conv::{Conv, output as conv_output};
use super::matmul;
use super::prelude::*;
use super::window::{Sliding, exported, groups, kernel_of_weights, padded as with_pads, spatial, windows};
use crate::memory::is_of_bytes;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("MatMulInteger", import_matmul).of_bytes(),
    OnnxOperator::one("ConvInteger", import_conv).of_bytes(),
];

/// Matrix product ([`MatMul`](super::MatMul)) of 8-bit integers after their zero points are
/// subtracted. The operands are both matrices and their zero points; each zero point broadcasts to
/// its matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMulInteger;

/// Convolution ([`Conv`]) of 8-bit integers after their zero points are subtracted. The operands
/// are images, weights and their zero points: one number for the images, and a tensor that
/// broadcasts to the weights. Padding counts as 0 after the subtraction.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvInteger {
    /// Window of each spatial axis.
    pub window: Vec<Sliding>,
    /// Number of channel groups.
    pub groups: usize,
}

/// Fails unless the operands are two 8-bit tensors and their zero points.
fn check(facts: &[Facts]) -> Result<(), OpError> {
    check_count(facts, 4..=4)?;
    for operand in 0..2 {
        let (shape, dtype) = facts[operand];
        if !is_of_bytes(dtype) {
            return Err(OpError::DType { operand, found: dtype, wanted: "u8 or i8" });
        }
        check_dtype(facts, operand + 2, dtype)?;
        fixed(shape, facts[operand + 2].0)?;
    }
    Ok(())
}

/// Returns an operand's elements minus its zero point; f32 represents these integers exactly.
fn centred(operands: &[&Tensor], operand: usize) -> Vec<f32> {
    let (x, zero) = (operands[operand], operands[operand + 2]);
    let (numbers, zeros) = (x.to_numbers(), zero.to_numbers());
    TensorRows::broadcast([x.shape(), zero.shape()], x.shape()).map(|[at, zero]| numbers[at] - zeros[zero])
}

fn integers(shape: &[usize], sums: Vec<f64>) -> Result<Tensor, OpError> {
    tensor(shape, sums.into_iter().map(|sum| sum as i64).collect())
}

impl Operator for MatMulInteger {
    fn output(&self, facts: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check(facts)?;
        Ok((matmul::output(facts[0].0, facts[1].0)?, DType::I64))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let [a, b] = [0, 1].map(|operand| centred(operands, operand));
        integers(shape, matmul::sums([&a, &b], [operands[0].shape(), operands[1].shape()], shape)?)
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        exported_as(to, "MatMulInteger", Vec::new())
    }

    fn steps(&self, operands: &[Facts], output: &[usize]) -> Option<usize> {
        product(output)?.checked_mul(*operands[0].0.last()?)
    }
}

impl Operator for ConvInteger {
    fn output(&self, facts: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check(facts)?;
        match product(facts[2].0) {
            Some(1) => Ok((conv_output(&self.window, self.groups, &[facts[0].0, facts[1].0])?, DType::I64)),
            _ => unfit("images must have one zero point"),
        }
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let [x, weights] = [0, 1].map(|operand| centred(operands, operand));
        let Self { window, groups } = self;
        let conv = Conv { window: window.clone(), groups: *groups };
        integers(shape, conv.sums([&x, &weights], [operands[0].shape(), operands[1].shape()], shape)?)
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let attributes = [exported(&self.window), vec![int("group", self.groups)]].concat();
        exported_as(to, "ConvInteger", attributes)
    }

    fn steps(&self, operands: &[Facts], output: &[usize]) -> Option<usize> {
        product(output)?.checked_mul(product(&operands[1].0[1..])?)
    }
}

/// Writes an operator whose output has 32 bits in ONNX and 64 bits here. ONNX zero points have at
/// most one axis.
fn exported_as(to: &mut NodeWriter, operator: &str, attributes: Vec<Attribute>) -> Result<(), ExportError> {
    let mut inputs = to.inputs();
    // Single numbers and vectors are valid zero points in ONNX already.
    for (operand, input) in inputs.iter_mut().enumerate().skip(2) {
        let count = to.operand(operand).0.iter().product::<usize>();
        let is_row = to.operand(operand).0.len() == 1;
        if count > 1 && !is_row {
            let shape = to.integers([count as i64])?;
            *input = to.between("Reshape", &[&input.clone(), &shape], Vec::new());
        }
    }
    let sums = to.between(operator, &inputs.iter().collect::<Vec<_>>(), attributes);
    to.node("Cast", &[&sums], vec![crate::onnx::attribute::typed("to", rten_onnx::onnx::DataType::INT64)])
}

impl Call<'_> {
    /// Returns an input's zero point, or zero if the input is absent. A zero point with more than
    /// one element is shaped to broadcast along an axis of `x`.
    fn zero_along(&mut self, input: usize, x: ImportValue, axis: usize) -> call::Result<ImportValue> {
        let dtype = self.dtype(x);
        let Some(zero) = self.optional(input) else {
            return Ok(self.constant(Tensor::of_numbers(&[], dtype, &[0.0])?));
        };
        if self.dtype(zero) != dtype {
            let reason = format!("zero point is {}, expected {dtype}", self.dtype(zero));
            return Err(NodeError::Input { input, reason });
        }
        let (shape, rank) = (self.shape(zero), self.rank(x));
        match shape[..] {
            // A vector has one zero point for each element along the axis.
            [count] if count > 1 => {
                let mut along = vec![1; rank];
                along.get_mut(axis).into_iter().for_each(|extent| *extent = count);
                self.reshape(&along, zero)
            }
            _ if elements(&shape)? == 1 => self.reshape(&[], zero),
            _ => Ok(zero),
        }
    }
}

fn import_matmul(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(4)?;
    let (a, b) = (call.operand(0)?, call.operand(1)?);
    // A vector has a zero point for each row of `a`, or for each column of `b`.
    let rows = call.rank(a).saturating_sub(2);
    let a_zero = call.zero_along(2, a, rows)?;
    let columns = call.rank(b).saturating_sub(1);
    let b_zero = call.zero_along(3, b, columns)?;
    call.add(MatMulInteger, &[a, b, a_zero, b_zero])
}

fn import_conv(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(4)?;
    let (x, weights) = (call.operand(0)?, call.operand(1)?);
    let [x_zero, w_zero] = [call.zero_along(2, x, 1)?, call.zero_along(3, weights, 0)?];
    let extents = spatial(call, x)?;
    let kernel = kernel_of_weights(call, weights, extents.len())?;
    let window = with_pads(call, windows(call, &kernel)?, &extents)?;
    let groups = groups(call)?;
    call.add(ConvInteger { window, groups }, &[x, weights, x_zero, w_zero])
}
