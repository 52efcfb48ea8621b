//! Replacement of elements and slices by their coordinates.

use autotune_workloads::ReduceOp;

use super::binary::{Binary, of_integers};
use super::choose::Where;
use super::concat::Concat;
use super::gather_elements::GatherElements;
use super::indices::{MOST_ROWS, Selection, select};
use super::prelude::*;
use super::reduce::Reduce;
use super::reshape::Reshape;
use super::sub_nodes::SubNodes;
use crate::constant::Constant;
use crate::onnx::error::unfit;
use crate::op;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("Scatter", elementwise),
    OnnxOperator::one("ScatterElements", elementwise),
    OnnxOperator::one("ScatterND", of_tuples),
    OnnxOperator::one("TensorScatter", of_runs),
];

/// Copy of the first operand in which the third operand's elements replace those that the indices
/// in the second select, in order. Negative indices count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scatter {
    /// Elements that the indices select.
    pub selection: Selection,
    /// Operation that combines an element with those that replace it: addition, product, maximum or
    /// minimum; if absent, the last one remains.
    pub reduction: Option<Binary>,
}

impl Operator for Scatter {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 3..=3)?;
        check_dtype(operands, 1, DType::I64)?;
        let (data, dtype) = operands[0];
        check_dtype(operands, 2, dtype)?;
        if self.reduction.is_some() && dtype != DType::I64 {
            check_dtype(operands, 0, DType::F32)?;
        }
        let selected = self.selection.selected(data, operands[1].0)?;
        match selected == operands[2].0 {
            true => Ok((data.to_vec(), dtype)),
            false => op::unfit(format!("updates of shape {:?} do not match indices for {selected:?}", operands[2].0)),
        }
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        fn replaced<T: Typed>(places: &[usize], operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
            combined::<T, T>(places, operands, |x| x, |_, update| update).and_then(|all| tensor(shape, all))
        }
        let places = self.places(shape, operands[1])?;
        let places = self.elements(places, shape, operands[1].shape());
        match (self.reduction, operands[0].dtype()) {
            (None, dtype) => by_type!(dtype, replaced(&places, operands, shape)),
            (Some(op), DType::I64) => {
                tensor(shape, combined(&places, operands, |x: i64| x, |a, b| of_integers(op, a, b))?)
            }
            (Some(op), _) => {
                // Rounded once, after all updates.
                let all = combined(&places, operands, |x: f32| f64::from(x), |a, b| of_numbers(op, a, b))?;
                tensor(shape, all.into_iter().map(|x| x as f32).collect())
            }
        }
    }

    /// Returns a `Gather` from the rows of both tensors, if nothing is combined, or else reductions
    /// over the updates of each row.
    fn parts(&self, node: &NodeView) -> Option<Vec<SubNode>> {
        let (data, indices, updates) = (node.shape(0), node.shape(1), node.shape(2));
        let (count, new) = (product(data)?, product(updates)?);
        let row = self.selection.row(data, indices);
        if count == 0 || new == 0 || count.checked_add(new)? / row > MOST_ROWS {
            return None;
        }
        let mut parts = SubNodes::new(node);
        let sizes = ScatteredRows { old: count / row, new: new / row, row };
        if let Some(op) = self.reduction {
            let places = self.selection.numbered(&mut parts, data, (1, indices))?;
            let combined = sizes.combined(&mut parts, places, op, node.dtype(0))?;
            parts.add(Reshape(data.to_vec()), &[combined]);
            return Some(parts.finish());
        }

        let rows = match node.op(1).of::<Constant>() {
            Some(constant) => {
                let mut rows: Vec<i64> = (0..sizes.old as i64).collect();
                for (update, place) in self.places(data, constant.tensor().ok()?).ok()?.into_iter().enumerate() {
                    rows[place] = (sizes.old + update) as i64;
                }
                parts.constant(Tensor::i64(&[rows.len()], rows).ok()?)
            }
            None => {
                let places = self.selection.numbered(&mut parts, data, (1, indices))?;
                sizes.last(&mut parts, places)?
            }
        };
        let before = parts.add(Reshape(vec![count]), &[0]);
        let update = parts.add(Reshape(vec![new]), &[2]);
        let all = parts.add(Concat { axis: 0 }, &[before, update]);
        select(&mut parts, all, [count + new, row], rows, data);
        Some(parts.finish())
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let reduction = match self.reduction {
            None => "none",
            Some(Binary::Add) => "add",
            Some(Binary::Mul) => "mul",
            Some(Binary::Max) => "max",
            Some(Binary::Min) => "min",
            Some(_) => return Err(to.wrong("ONNX has no such reduction")),
        };
        let reduction = word("reduction", reduction);
        match self.selection {
            Selection::Along(axis) => to.operator("ScatterElements", vec![int("axis", axis), reduction]),
            Selection::Tuples(0) => to.operator("ScatterND", vec![reduction]),
            Selection::Tuples(_) => Err(to.wrong("ONNX shares no axes when it scatters")),
        }
    }
}

