//! Functions of one tensor or two, element by element.

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use std::fmt;

use autotune_ir::program::{BinaryOp, Expr, UnaryOp};
use autotune_ir::spec::{Reduction, axis_vars};

use super::operator::{element, named_axes};
use super::{Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, check_elements, check_positive};

/// In the registry.
pub(super) static KIND: OperatorKind =
    OperatorKind { name: "pointwise", fields: "m,n,op,rhs", example: "pointwise:m=4096,n=1024,op=gelu", parse };

const OPS: [(&str, PointwiseOp); 23] = [
    ("relu", PointwiseOp::Unary(Function::Relu)),
    ("gelu", PointwiseOp::Unary(Function::Gelu)),
    ("gelu_tanh", PointwiseOp::Unary(Function::GeluTanh)),
    ("silu", PointwiseOp::Unary(Function::Silu)),
    ("hard_sigmoid", PointwiseOp::Unary(Function::HardSigmoid)),
    ("hard_swish", PointwiseOp::Unary(Function::HardSwish)),
    ("sigmoid", PointwiseOp::Unary(Function::Op(UnaryOp::Sigmoid))),
    ("tanh", PointwiseOp::Unary(Function::Op(UnaryOp::Tanh))),
    ("erf", PointwiseOp::Unary(Function::Op(UnaryOp::Erf))),
    ("exp", PointwiseOp::Unary(Function::Op(UnaryOp::Exp))),
    ("log", PointwiseOp::Unary(Function::Op(UnaryOp::Log))),
    ("sqrt", PointwiseOp::Unary(Function::Op(UnaryOp::Sqrt))),
    ("rsqrt", PointwiseOp::Unary(Function::Op(UnaryOp::Rsqrt))),
    ("abs", PointwiseOp::Unary(Function::Op(UnaryOp::Abs))),
    ("neg", PointwiseOp::Unary(Function::Op(UnaryOp::Neg))),
    ("floor", PointwiseOp::Unary(Function::Op(UnaryOp::Floor))),
    ("copy", PointwiseOp::Unary(Function::Copy)),
    ("add", PointwiseOp::Binary(BinaryOp::Add)),
    ("sub", PointwiseOp::Binary(BinaryOp::Sub)),
    ("mul", PointwiseOp::Binary(BinaryOp::Mul)),
    ("div", PointwiseOp::Binary(BinaryOp::Div)),
    ("max", PointwiseOp::Binary(BinaryOp::Max)),
    ("min", PointwiseOp::Binary(BinaryOp::Min)),
];
const EXPECTED: &str = "an operation (relu, gelu, gelu_tanh, silu, hard_sigmoid, hard_swish, sigmoid, tanh, erf, exp, log, sqrt, rsqrt, \
                        abs, neg, floor, copy, add, sub, mul, div, max or min)";

const BROADCASTS: [(&str, Broadcast); 4] =
    [("full", Broadcast::Full), ("row", Broadcast::Row), ("column", Broadcast::Column), ("scalar", Broadcast::Scalar)];

/// A function of one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// The value itself.
    Copy,
    /// `max(x, 0)`.
    Relu,
    /// `x/2 * (1 + erf(x / sqrt(2)))`.
    Gelu,
    /// The same with `tanh(sqrt(2/pi) * (x + 0.044715 x^3))` for `erf` (D. Hendrycks and K. Gimpel, "Gaussian error linear units", 2016).
    GeluTanh,
    /// `x * sigmoid(x)`.
    Silu,
    /// `min(max(x/6 + 1/2, 0), 1)`.
    HardSigmoid,
    /// `x * min(max(x/6 + 1/2, 0), 1)`.
    HardSwish,
    /// An operation.
    Op(UnaryOp),
}

/// What is computed of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointwiseOp {
    /// A function of it.
    Unary(Function),
    /// An operation on it and an element of a second tensor.
    Binary(BinaryOp),
}

/// The shape of the second tensor, which is repeated along the dimensions that it has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Broadcast {
    /// `[m, n]`.
    #[default]
    Full,
    /// `[n]`: every row is the same.
    Row,
    /// `[m]`: every column is the same.
    Column,
    /// `[1]`.
    Scalar,
}

/// `output[m, n] = op(input[m, n])`, or `op(input[m, n], rhs[..])`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pointwise {
    /// Rows.
    pub m: usize,
    /// Elements of a row.
    pub n: usize,
    /// What is computed.
    pub op: PointwiseOp,
    /// The shape of the second operand, if there is one.
    pub rhs: Broadcast,
}

