//! A node of a file while it becomes nodes of a graph.

use std::cell::RefCell;
use std::sync::Arc;

use autotune_ir::DType;
use rten_onnx::onnx::{AttributeProto, AttributeType, NodeProto};

use super::draft::Draft;
use super::error::{NodeError, unfit};
use super::file::ModelFile;
use super::tensor::{self, number};
use crate::constant::Constant;
use crate::op::Op;
use crate::tensor::Tensor;
use crate::text::{listed, printable};

pub use super::draft::Value;

/// What is made of a node, or why it cannot be.
pub type Result<T> = std::result::Result<T, NodeError>;

/// A node of a file, what it is given, and the graph that it goes into.
pub struct Call<'a> {
    pub(crate) draft: &'a mut Draft,
    file: &'a ModelFile<'a>,
    /// Version of the operators.
    pub version: i64,
    /// What new nodes are called.
    pub name: &'a str,
    node: &'a NodeProto,
    operands: Vec<Option<Value>>,
    /// Attributes that nothing has asked for: they would be ignored.
    unread: RefCell<Vec<&'a str>>,
}

// What the node is given.
impl<'a> Call<'a> {
    pub(super) fn new(
        draft: &'a mut Draft,
        file: &'a ModelFile<'a>,
        version: i64,
        name: &'a str,
        node: &'a NodeProto,
        operands: Vec<Option<Value>>,
    ) -> Result<Self> {
        let mut names: Vec<&str> = node.attribute.iter().map(|a| a.name.as_deref().unwrap_or_default()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(attribute(twice[0], "it is there twice"));
        }
        Ok(Self { draft, file, version, name, node, operands, unread: RefCell::new(names) })
    }

    /// Attributes that were not asked for are an error: what they say would be ignored.
    pub(super) fn check_all_read(&self) -> Result<()> {
        match self.unread.borrow().first() {
            Some(name) => Err(attribute(name, "it is not supported")),
            None => Ok(()),
        }
    }

    /// Whether it is a node of some operator.
    pub fn is(&self, operator: &str) -> bool {
        self.node.op_type.as_deref() == Some(operator)
    }

    /// Whether an input is left out or has no elements.
    pub fn is_empty(&self, input: usize) -> bool {
        self.optional(input).is_none_or(|value| self.draft.shape(value).contains(&0))
    }

    /// How many inputs are named, those left out between others included.
    pub fn count(&self) -> usize {
        self.operands.len()
    }

    /// An input, unless it is left out.
    pub fn optional(&self, input: usize) -> Option<Value> {
        self.operands.get(input).copied().flatten()
    }

    /// An input that is there.
    pub fn operand(&self, input: usize) -> Result<Value> {
        self.optional(input).ok_or_else(|| NodeError::Input { input, reason: "it is missing".into() })
    }

    /// All inputs; none may be left out.
    pub fn operands(&self) -> Result<Vec<Value>> {
        (0..self.count()).map(|input| self.operand(input)).collect()
    }

    /// Has others stand for the inputs, for an operator on what was made of them, and returns those
    /// before.
    pub(crate) fn given(&mut self, operands: Vec<Option<Value>>) -> Vec<Option<Value>> {
        std::mem::replace(&mut self.operands, operands)
    }

    /// The only input.
    pub fn only(&self) -> Result<Value> {
        self.check_most(1)?;
        self.operand(0)
    }

    /// Fails if there are more inputs.
    pub fn check_most(&self, most: usize) -> Result<()> {
        match self.count() > most {
            true => unfit(format!("{} inputs, where {most} at most are supported", self.count())),
            false => Ok(()),
        }
    }

    /// The tensor of an input that has to be known before the network runs.
    pub fn known(&self, input: usize) -> Result<Option<Arc<Tensor>>> {
        let Some(value) = self.optional(input) else { return Ok(None) };
        let unknown = || NodeError::Input { input, reason: "it is not known before the network runs".into() };
        Ok(Some(Arc::clone(self.draft.constant_of(value).ok_or_else(unknown)?.tensor()?)))
    }

