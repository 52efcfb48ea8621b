//! Batches of matrix products.

use std::fmt;

use autotune_ir::spec::axis_vars;

use super::operator::{Contraction, Definition, Entry, MAX_ELEMENTS, MAX_MACS, check_positive, product};
use super::text::Fields;
use super::{Operator, WorkloadError};

/// In the registry.
pub(super) const ENTRY: Entry = Entry { name: "matmul", fields: "b,m,n,k", example: "matmul:m=512,n=512,k=512", parse };

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

fn parse(fields: &Fields) -> Result<Operator, WorkloadError> {
    Ok(Operator::Matmul(Matmul {
        b: fields.number("b")?.unwrap_or(1),
        m: fields.required("m")?,
        n: fields.required("n")?,
        k: fields.required("k")?,
    }))
}

impl Definition for Matmul {
    fn write_fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.b != 1 {
            write!(f, "b={},", self.b)?;
        }
        write!(f, "m={},n={},k={}", self.m, self.n, self.k)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (m, op) = (self, ENTRY.name);
        check_positive(op, &[("b", m.b), ("m", m.m), ("n", m.n), ("k", m.k)])?;
        product(op, "A", &[m.b, m.m, m.k], MAX_ELEMENTS)?;
        product(op, "B", &[m.b, m.k, m.n], MAX_ELEMENTS)?;
        let outputs = product(op, "C", &[m.b, m.m, m.n], MAX_ELEMENTS)?;
        product(op, "work", &[outputs, m.k], MAX_MACS)?;
        Ok(())
    }

    fn shapes(&self) -> [Vec<usize>; 3] {
        [vec![self.b, self.m, self.k], vec![self.b, self.k, self.n], vec![self.b, self.m, self.n]]
    }

    fn bias_len(&self) -> usize {
        self.n
    }

    fn reduction_len(&self) -> usize {
        self.k
    }

    /// Axes `b, m, n | k`.
    fn contraction(&self) -> Contraction {
        let mm = self;
        let axes = [("b", mm.b, false), ("m", mm.m, false), ("n", mm.n, false), ("k", mm.k, true)];
        let [b, m, n, k] = axis_vars();
        Contraction {
            axes: axes.to_vec(),
            data: vec![b.clone(), m.clone(), k.clone()],
            weight: vec![b.clone(), k, n.clone()],
            output: vec![b, m, n.clone()],
            channel: n,
            weight_is_constant: mm.b == 1,
        }
    }
}
