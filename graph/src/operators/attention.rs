//! Scaled dot-product attention.

use autotune_workloads::{self as workload, Mask, Workload};

use super::contract::{columns_of, contract, last_two};
use super::prelude::*;

/// `softmax(scale * q k^T + mask) v` for queries `[.., m, d]`, keys `[.., n, d]` and values `[..,
/// n, e]`. The optional fourth operand is a mask that broadcasts to `[.., m, n]`: numbers to add to
/// the scores, or booleans that are false where a key is hidden.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Factor of the products of queries and keys.
    pub scale: f32,
}

impl Operator for Attention {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 3..=4)?;
        let is_mask = |operand: usize| operand == 3 && operands[3].1 == DType::Bool;
        let mut numbers = (0..operands.len()).filter(|&operand| !is_mask(operand));
        numbers.try_for_each(|operand| check_dtype(operands, operand, DType::F32))?;
        let shapes: Vec<&[usize]> = operands.iter().map(|&(shape, _)| shape).collect();
        Ok((output(&shapes)?, DType::F32))
    }

    /// Evaluates in double precision. A fully masked row has only -inf scores; its output is NaN.
    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let scale = self.scale;
        let (q, k, v) = (values::<f32>(operands, 0)?, values::<f32>(operands, 1)?, values::<f32>(operands, 2)?);
        let ([m, d], [n, e]) = (last_two(operands[0].shape()), last_two(operands[2].shape()));
        let batch = shape[..shape.len() - 2].iter().product::<usize>();
        let mask = mask(operands, &[&shape[..shape.len() - 2], &[m, n]].concat())?;

        let mut outputs = Vec::with_capacity(elements(shape)?);
        for number in 0..batch {
            let of = |x: &[f32], size: usize| x[number * size..(number + 1) * size].to_vec();
            let (q, k, v) = (of(&q, m * d), of(&k, n * d), of(&v, n * e));
            // The keys are read transposed: the reduction axis is `i`.
            let mut scores = contract(&q, [m, d, n], |first, columns| {
                for (i, column) in columns.iter_mut().enumerate() {
                    column.iter_mut().zip(first..n).for_each(|(column, key)| *column = k[key * d + i].into());
                }
            });
            for (row, scores) in scores.chunks_exact_mut(n.max(1)).enumerate() {
                let mask = mask.as_ref().map(|mask| &mask[(number * m + row) * n..][..n]);
                scores.iter_mut().for_each(|score| *score *= f64::from(scale));
                mask.into_iter().for_each(|mask| scores.iter_mut().zip(mask).for_each(|(score, mask)| *score += mask));
                weigh(scores);
            }
            let sums = contract(&scores, [m, n, e], |first, columns| columns_of(&v, e, first, columns));
            outputs.extend(sums.into_iter().map(|sum| sum as f32));
        }
        tensor(shape, outputs)
    }

    /// Returns an attention workload; a mask may be shared by queries, by heads, or by the whole
    /// batch.
    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let ([batch @ .., m, d], [.., n, _], [.., e]) = (node.shape(0), node.shape(1), node.shape(2)) else {
            return None;
        };
        // The workload always scales by 1/sqrt(d).
        let usual = 1.0 / (*d as f32).sqrt();
        if (self.scale - usual).abs() > 1e-6 * usual {
            return None;
        }

        let whole = workload::AttentionWorkload::new(batch.iter().product(), [*m, *n], [*d, *e]);
        let op = match node.count() {
            3 => whole,
            _ if node.dtype(3) == DType::F32 => masked(whole, batch, node.shape(3))?,
            _ => return None,
        };
        let channel = node.output().0.len().checked_sub(1);
        Some(Anchor { channel, ..Anchor::new(Workload::new(op).ok()?, node) })
    }

    /// Writes the matrix product, softmax and second matrix product that attention consists of.
    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let (operands, axes) = (to.inputs(), to.shape().len());
        let mut perm: Vec<usize> = (0..axes).collect();
        perm.swap(axes - 2, axes - 1);

        let keys = to.between("Transpose", &[&operands[1]], vec![ints("perm", perm)]);
        let products = to.between("MatMul", &[&operands[0], &keys], vec![]);
        let scale = to.number(self.scale);
        let mut scores = to.between("Mul", &[&products, &scale], vec![]);
        if let Some(mask) = operands.get(3) {
            scores = match to.operand(3).1 {
                DType::Bool => {
                    let never = to.number(f32::NEG_INFINITY);
                    to.between("Where", &[mask, &scores, &never], vec![])
                }
                _ => to.between("Add", &[&scores, mask], vec![]),
            };
        }
        let weights = to.between("Softmax", &[&scores], vec![int("axis", axes - 1)]);
        to.node("MatMul", &[&weights, &operands[2]], vec![])
    }

    fn steps(&self, _: &[Facts], _: &[usize]) -> Option<usize> {
        None
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        true
    }
}

