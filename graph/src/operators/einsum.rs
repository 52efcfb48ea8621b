//! Import of sums of products over named axes (Einstein's notation).

use std::fmt;

use autotune_workloads::ReduceOp;

use super::binary::Binary;
use super::matmul::MatMul;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("Einsum", import)];

/// Name of an axis: a letter, or the position of an axis of an ellipsis, counted from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AxisName {
    Ellipsis(usize),
    Letter(char),
}

impl fmt::Display for AxisName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AxisName::Ellipsis(_) => f.write_str("..."),
            AxisName::Letter(letter) => letter.fmt(f),
        }
    }
}

/// A tensor with the name of each of its axes.
struct NamedTensor {
    value: ImportValue,
    names: Vec<AxisName>,
}

/// Reads the names of a tensor's axes; `ellipsis` is the number of axes that an ellipsis stands
/// for.
fn names(text: &str, ellipsis: usize) -> Result<Vec<AxisName>> {
    let mut names = Vec::new();
    let mut rest = text.trim();
    while let Some(letter) = rest.chars().next() {
        if let Some(behind) = rest.strip_prefix("...") {
            names.extend((0..ellipsis).rev().map(AxisName::Ellipsis));
            rest = behind;
            continue;
        }
        if letter.is_ascii_alphabetic() {
            names.push(AxisName::Letter(letter));
        } else if letter != ' ' {
            return Err(attribute("equation", "contains another character than letters, `...` and `->`"));
        }
        rest = &rest[letter.len_utf8()..];
    }
    let mut sorted = names.clone();
    sorted.sort_unstable();
    match sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(attribute("equation", "diagonals and repeated ellipses are not supported")),
        false => Ok(names),
    }
}

impl NamedTensor {
    fn has(&self, name: AxisName) -> bool {
        self.names.contains(&name)
    }

    fn extent(&self, call: &Call, name: AxisName) -> usize {
        let axis = self.names.iter().position(|own| *own == name);
        axis.map_or(1, |axis| call.shape(self.value)[axis])
    }

    /// Sums over axes that nothing needs.
    fn keeping(self, call: &mut Call, is_needed: impl Fn(AxisName) -> bool) -> Result<Self> {
        let axes: Vec<usize> = (0..self.names.len()).filter(|&axis| !is_needed(self.names[axis])).collect();
        if axes.is_empty() {
            return Ok(self);
        }
        let value = call.reduce(ReduceOp::Sum, &axes, false, self.value)?;
        Ok(Self { value, names: self.names.into_iter().filter(|&name| is_needed(name)).collect() })
    }

    /// Puts the axes in this order; axes that are missing have extent 1.
    fn ordered(&self, call: &mut Call, order: &[AxisName]) -> Result<ImportValue> {
        let perm = order.iter().filter_map(|name| self.names.iter().position(|own| own == name)).collect::<Vec<_>>();
        let moved = call.transpose(&perm, self.value)?;
        let shape: Vec<usize> = order.iter().map(|&name| self.extent(call, name)).collect();
        call.reshape(&shape, moved)
    }

