//! Attributes of nodes that are written.

use rten_onnx::onnx::{AttributeProto, AttributeType, DataType};

use crate::tensor::Element;

/// An attribute of a node that is written.
#[derive(Clone)]
pub struct Attribute(pub(super) AttributeProto);

fn attribute(name: &str, r#type: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(r#type), ..AttributeProto::default() }
}

/// An attribute of one integer.
pub fn int(name: &str, value: usize) -> Attribute {
    Attribute(AttributeProto { i: Some(value as i64), ..attribute(name, AttributeType::INT) })
}

/// An attribute of several integers.
pub fn ints(name: &str, values: impl IntoIterator<Item = usize>) -> Attribute {
    let ints = values.into_iter().map(|value| value as i64).collect();
    Attribute(AttributeProto { ints, ..attribute(name, AttributeType::INTS) })
}

/// An attribute of one number.
pub fn float(name: &str, value: f32) -> Attribute {
    Attribute(AttributeProto { f: Some(value), ..attribute(name, AttributeType::FLOAT) })
}

/// An attribute of a word.
pub fn word(name: &str, value: &str) -> Attribute {
    Attribute(AttributeProto { s: Some(value.into()), ..attribute(name, AttributeType::STRING) })
}

/// An attribute of an element type.
pub(crate) fn typed(name: &str, data_type: DataType) -> Attribute {
    int(name, data_type.0 as usize)
}

/// The type in which elements are written.
pub(crate) fn data_type(element: Element) -> DataType {
    match element {
        Element::F32 => DataType::FLOAT,
        Element::I64 => DataType::INT64,
        Element::Bool => DataType::BOOL,
    }
}
