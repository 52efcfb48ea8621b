//! From a graph to the messages of a file.

use std::cell::RefCell;
use std::collections::HashSet;

use rten_onnx::onnx::{
    AttributeProto, DataType, Dimension, GraphProto, NodeProto, OperatorSetIdProto, TensorProto, TensorShapeProto,
    TypeProto, TypeProtoTensor, ValueInfoProto,
};

use rten_onnx::protobuf::{EncodeMessage, MessageWriter, ProtobufError, ValueWriter, WriteValue};

use super::ExportError;
use crate::graph::{Graph, Node, NodeId};
use crate::tensor::{Element, Tensor};

mod attribute;
mod operators;

/// Version of the operators that is written: the first whose group normalisation has numbers for each channel.
pub(super) const VERSION: i64 = 21;

/// Version of the format that goes with it.
const IR_VERSION: i64 = 10;

/// A model, with the name of its graph: a file without is not valid, but the message of the parser has none.
pub(super) struct Model<'a> {
    name: &'a str,
    graph: GraphProto,
}

impl Model<'_> {
    /// The bytes of a file.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, ProtobufError> {
        let mut bytes = Vec::with_capacity(self.encoded_len()? as usize);
        self.encode(ValueWriter::new(&mut bytes))?;
        Ok(bytes)
    }
}

/// A graph and its name.
struct Named<'a>(&'a str, &'a GraphProto);

impl EncodeMessage for Model<'_> {
    fn encode_fields<W: WriteValue>(&self, fields: &mut MessageWriter<W>) -> Result<(), ProtobufError> {
        const IR_VERSION_FIELD: u64 = 1;
        const PRODUCER_NAME: u64 = 2;
        const GRAPH: u64 = 7;
        const OPSET_IMPORT: u64 = 8;

        let opset = OperatorSetIdProto { domain: Some(String::new()), version: Some(VERSION) };
        fields.write_int64(IR_VERSION_FIELD, IR_VERSION)?;
        fields.write_string(PRODUCER_NAME, "autotune")?;
        fields.write_message(GRAPH, &Named(self.name, &self.graph))?;
        fields.write_message(OPSET_IMPORT, &opset)
    }
}

impl EncodeMessage for Named<'_> {
    fn encode_fields<W: WriteValue>(&self, fields: &mut MessageWriter<W>) -> Result<(), ProtobufError> {
        const NAME: u64 = 2;
        fields.write_string(NAME, if self.0.is_empty() { "graph" } else { self.0 })?;
        self.1.encode_fields(fields)
    }
}

/// The model of a graph.
pub(super) fn model(graph: &Graph) -> Result<Model<'_>, ExportError> {
    let (names, taken) = names(graph)?;
    let mut export = Export { graph, names, taken, written: GraphProto::default(), made: 0 };
    for (id, node) in graph.nodes() {
        operators::write(&mut export, id, node)?;
    }
    for output in graph.outputs() {
        export.output(&output.name, output.node);
    }

    Ok(Model { name: graph.name(), graph: export.written })
}

/// The name of every node's tensor: that of an input, of an output, or a number; and all names.
fn names(graph: &Graph) -> Result<(Vec<String>, HashSet<String>), ExportError> {
    let mut names: Vec<Option<String>> = vec![None; graph.nodes().len()];
    let mut taken = HashSet::new();
    for &id in graph.inputs() {
        let name = &graph.node(id).name;
        taken.insert(name.clone());
        names[id.0 as usize] = Some(name.clone());
    }
    for output in graph.outputs() {
        let own = &mut names[output.node.0 as usize];
        if own.as_ref() == Some(&output.name) {
            continue;
        }
        if output.name.is_empty() || !taken.insert(output.name.clone()) {
            return Err(ExportError::Name { output: output.name.clone() });
        }
        own.get_or_insert_with(|| output.name.clone());
    }

    let numbered = |(id, name): (usize, Option<String>)| name.unwrap_or_else(|| free(&mut taken, format!("t{id}")));
    let names = names.into_iter().enumerate().map(numbered).collect();
    Ok((names, taken))
}

/// A name that is not taken yet; it is now.
fn free(taken: &mut HashSet<String>, mut name: String) -> String {
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

struct Export<'a> {
    graph: &'a Graph,
    /// Of the tensors of nodes.
    names: Vec<String>,
    /// All names of tensors.
    taken: HashSet<String>,
    written: GraphProto,
    /// Tensors between the nodes that one operation becomes.
    made: usize,
}

impl Export<'_> {
    fn name(&self, id: NodeId) -> String {
        self.names[id.0 as usize].clone()
    }

    fn operands(&self, node: &Node) -> Vec<String> {
        node.operands.iter().map(|&id| self.name(id)).collect()
    }

    /// A name for what is between the operators that a node becomes.
    fn fresh(&mut self, id: NodeId) -> String {
        self.made += 1;
        free(&mut self.taken, format!("{}.{}", self.names[id.0 as usize], self.made))
    }

    fn node(&mut self, operator: &str, inputs: Vec<String>, output: &str, attribute: Vec<AttributeProto>) {
        self.written.node.push(NodeProto {
            name: Some(format!("{output}/{operator}")),
            op_type: Some(operator.into()),
            input: inputs,
            output: vec![output.into()],
            attribute,
            domain: None,
        });
    }

    fn input(&mut self, id: NodeId, node: &Node) {
        self.written.input.push(info(&self.names[id.0 as usize], node));
    }

    /// A tensor of an output's name: the node's own, unless that is called otherwise.
    fn output(&mut self, name: &str, id: NodeId) {
        let own = self.name(id);
        if own != name {
            self.node("Identity", vec![own], name, Vec::new());
        }
        let info = info(name, self.graph.node(id));
        self.written.output.push(info);
    }

    fn constant(&mut self, name: String, tensor: &Tensor) -> String {
        let (data_type, bytes) = match tensor {
            Tensor::F32(array) => (DataType::FLOAT, array.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Tensor::I64(array) => (DataType::INT64, array.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Tensor::Bool(array) => (DataType::BOOL, array.iter().map(|&x| u8::from(x)).collect()),
        };
        self.written.initializer.push(TensorProto {
            dims: tensor.shape().iter().map(|&extent| extent as i64).collect(),
            data_type: Some(data_type),
            raw_data: Some(RefCell::new(bytes)),
            name: Some(name.clone()),
            ..TensorProto::default()
        });
        name
    }
}

fn info(name: &str, node: &Node) -> ValueInfoProto {
    let extent = |&extent: &usize| Dimension { dim_value: Some(extent as i64), dim_param: None };
    let shape = Some(TensorShapeProto { dim: node.shape.iter().map(extent).collect() });
    let tensor = TypeProtoTensor { elem_type: Some(data_type(node.element)), shape };
    ValueInfoProto { name: Some(name.into()), r#type: Some(TypeProto { tensor_type: Some(tensor), sequence: None }) }
}

fn data_type(element: Element) -> DataType {
    match element {
        Element::F32 => DataType::FLOAT,
        Element::I64 => DataType::INT64,
        Element::Bool => DataType::BOOL,
    }
}
