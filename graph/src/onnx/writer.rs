//! A node while it becomes nodes of a file.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

use rten_onnx::onnx::{DataType, GraphProto, NodeProto, TensorProto};

use super::attribute::Attribute;
use super::error::ExportError;
use crate::tensor::{Facts, Tensor};

/// A graph of a file while it is written.
#[derive(Default)]
pub(super) struct Written {
    pub(super) graph: GraphProto,
    /// All names of tensors.
    pub(super) taken: HashSet<String>,
    /// Sets of operators other than that of ONNX, with their versions.
    pub(super) domains: BTreeMap<String, i64>,
    /// Tensors between the nodes that one node of the graph becomes.
    pub(super) made: usize,
}

impl Written {
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
        let (data_type, bytes) = match tensor {
            Tensor::F32(array) => (DataType::FLOAT, array.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Tensor::I64(array) => (DataType::INT64, array.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Tensor::Bool(array) => (DataType::BOOL, array.iter().map(|&x| u8::from(x)).collect()),
            Tensor::I8(array) => (DataType::INT8, array.iter().map(|&x| x.cast_unsigned()).collect()),
            Tensor::U8(array) => (DataType::UINT8, array.iter().copied().collect()),
        };
        self.graph.initializer.push(TensorProto {
            dims: tensor.shape().iter().map(|&extent| extent as i64).collect(),
            data_type: Some(data_type),
            raw_data: Some(RefCell::new(bytes)),
            name: Some(name.clone()),
            ..TensorProto::default()
        });
        name
    }
}

/// A name that is not taken yet; it is now.
pub(super) fn free(taken: &mut HashSet<String>, mut name: String) -> String {
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// A node of a graph while it becomes nodes of a file, of which the last has its tensor.
pub struct Writer<'a> {
    pub(super) file: &'a mut Written,
    /// The node's name and operator, for messages.
    pub(super) node: (&'a str, &'static str),
    /// Names of what it is given.
    pub(super) inputs: Vec<String>,
    pub(super) operands: Vec<Facts<'a>>,
    /// The name of its tensor.
    pub(super) output: &'a str,
    pub(super) shape: &'a [usize],
    pub(super) domain: Option<&'static str>,
}

impl<'a> Writer<'a> {
    /// Returns the names of the operands.
    pub fn inputs(&self) -> Vec<String> {
        self.inputs.clone()
    }

    /// Returns the name of an operand.
    pub fn input(&self, operand: usize) -> String {
        self.inputs[operand].clone()
    }

    /// Returns shape and element type of an operand.
    pub fn operand(&self, operand: usize) -> Facts<'a> {
        self.operands[operand]
    }

    /// Returns the shape of the node's tensor.
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Has the nodes that are written from here on be of another set of operators than that of
    /// ONNX.
    pub fn in_domain(&mut self, domain: &'static str, version: i64) {
        self.file.domains.insert(domain.into(), version);
        self.domain = Some(domain);
    }

    /// Writes the operator that makes the node's tensor of all operands.
    pub fn operator(&mut self, operator: &str, attributes: Vec<Attribute>) -> Result<(), ExportError> {
        self.file.node((self.domain, operator), self.inputs.clone(), self.output, attributes);
        Ok(())
    }

    /// Writes the operator that makes the node's tensor; an input of an empty name is left out.
    pub fn node(&mut self, operator: &str, inputs: &[&String], attributes: Vec<Attribute>) -> Result<(), ExportError> {
        self.file.node((self.domain, operator), owned(inputs), self.output, attributes);
        Ok(())
    }

    /// Writes an operator in front of it, and returns the name of what that makes.
    pub fn between(&mut self, operator: &str, inputs: &[&String], attributes: Vec<Attribute>) -> String {
        let output = self.fresh();
        self.file.node((self.domain, operator), owned(inputs), &output, attributes);
        output
    }

    /// Writes operators one behind the other, from the first operand to the node's tensor.
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

    /// Returns why the node cannot be written.
    pub fn wrong(&self, reason: impl Into<String>) -> ExportError {
        let (node, op) = self.node;
        ExportError::Node { node: node.into(), op, reason: reason.into() }
    }

    /// A name for what is between the operators that the node becomes.
    fn fresh(&mut self) -> String {
        self.file.made += 1;
        free(&mut self.file.taken, format!("{}.{}", self.output, self.file.made))
    }
}

fn owned(names: &[&String]) -> Vec<String> {
    names.iter().map(|&name| name.clone()).collect()
}
