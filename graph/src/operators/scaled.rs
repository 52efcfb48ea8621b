//! Quantised operators that kernels compute: exact integer sums, times a scale, plus a bias.

use autotune_workloads::{Channels, Epilogue, Pointwise, Types, Workload};

use super::conv::{Conv, output as conv_output, workload as conv_workload};
use super::matmul::{self, product_of};
use super::prelude::*;
use super::window::{Sliding, exported};
use crate::memory::is_of_bytes;

/// `sums * scale + bias` for a convolution ([`Conv`]) of u8 images by i8 weights, with a scale and
/// a bias for each channel. Sums are exact; scale and bias are applied in f32.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledConv {
    /// Window of each spatial axis.
    pub window: Vec<Sliding>,
    /// Number of channel groups.
    pub groups: usize,
}

/// `sums * scale + bias` for a matrix product ([`MatMul`](super::MatMul)) of u8 by i8, with a scale
/// and a bias for each column. Sums are exact; scale and bias are applied in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaledMatMul;

/// `x * scale + bias`, with one of each for every element along an axis. An 8-bit output is rounded
/// to nearest and saturated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rescale {
    /// Type of the output: f32, or one of 8 bits.
    pub dtype: DType,
    /// Axis of scales and biases.
    pub axis: usize,
}

/// Conversion of i8 to u8 by adding 128.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsigned;

/// Fails unless the operands are two tensors of these types and two f32 vectors of `channels`
/// elements.
fn check(facts: &[Facts], types: [DType; 2], channels: impl Fn() -> Option<usize>) -> Result<(), OpError> {
    check_count(facts, 4..=4)?;
    for (operand, dtype) in [types[0], types[1], DType::F32, DType::F32].into_iter().enumerate() {
        check_dtype(facts, operand, dtype)?;
    }
    check_channels(&facts[2..], channels())
}

fn check_channels(facts: &[Facts], channels: Option<usize>) -> Result<(), OpError> {
    match facts.iter().find(|(shape, _)| channels.is_none_or(|channels| *shape != [channels])) {
        Some((shape, _)) => unfit(format!("scales or biases of shape {shape:?} do not match {channels:?} channels")),
        None => Ok(()),
    }
}

/// Computes `sum * scale + bias` in f32, with the scale and bias of each sum's channel.
fn scaled(sums: Vec<f64>, shape: &[usize], axis: usize, [scale, bias]: [&Tensor; 2]) -> Result<Vec<f32>, OpError> {
    let (scale, bias) = (scale.to_numbers(), bias.to_numbers());
    let inner: usize = shape[axis + 1..].iter().product();
    let channel = |at: usize| at / inner % shape[axis];
    let number = |(at, sum): (usize, f64)| sum as f32 * scale[channel(at)] + bias[channel(at)];
    Ok(sums.into_iter().enumerate().map(number).collect())
}

/// Returns the workload with quantised operands, whose sums are scaled to `out`.
fn typed(workload: &Workload, data: DType, weights: DType, out: DType) -> Option<Workload> {
    let epilogue = Epilogue { scale: true, bias: true, ..workload.epilogue() };
    let f32 = DType::F32;
    let types = Types { data, weights, out, scale: f32, bias: f32, residual: f32 };
    workload.with_epilogue(epilogue).with_types(types).ok()
}

impl Operator for ScaledConv {
    fn output(&self, facts: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check(facts, [DType::U8, DType::I8], || facts[1].0.first().copied())?;
        Ok((conv_output(&self.window, self.groups, &[facts[0].0, facts[1].0])?, DType::F32))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (x, weights) = (operands[0].to_numbers(), operands[1].to_numbers());
        let conv = Conv { window: self.window.clone(), groups: self.groups };
        let sums = conv.sums([&x, &weights], [operands[0].shape(), operands[1].shape()], shape)?;
        tensor(shape, scaled(sums, shape, 1, [operands[2], operands[3]])?)
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let bare = conv_workload(&self.window, self.groups, [node.shape(0), node.shape(1)])?;
        let workload = typed(&bare, DType::U8, DType::I8, DType::F32)?;
        Some(Anchor::new(workload, node).with_sums(Some(1)))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let attributes = [exported(&self.window), vec![int("group", self.groups)]].concat();
        exported_sums(to, "ConvInteger", attributes, 1)
    }

    fn steps(&self, operands: &[Facts], output: &[usize]) -> Option<usize> {
        product(output)?.checked_mul(product(&operands[1].0[1..])?)
    }

    fn channel_of_sums(&self, _: usize) -> Option<usize> {
        Some(1)
    }
}

impl Operator for ScaledMatMul {
    fn output(&self, facts: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check(facts, [DType::U8, DType::I8], || facts[1].0.last().copied())?;
        match facts[0].0.len() < 2 || facts[1].0.len() < 2 {
            true => unfit("matrices must have at least two axes"),
            false => Ok((matmul::output(facts[0].0, facts[1].0)?, DType::F32)),
        }
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (a, b) = (operands[0].to_numbers(), operands[1].to_numbers());
        let sums = matmul::sums([&a, &b], [operands[0].shape(), operands[1].shape()], shape)?;
        tensor(shape, scaled(sums, shape, shape.len() - 1, [operands[2], operands[3]])?)
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let mut anchor = product_of(node, [false, false])?;
        anchor.workload = typed(&anchor.workload, DType::U8, DType::I8, DType::F32)?;
        anchor.reads.extend([2, 3].map(Read::Operand));
        Some(anchor)
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let rank = to.shape().len();
        exported_sums(to, "MatMulInteger", Vec::new(), rank - 1)
    }

