//! Element types of tensors, and their conversion to and from the f32 numbers of networks.

use std::borrow::Cow;

use autotune_network::{DType, DeclaredType};
use half::{bf16, f16};
use ort_sys::ONNXTensorElementDataType;
use ort_sys::ONNXTensorElementDataType::*;
use thiserror::Error;

/// Reason that elements are not read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ElementError {
    /// Networks have no tensors of this type.
    #[error("elements of type {0:?} are not supported")]
    Type(ONNXTensorElementDataType),
    /// An integer is not exact as f32.
    #[error("an integer is not exact in networks: they are exact up to 2^24")]
    Inexact,
}

/// Returns the type in the API; without a declared one, it is unknown.
pub fn onnx_type(declared: Option<DeclaredType>) -> ONNXTensorElementDataType {
    match declared {
        Some(DeclaredType::Of(DType::F32 | DType::Tf32)) => ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        Some(DeclaredType::Of(DType::F16)) => ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        Some(DeclaredType::Of(DType::Bf16)) => ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
        Some(DeclaredType::Of(DType::Bool)) => ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        Some(DeclaredType::Of(DType::I8)) => ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        Some(DeclaredType::Of(DType::I16)) => ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
        Some(DeclaredType::Of(DType::I32)) => ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        Some(DeclaredType::Of(DType::I64)) => ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        Some(DeclaredType::Of(DType::U8)) => ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        Some(DeclaredType::U16) => ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
        Some(DeclaredType::U32) => ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
        Some(DeclaredType::U64) => ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        Some(DeclaredType::F64) => ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
        None => ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED,
    }
}

/// An element in memory.
trait TensorElement: Copy {
    /// Reads an element of `size_of::<Self>()` little-endian bytes.
    fn of_bytes(bytes: &[u8]) -> Self;

    /// Returns the number, if f32 represents it or the type is one of real numbers.
    fn number(self) -> Option<f32>;

    /// Writes a number as an element: rounded, or for integers truncated, to the nearest.
    fn write(number: f32, bytes: &mut [u8]);
}

/// Implements the trait for types with functions to and from numbers.
macro_rules! elements {
    ($($type:ty: $number:expr, $of:expr);* $(;)?) => {$(
        impl TensorElement for $type {
            fn of_bytes(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<Self>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }

            fn number(self) -> Option<f32> {
                $number(self)
            }

            fn write(number: f32, bytes: &mut [u8]) {
                bytes.copy_from_slice(&$of(number).to_le_bytes());
            }
        }
    )*};
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        elements! { $type: exact, |number: f32| number as $type }
    )*};
}

/// Returns an integer as f32, if that is exact.
fn exact(integer: impl Into<i128>) -> Option<f32> {
    let integer = integer.into();
    let number = integer as f32;
    (number as i128 == integer).then_some(number)
}

elements! {
    f32: Some, |number: f32| number;
    f64: |number| Some(number as f32), f64::from;
    f16: |number| Some(f16::to_f32(number)), f16::from_f32;
    bf16: |number| Some(bf16::to_f32(number)), bf16::from_f32;
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// A byte that is 0 or 1.
#[derive(Clone, Copy)]
struct Truth(u8);

impl TensorElement for Truth {
    fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes[0])
    }

    fn number(self) -> Option<f32> {
        Some(f32::from(self.0 != 0))
    }

    fn write(number: f32, bytes: &mut [u8]) {
        bytes[0] = u8::from(number != 0.0);
    }
}

/// Calls a generic function for the Rust type of an element type.
macro_rules! by_element {
    ($type:expr, $function:ident($($argument:expr),*)) => {
        match $type {
            ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT => Ok($function::<f32>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE => Ok($function::<f64>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 => Ok($function::<f16>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 => Ok($function::<bf16>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL => Ok($function::<Truth>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 => Ok($function::<i8>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16 => Ok($function::<i16>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 => Ok($function::<i32>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 => Ok($function::<i64>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 => Ok($function::<u8>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16 => Ok($function::<u16>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32 => Ok($function::<u32>($($argument),*)),
            ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64 => Ok($function::<u64>($($argument),*)),
            other => Err(ElementError::Type(other)),
        }
    };
}

/// Returns the size of an element in bytes.
pub fn size(of_type: ONNXTensorElementDataType) -> Result<usize, ElementError> {
    by_element!(of_type, size_of())
}

/// Returns elements as numbers, without a copy for aligned f32. Fails for an integer that f32 does
/// not represent.
pub fn numbers(of_type: ONNXTensorElementDataType, bytes: &[u8]) -> Result<Cow<'_, [f32]>, ElementError> {
    if of_type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT {
        // SAFETY: all bits are numbers.
        if let ([], numbers, []) = unsafe { bytes.align_to() } {
            return Ok(Cow::Borrowed(numbers));
        }
    }
    read(of_type, bytes).map(Cow::Owned)
}

/// Returns elements as numbers to write, if they are aligned f32.
pub fn numbers_mut(of_type: ONNXTensorElementDataType, bytes: &mut [u8]) -> Option<&mut [f32]> {
    if of_type != ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT {
        return None;
    }
    // SAFETY: all bits are numbers.
    match unsafe { bytes.align_to_mut() } {
        ([], numbers, []) => Some(numbers),
        _ => None,
    }
}

fn read(of_type: ONNXTensorElementDataType, bytes: &[u8]) -> Result<Vec<f32>, ElementError> {
    fn all<T: TensorElement>(bytes: &[u8]) -> Option<Vec<f32>> {
        bytes.chunks_exact(size_of::<T>()).map(|bytes| T::of_bytes(bytes).number()).collect()
    }
    by_element!(of_type, all(bytes))?.ok_or(ElementError::Inexact)
}

/// Writes numbers as elements.
pub fn write(of_type: ONNXTensorElementDataType, numbers: &[f32], bytes: &mut [u8]) -> Result<(), ElementError> {
    fn all<T: TensorElement>(numbers: &[f32], bytes: &mut [u8]) {
        let elements = bytes.chunks_exact_mut(size_of::<T>());
        elements.zip(numbers).for_each(|(bytes, &number)| T::write(number, bytes));
    }
    by_element!(of_type, all(numbers, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_in_every_type() {
        let types = [
            ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
            ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        ];
        for of_type in types {
            let mut bytes = vec![0xaa; 3 * size(of_type).ok().unwrap()];
            write(of_type, &[0.0, 1.0, 1.0], &mut bytes).ok().unwrap();
            assert_eq!(read(of_type, &bytes).ok().unwrap(), [0.0, 1.0, 1.0], "{of_type:?}");
        }
        assert!(size(ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING).is_err());
    }

    #[test]
    fn integers_that_are_not_exact_are_refused() {
        let read = |number: i64| read(ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, &number.to_le_bytes()).ok();
        assert_eq!(read(-(1 << 40)), Some(vec![-(2f32.powi(40))]));
        for number in [(1 << 24) + 1, i64::MAX, i64::MIN + 1] {
            assert_eq!(read(number), None, "{number}");
        }
    }

    #[test]
    fn numbers_outside_of_a_type_become_the_nearest() {
        let mut byte = [0];
        for (number, wanted) in [(300.0, 255), (-3.0, 0), (2.9, 2), (f32::NAN, 0)] {
            write(ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, &[number], &mut byte).ok().unwrap();
            assert_eq!(byte, [wanted]);
        }
    }
}
