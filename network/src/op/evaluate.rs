//! Tensors that operations compute, as plain loops over all elements.
//!
//! Nothing here is shared with what kernels are made of: specs, schedules and code generators.

use std::borrow::Cow;

use ndarray::ArrayD;

use super::Op;
use crate::error::OpError;
use crate::tensor::{Element, Tensor, array, elements};

mod contraction;
mod elementwise;
mod movement;
mod normalisation;
mod places;
mod pool;

/// The output of an operation on these operands.
pub(super) fn output(op: &Op, operands: &[&Tensor]) -> Result<Tensor, OpError> {
    if let (Op::Constant(constant), []) = (op, operands) {
        return Ok(constant.read()?.into_owned());
    }
    let known: Vec<_> = operands.iter().map(|tensor| (tensor.shape(), tensor.element())).collect();
    let (shape, element) = op.infer(&known)?;
    // Behind this, no extent of the output is 0; one of an operand may be.
    if elements(&shape)? == 0 {
        return empty(&shape, element);
    }

    match op {
        Op::Input | Op::Constant(_) => Err(OpError::Unfit("it has its tensor from elsewhere".into())),
        Op::Map(function) => elementwise::map(*function, operands),
        Op::Prelu => elementwise::prelu(operands, &shape),
        Op::Binary(op) => elementwise::binary(*op, operands, &shape),
        Op::Not => tensor(&shape, values::<bool>(operands, 0)?.iter().map(|x| !x).collect()),
        Op::Where => elementwise::choose(operands, &shape),
        Op::Cast(to) => elementwise::cast(*to, operands[0]),
        Op::Conv { window, groups } => contraction::conv(window, *groups, operands, &shape),
        Op::ConvTranspose { window, output_pad, groups } => {
            contraction::conv_transpose(window, output_pad, *groups, operands, &shape)
        }
        Op::MatMul => contraction::matmul(operands, &shape),
        Op::Attention { scale } => contraction::attention(*scale, operands, &shape),
        Op::Pool { window, kind, .. } => pool::pool(window, *kind, operands, &shape),
        Op::Reduce { op, axes, .. } => normalisation::reduce(*op, axes, operands, &shape),
        Op::Softmax { axis, log } => normalisation::softmax(*axis, *log, operands),
        Op::LayerNorm { axis, eps } => normalisation::layer_norm(*axis, *eps, operands),
        Op::GroupNorm { groups, eps } => normalisation::group_norm(*groups, *eps, operands),
        Op::LocalResponseNorm { size, alpha, beta, bias } => {
            normalisation::local_response_norm(*size, [*alpha, *beta, *bias], operands)
        }
        Op::Reshape(_) => movement::reshape(operands, &shape),
        Op::Concat { axis } => movement::concat(*axis, operands, &shape),
        Op::Slice(ranges) => movement::slice(ranges, operands, &shape),
        Op::Transpose(perm) => movement::transpose(perm, operands, &shape),
        Op::Expand(_) => movement::expand(operands, &shape),
        Op::Pad { pad, mode, value } => movement::pad(pad, *mode, *value, operands, &shape),
        Op::Resize { size, coordinates, sampling } => {
            movement::resize(*size, *coordinates, *sampling, operands, &shape)
        }
        Op::Gather { axis } => movement::gather(*axis, operands, &shape),
    }
}

/// A type of elements.
trait Stored: Copy + Send + Sync + Sized {
    fn of(tensor: &Tensor) -> Option<&ArrayD<Self>>;
    fn tensor(array: ArrayD<Self>) -> Tensor;
}

macro_rules! stored {
    ($type:ty, $kind:ident) => {
        impl Stored for $type {
            fn of(tensor: &Tensor) -> Option<&ArrayD<Self>> {
                match tensor {
                    Tensor::$kind(array) => Some(array),
                    _ => None,
                }
            }

            fn tensor(array: ArrayD<Self>) -> Tensor {
                Tensor::$kind(array)
            }
        }
    };
}
stored!(f32, F32);
stored!(i64, I64);
stored!(bool, Bool);

/// Calls a function that is generic over the type of elements.
macro_rules! by_type {
    ($element:expr, $function:ident($($argument:expr),*)) => {
        match $element {
            $crate::tensor::Element::F32 => $function::<f32>($($argument),*),
            $crate::tensor::Element::I64 => $function::<i64>($($argument),*),
            $crate::tensor::Element::Bool => $function::<bool>($($argument),*),
        }
    };
}
use by_type;

fn tensor<T: Stored>(shape: &[usize], values: Vec<T>) -> Result<Tensor, OpError> {
    array(shape, values).map(T::tensor)
}

fn empty(shape: &[usize], element: Element) -> Result<Tensor, OpError> {
    fn of<T: Stored>(shape: &[usize]) -> Result<Tensor, OpError> {
        tensor::<T>(shape, Vec::new())
    }
    by_type!(element, of(shape))
}

/// The elements of an operand, row-major.
fn values<'a, T: Stored>(operands: &[&'a Tensor], operand: usize) -> Result<Cow<'a, [T]>, OpError> {
    let found = operands[operand].element();
    let array = T::of(operands[operand]).ok_or(OpError::Element { operand, found, wanted: "another type" })?;
    Ok(match array.as_slice() {
        Some(slice) => Cow::Borrowed(slice),
        None => Cow::Owned(array.iter().copied().collect()),
    })
}

/// Not a number if one of both is none.
fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// Not a number if one of both is none.
fn smaller(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}
