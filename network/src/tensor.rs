//! Tensors of any element type, by value.

use std::fmt;

use ndarray::{ArrayD, IxDyn};

use crate::error::OpError;

/// Most elements of a tensor: what a file asks for beyond it is refused.
const MOST_ELEMENTS: usize = 1 << 31;

/// Type of a tensor's elements in a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// 32-bit floating point, which every floating-point type of a file becomes.
    F32,
    /// 64-bit integers, which every integer type of a file becomes: shapes, axes, numbers of rows.
    I64,
    /// Truth values, `false` and `true`.
    Bool,
}

/// Type in which a file says that callers get an output, where that is not the [`Element`] of its
/// node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Stored {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
}

/// Shape and element type of a tensor.
pub type Facts<'a> = (&'a [usize], Element);

/// A tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Tensor {
    /// Of [`Element::F32`].
    F32(ArrayD<f32>),
    /// Of [`Element::I64`].
    I64(ArrayD<i64>),
    /// Of [`Element::Bool`].
    Bool(ArrayD<bool>),
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

    /// Elements of any type from numbers: integers and truth values as running networks have them.
    pub(crate) fn of_numbers(shape: &[usize], element: Element, numbers: &[f32]) -> Result<Self, OpError> {
        Ok(match element {
            Element::F32 => Self::F32(array(shape, numbers.to_vec())?),
            Element::I64 => Self::I64(array(shape, numbers.iter().map(|&x| x as i64).collect())?),
            Element::Bool => Self::Bool(array(shape, numbers.iter().map(|&x| x != 0.0).collect())?),
        })
    }

    /// Its elements as numbers, row-major: truth values are 0 and 1.
    pub fn to_numbers(&self) -> Vec<f32> {
        match self {
            Self::F32(array) => array.iter().copied().collect(),
            Self::I64(array) => array.iter().map(|&x| x as f32).collect(),
            Self::Bool(array) => array.iter().map(|&x| f32::from(x)).collect(),
        }
    }

    /// The same in the tensor's own memory, where that has them so.
    pub(crate) fn into_numbers(self) -> Vec<f32> {
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
        }
    }

    /// Type of its elements.
    pub fn element(&self) -> Element {
        match self {
            Self::F32(_) => Element::F32,
            Self::I64(_) => Element::I64,
            Self::Bool(_) => Element::Bool,
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

impl Element {
    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Element::F32 => "f32",
            Element::I64 => "i64",
            Element::Bool => "bool",
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
