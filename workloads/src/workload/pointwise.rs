//! Functions of one tensor or several, element by element.

use std::fmt;

use autotune_ir::program::{BinaryOp, Compare, Expr, UnaryOp};
use autotune_ir::spec::Reduction;
use autotune_ir::{Affine, DType, VarId};

use super::fields::joined;
use super::operator::{element, named_axes};
use super::{
    Activation, Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, activation, check_elements,
    check_positive,
};

mod broadcast;

pub use broadcast::Broadcast;

/// In the registry.
pub(super) static KIND: OperatorKind = OperatorKind {
    name: "pointwise",
    fields: "b,m,n,shape,pre,op,lhs,rhs,third,channels,to",
    example: "pointwise:m=4096,n=1024,op=gelu",
    parse,
};

const OPS: [(&str, PointwiseOp); 29] = [
    ("erf", PointwiseOp::Unary(Function::Op(UnaryOp::Erf))),
    ("exp", PointwiseOp::Unary(Function::Op(UnaryOp::Exp))),
    ("expm1", PointwiseOp::Unary(Function::Op(UnaryOp::Expm1))),
    ("log", PointwiseOp::Unary(Function::Op(UnaryOp::Log))),
    ("log1p", PointwiseOp::Unary(Function::Op(UnaryOp::Log1p))),
    ("sqrt", PointwiseOp::Unary(Function::Op(UnaryOp::Sqrt))),
    ("rsqrt", PointwiseOp::Unary(Function::Op(UnaryOp::Rsqrt))),
    ("abs", PointwiseOp::Unary(Function::Op(UnaryOp::Abs))),
    ("neg", PointwiseOp::Unary(Function::Op(UnaryOp::Neg))),
    ("floor", PointwiseOp::Unary(Function::Op(UnaryOp::Floor))),
    ("sign", PointwiseOp::Unary(Function::Op(UnaryOp::Sign))),
    ("copy", PointwiseOp::Unary(Function::Activation(Activation::None))),
    ("add", PointwiseOp::Binary(BinaryOp::Add)),
    ("sub", PointwiseOp::Binary(BinaryOp::Sub)),
    ("mul", PointwiseOp::Binary(BinaryOp::Mul)),
    ("div", PointwiseOp::Binary(BinaryOp::Div)),
    ("max", PointwiseOp::Binary(BinaryOp::Max)),
    ("max_number", PointwiseOp::Binary(BinaryOp::MaxNumber)),
    ("min", PointwiseOp::Binary(BinaryOp::Min)),
    ("pow", PointwiseOp::Binary(BinaryOp::Pow)),
    ("equal", PointwiseOp::Compare(Compare::Equal)),
    ("less", PointwiseOp::Compare(Compare::Less)),
    ("less_equal", PointwiseOp::Compare(Compare::LessEqual)),
    ("not", PointwiseOp::Not),
    ("bool", PointwiseOp::Bool),
    ("trunc", PointwiseOp::Trunc),
    ("quotient", PointwiseOp::Quotient),
    ("prelu", PointwiseOp::Prelu),
    ("where", PointwiseOp::Where),
];
const EXPECTED: &str = "an operation (relu, gelu, gelu_tanh, silu, mish, softplus, elu[:ALPHA], clip:LO:HI, leaky_relu[:ALPHA], \
                        hard_sigmoid[:ALPHA:BETA], hard_swish, sigmoid, tanh, erf, exp, expm1, log, log1p, sqrt, rsqrt, abs, neg, \
                        floor, sign, copy, not, bool, trunc, add, sub, mul, div, max, max_number, min, pow, equal, less, less_equal, \
                        quotient, prelu or where)";

