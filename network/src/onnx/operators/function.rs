//! Functions of every element.

use autotune_ir::program::UnaryOp;
use autotune_workloads::Activation;

use super::Convert::{self, One};
use crate::onnx::call::{Call, Result, attribute};
use crate::onnx::draft::Value;
use crate::onnx::error::unfit;
use crate::onnx::tensor;
use crate::op::{Binary, Op};
use crate::tensor::Element;
use crate::text::listed;

pub(super) const OPERATORS: &[(&str, Convert)] = &[
    ("Abs", One(|call| unary(call, UnaryOp::Abs))),
    ("Neg", One(|call| unary(call, UnaryOp::Neg))),
    ("Sqrt", One(|call| unary(call, UnaryOp::Sqrt))),
    ("Exp", One(|call| unary(call, UnaryOp::Exp))),
    ("Log", One(|call| unary(call, UnaryOp::Log))),
    ("Erf", One(|call| unary(call, UnaryOp::Erf))),
    ("Floor", One(floor)),
    ("Ceil", One(ceil)),
    ("Reciprocal", One(reciprocal)),
    ("Sign", One(|call| unary(call, UnaryOp::Sign))),
    ("Relu", One(relu)),
    ("Sigmoid", One(|call| activation(call, Activation::Sigmoid))),
    ("Tanh", One(|call| activation(call, Activation::Tanh))),
    ("HardSwish", One(|call| activation(call, Activation::HardSwish))),
    ("LeakyRelu", One(leaky_relu)),
    ("HardSigmoid", One(hard_sigmoid)),
    ("Gelu", One(gelu)),
    ("Swish", One(swish)),
    ("Clip", One(clip)),
    ("Elu", One(elu)),
    ("Celu", One(celu)),
    ("Selu", One(selu)),
    ("Softplus", One(|call| activation(call, Activation::Softplus))),
    ("Softsign", One(softsign)),
    ("Mish", One(|call| activation(call, Activation::Mish))),
    ("ThresholdedRelu", One(thresholded_relu)),
    ("Shrink", One(shrink)),
    ("Cast", One(cast)),
    ("CastLike", One(cast_like)),
    ("Identity", One(identity)),
    ("Dropout", One(dropout)),
];

fn only(call: &Call) -> Result<Value> {
    call.check_most(1)?;
    call.operand(0)
}

fn unary(call: &mut Call, op: UnaryOp) -> Result<Value> {
    let x = only(call)?;
    call.unary(op, x)
}

fn activation(call: &mut Call, activation: Activation) -> Result<Value> {
    let x = only(call)?;
    call.activation(activation, x)
}

/// The activation of some word, if it takes these parameters.
fn with_parameters(call: &mut Call, word: &str, parameters: &[f32], x: Value) -> Result<Value> {
    match Activation::new(word, parameters) {
        Ok(activation) => call.activation(activation, x),
        Err(wanted) => unfit(format!("parameters {:?}, where {wanted} is wanted", listed(parameters))),
    }
}

fn floor(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    call.unary(UnaryOp::Floor, x)
}

fn ceil(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    let opposite = call.unary(UnaryOp::Neg, x)?;
    let floor = call.unary(UnaryOp::Floor, opposite)?;
    call.unary(UnaryOp::Neg, floor)
}

fn reciprocal(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    let one = call.number(1.0, x)?;
    call.binary(Binary::Div, one, x)
}

fn relu(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    match call.element(x) {
        Element::I64 => call.with(Binary::Max, x, 0.0),
        _ => call.activation(Activation::Relu, x),
    }
}

fn leaky_relu(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    let alpha = call.float_or("alpha", 0.01)?;
    with_parameters(call, "leaky_relu", &[alpha], x)
}

fn hard_sigmoid(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    let (alpha, beta) = (call.float_or("alpha", 0.2)?, call.float_or("beta", 0.5)?);
    if let Ok(activation) = Activation::new("hard_sigmoid", &[alpha, beta]) {
        return call.activation(activation, x);
    }
    let scaled = call.with(Binary::Mul, x, alpha)?;
    let shifted = call.with(Binary::Add, scaled, beta)?;
    with_parameters(call, "clip", &[0.0, 1.0], shifted)
}

fn gelu(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    match call.word_or("approximate", "none")? {
        "none" => call.activation(Activation::Gelu, x),
        "tanh" => call.activation(Activation::GeluTanh, x),
        _ => Err(attribute("approximate", "it is neither none nor tanh")),
    }
}

/// `x * sigmoid(alpha * x)`.
fn swish(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    let alpha = call.float_or("alpha", 1.0)?;
    if alpha == 1.0 {
        return call.activation(Activation::Silu, x);
    }
    let scaled = call.with(Binary::Mul, x, alpha)?;
    let sigmoid = call.activation(Activation::Sigmoid, scaled)?;
    call.binary(Binary::Mul, x, sigmoid)
}

