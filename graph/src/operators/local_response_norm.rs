//! Local response normalisation.

use autotune_workloads::{self as workload, Workload};

use super::prelude::*;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("LRN", import)];

/// `x / (bias + alpha/size * (sum of squares of the nearest channels))^beta` for `[n, c, ..]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocalResponseNorm {
    /// Number of neighbouring channels in the sum, the element's own included.
    pub size: usize,
    /// Factor of the mean of the squares.
    pub alpha: f32,
    /// Exponent of the divisor.
    pub beta: f32,
    /// Constant added to the scaled mean.
    pub bias: f32,
}

impl Operator for LocalResponseNorm {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shape = shapes_of(operands, 1..=1, DType::F32)?[0];
        match self.size > 0 && shape.len() > 1 {
            true => Ok((shape.to_vec(), DType::F32)),
            false => unfit(format!("cannot normalise over {} channels of images of shape {shape:?}", self.size)),
        }
    }

    fn compute(&self, operands: &[&Tensor], _: &[usize]) -> Result<Tensor, OpError> {
        let (size, [alpha, beta, bias]) = (self.size, [self.alpha, self.beta, self.bias]);
        let (x, shape) = (values::<f32>(operands, 0)?, operands[0].shape());
        let (channels, pixels) = (shape[1], shape[2..].iter().product::<usize>());
        let (before, behind) = ((size - 1) / 2, size / 2);
        let of = |(at, &value): (usize, &f32)| {
            let channel = at / pixels % channels;
            let first = at - channel * pixels;
            let near = channel.saturating_sub(before)..channels.min(channel.saturating_add(behind).saturating_add(1));
            let squares: f64 = near.map(|channel| f64::from(x[first + channel * pixels]).powi(2)).sum();
            let base = f64::from(bias) + f64::from(alpha) / size as f64 * squares;
            (f64::from(value) / libm::pow(base, beta.into())) as f32
        };
        tensor(shape, x.iter().enumerate().map(of).collect())
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let [n, c, spatial @ ..] = node.shape(0) else { return None };
        let Self { size, alpha, beta, bias: shift } = *self;
        let s = spatial.iter().product();
        let op = workload::LocalResponseNormWorkload { n: *n, c: *c, s, size, alpha, beta, shift };
        Some(Anchor::new(Workload::new(op).ok()?, node))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let Self { size, alpha, beta, bias } = *self;
        to.operator("LRN", vec![int("size", size), float("alpha", alpha), float("beta", beta), float("bias", bias)])
    }

    fn steps(&self, _: &[Facts], output: &[usize]) -> Option<usize> {
        product(output)?.checked_mul(self.size)
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        true
    }
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let size = call.int("size")?.and_then(|size| usize::try_from(size).ok());
    let size = size.ok_or_else(|| attribute("size", "is missing or negative"))?;
    let op = LocalResponseNorm {
        size,
        alpha: call.float_or("alpha", 1e-4)?,
        beta: call.float_or("beta", 0.75)?,
        bias: call.float_or("bias", 1.0)?,
    };
    call.add(op, &[x])
}
