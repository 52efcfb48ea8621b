//! Elementwise operations on two tensors.

use autotune_ir::program::{BinaryOp, Compare, UnaryOp};
use autotune_workloads::PointwiseOp;

use super::not::Not;
use super::pointwise::pointwise;
use super::prelude::*;
use crate::onnx::error;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("Add", |call| of_two(call, Binary::Add)),
    OnnxOperator::one("Sub", |call| of_two(call, Binary::Sub)),
    OnnxOperator::one("Mul", |call| of_two(call, Binary::Mul)),
    OnnxOperator::one("Div", |call| of_two(call, Binary::Div)),
    OnnxOperator::one("Pow", power),
    OnnxOperator::one("Mod", remainder),
    OnnxOperator::one("Max", |call| of_many(call, Binary::Max)),
    OnnxOperator::one("Min", |call| of_many(call, Binary::Min)),
    OnnxOperator::one("Sum", |call| of_many(call, Binary::Add)),
    OnnxOperator::one("Mean", mean),
    OnnxOperator::one("Equal", |call| of_two(call, Binary::Equal)),
    OnnxOperator::one("Less", |call| of_two(call, Binary::Less)),
    OnnxOperator::one("Greater", greater),
    OnnxOperator::one("LessOrEqual", |call| less_or_equal(call, [0, 1])),
    OnnxOperator::one("GreaterOrEqual", |call| less_or_equal(call, [1, 0])),
    OnnxOperator::one("And", |call| of_two(call, Binary::And)),
    OnnxOperator::one("Or", or),
    OnnxOperator::one("Xor", xor),
];

/// An elementwise operation on two tensors, which broadcast to each other as in NumPy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`; integers are truncated towards zero.
    Div,
    /// The larger of both.
    Max,
    /// The smaller of both.
    Min,
    /// `a` to the power of `b`.
    Pow,
    /// True where `a == b`, for operands of any one type.
    Equal,
    /// True where `a < b`.
    Less,
    /// True where both booleans are true.
    And,
}

impl Operator for Binary {
    fn name(&self) -> &'static str {
        match self {
            Binary::Add => "Add",
            Binary::Sub => "Sub",
            Binary::Mul => "Mul",
            Binary::Div => "Div",
            Binary::Max => "Max",
            Binary::Min => "Min",
            Binary::Pow => "Pow",
            Binary::Equal => "Equal",
            Binary::Less => "Less",
            Binary::And => "And",
        }
    }

    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 2..=2)?;
        let wanted = match (self, operands[0].1) {
            (Binary::Equal, _) => None,
            (Binary::And, _) => Some(DType::Bool),
            (_, DType::I64) => Some(DType::I64),
            _ => Some(DType::F32),
        };
        match wanted {
            Some(wanted) => drop(shapes_of(operands, 2..=2, wanted)?),
            None => check_alike(operands, 0)?,
        }
        let is_truth = matches!(self, Binary::Equal | Binary::Less);
        let dtype = if is_truth { DType::Bool } else { operands[0].1 };
        Ok((broadcast(operands[0].0, operands[1].0)?, dtype))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let op = *self;
        fn equal<T: Typed + PartialEq>(operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
            paired(operands, shape, |a: T, b: T| a == b)
        }
        let dtype = operands[0].dtype();
        match (op, dtype) {
            (Binary::Equal, _) => by_type!(dtype, equal(operands, shape)),
            (Binary::And, _) => paired(operands, shape, |a: bool, b: bool| a && b),
            (Binary::Less, DType::I64) => paired(operands, shape, |a: i64, b: i64| a < b),
            (Binary::Less, _) => paired(operands, shape, |a: f32, b: f32| a < b),
            (Binary::Div, DType::I64) if values::<i64>(operands, 1)?.contains(&0) => {
                Err(OpError::Unfit("integer division by zero".into()))
            }
            (_, DType::I64) => paired(operands, shape, |a, b| of_integers(op, a, b)),
            _ => match operation(op, dtype) {
                Some(PointwiseOp::Binary(op)) => {
                    paired(operands, shape, |a: f32, b: f32| op.exact(a.into(), b.into()) as f32)
                }
                _ => unfit("the operation is not defined for these element types"),
            },
        }
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        pointwise(node, operation(*self, node.dtype(0))?)
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator(self.name(), Vec::new())
    }

    fn is_cheap(&self) -> bool {
        true
    }

    fn amplifies_errors(&self, of_data: bool) -> bool {
        match self {
            Binary::Mul => of_data,
            _ => matches!(self, Binary::Div | Binary::Pow),
        }
    }
}

