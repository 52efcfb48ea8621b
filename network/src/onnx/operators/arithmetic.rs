//! Operations on two tensors or more, element by element.

use autotune_ir::program::UnaryOp;

use super::Convert::{self, One};
use crate::onnx::call::{Call, Result};
use crate::onnx::draft::Value;
use crate::onnx::error::unfit;
use crate::op::{Binary, Op};
use crate::tensor::Element;

pub(super) const OPERATORS: &[(&str, Convert)] = &[
    ("Add", One(|call| of_two(call, Binary::Add))),
    ("Sub", One(|call| of_two(call, Binary::Sub))),
    ("Mul", One(|call| of_two(call, Binary::Mul))),
    ("Div", One(|call| of_two(call, Binary::Div))),
    ("Pow", One(power)),
    ("Mod", One(remainder)),
    ("Max", One(|call| of_many(call, Binary::Max))),
    ("Min", One(|call| of_many(call, Binary::Min))),
    ("Sum", One(|call| of_many(call, Binary::Add))),
    ("Mean", One(mean)),
    ("Equal", One(|call| of_two(call, Binary::Equal))),
    ("Less", One(|call| of_two(call, Binary::Less))),
    ("Greater", One(greater)),
    ("LessOrEqual", One(|call| less_or_equal(call, [0, 1]))),
    ("GreaterOrEqual", One(|call| less_or_equal(call, [1, 0]))),
    ("And", One(|call| of_two(call, Binary::And))),
    ("Or", One(or)),
    ("Xor", One(xor)),
    ("Not", One(not)),
    ("Where", One(choice)),
    ("PRelu", One(prelu)),
];

/// Both operands; before version 7 an attribute says where the axes of the second lie in the first.
fn pair(call: &mut Call) -> Result<[Value; 2]> {
    call.check_most(2)?;
    let (a, mut b) = (call.operand(0)?, call.operand(1)?);
    if call.version < 7 {
        call.ignore(&["broadcast"]);
        if let Some(axis) = call.int("axis")? {
            let axis = crate::onnx::call::axis(axis, call.rank(a))?;
            let behind = call.rank(a).checked_sub(axis + call.rank(b));
            let Some(behind) = behind else {
                return unfit("the axes of the second input are beyond those of the first");
            };
            let shape = [call.shape(b), vec![1; behind]].concat();
            b = call.reshape(&shape, b)?;
        }
    }
    Ok([a, b])
}

fn of_two(call: &mut Call, op: Binary) -> Result<Value> {
    let [a, b] = pair(call)?;
    call.binary(op, a, b)
}

fn of_many(call: &mut Call, op: Binary) -> Result<Value> {
    let operands = call.operands()?;
    let mut all = call.operand(0)?;
    for &next in &operands[1..] {
        all = call.binary(op, all, next)?;
    }
    Ok(all)
}

fn mean(call: &mut Call) -> Result<Value> {
    let sum = of_many(call, Binary::Add)?;
    let count = call.count() as f32;
    call.with(Binary::Div, sum, count)
}

fn greater(call: &mut Call) -> Result<Value> {
    let [a, b] = pair(call)?;
    call.binary(Binary::Less, b, a)
}

/// Neither is it of numbers that are none: so it is not the opposite of the other order.
fn less_or_equal(call: &mut Call, [first, second]: [usize; 2]) -> Result<Value> {
    call.check_most(2)?;
    let (a, b) = (call.operand(first)?, call.operand(second)?);
    let less = call.binary(Binary::Less, a, b)?;
    let equal = call.binary(Binary::Equal, a, b)?;
    either(call, less, equal)
}

fn either(call: &mut Call, a: Value, b: Value) -> Result<Value> {
    let (not_a, not_b) = (call.add(Op::Not, &[a])?, call.add(Op::Not, &[b])?);
    let neither = call.binary(Binary::And, not_a, not_b)?;
    call.add(Op::Not, &[neither])
}

fn or(call: &mut Call) -> Result<Value> {
    let [a, b] = pair(call)?;
    either(call, a, b)
}

fn xor(call: &mut Call) -> Result<Value> {
    let [a, b] = pair(call)?;
    let same = call.binary(Binary::Equal, a, b)?;
    call.add(Op::Not, &[same])
}

fn not(call: &mut Call) -> Result<Value> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    call.add(Op::Not, &[x])
}

fn choice(call: &mut Call) -> Result<Value> {
    call.check_most(3)?;
    let operands = [call.operand(0)?, call.operand(1)?, call.operand(2)?];
    call.add(Op::Where, &operands)
}

/// Powers that are something simpler are that.
fn power(call: &mut Call) -> Result<Value> {
    let [x, exponent] = pair(call)?;
    let is_number = call.element(x) == Element::F32 && call.rank(exponent) <= call.rank(x);
    let known = if is_number { call.draft.number(exponent) } else { None };
    match known {
        Some(1.0) => Ok(x),
        Some(2.0) => call.binary(Binary::Mul, x, x),
        Some(3.0) => {
            let square = call.binary(Binary::Mul, x, x)?;
            call.binary(Binary::Mul, square, x)
        }
        Some(0.5) => call.unary(UnaryOp::Sqrt, x),
        Some(-0.5) => call.unary(UnaryOp::Rsqrt, x),
        Some(-1.0) => {
            let one = call.number(1.0, x)?;
            call.binary(Binary::Div, one, x)
        }
        _ => {
            let exponent = call.cast(call.element(x), exponent)?;
            call.binary(Binary::Pow, x, exponent)
        }
    }
}

/// Of integers; the sign is that of the divisor, or with `fmod` that of the dividend.
fn remainder(call: &mut Call) -> Result<Value> {
    let of_dividend = call.flag("fmod", false)?;
    let [a, b] = pair(call)?;
    if call.element(a) != Element::I64 {
        return unfit("it is supported of integers only");
    }
    let remainder = rest(call, a, b)?;
    if of_dividend {
        return Ok(remainder);
    }
    let shifted = call.binary(Binary::Add, remainder, b)?;
    rest(call, shifted, b)
}

/// What is left of a division that rounds towards zero.
fn rest(call: &mut Call, a: Value, b: Value) -> Result<Value> {
    let quotient = call.binary(Binary::Div, a, b)?;
    let whole = call.binary(Binary::Mul, quotient, b)?;
    call.binary(Binary::Sub, a, whole)
}

fn prelu(call: &mut Call) -> Result<Value> {
    call.check_most(2)?;
    let (x, mut slope) = (call.operand(0)?, call.operand(1)?);
    // Before version 7 there is one slope for each channel, or one for all.
    let (rank, slopes) = (call.rank(x), call.shape(slope));
    if call.version < 7 && slopes.len() == 1 && rank > 2 {
        let shape = [slopes, vec![1; rank - 2]].concat();
        slope = call.reshape(&shape, slope)?;
    }
    call.add(Op::Prelu, &[x, slope])
}
