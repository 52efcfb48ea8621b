//! Interface for exporting a graph's node to ONNX.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

use rten_onnx::onnx::{DataType, GraphProto, NodeProto, TensorProto};

use super::attribute::Attribute;
use super::error::ExportError;
use crate::tensor::{Facts, Tensor};

/// An ONNX graph under construction.
#[derive(Default)]
pub(super) struct GraphWriter {
    pub(super) graph: GraphProto,
    /// Names of all tensors.
    pub(super) used_names: HashSet<String>,
    /// Versions of opsets other than ONNX's own, by domain.
    pub(super) domains: BTreeMap<String, i64>,
    /// Number of intermediate tensors so far, for their names.
    pub(super) made: usize,
}

impl GraphWriter {
    pub(super) fn node(
        &mut self,
        (domain, operator): (Option<&str>, &str),
        input: Vec<String>,
        output: &str,
        attributes: Vec<Attribute>,
    ) {
        self.graph.node.push(NodeProto {
            name: Some(format!("{output}/{operator}")),
            op_type: Some(operator.into()),
            input,
            output: vec![output.into()],
            attribute: attributes.into_iter().map(|attribute| attribute.0).collect(),
            domain: domain.map(String::from),
        });
    }

    pub(super) fn constant(&mut self, name: String, tensor: &Tensor) -> String {
        // ONNX stores raw data little-endian, and a boolean as one byte.
        let (data_type, bytes) = match tensor {
            Tensor::F32(array) => (DataType::FLOAT, array.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Tensor::I64(array) => (DataType::INT64, array.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Tensor::Bool(array) => (DataType::BOOL, array.iter().map(|&x| u8::from(x)).collect()),
            Tensor::I8(array) => (DataType::INT8, array.iter().map(|&x| x.cast_unsigned()).collect()),
            Tensor::U8(array) => (DataType::UINT8, array.iter().copied().collect()),
        };
        self.raw(&name, tensor.shape(), data_type, bytes);
        name
    }

    /// Writes integers of 32 bits as a constant.
    pub(super) fn integers(&mut self, name: &str, shape: &[usize], integers: &[i32]) {
        let bytes = integers.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.raw(name, shape, DataType::INT32, bytes);
    }

    fn raw(&mut self, name: &str, shape: &[usize], data_type: DataType, bytes: Vec<u8>) {
        self.graph.initializer.push(TensorProto {
            dims: shape.iter().map(|&extent| extent as i64).collect(),
            data_type: Some(data_type),
            raw_data: Some(RefCell::new(bytes)),
            name: Some(name.into()),
            ..TensorProto::default()
        });
    }
}

/// Reserves and returns an unused name that starts with `name`.
pub(super) fn unused_name(taken: &mut HashSet<String>, mut name: String) -> String {
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// A node during export. It becomes one or more ONNX nodes, the last of which computes its tensor.
pub struct NodeWriter<'a> {
    pub(super) file: &'a mut GraphWriter,
    /// Name and operator of the node, for messages.
    pub(super) node: (&'a str, &'static str),
    /// Names of the operands.
    pub(super) inputs: Vec<String>,
    pub(super) operands: Vec<Facts<'a>>,
    /// Name of the node's tensor.
    pub(super) output: &'a str,
    pub(super) shape: &'a [usize],
    pub(super) domain: Option<&'static str>,
}

impl<'a> NodeWriter<'a> {
    /// Returns the names of the operands.
    pub fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    /// Returns the name of an operand.
    pub fn input(&self, operand: usize) -> String {
        self.inputs[operand].clone()
    }

    /// Returns an operand's shape and element type.
    pub fn operand(&self, operand: usize) -> Facts<'a> {
        self.operands[operand]
    }

    /// Returns the shape of the node's tensor.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Sets the opset of the nodes that are written from here on to one other than ONNX's own.
    pub fn in_domain(&mut self, domain: &'static str, version: i64) {
        self.file.domains.insert(domain.into(), version);
        self.domain = Some(domain);
    }

    /// Writes the final operator, whose inputs are all operands.
    pub fn operator(&mut self, operator: &str, attributes: Vec<Attribute>) -> Result<(), ExportError> {
        self.file.node((self.domain, operator), self.inputs.clone(), self.output, attributes);
        Ok(())
    }

    /// Writes the final operator, which computes the node's tensor; an empty input name means that
    /// the input is absent.
    pub fn node(&mut self, operator: &str, inputs: &[&String], attributes: Vec<Attribute>) -> Result<(), ExportError> {
        self.file.node((self.domain, operator), owned(inputs), self.output, attributes);
        Ok(())
    }

    /// Writes the final operator, whose output with this number is the node's tensor; nothing reads
    /// the outputs before it.
    pub fn node_with_output(
        &mut self,
        operator: &str,
        inputs: &[&String],
        attributes: Vec<Attribute>,
        number: usize,
    ) -> Result<(), ExportError> {
        let unread: Vec<String> = (0..number).map(|_| self.fresh()).collect();
        self.node(operator, inputs, attributes)?;
        if let Some(node) = self.file.graph.node.last_mut() {
            node.output.splice(0..0, unread);
        }
        Ok(())
    }

    /// Writes an intermediate operator, and returns its output's name.
    pub fn between(&mut self, operator: &str, inputs: &[&String], attributes: Vec<Attribute>) -> String {
        let output = self.fresh();
        self.file.node((self.domain, operator), owned(inputs), &output, attributes);
        output
    }

    /// Writes a chain of unary operators from the first operand to the node's tensor.
    pub fn chain(&mut self, operators: &[(&str, Vec<Attribute>)]) -> Result<(), ExportError> {
        let Some(((last, attributes), before)) = operators.split_last() else { return Ok(()) };
        let mut input = self.input(0);
        for (operator, attributes) in before {
            input = self.between(operator, &[&input], attributes.clone());
        }
        self.node(last, &[&input], attributes.clone())
    }

    /// Writes a list of integers as a constant, and returns its name.
    pub fn integers(&mut self, numbers: impl IntoIterator<Item = i64>) -> Result<String, ExportError> {
        let numbers: Vec<i64> = numbers.into_iter().collect();
        let tensor = Tensor::i64(&[numbers.len()], numbers).map_err(|source| self.wrong(source.to_string()))?;
        Ok(self.constant(&tensor))
    }

    /// Writes a number as a constant, and returns its name.
    pub fn number(&mut self, number: f32) -> String {
        self.constant(&Tensor::scalar(number))
    }

    /// Writes a constant, and returns its name.
    pub fn constant(&mut self, tensor: &Tensor) -> String {
        let name = self.fresh();
        self.file.constant(name, tensor)
    }

    /// Returns an error about the node.
    pub fn wrong(&self, reason: impl Into<String>) -> ExportError {
        let (node, op) = self.node;
        ExportError::Node { node: node.into(), op, reason: reason.into() }
    }

    /// Returns a new name for an intermediate tensor.
    fn fresh(&mut self) -> String {
        self.file.made += 1;
        unused_name(&mut self.file.used_names, format!("{}.{}", self.output, self.file.made))
    }
}

fn owned(names: &[&String]) -> Vec<String> {
    names.iter().map(|&name| name.clone()).collect()
}
