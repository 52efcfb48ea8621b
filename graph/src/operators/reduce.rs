//! Reductions along axes.

use autotune_ir::program::UnaryOp;
use autotune_workloads::{self as workload, ReduceOp, Workload};

use super::binary::Binary;
use super::choose::Where;
use super::prelude::*;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("ReduceSum", |call| plain(call, ReduceOp::Sum)),
    OnnxOperator::one("ReduceMean", |call| plain(call, ReduceOp::Mean)),
    OnnxOperator::one("ReduceMax", |call| plain(call, ReduceOp::Max)),
    OnnxOperator::one("ReduceMin", |call| plain(call, ReduceOp::Min)),
    OnnxOperator::one("ReduceProd", |call| plain(call, ReduceOp::Prod)),
    OnnxOperator::one("ReduceL1", l1),
    OnnxOperator::one("ReduceL2", l2),
    OnnxOperator::one("ReduceSumSquare", sum_square),
    OnnxOperator::one("ReduceLogSum", log_sum),
    OnnxOperator::one("ReduceLogSumExp", log_sum_exp),
    OnnxOperator::one("ArgMax", |call| place_of(call, ReduceOp::Max)),
    OnnxOperator::one("ArgMin", |call| place_of(call, ReduceOp::Min)),
];

/// Reduction of a tensor along some axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Reduce {
    /// Operator that combines the elements.
    pub op: ReduceOp,
    /// Axes to reduce, in ascending order.
    pub axes: Vec<usize>,
    /// True if reduced axes remain with extent 1.
    pub keep_axes: bool,
}

impl Operator for Reduce {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 1..=1)?;
        let (shape, dtype) = operands[0];
        if dtype != DType::I64 {
            check_dtype(operands, 0, DType::F32)?;
        }
        Ok((output(&self.axes, self.keep_axes, shape)?, dtype))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (op, axes) = (self.op, &self.axes);
        // Output position of each input element; reduced axes have one position.
        let from = operands[0].shape();
        let kept: Vec<usize> =
            from.iter().enumerate().map(|(axis, &extent)| if axes.contains(&axis) { 1 } else { extent }).collect();
        let places = TensorRows::broadcast([&kept], from).map(|[to]| to);
        let each = axes.iter().map(|&axis| from[axis]).product::<usize>();

        if operands[0].dtype() == DType::I64 {
            let (x, first) = (values::<i64>(operands, 0)?, first_integer(op));
            let mut all = vec![first; elements(shape)?];
            for (x, &to) in x.iter().zip(&places) {
                all[to] = of_integers(op, all[to], *x);
            }
            let mean = |sum: i64| if op == ReduceOp::Mean { sum / each as i64 } else { sum };
            return tensor(shape, all.into_iter().map(mean).collect());
        }

        let (x, first) = (values::<f32>(operands, 0)?, first_number(op));
        let mut all = vec![first; elements(shape)?];
        for (x, &to) in x.iter().zip(&places) {
            all[to] = of_numbers(op, all[to], (*x).into());
        }
        let mean = |sum: f64| if op == ReduceOp::Mean { sum / each as f64 } else { sum };
        tensor(shape, all.into_iter().map(|x| mean(x) as f32).collect())
    }

    /// Returns a reduction workload, except for integer means, which truncate.
    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let has_fractions = self.op == ReduceOp::Mean && node.dtype(0) == DType::I64;
        let op = workload::ReduceWorkload::new(node.shape(0), &self.axes, self.op).ok().filter(|_| !has_fractions)?;
        Some(Anchor::new(Workload::new(op).ok()?, node))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let axes = to.integers(self.axes.iter().map(|&axis| axis as i64))?;
        let attributes = vec![int("keepdims", self.keep_axes.into()), int("noop_with_empty_axes", 1)];
        let operator = match self.op {
            ReduceOp::Sum => "ReduceSum",
            ReduceOp::Max => "ReduceMax",
            ReduceOp::Min => "ReduceMin",
            ReduceOp::Prod => "ReduceProd",
            ReduceOp::Mean => "ReduceMean",
        };
        to.node(operator, &[&to.input(0), &axes], attributes)
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        self.op == ReduceOp::Prod
    }
}

