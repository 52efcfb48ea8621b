//! Rows of a matrix, each combined to one value.

use std::fmt;

use autotune_ir::program::Expr;
use autotune_ir::spec::{Reduction, axis_vars};

use super::operator::{Computed, element, named_axes};
use super::{Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, check_elements, check_positive};

/// In the registry.
pub(super) static KIND: OperatorKind =
    OperatorKind { name: "reduce", fields: "m,n,op", example: "reduce:m=1024,n=4096,op=sum", parse };

const OPS: [(&str, ReduceOp); 5] = [
    ("sum", ReduceOp::Sum),
    ("max", ReduceOp::Max),
    ("min", ReduceOp::Min),
    ("prod", ReduceOp::Prod),
    ("mean", ReduceOp::Mean),
];

/// What a row is combined to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// The sum of its elements.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// Their product.
    Prod,
    /// Their mean.
    Mean,
}

/// `output[m]` is what is made of `input[m, ..]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reduce {
    /// Rows.
    pub m: usize,
    /// Elements of a row.
    pub n: usize,
    /// What is made of a row.
    pub op: ReduceOp,
}

fn parse(fields: &Fields) -> Result<Box<dyn Operator>, WorkloadError> {
    let op = fields.word("op", &OPS, "a reduction (sum, max, min, prod or mean)")?.unwrap_or(ReduceOp::Sum);
    Ok(Box::new(Reduce { m: fields.required("m")?, n: fields.required("n")?, op }))
}

impl Operator for Reduce {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let word = OPS.iter().find(|(_, op)| *op == self.op).map_or("", |(word, _)| word);
        write!(f, "m={},n={},op={word}", self.m, self.n)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let Self { m, n, .. } = *self;
        check_positive(KIND.name, &[("m", m), ("n", n)])?;
        check_elements(KIND.name, &[("input", &[m, n])], &[m, n])
    }

    /// Axes `m | n`. The smallest is the largest with every sign turned: `below[m]`, then `m` alone.
    fn formula(&self) -> Formula {
        let Self { m, n, op } = *self;
        let reduction = match op {
            ReduceOp::Sum => (Reduction::Sum, 1.0),
            ReduceOp::Max => (Reduction::Max, 1.0),
            ReduceOp::Min => (Reduction::Max, -1.0),
            ReduceOp::Prod => (Reduction::Product, 1.0),
            ReduceOp::Mean => (Reduction::Sum, 1.0 / n as f32),
        };
        let [row, column] = axis_vars();
        let input = Tensor { name: "input", shape: vec![m, n], is_constant: false };
        let (read, result) = ((input, vec![row.clone(), column]), (vec![m], vec![row.clone()]));
        let reduced = Formula::reduced(&[("m", m, false), ("n", n, true)], reduction, read, result, 0);
        if op != ReduceOp::Min {
            return reduced;
        }

        let Formula { axes, value, reduction, .. } = reduced.clone();
        let below = Computed { name: "below", axes, value, reduction, dims: vec![0] };
        let value = Expr::product(element(1, &[row]), Expr::Const(-1.0));
        let axes = named_axes(&[("m", m, false)]);
        Formula { axes, computed: vec![below], value, reduction: Reduction::Sum, ..reduced }
    }
}
