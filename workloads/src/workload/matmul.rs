//! Batches of matrix products.

use std::fmt;

use autotune_ir::{Affine, VarId};

use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

mod batch;

pub use batch::{Batch, Sides};

pub(super) static KIND: OperatorKind =
    OperatorKind { name: "matmul", fields: "b,lhs,rhs,m,n,k,ta,tb", example: "matmul:m=512,n=512,k=512", parse };

/// A batch of matrix products `C[b,m,n] = A[b,m,k] * B[b,k,n]`.
///
/// Either operand may be stored transposed, as `A[b,k,m]` or `B[b,n,k]`, and may lack axes of the
/// batch: `A[m,k]` is multiplied by every `B[b,k,n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Matmul {
    /// Axes of the batch.
    pub b: Batch,
    /// Number of rows of `A` and `C`.
    pub m: usize,
    /// Number of columns of `B` and `C`.
    pub n: usize,
    /// Number of columns of `A` and rows of `B`.
    pub k: usize,
    /// True if `A` is stored transposed.
    pub ta: bool,
    /// True if `B` is stored transposed.
    pub tb: bool,
}

impl Matmul {
    /// Creates a batch of products of operands that are not transposed.
    pub fn new(b: usize, m: usize, n: usize, k: usize) -> Self {
        Self { b: Batch::of(b), m, n, k, ta: false, tb: false }
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let b = batch(fields)?;
    let plain = Matmul::new(1, fields.required("m")?, fields.required("n")?, fields.required("k")?);
    Ok(Box::new(Matmul { b, ta: fields.flag("ta")?, tb: fields.flag("tb")?, ..plain }))
}

fn batch(fields: &Fields) -> Result<Batch, WorkloadError> {
    let extents = fields.extents("b")?.unwrap_or_else(|| vec![1]);
    let mut has = [(); 2].map(|()| vec![true; extents.len()]);
    for (has, field) in has.iter_mut().zip(["lhs", "rhs"]) {
        if let Some(said) = fields.read(field, |text| batch::parse_axes(text, extents.len()))? {
            *has = said;
        }
    }

    let mut axes = Vec::new();
    for (axis, &extent) in extents.iter().enumerate() {
        axes.push(match [has[0][axis], has[1][axis]] {
            [true, true] => (extent, Sides::Both),
            [true, false] => (extent, Sides::Left),
            [false, true] => (extent, Sides::Right),
            [false, false] => return Err(unfit("rhs", format!("batch axis {axis} belongs to neither operand"))),
        });
    }
    let most =
        || unfit("b", format!("more than {} axes after merging, or extents that are too large", Batch::MOST_AXES));
    check_positive(KIND.name, &axes.iter().map(|axis| ("b", axis.0)).collect::<Vec<_>>())?;
    Batch::new(axes).ok_or_else(most)
}

fn unfit(field: &'static str, reason: String) -> WorkloadError {
    WorkloadError::Unfit { op: KIND.name, field, reason }
}

impl WorkloadOperator for Matmul {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        if !self.b.is_one() {
            write!(f, "{},", self.b.text())?;
        }
        write!(f, "m={},n={},k={}", self.m, self.n, self.k)?;
        [(self.ta, ",ta"), (self.tb, ",tb")].iter().filter(|flag| flag.0).try_for_each(|flag| f.write_str(flag.1))
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { b, m, n, k, .. }, op) = (*self, KIND.name);
        let batch = b.extents();
        let sizes: Vec<_> = batch.iter().map(|&extent| ("b", extent)).chain([("m", m), ("n", n), ("k", k)]).collect();
        check_positive(op, &sizes)?;

        let shape = |other, rest: [usize; 2]| b.without(other).map(|axis| batch[axis]).chain(rest).collect::<Vec<_>>();
        let (left, right) = (shape(Sides::Right, [m, k]), shape(Sides::Left, [k, n]));
        let result = [&batch[..], &[m, n]].concat();
        let tensors: [(_, &[_]); 3] = [("A", &left), ("B", &right), ("C", &result)];
        check_elements(op, &tensors, &[&result[..], &[k]].concat())
    }

    /// Axes `b, m, n | k`, or `b0, b1, .., m, n | k`. `B` is constant unless there is a batch.
    fn formula(&self) -> OperatorFormula {
        let (mm, batch) = (self, self.b.extents());
        let of_batch = self.b.names().iter().zip(&batch).map(|(&name, &extent)| (name, extent, false));
        let axes: Vec<_> = of_batch.chain([("m", mm.m, false), ("n", mm.n, false), ("k", mm.k, true)]).collect();
        let var = |axis: usize| Affine::var(VarId(axis as u32));
        let [m, n, k] = [0, 1, 2].map(|axis| var(batch.len() + axis));

        // The last two dimensions, each an extent and its index, in storage order.
        let operand = |(name, is_constant, transposed), other, [row, column]: [(usize, &Affine); 2]| {
            let [outer, inner] = if transposed { [column, row] } else { [row, column] };
            let dims = self.b.without(other).map(|axis| (batch[axis], var(axis)));
            let dims = dims.chain([(outer.0, outer.1.clone()), (inner.0, inner.1.clone())]);
            let (shape, index) = dims.unzip();
            (OperandTensor { name, shape, is_constant }, index)
        };
        let left = operand(("input", false, mm.ta), Sides::Right, [(mm.m, &m), (mm.k, &k)]);
        let right = operand(("weight", mm.b.is_one(), mm.tb), Sides::Left, [(mm.k, &k), (mm.n, &n)]);
        let index = (0..batch.len()).map(var).chain([m, n]).collect();
        OperatorFormula::product(&axes, [left, right], ([&batch[..], &[mm.m, mm.n]].concat(), index), batch.len() + 1)
    }
}