/// Bounds are attributes before version 11, then inputs; one that is not there is infinite.
fn clip(call: &mut Call) -> Result<Value> {
    call.check_most(if call.version < 11 { 1 } else { 3 })?;
    let x = call.operand(0)?;
    let bounds = match call.version < 11 {
        true => {
            let (lo, hi) = (call.float("min")?, call.float("max")?);
            let mut value = |bound: Option<f32>| bound.map(|bound| call.number(bound, x)).transpose();
            [value(lo)?, value(hi)?]
        }
        false => [call.optional(1), call.optional(2)],
    };

    let known = |bound: Option<Value>, none: f32| match bound {
        Some(bound) => call.draft.number(bound),
        None => Some(none),
    };
    let numbers = known(bounds[0], f32::NEG_INFINITY).zip(known(bounds[1], f32::INFINITY));
    match numbers {
        _ if bounds == [None, None] => Ok(x),
        Some((0.0, f32::INFINITY)) if call.element(x) == Element::F32 => call.activation(Activation::Relu, x),
        Some((lo, hi)) if call.element(x) == Element::F32 && Activation::new("clip", &[lo, hi]).is_ok() => {
            with_parameters(call, "clip", &[lo, hi], x)
        }
        _ => {
            let above = bounds[0].map_or(Ok(x), |lo| call.binary(Binary::Max, x, lo))?;
            bounds[1].map_or(Ok(above), |hi| call.binary(Binary::Min, above, hi))
        }
    }
}

fn elu(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    let alpha = call.float_or("alpha", 1.0)?;
    with_parameters(call, "elu", &[alpha], x)
}

/// `max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1)`.
fn celu(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    let alpha = call.float_or("alpha", 1.0)?;
    if alpha == 1.0 {
        return with_parameters(call, "elu", &[alpha], x);
    }
    let above = call.activation(Activation::Relu, x)?;
    let below = call.with(Binary::Min, x, 0.0)?;
    let below = call.with(Binary::Div, below, alpha)?;
    let below = with_parameters(call, "elu", &[1.0], below)?;
    let below = call.with(Binary::Mul, below, alpha)?;
    call.binary(Binary::Add, above, below)
}

fn selu(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    let (alpha, gamma) = (call.float_or("alpha", 1.673_263_2)?, call.float_or("gamma", 1.050_701)?);
    let elu = with_parameters(call, "elu", &[alpha], x)?;
    call.with(Binary::Mul, elu, gamma)
}

fn softsign(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    let size = call.unary(UnaryOp::Abs, x)?;
    let divisor = call.with(Binary::Add, size, 1.0)?;
    call.binary(Binary::Div, x, divisor)
}

fn thresholded_relu(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    let alpha = call.float_or("alpha", 1.0)?;
    let (alpha, zero) = (call.number(alpha, x)?, call.number(0.0, x)?);
    let is_above = call.binary(Binary::Less, alpha, x)?;
    call.add(Op::Where, &[is_above, x, zero])
}

/// Numbers nearer to zero than `lambd` are zero, others move towards it by `bias`.
fn shrink(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    let (lambd, bias) = (call.float_or("lambd", 0.5)?, call.float_or("bias", 0.0)?);
    let (hi, lo, zero) = (call.number(lambd, x)?, call.number(-lambd, x)?, call.number(0.0, x)?);
    let is_above = call.binary(Binary::Less, hi, x)?;
    let is_below = call.binary(Binary::Less, x, lo)?;
    let above = call.with(Binary::Sub, x, bias)?;
    let below = call.with(Binary::Add, x, bias)?;
    let rest = call.add(Op::Where, &[is_above, above, zero])?;
    call.add(Op::Where, &[is_below, below, rest])
}

/// Between types that are one here nothing is cast: what f16 would round is not rounded.
fn cast(call: &mut Call) -> Result<Value> {
    let x = only(call)?;
    call.ignore(&["saturate", "round_mode"]);
    let to = call.int("to")?.ok_or_else(|| attribute("to", "it is missing"))?;
    let to = i32::try_from(to).map_err(|_| attribute("to", "it is no type"))?;
    let element = tensor::element(Some(rten_onnx::onnx::DataType(to)));
    let element = element.map_err(|reason| attribute("to", reason))?;
    call.cast(element, x)
}

fn cast_like(call: &mut Call) -> Result<Value> {
    call.check_most(2)?;
    call.ignore(&["saturate", "round_mode"]);
    let (x, like) = (call.operand(0)?, call.operand(1)?);
    call.cast(call.element(like), x)
}

fn identity(call: &mut Call) -> Result<Value> {
    only(call)
}

/// Nothing is dropped where nothing is trained.
fn dropout(call: &mut Call) -> Result<Value> {
    call.check_most(3)?;
    call.ignore(&["ratio", "seed", "is_test"]);
    match call.known_number(2)? {
        Some(training) if training != 0.0 => unfit("it is for training"),
        _ => call.operand(0),
    }
}