fn output(axes: &[usize], keep_axes: bool, shape: &[usize]) -> Result<Vec<usize>, OpError> {
    axes.iter().try_for_each(|&axis| axis_of(axis, shape).map(drop))?;
    if !axes.is_sorted_by(|a, b| a < b) {
        return unfit(format!("axes {axes:?} must be ascending"));
    }
    if let Some(axis) = axes.iter().find(|&&axis| shape[axis] == 0) {
        return unfit(format!("axis {axis} has no elements"));
    }
    let extent = |(axis, &extent): (usize, &usize)| match (axes.contains(&axis), keep_axes) {
        (false, _) => Some(extent),
        (true, true) => Some(1),
        (true, false) => None,
    };
    Ok(shape.iter().enumerate().filter_map(extent).collect())
}

fn first_number(op: ReduceOp) -> f64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => 0.0,
        ReduceOp::Prod => 1.0,
        ReduceOp::Max => f64::NEG_INFINITY,
        ReduceOp::Min => f64::INFINITY,
    }
}

fn of_numbers(op: ReduceOp, a: f64, b: f64) -> f64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => a + b,
        ReduceOp::Prod => a * b,
        ReduceOp::Max => larger(a, b),
        ReduceOp::Min => smaller(a, b),
    }
}

fn first_integer(op: ReduceOp) -> i64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Max => i64::MIN,
        ReduceOp::Min => i64::MAX,
    }
}

fn of_integers(op: ReduceOp, a: i64, b: i64) -> i64 {
    match op {
        ReduceOp::Sum | ReduceOp::Mean => a.wrapping_add(b),
        ReduceOp::Prod => a.wrapping_mul(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::Min => a.min(b),
    }
}

impl Call<'_> {
    pub(crate) fn reduce(
        &mut self,
        op: ReduceOp,
        axes: &[usize],
        keep_axes: bool,
        x: ImportValue,
    ) -> call::Result<ImportValue> {
        self.add(Reduce { op, axes: axes.to_vec(), keep_axes }, &[x])
    }
}

/// Operand and axes of a reduction node.
struct ReducedTensor {
    x: ImportValue,
    axes: Vec<usize>,
    keep_axes: bool,
}

impl ReducedTensor {
    /// Reads a node. Axes are an attribute before opset 18 (before 13 for sums); without axes all
    /// are reduced, unless an attribute says none.
    fn of(call: &Call) -> call::Result<Self> {
        let since = if call.is("ReduceSum") { 13 } else { 18 };
        call.check_most(if call.version < since { 1 } else { 2 })?;
        let x = call.operand(0)?;
        let rank = call.rank(x);
        // An empty list of axes counts as absent.
        let said = call.integers("axes", 1, since)?.filter(|said| !said.is_empty());
        let none_if_empty = call.flag("noop_with_empty_axes", false)?;
        let axes = match said {
            Some(said) => axes(&said, rank)?,
            None if none_if_empty => Vec::new(),
            None => (0..rank).collect(),
        };
        Ok(Self { x, axes, keep_axes: call.flag("keepdims", true)? })
    }

    fn reduced(&self, call: &mut Call, op: ReduceOp, x: ImportValue) -> call::Result<ImportValue> {
        let shape = call.shape(x);
        let is_empty = self.axes.iter().any(|&axis| shape[axis] == 0);
        // The least integer depends on a type that is not known here.
        if is_empty && call.dtype(x) != DType::I64 {
            return self.of_nothing(call, op, call.dtype(x), shape);
        }
        match (self.axes.is_empty(), call.dtype(x)) {
            (true, _) => Ok(x),
            // The largest of truth values is true if any is.
            (false, DType::Bool) if matches!(op, ReduceOp::Max | ReduceOp::Min) => {
                let numbers = call.cast(DType::I64, x)?;
                let found = call.reduce(op, &self.axes, self.keep_axes, numbers)?;
                call.cast(DType::Bool, found)
            }
            (false, _) => call.reduce(op, &self.axes, self.keep_axes, x),
        }
    }

    /// Adds reductions of no elements, which are known.
    fn of_nothing(
        &self,
        call: &mut Call,
        op: ReduceOp,
        dtype: DType,
        mut shape: Vec<usize>,
    ) -> call::Result<ImportValue> {
        let number = match (op, dtype) {
            (ReduceOp::Max, DType::Bool) => 0.0,
            (ReduceOp::Mean, _) => f32::NAN,
            _ => first_number(op) as f32,
        };
        let number = Tensor::of_numbers(&[], dtype, &[number])?;
        self.axes.iter().for_each(|&axis| shape[axis] = 1);
        let whole = call.filled(&number.into(), &shape)?;
        let kept = (0..shape.len()).filter(|axis| self.keep_axes || !self.axes.contains(axis));
        let kept: Vec<usize> = kept.map(|axis| shape[axis]).collect();
        call.reshape(&kept, whole)
    }
}