    /// The integers of an input that has to be known.
    pub fn known_integers(&self, input: usize) -> Result<Option<Vec<i64>>> {
        let Some(tensor) = self.known(input)? else { return Ok(None) };
        let wrong = || NodeError::Input { input, reason: "it is not of integers".into() };
        Ok(Some(tensor.as_i64().ok_or_else(wrong)?.iter().copied().collect()))
    }

    /// The floating-point numbers of an input that has to be known.
    pub fn known_floats(&self, input: usize) -> Result<Option<Vec<f32>>> {
        let Some(tensor) = self.known(input)? else { return Ok(None) };
        let wrong = || NodeError::Input { input, reason: "it is not of floating-point numbers".into() };
        Ok(Some(tensor.as_f32().ok_or_else(wrong)?.iter().copied().collect()))
    }

    /// The one number of an input that has to be known, of whatever type.
    pub fn known_number(&self, input: usize) -> Result<Option<f32>> {
        match self.known(input)? {
            Some(tensor) => match number(&tensor) {
                Some(number) => Ok(Some(number)),
                None => Err(NodeError::Input { input, reason: "it is not one number".into() }),
            },
            None => Ok(None),
        }
    }

    fn attribute(&self, name: &'static str, wanted: AttributeType) -> Result<Option<&'a AttributeProto>> {
        self.unread.borrow_mut().retain(|unread| *unread != name);
        let found = self.node.attribute.iter().find(|attribute| attribute.name.as_deref() == Some(name));
        match found {
            Some(found) if found.r#type.is_some_and(|r#type| r#type != wanted) => {
                Err(attribute(name, "it is of another type than the operator has"))
            }
            found => Ok(found),
        }
    }

    /// An attribute of one integer.
    pub fn int(&self, name: &'static str) -> Result<Option<i64>> {
        Ok(self.attribute(name, AttributeType::INT)?.map(|attribute| attribute.i.unwrap_or_default()))
    }

