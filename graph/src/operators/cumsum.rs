//! Cumulative sums.

use super::binary::Binary;
use super::concat::Concat;
use super::prelude::*;
use super::reshape::Reshape;
use super::slice::{Range, Slice};
use crate::constant::Constant;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("CumSum", import)];

/// Cumulative sums along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CumSum {
    /// Axis of the sums.
    pub axis: usize,
    /// True if a sum excludes its own element.
    pub exclusive: bool,
    /// True if sums run from the end of the axis.
    pub reverse: bool,
}

impl Operator for CumSum {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 1..=1)?;
        let (shape, dtype) = operands[0];
        if dtype != DType::I64 {
            check_dtype(operands, 0, DType::F32)?;
        }
        axis_of(self.axis, shape)?;
        Ok((shape.to_vec(), dtype))
    }

    /// Sums in double precision; integer sums wrap around.
    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        match operands[0].dtype() {
            DType::I64 => self.sums(operands, shape, 0i64, i64::wrapping_add, |sum| sum),
            _ => self.sums(operands, shape, 0f64, |sum, x: f32| sum + f64::from(x), |sum| sum as f32),
        }
    }

    /// Returns a parallel prefix sum by doubling (Hillis and Steele): each round adds the sums that
    /// end where the present ones begin, so that they span twice as many elements.
    fn parts(&self, node: &NodeView) -> Option<Vec<SubNode>> {
        let (shape, extent) = (node.shape(0), node.shape(0)[self.axis]);
        let mut parts = Vec::new();
        let mut sums = if self.exclusive { self.shifted(&mut parts, node, 0, 1)? } else { 0 };
        let mut reach = 1;
        while reach < extent {
            let before = self.shifted(&mut parts, node, sums, reach)?;
            parts.push(SubNode::new(Binary::Add, vec![sums, before]));
            (sums, reach) = (parts.len(), 2 * reach);
        }
        if parts.is_empty() {
            parts.push(SubNode::new(Reshape(shape.to_vec()), vec![0]));
        }
        Some(parts)
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let axis = Tensor::i64(&[], vec![self.axis as i64]).map_err(|source| to.wrong(source.to_string()))?;
        let (x, axis) = (to.input(0), to.constant(&axis));
        let attributes = vec![int("exclusive", self.exclusive.into()), int("reverse", self.reverse.into())];
        to.node("CumSum", &[&x, &axis], attributes)
    }
}

impl CumSum {
    /// Appends parts that shift a tensor along the axis and fill with zeros. Returns the result's
    /// operand number, counted over the node's operand and the parts.
    fn shifted(&self, parts: &mut Vec<SubNode>, node: &NodeView, sums: usize, by: usize) -> Option<usize> {
        let (shape, dtype) = node.output();
        let mut ranges = Range::all(shape);
        let range = &mut ranges[self.axis];
        *range = Range { start: if self.reverse { by } else { 0 }, step: 1, count: range.count - by };
        // A shift by the whole axis leaves nothing; the empty slice still needs a valid start.
        if range.count == 0 {
            range.start = 0;
        }
        let mut zeros = shape.to_vec();
        zeros[self.axis] = by;

        parts.push(SubNode::new(Slice(ranges), vec![sums]));
        let rest = parts.len();
        parts.push(SubNode::new(Constant::from(zero(&zeros, dtype).ok()?), Vec::new()));
        let pieces = if self.reverse { vec![rest, rest + 1] } else { vec![rest + 1, rest] };
        parts.push(SubNode::new(Concat { axis: self.axis }, pieces));
        Some(parts.len())
    }

    fn sums<T: Typed, S: Copy>(
        &self,
        operands: &[&Tensor],
        shape: &[usize],
        zero: S,
        add: impl Fn(S, T) -> S,
        rounded: impl Fn(S) -> T,
    ) -> Result<Tensor, OpError> {
        let x = values::<T>(operands, 0)?;
        let (extent, stride) = (shape[self.axis], shape[self.axis + 1..].iter().product::<usize>());
        let mut sums = x.to_vec();
        // First element of each line along the axis.
        for first in (0..x.len()).filter(|at| at / stride % extent == 0) {
            let mut sum = zero;
            for step in 0..extent {
                let at = first + stride * if self.reverse { extent - 1 - step } else { step };
                let with_own = add(sum, x[at]);
                sums[at] = rounded(if self.exclusive { sum } else { with_own });
                sum = with_own;
            }
        }
        tensor(shape, sums)
    }
}

fn zero(shape: &[usize], dtype: DType) -> Result<Tensor, OpError> {
    let count = shape.iter().product();
    match dtype {
        DType::I64 => tensor(shape, vec![0i64; count]),
        _ => tensor(shape, vec![0f32; count]),
    }
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let (x, number) = (call.operand(0)?, call.known_number(1)?);
    let number = number.ok_or_else(|| missing(1))?;
    let axis = axis(number as i64, call.rank(x))?;
    let (exclusive, reverse) = (call.flag("exclusive", false)?, call.flag("reverse", false)?);
    call.add(CumSum { axis, exclusive, reverse }, &[x])
}
