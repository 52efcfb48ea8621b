//! Functions of one tensor or two, element by element.

use std::fmt;

use autotune_ir::program::{BinaryOp, Expr, UnaryOp};
use autotune_ir::spec::{Reduction, axis_vars};

use super::operator::{element, named_axes};
use super::{
    Activation, Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, activation, check_elements,
    check_positive,
};

/// In the registry.
pub(super) static KIND: OperatorKind =
    OperatorKind { name: "pointwise", fields: "m,n,op,rhs", example: "pointwise:m=4096,n=1024,op=gelu", parse };

const OPS: [(&str, PointwiseOp); 15] = [
    ("erf", PointwiseOp::Unary(Function::Op(UnaryOp::Erf))),
    ("exp", PointwiseOp::Unary(Function::Op(UnaryOp::Exp))),
    ("log", PointwiseOp::Unary(Function::Op(UnaryOp::Log))),
    ("sqrt", PointwiseOp::Unary(Function::Op(UnaryOp::Sqrt))),
    ("rsqrt", PointwiseOp::Unary(Function::Op(UnaryOp::Rsqrt))),
    ("abs", PointwiseOp::Unary(Function::Op(UnaryOp::Abs))),
    ("neg", PointwiseOp::Unary(Function::Op(UnaryOp::Neg))),
    ("floor", PointwiseOp::Unary(Function::Op(UnaryOp::Floor))),
    ("copy", PointwiseOp::Unary(Function::Activation(Activation::None))),
    ("add", PointwiseOp::Binary(BinaryOp::Add)),
    ("sub", PointwiseOp::Binary(BinaryOp::Sub)),
    ("mul", PointwiseOp::Binary(BinaryOp::Mul)),
    ("div", PointwiseOp::Binary(BinaryOp::Div)),
    ("max", PointwiseOp::Binary(BinaryOp::Max)),
    ("min", PointwiseOp::Binary(BinaryOp::Min)),
];
const EXPECTED: &str = "an operation (relu, gelu, gelu_tanh, silu, clip:LO:HI, leaky_relu[:ALPHA], hard_sigmoid[:ALPHA:BETA], hard_swish, \
                        sigmoid, tanh, erf, exp, log, sqrt, rsqrt, abs, neg, floor, copy, add, sub, mul, div, max or min)";

const BROADCASTS: [(&str, Broadcast); 4] =
    [("full", Broadcast::Full), ("row", Broadcast::Row), ("column", Broadcast::Column), ("scalar", Broadcast::Scalar)];

/// A function of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// One that epilogues have, too, but for that with slopes; `None` is a copy.
    Activation(Activation),
    /// An operation that is none of them.
    Op(UnaryOp),
}

/// What is computed of each element.
#[derive(Clone, Copy, Debug, PartialEq)]
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
#[derive(Clone, Copy, Debug, PartialEq)]
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

impl PointwiseOp {
    /// Reads its text form; else what would have been right.
    fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some((_, op)) = OPS.iter().find(|(word, _)| *word == text) {
            return Ok(*op);
        }
        match Activation::parse(text) {
            Ok(Activation::None | Activation::Prelu) | Err(activation::EXPECTED) => Err(EXPECTED),
            Ok(activation) => Ok(PointwiseOp::Unary(Function::Activation(activation))),
            Err(expected) => Err(expected),
        }
    }

    /// Its text form.
    fn text(self) -> String {
        match (self, OPS.iter().find(|(_, op)| *op == self)) {
            (_, Some((word, _))) => word.to_string(),
            (PointwiseOp::Unary(Function::Activation(activation)), None) => activation.to_string(),
            (PointwiseOp::Unary(Function::Op(op)), None) => op.word().into(),
            (PointwiseOp::Binary(op), None) => op.word().into(),
        }
    }
}

impl Function {
    /// The function of a value.
    fn of(self, x: Expr) -> Expr {
        match self {
            Function::Activation(activation) => activation.of(x, None),
            Function::Op(op) => Expr::unary(op, x),
        }
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn Operator>, WorkloadError> {
    let (m, n) = (fields.required("m")?, fields.required("n")?);
    let missing = WorkloadError::Missing { op: KIND.name, field: "op", example: KIND.example };
    let op = fields.read("op", PointwiseOp::parse)?.ok_or(missing)?;
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
        write!(f, "m={},n={},op={}", self.m, self.n, self.op.text())?;
        match (self.op, BROADCASTS.iter().find(|(_, rhs)| *rhs == self.rhs)) {
            (PointwiseOp::Binary(_), Some((word, rhs))) if *rhs != Broadcast::Full => write!(f, ",rhs={word}"),
            _ => Ok(()),
        }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { m, n, .. }, op) = (*self, KIND.name);
        check_positive(op, &[("m", m), ("n", n)])?;
        if PointwiseOp::parse(&self.op.text()) != Ok(self.op) {
            let reason = format!("'{}' is no {EXPECTED}", self.op.text());
            return Err(WorkloadError::Unfit { op, field: "op", reason });
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
