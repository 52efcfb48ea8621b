//! Import of sequences that are reversed up to their own lengths.

use super::binary::Binary;
use super::choose::Where;
use super::gather_elements::GatherNd;
use super::prelude::*;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("ReverseSequence", reversed)];

/// Imports the first elements along the time axis in the opposite order, as many as the second
/// input says for each element of the batch; others stay in place.
fn reversed(call: &mut Call) -> Result<ImportValue> {
    call.check_most(2)?;
    let (x, lengths) = (call.operand(0)?, call.operand(1)?);
    let rank = call.rank(x);
    let batch = axis(call.int_or("batch_axis", 1)?, rank)?;
    let time = axis(call.int_or("time_axis", 0)?, rank)?;
    if batch == time {
        return unfit("batch and time are the same axis");
    }
    let rest = (0..rank).filter(|axis| ![batch, time].contains(axis));
    let perm: Vec<usize> = [batch, time].into_iter().chain(rest).collect();
    let rows = call.transpose(&perm, x)?;
    let (b, steps) = (call.shape(rows)[0], call.shape(rows)[1]);

    let lengths = call.reshape(&[b, 1], lengths)?;
    let places = call.positions(0, steps, [1, 2])?;
    let is_inside = call.binary(Binary::Less, places, lengths)?;
    let last = call.with(Binary::Sub, lengths, 1.0)?;
    let mirrored = call.binary(Binary::Sub, last, places)?;
    let from = call.add(Where, &[is_inside, mirrored, places])?;
    let from = call.reshape(&[b, steps, 1], from)?;
    let found = call.add(GatherNd { batch_axes: 1 }, &[rows, from])?;

    let place = |axis: usize| perm.iter().position(|from| *from == axis);
    let back: Vec<usize> = (0..rank).filter_map(place).collect();
    call.transpose(&back, found)
}
