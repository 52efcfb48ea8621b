//! What is computed of every element by itself.

use autotune_ir::program::UnaryOp;
use autotune_workloads::{Activation, Function};

use super::places::Rows;
use super::{Stored, by_type, larger, smaller, tensor, values};
use crate::error::OpError;
use crate::op::Binary;
use crate::tensor::{Element, Tensor};

pub(super) fn map(function: Function, operands: &[&Tensor]) -> Result<Tensor, OpError> {
    let shape = operands[0].shape();
    match operands[0].element() {
        Element::I64 => tensor(shape, values::<i64>(operands, 0)?.iter().map(|&x| of_integer(function, x)).collect()),
        _ => {
            let of = |&x: &f32| of_number(function, x.into()) as f32;
            tensor(shape, values(operands, 0)?.iter().map(of).collect())
        }
    }
}

fn of_number(function: Function, x: f64) -> f64 {
    match function {
        Function::Activation(activation) => activated(activation, x),
        Function::Op(op) => op.exact(x),
    }
}

/// What stays whole does so exactly; else the fraction is cut off.
fn of_integer(function: Function, x: i64) -> i64 {
    match function {
        Function::Activation(Activation::None) | Function::Op(UnaryOp::Floor) => x,
        Function::Activation(Activation::Relu) => x.max(0),
        Function::Op(UnaryOp::Neg) => x.wrapping_neg(),
        Function::Op(UnaryOp::Sign) => x.signum(),
        Function::Op(UnaryOp::Abs) => x.wrapping_abs(),
        _ => of_number(function, x as f64) as i64,
    }
}

fn activated(activation: Activation, x: f64) -> f64 {
    let clip = |x: f64, lo: f64, hi: f64| smaller(larger(x, lo), hi);
    let sigmoid = |x: f64| 1.0 / (1.0 + libm::exp(-x));
    let softplus = |x: f64| larger(x, 0.0) + libm::log1p(libm::exp(-x.abs()));
    match activation {
        // Slopes are an operand: that is `Op::Prelu`.
        Activation::None | Activation::Prelu => x,
        Activation::Relu => larger(x, 0.0),
        Activation::Clip { lo, hi, .. } => clip(x, lo.into(), hi.into()),
        Activation::LeakyRelu { alpha, .. } if x < 0.0 => x * f64::from(alpha),
        Activation::LeakyRelu { .. } => x,
        Activation::Sigmoid => sigmoid(x),
        Activation::Tanh => libm::tanh(x),
        Activation::HardSigmoid { alpha, beta, .. } => clip(x * f64::from(alpha) + f64::from(beta), 0.0, 1.0),
        Activation::HardSwish => x * clip(x / 6.0 + 0.5, 0.0, 1.0),
        Activation::Elu { alpha, .. } if x < 0.0 => f64::from(alpha) * libm::expm1(x),
        Activation::Elu { .. } => x,
        Activation::Softplus => softplus(x),
        Activation::Silu => x * sigmoid(x),
        Activation::Mish => x * libm::tanh(softplus(x)),
        Activation::Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        // Half of 1 + tanh(y) is the sigmoid of 2 * y, which keeps its digits where y is negative.
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            x * sigmoid(2.0 * inner)
        }
    }
}

pub(super) fn prelu(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    let slope = |x: f32, slope: f32| if x < 0.0 { x * slope } else { x };
    paired(operands, shape, slope)
}

pub(super) fn binary(op: Binary, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    fn equal<T: Stored + PartialEq>(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        paired(operands, shape, |a: T, b: T| a == b)
    }
    let element = operands[0].element();
    match (op, element) {
        (Binary::Equal, _) => by_type!(element, equal(operands, shape)),
        (Binary::And, _) => paired(operands, shape, |a: bool, b: bool| a && b),
        (Binary::Less, Element::I64) => paired(operands, shape, |a: i64, b: i64| a < b),
        (Binary::Less, _) => paired(operands, shape, |a: f32, b: f32| a < b),
        (Binary::Div, Element::I64) if values::<i64>(operands, 1)?.contains(&0) => {
            Err(OpError::Unfit("an integer division by zero".into()))
        }
        (_, Element::I64) => paired(operands, shape, |a, b| of_integers(op, a, b)),
        _ => paired(operands, shape, |a: f32, b: f32| of_numbers(op, a.into(), b.into()) as f32),
    }
}

fn of_numbers(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Max => larger(a, b),
        Binary::Min => smaller(a, b),
        Binary::Pow => libm::pow(a, b),
        // Of these, truth values are made.
        Binary::Equal | Binary::Less | Binary::And => f64::NAN,
    }
}

fn of_integers(op: Binary, a: i64, b: i64) -> i64 {
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div => a.wrapping_div(b),
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::Pow => power(a, b),
        // Of these, truth values are made.
        Binary::Equal | Binary::Less | Binary::And => 0,
    }
}

/// Of a negative exponent the fraction is cut off; one over zero is the largest number.
fn power(base: i64, exponent: i64) -> i64 {
    let Ok(mut left) = u64::try_from(exponent) else { return libm::pow(base as f64, exponent as f64) as i64 };
    let (mut power, mut square) = (1i64, base);
    while left > 0 {
        if left % 2 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left /= 2;
    }
    power
}

/// A function of the elements of two tensors that are broadcast to a shape.
fn paired<T: Stored, U: Stored>(
    operands: &[&Tensor],
    shape: &[usize],
    of: impl Fn(T, T) -> U,
) -> Result<Tensor, OpError> {
    let (a, b) = (values::<T>(operands, 0)?, values::<T>(operands, 1)?);
    let rows = Rows::broadcast([operands[0].shape(), operands[1].shape()], shape);
    tensor(shape, rows.map(|[at, bt]| of(a[at], b[bt])))
}

pub(super) fn choose(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    fn of<T: Stored>(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (choice, yes, no) = (values::<bool>(operands, 0)?, values::<T>(operands, 1)?, values::<T>(operands, 2)?);
        let rows = Rows::broadcast([operands[0].shape(), operands[1].shape(), operands[2].shape()], shape);
        tensor(shape, rows.map(|[c, y, n]| if choice[c] { yes[y] } else { no[n] }))
    }
    by_type!(operands[1].element(), of(operands, shape))
}

pub(super) fn cast(to: Element, from: &Tensor) -> Result<Tensor, OpError> {
    match from {
        Tensor::F32(x) => match to {
            Element::F32 => Ok(from.clone()),
            Element::I64 => Ok(Tensor::I64(x.mapv(|x| x as i64))),
            Element::Bool => Ok(Tensor::Bool(x.mapv(|x| x != 0.0))),
        },
        Tensor::I64(x) => match to {
            Element::F32 => Ok(Tensor::F32(x.mapv(|x| x as f32))),
            Element::I64 => Ok(from.clone()),
            Element::Bool => Ok(Tensor::Bool(x.mapv(|x| x != 0))),
        },
        Tensor::Bool(x) => match to {
            Element::F32 => Ok(Tensor::F32(x.mapv(|x| f32::from(u8::from(x))))),
            Element::I64 => Ok(Tensor::I64(x.mapv(i64::from))),
            Element::Bool => Ok(from.clone()),
        },
    }
}
