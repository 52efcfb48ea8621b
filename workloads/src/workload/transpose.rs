//! Transposes: tensors with their axes in another order.

use std::fmt;

use autotune_ir::spec::{AxisId, Reduction};
use autotune_ir::{Affine, VarId};

use super::fields::{axes, joined};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind =
    OperatorKind { name: "transpose", fields: "b,m,n,shape,perm", example: "transpose:m=512,n=512", parse };

/// Names of the axes, unless the tensor is a batch of matrices.
const NAMES: [&str; 5] = ["d0", "d1", "d2", "d3", "d4"];
/// Permutation of a batch of transposed matrices, which have their own fields.
const MATRICES: [AxisId; 3] = [0, 2, 1];

/// A tensor with its axes in another order, such as a batch of transposed matrices
/// `output[b,n,m] = input[b,m,n]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransposeWorkload {
    shape: Vec<usize>,
    perm: Vec<AxisId>,
}

impl TransposeWorkload {
    /// Creates a transpose: axis `i` of the output is axis `perm[i]` of the input, which has shape
    /// `shape`.
    ///
    /// Both are reduced to the fewest axes: those of one element are dropped, and those that stay
    /// adjacent are merged. A single matrix is a batch of one.
    ///
    /// ```
    /// use autotune_workloads::{TransposeWorkload, Workload};
    /// let heads = Workload::new(TransposeWorkload::new(&[1, 128, 12, 64], &[0, 2, 1, 3])?)?;
    /// assert_eq!(heads.to_string(), "transpose:shape=128x12x64,perm=102");
    /// let images = Workload::new(TransposeWorkload::new(&[2, 64, 28, 28], &[0, 2, 3, 1])?)?;
    /// assert_eq!(images.to_string(), "transpose:b=2,m=64,n=784");
    /// # Ok::<(), autotune_workloads::WorkloadError>(())
    /// ```
    pub fn new(shape: &[usize], perm: &[AxisId]) -> Result<Self, WorkloadError> {
        let mut sorted = perm.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..shape.len()) || shape.is_empty() {
            let reason = format!("is not a permutation of the {} axes", shape.len());
            return Err(WorkloadError::Unfit { op: KIND.name, field: "perm", reason });
        }

        // Runs of input axes that stay adjacent in the output, in the output's order.
        let mut runs: Vec<Vec<AxisId>> = Vec::new();
        for &axis in perm.iter().filter(|&&axis| shape[axis] != 1) {
            let follows = |last: AxisId| (last + 1..axis).all(|between| shape[between] == 1) && last < axis;
            match runs.last_mut() {
                Some(run) if run.last().is_some_and(|&last| follows(last)) => run.push(axis),
                _ => runs.push(vec![axis]),
            }
        }
        let place = |run: &Vec<AxisId>| runs.iter().filter(|other| other[0] < run[0]).count();
        let perm: Vec<AxisId> = runs.iter().map(place).collect();
        let mut merged = vec![1; runs.len()];
        for (run, &at) in runs.iter().zip(&perm) {
            let extent = run.iter().try_fold(1usize, |extent, &axis| extent.checked_mul(shape[axis]));
            merged[at] = extent.ok_or(WorkloadError::Overflow { op: KIND.name, what: "input" })?;
        }
        Ok(match (&merged[..], &perm[..]) {
            ([], _) => Self { shape: vec![1], perm: vec![0] },
            (&[m, n], [1, 0]) => Self::matrices(1, m, n),
            _ => Self { shape: merged, perm },
        })
    }

    /// Creates a transpose of `b` matrices with `m` rows and `n` columns.
    pub fn matrices(b: usize, m: usize, n: usize) -> Self {
        Self { shape: vec![b, m, n], perm: MATRICES.to_vec() }
    }

    /// Returns the shape of the input, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the input axis for each output axis.
    pub fn perm(&self) -> &[AxisId] {
        &self.perm
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let shape = fields.extents("shape")?;
    let expected = "a permutation of axis numbers, such as 102";
    let perm = fields.read("perm", |text| axes(text).ok_or(expected))?;

    let (Some(shape), Some(perm)) = (&shape, &perm) else {
        let missing =
            |field| WorkloadError::Missing { op: KIND.name, field, example: "transpose:shape=128x12x64,perm=102" };
        return match (shape, perm) {
            (None, None) => {
                let b = fields.number("b")?.unwrap_or(1);
                Ok(Box::new(TransposeWorkload::matrices(b, fields.required("m")?, fields.required("n")?)))
            }
            (None, _) => Err(missing("shape")),
            _ => Err(missing("perm")),
        };
    };
    fields.check_without(&["b", "m", "n"])?;
    check_positive(KIND.name, &shape.iter().map(|&extent| ("shape", extent)).collect::<Vec<_>>())?;
    Ok(Box::new(TransposeWorkload::new(shape, perm)?))
}

impl WorkloadOperator for TransposeWorkload {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn moves_bytes(&self) -> bool {
        true
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let digits: String = self.perm.iter().map(usize::to_string).collect();
        match self.shape[..] {
            [1, m, n] if self.perm == MATRICES => write!(f, "m={m},n={n}"),
            [b, m, n] if self.perm == MATRICES => write!(f, "b={b},m={m},n={n}"),
            _ => write!(f, "shape={},perm={digits}", joined(&self.shape)),
        }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (op, shape) = (KIND.name, &self.shape[..]);
        let named: Vec<(&str, usize)> = match (shape, self.perm == MATRICES) {
            (&[b, m, n], true) => vec![("b", b), ("m", m), ("n", n)],
            _ => shape.iter().map(|&extent| ("shape", extent)).collect(),
        };
        check_positive(op, &named)?;
        if shape.len() > NAMES.len() {
            let reason = format!("{} axes after merging, at most {} are supported", shape.len(), NAMES.len());
            return Err(WorkloadError::Unfit { op, field: "perm", reason });
        }
        check_elements(op, &[("input", shape)], shape)
    }

    /// The axes of the output: `b, n, m` for matrices.
    fn formula(&self) -> OperatorFormula {
        let names = if self.perm == MATRICES { ["b", "m", "n", "", ""] } else { NAMES };
        let axes: Vec<_> = self.perm.iter().map(|&axis| (names[axis], self.shape[axis], false)).collect();
        let index: Vec<Affine> = (0..axes.len()).map(|axis| Affine::var(VarId(axis as u32))).collect();
        let mut read = index.clone();
        for (at, &axis) in index.iter().zip(&self.perm) {
            read[axis] = at.clone();
        }

        let input = OperandTensor { name: "input", shape: self.shape.clone(), is_constant: false };
        let shape: Vec<usize> = self.perm.iter().map(|&axis| self.shape[axis]).collect();
        let channel = shape.len() - 1;
        OperatorFormula::reduced(&axes, Reduction::Sum, (input, read), (shape, index), channel)
    }
}