/// Names of the axes of a shape that is no batch of matrices.
const NAMES: [&str; 6] = ["d0", "d1", "d2", "d3", "d4", "d5"];
/// Names of operands, and the fields that say how they are repeated.
const OPERANDS: [(&str, &str); 3] = [("input", "lhs"), ("rhs", "rhs"), ("third", "third")];
const CHANNELS: [(&str, Channels); 2] = [("row", Channels::Row), ("column", Channels::Column)];
/// What results are cast to.
const TYPES: [(&str, DType); 3] = [("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::Bf16)];
const COPY: Function = Function::Activation(Activation::None);

/// A function of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// One that epilogues have, too, but for that with slopes; `None` is a copy.
    Activation(Activation),
    /// An operation that is none of them.
    Op(UnaryOp),
}

/// What is computed of each element. Truth values are 1 and 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PointwiseOp {
    /// A function of it.
    Unary(Function),
    /// 1 where it is 0, else 0.
    Not,
    /// 0 where it is 0, else 1.
    Bool,
    /// The whole number towards zero; 0 of what is not a number.
    Trunc,
    /// An operation on it and an element of a second tensor.
    Binary(BinaryOp),
    /// 1 where it compares so with an element of a second tensor, else 0.
    Compare(Compare),
    /// The quotient of whole numbers, rounded towards zero: exact up to 2^24; by zero it is
    /// infinite or not a number.
    Quotient,
    /// The element, below zero times that of a second tensor.
    Prelu,
    /// Where it is not 0 the element of a second tensor, else that of a third.
    Where,
}

/// The dimension that the values of an epilogue go along that channels have one of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Channels {
    /// `[n]`, as of images with channels last.
    #[default]
    Row,
    /// `[m]`, as of images with channels before the pixels, `[b, m, n]`, which may be in blocks of
    /// channels.
    Column,
}

/// `output[b, m, n] = op(pre(input[b, m, n]))`, or `op(pre(input[..]), rhs[..])`, or of a third
/// tensor, too. Without a batch tensors have two axes, but for images; with four axes or more they
/// have names by their numbers (`shape=2x3x4x5`).
#[derive(Clone, Debug, PartialEq)]
pub struct Pointwise {
    /// Extents of the result, outermost first: `[m, n]`, `[b, m, n]`, or of up to six axes.
    pub shape: Vec<usize>,
    /// A function of the first operand that comes before.
    pub pre: Function,
    /// What is computed.
    pub op: PointwiseOp,
    /// The axes that the first operand has.
    pub lhs: Broadcast,
    /// The axes that the second operand has, if there is one.
    pub rhs: Broadcast,
    /// The axes that the third operand has, if there is one.
    pub third: Broadcast,
    /// What channels of the epilogue are.
    pub channels: Channels,
    /// The type that the result is cast to, if it is not that of the operands.
    pub to: Option<DType>,
}

impl Pointwise {
    /// Returns a copy of a tensor, whose epilogue may do more to it.
    pub fn copy(shape: Vec<usize>) -> Self {
        Self { shape, ..Self::new(1, 1, PointwiseOp::Unary(Function::Activation(Activation::None))) }
    }

    /// Most axes.
    pub const MOST_AXES: usize = NAMES.len();

    /// An operation on whole matrices without a batch.
    pub fn new(m: usize, n: usize, op: PointwiseOp) -> Self {
        let full = Broadcast::FULL;
        Self { shape: vec![m, n], pre: COPY, op, lhs: full, rhs: full, third: full, channels: Channels::Row, to: None }
    }

    /// An operand with its number, and its element at an index of the result.
    fn operand(&self, number: usize, index: &[Affine]) -> (Tensor, Expr) {
        let axes: Vec<usize> = self.broadcasts()[number].axes(index.len()).collect();
        let (shape, at) = match axes[..] {
            [] => (vec![1], vec![Affine::default()]),
            _ => axes.iter().map(|&axis| (self.shape[axis], index[axis].clone())).unzip(),
        };
        (Tensor { name: OPERANDS[number].0, shape, is_constant: false }, element(number, &at))
    }

    fn broadcasts(&self) -> [Broadcast; 3] {
        [self.lhs, self.rhs, self.third]
    }

