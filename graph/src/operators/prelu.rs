//! Parametric ReLU.

use autotune_workloads::PointwiseOp;

use super::binary::paired;
use super::pointwise::pointwise;
use super::prelude::*;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("PRelu", import)];

/// `x` if positive, else `slope * x`; the slope broadcasts to `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prelu;

impl Operator for Prelu {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shapes = shapes_of(operands, 2..=2, DType::F32)?;
        Ok((fixed(shapes[0], shapes[1])?, DType::F32))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        paired(operands, shape, |x: f32, slope: f32| if x < 0.0 { x * slope } else { x })
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        pointwise(node, PointwiseOp::Prelu)
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("PRelu", Vec::new())
    }
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let (x, mut slope) = (call.operand(0)?, call.operand(1)?);
    // Before opset 7 there is one slope for each channel, or a single one.
    let (rank, slopes) = (call.rank(x), call.shape(slope));
    if call.version < 7 && slopes.len() == 1 && rank > 2 {
        let shape = [slopes, vec![1; rank - 2]].concat();
        slope = call.reshape(&shape, slope)?;
    }
    call.add(Prelu, &[x, slope])
}
