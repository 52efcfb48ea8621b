//! Imports for the file of an operator, in this crate or in another.

pub use autotune_ir::DType;

pub use crate::error::OpError;
pub use crate::onnx::attribute::{Attribute, float, int, ints, word};
pub use crate::onnx::call::{Call, ImportValue, attribute, axes, axis};
pub use crate::onnx::error::{ExportError, NodeError};
pub use crate::onnx::operator::OnnxOperator;
pub use crate::onnx::writer::NodeWriter;
pub use crate::op::{
    Anchor, Facts, Movement, NodeView, Op, Operator, Read, SubNode, axis_of, check_alike, check_count, check_dtype,
    shapes_of, unfit,
};
pub use crate::tensor::Tensor;

pub(crate) use crate::onnx::call::{self, missing};
pub(crate) use crate::op::{broadcast, fixed, product};
pub(crate) use crate::tensor::elements;
pub(crate) use crate::text::listed;
pub(crate) use crate::typed::{Typed, by_type, larger, no_tensor, smaller, tensor, values};
pub(crate) use crate::walk::{TensorRows, along, offsets, padded, pick, picked};
pub(crate) use crate::walk::{broadcast_strides, strides};
