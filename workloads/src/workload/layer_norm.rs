//! Layer normalisation: rows of a matrix get mean 0 and variance 1.

use std::fmt;

use autotune_ir::program::{BinaryOp, Expr, UnaryOp};
use autotune_ir::spec::{Reduction, axis_vars};

use super::operator::{Computed, element, named_axes};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind =
    OperatorKind { name: "layer_norm", fields: "m,n,eps", example: "layer_norm:m=512,n=768", parse };

/// Default of the number that is added to the variance.
pub(super) const EPS: f32 = 1e-5;

/// `output[m, n] = (input[m, n] - mean[m]) / sqrt(variance[m] + eps) * scale[n] + shift[n]`; Ba et
/// al., "Layer Normalization" (2016).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct LayerNormWorkload {
    /// Number of rows, each normalised separately.
    pub m: usize,
    /// Number of elements in a row.
    pub n: usize,
    /// Number that is added to the variance.
    pub eps: f32,
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let eps = fields.positive("eps")?.unwrap_or(EPS);
    Ok(Box::new(LayerNormWorkload { m: fields.required("m")?, n: fields.required("n")?, eps }))
}

/// Writes `,eps=1e-6`, for example, unless it is the default.
pub(super) fn write_eps(f: &mut dyn fmt::Write, eps: f32) -> fmt::Result {
    if eps == EPS { Ok(()) } else { write!(f, ",eps={eps:e}") }
}

impl WorkloadOperator for LayerNormWorkload {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "m={},n={}", self.m, self.n)?;
        write_eps(f, self.eps)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let Self { m, n, .. } = *self;
        check_positive(KIND.name, &[("m", m), ("n", n)])?;
        check_elements(KIND.name, &[("input", &[m, n])], &[m, n])
    }

    /// Axes `m, n`. Computes the sum `total`, the `mean`, the sum `squares` of the centred values,
    /// and `one_over`, the inverse of the standard deviation.
    fn formula(&self) -> OperatorFormula {
        let Self { m, n, eps } = *self;
        let [row, column] = axis_vars();
        let axes = |reduce| named_axes(&[("m", m, false), ("n", n, reduce)]);
        let of_row = |number| element(number, std::slice::from_ref(&row));
        let of_column = |number| element(number, std::slice::from_ref(&column));
        let computed = |name, axes, value| Computed { name, axes, value, reduction: Reduction::Sum, dims: vec![0] };
        let sum = |name, value| computed(name, axes(true), value);
        let once = |name, value| computed(name, named_axes(&[("m", m, false)]), value);
        let mean = |number| Expr::product(of_row(number), Expr::Const(1.0 / n as f32));

        let input = element(0, &[row.clone(), column.clone()]);
        let centred = Expr::binary(BinaryOp::Sub, input.clone(), of_row(4));
        let square = Expr::product(centred.clone(), centred.clone());
        let one_over = Expr::unary(UnaryOp::Rsqrt, Expr::sum(mean(5), Expr::Const(eps)));
        let given = |name, shape, is_constant| OperandTensor { name, shape, is_constant };
        OperatorFormula {
            operands: vec![
                given("input", vec![m, n], false),
                given("scale", vec![n], true),
                given("shift", vec![n], true),
            ],
            computed: vec![
                sum("total", input),
                once("mean", mean(3)),
                sum("squares", square),
                once("one_over", one_over),
            ],
            axes: axes(false),
            value: Expr::sum(Expr::product(Expr::product(centred, of_row(6)), of_column(1)), of_column(2)),
            reduction: Reduction::Sum,
            share: None,
            shape: vec![m, n],
            index: vec![row.clone(), column.clone()],
            channel: 1,
        }
    }
}
