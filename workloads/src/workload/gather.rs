//! Gather: reads rows of a table by their numbers.

use std::fmt;

use autotune_ir::Affine;
use autotune_ir::program::{Access, BufferId, Compare, Expr};
use autotune_ir::spec::{Reduction, axis_vars};

use super::operator::{element, named_axes};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind =
    OperatorKind { name: "gather", fields: "m,n,k,from_end", example: "gather:m=128,n=768,k=30522", parse };

/// Maximum number of rows: f32 represents all integers up to this number.
const MOST_ROWS: usize = 1 << 24;

/// `output[m, n] = table[index[m], n]`: reads rows of a table `[k, n]`, such as an embedding, by
/// their numbers `[m]`.
///
/// The numbers are f32, whatever the type of the table. They are rounded down and clamped to the
/// table; NaN selects the first row. With `from_end`, negative numbers count from the end: -1 is
/// the last row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GatherWorkload {
    /// Number of rows to read.
    pub m: usize,
    /// Number of elements in a row.
    pub n: usize,
    /// Number of rows of the table.
    pub k: usize,
    /// True if negative numbers count from the end.
    pub from_end: bool,
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let [m, n, k] = ["m", "n", "k"].map(|field| fields.required(field));
    Ok(Box::new(GatherWorkload { m: m?, n: n?, k: k?, from_end: fields.flag("from_end")? }))
}

impl WorkloadOperator for GatherWorkload {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "m={},n={},k={}{}", self.m, self.n, self.k, if self.from_end { ",from_end" } else { "" })
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { m, n, k, .. }, op) = (*self, KIND.name);
        check_positive(op, &[("m", m), ("n", n), ("k", k)])?;
        if k > MOST_ROWS {
            let reason = format!("row numbers are f32, which is exact up to {MOST_ROWS}");
            return Err(WorkloadError::Unfit { op, field: "k", reason });
        }
        check_elements(op, &[("table", &[k, n]), ("output", &[m, n])], &[m, n])
    }

    /// Axes `m, n`, without a reduction.
    fn formula(&self) -> OperatorFormula {
        let Self { m, n, k, from_end } = *self;
        let [row, column] = axis_vars();
        let table = OperandTensor { name: "input", shape: vec![k, n], is_constant: false };
        let index = OperandTensor { name: "index", shape: vec![m], is_constant: false };
        let number = element(1, std::slice::from_ref(&row));
        let number = match from_end {
            false => number,
            true => {
                let counted = Expr::sum(number.clone(), Expr::Const(k as f32));
                Expr::select(Compare::Less, [number.clone(), Expr::Const(0.0)], counted, number)
            }
        };
        let first = Access { buffer: BufferId(0), index: [Affine::default(), column.clone()].into() };
        OperatorFormula {
            operands: vec![table, index],
            computed: Vec::new(),
            axes: named_axes(&[("m", m, false), ("n", n, false)]),
            value: Expr::gather(first, vec![0], vec![number]),
            reduction: Reduction::Sum,
            share: None,
            shape: vec![m, n],
            index: vec![row, column],
            channel: 1,
        }
    }
}