fn plain(call: &mut Call, op: ReduceOp) -> call::Result<ImportValue> {
    let reduction = ReducedTensor::of(call)?;
    reduction.reduced(call, op, reduction.x)
}

fn l1(call: &mut Call) -> call::Result<ImportValue> {
    let reduction = ReducedTensor::of(call)?;
    let sizes = call.unary(UnaryOp::Abs, reduction.x)?;
    reduction.reduced(call, ReduceOp::Sum, sizes)
}

fn sum_square(call: &mut Call) -> call::Result<ImportValue> {
    let reduction = ReducedTensor::of(call)?;
    let squares = call.binary(Binary::Mul, reduction.x, reduction.x)?;
    reduction.reduced(call, ReduceOp::Sum, squares)
}

fn l2(call: &mut Call) -> call::Result<ImportValue> {
    let sum = sum_square(call)?;
    call.unary(UnaryOp::Sqrt, sum)
}

fn log_sum(call: &mut Call) -> call::Result<ImportValue> {
    let reduction = ReducedTensor::of(call)?;
    let sum = reduction.reduced(call, ReduceOp::Sum, reduction.x)?;
    call.unary(UnaryOp::Log, sum)
}

/// Imports `log(sum(exp(x)))`. The maximum, clamped to finite numbers, is subtracted first so that
/// the exponentials do not overflow.
fn log_sum_exp(call: &mut Call) -> call::Result<ImportValue> {
    let mut reduction = ReducedTensor::of(call)?;
    // The maximum must broadcast against the operand.
    let keep_axes = std::mem::replace(&mut reduction.keep_axes, true);
    let largest = reduction.reduced(call, ReduceOp::Max, reduction.x)?;
    // An infinite maximum would yield inf - inf = NaN.
    let largest = call.with(Binary::Max, largest, f32::MIN)?;
    let largest = call.with(Binary::Min, largest, f32::MAX)?;
    let shifted = call.binary(Binary::Sub, reduction.x, largest)?;
    let powers = call.unary(UnaryOp::Exp, shifted)?;
    let sum = reduction.reduced(call, ReduceOp::Sum, powers)?;
    let log = call.unary(UnaryOp::Log, sum)?;
    let whole = call.binary(Binary::Add, log, largest)?;

    // The reduced axes are dropped at the end, if requested.
    let shape = call.shape(whole).into_iter().enumerate();
    let shape: Vec<usize> =
        shape.filter(|(axis, _)| keep_axes || !reduction.axes.contains(axis)).map(|axis| axis.1).collect();
    call.reshape(&shape, whole)
}

/// Imports the index of the largest or smallest element along an axis.
fn place_of(call: &mut Call, op: ReduceOp) -> call::Result<ImportValue> {
    call.check_most(1)?;
    let x = call.operand(0)?;
    let axis = axis(call.int_or("axis", 0)?, call.rank(x))?;
    let flags = [call.flag("keepdims", true)?, call.flag("select_last_index", false)?];
    call.place_along(op, x, axis, flags)
}

impl Call<'_> {
    /// Adds the index of the largest or smallest element along an axis, the first or the last of
    /// equal ones. NaN counts as either, as in NumPy.
    pub(super) fn place_along(
        &mut self,
        op: ReduceOp,
        x: ImportValue,
        axis: usize,
        [keep_axes, is_last]: [bool; 2],
    ) -> call::Result<ImportValue> {
        let best = self.reduce(op, &[axis], true, x)?;
        let is_best = self.binary(Binary::Equal, x, best)?;
        let mut shape = vec![1; self.rank(x)];
        shape[axis] = self.shape(x)[axis];
        let extent = shape[axis] as i64;
        let places = self.constant(Tensor::i64(&shape, (0..extent).collect())?);
        // Other elements get the index that the reduction chooses last.
        let (other, op) = if is_last { (0, ReduceOp::Max) } else { (extent - 1, ReduceOp::Min) };
        let other = self.constant(Tensor::i64(&[], vec![other])?);
        let mut found = self.add(Where, &[is_best, places, other])?;
        // NaN equals nothing, so its own index replaces the one chosen above.
        if self.dtype(x) == DType::F32 {
            let is_number = self.binary(Binary::Equal, x, x)?;
            found = self.add(Where, &[is_number, found, places])?;
        }
        self.reduce(op, &[axis], keep_axes, found)
    }
}
