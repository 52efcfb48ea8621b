//! Tensors of any element type, by value.

use std::borrow::Cow;

use autotune_ir::DType;
use ndarray::{ArrayD, Axis, IxDyn};

use crate::error::OpError;
use crate::typed::{Typed, by_type, tensor, values};

/// Maximum number of elements of a tensor; larger ones in files are rejected.
const MOST_ELEMENTS: usize = 1 << 31;

/// Element type in which a file declares an output, if it differs from the node's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum DeclaredType {
    /// A type that [`DType`] has.
    Of(DType),
    U16,
    U32,
    U64,
    F64,
}

/// Shape and element type of a tensor.
pub type Facts<'a> = (&'a [usize], DType);

/// A row-major tensor. It has one of the element types of the variants; import converts other
/// floating-point types to f32 and other integer types to i64. Only quantised tensors have 8-bit
/// types; other operators read them as i64.
#[derive(Clone, Debug, PartialEq)]
pub enum Tensor {
    /// Elements of [`DType::F32`], with their shape.
    F32(ArrayD<f32>),
    /// Elements of [`DType::I64`]: shapes, axes, indices.
    I64(ArrayD<i64>),
    /// Elements of [`DType::Bool`]: conditions and masks.
    Bool(ArrayD<bool>),
    /// Elements of [`DType::I8`]: quantised weights.
    I8(ArrayD<i8>),
    /// Elements of [`DType::U8`]: quantised data.
    U8(ArrayD<u8>),
}

impl Tensor {
    /// Creates a tensor of f32; fails unless the number of elements fits the shape.
    pub fn f32(shape: &[usize], elements: Vec<f32>) -> Result<Self, OpError> {
        Ok(Self::F32(array(shape, elements)?))
    }

    /// Creates a tensor of i64; fails unless the number of elements fits the shape.
    pub fn i64(shape: &[usize], elements: Vec<i64>) -> Result<Self, OpError> {
        Ok(Self::I64(array(shape, elements)?))
    }

    /// Creates a number without axes.
    pub fn scalar(value: f32) -> Self {
        Self::F32(ArrayD::from_elem(IxDyn(&[]), value))
    }

    /// Creates a tensor of a type from numbers. Integers are truncated; nonzero numbers are true.
    /// Fails for types that tensors cannot have.
    pub fn of_numbers(shape: &[usize], dtype: DType, numbers: &[f32]) -> Result<Self, OpError> {
        fn of<T: Typed>(shape: &[usize], numbers: &[f32]) -> Result<Tensor, OpError> {
            tensor(shape, numbers.iter().map(|&number| T::of_number(number)).collect())
        }
        by_type!(dtype, of(shape, numbers))
    }

    /// Creates a tensor of a type from numbers as [`of_numbers`](Self::of_numbers) does, without a
    /// copy where possible.
    pub fn from_numbers(shape: &[usize], dtype: DType, numbers: Vec<f32>) -> Result<Self, OpError> {
        match dtype {
            DType::F32 => Self::f32(shape, numbers),
            dtype => Self::of_numbers(shape, dtype, &numbers),
        }
    }