    /// Names of the axes and the fields that have their extents.
    fn names(&self) -> Vec<(&'static str, &'static str)> {
        match (self.shape.len(), self.channels) {
            (2, _) => vec![("m", "m"), ("n", "n")],
            (3, Channels::Row) => vec![("b", "b"), ("m", "m"), ("n", "n")],
            (3, Channels::Column) => vec![("b", "b"), ("c", "m"), ("n", "n")],
            _ => NAMES.iter().map(|name| (*name, "shape")).collect(),
        }
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
            // The others have their words in the table.
            (other, None) => format!("{other:?}"),
        }
    }

    /// How many operands it has.
    pub fn operands(self) -> usize {
        match self {
            PointwiseOp::Unary(_) | PointwiseOp::Not | PointwiseOp::Bool | PointwiseOp::Trunc => 1,
            PointwiseOp::Where => 3,
            _ => 2,
        }
    }

    /// What it makes of its operands, those that it does not have not looked at.
    fn of(self, [x, y, z]: [Expr; 3]) -> Expr {
        let zero = || Expr::Const(0.0);
        let truth = |compare, pair, [yes, no]: [f32; 2]| Expr::select(compare, pair, Expr::Const(yes), Expr::Const(no));
        match self {
            PointwiseOp::Unary(function) => function.of(x),
            PointwiseOp::Not => truth(Compare::Equal, [x, zero()], [1.0, 0.0]),
            PointwiseOp::Bool => truth(Compare::Equal, [x, zero()], [0.0, 1.0]),
            PointwiseOp::Trunc => {
                let whole = truncated(x.clone());
                Expr::select(Compare::Equal, [x.clone(), x], whole, zero())
            }
            PointwiseOp::Binary(op) => Expr::binary(op, x, y),
            PointwiseOp::Compare(compare) => truth(compare, [x, y], [1.0, 0.0]),
            PointwiseOp::Quotient => truncated(Expr::binary(BinaryOp::Div, x, y)),
            PointwiseOp::Prelu => Expr::select(Compare::Less, [x.clone(), zero()], Expr::product(x.clone(), y), x),
            PointwiseOp::Where => Expr::select(Compare::Equal, [x, zero()], z, y),
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

    /// Returns the function, to be computed of any number in f64, as references do.
    pub fn exact(self) -> impl Fn(f64) -> f64 {
        let function = self.of(element(0, &[]));
        move |x| exact(&function, x)
    }
}

/// An expression of one value.
fn exact(expr: &Expr, x: f64) -> f64 {
    match expr {
        Expr::Const(number) => f64::from(*number),
        Expr::Unary(op, of) => op.exact(exact(of, x)),
        Expr::Binary(op, of) => op.exact(exact(&of[0], x), exact(&of[1], x)),
        Expr::Select(compare, of) => {
            let chosen = if compare.holds(exact(&of[0], x), exact(&of[1], x)) { &of[2] } else { &of[3] };
            exact(chosen, x)
        }
        Expr::Load(_) | Expr::Gather(_) | Expr::Guarded { .. } => x,
    }
}

/// The whole number towards zero.
fn truncated(x: Expr) -> Expr {
    let floor = |x: Expr| Expr::unary(UnaryOp::Floor, x);
    let negative = Expr::unary(UnaryOp::Neg, floor(Expr::unary(UnaryOp::Neg, x.clone())));
    Expr::select(Compare::Less, [x.clone(), Expr::Const(0.0)], negative, floor(x))
}

fn parse(fields: &Fields) -> Result<Box<dyn Operator>, WorkloadError> {
    let channels = fields.word("channels", &CHANNELS, "a dimension of channels (row or column)")?.unwrap_or_default();
    let shape = match fields.extents("shape")? {
        Some(shape) => {
            fields.none_beside_shape(&["b", "m", "n"])?;
            shape
        }
        None => {
            let (b, m, n) = (fields.number("b")?.unwrap_or(1), fields.required("m")?, fields.required("n")?);
            if b != 1 || channels == Channels::Column { vec![b, m, n] } else { vec![m, n] }
        }
    };

    let missing = WorkloadError::Missing { op: KIND.name, field: "op", example: KIND.example };
    let op = fields.read("op", PointwiseOp::parse)?.ok_or(missing)?;
    let pre = fields.read("pre", |text| match PointwiseOp::parse(text) {
        Ok(PointwiseOp::Unary(function)) => Ok(function),
        Ok(_) => Err("a function of one operand"),
        Err(expected) => Err(expected),
    })?;
    let mut broadcasts = [Broadcast::FULL; 3];
    for (number, (_, field)) in OPERANDS.into_iter().enumerate() {
        let broadcast = fields.read(field, |text| Broadcast::parse(text, shape.len()))?;
        if broadcast.is_some() && number >= op.operands() {
            return Err(without(field, op));
        }
        broadcasts[number] = broadcast.unwrap_or_default();
    }
    let [lhs, rhs, third] = broadcasts;
    let to = fields.word("to", &TYPES, "an element type in memory (f32, f16 or bf16)")?;
    Ok(Box::new(Pointwise { shape, pre: pre.unwrap_or(COPY), op, lhs, rhs, third, channels, to }))
}

fn unfit(field: &'static str, reason: impl Into<String>) -> WorkloadError {
    WorkloadError::Unfit { op: KIND.name, field, reason: reason.into() }
}

/// That an operation has fewer operands.
fn without(field: &'static str, op: PointwiseOp) -> WorkloadError {
    unfit(
        field,
        if op.operands() == 1 { "the operation has one operand only" } else { "the operation has two operands only" },
    )
}

impl Operator for Pointwise {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        match self.shape[..] {
            [m, n] | [1, m, n] => write!(f, "m={m},n={n}")?,
            [b, m, n] => write!(f, "b={b},m={m},n={n}")?,
            _ => write!(f, "shape={}", joined(&self.shape))?,
        }
        if self.pre != COPY {
            write!(f, ",pre={}", PointwiseOp::Unary(self.pre).text())?;
        }
        write!(f, ",op={}", self.op.text())?;
        for (broadcast, (_, field)) in self.broadcasts().into_iter().zip(OPERANDS) {
            if broadcast != Broadcast::FULL {
                write!(f, ",{field}={}", broadcast.text(self.shape.len()))?;
            }
        }
        write_word(f, "channels", self.channels, &CHANNELS)?;
        self.to.map_or(Ok(()), |to| write!(f, ",to={}", to.word()))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (op, shape) = (KIND.name, &self.shape[..]);
        if !(2..=Self::MOST_AXES).contains(&shape.len()) {
            return Err(unfit("shape", format!("{} axes, of 2 to {}", shape.len(), Self::MOST_AXES)));
        }
        let positive: Vec<_> = self.names().iter().zip(shape).map(|(&(_, field), &extent)| (field, extent)).collect();
        check_positive(op, &positive)?;

        match (shape, self.channels) {
            ([1, _, _], Channels::Row) => return Err(unfit("b", "a batch of one has no axis")),
            ([_, _, _], _) | (_, Channels::Row) => {}
            _ => return Err(unfit("channels", "columns are of a batch of matrices")),
        }

        for (field, of) in [("pre", PointwiseOp::Unary(self.pre)), ("op", self.op)] {
            if PointwiseOp::parse(&of.text()) != Ok(of) {
                return Err(unfit(field, format!("'{}' is no {EXPECTED}", of.text())));
            }
        }
        for (number, (broadcast, (_, field))) in self.broadcasts().into_iter().zip(OPERANDS).enumerate() {
            if number >= self.op.operands() && broadcast != Broadcast::FULL {
                return Err(without(field, self.op));
            }
            broadcast.check(shape.len()).map_err(|reason| unfit(field, reason))?;
        }
        if self.to == Some(DType::Tf32) {
            return Err(unfit("to", "tf32 is no type in memory"));
        }
        check_elements(op, &[("input", shape)], shape)
    }

    fn result_dtype(&self) -> Option<DType> {
        self.to
    }

    fn is_cast(&self) -> bool {
        true
    }

    /// Copies, whose epilogues may do more, and what is computed of two tensors without rounding.
    fn moves_bytes(&self) -> bool {
        use BinaryOp::{Add, Max, Min, Mul, Sub};
        let computes = matches!(self.op, PointwiseOp::Binary(Add | Sub | Mul | Max | Min));
        self.pre == COPY && (computes || self.op == PointwiseOp::Unary(COPY)) && self.to.is_none()
    }

    /// Axes `b`, if there is a batch, `m, n`; of images `b, c, n`; of more axes `d0, d1, ..`.
    fn formula(&self) -> Formula {
        let axes: Vec<_> =
            self.names().iter().zip(&self.shape).map(|(&(name, _), &extent)| (name, extent, false)).collect();
        let index: Vec<Affine> = (0..axes.len()).map(|axis| Affine::var(VarId(axis as u32))).collect();
        let (mut operands, mut elements) = (Vec::new(), [0.0; 3].map(Expr::Const));
        for (number, element) in elements.iter_mut().enumerate().take(self.op.operands()) {
            let (tensor, value) = self.operand(number, &index);
            operands.push(tensor);
            *element = if number == 0 { self.pre.of(value) } else { value };
        }

        let channel = index.len() - if self.channels == Channels::Row { 1 } else { 2 };
        Formula {
            operands,
            computed: Vec::new(),
            axes: named_axes(&axes),
            value: self.op.of(elements),
            reduction: Reduction::Sum,
            share: None,
            shape: self.shape.clone(),
            index,
            channel,
        }
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
