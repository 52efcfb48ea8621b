//! Permutation of axes.

use autotune_workloads::{self as workload, Workload};

use super::prelude::*;
use crate::memory::memory_dtype;
use crate::onnx::error::unfit;
use crate::op;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("Transpose", import).keeps_bytes(),
    OnnxOperator::one("DepthToSpace", depth_to_space),
    OnnxOperator::one("SpaceToDepth", space_to_depth),
];

/// Permutation of axes: axis `i` of the output is axis `perm[i]` of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transpose(pub Vec<usize>);

impl Operator for Transpose {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 1..=1)?;
        let (shape, dtype) = operands[0];
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        match sorted.iter().copied().eq(0..shape.len()) {
            true => Ok((self.0.iter().map(|&axis| shape[axis]).collect(), dtype)),
            false => op::unfit(format!("{:?} is not a permutation of the axes of {shape:?}", listed(&self.0))),
        }
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let own = strides(operands[0].shape());
        let steps: Vec<usize> = self.0.iter().map(|&axis| own[axis]).collect();
        by_type!(operands[0].dtype(), along(operands, steps, shape))
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let op = workload::TransposeWorkload::new(node.shape(0), &self.0).ok()?;
        let workload = Workload::new(op).and_then(|workload| workload.with_dtype(memory_dtype(node.dtype(0))));
        Some(Anchor::new(workload.ok()?, node))
    }

    fn movement(&self, node: &NodeView) -> Option<Movement> {
        let shape = node.shape(0);
        // If the axes with more than one element keep their order, no element moves.
        if self.0.iter().filter(|&&axis| shape[axis] != 1).is_sorted() {
            return Some(Movement::Piece(0));
        }
        let strides = strides(shape);
        Some(Movement::Strided { from: 0, steps: self.0.iter().map(|&axis| strides[axis] as isize).collect() })
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("Transpose", vec![ints("perm", self.0.iter().copied())])
    }

    fn is_cheap(&self) -> bool {
        true
    }
}

impl Call<'_> {
    pub(crate) fn transpose(&mut self, perm: &[usize], x: ImportValue) -> call::Result<ImportValue> {
        match perm.len() == self.rank(x) && perm.iter().copied().eq(0..perm.len()) {
            true => Ok(x),
            false => self.add(Transpose(perm.to_vec()), &[x]),
        }
    }
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let perm = call.extents("perm")?.unwrap_or_else(|| (0..call.rank(x)).rev().collect());
    call.transpose(&perm, x)
}

/// Returns images and the block size of a conversion between channels and spatial blocks.
fn blocks(call: &Call) -> call::Result<(ImportValue, [usize; 4], usize)> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let size = call.int("blocksize")?.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
    let size = size.ok_or_else(|| attribute("blocksize", "is missing or not positive"))?;
    match call.shape(x)[..] {
        [n, c, h, w] if size < 1 << 16 => Ok((x, [n, c, h, w], size)),
        ref shape => unfit(format!("images of shape {shape:?} cannot be divided into blocks of {size}")),
    }
}

fn depth_to_space(call: &mut Call) -> call::Result<ImportValue> {
    let (x, [n, c, h, w], size) = blocks(call)?;
    let inner = c / (size * size);
    // The modes differ in the order of the block and channel axes.
    let (split, perm) = match call.word_or("mode", "DCR")? {
        "DCR" => ([n, size, size, inner, h, w], [0, 3, 4, 1, 5, 2]),
        "CRD" => ([n, inner, size, size, h, w], [0, 1, 4, 2, 5, 3]),
        _ => return Err(attribute("mode", "expected DCR or CRD")),
    };
    let parts = call.reshape(&split, x)?;
    let ordered = call.transpose(&perm, parts)?;
    let extents = [h.checked_mul(size), w.checked_mul(size)];
    let [Some(h), Some(w)] = extents else { return unfit("the images are too large") };
    call.reshape(&[n, inner, h, w], ordered)
}

fn space_to_depth(call: &mut Call) -> call::Result<ImportValue> {
    let (x, [n, c, h, w], size) = blocks(call)?;
    let (h, w) = (h / size, w / size);
    let parts = call.reshape(&[n, c, h, size, w, size], x)?;
    let ordered = call.transpose(&[0, 3, 5, 1, 2, 4], parts)?;
    let Some(channels) = c.checked_mul(size * size) else { return unfit("the blocks are too large") };
    call.reshape(&[n, channels, h, w], ordered)
}
