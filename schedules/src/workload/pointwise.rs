//! Functions of one tensor or two, element by element.

use std::fmt;

use autotune_ir::program::{BinaryOp, Expr, UnaryOp};
use autotune_ir::spec::Reduction;
use autotune_ir::{Affine, VarId};

use super::operator::{element, named_axes};
use super::{
    Activation, Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, activation, check_elements,
    check_positive,
};

/// In the registry.
pub(super) static KIND: OperatorKind = OperatorKind {
    name: "pointwise",
    fields: "b,m,n,pre,op,lhs,rhs,channels",
    example: "pointwise:m=4096,n=1024,op=gelu",
    parse,
};

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

const BROADCASTS: [(&str, Broadcast); 5] = [
    ("full", Broadcast::Full),
    ("row", Broadcast::Row),
    ("rows", Broadcast::Rows),
    ("column", Broadcast::Column),
    ("scalar", Broadcast::Scalar),
];
const CHANNELS: [(&str, Channels); 2] = [("row", Channels::Row), ("column", Channels::Column)];
const COPY: Function = Function::Activation(Activation::None);

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

/// The shape of an operand, which is repeated along the dimensions that it has not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Broadcast {
    /// `[b, m, n]`.
    #[default]
    Full,
    /// `[n]`: every row is the same.
    Row,
    /// `[b, n]`: every row of a batch is the same.
    Rows,
    /// `[m]`: every column is the same.
    Column,
    /// `[1]`.
    Scalar,
}

/// The dimension that the values of an epilogue go along that channels have one of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Channels {
    /// `[n]`, as of images with channels last.
    #[default]
    Row,
    /// `[m]`, as of images with channels before the pixels, `[b, m, n]`, which may be in blocks of channels.
    Column,
}

/// `output[b, m, n] = op(pre(input[b, m, n]))`, or `op(pre(input[..]), rhs[..])`. Without a batch, `b` 1, tensors that are no images do not have
/// its dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pointwise {
    /// Batch.
    pub b: usize,
    /// Rows.
    pub m: usize,
    /// Elements of a row.
    pub n: usize,
    /// A function of the first operand that comes before.
    pub pre: Function,
    /// What is computed.
    pub op: PointwiseOp,
    /// The shape of the first operand.
    pub lhs: Broadcast,
    /// The shape of the second operand, if there is one.
    pub rhs: Broadcast,
    /// What channels of the epilogue are.
    pub channels: Channels,
}

impl Pointwise {
    /// An operation on whole matrices without a batch.
    pub fn new(m: usize, n: usize, op: PointwiseOp) -> Self {
        let (lhs, rhs) = (Broadcast::Full, Broadcast::Full);
        Self { b: 1, m, n, pre: COPY, op, lhs, rhs, channels: Channels::Row }
    }

