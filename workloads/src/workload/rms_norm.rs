//! RMS normalisation: rows of a matrix get a mean square of 1.

use std::fmt;

use autotune_ir::program::{Expr, UnaryOp};
use autotune_ir::spec::{Reduction, axis_vars};

use super::layer_norm::{EPS, write_eps};
use super::operator::{Computed, element, named_axes};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind =
    OperatorKind { name: "rms_norm", fields: "m,n,eps", example: "rms_norm:m=512,n=4096", parse };

/// `output[m, n] = input[m, n] / sqrt(mean_square[m] + eps) * scale[n]`; Zhang and Sennrich, "Root
/// Mean Square Layer Normalization" (2019).
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct RmsNorm {
    /// Number of rows, each normalised separately.
    pub m: usize,
    /// Number of elements in a row.
    pub n: usize,
    /// Number that is added to the mean square.
    pub eps: f32,
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let eps = fields.positive("eps")?.unwrap_or(EPS);
    Ok(Box::new(RmsNorm { m: fields.required("m")?, n: fields.required("n")?, eps }))
}

impl WorkloadOperator for RmsNorm {
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

    /// Axes `m, n`. Computes the sum `squares`, and `one_over`, the reciprocal of the root mean
    /// square.
    fn formula(&self) -> OperatorFormula {
        let Self { m, n, eps } = *self;
        let [row, column] = axis_vars();
        let axes = |reduce| named_axes(&[("m", m, false), ("n", n, reduce)]);
        let input = element(0, &[row.clone(), column.clone()]);
        let square = Expr::product(input.clone(), input.clone());
        let (name, dims) = ("squares", vec![0]);
        let squares = Computed { name, axes: axes(true), value: square, reduction: Reduction::Sum, dims };
        let of_row = |number| element(number, std::slice::from_ref(&row));
        let one_over = Computed {
            name: "one_over",
            axes: named_axes(&[("m", m, false)]),
            value: Expr::unary(
                UnaryOp::Rsqrt,
                Expr::sum(Expr::product(of_row(2), Expr::Const(1.0 / n as f32)), Expr::Const(eps)),
            ),
            reduction: Reduction::Sum,
            dims: vec![0],
        };

        let scale = element(1, std::slice::from_ref(&column));
        OperatorFormula {
            operands: vec![
                OperandTensor { name: "input", shape: vec![m, n], is_constant: false },
                OperandTensor { name: "scale", shape: vec![n], is_constant: true },
            ],
            computed: vec![squares, one_over],
            axes: axes(false),
            value: Expr::product(Expr::product(input, of_row(3)), scale),
            reduction: Reduction::Sum,
            share: None,
            shape: vec![m, n],
            index: vec![row.clone(), column],
            channel: 1,
        }
    }
}
