//! Attributes of exported ONNX nodes.

use autotune_ir::DType;
use rten_onnx::onnx::{AttributeProto, AttributeType, DataType};

/// An attribute of an exported node.
#[derive(Clone)]
pub struct Attribute(pub(super) AttributeProto);

fn attribute(name: &str, r#type: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(r#type), ..AttributeProto::default() }
}

/// Creates an integer attribute.
pub fn int(name: &str, value: usize) -> Attribute {
    Attribute(AttributeProto { i: Some(value as i64), ..attribute(name, AttributeType::INT) })
}

/// Creates an attribute that is a list of integers.
pub fn ints(name: &str, values: impl IntoIterator<Item = usize>) -> Attribute {
    let ints = values.into_iter().map(|value| value as i64).collect();
    Attribute(AttributeProto { ints, ..attribute(name, AttributeType::INTS) })
}

/// Creates a float attribute.
pub fn float(name: &str, value: f32) -> Attribute {
    Attribute(AttributeProto { f: Some(value), ..attribute(name, AttributeType::FLOAT) })
}

/// Creates a string attribute.
pub fn word(name: &str, value: &str) -> Attribute {
    Attribute(AttributeProto { s: Some(value.into()), ..attribute(name, AttributeType::STRING) })
}

/// Creates an attribute that names an element type.
pub(crate) fn typed(name: &str, data_type: DataType) -> Attribute {
    int(name, data_type.0 as usize)
}

/// Returns the ONNX type in which elements are written.
pub(crate) fn data_type(dtype: DType) -> DataType {
    match dtype {
        DType::F32 | DType::Tf32 => DataType::FLOAT,
        DType::F16 => DataType::FLOAT16,
        DType::Bf16 => DataType::BFLOAT16,
        DType::I8 => DataType::INT8,
        DType::U8 => DataType::UINT8,
        DType::I16 => DataType::INT16,
        DType::I32 => DataType::INT32,
        DType::I64 => DataType::INT64,
        DType::Bool => DataType::BOOL,
    }
}
