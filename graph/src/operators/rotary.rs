//! Imports of rotary position embeddings.

use super::binary::Binary;
use super::concat::Concat;
use super::gather::Gather;
use super::prelude::*;
use super::slice::Range;
use crate::onnx::MICROSOFT;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("RotaryEmbedding", standard),
    OnnxOperator::one("RotaryEmbedding", of_runtime).in_domain(MICROSOFT),
];

/// Cosines and sines of the angles, by position in the sequence or by element of the batch, too.
pub(super) struct Angles {
    pub(super) cosines: ImportValue,
    pub(super) sines: ImportValue,
}

/// Imports the operator of the domain `ai.onnx`.
fn standard(call: &mut Call) -> Result<ImportValue> {
    call.check_most(4)?;
    let mut angles = Angles { cosines: call.operand(1)?, sines: call.operand(2)? };
    if let Some(positions) = call.optional(3) {
        angles = angles.at(call, positions)?;
    }
    rotated(call, &angles)
}

/// Imports the operator of ONNX Runtime. A single position is that of the first token.
fn of_runtime(call: &mut Call) -> Result<ImportValue> {
    call.check_most(4)?;
    if call.flag("is_packed_batching", false)? || call.float_or("scale", 1.0)? != 1.0 {
        return unfit("packed sequences and scales are not supported");
    }
    let (x, mut positions) = (call.operand(0)?, call.operand(1)?);
    if call.rank(positions) == 1 {
        let sequence = match call.shape(x)[..] {
            [_, m, _] | [_, _, m, _] => m,
            ref shape => return unfit(format!("expected three or four axes, found shape {shape:?}")),
        };
        let steps = call.positions(0, sequence, [1, 2])?;
        positions = call.binary(Binary::Add, steps, positions)?;
    }
    let angles = Angles { cosines: call.operand(2)?, sines: call.operand(3)? };
    let angles = angles.at(call, positions)?;
    rotated(call, &angles)
}

impl Angles {
    /// Selects the angles of positions from those of all.
    pub(super) fn at(&self, call: &mut Call, positions: ImportValue) -> Result<Self> {
        let cosines = call.add(Gather { axis: 0 }, &[self.cosines, positions])?;
        Ok(Self { cosines, sines: call.add(Gather { axis: 0 }, &[self.sines, positions])? })
    }

    /// Rotates pairs of the first elements of heads by angles `[b, m, half]`; the heads are along
    /// an axis before or behind the sequence.
    pub(super) fn rotated(
        &self,
        call: &mut Call,
        x: ImportValue,
        heads: usize,
        is_interleaved: bool,
    ) -> Result<ImportValue> {
        let (d, half) = (call.shape(x)[3], call.shape(self.cosines)[2]);
        let angles = [call.insert_axes(self.cosines, &[heads])?, call.insert_axes(self.sines, &[heads])?];

        let rotary = half.saturating_mul(2);
        let first = call.part(x, 3, [0, rotary])?;
        let turned = match is_interleaved {
            true => interleaved(call, first, angles)?,
            false => {
                let halves = [call.part(first, 3, [0, half])?, call.part(first, 3, [half, half])?];
                let turned = turn(call, halves, angles)?;
                call.add(Concat { axis: 3 }, &turned)?
            }
        };
        if rotary == d {
            return Ok(turned);
        }
        let rest = call.part(x, 3, [rotary, d - rotary])?;
        call.add(Concat { axis: 3 }, &[turned, rest])
    }
}

/// Rotates pairs of elements of the first input by angles of shape `[b, m, half]`.
fn rotated(call: &mut Call, angles: &Angles) -> Result<ImportValue> {
    let x = call.operand(0)?;
    let whole = call.shape(x);
    let &[_, _, half] = &call.shape(angles.cosines)[..] else {
        return unfit(format!("angles of shape {:?}; expected batch, sequence, angle", call.shape(angles.cosines)));
    };
    if call.shape(angles.sines) != call.shape(angles.cosines) {
        return unfit(format!("sines of shape {:?} do not match the cosines", call.shape(angles.sines)));
    }
    // The extents of an empty tensor may be arbitrarily large.
    let pair = half.saturating_mul(2);
    let said = call.extent("rotary_embedding_dim")?;
    let heads = call.extent("num_heads")?;

    // Heads of a tensor with three axes follow the sequence.
    let (split, axis) = match (&whole[..], heads) {
        (&[b, m, all], 0) if half > 0 && said == 0 => (vec![b, m, all / pair, pair], 2),
        (&[b, m, all], heads) if heads > 0 => (vec![b, m, heads, all / heads], 2),
        (&[b, heads, m, d], _) => (vec![b, heads, m, d], 1),
        _ => return unfit(format!("a tensor of shape {whole:?} with {heads} heads")),
    };
    let x = call.reshape(&split, x)?;
    let rotary = if said == 0 { split[3] } else { said };
    if rotary != pair || rotary > split[3] {
        return unfit(format!("{half} angles for {rotary} of {} elements", split[3]));
    }
    let is_interleaved = call.flag("interleaved", false)?;
    let turned = angles.rotated(call, x, axis, is_interleaved)?;
    call.reshape(&whole, turned)
}

/// Rotates pairs of neighbours.
fn interleaved(call: &mut Call, x: ImportValue, angles: [ImportValue; 2]) -> Result<ImportValue> {
    let shape = call.shape(x);
    let mut ranges = Range::all(&shape);
    ranges[3] = Range { start: 0, step: 2, count: shape[3] / 2 };
    let even = call.slice(ranges.clone(), x)?;
    ranges[3].start = 1;
    let odd = call.slice(ranges, x)?;

    let columns = [&shape[..3], &[shape[3] / 2, 1]].concat();
    let [real, imaginary] = turn(call, [even, odd], angles)?;
    let pair = [call.reshape(&columns, real)?, call.reshape(&columns, imaginary)?];
    let pairs = call.add(Concat { axis: 4 }, &pair)?;
    call.reshape(&shape, pairs)
}

/// Returns `x cos - y sin` and `x sin + y cos`.
fn turn(call: &mut Call, [x, y]: [ImportValue; 2], [cosines, sines]: [ImportValue; 2]) -> Result<[ImportValue; 2]> {
    let (a, b) = (call.binary(Binary::Mul, x, cosines)?, call.binary(Binary::Mul, y, sines)?);
    let (c, d) = (call.binary(Binary::Mul, x, sines)?, call.binary(Binary::Mul, y, cosines)?);
    Ok([call.binary(Binary::Sub, a, b)?, call.binary(Binary::Add, c, d)?])
}

impl Call<'_> {
    /// Returns an attribute that is a number of elements, 0 if it is absent.
    fn extent(&self, name: &'static str) -> Result<usize> {
        usize::try_from(self.int_or(name, 0)?).map_err(|_| attribute(name, "is negative"))
    }
}
