//! Elements of tensors by their types, for loops over all of them.

use std::borrow::Cow;

use ndarray::ArrayD;

use crate::error::OpError;
use crate::tensor::{Element, Tensor, array};

/// A type of elements.
pub(crate) trait Typed: Copy + Send + Sync + Sized {
    fn of(tensor: &Tensor) -> Option<&ArrayD<Self>>;
    fn tensor(array: ArrayD<Self>) -> Tensor;
}

macro_rules! typed {
    ($type:ty, $kind:ident) => {
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
        }
    };
}
typed!(f32, F32);
typed!(i64, I64);
typed!(bool, Bool);

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
pub(crate) use by_type;

pub(crate) fn tensor<T: Typed>(shape: &[usize], values: Vec<T>) -> Result<Tensor, OpError> {
    array(shape, values).map(T::tensor)
}

/// A tensor without elements.
pub(crate) fn empty(shape: &[usize], element: Element) -> Result<Tensor, OpError> {
    fn of<T: Typed>(shape: &[usize]) -> Result<Tensor, OpError> {
        tensor::<T>(shape, Vec::new())
    }
    by_type!(element, of(shape))
}

/// The elements of an operand, row-major.
pub(crate) fn values<'a, T: Typed>(operands: &[&'a Tensor], operand: usize) -> Result<Cow<'a, [T]>, OpError> {
    let found = operands[operand].element();
    let array = T::of(operands[operand]).ok_or(OpError::Element { operand, found, wanted: "another type" })?;
    Ok(match array.as_slice() {
        Some(slice) => Cow::Borrowed(slice),
        None => Cow::Owned(array.iter().copied().collect()),
    })
}

/// Not a number if one of both is none.
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a > b || a.is_nan() { a } else { b }
}

/// Not a number if one of both is none.
pub(crate) fn smaller(a: f64, b: f64) -> f64 {
    if a < b || a.is_nan() { a } else { b }
}
