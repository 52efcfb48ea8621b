//! Functions of one tensor, element by element.

use autotune_ir::DType;
use autotune_ir::program::UnaryOp;
use autotune_workloads::{Activation, Function, Pointwise, PointwiseOp};
use rten_onnx::onnx::DataType;

use super::pointwise::{anchor, pointwise, rows_and_columns};
use super::prelude::*;
use crate::onnx::attribute::typed;
use crate::onnx::error;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("Abs", |call| unary(call, UnaryOp::Abs)),
    OnnxOperator::one("Neg", |call| unary(call, UnaryOp::Neg)),
    OnnxOperator::one("Sqrt", |call| unary(call, UnaryOp::Sqrt)),
    OnnxOperator::one("Exp", |call| unary(call, UnaryOp::Exp)),
    OnnxOperator::one("Log", |call| unary(call, UnaryOp::Log)),
    OnnxOperator::one("Erf", |call| unary(call, UnaryOp::Erf)),
    OnnxOperator::one("Floor", |call| unary(call, UnaryOp::Floor)),
    OnnxOperator::one("Sign", |call| unary(call, UnaryOp::Sign)),
    OnnxOperator::one("Sigmoid", |call| activation(call, Activation::Sigmoid)),
    OnnxOperator::one("Tanh", |call| activation(call, Activation::Tanh)),
    OnnxOperator::one("HardSwish", |call| activation(call, Activation::HardSwish)),
    OnnxOperator::one("Softplus", |call| activation(call, Activation::Softplus)),
    OnnxOperator::one("Mish", |call| activation(call, Activation::Mish)),
    OnnxOperator::one("LeakyRelu", leaky_relu),
    OnnxOperator::one("Gelu", gelu),
    OnnxOperator::one("Elu", elu),
    OnnxOperator::one("Identity", |call| call.only()).keeps_bytes(),
    OnnxOperator::many("Dropout", dropout),
];

/// A function applied to every element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Map(pub Function);

impl Operator for Map {
    /// Accepts integers too: import computes shapes with negation and absolute value.
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 1..=1)?;
        let (shape, dtype) = operands[0];
        if dtype != DType::I64 {
            check_dtype(operands, 0, DType::F32)?;
        }
        match self.0 {
            Function::Activation(Activation::Prelu) => unfit("slopes must be an operand of Prelu"),
            _ => Ok((shape.to_vec(), dtype)),
        }
    }

    /// Evaluates in double precision. Functions with integer results are exact for integers; others
    /// truncate.
    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let exact = self.0.exact();
        if operands[0].dtype() == DType::F32 {
            return tensor(shape, values(operands, 0)?.iter().map(|&x: &f32| exact(x.into()) as f32).collect());
        }
        let of_integer = |&x: &i64| match self.0 {
            Function::Activation(Activation::None) | Function::Op(UnaryOp::Floor) => x,
            Function::Activation(Activation::Relu) => x.max(0),
            Function::Op(UnaryOp::Neg) => x.wrapping_neg(),
            Function::Op(UnaryOp::Sign) => x.signum(),
            Function::Op(UnaryOp::Abs) => x.wrapping_abs(),
            _ => exact(x as f64) as i64,
        };
        tensor(shape, values(operands, 0)?.iter().map(of_integer).collect())
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        if node.dtype(0) == DType::I64 && !stays_whole(self.0) {
            // The function leaves a fraction, which the kernel truncates after it.
            let shape = rows_and_columns(node.output().0);
            return anchor(Pointwise { shape, pre: self.0, ..Pointwise::new(1, 1, PointwiseOp::Trunc) }, node);
        }
        pointwise(node, PointwiseOp::Unary(self.0))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        export(to, self.0)
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        match self.0 {
            Function::Activation(activation) => !matches!(
                activation,
                Activation::None | Activation::Relu | Activation::Clip { .. } | Activation::LeakyRelu { .. }
            ),
            Function::Op(op) => !matches!(op, UnaryOp::Neg | UnaryOp::Abs),
        }
    }
}

