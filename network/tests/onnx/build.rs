//! Models made of the messages of files.

use autotune_network::onnx::{self, ImportError, ImportOptions};
use autotune_network::{Graph, Tensor};
use rten_onnx::onnx::{GraphProto, ModelProto, OperatorSetIdProto, TensorProto, ValueInfoProto};

pub fn model(version: i64, graph: GraphProto) -> ModelProto {
    let opset = OperatorSetIdProto { domain: None, version: Some(version) };
    ModelProto { ir_version: Some(8), graph: Some(graph), opset_import: vec![opset], ..Default::default() }
}

/// The graph of a model's bytes.
pub fn import(model: &ModelProto) -> Result<Graph, ImportError> {
    onnx::read_bytes(&model.write_buf().unwrap(), &ImportOptions::default())
}

/// What a message of a tensor holds, as the import reads it.
pub fn tensor_of(mut proto: TensorProto) -> Tensor {
    proto.name = Some("tensor".into());
    let output = ValueInfoProto { name: Some("tensor".into()), r#type: None };
    let graph = GraphProto { initializer: vec![proto], output: vec![output], ..Default::default() };
    import(&model(13, graph)).unwrap().evaluate(&[]).unwrap().remove(0)
}

/// The first element at which two tensors are not the same within a tolerance, in words.
pub fn difference(found: &Tensor, expected: &Tensor, relative: f32, absolute: f32) -> Option<String> {
    if (found.shape(), found.element()) != (expected.shape(), expected.element()) {
        let text = |tensor: &Tensor| format!("{} {:?}", tensor.element(), tensor.shape());
        return Some(format!("{}, where {} is expected", text(found), text(expected)));
    }
    let (Some(found_floats), Some(expected_floats)) = (found.as_f32(), expected.as_f32()) else {
        return (found != expected).then(|| "other integers or truth values".into());
    };
    let pairs = found_floats.iter().zip(expected_floats);
    let mut wrong = pairs
        .filter(|&(&a, &b)| !(a == b || (a - b).abs() <= absolute + relative * b.abs() || a.is_nan() && b.is_nan()));
    wrong.next().map(|(a, b)| format!("{a}, where {b} is expected"))
}
