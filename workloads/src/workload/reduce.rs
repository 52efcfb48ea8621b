//! Reductions: elements along some dimensions are combined to one value.

use std::fmt;

use autotune_ir::program::Expr;
use autotune_ir::spec::{AxisId, Reduction};
use autotune_ir::{Affine, VarId};

use super::fields::{axes, joined};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind =
    OperatorKind { name: "reduce", fields: "m,n,k,shape,axes,op", example: "reduce:m=1024,n=4096,op=sum", parse };

const OPS: [(&str, ReduceOp); 5] = [
    ("sum", ReduceOp::Sum),
    ("max", ReduceOp::Max),
    ("min", ReduceOp::Min),
    ("prod", ReduceOp::Prod),
    ("mean", ReduceOp::Mean),
];
/// Names of dimensions, alternately kept and reduced. The first three are fields, too.
const NAMES: [&str; 6] = ["m", "n", "k", "l", "i", "j"];

/// Operator that combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReduceOp {
    /// Sum of the elements.
    Sum,
    /// Maximum of the elements, or NaN if one is NaN.
    Max,
    /// Minimum of the elements, or NaN if one is NaN.
    Min,
    /// Product of the elements.
    Prod,
    /// Mean of the elements.
    Mean,
}

/// A reduction of a tensor along some of its dimensions. The result has the other dimensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReduceWorkload {
    /// Extents of the dimensions, outermost first: alternately kept and reduced.
    extents: Vec<usize>,
    op: ReduceOp,
}

impl ReduceWorkload {
    /// Maximum number of dimensions, after adjacent ones that are all kept or all reduced are
    /// merged.
    pub const MOST_AXES: usize = NAMES.len();

    /// Creates a reduction along some axes of a tensor.
    ///
    /// Dimensions of one element are dropped. Adjacent dimensions that are all kept or all reduced
    /// are merged.
    ///
    /// ```
    /// use autotune_workloads::{ReduceWorkload, ReduceOp, Workload};
    /// let pixels = Workload::new(ReduceWorkload::new(&[8, 64, 28, 28], &[2, 3], ReduceOp::Mean)?)?;
    /// assert_eq!(pixels.to_string(), "reduce:m=512,n=784,op=mean");
    /// let channels = Workload::new(ReduceWorkload::new(&[8, 64, 28, 28], &[0, 2, 3], ReduceOp::Sum)?)?;
    /// assert_eq!(channels.to_string(), "reduce:shape=8x64x784,axes=02,op=sum");
    /// # Ok::<(), autotune_workloads::WorkloadError>(())
    /// ```
    ///
    /// # Errors
    /// Fails if an axis does not exist or is given twice, if too many dimensions are left after
    /// merging, or if extents overflow.
    pub fn new(shape: &[usize], axes: &[AxisId], op: ReduceOp) -> Result<Self, WorkloadError> {
        let mut said = vec![false; shape.len()];
        for &axis in axes {
            match said.get_mut(axis) {
                Some(said) if !*said => *said = true,
                Some(_) => return Err(unfit("axes", format!("names axis {axis} twice"))),
                None => {
                    return Err(unfit(
                        "axes",
                        format!("axis {axis} does not exist: the shape has {} axes, numbered from 0", shape.len()),
                    ));
                }
            }
        }

        // Kept dimensions have even positions.
        let mut extents = vec![1usize];
        for (&extent, is_combined) in shape.iter().zip(said).filter(|(extent, _)| **extent != 1) {
            if is_combined == extents.len().is_multiple_of(2) {
                let last = extents.last_mut().map(|last| (last.checked_mul(extent), last));
                match last {
                    Some((Some(product), last)) => *last = product,
                    _ => return Err(WorkloadError::Overflow { op: KIND.name, what: "input" }),
                }
            } else {
                extents.push(extent);
            }
        }
        if extents.len() == 1 {
            extents.push(1);
        }
        match extents.len() > Self::MOST_AXES {
            true => Err(unfit(
                "shape",
                format!("{} axes after merging, at most {} are supported", extents.len(), NAMES.len()),
            )),
            false => Ok(Self { extents, op }),
        }
    }

    /// Creates a reduction along the rows of `m` by `n` elements.
    pub fn rows(m: usize, n: usize, op: ReduceOp) -> Self {
        Self { extents: vec![m, n], op }
    }

    /// Creates a reduction along the middle dimension of `[m, n, k]`.
    pub fn columns([m, n, k]: [usize; 3], op: ReduceOp) -> Self {
        if k == 1 { Self::rows(m, n, op) } else { Self { extents: vec![m, n, k], op } }
    }

