//! Sequences of tensors, which exist during an import only.
//!
//! The number of elements and all positions must be known at import, so that each element is a
//! value of the graph, and nothing of the sequence is left.

use super::call::{Call, ImportValue, Result as CallResult, attribute, axis, missing};
use super::error::NodeError;
use crate::operators::Concat;
use crate::tensor::Tensor;

/// Evaluation steps that a part of a tensor counts for, because of the memory of its node: 65536
/// parts use up the default budget.
const STEPS_PER_PART: usize = 1 << 13;

/// A sequence of tensors of the graph under construction.
#[derive(Clone, Default)]
pub(super) struct TensorSequence<'a> {
    pub(super) elements: Vec<ImportValue>,
    /// Names of the tensors that it was made of.
    pub(super) reads: Vec<&'a str>,
}

/// Result of an operator on sequences.
pub(super) enum Made {
    Sequence(Vec<ImportValue>),
    Tensor(ImportValue),
}

/// Conversion of a node, from the elements of the sequence that is its first input. Operators that
/// read no sequence receive none.
pub(super) type Convert = fn(&mut Call, Vec<ImportValue>) -> CallResult<Made>;

/// An operator on sequences.
#[derive(Clone, Copy)]
pub(super) struct SequenceOperator {
    name: &'static str,
    /// True if the first input is a sequence.
    pub(super) reads_sequence: bool,
    pub(super) convert: Convert,
}

const OPERATORS: [SequenceOperator; 9] = [
    SequenceOperator { name: "SequenceConstruct", reads_sequence: false, convert: construct },
    SequenceOperator { name: "SequenceEmpty", reads_sequence: false, convert: empty },
    SequenceOperator { name: "SplitToSequence", reads_sequence: false, convert: split },
    SequenceOperator { name: "SequenceAt", reads_sequence: true, convert: at },
    SequenceOperator { name: "SequenceInsert", reads_sequence: true, convert: insert },
    SequenceOperator { name: "SequenceErase", reads_sequence: true, convert: erase },
    SequenceOperator { name: "SequenceLength", reads_sequence: true, convert: length },
    SequenceOperator { name: "ConcatFromSequence", reads_sequence: true, convert: concatenate },
    SequenceOperator { name: "Identity", reads_sequence: true, convert: copy },
];

/// Returns the operator on sequences with this name.
pub(super) fn find(name: &str) -> Option<SequenceOperator> {
    OPERATORS.iter().find(|known| known.name == name).copied()
}

impl SequenceOperator {
    /// True if the operator may also read a tensor in place of the sequence.
    pub(super) fn reads_tensors(&self) -> bool {
        self.name == "Identity"
    }
}

fn construct(call: &mut Call, _: Vec<ImportValue>) -> CallResult<Made> {
    call.operands().map(Made::Sequence)
}

fn empty(call: &mut Call, _: Vec<ImportValue>) -> CallResult<Made> {
    call.check_most(0)?;
    // An empty sequence has no element whose type would matter.
    call.ignore(&["dtype"]);
    Ok(Made::Sequence(Vec::new()))
}

/// Imports a split along an axis: into parts of the given sizes or of one size, the last of which
/// may be smaller, or into slices.
fn split(call: &mut Call, _: Vec<ImportValue>) -> CallResult<Made> {
    call.check_most(2)?;
    let x = call.operand(0)?;
    let shape = call.shape(x);
    let axis = axis(call.int_or("axis", 0)?, shape.len())?;
    let keeps_axes = call.flag("keepdims", true)?;
    let extent = shape[axis];

    let is_list = call.optional(1).is_some_and(|sizes| call.rank(sizes) == 1);
    let sizes: Vec<usize> = match (known_integers(call, 1)?, is_list) {
        (Some(sizes), true) => {
            let sizes: Option<Vec<usize>> = sizes.iter().map(|&size| usize::try_from(size).ok()).collect();
            sizes.ok_or_else(|| NodeError::Input { input: 1, reason: "contains a negative number".into() })?
        }
        (given, _) => {
            let size = given.map_or(Some(1), |sizes| usize::try_from(*sizes.first()?).ok()).filter(|&size| size > 0);
            let size = size.ok_or_else(|| NodeError::Input { input: 1, reason: "is not positive".into() })?;
            call.draft.spend(extent.div_ceil(size).saturating_mul(STEPS_PER_PART), &shape)?;
            (0..extent).step_by(size).map(|start| size.min(extent - start)).collect()
        }
    };

    let mut parts = call.parts(x, axis, &sizes)?;
    if call.optional(1).is_none() && !keeps_axes {
        let rest: Vec<usize> = [&shape[..axis], &shape[axis + 1..]].concat();
        parts = parts.into_iter().map(|part| call.reshape(&rest, part)).collect::<CallResult<_>>()?;
    }
    Ok(Made::Sequence(parts))
}

