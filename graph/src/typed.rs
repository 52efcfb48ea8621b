//! Generic access to tensor elements.

use std::borrow::Cow;

use autotune_ir::DType;
use ndarray::ArrayD;

use crate::error::OpError;
use crate::tensor::{Tensor, array};

/// An element type of tensors.
pub(crate) trait Typed: Copy + Send + Sync + Sized {
    fn of(tensor: &Tensor) -> Option<&ArrayD<Self>>;
    fn tensor(array: ArrayD<Self>) -> Tensor;

    /// Converts a number, as networks have them at run time, to an element.
    fn of_number(number: f32) -> Self;
}

macro_rules! typed {
    ($type:ty, $kind:ident, $of_number:expr) => {
        impl Typed for $type {
            fn of(tensor: &Tensor) -> Option<&ArrayD<Self>> {
                match tensor {
                    Tensor::$kind(array) => Some(array),
                    _ => None,
                }
            }

            fn tensor(array: ArrayD<Self>) -> Tensor {
                Tensor::$kind(array)
            }

            fn of_number(number: f32) -> Self {
                $of_number(number)
            }
        }
    };
}
typed!(f32, F32, |number| number);
typed!(i64, I64, |number| number as i64);
typed!(bool, Bool, |number| number != 0.0);
typed!(i8, I8, |number| number as i8);
typed!(u8, U8, |number| number as u8);

/// Calls a function that is generic over the element type; fails for types that tensors cannot
/// have.
macro_rules! by_type {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            autotune_ir::DType::F32 => $function::<f32>($($argument),*),
            autotune_ir::DType::I64 => $function::<i64>($($argument),*),
            autotune_ir::DType::Bool => $function::<bool>($($argument),*),
            autotune_ir::DType::I8 => $function::<i8>($($argument),*),
            autotune_ir::DType::U8 => $function::<u8>($($argument),*),
            dtype => Err($crate::typed::no_tensor(dtype)),
        }
    };
}
pub(crate) use by_type;

/// Returns the error for a type that tensors cannot have.
pub(crate) fn no_tensor(dtype: DType) -> OpError {
    OpError::Unfit(format!("tensors of {dtype} are not supported"))
}

/// Fails for types that tensors cannot have.
pub(crate) fn check_has_tensors(dtype: DType) -> Result<(), OpError> {
    Tensor::of_numbers(&[0], dtype, &[]).map(drop)
}

pub(crate) fn tensor<T: Typed>(shape: &[usize], values: Vec<T>) -> Result<Tensor, OpError> {
    array(shape, values).map(T::tensor)
}

/// Returns the elements of an operand, row-major.
pub(crate) fn values<'a, T: Typed>(operands: &[&'a Tensor], operand: usize) -> Result<Cow<'a, [T]>, OpError> {
    let found = operands[operand].dtype();
    let array = T::of(operands[operand]).ok_or(OpError::DType { operand, found, wanted: "another type" })?;
    Ok(match array.as_slice() {
        Some(slice) => Cow::Borrowed(slice),
        None => Cow::Owned(array.iter().copied().collect()),
    })
}

/// Returns the larger number, or NaN if either is NaN.
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// Returns the smaller number, or NaN if either is NaN.
pub(crate) fn smaller(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}
