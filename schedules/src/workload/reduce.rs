//! Rows of a matrix, each combined to one value.

use std::fmt;

use autotune_ir::spec::{Reduction, axis_vars};

use super::{Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, check_elements, check_positive};

/// In the registry.
pub(super) static KIND: OperatorKind =
    OperatorKind { name: "reduce", fields: "m,n,op", example: "reduce:m=1024,n=4096,op=sum", parse };

const OPS: [(&str, ReduceOp); 4] =
    [("sum", ReduceOp::Sum), ("max", ReduceOp::Max), ("prod", ReduceOp::Prod), ("mean", ReduceOp::Mean)];

/// What a row is combined to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// The sum of its elements.
    Sum,
    /// The largest.
    Max,
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
    let op = fields.word("op", &OPS, "a reduction (sum, max, prod or mean)")?.unwrap_or(ReduceOp::Sum);
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

    /// Axes `m | n`.
    fn formula(&self) -> Formula {
        let Self { m, n, op } = *self;
        let reduction = match op {
            ReduceOp::Sum => (Reduction::Sum, 1.0),
            ReduceOp::Max => (Reduction::Max, 1.0),
            ReduceOp::Prod => (Reduction::Product, 1.0),
            ReduceOp::Mean => (Reduction::Sum, 1.0 / n as f32),
        };
        let [row, column] = axis_vars();
        let input = Tensor { name: "input", shape: vec![m, n], is_constant: false };
        Formula::reduced(
            &[("m", m, false), ("n", n, true)],
            reduction,
            (input, vec![row.clone(), column]),
            (vec![m], vec![row]),
            0,
        )
    }
}
