//! Attributes of nodes.

use rten_onnx::onnx::{AttributeProto, AttributeType};

fn attribute(name: &str, r#type: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(r#type), ..AttributeProto::default() }
}

pub(super) fn int(name: &str, value: usize) -> AttributeProto {
    AttributeProto { i: Some(value as i64), ..attribute(name, AttributeType::INT) }
}

pub(super) fn ints(name: &str, values: impl IntoIterator<Item = usize>) -> AttributeProto {
    let ints = values.into_iter().map(|value| value as i64).collect();
    AttributeProto { ints, ..attribute(name, AttributeType::INTS) }
}

pub(super) fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { f: Some(value), ..attribute(name, AttributeType::FLOAT) }
}

pub(super) fn word(name: &str, value: &str) -> AttributeProto {
    AttributeProto { s: Some(value.into()), ..attribute(name, AttributeType::STRING) }
}
