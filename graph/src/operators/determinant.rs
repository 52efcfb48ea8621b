//! Import of determinants of small matrices.

use super::binary::Binary;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("Det", import)];

/// Maximum number of rows: the number of products doubles with each row.
const MOST_ROWS: usize = 6;

/// Imports determinants of `[.., n, n]`, expanded row by row from the last one: a determinant of
/// the rows so far for each choice of as many columns.
fn import(call: &mut Call) -> Result<ImportValue> {
    let x = call.only()?;
    let shape = call.shape(x);
    let (rank, &[ref outer @ .., n, columns]) = (shape.len(), &shape[..]) else {
        return unfit(format!("a tensor of shape {shape:?} is no matrix"));
    };
    if n != columns || !(1..=MOST_ROWS).contains(&n) {
        return unfit(format!("matrices of shape {shape:?}; squares of 1 to {MOST_ROWS} rows are supported"));
    }

    // Choices of columns are the bits of numbers; that of none has the determinant 1.
    let mut minors: Vec<Option<ImportValue>> = vec![None; 1 << n];
    for row in (0..n).rev() {
        let line = call.part(x, rank - 2, [row, 1])?;
        let mut elements = Vec::new();
        for column in 0..n {
            let element = call.part(line, rank - 1, [column, 1])?;
            elements.push(call.reshape(outer, element)?);
        }
        for choice in (1..1usize << n).filter(|choice| choice.count_ones() as usize == n - row) {
            minors[choice] = Some(expanded(call, &elements, &minors, choice)?);
        }
    }
    minors.pop().flatten().ok_or_else(|| NodeError::Unfit("matrices without columns".into()))
}

/// Adds the sum of a row's elements in the columns of a choice, each times the determinant of the
/// rows below in the other columns, with alternating signs.
fn expanded(
    call: &mut Call,
    row: &[ImportValue],
    minors: &[Option<ImportValue>],
    choice: usize,
) -> Result<ImportValue> {
    let mut sum: Option<ImportValue> = None;
    let mut op = Binary::Add;
    for (column, &element) in row.iter().enumerate().filter(|(column, _)| choice >> column & 1 == 1) {
        let product = match minors[choice & !(1 << column)] {
            Some(minor) => call.binary(Binary::Mul, element, minor)?,
            None => element,
        };
        sum = Some(sum.map_or(Ok(product), |sum| call.binary(op, sum, product))?);
        op = if op == Binary::Add { Binary::Sub } else { Binary::Add };
    }
    sum.ok_or_else(|| NodeError::Unfit("a choice of no columns".into()))
}
