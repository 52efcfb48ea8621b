//! Elementwise functions of one to three tensors.

use std::fmt;

use autotune_ir::program::{BinaryOp, Compare, Expr, UnaryOp};
use autotune_ir::spec::Reduction;
use autotune_ir::{Affine, DType, VarId};

use super::fields::joined;
use super::operator::{element, named_axes};
use super::{
    Activation, Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, activation,
    check_elements, check_positive,
};

mod broadcast;

pub use broadcast::Broadcast;

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
const EXPECTED: &str = "an operation (relu, gelu, gelu_tanh, silu, mish, softplus, elu[:ALPHA], clip:LO:HI, round:LO:HI, \
                        leaky_relu[:ALPHA], hard_sigmoid[:ALPHA:BETA], hard_swish, sigmoid, tanh, erf, exp, expm1, log, log1p, sqrt, rsqrt, abs, neg, \
                        floor, sign, copy, not, bool, trunc, add, sub, mul, div, max, max_number, min, pow, equal, less, less_equal, \
                        quotient, prelu or where)";

/// Names of the axes, unless the shape is a batch of matrices.
const NAMES: [&str; 6] = ["d0", "d1", "d2", "d3", "d4", "d5"];
/// Names of operands, and of the fields for their broadcasting.
const OPERANDS: [(&str, &str); 3] = [("input", "lhs"), ("rhs", "rhs"), ("third", "third")];
const CHANNELS: [(&str, Channels); 2] = [("row", Channels::Row), ("column", Channels::Column)];
/// Types that results can be cast to.
const TYPES: [(&str, DType); 3] = [("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::Bf16)];
const COPY: Function = Function::Activation(Activation::None);

/// A function of one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    /// One that epilogues have, too, except with slopes; `None` is a copy.
    Activation(Activation),
    /// An operation that is not an activation.
    Op(UnaryOp),
}

/// Operation on each element. Truth values are 1 and 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PointwiseOp {
    /// A function of the element.
    Unary(Function),
    /// 1 if the element is 0, else 0.
    Not,
    /// 0 if the element is 0, else 1.
    Bool,
    /// The element, truncated towards zero; 0 for NaN.
    Trunc,
    /// An operation on the element and one of a second tensor.
    Binary(BinaryOp),
    /// 1 if the comparison with an element of a second tensor holds, else 0.
    Compare(Compare),
    /// Integer quotient, truncated towards zero: exact up to 2^24. Division by zero results in
    /// infinity or NaN.
    Quotient,
    /// The element, times that of a second tensor if it is negative.
    Prelu,
    /// The element of a second tensor if this one is not 0, else that of a third.
    Where,
}

/// Dimension of channels, along which the epilogue has one value each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Channels {
    /// `[n]`, such as of images with channels last.
    #[default]
    Row,
    /// `[m]` of `[b, m, n]`, such as of images with channels before the pixels, possibly in blocks
    /// of channels.
    Column,
}

/// `output[b, m, n] = op(pre(input[b, m, n]))`, `op(pre(input[..]), rhs[..])`, or with a third
/// tensor.
///
/// Without a batch, tensors have two axes, except images. Axes of tensors with four or more are
/// named by numbers (`shape=2x3x4x5`).
#[derive(Clone, Debug, PartialEq)]
pub struct Pointwise {
    /// Extents of the result, outermost first: `[m, n]`, `[b, m, n]`, or of up to six axes.
    pub shape: Vec<usize>,
    /// Function that is applied to the first operand before the operation.
    pub pre: Function,
    /// Operation on the elements of the operands.
    pub op: PointwiseOp,
    /// Axes of the first operand.
    pub lhs: Broadcast,
    /// Axes of the second operand, if there is one.
    pub rhs: Broadcast,
    /// Axes of the third operand, if there is one.
    pub third: Broadcast,
    /// Dimension of channels in the epilogue.
    pub channels: Channels,
    /// Type that the result is cast to, if it differs from that of the operands.
    pub to: Option<DType>,
}

impl Pointwise {
    /// Returns a copy of a tensor, to which an epilogue can be added.
    pub fn copy(shape: Vec<usize>) -> Self {
        Self { shape, ..Self::new(1, 1, PointwiseOp::Unary(Function::Activation(Activation::None))) }
    }

    /// Maximum number of axes.
    pub const MOST_AXES: usize = NAMES.len();

    /// Creates an operation on whole matrices, without a batch.
    pub fn new(m: usize, n: usize, op: PointwiseOp) -> Self {
        let full = Broadcast::FULL;
        Self { shape: vec![m, n], pre: COPY, op, lhs: full, rhs: full, third: full, channels: Channels::Row, to: None }
    }

    /// Returns operand `number`, and its element at an index of the result.
    fn operand(&self, number: usize, index: &[Affine]) -> (OperandTensor, Expr) {
        let axes: Vec<usize> = self.broadcasts()[number].axes(index.len()).collect();
        let (shape, at) = match axes[..] {
            [] => (vec![1], vec![Affine::default()]),
            _ => axes.iter().map(|&axis| (self.shape[axis], index[axis].clone())).unzip(),
        };
        (OperandTensor { name: OPERANDS[number].0, shape, is_constant: false }, element(number, &at))
    }