/// Maximum number of elements of a comparison of all rows with all updates.
const MOST_PAIRS: usize = 1 << 20;

/// Numbers of rows of both tensors, and of the elements of each.
#[derive(Clone, Copy)]
struct ScatteredRows {
    old: usize,
    new: usize,
    row: usize,
}

impl ScatteredRows {
    /// Appends parts that compare the places of all updates with all rows, `[old, new]`.
    fn hits(self, parts: &mut SubNodes, places: usize) -> Option<usize> {
        let places = parts.add(Reshape(vec![1, self.new]), &[places]);
        let rows = parts.constant(Tensor::i64(&[self.old, 1], (0..self.old as i64).collect()).ok()?);
        Some(parts.add(Binary::Equal, &[places, rows]))
    }

    /// Appends parts that find the last update of each row among all rows, or else the row itself.
    fn last(self, parts: &mut SubNodes, places: usize) -> Option<usize> {
        self.old.checked_mul(self.new).filter(|&pairs| pairs <= MOST_PAIRS)?;
        let hits = self.hits(parts, places)?;
        let updates = (self.old..self.old + self.new).map(|update| update as i64);
        let updates = parts.constant(Tensor::i64(&[1, self.new], updates.collect()).ok()?);
        let own = parts.constant(Tensor::i64(&[self.old, 1], (0..self.old as i64).collect()).ok()?);
        let found = parts.choose(hits, updates, own);
        Some(parts.add(Reduce { op: ReduceOp::Max, axes: vec![1], keep_axes: false }, &[found]))
    }

    /// Appends parts that combine each row with its updates.
    fn combined(self, parts: &mut SubNodes, places: usize, op: Binary, dtype: DType) -> Option<usize> {
        product(&[self.old, self.new, self.row]).filter(|&all| all <= MOST_PAIRS)?;
        let (reduction, neutral) = match (op, dtype) {
            (Binary::Add, _) => (ReduceOp::Sum, 0.0),
            (Binary::Mul, _) => (ReduceOp::Prod, 1.0),
            (Binary::Max, DType::F32) => (ReduceOp::Max, f32::NEG_INFINITY),
            (Binary::Min, DType::F32) => (ReduceOp::Min, f32::INFINITY),
            _ => return None,
        };
        let hits = self.hits(parts, places)?;
        let hits = parts.add(Reshape(vec![self.old, self.new, 1]), &[hits]);
        let updates = parts.add(Reshape(vec![1, self.new, self.row]), &[2]);
        let neutral = parts.constant(Tensor::of_numbers(&[], dtype, &[neutral]).ok()?);
        let found = parts.choose(hits, updates, neutral);
        let found = parts.add(Reduce { op: reduction, axes: vec![1], keep_axes: false }, &[found]);
        let rows = parts.add(Reshape(vec![self.old, self.row]), &[0]);
        Some(parts.add(op, &[rows, found]))
    }
}

impl Scatter {
    /// Returns the number of the slice that each update replaces.
    fn places(&self, data: &[usize], indices: &Tensor) -> Result<Vec<usize>, OpError> {
        self.selection.places(data, indices.shape(), &values::<i64>(&[indices], 0)?)
    }

    /// Returns the position of the element that each element of the updates replaces.
    fn elements(&self, slices: Vec<usize>, data: &[usize], indices: &[usize]) -> Vec<usize> {
        match self.selection.row(data, indices) {
            1 => slices,
            row => slices.into_iter().flat_map(|slice| slice * row..(slice + 1) * row).collect(),
        }
    }
}

