//! Tensors of any element type, by value.

use autotune_ir::DType;
use ndarray::{ArrayD, IxDyn};

use crate::error::OpError;
use crate::typed::{Typed, by_type, tensor};

/// Most elements of a tensor: what a file asks for beyond it is refused.
const MOST_ELEMENTS: usize = 1 << 31;

/// Type in which a file says that callers get an output, where that is not the type of its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Stored {
    /// A type of the table.
    Of(DType),
    U16,
    U32,
    U64,
    F64,
}

/// Shape and element type of a tensor.
pub type Facts<'a> = (&'a [usize], DType);

/// A tensor, row-major. Of the types of the table, tensors have those of the variants; every other
/// floating-point type of a file becomes f32, every other integer type i64. Quantised tensors alone
/// are of 8 bits: what else reads one reads it as i64.
#[derive(Clone, Debug, PartialEq)]
pub enum Tensor {
    /// Of [`DType::F32`].
    F32(ArrayD<f32>),
    /// Of [`DType::I64`]: shapes, axes, numbers of rows.
    I64(ArrayD<i64>),
    /// Of [`DType::Bool`].
    Bool(ArrayD<bool>),
    /// Of [`DType::I8`]: quantised weights.
    I8(ArrayD<i8>),
    /// Of [`DType::U8`]: quantised images and the like.
    U8(ArrayD<u8>),
}

impl Tensor {
    /// Of floating-point numbers, as many as the shape has.
    pub fn f32(shape: &[usize], elements: Vec<f32>) -> Result<Self, OpError> {
        Ok(Self::F32(array(shape, elements)?))
    }

    /// Of integers, as many as the shape has.
    pub fn i64(shape: &[usize], elements: Vec<i64>) -> Result<Self, OpError> {
        Ok(Self::I64(array(shape, elements)?))
    }

    /// A number without dimensions.
    pub fn scalar(value: f32) -> Self {
        Self::F32(ArrayD::from_elem(IxDyn(&[]), value))
    }

    /// Returns a tensor of a type from numbers: integers without their fractions, truth values by
    /// whether they are not 0. Fails for types that tensors do not have.
    pub fn of_numbers(shape: &[usize], dtype: DType, numbers: &[f32]) -> Result<Self, OpError> {
        fn of<T: Typed>(shape: &[usize], numbers: &[f32]) -> Result<Tensor, OpError> {
            tensor(shape, numbers.iter().map(|&number| T::of_number(number)).collect())
        }
        by_type!(dtype, of(shape, numbers))
    }

    /// Its elements as numbers, row-major: truth values are 0 and 1.
    pub fn to_numbers(&self) -> Vec<f32> {
        match self {
            Self::F32(array) => array.iter().copied().collect(),
            Self::I64(array) => array.iter().map(|&x| x as f32).collect(),
            Self::Bool(array) => array.iter().map(|&x| f32::from(x)).collect(),
            Self::I8(array) => array.iter().map(|&x| f32::from(x)).collect(),
            Self::U8(array) => array.iter().map(|&x| f32::from(x)).collect(),
        }
    }

    /// The same in the tensor's own memory, where that has them so.
    pub fn into_numbers(self) -> Vec<f32> {
        match self {
            Self::F32(array) if array.is_standard_layout() => {
                let count = array.len();
                let (mut numbers, first) = array.into_raw_vec_and_offset();
                numbers.drain(..first.unwrap_or(0));
                numbers.truncate(count);
                numbers
            }
            other => other.to_numbers(),
        }
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::F32(array) => array.shape(),
            Self::I64(array) => array.shape(),
            Self::Bool(array) => array.shape(),
            Self::I8(array) => array.shape(),
            Self::U8(array) => array.shape(),
        }
    }

    /// Returns the type of its elements.
    pub fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::I64(_) => DType::I64,
            Self::Bool(_) => DType::Bool,
            Self::I8(_) => DType::I8,
            Self::U8(_) => DType::U8,
        }
    }

    /// The floating-point numbers, if it is of these.
    pub fn as_f32(&self) -> Option<&ArrayD<f32>> {
        match self {
            Self::F32(array) => Some(array),
            _ => None,
        }
    }

    /// The integers, if it is of these.
    pub fn as_i64(&self) -> Option<&ArrayD<i64>> {
        match self {
            Self::I64(array) => Some(array),
            _ => None,
        }
    }
}

/// Number of elements of a shape, if that can be had in memory.
pub(crate) fn elements(shape: &[usize]) -> Result<usize, OpError> {
    let count = shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
    count.filter(|&count| count <= MOST_ELEMENTS).ok_or_else(|| OpError::TooLarge { shape: shape.to_vec() })
}

/// A tensor's elements, as many as the shape has.
pub(crate) fn array<T>(shape: &[usize], values: Vec<T>) -> Result<ArrayD<T>, OpError> {
    let (wanted, found) = (elements(shape)?, values.len());
    ArrayD::from_shape_vec(IxDyn(shape), values)
        .map_err(|_| OpError::Unfit(format!("{found} elements for a tensor of {wanted}")))
}
