//! Layer normalisation.

use autotune_ir::program::UnaryOp;
use autotune_workloads::{self as workload, ReduceOp, Workload};

use super::binary::Binary;
use super::prelude::*;

pub(super) static IMPORTS: &[OnnxOperator] =
    &[OnnxOperator::many("LayerNormalization", import), OnnxOperator::one("RMSNormalization", rms_norm)];

/// Default constant added to a variance.
pub(super) const EPS: f32 = 1e-5;

/// `(x - mean) / sqrt(variance + eps) * scale + bias`, with statistics over the axes from `axis`
/// on; scale and optional bias have the shape of these axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// First axis of the statistics.
    pub axis: usize,
    /// Constant added to the variance.
    pub eps: f32,
}

impl Operator for LayerNorm {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shapes = shapes_of(operands, 2..=3, DType::F32)?;
        let inner = &shapes[0][axis_of(self.axis, shapes[0])?..];
        match shapes[1..].iter().find(|shape| **shape != inner) {
            Some(shape) => unfit(format!("scale or bias of shape {shape:?} does not match rows of shape {inner:?}")),
            None => Ok((shapes[0].to_vec(), DType::F32)),
        }
    }

    fn compute(&self, operands: &[&Tensor], _: &[usize]) -> Result<Tensor, OpError> {
        let (axis, eps) = (self.axis, self.eps);
        let (x, shape) = (values::<f32>(operands, 0)?, operands[0].shape());
        let scale = values::<f32>(operands, 1)?;
        let bias = if operands.len() > 2 { values::<f32>(operands, 2)? } else { vec![0.0; scale.len()].into() };
        let rows = x.chunks_exact(shape[axis..].iter().product());
        let normal = rows.flat_map(|row| normal(row, eps).into_iter().zip(scale.iter().zip(bias.iter())));
        tensor(shape, normal.map(|(x, (&scale, &bias))| (x * f64::from(scale) + f64::from(bias)) as f32).collect())
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let (outer, inner) = node.shape(0).split_at(self.axis);
        let op = workload::LayerNormWorkload { m: outer.iter().product(), n: inner.iter().product(), eps: self.eps };
        (node.count() == 3).then_some(Anchor::new(Workload::new(op).ok()?, node))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("LayerNormalization", vec![int("axis", self.axis), float("epsilon", self.eps)])
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        true
    }
}

/// Returns a row, normalised to mean 0 and variance 1.
pub(super) fn normal(row: &[f32], eps: f32) -> Vec<f64> {
    let mean_of = |sum: f64| sum / row.len() as f64;
    let mean = mean_of(row.iter().map(|&x| f64::from(x)).sum());
    // A second pass avoids the cancellation of large means.
    let variance = mean_of(row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum());
    let deviation = (variance + f64::from(eps)).sqrt();
    row.iter().map(|&x| (f64::from(x) - mean) / deviation).collect()
}

/// Imports the normalised rows, and their means and inverse deviations if the node names these
/// outputs.
fn import(call: &mut Call, outputs: usize) -> call::Result<Vec<ImportValue>> {
    call.check_most(3)?;
    // The type of the statistics: f32 by default, and here always.
    call.ignore(&["stash_type"]);
    let eps = call.float_or("epsilon", EPS)?;
    let x = call.operand(0)?;
    let axis = axis(call.int_or("axis", -1)?, call.rank(x))?;
    let mut all = vec![call.layer_norm(axis, eps, [x, call.operand(1)?], call.optional(2))?];
    if outputs > 1 {
        all.extend(call.row_statistics(axis, eps, x)?);
    }
    Ok(all)
}

impl Call<'_> {
    /// Adds a layer normalisation of rows with a scale and an optional bias, which are broadcast.
    pub(super) fn layer_norm(
        &mut self,
        axis: usize,
        eps: f32,
        [x, scale]: [ImportValue; 2],
        bias: Option<ImportValue>,
    ) -> call::Result<ImportValue> {
        let rows = self.shape(x)[axis..].to_vec();
        let mut operands = vec![x];
        for numbers in [Some(scale), bias].into_iter().flatten() {
            operands.push(self.expand(&rows, numbers)?);
        }
        self.add(LayerNorm { axis, eps }, &operands)
    }

    /// Adds means and inverse deviations of rows, the axes from `axis` on.
    pub(super) fn row_statistics(&mut self, axis: usize, eps: f32, x: ImportValue) -> call::Result<[ImportValue; 2]> {
        let axes: Vec<usize> = (axis..self.rank(x)).collect();
        let mean = self.reduce(ReduceOp::Mean, &axes, true, x)?;
        let centred = self.binary(Binary::Sub, x, mean)?;
        Ok([mean, self.inverse_deviation(&axes, eps, centred)?])
    }

    /// Adds `1 / sqrt(mean of squares + eps)` along axes.
    fn inverse_deviation(&mut self, axes: &[usize], eps: f32, x: ImportValue) -> call::Result<ImportValue> {
        let squares = self.binary(Binary::Mul, x, x)?;
        let mean = self.reduce(ReduceOp::Mean, axes, true, squares)?;
        let shifted = self.with(Binary::Add, mean, eps)?;
        self.unary(UnaryOp::Rsqrt, shifted)
    }

    /// Adds `x / sqrt(mean of squares + eps) * scale` with means along the axes from `axis` on.
    /// Returns the result and the factors before the scale.
    pub(super) fn rms_norm(
        &mut self,
        axis: usize,
        eps: f32,
        [x, scale]: [ImportValue; 2],
    ) -> call::Result<[ImportValue; 2]> {
        let axes: Vec<usize> = (axis..self.rank(x)).collect();
        let factors = self.inverse_deviation(&axes, eps, x)?;
        let normal = self.binary(Binary::Mul, x, factors)?;
        Ok([self.binary(Binary::Mul, normal, scale)?, factors])
    }
}

/// Imports `x / sqrt(mean of squares + eps) * scale` as elementwise operators and a mean.
fn rms_norm(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    // The type of the statistics: f32 by default, and here always.
    call.ignore(&["stash_type"]);
    let eps = call.float_or("epsilon", EPS)?;
    let (x, scale) = (call.operand(0)?, call.operand(1)?);
    let axis = axis(call.int_or("axis", -1)?, call.rank(x))?;
    Ok(call.rms_norm(axis, eps, [x, scale])?[0])
}