/// Returns the first operand's elements, combined with the updates of some of them.
fn combined<T: Typed, S: Copy>(
    places: &[usize],
    operands: &[&Tensor],
    exact: impl Fn(T) -> S,
    combine: impl Fn(S, S) -> S,
) -> Result<Vec<S>, OpError> {
    let mut all: Vec<S> = values::<T>(operands, 0)?.iter().map(|&x| exact(x)).collect();
    for (&place, &update) in places.iter().zip(values::<T>(operands, 2)?.iter()) {
        all[place] = combine(all[place], exact(update));
    }
    Ok(all)
}

fn of_numbers(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Add => a + b,
        Binary::Mul => a * b,
        Binary::Max => larger(a, b),
        Binary::Min => smaller(a, b),
        // Import and `export` know these four.
        _ => f64::NAN,
    }
}

fn reduction(call: &Call) -> call::Result<Option<Binary>> {
    match call.word_or("reduction", "none")? {
        "none" => Ok(None),
        "add" => Ok(Some(Binary::Add)),
        "mul" => Ok(Some(Binary::Mul)),
        "max" => Ok(Some(Binary::Max)),
        "min" => Ok(Some(Binary::Min)),
        _ => Err(attribute("reduction", "expected none, add, mul, max or min")),
    }
}

fn elementwise(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(3)?;
    let operands = [call.operand(0)?, call.operand(1)?, call.operand(2)?];
    let axis = axis(call.int_or("axis", 0)?, call.rank(operands[0]))?;
    let reduction = reduction(call)?;
    call.add(Scatter { selection: Selection::Along(axis), reduction }, &operands)
}

fn of_tuples(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(3)?;
    let operands = [call.operand(0)?, call.operand(1)?, call.operand(2)?];
    let reduction = reduction(call)?;
    call.add(Scatter { selection: Selection::Tuples(0), reduction }, &operands)
}

/// Imports the replacement of neighbouring elements along an axis from a position on, which each
/// element of the batch has.
fn of_runs(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(3)?;
    let (data, updates) = (call.operand(0)?, call.operand(1)?);
    let (shape, of_updates) = (call.shape(data), call.shape(updates));
    let axis = axis(call.int_or("axis", -2)?, shape.len())?;
    let is_circular = match call.word_or("mode", "linear")? {
        "linear" => false,
        "circular" => true,
        _ => return Err(attribute("mode", "expected linear or circular")),
    };
    let mut fit = shape.clone();
    fit[axis] = of_updates.get(axis).copied().unwrap_or(0);
    if axis == 0 || of_updates != fit || fit[axis] > shape[axis] {
        return unfit(format!("updates of shape {of_updates:?} along axis {axis} of shape {shape:?}"));
    }

    // Distance of each position from the first that is replaced.
    let mut distance = call.positions(0, shape[axis], [axis, shape.len()])?;
    if let Some(starts) = call.optional(2) {
        let mut columns = vec![1; shape.len()];
        columns[0] = shape[0];
        let starts = call.reshape(&columns, starts)?;
        distance = call.binary(Binary::Sub, distance, starts)?;
    }
    if is_circular {
        distance = remainder(call, distance, shape[axis])?;
    }
    let (none, count) = (call.number(-1.0, distance)?, call.number(fit[axis] as f32, distance)?);
    let (is_behind, is_before) =
        (call.binary(Binary::Less, none, distance)?, call.binary(Binary::Less, distance, count)?);
    let is_new = call.binary(Binary::And, is_behind, is_before)?;

    let new = match fit[axis] {
        0 => return Ok(data),
        1 => updates,
        count => {
            let place = call.with(Binary::Max, distance, 0.0)?;
            let place = call.with(Binary::Min, place, count as f32 - 1.0)?;
            let place = call.expand(&shape, place)?;
            call.add(GatherElements { axis }, &[updates, place])?
        }
    };
    call.add(Where, &[is_new, new, data])
}

/// Adds the remainder of integers by an extent, from 0 on.
fn remainder(call: &mut Call, x: ImportValue, extent: usize) -> call::Result<ImportValue> {
    let extent = call.number(extent as f32, x)?;
    let turns = call.binary(Binary::Div, x, extent)?;
    let turns = call.binary(Binary::Mul, turns, extent)?;
    // Division is towards zero, so that a negative number has a negative remainder.
    let rest = call.binary(Binary::Sub, x, turns)?;
    let shifted = call.binary(Binary::Add, rest, extent)?;
    let zero = call.number(0.0, x)?;
    let is_negative = call.binary(Binary::Less, rest, zero)?;
    call.add(Where, &[is_negative, shifted, rest])
}