    /// An operand with its number, and its element at an index of the result.
    fn operand(&self, (number, name): (usize, &'static str), shape: Broadcast, index: &[Affine]) -> (Tensor, Expr) {
        let all = self.shape();
        let (batch, rest) = (&index[..index.len() - 2], &index[index.len() - 2..]);
        let (shape, at) = match shape {
            Broadcast::Full => (all, index.to_vec()),
            Broadcast::Row => (vec![self.n], vec![rest[1].clone()]),
            Broadcast::Rows => ([&all[..batch.len()], &[self.n]].concat(), [batch, &rest[1..]].concat()),
            Broadcast::Column => (vec![self.m], vec![rest[0].clone()]),
            Broadcast::Scalar => (vec![1], vec![Affine::default()]),
        };
        (Tensor { name, shape, is_constant: false }, element(number, &at))
    }

    fn shape(&self) -> Vec<usize> {
        let Self { b, m, n, .. } = *self;
        if self.has_batch() { vec![b, m, n] } else { vec![m, n] }
    }

    /// True if tensors have the dimension of a batch.
    fn has_batch(&self) -> bool {
        self.b != 1 || self.channels == Channels::Column
    }
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
    let (b, m, n) = (fields.number("b")?.unwrap_or(1), fields.required("m")?, fields.required("n")?);
    let missing = WorkloadError::Missing { op: KIND.name, field: "op", example: KIND.example };
    let op = fields.read("op", PointwiseOp::parse)?.ok_or(missing)?;
    let pre = fields.read("pre", |text| match PointwiseOp::parse(text) {
        Ok(PointwiseOp::Unary(function)) => Ok(function),
        Ok(PointwiseOp::Binary(_)) => Err("an operation on one operand"),
        Err(expected) => Err(expected),
    })?;
    let shape = |field| fields.word(field, &BROADCASTS, "a shape of an operand (full, row, rows, column or scalar)");
    let (lhs, rhs) = (shape("lhs")?.unwrap_or_default(), shape("rhs")?);
    let channels = fields.word("channels", &CHANNELS, "a dimension of channels (row or column)")?.unwrap_or_default();
    if let (PointwiseOp::Unary(_), Some(_)) = (op, rhs) {
        return Err(without_rhs());
    }
    Ok(Box::new(Pointwise { b, m, n, pre: pre.unwrap_or(COPY), op, lhs, rhs: rhs.unwrap_or_default(), channels }))
}

fn without_rhs() -> WorkloadError {
    WorkloadError::Unfit { op: KIND.name, field: "rhs", reason: "the operation has one operand only".into() }
}

impl Operator for Pointwise {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let Self { b, m, n, pre, op, lhs, rhs, channels } = *self;
        if b != 1 {
            write!(f, "b={b},")?;
        }
        write!(f, "m={m},n={n}")?;
        if pre != COPY {
            write!(f, ",pre={}", PointwiseOp::Unary(pre).text())?;
        }
        write!(f, ",op={}", op.text())?;
        write_word(f, "lhs", lhs, &BROADCASTS)?;
        write_word(f, "rhs", rhs, &BROADCASTS)?;
        write_word(f, "channels", channels, &CHANNELS)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { b, m, n, .. }, op) = (*self, KIND.name);
        check_positive(op, &[("b", b), ("m", m), ("n", n)])?;
        for (field, of) in [("pre", PointwiseOp::Unary(self.pre)), ("op", self.op)] {
            if PointwiseOp::parse(&of.text()) != Ok(of) {
                let reason = format!("'{}' is no {EXPECTED}", of.text());
                return Err(WorkloadError::Unfit { op, field, reason });
            }
        }
        if let (PointwiseOp::Unary(_), true) = (self.op, self.rhs != Broadcast::Full) {
            return Err(without_rhs());
        }
        for (field, shape) in [("lhs", self.lhs), ("rhs", self.rhs)] {
            if b == 1 && shape == Broadcast::Rows {
                return Err(WorkloadError::Unfit { op, field, reason: "without a batch it is 'row'".into() });
            }
        }
        check_elements(op, &[("input", &[b, m, n])], &[b, m, n])
    }

    /// Axes `b`, if there is a batch, `m, n`; of images `b, c, n`.
    fn formula(&self) -> Formula {
        let rows = if self.channels == Channels::Column { "c" } else { "m" };
        let all = [("b", self.b, false), (rows, self.m, false), ("n", self.n, false)];
        let axes = named_axes(&all[usize::from(!self.has_batch())..]);
        let index: Vec<Affine> = (0..axes.len()).map(|axis| Affine::var(VarId(axis as u32))).collect();
        let (input, x) = self.operand((0, "input"), self.lhs, &index);
        let (mut operands, x) = (vec![input], self.pre.of(x));
        let value = match self.op {
            PointwiseOp::Unary(function) => function.of(x),
            PointwiseOp::Binary(op) => {
                let (rhs, y) = self.operand((1, "rhs"), self.rhs, &index);
                operands.push(rhs);
                Expr::binary(op, x, y)
            }
        };

        let channel = index.len() - if self.channels == Channels::Row { 1 } else { 2 };
        let (computed, reduction) = (Vec::new(), Reduction::Sum);
        Formula { operands, computed, axes, value, reduction, shape: self.shape(), index, channel }
    }
}

/// `,field=word`, if it is not the default.
fn write_word<T: Copy + Default + PartialEq>(
    f: &mut dyn fmt::Write,
    field: &str,
    value: T,
    words: &[(&str, T)],
) -> fmt::Result {
    match words.iter().find(|(_, meant)| *meant == value) {
        Some((word, _)) if value != T::default() => write!(f, ",{field}={word}"),
        _ => Ok(()),
    }
}