impl Function {
    /// The function of a value.
    fn of(self, x: Expr) -> Expr {
        let times = |scale: f32, x: Expr| Expr::product(x, Expr::Const(scale));
        let plus = |x: Expr, by: f32| Expr::sum(x, Expr::Const(by));
        let unit = |x: Expr| {
            let low = Expr::max(plus(times(1.0 / 6.0, x), 0.5), Expr::Const(0.0));
            Expr::binary(BinaryOp::Min, low, Expr::Const(1.0))
        };
        let gelu = |x: Expr, bounded: Expr| Expr::product(times(0.5, x), plus(bounded, 1.0));
        match self {
            Function::Copy => x,
            Function::Relu => Expr::max(x, Expr::Const(0.0)),
            Function::Op(op) => Expr::unary(op, x),
            Function::Silu => Expr::product(x.clone(), Expr::unary(UnaryOp::Sigmoid, x)),
            Function::HardSigmoid => unit(x),
            Function::HardSwish => Expr::product(x.clone(), unit(x)),
            Function::Gelu => gelu(x.clone(), Expr::unary(UnaryOp::Erf, times(FRAC_1_SQRT_2, x))),
            Function::GeluTanh => {
                let scale = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
                let factor = plus(times(0.044_715 * scale, Expr::product(x.clone(), x.clone())), scale);
                gelu(x.clone(), Expr::unary(UnaryOp::Tanh, Expr::product(x, factor)))
            }
        }
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn Operator>, WorkloadError> {
    let (m, n) = (fields.required("m")?, fields.required("n")?);
    let missing = WorkloadError::Missing { op: KIND.name, field: "op", example: KIND.example };
    let op = fields.word("op", &OPS, EXPECTED)?.ok_or(missing)?;
    let rhs = fields.word("rhs", &BROADCASTS, "a shape of the second operand (full, row, column or scalar)")?;
    if let (PointwiseOp::Unary(_), Some(_)) = (op, rhs) {
        let reason = "the operation has one operand only".into();
        return Err(WorkloadError::Unfit { op: KIND.name, field: "rhs", reason });
    }
    Ok(Box::new(Pointwise { m, n, op, rhs: rhs.unwrap_or_default() }))
}

impl Operator for Pointwise {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let word = OPS.iter().find(|(_, op)| *op == self.op).map_or("", |(word, _)| word);
        write!(f, "m={},n={},op={word}", self.m, self.n)?;
        match (self.op, BROADCASTS.iter().find(|(_, rhs)| *rhs == self.rhs)) {
            (PointwiseOp::Binary(_), Some((word, rhs))) if *rhs != Broadcast::Full => write!(f, ",rhs={word}"),
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { m, n, .. }, op) = (*self, KIND.name);
        check_positive(op, &[("m", m), ("n", n)])?;
        if let PointwiseOp::Unary(Function::Op(op)) = self.op
            && !OPS.iter().any(|(_, known)| *known == self.op)
        {
            let reason = format!("'{}' is no {EXPECTED}", op.word());
            return Err(WorkloadError::Unfit { op: KIND.name, field: "op", reason });
        }
        check_elements(op, &[("input", &[m, n])], &[m, n])
    }

    /// Axes `m, n`.
    fn formula(&self) -> Formula {
        let Self { m, n, op, rhs } = *self;
        let [row, column] = axis_vars();
        let input = Tensor { name: "input", shape: vec![m, n], is_constant: false };
        let index = vec![row.clone(), column.clone()];
        let (mut operands, x) = (vec![input], element(0, &index));
        let value = match op {
            PointwiseOp::Unary(function) => function.of(x),
            PointwiseOp::Binary(op) => {
                let (shape, at) = match rhs {
                    Broadcast::Full => (vec![m, n], index.clone()),
                    Broadcast::Row => (vec![n], vec![column]),
                    Broadcast::Column => (vec![m], vec![row]),
                    Broadcast::Scalar => (vec![1], vec![Default::default()]),
                };
                operands.push(Tensor { name: "rhs", shape, is_constant: false });
                Expr::binary(op, x, element(1, &at))
            }
        };
        Formula {
            operands,
            computed: Vec::new(),
            axes: named_axes(&[("m", m, false), ("n", n, false)]),
            value,
            reduction: Reduction::Sum,
            shape: vec![m, n],
            index,
            channel: 1,
        }
    }
}
