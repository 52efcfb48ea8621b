//! Bitwise operations on integers.

use autotune_ir::program::UnaryOp;
use autotune_workloads::{Function, ReduceOp};

use super::binary::{Binary, paired};
use super::cast::Cast;
use super::map::Map;
use super::prelude::*;
use super::reduce::Reduce;
use super::reshape::Reshape;
use super::sub_nodes::SubNodes;

/// Number of bits of an integer without its sign.
const BITS: usize = 63;

/// Maximum number of elements of which kernels take the bits apart.
const MOST_ELEMENTS: usize = 1 << 16;

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

    /// Returns operations on the bits of the integers, which are along a further axis. If the
    /// result is negative, it is `-1 - x` with the opposite bits in `x`, so that small numbers are
    /// exact.
    fn parts(&self, node: &NodeView) -> Option<Vec<SubNode>> {
        let shape = node.output().0;
        product(shape).filter(|&count| count <= MOST_ELEMENTS)?;
        let mut parts = SubNodes::new(node);
        let [a, b] = [bits(&mut parts, 0, node.shape(0))?, bits(&mut parts, 1, node.shape(1))?];
        let signs = self.of_bits(&mut parts, [a.sign, b.sign]);
        let bits = self.of_bits(&mut parts, [a.bits, b.bits]);
        let opposite = Bitwise::Xor.of_bits(&mut parts, [bits, signs]);

        let powers = parts.constant(Tensor::f32(&[BITS], powers(2.0).collect()).ok()?);
        let weighted = parts.add(Binary::Mul, &[opposite, powers]);
        let sum = parts.add(Reduce { op: ReduceOp::Sum, axes: vec![shape.len()], keep_axes: true }, &[weighted]);
        let negative = parts.with(Binary::Mul, sum, -1.0);
        let negative = parts.with(Binary::Add, negative, -1.0);
        let is_negative = parts.add(Cast(DType::Bool), &[signs]);
        let found = parts.choose(is_negative, negative, sum);
        let found = parts.add(Cast(DType::I64), &[found]);
        parts.add(Reshape(shape.to_vec()), &[found]);
        Some(parts.finish())
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator(self.name(), Vec::new())
    }
}

impl Bitwise {
    /// Appends parts that combine bits, numbers 0 and 1.
    fn of_bits(self, parts: &mut SubNodes, [a, b]: [usize; 2]) -> usize {
        match self {
            Bitwise::And => parts.add(Binary::Mul, &[a, b]),
            Bitwise::Or => parts.add(Binary::Max, &[a, b]),
            Bitwise::Xor => {
                let difference = parts.add(Binary::Sub, &[a, b]);
                parts.add(Binary::Mul, &[difference, difference])
            }
        }
    }
}

/// Bits of integers in two's complement, in f32 along a last axis.
struct IntegerBits {
    bits: usize,
    sign: usize,
}

/// Returns the powers of a number, for each bit.
fn powers(base: f32) -> impl Iterator<Item = f32> {
    (0..BITS as i32).map(move |bit| base.powi(bit))
}

/// Appends parts that take the bits of an operand apart: `floor(x / 2^i) - 2 floor(x / 2^(i + 1))`.
fn bits(parts: &mut SubNodes, operand: usize, shape: &[usize]) -> Option<IntegerBits> {
    let numbers = parts.add(Cast(DType::F32), &[operand]);
    let numbers = parts.add(Reshape([shape, &[1]].concat()), &[numbers]);
    let mut shifted = |by: f32| {
        let powers = Tensor::f32(&[BITS], powers(0.5).map(|power| power * by).collect()).ok()?;
        let powers = parts.constant(powers);
        let scaled = parts.add(Binary::Mul, &[numbers, powers]);
        Some(parts.add(Map(Function::Op(UnaryOp::Floor)), &[scaled]))
    };
    let (whole, half) = (shifted(1.0)?, shifted(0.5)?);
    let twice = parts.with(Binary::Mul, half, 2.0);
    let bits = parts.add(Binary::Sub, &[whole, twice]);
    let is_negative = parts.with(Binary::Less, numbers, 0.0);
    Some(IntegerBits { bits, sign: parts.add(Cast(DType::F32), &[is_negative]) })
}

fn import(call: &mut Call, op: Bitwise) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let operands = [call.operand(0)?, call.operand(1)?];
    call.add(op, &operands)
}
