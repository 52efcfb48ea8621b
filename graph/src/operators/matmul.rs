//! Matrix products.

use autotune_workloads::{Batch, Matmul, Sides, Workload};

use super::binary::Binary;
use super::contract::{columns_of, contract, last_two};
use super::prelude::*;
use super::transpose::Transpose;
use crate::onnx::error;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("MatMul", import), OnnxOperator::one("Gemm", gemm)];

/// Matrix product `[.., m, k]` by `[.., k, n]`. Leading axes broadcast; a tensor of one axis is a
/// row or a column (as in `numpy.matmul`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatMul;

impl Operator for MatMul {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shapes = shapes_of(operands, 2..=2, DType::F32)?;
        Ok((output(shapes[0], shapes[1])?, DType::F32))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (a, b) = (values::<f32>(operands, 0)?, values::<f32>(operands, 1)?);
        let sums = sums([&a, &b], [operands[0].shape(), operands[1].shape()], shape)?;
        tensor(shape, sums.into_iter().map(|sum| sum as f32).collect())
    }

    /// Returns a matrix product, with transposed operands folded in if there is such a kernel:
    /// `MatMul(a, Transpose(b))` → `matmul:..,tb` of `a` and `b`.
    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        // There may be no kernel that reads the left operand transposed, or none that reads either
        // so.
        let [without_a, without_b] = [0, 1].map(|operand| is_matrix_transpose(node, operand));
        product_of(node, [without_a, without_b])
            .or_else(|| product_of(node, [false, without_b]))
            .or_else(|| product_of(node, [false, false]))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("MatMul", Vec::new())
    }

    fn steps(&self, operands: &[Facts], output: &[usize]) -> Option<usize> {
        product(output)?.checked_mul(*operands[0].0.last()?)
    }

    fn channel_of_sums(&self, rank: usize) -> Option<usize> {
        rank.checked_sub(1)
    }
}

/// Returns the sums of a [`MatMul`] of two tensors of the given shapes, in double precision.
pub(super) fn sums(
    [a, b]: [&[f32]; 2],
    [a_shape, b_shape]: [&[usize]; 2],
    shape: &[usize],
) -> Result<Vec<f64>, OpError> {
    let [m, k] = if let [k] = *a_shape { [1, k] } else { last_two(a_shape) };
    let n = if b_shape.len() == 1 { 1 } else { last_two(b_shape)[1] };

    // Leading axes are the batch; a broadcast operand repeats its matrices.
    let outer = |shape: &[usize]| shape[..shape.len().saturating_sub(2)].to_vec();
    let own = usize::from(a_shape.len() > 1) + usize::from(b_shape.len() > 1);
    let batch = &shape[..shape.len() - own];
    let starts = |shape: &[usize], size: usize| -> Vec<usize> {
        let strides = broadcast_strides(&outer(shape), batch);
        offsets(batch, &strides).into_iter().map(|matrix| matrix * size).collect()
    };

    let mut product = Vec::with_capacity(elements(shape)?);
    for (a_start, b_start) in starts(a_shape, m * k).into_iter().zip(starts(b_shape, k * n)) {
        let (a, b) = (&a[a_start..a_start + m * k], &b[b_start..b_start + k * n]);
        let sums = contract(a, [m, k, n], |first, columns| columns_of(b, n, first, columns));
        product.extend(sums);
    }
    Ok(product)
}

pub(super) fn output(a: &[usize], b: &[usize]) -> Result<Vec<usize>, OpError> {
    let wrong = || OpError::Unfit(format!("cannot multiply tensors of shapes {a:?} and {b:?}"));
    let rows = |shape: &[usize]| if let &[k] = shape { vec![1, k] } else { shape.to_vec() };
    let columns = |shape: &[usize]| if let &[k] = shape { vec![k, 1] } else { shape.to_vec() };
    let (left, right) = (rows(a), columns(b));
    let ([a_batch @ .., m, k], [b_batch @ .., k_of_b, n]) = (&left[..], &right[..]) else { return Err(wrong()) };
    if k != k_of_b {
        return Err(wrong());
    }
    let mut shape = broadcast(a_batch, b_batch).map_err(|_| wrong())?;
    shape.extend((a.len() > 1).then_some(*m));
    shape.extend((b.len() > 1).then_some(*n));
    Ok(shape)
}

