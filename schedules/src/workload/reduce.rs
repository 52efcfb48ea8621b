//! Elements along one dimension, combined to one value.

use std::fmt;

use autotune_ir::program::Expr;
use autotune_ir::spec::{Reduction, axis_vars};

use super::operator::{Computed, element, named_axes};
use super::{Fields, Formula, Operator, OperatorKind, Tensor, WorkloadError, check_elements, check_positive};

/// In the registry.
pub(super) static KIND: OperatorKind =
    OperatorKind { name: "reduce", fields: "m,n,k,op", example: "reduce:m=1024,n=4096,op=sum", parse };

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

/// `output[m, k]` is what is made of `input[m, .., k]`; shapes `[m]` and `[m, n]` where `k` is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reduce {
    /// Extent of all dimensions before the one that is combined.
    pub m: usize,
    /// Extent of the dimension that is combined.
    pub n: usize,
    /// Extent of all dimensions behind it.
    pub k: usize,
    /// What is made of a row.
    pub op: ReduceOp,
}

fn parse(fields: &Fields) -> Result<Box<dyn Operator>, WorkloadError> {
    let op = fields.word("op", &OPS, "a reduction (sum, max, min, prod or mean)")?.unwrap_or(ReduceOp::Sum);
    let k = fields.number("k")?.unwrap_or(1);
    Ok(Box::new(Reduce { m: fields.required("m")?, n: fields.required("n")?, k, op }))
}

impl Operator for Reduce {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let word = OPS.iter().find(|(_, op)| *op == self.op).map_or("", |(word, _)| word);
        write!(f, "m={},n={}", self.m, self.n)?;
        if self.k != 1 {
            write!(f, ",k={}", self.k)?;
        }
        write!(f, ",op={word}")
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let Self { m, n, k, .. } = *self;
        check_positive(KIND.name, &[("m", m), ("n", n), ("k", k)])?;
        check_elements(KIND.name, &[("input", &[m, n, k])], &[m, n, k])
    }

    /// Axes `m | n`, or `m, k | n`. The smallest is the largest with every sign turned: `below`, then that of each by itself.
    fn formula(&self) -> Formula {
        let Self { m, n, k, op } = *self;
        let reduction = match op {
            ReduceOp::Sum => (Reduction::Sum, 1.0),
            ReduceOp::Max => (Reduction::Max, 1.0),
            ReduceOp::Min => (Reduction::Max, -1.0),
            ReduceOp::Prod => (Reduction::Product, 1.0),
            ReduceOp::Mean => (Reduction::Sum, 1.0 / n as f32),
        };
        let [row, second, third] = axis_vars();
        let (kept, shape, read, result) = match k {
            1 => (vec![("m", m, false)], vec![m, n], vec![row.clone(), second], (vec![m], vec![row])),
            _ => {
                let (kept, read) = (vec![("m", m, false), ("k", k, false)], vec![row.clone(), third, second.clone()]);
                (kept, vec![m, n, k], read, (vec![m, k], vec![row, second]))
            }
        };

        let axes = [&kept[..], &[("n", n, true)]].concat();
        let input = Tensor { name: "input", shape, is_constant: false };
        let reduced = Formula::reduced(&axes, reduction, (input, read), result.clone(), 0);
        if op != ReduceOp::Min {
            return reduced;
        }

        let Formula { axes, value, reduction, .. } = reduced.clone();
        let below = Computed { name: "below", axes, value, reduction, dims: (0..kept.len()).collect() };
        let value = Expr::product(element(1, &result.1), Expr::Const(-1.0));
        let axes = named_axes(&kept);
        Formula { axes, computed: vec![below], value, reduction: Reduction::Sum, ..reduced }
    }
}
