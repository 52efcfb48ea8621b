//! Bitwise operations on integers.

use super::binary::paired;
use super::prelude::*;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("BitwiseAnd", |call| import(call, Bitwise::And)),
    OnnxOperator::one("BitwiseOr", |call| import(call, Bitwise::Or)),
    OnnxOperator::one("BitwiseXor", |call| import(call, Bitwise::Xor)),
];

/// A bitwise operation on two tensors of integers, which broadcast to each other as in NumPy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bitwise {
    /// Bits that both have.
    And,
    /// Bits that either has.
    Or,
    /// Bits that exactly one has.
    Xor,
}

impl Operator for Bitwise {
    fn name(&self) -> &'static str {
        match self {
            Bitwise::And => "BitwiseAnd",
            Bitwise::Or => "BitwiseOr",
            Bitwise::Xor => "BitwiseXor",
        }
    }

    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shapes = shapes_of(operands, 2..=2, DType::I64)?;
        Ok((broadcast(shapes[0], shapes[1])?, DType::I64))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let op = *self;
        paired(operands, shape, |a: i64, b: i64| match op {
            Bitwise::And => a & b,
            Bitwise::Or => a | b,
            Bitwise::Xor => a ^ b,
        })
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator(self.name(), Vec::new())
    }
}

fn import(call: &mut Call, op: Bitwise) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let operands = [call.operand(0)?, call.operand(1)?];
    call.add(op, &operands)
}