/// True if a function maps integers to integers.
fn stays_whole(function: Function) -> bool {
    match function {
        Function::Activation(activation) => matches!(activation, Activation::None | Activation::Relu),
        Function::Op(op) => matches!(op, UnaryOp::Floor | UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign),
    }
}

/// Writes a function as its ONNX operator, or as several where ONNX has none.
fn export(to: &mut NodeWriter, function: Function) -> Result<(), ExportError> {
    let one = |operator| vec![(operator, vec![])];
    let chain = match function {
        Function::Activation(activation) => match activation {
            Activation::None => one("Identity"),
            Activation::Relu => one("Relu"),
            Activation::Sigmoid => one("Sigmoid"),
            Activation::Tanh => one("Tanh"),
            Activation::HardSwish => one("HardSwish"),
            Activation::Softplus => one("Softplus"),
            Activation::Mish => one("Mish"),
            Activation::Gelu => one("Gelu"),
            Activation::GeluTanh => gelu_of_tanh(),

            Activation::LeakyRelu { alpha, .. } => vec![("LeakyRelu", vec![float("alpha", alpha)])],
            Activation::Elu { alpha, .. } => vec![("Elu", vec![float("alpha", alpha)])],
            Activation::HardSigmoid { alpha, beta, .. } => {
                vec![("HardSigmoid", vec![float("alpha", alpha), float("beta", beta)])]
            }

            Activation::Clip { lo, hi, .. } => {
                let (x, lo, hi) = (to.input(0), to.number(lo), to.number(hi));
                return to.node("Clip", &[&x, &lo, &hi], vec![]);
            }
            Activation::Round { lo, hi, .. } => {
                let (x, lo, hi) = (to.input(0), to.number(lo), to.number(hi));
                let clipped = to.between("Clip", &[&x, &lo, &hi], vec![]);
                return to.node("Round", &[&clipped], vec![]);
            }
            Activation::Silu => return silu(to),

            Activation::Prelu => return Err(to.wrong("slopes must be an operand of Prelu")),
        },

        Function::Op(op) => match op {
            UnaryOp::Neg => one("Neg"),
            UnaryOp::Abs => one("Abs"),
            UnaryOp::Sqrt => one("Sqrt"),
            UnaryOp::Rsqrt => vec![("Sqrt", vec![]), ("Reciprocal", vec![])],
            UnaryOp::Floor => one("Floor"),

            UnaryOp::Exp => one("Exp"),
            UnaryOp::Exp2 => {
                let (x, two) = (to.input(0), to.number(2.0));
                return to.node("Pow", &[&two, &x], vec![]);
            }
            UnaryOp::Log => one("Log"),
            UnaryOp::Tanh => one("Tanh"),
            UnaryOp::Erf => one("Erf"),
            UnaryOp::Sigmoid => one("Sigmoid"),
            UnaryOp::Gelu => one("Gelu"),
            UnaryOp::GeluTanh => gelu_of_tanh(),
            UnaryOp::Mish => one("Mish"),
            UnaryOp::Softplus => one("Softplus"),
            UnaryOp::Sign => one("Sign"),

            UnaryOp::Silu => return silu(to),
            UnaryOp::Expm1 | UnaryOp::Log1p => return with_one(to, op),

            UnaryOp::Cast(DType::F32) => one("Identity"),
            UnaryOp::Cast(DType::F16) => rounded(DataType::FLOAT16),
            UnaryOp::Cast(DType::Bf16) => rounded(DataType::BFLOAT16),
            UnaryOp::Cast(_) => return Err(to.wrong("no element type rounds to this precision")),
        },
    };

    to.chain(&chain)
}

fn gelu_of_tanh() -> Vec<(&'static str, Vec<Attribute>)> {
    vec![("Gelu", vec![word("approximate", "tanh")])]
}