    /// The same, or what it is without the attribute.
    pub fn int_or(&self, name: &'static str, default: i64) -> Result<i64> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// An attribute that is true or false.
    pub fn flag(&self, name: &'static str, default: bool) -> Result<bool> {
        Ok(self.int_or(name, default.into())? != 0)
    }

    /// An attribute of one number.
    pub fn float(&self, name: &'static str) -> Result<Option<f32>> {
        Ok(self.attribute(name, AttributeType::FLOAT)?.map(|attribute| attribute.f.unwrap_or_default()))
    }

    /// The same, or what it is without the attribute.
    pub fn float_or(&self, name: &'static str, default: f32) -> Result<f32> {
        Ok(self.float(name)?.unwrap_or(default))
    }

    /// An attribute of several integers.
    pub fn ints(&self, name: &'static str) -> Result<Option<&'a [i64]>> {
        Ok(self.attribute(name, AttributeType::INTS)?.map(|attribute| &*attribute.ints))
    }

    /// An attribute of several numbers.
    pub fn floats(&self, name: &'static str) -> Result<Option<&'a [f32]>> {
        Ok(self.attribute(name, AttributeType::FLOATS)?.map(|attribute| &*attribute.floats))
    }

    /// Extents, distances or the like, which are not negative.
    pub fn extents(&self, name: &'static str) -> Result<Option<Vec<usize>>> {
        let Some(ints) = self.ints(name)? else { return Ok(None) };
        let extents: Option<Vec<usize>> = ints.iter().map(|&extent| usize::try_from(extent).ok()).collect();
        extents.map(Some).ok_or_else(|| attribute(name, "a number is negative"))
    }

    /// An attribute of several words.
    pub fn words(&self, name: &'static str) -> Result<Option<Vec<&'a str>>> {
        let found = self.attribute(name, AttributeType::STRINGS)?;
        Ok(found.map(|attribute| attribute.strings.iter().map(|word| &**word).collect()))
    }

    /// An attribute of a word, or what it is without.
    pub fn word_or(&self, name: &'static str, default: &'static str) -> Result<&'a str> {
        Ok(self.attribute(name, AttributeType::STRING)?.map_or(default, |found| found.s.as_deref().unwrap_or_default()))
    }

    /// An attribute of a tensor.
    pub fn tensor(&self, name: &'static str) -> Result<Option<Constant>> {
        let found = self.attribute(name, AttributeType::TENSOR)?.and_then(|attribute| attribute.t.as_ref());
        let read = |proto| tensor::read(proto, self.file).map_err(|reason| attribute(name, reason));
        found.map(read).transpose()
    }

    /// Attributes that do not matter, whatever they say.
    pub fn ignore(&self, names: &[&str]) {
        self.unread.borrow_mut().retain(|unread| !names.contains(unread));
    }

    /// A number that was an attribute before some version of the operators and an input since.
    pub fn integers(&self, name: &'static str, input: usize, since: i64) -> Result<Option<Vec<i64>>> {
        match self.version < since {
            true => Ok(self.ints(name)?.map(<[i64]>::to_vec)),
            false => self.known_integers(input),
        }
    }
}

// What the node becomes.
impl Call<'_> {
    /// The shape of a value.
    pub fn shape(&self, value: Value) -> Vec<usize> {
        self.draft.shape(value).to_vec()
    }

    /// How many axes a value has.
    pub fn rank(&self, value: Value) -> usize {
        self.draft.shape(value).len()
    }

    /// The constant, if a value is the same in all runs.
    pub fn constant_of(&self, value: Value) -> Option<&Constant> {
        self.draft.constant_of(value)
    }

    /// The number of a constant of one element.
    pub fn number_of(&self, value: Value) -> Option<f32> {
        self.draft.number(value)
    }

    /// The type of the elements of a value.
    pub fn dtype(&self, value: Value) -> DType {
        self.draft.dtype(value)
    }

    /// What an operator makes of values: a constant, if they all are.
    pub fn add(&mut self, op: impl Into<Op>, operands: &[Value]) -> Result<Value> {
        Ok(self.draft.add(self.name, op.into(), operands)?)
    }

    /// A value that is the same in all runs.
    pub fn constant(&mut self, constant: impl Into<Constant>) -> Value {
        self.draft.constant(self.name, constant)
    }

    /// A number without axes, of the type of a value.
    pub fn number(&mut self, number: f32, like: Value) -> Result<Value> {
        let tensor = match self.dtype(like) {
            DType::I64 => Tensor::i64(&[], vec![number as i64])?,
            _ => Tensor::scalar(number),
        };
        Ok(self.constant(tensor))
    }
}

/// What is wrong with an attribute.
pub fn attribute(name: &str, reason: impl Into<String>) -> NodeError {
    NodeError::Attribute { attribute: printable(name), reason: reason.into() }
}

/// An axis of a tensor; negative ones count from the end.
pub fn axis(axis: i64, rank: usize) -> Result<usize> {
    let counted = if axis < 0 { axis.checked_add_unsigned(rank as u64) } else { Some(axis) };
    let found = counted.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < rank);
    found.ok_or_else(|| NodeError::Unfit(format!("axis {axis} of a tensor of {rank} axes")))
}

/// Axes of a tensor in order, none twice.
pub fn axes(numbers: &[i64], rank: usize) -> Result<Vec<usize>> {
    let axes: Result<Vec<usize>> = numbers.iter().map(|&number| axis(number, rank)).collect();
    let mut axes = axes?;
    axes.sort_unstable();
    match axes.windows(2).all(|pair| pair[0] < pair[1]) {
        true => Ok(axes),
        false => unfit(format!("axes {:?} have one twice", listed(numbers))),
    }
}
