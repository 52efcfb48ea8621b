//! Softmax and log-softmax along one dimension.

use std::fmt;

use autotune_ir::program::{BinaryOp, Compare, Expr, UnaryOp};
use autotune_ir::spec::{Reduction, axis_vars};

use super::operator::{Computed, element, named_axes};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "softmax",
    fields: FIELDS,
    example: "softmax:m=4096,n=1024",
    parse: |fields| parse(fields, false),
};
pub(super) static LOG_KIND: OperatorKind = OperatorKind {
    name: "log_softmax",
    fields: FIELDS,
    example: "log_softmax:m=128,n=50257",
    parse: |fields| parse(fields, true),
};
const FIELDS: &str = "m,n,k";

/// `output[m, n, k] = exp(input[m, n, k]) / Σ exp(input[m, .., k])`, or its logarithm.
///
/// The maximum is subtracted from all inputs first, to prevent overflow. The shape is `[m, n]` if
/// `k` is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SoftmaxWorkload {
    /// Extent of all dimensions before the normalised one.
    pub m: usize,
    /// Extent of the normalised dimension.
    pub n: usize,
    /// Extent of all dimensions after the normalised one.
    pub k: usize,
    /// True for log-softmax, false for softmax.
    pub log: bool,
}

fn parse(fields: &Fields, log: bool) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let k = fields.number("k")?.unwrap_or(1);
    Ok(Box::new(SoftmaxWorkload { m: fields.required("m")?, n: fields.required("n")?, k, log }))
}

impl WorkloadOperator for SoftmaxWorkload {
    fn kind(&self) -> &'static OperatorKind {
        if self.log { &LOG_KIND } else { &KIND }
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "m={},n={}", self.m, self.n)?;
        if self.k == 1 { Ok(()) } else { write!(f, ",k={}", self.k) }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { m, n, k, .. }, op) = (*self, self.kind().name);
        check_positive(op, &[("m", m), ("n", n), ("k", k)])?;
        check_elements(op, &[("input", &[m, n, k])], &[m, n, k])
    }

    /// Axes `m, k, n`.
    ///
    /// Softmax computes `largest`, `exp`, its `total`, and the reciprocal of that once per row.
    /// Log-softmax sums `exp` and the number of maxima separately, then takes the logarithm of
    /// their sum.
    fn formula(&self) -> OperatorFormula {
        let Self { m, n, k, log } = *self;
        let [row, behind, column] = axis_vars();
        let (shape, index) = match k {
            1 => (vec![m, n], vec![row.clone(), column.clone()]),
            _ => (vec![m, n, k], vec![row.clone(), column.clone(), behind.clone()]),
        };
        let axes = |reduce| named_axes(&[("m", m, false), ("k", k, false), ("n", n, reduce)]);
        let of_row = |number| element(number, &[row.clone(), behind.clone()]);
        let combined = |name, reduction, value| Computed { name, axes: axes(true), value, reduction, dims: vec![0, 1] };
        let once = |name, value| {
            let axes = named_axes(&[("m", m, false), ("k", k, false)]);
            Computed { name, axes, value, reduction: Reduction::Sum, dims: vec![0, 1] }
        };

        let input = element(0, &index);
        let below = Expr::binary(BinaryOp::Sub, input.clone(), of_row(1));
        let exp = Expr::unary(UnaryOp::Exp, below.clone());
        // A NaN input need not propagate through the maximum, since it makes the total NaN.
        let mut computed = vec![combined("largest", Reduction::MaxNumber, input)];
        let value = if log {
            // Each maximum contributes exactly 1. So `log1p` of the rest is accurate even if the
            // rest is tiny.
            let of_largest = |yes, no| Expr::select(Compare::Equal, [below.clone(), Expr::Const(0.0)], yes, no);
            let others = of_largest(Expr::Const(0.0), exp);
            computed.push(combined("others", Reduction::Sum, others));
            computed.push(combined("largest_too", Reduction::Sum, of_largest(Expr::Const(1.0), Expr::Const(0.0))));
            let beside_one = Expr::sum(Expr::sum(of_row(3), Expr::Const(-1.0)), of_row(2));
            computed.push(once("log_total", Expr::unary(UnaryOp::Log1p, beside_one)));
            Expr::binary(BinaryOp::Sub, below, of_row(4))
        } else {
            let (dims, reduction) = (vec![0, 1, 2], Reduction::Sum);
            computed.push(Computed { name: "exp", axes: axes(false), value: exp, reduction, dims });
            let exp = element(2, &[row.clone(), behind.clone(), column.clone()]);
            computed.push(combined("total", Reduction::Sum, exp.clone()));
            computed.push(once("scale", Expr::binary(BinaryOp::Div, Expr::Const(1.0), of_row(3))));
            Expr::product(exp, of_row(4))
        };
        let operands = vec![OperandTensor { name: "input", shape: shape.clone(), is_constant: false }];
        OperatorFormula {
            operands,
            computed,
            axes: axes(false),
            value,
            reduction: Reduction::Sum,
            share: None,
            shape,
            index,
            channel: 1,
        }
    }
}
