//! Matrices with rows and columns exchanged.

use std::fmt;

use autotune_ir::spec::{Reduction, axis_vars};

use super::{Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, check_elements, check_positive};

/// In the registry.
pub(super) static KIND: OperatorKind =
    OperatorKind { name: "transpose", fields: "b,m,n", example: "transpose:m=512,n=512", parse };

/// A batch of transposed matrices `output[b,n,m] = input[b,m,n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Transpose {
    /// Batch.
    pub b: usize,
    /// Rows of the input.
    pub m: usize,
    /// Columns of the input.
    pub n: usize,
}

fn parse(fields: &Fields) -> Result<Box<dyn Operator>, WorkloadError> {
    let b = fields.number("b")?.unwrap_or(1);
    Ok(Box::new(Transpose { b, m: fields.required("m")?, n: fields.required("n")? }))
}

impl Operator for Transpose {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        if self.b != 1 {
            write!(f, "b={},", self.b)?;
        }
        write!(f, "m={},n={}", self.m, self.n)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let Self { b, m, n } = *self;
        check_positive(KIND.name, &[("b", b), ("m", m), ("n", n)])?;
        check_elements(KIND.name, &[("input", &[b, m, n])], &[b, m, n])
    }

    /// Axes `b, n, m`.
    fn formula(&self) -> Formula {
        let Self { b, m, n } = *self;
        let [batch, column, row] = axis_vars();
        let input = Tensor { name: "input", shape: vec![b, m, n], is_constant: false };
        Formula::reduced(
            &[("b", b, false), ("n", n, false), ("m", m, false)],
            (Reduction::Sum, 1.0),
            (input, vec![batch.clone(), row.clone(), column.clone()]),
            (vec![b, n, m], vec![batch, column, row]),
            2,
        )
    }
}
