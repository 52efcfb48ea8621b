//! Construction of ONNX models.
#![allow(dead_code)]

use std::cell::RefCell;

use autotune_graph::onnx::{self, ImportError, ImportOptions};
use autotune_graph::{Graph, Tensor};
use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataType, Dimension, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TypeProto, TypeProtoTensor, ValueInfoProto,
};

/// A model of an opset version.
pub struct Model(pub ModelProto);

impl Model {
    pub fn new(version: i64) -> Self {
        let opset = OperatorSetIdProto { domain: None, version: Some(version) };
        let graph = Some(GraphProto::default());
        Self(ModelProto { ir_version: Some(8), graph, opset_import: vec![opset], ..Default::default() })
    }

    pub fn graph(&mut self) -> &mut GraphProto {
        self.0.graph.as_mut().unwrap()
    }

    pub fn input(mut self, name: &str, shape: &[usize]) -> Self {
        let dims = shape.iter().map(|&extent| Dimension { dim_value: Some(extent as i64), dim_param: None }).collect();
        self.graph().input.push(info(name, DataType::FLOAT, dims));
        self
    }

    pub fn constant(mut self, name: &str, tensor: &Tensor) -> Self {
        self.graph().initializer.push(initializer(name, tensor));
        self
    }

    /// Adds a node named after its operator. `inputs` and `outputs` are names separated by spaces;
    /// `_` is an absent one.
    pub fn node(mut self, operator: &str, inputs: &str, outputs: &str, attributes: Vec<AttributeProto>) -> Self {
        self.graph().node.push(node(operator, inputs, outputs, attributes));
        self
    }

    pub fn output(mut self, name: &str) -> Self {
        self.graph().output.push(ValueInfoProto { name: Some(name.into()), r#type: None });
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.0.write_buf().unwrap()
    }

    pub fn import(&self) -> Result<Graph, ImportError> {
        onnx::read_bytes(&self.bytes(), &ImportOptions::default())
    }

    /// Evaluates the model on inputs.
    pub fn run(&self, inputs: &[Tensor]) -> Vec<Tensor> {
        self.import().unwrap().evaluate(inputs).unwrap()
    }
}

pub fn node(operator: &str, inputs: &str, outputs: &str, attribute: Vec<AttributeProto>) -> NodeProto {
    let names = |text: &str| text.split_whitespace().map(|name| name.trim_matches('_').into()).collect();
    NodeProto {
        name: Some(operator.to_lowercase()),
        op_type: Some(operator.into()),
        input: names(inputs),
        output: names(outputs),
        attribute,
        ..Default::default()
    }
}

/// Evaluates a single node of opset `version` on inputs from the caller, followed by constants,
/// with attributes.
pub fn one(
    version: i64,
    operator: &str,
    inputs: &[Tensor],
    constants: &[Tensor],
    attributes: Vec<AttributeProto>,
) -> Tensor {
    let mut model = Model::new(version);
    let mut names = Vec::new();
    for (index, input) in inputs.iter().enumerate() {
        names.push(format!("x{index}"));
        model = model.input(&names[index], input.shape());
    }
    for (index, constant) in constants.iter().enumerate() {
        let name = format!("c{index}");
        model = model.constant(&name, constant);
        names.push(name);
    }
    model.node(operator, &names.join(" "), "y", attributes).output("y").run(inputs).remove(0)
}

pub fn info(name: &str, data_type: DataType, dim: Vec<Dimension>) -> ValueInfoProto {
    let tensor = TypeProtoTensor { elem_type: Some(data_type), shape: Some(TensorShapeProto { dim }) };
    ValueInfoProto { name: Some(name.into()), r#type: Some(TypeProto { tensor_type: Some(tensor), sequence: None }) }
}

/// Creates a tensor message with raw bytes.
pub fn initializer(name: &str, tensor: &Tensor) -> TensorProto {
    let (data_type, bytes) = match tensor {
        Tensor::F32(array) => (DataType::FLOAT, array.iter().flat_map(|x| x.to_le_bytes()).collect()),
        Tensor::I64(array) => (DataType::INT64, array.iter().flat_map(|x| x.to_le_bytes()).collect()),
        Tensor::Bool(array) => (DataType::BOOL, array.iter().map(|&x| u8::from(x)).collect()),
        Tensor::I8(array) => (DataType::INT8, array.iter().map(|&x| x.cast_unsigned()).collect()),
        Tensor::U8(array) => (DataType::UINT8, array.iter().copied().collect()),
    };
    raw(name, data_type, &tensor.shape().iter().map(|&extent| extent as i64).collect::<Vec<_>>(), bytes)
}

pub fn raw(name: &str, data_type: DataType, dims: &[i64], bytes: Vec<u8>) -> TensorProto {
    TensorProto {
        dims: dims.to_vec(),
        data_type: Some(data_type),
        raw_data: Some(RefCell::new(bytes)),
        name: Some(name.into()),
        ..Default::default()
    }
}

fn attribute(name: &str, r#type: AttributeType) -> AttributeProto {
    AttributeProto { name: Some(name.into()), r#type: Some(r#type), ..Default::default() }
}

pub fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i: Some(i), ..attribute(name, AttributeType::INT) }
}

pub fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name, AttributeType::INTS) }
}