    /// Multiplies two tensors and sums over the common axes that nothing needs, as a product of
    /// matrices.
    fn times(self, call: &mut Call, other: Self, is_needed: impl Fn(AxisName) -> bool) -> Result<Self> {
        let left = self.keeping(call, |name| is_needed(name) || other.has(name))?;
        let right = other.keeping(call, |name| is_needed(name) || left.has(name))?;
        let common = |is_kept: bool| -> Vec<AxisName> {
            let both = left.names.iter().copied().filter(|&name| right.has(name));
            both.filter(|&name| is_needed(name) == is_kept).collect()
        };
        let (batch, summed) = (common(true), common(false));
        let only = |one: &Self, other: &Self| -> Vec<AxisName> {
            one.names.iter().copied().filter(|&name| !other.has(name)).collect()
        };
        let (rows, columns) = (only(&left, &right), only(&right, &left));
        let names = [&batch[..], &rows, &columns].concat();
        if summed.is_empty() {
            let (a, b) = (left.ordered(call, &names)?, right.ordered(call, &names)?);
            return Ok(Self { value: call.binary(Binary::Mul, a, b)?, names });
        }

        // An extent of 1 in one of the tensors is broadcast, as only the batch of a product is.
        if let Some(name) = summed.iter().find(|&&name| left.extent(call, name) != right.extent(call, name)) {
            return unfit(format!(
                "axis {name} has {} and {} elements",
                left.extent(call, *name),
                right.extent(call, *name)
            ));
        }
        let (a, b) = (
            left.ordered(call, &[&batch[..], &rows, &summed].concat())?,
            right.ordered(call, &[&batch[..], &summed, &columns].concat())?,
        );
        let [of_rows, of_sums, of_columns] = [(&left, &rows), (&left, &summed), (&right, &columns)]
            .map(|(tensor, names)| names.iter().map(|&name| tensor.extent(call, name)).collect::<Vec<_>>());
        let [m, k, n] = [&of_rows, &of_sums, &of_columns].map(|extents| elements(extents));
        let (a_batch, b_batch) = (call.shape(a)[..batch.len()].to_vec(), call.shape(b)[..batch.len()].to_vec());
        let (m, k, n) = (m?, k?, n?);
        let a = call.reshape(&[&a_batch[..], &[m, k]].concat(), a)?;
        let b = call.reshape(&[&b_batch[..], &[k, n]].concat(), b)?;
        let product = call.add(MatMul, &[a, b])?;

        let outer = call.shape(product)[..batch.len()].to_vec();
        let value = call.reshape(&[outer, of_rows, of_columns].concat(), product)?;
        Ok(Self { value, names })
    }
}

/// Imports a sum of products. Several tensors are multiplied one after the other.
fn import(call: &mut Call) -> Result<ImportValue> {
    let equation = call.word_or("equation", "")?;
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (equation, None),
    };
    let texts: Vec<&str> = left.split(',').collect();
    let operands = call.operands()?;
    if texts.len() != operands.len() {
        return Err(attribute("equation", format!("names axes of {} inputs, not {}", texts.len(), operands.len())));
    }

    let mut tensors = Vec::new();
    for (text, &value) in texts.iter().zip(&operands) {
        let letters = text.chars().filter(char::is_ascii_alphabetic).count();
        let shape = call.shape(value);
        let ellipsis = if text.contains("...") { shape.len().checked_sub(letters) } else { Some(0) };
        let names = names(text, ellipsis.unwrap_or(0))?;
        if names.len() != shape.len() {
            return Err(attribute("equation", format!("names other axes than those of shape {shape:?}")));
        }
        tensors.push(NamedTensor { value, names });
    }
    let output = output(right, &tensors, &texts)?;

    let mut rest = tensors.into_iter();
    let mut whole = rest.next().ok_or_else(|| NodeError::Unfit("no inputs".into()))?;
    let mut rest: Vec<NamedTensor> = rest.collect();
    while !rest.is_empty() {
        let next = rest.remove(0);
        whole = whole.times(call, next, |name| output.contains(&name) || rest.iter().any(|later| later.has(name)))?;
    }
    let whole = whole.keeping(call, |name| output.contains(&name))?;
    match output.iter().find(|&&name| !whole.has(name)) {
        Some(name) => unfit(format!("no input has the axis {name} of the output")),
        None => whole.ordered(call, &output),
    }
}

/// Returns the axes of the output: those that the equation names, or the axes of ellipses and all
/// letters that occur once, in the order of the alphabet.
fn output(said: Option<&str>, tensors: &[NamedTensor], texts: &[&str]) -> Result<Vec<AxisName>> {
    let of_ellipsis =
        |tensor: &NamedTensor| tensor.names.iter().filter(|name| matches!(name, AxisName::Ellipsis(_))).count();
    let ellipsis = tensors.iter().map(of_ellipsis).max().unwrap_or(0);
    if let Some(said) = said {
        return names(said, ellipsis);
    }
    let mut letters: Vec<char> = texts.iter().flat_map(|text| text.chars()).filter(char::is_ascii_alphabetic).collect();
    letters.sort_unstable();
    let is_single = |letter: &char| letters.iter().filter(|other| *other == letter).count() == 1;
    let single = letters.iter().copied().filter(is_single).map(AxisName::Letter);
    Ok((0..ellipsis).rev().map(AxisName::Ellipsis).chain(single).collect())
}