    fn steps(&self, operands: &[Facts], output: &[usize]) -> Option<usize> {
        product(output)?.checked_mul(*operands[0].0.last()?)
    }

    fn channel_of_sums(&self, rank: usize) -> Option<usize> {
        rank.checked_sub(1)
    }
}

impl Operator for Rescale {
    fn output(&self, facts: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(facts, 3..=3)?;
        let (shape, dtype) = facts[0];
        if dtype != DType::F32 && !is_of_bytes(dtype) {
            return Err(OpError::DType { operand: 0, found: dtype, wanted: "f32, u8 or i8" });
        }
        (1..3).try_for_each(|operand| check_dtype(facts, operand, DType::F32))?;
        check_channels(&facts[1..], Some(shape[axis_of(self.axis, shape)?]))?;
        Ok((shape.to_vec(), self.dtype))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let numbers = operands[0].to_numbers().into_iter().map(f64::from).collect();
        let mut numbers = scaled(numbers, shape, self.axis, [operands[1], operands[2]])?;
        if self.dtype != DType::F32 {
            // As in kernels, NaN becomes 0.
            numbers.iter_mut().for_each(|x| *x = if x.is_nan() { 0.0 } else { self.dtype.stored(*x) });
        }
        Tensor::of_numbers(shape, self.dtype, &numbers)
    }

    /// Returns a copy of rows or images whose epilogue applies scales and biases.
    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let bare = Workload::new(copy_along(node.output().0, self.axis)).ok()?;
        let workload = typed(&bare, node.dtype(0), node.dtype(0), self.dtype)?;
        Some(Anchor::new(workload, node).with_sums(Some(self.axis)))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        // ONNX multiplies numbers of equal types only.
        let x = match to.operand(0).1 {
            DType::F32 => to.input(0),
            _ => to.between("Cast", &[&to.input(0)], vec![float_type()]),
        };
        let behind = to.shape().len() - 1 - self.axis;
        let [scale, bias] = [1, 2].map(|operand| along(to, operand, behind));
        let (scale, bias) = (scale?, bias?);
        let product = to.between("Mul", &[&x, &scale], Vec::new());
        match self.dtype {
            DType::F32 => to.node("Add", &[&product, &bias], Vec::new()),
            dtype => {
                let sum = to.between("Add", &[&product, &bias], Vec::new());
                saturated(to, &sum, dtype)
            }
        }
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        self.dtype != DType::F32
    }
}

impl Operator for Unsigned {
    fn output(&self, facts: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        Ok((shapes_of(facts, 1..=1, DType::I8)?[0].to_vec(), DType::U8))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let x = values::<i8>(operands, 0)?;
        // Flipping the top bit adds 128.
        tensor(shape, x.iter().map(|x| x.cast_unsigned() ^ 0x80).collect())
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        // The sum does not fit i8, so it is computed in f32.
        let x = to.between("Cast", &[&to.input(0)], vec![float_type()]);
        let by = to.number(128.0);
        let sum = to.between("Add", &[&x, &by], Vec::new());
        saturated(to, &sum, DType::U8)
    }
}

/// Returns a copy whose epilogue has channels along an axis: the columns of a matrix, or the middle
/// axis of three.
pub(super) fn copy_along(shape: &[usize], axis: usize) -> Pointwise {
    let (outer, inner) = (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
    match shape.len() - axis {
        1 => Pointwise::copy(vec![outer, shape[axis]]),
        _ => Pointwise { channels: Channels::Column, ..Pointwise::copy(vec![outer, shape[axis], inner]) },
    }
}

fn float_type() -> Attribute {
    crate::onnx::attribute::typed("to", rten_onnx::onnx::DataType::FLOAT)
}

/// Writes rounding and saturation to an 8-bit type.
pub(super) fn saturated(to: &mut NodeWriter, x: &String, dtype: DType) -> Result<(), ExportError> {
    let zero = to.constant(&Tensor::of_numbers(&[], dtype, &[0.0]).map_err(|e| to.wrong(e.to_string()))?);
    let one = to.number(1.0);
    to.node("QuantizeLinear", &[x, &one, &zero], Vec::new())
}

/// Writes a vector operand reshaped to `[n, 1, .., 1]` with `behind` ones; returns its name.
fn along(to: &mut NodeWriter, operand: usize, behind: usize) -> Result<String, ExportError> {
    if behind == 0 {
        return Ok(to.input(operand));
    }
    let count = to.operand(operand).0[0] as i64;
    let shape = to.integers([count].into_iter().chain(vec![1; behind]))?;
    Ok(to.between("Reshape", &[&to.input(operand), &shape], Vec::new()))
}

/// Writes integer sums, then their scales and biases.
fn exported_sums(
    to: &mut NodeWriter,
    operator: &str,
    attributes: Vec<Attribute>,
    axis: usize,
) -> Result<(), ExportError> {
    let (x, weights, behind) = (to.input(0), to.input(1), to.shape().len() - 1 - axis);
    let [scale, bias] = [2, 3].map(|operand| along(to, operand, behind));
    let (scale, bias) = (scale?, bias?);
    let sums = to.between(operator, &[&x, &weights], attributes);
    let numbers = to.between("Cast", &[&sums], vec![float_type()]);
    let product = to.between("Mul", &[&numbers, &scale], Vec::new());
    to.node("Add", &[&product, &bias], Vec::new())
}