fn at(call: &mut Call, elements: Vec<ImportValue>) -> CallResult<Made> {
    call.check_most(2)?;
    let position = position(call, 1, elements.len())?.ok_or_else(|| missing(1))?;
    Ok(Made::Tensor(elements[position]))
}

fn insert(call: &mut Call, mut elements: Vec<ImportValue>) -> CallResult<Made> {
    call.check_most(3)?;
    let element = call.operand(1)?;
    // A negative position counts from the end of the present elements.
    let end = elements.len();
    let position = match known_integer(call, 2)? {
        Some(number) if number == end as i64 => end,
        Some(_) => position(call, 2, end)?.unwrap_or(end),
        None => end,
    };
    elements.insert(position, element);
    Ok(Made::Sequence(elements))
}

fn erase(call: &mut Call, mut elements: Vec<ImportValue>) -> CallResult<Made> {
    call.check_most(2)?;
    let last = elements.len().checked_sub(1).ok_or_else(|| NodeError::Unfit("the sequence is empty".into()))?;
    let position = position(call, 1, elements.len())?.unwrap_or(last);
    elements.remove(position);
    Ok(Made::Sequence(elements))
}

fn length(call: &mut Call, elements: Vec<ImportValue>) -> CallResult<Made> {
    call.check_most(1)?;
    Ok(Made::Tensor(call.constant(Tensor::i64(&[], vec![elements.len() as i64])?)))
}

fn concatenate(call: &mut Call, elements: Vec<ImportValue>) -> CallResult<Made> {
    call.check_most(1)?;
    let number = call.int("axis")?.ok_or_else(|| attribute("axis", "is missing"))?;
    let has_new_axis = call.flag("new_axis", false)?;
    let &first = elements.first().ok_or_else(|| NodeError::Unfit("the sequence is empty".into()))?;
    let axis = axis(number, call.rank(first) + usize::from(has_new_axis))?;

    let mut parts = elements;
    if has_new_axis {
        parts = parts.into_iter().map(|part| call.insert_axes(part, &[axis])).collect::<CallResult<_>>()?;
    }
    match &parts[..] {
        [only] => Ok(Made::Tensor(*only)),
        _ => call.add(Concat { axis }, &parts).map(Made::Tensor),
    }
}

fn copy(call: &mut Call, elements: Vec<ImportValue>) -> CallResult<Made> {
    call.check_most(1)?;
    Ok(Made::Sequence(elements))
}

/// Returns the position that an input states, if it is present; a negative one counts from the
/// end.
fn position(call: &Call, input: usize, count: usize) -> CallResult<Option<usize>> {
    let Some(number) = known_integer(call, input)? else { return Ok(None) };
    let wrong = || NodeError::Input { input, reason: format!("{number} is out of range for {count} elements") };
    axis(number, count).map(Some).map_err(|_| wrong())
}

/// Returns the integers of an input. Unlike other unknown inputs, they are no reason to wait for
/// data: sequences exist during an import only.
fn known_integers(call: &Call, input: usize) -> CallResult<Option<Vec<i64>>> {
    call.known_integers(input).map_err(|error| match error {
        NodeError::Unknown { .. } => {
            NodeError::Input { input, reason: "must be a constant, as sequences exist only before a run".into() }
        }
        other => other,
    })
}

fn known_integer(call: &Call, input: usize) -> CallResult<Option<i64>> {
    match known_integers(call, input)?.as_deref() {
        None => Ok(None),
        Some(&[number]) => Ok(Some(number)),
        Some(_) => Err(NodeError::Input { input, reason: "does not have exactly one element".into() }),
    }
}
