//! Interface between an ONNX node and the import of its operator.

use std::cell::RefCell;
use std::sync::Arc;

use autotune_ir::DType;
use rten_onnx::onnx::{AttributeProto, AttributeType, NodeProto};

use super::draft::GraphDraft;
use super::error::{NodeError, unfit};
use super::file::ModelFile;
use super::tensor::number;
use crate::constant::Constant;
use crate::op::Op;
use crate::tensor::Tensor;
use crate::text::{listed, printable};

pub use super::draft::ImportValue;

/// Result of importing a part of a node.
pub type Result<T> = std::result::Result<T, NodeError>;

/// An ONNX node during import, with its operands and the graph that it is added to.
pub struct Call<'a> {
    pub(crate) draft: &'a mut GraphDraft,
    file: &'a ModelFile<'a>,
    /// Opset version of the model.
    pub version: i64,
    /// Name for the nodes that the import adds.
    pub name: &'a str,
    node: &'a NodeProto,
    operands: Vec<Option<ImportValue>>,
    /// Attributes that the import has not read. Any left at the end is an error, as it would be
    /// ignored.
    unread: RefCell<Vec<&'a str>>,
}

// Inputs and attributes of the node.
impl<'a> Call<'a> {
    pub(super) fn new(
        draft: &'a mut GraphDraft,
        file: &'a ModelFile<'a>,
        version: i64,
        name: &'a str,
        node: &'a NodeProto,
        operands: Vec<Option<ImportValue>>,
    ) -> Result<Self> {
        let mut names: Vec<&str> = node.attribute.iter().map(|a| a.name.as_deref().unwrap_or_default()).collect();
        names.sort_unstable();
        // Reading an attribute finds the first of its name, so a second would be ignored.
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(attribute(twice[0], "occurs twice"));
        }
        Ok(Self { draft, file, version, name, node, operands, unread: RefCell::new(names) })
    }

    /// Fails if an attribute was not read, since its meaning would be ignored.
    pub(super) fn check_all_read(&self) -> Result<()> {
        match self.unread.borrow().first() {
            Some(name) => Err(attribute(name, "is not supported")),
            None => Ok(()),
        }
    }

    /// True if the node is of this operator.
    pub fn is(&self, operator: &str) -> bool {
        self.node.op_type.as_deref() == Some(operator)
    }

    /// True if the node names an output. Others are read by no node.
    pub fn names(&self, output: usize) -> bool {
        self.node.output.get(output).is_some_and(|name| !name.is_empty())
    }

    /// True if an input is absent or has no elements.
    pub fn is_empty(&self, input: usize) -> bool {
        self.optional(input).is_none_or(|value| self.draft.shape(value).contains(&0))
    }

    /// Returns the number of inputs, including absent ones between others.
    pub fn count(&self) -> usize {
        self.operands.len()
    }

    /// Returns an input, unless it is absent.
    pub fn optional(&self, input: usize) -> Option<ImportValue> {
        self.operands.get(input).copied().flatten()
    }

    /// Returns an input; fails if it is absent.
    pub fn operand(&self, input: usize) -> Result<ImportValue> {
        self.optional(input).ok_or_else(|| missing(input))
    }

    /// Returns all inputs; fails if any is absent.
    pub fn operands(&self) -> Result<Vec<ImportValue>> {
        (0..self.count()).map(|input| self.operand(input)).collect()
    }

    /// Replaces the node's inputs, so that another operator's import can read its results. Returns
    /// the previous inputs.
    pub(crate) fn given(&mut self, operands: Vec<Option<ImportValue>>) -> Vec<Option<ImportValue>> {
        std::mem::replace(&mut self.operands, operands)
    }

    /// Returns the only input; fails if there are several.
    pub fn only(&self) -> Result<ImportValue> {
        self.check_most(1)?;
        self.operand(0)
    }

    /// Fails if there are more than `most` inputs.
    pub fn check_most(&self, most: usize) -> Result<()> {
        match self.count() > most {
            true => unfit(format!("{} inputs; at most {most} are supported", self.count())),
            false => Ok(()),
        }
    }

    /// Returns the tensor of an input; fails if it is not known at import.
    pub fn known(&self, input: usize) -> Result<Option<Arc<Tensor>>> {
        let Some(value) = self.optional(input) else { return Ok(None) };
        let unknown = || NodeError::Unknown { input, advice: "" };
        Ok(Some(Arc::clone(self.draft.constant_of(value).ok_or_else(unknown)?.tensor()?)))
    }

    /// Returns the integers of an input; fails if it is not known at import.
    pub fn known_integers(&self, input: usize) -> Result<Option<Vec<i64>>> {
        let Some(tensor) = self.known(input)? else { return Ok(None) };
        let wrong = || NodeError::Input { input, reason: "is not integer".into() };
        Ok(Some(tensor.as_i64().ok_or_else(wrong)?.iter().copied().collect()))
    }

    /// Returns the single integer of an input; fails if it is not known at import.
    pub(crate) fn single_integer(&self, input: usize) -> Result<Option<i64>> {
        match self.known_integers(input)?.as_deref() {
            None => Ok(None),
            Some(&[number]) => Ok(Some(number)),
            Some(_) => Err(NodeError::Input { input, reason: "does not have exactly one element".into() }),
        }
    }

    /// Returns the single nonnegative integer of an input; fails if it is not known at import.
    pub(crate) fn length(&self, input: usize) -> Result<Option<usize>> {
        let wrong = || NodeError::Input { input, reason: "is negative".into() };
        self.single_integer(input)?.map(|number| usize::try_from(number).map_err(|_| wrong())).transpose()
    }

    /// Returns the floating-point numbers of an input; fails if it is not known at import.
    pub fn known_floats(&self, input: usize) -> Result<Option<Vec<f32>>> {
        let Some(tensor) = self.known(input)? else { return Ok(None) };
        let wrong = || NodeError::Input { input, reason: "is not floating-point".into() };
        Ok(Some(tensor.as_f32().ok_or_else(wrong)?.iter().copied().collect()))
    }

    /// Returns the single number of an input of any type; fails if it is not known at import.
    pub fn known_number(&self, input: usize) -> Result<Option<f32>> {
        match self.known(input)? {
            Some(tensor) => match number(&tensor) {
                Some(number) => Ok(Some(number)),
                None => Err(NodeError::Input { input, reason: "does not have exactly one element".into() }),
            },
            None => Ok(None),
        }
    }

    fn attribute(&self, name: &'static str, wanted: AttributeType) -> Result<Option<&'a AttributeProto>> {
        self.unread.borrow_mut().retain(|unread| *unread != name);
        let found = self.node.attribute.iter().find(|attribute| attribute.name.as_deref() == Some(name));
        match found {
            Some(found) if found.r#type.is_some_and(|r#type| r#type != wanted) => {
                Err(attribute(name, "has the wrong type for this operator"))
            }
            found => Ok(found),
        }
    }

    /// Returns an integer attribute.
    pub fn int(&self, name: &'static str) -> Result<Option<i64>> {
        Ok(self.attribute(name, AttributeType::INT)?.map(|attribute| attribute.i.unwrap_or_default()))
    }

    /// Returns an integer attribute, or `default` if it is absent.
    pub fn int_or(&self, name: &'static str, default: i64) -> Result<i64> {
        Ok(self.int(name)?.unwrap_or(default))
    }

    /// Returns a boolean attribute, or `default` if it is absent.
    pub fn flag(&self, name: &'static str, default: bool) -> Result<bool> {
        Ok(self.int_or(name, default.into())? != 0)
    }

    /// Returns a float attribute.
    pub fn float(&self, name: &'static str) -> Result<Option<f32>> {
        Ok(self.attribute(name, AttributeType::FLOAT)?.map(|attribute| attribute.f.unwrap_or_default()))
    }

    /// Returns a float attribute, or `default` if it is absent.
    pub fn float_or(&self, name: &'static str, default: f32) -> Result<f32> {
        Ok(self.float(name)?.unwrap_or(default))
    }

    /// Returns an attribute that is a list of integers.
    pub fn ints(&self, name: &'static str) -> Result<Option<&'a [i64]>> {
        Ok(self.attribute(name, AttributeType::INTS)?.map(|attribute| &*attribute.ints))
    }

    /// Returns an attribute that is a list of floats.
    pub fn floats(&self, name: &'static str) -> Result<Option<&'a [f32]>> {
        Ok(self.attribute(name, AttributeType::FLOATS)?.map(|attribute| &*attribute.floats))
    }

    /// Returns an attribute that is a list of nonnegative integers, such as extents or strides.
    pub fn extents(&self, name: &'static str) -> Result<Option<Vec<usize>>> {
        let Some(ints) = self.ints(name)? else { return Ok(None) };
        let extents: Option<Vec<usize>> = ints.iter().map(|&extent| usize::try_from(extent).ok()).collect();
        extents.map(Some).ok_or_else(|| attribute(name, "contains a negative number"))
    }

    /// Returns an attribute that is a list of strings.
    pub fn words(&self, name: &'static str) -> Result<Option<Vec<&'a str>>> {
        let found = self.attribute(name, AttributeType::STRINGS)?;
        Ok(found.map(|attribute| attribute.strings.iter().map(|word| &**word).collect()))
    }

    /// Returns a string attribute, or `default` if it is absent.
    pub fn word_or(&self, name: &'static str, default: &'static str) -> Result<&'a str> {
        Ok(self.attribute(name, AttributeType::STRING)?.map_or(default, |found| found.s.as_deref().unwrap_or_default()))
    }

    /// Returns a tensor attribute.
    pub fn tensor(&self, name: &'static str) -> Result<Option<Constant>> {
        let found = self.attribute(name, AttributeType::TENSOR)?.and_then(|attribute| attribute.t.as_ref());
        let read = |proto| self.file.tensor(proto).map_err(|reason| attribute(name, reason));
        found.map(read).transpose()
    }

    /// Marks attributes as read that have no effect on the result.
    pub fn ignore(&self, names: &[&str]) {
        self.unread.borrow_mut().retain(|unread| !names.contains(unread));
    }

    /// Returns integers that were an attribute before opset `since` and have been an input from
    /// then on.
    pub fn integers(&self, name: &'static str, input: usize, since: i64) -> Result<Option<Vec<i64>>> {
        match self.version < since {
            true => Ok(self.ints(name)?.map(<[i64]>::to_vec)),
            false => self.known_integers(input),
        }
    }
}

// Nodes that the import adds.
impl Call<'_> {
    /// Returns the shape of a value.
    pub fn shape(&self, value: ImportValue) -> Vec<usize> {
        self.draft.shape(value).to_vec()
    }

    /// Returns the number of axes of a value.
    pub fn rank(&self, value: ImportValue) -> usize {
        self.draft.shape(value).len()
    }

    /// Returns the constant, if a value is the same in all runs.
    pub fn constant_of(&self, value: ImportValue) -> Option<&Constant> {
        self.draft.constant_of(value)
    }

    /// Returns the number of a constant with one element.
    pub fn number_of(&self, value: ImportValue) -> Option<f32> {
        self.draft.number(value)
    }

    /// Returns the element type of a value.
    pub fn dtype(&self, value: ImportValue) -> DType {
        self.draft.dtype(value)
    }

    /// Adds an operator's result: a constant if all operands are constants, else a new node.
    pub fn add(&mut self, op: impl Into<Op>, operands: &[ImportValue]) -> Result<ImportValue> {
        Ok(self.draft.add(self.name, op.into(), operands)?)
    }

    /// Adds a constant with the name of the imported node.
    pub fn constant(&mut self, constant: impl Into<Constant>) -> ImportValue {
        self.draft.constant(self.name, constant)
    }

    /// Adds a constant number without axes, of the type of `like`.
    pub fn number(&mut self, number: f32, like: ImportValue) -> Result<ImportValue> {
        let tensor = match self.dtype(like) {
            DType::I64 => Tensor::i64(&[], vec![number as i64])?,
            _ => Tensor::scalar(number),
        };
        Ok(self.constant(tensor))
    }
}