fn output(shapes: &[&[usize]]) -> Result<Vec<usize>, OpError> {
    let (q, k, v) = (shapes[0], shapes[1], shapes[2]);
    let ([batch @ .., m, d], [k_batch @ .., n, k_d], [v_batch @ .., v_n, e]) = (q, k, v) else {
        return unfit("queries, keys and values must have at least two axes");
    };
    if (batch, d, n) != (k_batch, k_d, v_n) || batch != v_batch {
        return unfit(format!("shapes of queries {q:?}, keys {k:?} and values {v:?} do not match"));
    }
    let scores = [batch, &[*m, *n]].concat();
    if let Some(mask) = shapes.get(3) {
        fixed(&scores, mask)?;
    }
    Ok([batch, &[*m, *e]].concat())
}

/// Returns the summands of the scores of shape `extents`: the mask itself, or -inf where a boolean
/// mask is false.
fn mask(operands: &[&Tensor], extents: &[usize]) -> Result<Option<Vec<f64>>, OpError> {
    let Some(mask) = operands.get(3) else { return Ok(None) };
    if elements(extents)? == 0 {
        return Ok(Some(Vec::new()));
    }
    let rows = TensorRows::broadcast([mask.shape()], extents);
    Ok(Some(match mask.dtype() {
        DType::Bool => {
            let mask = values::<bool>(operands, 3)?;
            rows.map(|[at]| if mask[at] { 0.0 } else { f64::NEG_INFINITY })
        }
        _ => {
            let mask = values::<f32>(operands, 3)?;
            rows.map(|[at]| mask[at].into())
        }
    }))
}

/// Replaces a row of scores by its softmax.
fn weigh(row: &mut [f64]) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, larger);
    row.iter_mut().for_each(|x| *x = libm::exp(*x - largest));
    let total: f64 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= total);
}

/// Adds the mask's kind to the workload, for a mask `shape` that broadcasts to `[..batch, m, n]`.
/// Returns `None` where the workload has no such mask.
fn masked(whole: workload::AttentionWorkload, batch: &[usize], shape: &[usize]) -> Option<workload::AttentionWorkload> {
    let mut own = vec![1; (batch.len() + 2).checked_sub(shape.len())?];
    own.extend(shape);
    let (of_batch, of_scores) = own.split_at(batch.len());
    // Kernels require the mask to have one entry for each key.
    let of_rows = match of_scores {
        &[queries, keys] if keys == whole.n => queries != 1,
        _ => return None,
    };
    // A mask that the whole batch shares has no batch axis in the workload.
    if of_batch.iter().all(|&extent| extent == 1) {
        return Some(workload::AttentionWorkload { mask: if of_rows { Mask::Matrix } else { Mask::Row }, ..whole });
    }

    let product = |extents: &[usize]| extents.iter().product();
    // The mask spans the leading axes that it shares with the batch; it is repeated over the rest,
    // the heads.
    let shared = of_batch.iter().zip(batch).take_while(|(own, whole)| own == whole).count();
    let (outer, heads) = batch.split_at(shared);
    let is_repeated = of_batch[shared..].iter().all(|&extent| extent == 1);
    let mask = if of_rows { Mask::Matrices } else { Mask::Rows };
    is_repeated.then(|| workload::AttentionWorkload { b: product(outer), h: product(heads), mask, ..whole })
}
