//! Logical negation.

use autotune_workloads::PointwiseOp;

use super::pointwise::pointwise;
use super::prelude::*;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("Not", import)];

/// Logical negation of booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Not;

impl Operator for Not {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        Ok((shapes_of(operands, 1..=1, DType::Bool)?[0].to_vec(), DType::Bool))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        tensor(shape, values::<bool>(operands, 0)?.iter().map(|x| !x).collect())
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        pointwise(node, PointwiseOp::Not)
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("Not", Vec::new())
    }
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    call.add(Not, &[x])
}