/// Returns casts to a type and back, which round.
fn rounded(data_type: DataType) -> Vec<(&'static str, Vec<Attribute>)> {
    vec![("Cast", vec![typed("to", data_type)]), ("Cast", vec![typed("to", DataType::FLOAT)])]
}

/// Writes `x * sigmoid(x)`; the ONNX operator `Swish` needs a later opset than the export has.
fn silu(to: &mut NodeWriter) -> Result<(), ExportError> {
    let x = to.input(0);
    let sigmoid = to.between("Sigmoid", &[&x], vec![]);
    to.node("Mul", &[&x, &sigmoid], vec![])
}

/// Writes `exp(x) - 1` or `log(1 + x)`; ONNX has no operators that preserve the digits of small
/// `x`.
fn with_one(to: &mut NodeWriter, op: UnaryOp) -> Result<(), ExportError> {
    let (x, one) = (to.input(0), to.number(1.0));
    if op == UnaryOp::Expm1 {
        let inner = to.between("Exp", &[&x], vec![]);
        to.node("Sub", &[&inner, &one], vec![])
    } else {
        let inner = to.between("Add", &[&x, &one], vec![]);
        to.node("Log", &[&inner], vec![])
    }
}

impl Call<'_> {
    pub(crate) fn unary(&mut self, op: UnaryOp, x: ImportValue) -> call::Result<ImportValue> {
        self.add(Map(Function::Op(op)), &[x])
    }

    pub(crate) fn activation(&mut self, activation: Activation, x: ImportValue) -> call::Result<ImportValue> {
        self.add(Map(Function::Activation(activation)), &[x])
    }

    /// Adds the activation of this name, if it accepts the parameters.
    pub(super) fn with_parameters(
        &mut self,
        word: &str,
        parameters: &[f32],
        x: ImportValue,
    ) -> call::Result<ImportValue> {
        match Activation::new(word, parameters) {
            Ok(activation) => self.activation(activation, x),
            Err(wanted) => error::unfit(format!("parameters {:?}, expected {wanted}", listed(parameters))),
        }
    }
}

fn unary(call: &mut Call, op: UnaryOp) -> call::Result<ImportValue> {
    let x = call.only()?;
    call.unary(op, x)
}

fn activation(call: &mut Call, activation: Activation) -> call::Result<ImportValue> {
    let x = call.only()?;
    call.activation(activation, x)
}

fn leaky_relu(call: &mut Call) -> call::Result<ImportValue> {
    let x = call.only()?;
    let alpha = call.float_or("alpha", 0.01)?;
    call.with_parameters("leaky_relu", &[alpha], x)
}

fn gelu(call: &mut Call) -> call::Result<ImportValue> {
    let x = call.only()?;
    match call.word_or("approximate", "none")? {
        "none" => call.activation(Activation::Gelu, x),
        "tanh" => call.activation(Activation::GeluTanh, x),
        _ => Err(attribute("approximate", "expected none or tanh")),
    }
}

fn elu(call: &mut Call) -> call::Result<ImportValue> {
    let x = call.only()?;
    let alpha = call.float_or("alpha", 1.0)?;
    call.with_parameters("elu", &[alpha], x)
}

/// Imports inference-time dropout, which is the identity, and its mask, which is true for all.
fn dropout(call: &mut Call, outputs: usize) -> call::Result<Vec<ImportValue>> {
    call.check_most(3)?;
    // These attributes matter in training only.
    call.ignore(&["ratio", "seed", "is_test"]);
    // Since opset 12, the training mode is an input.
    match call.known_number(2)? {
        Some(training) if training != 0.0 => error::unfit("training mode is not supported"),
        _ => {
            let x = call.operand(0)?;
            let mask = Tensor::of_numbers(&[], DType::Bool, &[1.0])?;
            let mask = if outputs > 1 { Some(call.filled(&mask.into(), &call.shape(x))?) } else { None };
            Ok([Some(x), mask].into_iter().flatten().collect())
        }
    }
}
