//! Largest or smallest elements along an axis.

use std::cmp::Ordering;

use autotune_workloads::ReduceOp;

use super::binary::Binary;
use super::cast::Cast;
use super::prelude::*;
use super::reduce::Reduce;
use super::reshape::Reshape;
use super::sub_nodes::SubNodes;
use super::transpose::Transpose;

/// Maximum number of pairs of elements that kernels compare: sorting more of them is faster.
const MOST_PAIRS: usize = 1 << 20;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::many("TopK", import)];

/// The `count` largest or smallest elements along an axis, in order, or their indices. Of equal
/// elements, the one with the lower index comes first. NaN counts as larger than all numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopK {
    /// Axis along which elements are ordered.
    pub axis: usize,
    /// Number of elements along the axis of the result.
    pub count: usize,
    /// True for the largest elements, false for the smallest.
    pub is_largest: bool,
    /// True for the indices of the elements, false for the elements.
    pub has_indices: bool,
}

impl Operator for TopK {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 1..=1)?;
        let (shape, dtype) = operands[0];
        if dtype != DType::I64 {
            check_dtype(operands, 0, DType::F32)?;
        }
        let extent = shape[axis_of(self.axis, shape)?];
        if self.count > extent {
            return unfit(format!("{} of {extent} elements along axis {}", self.count, self.axis));
        }
        let mut shape = shape.to_vec();
        shape[self.axis] = self.count;
        Ok((shape, if self.has_indices { DType::I64 } else { dtype }))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        match operands[0].dtype() {
            DType::I64 => self.found(operands, shape, |a: &i64, b| a.cmp(b)),
            _ => self.found(operands, shape, ascending),
        }
    }

    /// Returns the selection of elements by their ranks, from comparisons of each two along the
    /// axis.
    fn parts(&self, node: &NodeView) -> Option<Vec<SubNode>> {
        let (shape, dtype) = (node.shape(0), node.dtype(0));
        let (extent, axes) = (shape[self.axis], shape.len() + 1);
        let pairs = product(shape)?.checked_mul(extent)?;
        if self.count == 0 || !(1..=MOST_PAIRS).contains(&pairs) {
            return None;
        }
        let mut parts = SubNodes::new(node);
        let pair = |pair: [usize; 2]| Reshape([&shape[..self.axis], &pair, &shape[self.axis + 1..]].concat());
        let x = [[extent, 1], [1, extent]].map(|extents| parts.add(pair(extents), &[0]));
        let ranks = self.ranks(&mut parts, x, dtype, [extent, axes])?;

        // Each row of the output has one element of its rank.
        let wanted = parts.constant(numbered(self.count, self.axis, axes)?);
        let wanted = parts.add(Cast(DType::F32), &[wanted]);
        let is_chosen = parts.add(Binary::Equal, &[ranks, wanted]);
        let (all, dtype) = match self.has_indices {
            true => (parts.constant(numbered(extent, self.axis + 1, axes)?), DType::I64),
            false => (x[1], dtype),
        };
        let zero = parts.constant(Tensor::of_numbers(&[], dtype, &[0.0]).ok()?);
        let chosen = parts.choose(is_chosen, all, zero);
        parts.add(Reduce { op: ReduceOp::Sum, axes: vec![self.axis + 1], keep_axes: false }, &[chosen]);
        Some(parts.finish())
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let count = to.integers([self.count as i64])?;
        let attributes = vec![int("axis", self.axis), int("largest", self.is_largest.into())];
        to.node_with_output("TopK", &[&to.input(0), &count], attributes, self.has_indices.into())
    }

    fn steps(&self, operands: &[Facts], output: &[usize]) -> Option<usize> {
        // Each step of a sort compares the elements of an axis.
        let extent = operands[0].0[self.axis];
        product(operands[0].0)?.checked_mul(1 + extent.max(1).ilog2() as usize)?.checked_add(product(output)?)
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        self.has_indices
    }
}

/// Orders numbers; NaN is the largest.
fn ascending(a: &f32, b: &f32) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Returns the numbers from 0 on along one axis of a tensor of `axes` axes.
fn numbered(count: usize, axis: usize, axes: usize) -> Option<Tensor> {
    let mut shape = vec![1; axes];
    shape[axis] = count;
    Tensor::i64(&shape, (0..count as i64).collect()).ok()
}