pub fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { f: Some(f), ..attribute(name, AttributeType::FLOAT) }
}

pub fn floats(name: &str, floats: &[f32]) -> AttributeProto {
    AttributeProto { floats: floats.to_vec(), ..attribute(name, AttributeType::FLOATS) }
}

pub fn word(name: &str, s: &str) -> AttributeProto {
    AttributeProto { s: Some(s.into()), ..attribute(name, AttributeType::STRING) }
}

pub fn tensor(name: &str, t: TensorProto) -> AttributeProto {
    AttributeProto { t: Some(t), ..attribute(name, AttributeType::TENSOR) }
}

pub fn subgraph(name: &str, g: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(g), ..attribute(name, AttributeType::GRAPH) }
}

/// Imports a tensor message.
pub fn tensor_of(mut proto: TensorProto) -> Result<Tensor, ImportError> {
    proto.name = Some("tensor".into());
    let mut model = Model::new(13).output("tensor");
    model.graph().initializer.push(proto);
    Ok(model.import()?.evaluate(&[]).unwrap().remove(0))
}

pub fn f32s(shape: &[usize], elements: &[f32]) -> Tensor {
    Tensor::f32(shape, elements.to_vec()).unwrap()
}

pub fn i64s(elements: &[i64]) -> Tensor {
    Tensor::i64(&[elements.len()], elements.to_vec()).unwrap()
}

/// Returns a tensor of 0, 1, 2 and so on.
pub fn counted(shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    Tensor::f32(shape, (0..count).map(|index| index as f32).collect()).unwrap()
}

/// Describes the first element that differs by more than the tolerances, if any.
pub fn difference(found: &Tensor, expected: &Tensor, relative: f32, absolute: f32) -> Option<String> {
    if (found.shape(), found.dtype()) != (expected.shape(), expected.dtype()) {
        let text = |tensor: &Tensor| format!("{} {:?}", tensor.dtype(), tensor.shape());
        return Some(format!("{}, where {} is expected", text(found), text(expected)));
    }
    let (Some(found_floats), Some(expected_floats)) = (found.as_f32(), expected.as_f32()) else {
        return (found != expected).then(|| "other integers or truth values".into());
    };
    let is_near = |a: f32, b: f32| a == b || (a - b).abs() <= absolute + relative * b.abs() || a.is_nan() && b.is_nan();
    let wrong = found_floats.iter().zip(expected_floats).find(|&(&a, &b)| !is_near(a, b));
    wrong.map(|(a, b)| format!("{a}, where {b} is expected"))
}

/// Fails unless the elements of a tensor are these numbers, up to rounding.
pub fn assert_near(found: &Tensor, wanted: &[f32]) {
    let found = found.to_numbers();
    assert_eq!(found.len(), wanted.len());
    for (at, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!((found - wanted).abs() <= 4e-6 * wanted.abs().max(1.0), "at {at}: {found}, not {wanted}");
    }
}