/// Returns a matrix product; `ta` and `tb` say which operands are read before their transposition.
pub(super) fn product_of(node: &NodeView, [ta, tb]: [bool; 2]) -> Option<Anchor> {
    let ([a_batch @ .., m, k], [b_batch @ .., k_of_b, n]) = (node.shape(0), node.shape(1)) else { return None };
    debug_assert_eq!(k, k_of_b);

    // Rows that share a right matrix are adjacent, so the batch axis merges into them, unless the
    // left operand is stored transposed.
    let mut batch = batch_of(a_batch, b_batch)?;
    let mut rows = *m;
    while let Some((extent, Sides::Left)) = batch.last().filter(|_| !ta) {
        rows = rows.checked_mul(*extent)?;
        batch.pop();
    }
    let op = Matmul { b: Batch::new(batch)?, m: rows, n: *n, k: *k, ta, tb };
    let read = |operand, exchanged| if exchanged { Read::Behind(operand) } else { Read::Operand(operand) };
    let reads = vec![read(0, ta), read(1, tb)];
    let channel = node.output().0.len().checked_sub(1);
    Some(Anchor { reads, ..Anchor::new(Workload::new(op).ok()?, node).with_sums(channel) })
}

/// Returns the non-unit axes of two broadcast batches, outermost first, with the operands that have
/// them.
fn batch_of(a: &[usize], b: &[usize]) -> Option<Vec<(usize, Sides)>> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[usize], axis: usize| (axis + shape.len()).checked_sub(rank).map_or(1, |own| shape[own]);
    let axis = |axis: usize| match (extent(a, axis), extent(b, axis)) {
        (1, 1) => None,
        (a, b) if a == b => Some(Some((a, Sides::Both))),
        (a, 1) => Some(Some((a, Sides::Left))),
        (1, b) => Some(Some((b, Sides::Right))),
        _ => Some(None),
    };
    (0..rank).filter_map(axis).collect()
}

/// True if an operand is a transposition of the last two axes only.
fn is_matrix_transpose(node: &NodeView, operand: usize) -> bool {
    let Some(Transpose(perm)) = node.op(operand).of() else { return false };
    let rank = perm.len();
    rank >= 2 && perm[rank - 2..] == [rank - 1, rank - 2] && perm[..rank - 2].iter().copied().eq(0..rank - 2)
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let operands = [call.operand(0)?, call.operand(1)?];
    call.add(MatMul, &operands)
}

/// Imports `alpha * a b + beta * c` with optional transpositions; `alpha` is folded into `b` if
/// that is constant.
fn gemm(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(3)?;
    call.ignore(&["broadcast"]);
    let (alpha, beta) = (call.float_or("alpha", 1.0)?, call.float_or("beta", 1.0)?);
    let a = transposed(call, "transA", 0)?;
    let mut b = transposed(call, "transB", 1)?;

    // A constant `b` absorbs alpha at import, which saves a pass over the product.
    let scales_b = alpha != 1.0 && call.constant_of(b).is_some();
    if scales_b {
        b = call.with(Binary::Mul, b, alpha)?;
    }
    let mut product = call.add(MatMul, &[a, b])?;
    if alpha != 1.0 && !scales_b {
        product = call.with(Binary::Mul, product, alpha)?;
    }

    let Some(mut c) = call.optional(2) else { return Ok(product) };
    if beta != 1.0 {
        c = call.with(Binary::Mul, c, beta)?;
    }
    let shape = call.shape(product);
    let sum = call.binary(Binary::Add, product, c)?;
    // `c` must broadcast to the product, not the other way round.
    match call.shape(sum) == shape {
        true => Ok(sum),
        false => error::unfit(format!("the added tensor cannot be broadcast to {shape:?}")),
    }
}

fn transposed(call: &mut Call, name: &'static str, input: usize) -> call::Result<ImportValue> {
    let x = call.operand(input)?;
    if call.rank(x) != 2 {
        return error::unfit(format!("expected a matrix, found shape {:?}", call.shape(x)));
    }
    if call.flag(name, false)? { call.transpose(&[1, 0], x) } else { Ok(x) }
}