pub(super) fn of_integers(op: Binary, a: i64, b: i64) -> i64 {
    match op {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div => a.wrapping_div(b),
        Binary::Max => a.max(b),
        Binary::Min => a.min(b),
        Binary::Pow => integer_power(a, b),
        // These produce booleans and are evaluated before.
        Binary::Equal | Binary::Less | Binary::And => 0,
    }
}

/// Raises an integer to a power, with wrap-around. A negative exponent truncates the fraction; zero
/// to a negative power saturates.
fn integer_power(base: i64, exponent: i64) -> i64 {
    let Ok(mut left) = u64::try_from(exponent) else { return libm::pow(base as f64, exponent as f64) as i64 };
    let (mut power, mut square) = (1i64, base);
    while left > 0 {
        if left % 2 == 1 {
            power = power.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left /= 2;
    }
    power
}

/// Applies a function to each pair of elements of two tensors, broadcast to `shape`.
pub(super) fn paired<T: Typed, U: Typed>(
    operands: &[&Tensor],
    shape: &[usize],
    of: impl Fn(T, T) -> U,
) -> Result<Tensor, OpError> {
    let (a, b) = (values::<T>(operands, 0)?, values::<T>(operands, 1)?);
    let rows = TensorRows::broadcast([operands[0].shape(), operands[1].shape()], shape);
    tensor(shape, rows.map(|[at, bt]| of(a[at], b[bt])))
}

/// Returns the kernels' operation for elements of a type, if they have it.
fn operation(binary: Binary, dtype: DType) -> Option<PointwiseOp> {
    Some(match binary {
        Binary::Add => PointwiseOp::Binary(BinaryOp::Add),
        Binary::Sub => PointwiseOp::Binary(BinaryOp::Sub),
        // Booleans are stored as 1 and 0.
        Binary::Mul | Binary::And => PointwiseOp::Binary(BinaryOp::Mul),
        Binary::Div if dtype == DType::I64 => PointwiseOp::Quotient,
        Binary::Div => PointwiseOp::Binary(BinaryOp::Div),
        Binary::Max => PointwiseOp::Binary(BinaryOp::Max),
        Binary::Min => PointwiseOp::Binary(BinaryOp::Min),
        Binary::Equal => PointwiseOp::Compare(Compare::Equal),
        Binary::Less => PointwiseOp::Compare(Compare::Less),
        // In f32 an integer power would not be exact.
        Binary::Pow if dtype == DType::I64 => return None,
        Binary::Pow => PointwiseOp::Binary(BinaryOp::Pow),
    })
}

impl Call<'_> {
    pub(crate) fn binary(&mut self, binary: Binary, a: ImportValue, b: ImportValue) -> call::Result<ImportValue> {
        self.add(binary, &[a, b])
    }

    /// Adds an operation whose second operand is a constant number.
    pub(crate) fn with(&mut self, binary: Binary, a: ImportValue, number: f32) -> call::Result<ImportValue> {
        let number = self.number(number, a)?;
        self.binary(binary, a, number)
    }
}

