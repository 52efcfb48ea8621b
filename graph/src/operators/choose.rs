//! A choice between two tensors, element by element.

use autotune_workloads::PointwiseOp;

use super::pointwise::pointwise;
use super::prelude::*;

pub(super) static IMPORTS: &[OnnxOperator] = &[OnnxOperator::one("Where", import)];

/// Takes the second operand where the first is true, else the third; all three broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Where;

impl Operator for Where {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 3..=3)?;
        check_dtype(operands, 0, DType::Bool)?;
        check_alike(operands, 1)?;
        let shape = broadcast(&broadcast(operands[0].0, operands[1].0)?, operands[2].0)?;
        Ok((shape, operands[1].1))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        fn of<T: Typed>(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
            let (choice, yes, no) =
                (values::<bool>(operands, 0)?, values::<T>(operands, 1)?, values::<T>(operands, 2)?);
            let rows = TensorRows::broadcast([operands[0].shape(), operands[1].shape(), operands[2].shape()], shape);
            tensor(shape, rows.map(|[c, y, n]| if choice[c] { yes[y] } else { no[n] }))
        }
        by_type!(operands[1].dtype(), of(operands, shape))
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        pointwise(node, PointwiseOp::Where)
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("Where", Vec::new())
    }
}

fn import(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(3)?;
    let operands = [call.operand(0)?, call.operand(1)?, call.operand(2)?];
    call.add(Where, &operands)
}
