//! Products of matrices.

use super::Convert::{self, One};
use crate::onnx::call::{Call, Result};
use crate::onnx::draft::Value;
use crate::onnx::error::unfit;
use crate::op::{Binary, Op};

pub(super) const OPERATORS: &[(&str, Convert)] = &[("MatMul", One(matmul)), ("Gemm", One(gemm))];

fn matmul(call: &mut Call) -> Result<Value> {
    call.check_most(2)?;
    let operands = [call.operand(0)?, call.operand(1)?];
    call.add(Op::MatMul, &operands)
}

/// `alpha * a b + beta * c`, of which `a` and `b` may be transposed before; factors go to the constants beside them.
fn gemm(call: &mut Call) -> Result<Value> {
    call.check_most(3)?;
    call.ignore(&["broadcast"]);
    let (alpha, beta) = (call.float_or("alpha", 1.0)?, call.float_or("beta", 1.0)?);
    let a = transposed(call, "transA", 0)?;
    let mut b = transposed(call, "transB", 1)?;

    let scales_b = alpha != 1.0 && call.draft.constant_of(b).is_some();
    if scales_b {
        b = call.with(Binary::Mul, b, alpha)?;
    }
    let mut product = call.add(Op::MatMul, &[a, b])?;
    if alpha != 1.0 && !scales_b {
        product = call.with(Binary::Mul, product, alpha)?;
    }

    let Some(mut c) = call.optional(2) else { return Ok(product) };
    if beta != 1.0 {
        c = call.with(Binary::Mul, c, beta)?;
    }
    let shape = call.shape(product);
    let sum = call.binary(Binary::Add, product, c)?;
    match call.shape(sum) == shape {
        true => Ok(sum),
        false => unfit(format!("what is added is not broadcast to {shape:?}")),
    }
}

fn transposed(call: &mut Call, name: &'static str, input: usize) -> Result<Value> {
    let x = call.operand(input)?;
    if call.rank(x) != 2 {
        return unfit(format!("a matrix of shape {:?}", call.shape(x)));
    }
    if call.flag(name, false)? { call.transpose(&[1, 0], x) } else { Ok(x) }
}