    fn broadcasts(&self) -> [Broadcast; 3] {
        [self.lhs, self.rhs, self.third]
    }

    /// Returns the names of the axes, each with the field for its extent.
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
    /// Reads the text form. Fails with a description of valid texts.
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

    /// Returns the text form.
    fn text(self) -> String {
        match (self, OPS.iter().find(|(_, op)| *op == self)) {
            (_, Some((word, _))) => word.to_string(),
            (PointwiseOp::Unary(Function::Activation(activation)), None) => activation.to_string(),
            (PointwiseOp::Unary(Function::Op(op)), None) => op.word().into(),
            // All other operations are in the table.
            (other, None) => format!("{other:?}"),
        }
    }

    /// Returns the number of operands.
    pub fn operands(self) -> usize {
        match self {
            PointwiseOp::Unary(_) | PointwiseOp::Not | PointwiseOp::Bool | PointwiseOp::Trunc => 1,
            PointwiseOp::Where => 3,
            _ => 2,
        }
    }

    /// Returns the operation applied to its operands; superfluous ones are ignored.
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
    /// Returns the function applied to a value.
    fn of(self, x: Expr) -> Expr {
        match self {
            Function::Activation(activation) => activation.of(x, None),
            Function::Op(op) => Expr::unary(op, x),
        }
    }

    /// Returns the function for evaluation in f64, as in references.
    pub fn exact(self) -> impl Fn(f64) -> f64 {
        let function = self.of(element(0, &[]));
        move |x| exact(&function, x)
    }
}

/// Evaluates an expression of one value `x`.
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

/// Returns a value truncated towards zero.
fn truncated(x: Expr) -> Expr {
    let floor = |x: Expr| Expr::unary(UnaryOp::Floor, x);
    let negative = Expr::unary(UnaryOp::Neg, floor(Expr::unary(UnaryOp::Neg, x.clone())));
    Expr::select(Compare::Less, [x.clone(), Expr::Const(0.0)], negative, floor(x))
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let channels = fields.word("channels", &CHANNELS, "a dimension of channels (row or column)")?.unwrap_or_default();
    let shape = match fields.extents("shape")? {
        Some(shape) => {
            fields.check_without(&["b", "m", "n"])?;
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

/// Returns the error that an operation has fewer operands.
fn without(field: &'static str, op: PointwiseOp) -> WorkloadError {
    unfit(
        field,
        if op.operands() == 1 { "the operation has only one operand" } else { "the operation has only two operands" },
    )
}

impl WorkloadOperator for Pointwise {
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
            return Err(unfit("shape", format!("{} axes, expected 2 to {}", shape.len(), Self::MOST_AXES)));
        }
        let positive: Vec<_> = self.names().iter().zip(shape).map(|(&(_, field), &extent)| (field, extent)).collect();
        check_positive(op, &positive)?;

        match (shape, self.channels) {
            ([1, _, _], Channels::Row) => {
                return Err(unfit("b", "a batch of one matrix has no batch axis: leave it out"));
            }
            ([_, _, _], _) | (_, Channels::Row) => {}
            _ => return Err(unfit("channels", "column needs a batch of matrices")),
        }

        for (field, of) in [("pre", PointwiseOp::Unary(self.pre)), ("op", self.op)] {
            if PointwiseOp::parse(&of.text()) != Ok(of) {
                return Err(unfit(field, format!("'{}' is not {EXPECTED}", of.text())));
            }
        }
        for (number, (broadcast, (_, field))) in self.broadcasts().into_iter().zip(OPERANDS).enumerate() {
            if number >= self.op.operands() && broadcast != Broadcast::FULL {
                return Err(without(field, self.op));
            }
            broadcast.check(shape.len()).map_err(|reason| unfit(field, reason))?;
        }
        if self.to == Some(DType::Tf32) {
            return Err(unfit("to", "tf32 is not an element type in memory"));
        }
        check_elements(op, &[("input", shape)], shape)
    }

    fn result_dtype(&self) -> Option<DType> {
        self.to
    }

    fn is_cast(&self) -> bool {
        true
    }

    /// True for copies, and for operations on two tensors that do not round.
    fn moves_bytes(&self) -> bool {
        use BinaryOp::{Add, Max, Min, Mul, Sub};
        let computes = matches!(self.op, PointwiseOp::Binary(Add | Sub | Mul | Max | Min));
        self.pre == COPY && (computes || self.op == PointwiseOp::Unary(COPY)) && self.to.is_none()
    }

    /// Axes `m, n`; `b, m, n` with a batch; `b, c, n` for images; `d0, d1, ..` for more axes.
    fn formula(&self) -> OperatorFormula {
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
        OperatorFormula {
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

/// Writes `,field=word`, unless it is the default.
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