/// Returns both operands. Before opset 7 an attribute `axis` aligns the axes of the second with
/// those of the first.
fn pair(call: &mut Call) -> call::Result<[ImportValue; 2]> {
    call.check_most(2)?;
    let (a, mut b) = (call.operand(0)?, call.operand(1)?);
    if call.version < 7 {
        call.ignore(&["broadcast"]);
        if let Some(axis) = call.int("axis")? {
            let axis = call::axis(axis, call.rank(a))?;
            let behind = call.rank(a).checked_sub(axis + call.rank(b));
            let Some(behind) = behind else {
                return error::unfit("the axes of the second input exceed those of the first");
            };
            let shape = [call.shape(b), vec![1; behind]].concat();
            b = call.reshape(&shape, b)?;
        }
    }
    Ok([a, b])
}

fn of_two(call: &mut Call, op: Binary) -> call::Result<ImportValue> {
    let [a, b] = pair(call)?;
    call.binary(op, a, b)
}

fn of_many(call: &mut Call, op: Binary) -> call::Result<ImportValue> {
    let operands = call.operands()?;
    let mut all = call.operand(0)?;
    for &next in &operands[1..] {
        all = call.binary(op, all, next)?;
    }
    Ok(all)
}

fn mean(call: &mut Call) -> call::Result<ImportValue> {
    let sum = of_many(call, Binary::Add)?;
    let count = call.count() as f32;
    call.with(Binary::Div, sum, count)
}

fn greater(call: &mut Call) -> call::Result<ImportValue> {
    let [a, b] = pair(call)?;
    call.binary(Binary::Less, b, a)
}

/// Imports `a <= b` as `a < b or a == b`, since `not (b < a)` would be true for NaN.
fn less_or_equal(call: &mut Call, [first, second]: [usize; 2]) -> call::Result<ImportValue> {
    call.check_most(2)?;
    let (a, b) = (call.operand(first)?, call.operand(second)?);
    let less = call.binary(Binary::Less, a, b)?;
    let equal = call.binary(Binary::Equal, a, b)?;
    either(call, less, equal)
}

fn either(call: &mut Call, a: ImportValue, b: ImportValue) -> call::Result<ImportValue> {
    let (not_a, not_b) = (call.add(Not, &[a])?, call.add(Not, &[b])?);
    let neither = call.binary(Binary::And, not_a, not_b)?;
    call.add(Not, &[neither])
}

fn or(call: &mut Call) -> call::Result<ImportValue> {
    let [a, b] = pair(call)?;
    either(call, a, b)
}

fn xor(call: &mut Call) -> call::Result<ImportValue> {
    let [a, b] = pair(call)?;
    // For booleans, exclusive or is inequality.
    let same = call.binary(Binary::Equal, a, b)?;
    call.add(Not, &[same])
}

/// Imports a power; constant exponents such as 2 and 0.5 become products, roots or reciprocals.
fn power(call: &mut Call) -> call::Result<ImportValue> {
    let [x, exponent] = pair(call)?;
    // The exponent must not broadcast `x` to another shape.
    let is_number = call.dtype(x) == DType::F32 && call.rank(exponent) <= call.rank(x);
    let known = if is_number { call.number_of(exponent) } else { None };
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
            // ONNX allows an exponent of another type.
            let exponent = call.cast(call.dtype(x), exponent)?;
            call.binary(Binary::Pow, x, exponent)
        }
    }
}

/// Imports the integer remainder. It has the sign of the divisor, or with `fmod` that of the
/// dividend.
fn remainder(call: &mut Call) -> call::Result<ImportValue> {
    let of_dividend = call.flag("fmod", false)?;
    let [a, b] = pair(call)?;
    if call.dtype(a) != DType::I64 {
        return error::unfit("supported for integers only");
    }
    let remainder = rest(call, a, b)?;
    if of_dividend {
        return Ok(remainder);
    }
    // Adding the divisor before a second remainder moves the result to the divisor's sign.
    let shifted = call.binary(Binary::Add, remainder, b)?;
    rest(call, shifted, b)
}

/// Returns the remainder of a division that truncates towards zero.
fn rest(call: &mut Call, a: ImportValue, b: ImportValue) -> call::Result<ImportValue> {
    let quotient = call.binary(Binary::Div, a, b)?;
    let whole = call.binary(Binary::Mul, quotient, b)?;
    call.binary(Binary::Sub, a, whole)
}
