//! Batches of matrix products.

use std::fmt;

use autotune_ir::Affine;
use autotune_ir::spec::axis_vars;

use super::{Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, check_elements, check_positive};

/// In the registry.
pub(super) static KIND: OperatorKind =
    OperatorKind { name: "matmul", fields: "b,m,n,k,ta,tb,weights", example: "matmul:m=512,n=512,k=512", parse };

const WEIGHTS: [(&str, bool); 2] = [("constant", true), ("data", false)];

/// A batch of matrix products `C[b,m,n] = A[b,m,k] * B[b,k,n]`.
///
/// Either operand may lie transposed, `A[b,k,m]` and `B[b,n,k]`.
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
    /// True if `A` lies transposed.
    pub ta: bool,
    /// True if `B` lies transposed.
    pub tb: bool,
    /// True if `B` is the same in every run, so that it is packed ahead of time; else it is an activation as `A` is.
    pub weight_is_constant: bool,
}

impl Matmul {
    /// Products of operands that lie as they are multiplied; `B` is a weight unless there is a batch of them.
    pub fn new(b: usize, m: usize, n: usize, k: usize) -> Self {
        Self { b, m, n, k, ta: false, tb: false, weight_is_constant: b == 1 }
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn Operator>, WorkloadError> {
    let b = fields.number("b")?.unwrap_or(1);
    let plain = Matmul::new(b, fields.required("m")?, fields.required("n")?, fields.required("k")?);
    let weights = fields.word("weights", &WEIGHTS, "constant or data")?;
    Ok(Box::new(Matmul {
        ta: fields.flag("ta")?,
        tb: fields.flag("tb")?,
        weight_is_constant: weights.unwrap_or(plain.weight_is_constant),
        ..plain
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
        write!(f, "m={},n={},k={}", self.m, self.n, self.k)?;
        [(self.ta, ",ta"), (self.tb, ",tb")].iter().filter(|flag| flag.0).try_for_each(|flag| f.write_str(flag.1))?;
        let is_usual = self.weight_is_constant == (self.b == 1);
        match WEIGHTS.iter().find(|(_, is_constant)| *is_constant == self.weight_is_constant && !is_usual) {
            Some((word, _)) => write!(f, ",weights={word}"),
            None => Ok(()),
        }
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
        // The last two dimensions, each an extent and its index, in the order in which they lie.
        let operand = |name, is_constant, transposed: bool, [row, column]: [(usize, &Affine); 2]| {
            let [outer, inner] = if transposed { [column, row] } else { [row, column] };
            let tensor = Tensor { name, shape: vec![mm.b, outer.0, inner.0], is_constant };
            (tensor, vec![b.clone(), outer.1.clone(), inner.1.clone()])
        };
        let left = operand("input", false, mm.ta, [(mm.m, &m), (mm.k, &k)]);
        let right = operand("weight", mm.weight_is_constant, mm.tb, [(mm.k, &k), (mm.n, &n)]);
        Formula::product(&axes, [left, right], (vec![mm.b, mm.m, mm.n], vec![b, m, n]), 2)
    }
}