/// Returns an error about an attribute.
pub fn attribute(name: &str, reason: impl Into<String>) -> NodeError {
    NodeError::Attribute { attribute: printable(name), reason: reason.into() }
}

/// Returns the error about an input that is absent.
pub(crate) fn missing(input: usize) -> NodeError {
    NodeError::Input { input, reason: "is missing".into() }
}

/// Returns an axis of a tensor; a negative number counts from the end.
pub fn axis(axis: i64, rank: usize) -> Result<usize> {
    let counted = if axis < 0 { axis.checked_add_unsigned(rank as u64) } else { Some(axis) };
    let found = counted.and_then(|axis| usize::try_from(axis).ok()).filter(|&axis| axis < rank);
    found.ok_or_else(|| NodeError::Unfit(format!("axis {axis} is out of range for a tensor of rank {rank}")))
}

/// Returns axes of a tensor in ascending order; fails if one occurs twice.
pub fn axes(numbers: &[i64], rank: usize) -> Result<Vec<usize>> {
    let axes: Result<Vec<usize>> = numbers.iter().map(|&number| axis(number, rank)).collect();
    let mut axes = axes?;
    axes.sort_unstable();
    match axes.windows(2).all(|pair| pair[0] < pair[1]) {
        true => Ok(axes),
        false => unfit(format!("axes {:?} contain a duplicate", listed(numbers))),
    }
}