    /// Returns the extents of the dimensions, outermost first: alternately kept and reduced.
    pub fn extents(&self) -> &[usize] {
        &self.extents
    }

    /// Returns the operator that combines elements.
    pub fn op(&self) -> ReduceOp {
        self.op
    }

    /// Returns the positions of the kept dimensions, or of the reduced ones.
    fn places(&self, combined: bool) -> impl Iterator<Item = usize> {
        let all = (usize::from(combined)..self.extents.len()).step_by(2);
        // A first dimension of one element is only a placeholder, unless it is the only kept one.
        let is_there = self.extents[0] != 1 || self.extents.len() <= 3;
        all.filter(move |&place| place > 0 || is_there)
    }
}

fn unfit(field: &'static str, reason: impl Into<String>) -> WorkloadError {
    WorkloadError::Unfit { op: KIND.name, field, reason: reason.into() }
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let op = fields.word("op", &OPS, "a reduction (sum, max, min, prod or mean)")?.unwrap_or(ReduceOp::Sum);
    let expected = "a list of axis numbers, such as 02";
    let axes = fields.read("axes", |text| axes(text).ok_or(expected))?;

    let missing = |field| WorkloadError::Missing { op: KIND.name, field, example: "reduce:shape=8x64x784,axes=02" };
    match (fields.extents("shape")?, axes) {
        (None, None) => {
            let k = fields.number("k")?.unwrap_or(1);
            Ok(Box::new(ReduceWorkload::columns([fields.required("m")?, fields.required("n")?, k], op)))
        }
        (Some(shape), Some(axes)) => {
            fields.check_without(&NAMES[..3])?;
            check_positive(KIND.name, &shape.iter().map(|&extent| ("shape", extent)).collect::<Vec<_>>())?;
            Ok(Box::new(ReduceWorkload::new(&shape, &axes, op)?))
        }
        (None, _) => Err(missing("shape")),
        _ => Err(missing("axes")),
    }
}

impl WorkloadOperator for ReduceWorkload {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let word = OPS.iter().find(|(_, op)| *op == self.op).map_or("", |(word, _)| word);
        match self.extents[..] {
            [m, n] => write!(f, "m={m},n={n}")?,
            [m, n, k] => write!(f, "m={m},n={n},k={k}")?,
            _ => {
                let first = usize::from(self.extents[0] == 1);
                let axes: String = self.places(true).map(|place| (place - first).to_string()).collect();
                write!(f, "shape={},axes={axes}", joined(&self.extents[first..]))?;
            }
        }
        write!(f, ",op={word}")
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let extents = &self.extents;
        let field = |place: usize| if extents.len() > 3 { "shape" } else { NAMES[place] };
        let fields: Vec<_> = extents.iter().enumerate().map(|(place, &extent)| (field(place), extent)).collect();
        check_positive(KIND.name, &fields)?;
        check_elements(KIND.name, &[("input", extents)], extents)
    }

    /// Axes `m | n`, `m, k | n`, `m, k | n, l`, and so on. Reduced axes come last.
    fn formula(&self) -> OperatorFormula {
        let Self { extents, op } = self;
        let kept: Vec<usize> = self.places(false).collect();
        let order: Vec<usize> = kept.iter().copied().chain(self.places(true)).collect();
        let combined: usize = self.places(true).map(|place| extents[place]).product();
        let reduction = match op {
            ReduceOp::Sum | ReduceOp::Mean => Reduction::Sum,
            ReduceOp::Max => Reduction::Max,
            ReduceOp::Min => Reduction::Min,
            ReduceOp::Prod => Reduction::Product,
        };
        let share = (*op == ReduceOp::Mean).then(|| Expr::Const(1.0 / combined as f32));

        let axes: Vec<_> = order.iter().map(|&place| (NAMES[place], extents[place], place % 2 == 1)).collect();
        let var = |axis: usize| Affine::var(VarId(axis as u32));
        let mut dims: Vec<(usize, Affine)> =
            order.iter().enumerate().map(|(axis, &place)| (place, var(axis))).collect();
        dims.sort_by_key(|dim| dim.0);
        let (shape, read) = dims.into_iter().map(|(place, index)| (extents[place], index)).unzip();

        let input = OperandTensor { name: "input", shape, is_constant: false };
        let result = kept.iter().enumerate().map(|(axis, &place)| (extents[place], var(axis))).unzip();
        OperatorFormula { share, ..OperatorFormula::reduced(&axes, reduction, (input, read), result, 0) }
    }
}