    /// Returns the elements as f32 numbers, row-major, without a copy where possible; booleans are
    /// 0 and 1.
    pub fn numbers(&self) -> Cow<'_, [f32]> {
        match self.as_f32().and_then(|array| array.as_slice()) {
            Some(numbers) => Cow::Borrowed(numbers),
            None => Cow::Owned(self.to_numbers()),
        }
    }

    /// Returns the elements as f32 numbers, row-major; booleans are 0 and 1.
    pub fn to_numbers(&self) -> Vec<f32> {
        match self {
            Self::F32(array) => array.as_slice().map_or_else(|| array.iter().copied().collect(), <[f32]>::to_vec),
            Self::I64(array) => array.iter().map(|&x| x as f32).collect(),
            Self::Bool(array) => array.iter().map(|&x| f32::from(x)).collect(),
            Self::I8(array) => array.iter().map(|&x| f32::from(x)).collect(),
            Self::U8(array) => array.iter().map(|&x| f32::from(x)).collect(),
        }
    }

    /// Converts the tensor to numbers, without a copy where possible.
    pub fn into_numbers(self) -> Vec<f32> {
        match self {
            Self::F32(array) if array.is_standard_layout() => {
                let count = array.len();
                // The array may be a part of its vector: drop the elements before and after it.
                let (mut numbers, first) = array.into_raw_vec_and_offset();
                numbers.drain(..first.unwrap_or(0));
                numbers.truncate(count);
                numbers
            }
            other => other.to_numbers(),
        }
    }

    /// Returns the part at a position along an axis, without the axis. Fails if there is none.
    pub fn slice_at(&self, axis: usize, index: usize) -> Result<Self, OpError> {
        if self.shape().get(axis).is_none_or(|&extent| index >= extent) {
            return Err(OpError::Unfit(format!("no index {index} along axis {axis} of shape {:?}", self.shape())));
        }
        Ok(match self {
            Self::F32(array) => Self::F32(slice(array, axis, index)),
            Self::I64(array) => Self::I64(slice(array, axis, index)),
            Self::Bool(array) => Self::Bool(slice(array, axis, index)),
            Self::I8(array) => Self::I8(slice(array, axis, index)),
            Self::U8(array) => Self::U8(slice(array, axis, index)),
        })
    }

    /// Returns tensors of one shape and type along a new axis. Fails if they differ, or if there
    /// are none.
    pub fn stacked(axis: usize, parts: &[&Self]) -> Result<Self, OpError> {
        fn of<T: Typed>(axis: usize, parts: &[&Tensor], first: &Tensor) -> Result<Tensor, OpError> {
            let (outer, inner) = first.shape().split_at(axis);
            let (rows, row) = (elements(outer)?, elements(inner)?);
            let parts = parts.iter().map(|part| values::<T>(&[part], 0).map(|part| part.into_owned()));
            let parts: Vec<Vec<T>> = parts.collect::<Result<_, _>>()?;
            let shape = [outer, &[parts.len()], inner].concat();
            let mut all = Vec::with_capacity(elements(&shape)?);
            for at in 0..rows {
                parts.iter().for_each(|part| all.extend_from_slice(&part[at * row..][..row]));
            }
            tensor(&shape, all)
        }
        let Some(first) = parts.first() else { return Err(OpError::Unfit("no tensors to stack".into())) };
        let differs = |part: &&&Self| (part.shape(), part.dtype()) != (first.shape(), first.dtype());
        if axis > first.shape().len() || parts.iter().any(|part| differs(&part)) {
            return Err(OpError::Unfit("tensors of different shapes or types cannot be stacked".into()));
        }
        by_type!(first.dtype(), of(axis, parts, first))
    }

    /// Returns the extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        match self {
            Self::F32(array) => array.shape(),
            Self::I64(array) => array.shape(),
            Self::Bool(array) => array.shape(),
            Self::I8(array) => array.shape(),
            Self::U8(array) => array.shape(),
        }
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::I64(_) => DType::I64,
            Self::Bool(_) => DType::Bool,
            Self::I8(_) => DType::I8,
            Self::U8(_) => DType::U8,
        }
    }

    /// Returns the elements, if they are f32.
    pub fn as_f32(&self) -> Option<&ArrayD<f32>> {
        match self {
            Self::F32(array) => Some(array),
            _ => None,
        }
    }

    /// Returns the elements, if they are i64.
    pub fn as_i64(&self) -> Option<&ArrayD<i64>> {
        match self {
            Self::I64(array) => Some(array),
            _ => None,
        }
    }
}

/// Returns a part in row-major order.
fn slice<T: Clone>(array: &ArrayD<T>, axis: usize, index: usize) -> ArrayD<T> {
    array.index_axis(Axis(axis), index).as_standard_layout().into_owned()
}

/// Returns the number of elements of a shape; fails if it is too large.
pub(crate) fn elements(shape: &[usize]) -> Result<usize, OpError> {
    let count = shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
    count.filter(|&count| count <= MOST_ELEMENTS).ok_or_else(|| OpError::TooLarge { shape: shape.to_vec() })
}

/// Creates an array; fails unless the number of elements fits the shape.
pub(crate) fn array<T>(shape: &[usize], values: Vec<T>) -> Result<ArrayD<T>, OpError> {
    let (wanted, found) = (elements(shape)?, values.len());
    ArrayD::from_shape_vec(IxDyn(shape), values)
        .map_err(|_| OpError::Unfit(format!("{found} elements, expected {wanted}")))
}
