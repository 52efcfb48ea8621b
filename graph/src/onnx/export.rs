//! Export of a graph as ONNX messages.

use std::collections::{BTreeMap, HashSet};

use rten_onnx::onnx::{
    Dimension, GraphProto, OperatorSetIdProto, TensorShapeProto, TypeProto, TypeProtoTensor, ValueInfoProto,
};
use rten_onnx::protobuf::{EncodeMessage, MessageWriter, ProtobufError, ValueWriter, WriteValue};

use super::attribute::data_type;
use super::bias::integer_biases;
use super::error::ExportError;
use super::writer::{GraphWriter, NodeWriter, unused_name};
use crate::graph::{Graph, GraphNode, Input, NodeId};

/// Opset version of exported files: the first whose group normalisation has a scale for each
/// channel.
pub(super) const VERSION: i64 = 21;

/// Version of the file format that belongs to the opset.
const IR_VERSION: i64 = 10;

/// A model with the name of its graph. A valid file needs the name, but the parser's message type
/// lacks it.
pub(super) struct ExportedModel<'a> {
    name: &'a str,
    graph: GraphProto,
    /// Versions of opsets other than ONNX's own, by domain.
    domains: BTreeMap<String, i64>,
}

impl ExportedModel<'_> {
    /// Encodes the model as the bytes of a file.
    pub(super) fn bytes(&self) -> Result<Vec<u8>, ProtobufError> {
        let mut bytes = Vec::with_capacity(self.encoded_len()? as usize);
        self.encode(ValueWriter::new(&mut bytes))?;
        Ok(bytes)
    }
}

/// A graph with its name.
struct NamedGraph<'a>(&'a str, &'a GraphProto);

impl EncodeMessage for ExportedModel<'_> {
    fn encode_fields<W: WriteValue>(&self, fields: &mut MessageWriter<W>) -> Result<(), ProtobufError> {
        const IR_VERSION_FIELD: u64 = 1;
        const PRODUCER_NAME: u64 = 2;
        const GRAPH: u64 = 7;
        const OPSET_IMPORT: u64 = 8;

        fields.write_int64(IR_VERSION_FIELD, IR_VERSION)?;
        fields.write_string(PRODUCER_NAME, "autotune")?;
        fields.write_message(GRAPH, &NamedGraph(self.name, &self.graph))?;
        let own = [(String::new(), VERSION)];
        for (domain, version) in own.into_iter().chain(self.domains.clone()) {
            let opset = OperatorSetIdProto { domain: Some(domain), version: Some(version) };
            fields.write_message(OPSET_IMPORT, &opset)?;
        }
        Ok(())
    }
}

impl EncodeMessage for NamedGraph<'_> {
    fn encode_fields<W: WriteValue>(&self, fields: &mut MessageWriter<W>) -> Result<(), ProtobufError> {
        const NAME: u64 = 2;
        fields.write_string(NAME, if self.0.is_empty() { "graph" } else { self.0 })?;
        self.1.encode_fields(fields)
    }
}

/// Converts a graph to a model.
pub(super) fn model(graph: &Graph) -> Result<ExportedModel<'_>, ExportError> {
    let (names, used_names) = names(graph)?;
    let mut file = GraphWriter { used_names, ..GraphWriter::default() };
    let biases = integer_biases(graph);
    for (id, _) in graph.nodes() {
        match biases.get(&id) {
            Some(bias) => bias.write(&mut file, graph.node(id), &names[id.0 as usize]),
            None => write(&mut file, graph, id, &names)?,
        }
    }
    for output in graph.outputs() {
        // The output's node has this name already, unless another output or input took it.
        let own = &names[output.node.0 as usize];
        if *own != output.name {
            file.node((None, "Identity"), vec![own.clone()], &output.name, Vec::new());
        }
        file.graph.output.push(info(&output.name, graph.node(output.node)));
    }

    Ok(ExportedModel { name: graph.name(), graph: file.graph, domains: file.domains })
}

/// Writes the ONNX nodes that compute a node's tensor.
fn write(file: &mut GraphWriter, graph: &Graph, id: NodeId, names: &[String]) -> Result<(), ExportError> {
    let (node, output) = (graph.node(id), &names[id.0 as usize]);
    if node.op.is::<Input>() {
        file.graph.input.push(info(output, node));
        return Ok(());
    }

    let inputs = node.operands.iter().map(|operand| names[operand.0 as usize].clone()).collect();
    let (operands, called) = (graph.facts(&node.operands), (&*node.name, node.op.name()));
    let mut to = NodeWriter { file, node: called, inputs, operands, output, shape: &node.shape, domain: None };
    match graph.constant_of(id) {
        Some(constant) => {
            let tensor = constant.read().map_err(|source| to.wrong(source.to_string()))?;
            to.file.constant(output.clone(), &tensor);
            Ok(())
        }
        None => node.op.export(&mut to),
    }
}

/// Returns the name of every node's tensor (of an input, an output, or a generated one) and the set
/// of all names.
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

    // Other tensors get numbers, since names of nodes need not be unique.
    let numbered =
        |(id, name): (usize, Option<String>)| name.unwrap_or_else(|| unused_name(&mut taken, format!("t{id}")));
    let names = names.into_iter().enumerate().map(numbered).collect();
    Ok((names, taken))
}

fn info(name: &str, node: &GraphNode) -> ValueInfoProto {
    let extent = |&extent: &usize| Dimension { dim_value: Some(extent as i64), dim_param: None };
    let shape = Some(TensorShapeProto { dim: node.shape.iter().map(extent).collect() });
    let tensor = TypeProtoTensor { elem_type: Some(data_type(node.dtype)), shape };
    ValueInfoProto { name: Some(name.into()), r#type: Some(TypeProto { tensor_type: Some(tensor), sequence: None }) }
}
