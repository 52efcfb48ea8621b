//! Batches of matrix products.

use std::fmt;

use autotune_ir::spec::axis_vars;

use super::{Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, check_elements, check_positive};

/// In the registry.
pub(super) static KIND: OperatorKind =
    OperatorKind { name: "matmul", fields: "b,m,n,k", example: "matmul:m=512,n=512,k=512", parse };

/// A batch of matrix products `C[b,m,n] = A[b,m,k] * B[b,k,n]`.
///
/// With `b == 1` the operand `B` is a weight (it may be packed ahead of time); with a real batch both are activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Matmul {
    /// Batch.
    pub b: usize,
    /// Rows of `A` and `C`.
    pub m: usize,
    /// Columns of `B` and `C`.
    pub n: usize,
    /// Columns of `A`, rows of `B`.
    pub k: usize,
}

fn parse(fields: &Fields) -> Result<Box<dyn Operator>, WorkloadError> {
    Ok(Box::new(Matmul {
        b: fields.number("b")?.unwrap_or(1),
        m: fields.required("m")?,
        n: fields.required("n")?,
        k: fields.required("k")?,
    }))
}

impl Operator for Matmul {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        if self.b != 1 {
            write!(f, "b={},", self.b)?;
        }
        write!(f, "m={},n={},k={}", self.m, self.n, self.k)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (m, op) = (self, KIND.name);
        check_positive(op, &[("b", m.b), ("m", m.m), ("n", m.n), ("k", m.k)])?;
        let tensors: [(_, &[_]); 3] = [("A", &[m.b, m.m, m.k]), ("B", &[m.b, m.k, m.n]), ("C", &[m.b, m.m, m.n])];
        check_elements(op, &tensors, &[m.b, m.m, m.n, m.k])
    }

    /// Axes `b, m, n | k`.
    fn formula(&self) -> Formula {
        let mm = self;
        let axes = [("b", mm.b, false), ("m", mm.m, false), ("n", mm.n, false), ("k", mm.k, true)];
        let [b, m, n, k] = axis_vars();
        let left = Tensor { name: "input", shape: vec![mm.b, mm.m, mm.k], is_constant: false };
        let right = Tensor { name: "weight", shape: vec![mm.b, mm.k, mm.n], is_constant: mm.b == 1 };
        Formula::product(
            &axes,
            [(left, vec![b.clone(), m.clone(), k.clone()]), (right, vec![b.clone(), k, n.clone()])],
            (vec![mm.b, mm.m, mm.n], vec![b, m, n]),
            2,
        )
    }
}