impl TopK {
    /// Appends parts that compute the rank of each element: the number of earlier elements that it
    /// does not beat, and of later ones that beat it. The elements are given along the axis and
    /// along the next axis; the ranks are along the next axis, in f32.
    fn ranks(
        &self,
        parts: &mut SubNodes,
        [column, row]: [usize; 2],
        dtype: DType,
        [extent, axes]: [usize; 2],
    ) -> Option<usize> {
        let ordered = |pair: [usize; 2], is_ascending| if is_ascending { pair } else { [pair[1], pair[0]] };
        let is_better = parts.add(Binary::Less, &ordered([column, row], self.is_largest));
        let mut beats = parts.add(Cast(DType::F32), &[is_better]);
        if dtype == DType::F32 {
            // NaN is equal to nothing, and larger than all numbers.
            let numbers = [column, row].map(|x| {
                let is_number = parts.add(Binary::Equal, &[x, x]);
                parts.add(Cast(DType::F32), &[is_number])
            });
            let is_better = parts.add(Binary::Less, &ordered(numbers, !self.is_largest));
            let also = parts.add(Cast(DType::F32), &[is_better]);
            beats = parts.add(Binary::Max, &[beats, also]);
        }
        let is_later = |at: usize| if at % extent > at / extent { 1.0 } else { 0.0 };
        let mut shape = vec![1; axes - self.axis];
        shape[..2].fill(extent);
        let later = parts.constant(Tensor::f32(&shape, (0..extent * extent).map(is_later).collect()).ok()?);
        let beats = parts.add(Binary::Mul, &[beats, later]);

        let [lost, won] = [self.axis + 1, self.axis]
            .map(|axis| parts.add(Reduce { op: ReduceOp::Sum, axes: vec![axis], keep_axes: true }, &[beats]));
        let mut order: Vec<usize> = (0..axes).collect();
        order.swap(self.axis, self.axis + 1);
        let lost = parts.add(Transpose(order), &[lost]);
        let before = parts.constant(numbered(extent, self.axis + 1, axes)?);
        let before = parts.add(Cast(DType::F32), &[before]);
        let kept = parts.add(Binary::Sub, &[before, won]);
        Some(parts.add(Binary::Add, &[kept, lost]))
    }

    fn found<T: Typed>(
        &self,
        operands: &[&Tensor],
        shape: &[usize],
        order: impl Fn(&T, &T) -> Ordering,
    ) -> Result<Tensor, OpError> {
        let (x, extent) = (values::<T>(operands, 0)?, operands[0].shape()[self.axis]);
        let inner: usize = shape[self.axis + 1..].iter().product();
        let outer: usize = shape[..self.axis].iter().product();

        // Position in the operand and index along the axis of each element of the output.
        let mut places = vec![(0, 0); elements(shape)?];
        for line in 0..outer * inner {
            let (row, column) = (line / inner, line % inner);
            let at = |index: usize| (row * extent + index) * inner + column;
            let mut indices: Vec<usize> = (0..extent).collect();
            // A stable sort keeps equal elements in the order of their indices.
            indices.sort_by(|&a, &b| match order(&x[at(a)], &x[at(b)]) {
                order if self.is_largest => order.reverse(),
                order => order,
            });
            for (rank, &index) in indices[..self.count].iter().enumerate() {
                places[(row * self.count + rank) * inner + column] = (at(index), index);
            }
        }
        match self.has_indices {
            true => tensor(shape, places.iter().map(|&(_, index)| index as i64).collect()),
            false => tensor(shape, places.iter().map(|&(at, _)| x[at]).collect()),
        }
    }
}

/// Imports both outputs, the elements and their indices. The number of elements is an attribute
/// before opset 10. Unsorted outputs, of which no order is expected, are sorted, too.
fn import(call: &mut Call, outputs: usize) -> call::Result<Vec<ImportValue>> {
    call.check_most(if call.version < 10 { 1 } else { 2 })?;
    call.ignore(&["sorted"]);
    let x = call.operand(0)?;
    let axis = axis(call.int_or("axis", -1)?, call.rank(x))?;
    let is_largest = call.flag("largest", true)?;
    let count = match call.version < 10 {
        true => call.int("k")?,
        false => call.known_integers(1)?.and_then(|count| count.first().copied()),
    };
    let count = count.and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or_else(|| NodeError::Unfit("the number of elements is missing or negative".into()))?;
    let output = |has_indices| call.add(TopK { axis, count, is_largest, has_indices }, &[x]);
    [false, true].into_iter().take(outputs).map(output).collect()
}
