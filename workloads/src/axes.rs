//! Axes of a contraction, classified by the operands that they index.
//!
//! | part | data | weight | result | matmul | conv2d |
//! |---|---|---|---|---|---|
//! | batch | yes | yes | yes | `b` | `g` |
//! | row | yes | | yes | `m` | `n`, `oh`, `ow` |
//! | column | | yes | yes | `n` | `o` of a group |
//! | step | yes | yes | | `k` | `c` of a group |
//! | tap | yes, in one dimension with a row | yes | | | `kh`, `kw` |
//!
//! Sketches use these parts instead of operators' names, since every sum of products of two
//! operands has them.

use autotune_ir::program::{Access, Expr};
use autotune_ir::spec::{AxisId, Equation, Reduction, Spec};
use autotune_ir::{Affine, VarId};

/// A dimension of the data that is read at `stride * row + dilation * tap - pad`, plus a shift by
/// [batch axes](Axes::shifts) if there are any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowAxis {
    /// Number of the dimension.
    pub dim: usize,
    /// Extent of the dimension.
    pub extent: usize,
    /// Axis of the result.
    pub row: AxisId,
    /// Reduction axis that slides within the window.
    pub tap: AxisId,
    /// Distance between the first elements that adjacent results read.
    pub stride: i64,
    /// Distance between the elements that adjacent taps read.
    pub dilation: i64,
    /// Distance of the first tap of the first result before the first element.
    pub pad: i64,
}

/// Maximum number of rows or columns that count as few: a register tile contains all of them.
pub const FEW: usize = 8;

/// Axes of a contraction `result[..] = Σ data[..] * weight[..]`, each list in the order of
/// [`Equation::axes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axes {
    /// Axes of the result, the data and the weights.
    pub batch: Vec<AxisId>,
    /// Axes of the result and the data.
    pub rows: Vec<AxisId>,
    /// Axes of the result and the weights.
    pub columns: Vec<AxisId>,
    /// Reduction axes that do not share a dimension with an axis of the result.
    pub steps: Vec<AxisId>,
    /// Dimensions of the data indexed by an axis of the result and a reduction axis.
    pub windows: Vec<WindowAxis>,
    /// Batch axes that shift a window: the phases of a transposed convolution.
    pub shifts: Vec<AxisId>,
}

impl Axes {
    /// Returns the axes of a spec's main equation; `None` if it is not a sum of products of two
    /// tensors, or an axis is none of the parts in the table.
    pub fn of(spec: &Spec) -> Option<Self> {
        Self::of_equation(spec, spec.main())
    }

    /// Returns the axes of any equation of a spec; `None` as for [`Axes::of`].
    pub fn of_equation(spec: &Spec, main: &Equation) -> Option<Self> {
        let [data, weight] = main.loads()[..] else { return None };
        let product = Expr::product(Expr::Load(data.clone()), Expr::Load(weight.clone()));
        if main.reduction != Reduction::Sum || main.value != product || !main.reduces() {
            return None;
        }

        let extents = &spec.tensor(data).shape;
        let mut axes = Self { windows: windows(main, &data.index, &weight.index, extents), ..Self::default() };
        for (id, axis) in main.axes.iter().enumerate() {
            let is_tap = axes.windows.iter().any(|window| window.tap == id);
            match (axis.reduce, uses(&data.index, id), uses(&weight.index, id)) {
                (false, true, true) => {
                    let slides = |window: &WindowAxis| data.index[window.dim].uses(VarId(id as u32));
                    axes.shifts.extend(axes.windows.iter().any(slides).then_some(id));
                    axes.batch.push(id);
                }
                (false, true, false) => axes.rows.push(id),
                (false, false, true) => axes.columns.push(id),
                (true, true, true) if is_tap => {}
                (true, true, true) => axes.steps.push(id),
                _ => return None,
            }
        }
        Some(axes)
    }

    /// Returns the reduction axes of the windows.
    pub fn taps(&self) -> impl Iterator<Item = AxisId> {
        self.windows.iter().map(|window| window.tap)
    }

    /// True if a window slides along `row`, an axis of the result.
    pub fn is_windowed(&self, row: AxisId) -> bool {
        self.windows.iter().any(|window| window.row == row)
    }

    /// Returns the batch axes that do not shift windows.
    pub fn groups(&self) -> Vec<AxisId> {
        self.batch.iter().copied().filter(|axis| !self.shifts.contains(axis)).collect()
    }

    /// True for a product of a matrix with a vector, or products of two vectors each: no element of
    /// the matrix is read twice.
    pub fn is_of_vector(&self, main: &Equation) -> bool {
        self.few(main).is_some() && count(main, &self.rows).min(count(main, &self.columns)) == 1
    }

    /// Returns the narrow operand of a matrix product: 0 if the data has at most [`FEW`] rows, 1 if
    /// the weights have at most [`FEW`] columns; the narrower one if both do. `None` otherwise, for
    /// windows, and for batches, unless each product of the batch is of two vectors.
    pub fn few(&self, main: &Equation) -> Option<usize> {
        let (rows, columns) = (count(main, &self.rows), count(main, &self.columns));
        let is_one = count(main, &self.batch) == 1 || rows.max(columns) == 1;
        (self.windows.is_empty() && is_one && rows.min(columns) <= FEW).then(|| usize::from(columns <= rows))
    }

    /// True if there is a single reduction axis, and both operands are contiguous along it.
    pub fn are_contiguous_along_step(&self, main: &Equation) -> bool {
        let [step] = self.steps[..] else { return false };
        let along = Affine::var(VarId(step as u32));
        self.windows.is_empty() && main.loads().iter().all(|access| access.index.last() == Some(&along))
    }

    /// True for windows with several groups of one column each, or without columns, as in a
    /// depthwise convolution: no two results at a position share operands.
    pub fn is_depthwise(&self, main: &Equation) -> bool {
        let shares_none = count(main, &self.groups()) > 1 || self.columns.is_empty();
        !self.windows.is_empty() && shares_none && count(main, &self.columns) == 1
    }
}

/// Returns the number of iterations of some axes.
pub fn count(main: &Equation, axes: &[AxisId]) -> usize {
    axes.iter().map(|&axis| main.axes[axis].extent).product()
}

/// True for a spec of two contractions, each followed by a map, of which the second reads the
/// result of the first map.
pub fn is_pair(spec: &Spec) -> bool {
    let [first, map, second, _] = &spec.equations[..] else { return false };
    let is_product = |number: usize| Axes::of_equation(spec, &spec.equations[number]).is_some();
    if !is_product(0) || !is_product(2) {
        return false;
    }

    let spatial = first.axes.iter().filter(|axis| !axis.reduce);
    let is_map = map.reduction == Reduction::Sum
        && spatial.eq(&map.axes)
        && first.axes.starts_with(&map.axes)
        && map.output.index == first.output.index
        && map.loads().into_iter().all(|access| *access == first.output || is_bias(spec, map.loads(), access));
    let [data, weight] = second.loads()[..] else { return false };
    let reads_operands = first.loads().into_iter().chain([weight]).all(|access| spec.tensor(access).is_given());
    is_map && reads_operands && data.buffer == map.output.buffer
}

/// True for a one-dimensional operand that is indexed like every other one-dimensional operand.
fn is_bias(spec: &Spec, loads: Vec<&Access>, access: &Access) -> bool {
    let alike = |other: &Access| other.index.len() != 1 || other.index == access.index;
    spec.tensor(access).is_given() && access.index.len() == 1 && loads.into_iter().all(alike)
}

fn uses(index: &[Affine], axis: AxisId) -> bool {
    index.iter().any(|index| index.uses(VarId(axis as u32)))
}

/// Returns the dimensions of the data that are indexed by a reduction axis and an axis of the
/// result that the weights do not have.
fn windows(main: &Equation, data: &[Affine], weight: &[Affine], extents: &[usize]) -> Vec<WindowAxis> {
    let is_tap = |axis: AxisId| main.axes[axis].reduce;
    let is_row = |axis: AxisId| !is_tap(axis) && !uses(weight, axis);
    let is_shift = |axis: AxisId| !is_tap(axis) && uses(weight, axis);
    let window = |(dim, index): (usize, &Affine)| {
        let mut terms = index.terms.iter().filter(|term| !is_shift(term.0.0 as usize));
        let (Some(&a), Some(&b), None) = (terms.next(), terms.next(), terms.next()) else { return None };
        let ((row, stride), (tap, dilation)) = if is_tap(a.0.0 as usize) { (b, a) } else { (a, b) };
        let (row, tap) = (row.0 as usize, tap.0 as usize);
        let pad = -index.constant;
        let window = WindowAxis { dim, extent: extents[dim], row, tap, stride, dilation, pad };
        (is_row(row) && is_tap(tap)).then_some(window)
    };
    data.iter().enumerate().filter_map(window).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn axes(text: &str) -> (Axes, Vec<&'static str>, bool) {
        let workload: Workload = text.parse().unwrap();
        let spec = workload.spec();
        let axes = Axes::of(spec).unwrap();
        let is_depthwise = axes.is_depthwise(spec.main());
        (axes, spec.main().axes.iter().map(|axis| axis.name).collect(), is_depthwise)
    }

    #[test]
    fn every_axis_plays_one_part() {
        let (axes, names, is_depthwise) = axes("conv2d:n=2,c=6,h=9,w=8,o=4,kh=3,kw=2,sh=2,sw=1,p=1,dh=1,dw=2,g=2,bias");
        let of = |ids: &[AxisId]| ids.iter().map(|&id| names[id]).collect::<Vec<_>>();
        assert_eq!(of(&axes.batch), ["g"]);
        assert_eq!(of(&axes.rows), ["n", "oh", "ow"]);
        assert_eq!(of(&axes.columns), ["o"]);
        assert_eq!(of(&axes.steps), ["c"]);
        assert_eq!(of(&axes.taps().collect::<Vec<_>>()), ["kh", "kw"]);
        assert_eq!(axes.windows[1], WindowAxis { dim: 3, extent: 8, row: 4, tap: 7, stride: 1, dilation: 2, pad: 1 });
        assert!(axes.is_windowed(3) && !axes.is_windowed(0) && !is_depthwise);
    }

    #[test]
    fn products_have_no_windows() {
        let (axes, names, _) = axes("matmul:b=3,m=4,n=5,k=6,bias,act=relu");
        let of = |ids: &[AxisId]| ids.iter().map(|&id| names[id]).collect::<Vec<_>>();
        let parts = [&axes.batch, &axes.rows, &axes.columns, &axes.steps].map(|ids| of(ids).concat());
        assert_eq!((parts.each_ref().map(String::as_str), axes.windows.len()), (["b", "m", "n", "k"], 0));
    }

    #[test]
    fn products_with_vectors_have_one_row_or_one_column() {
        let is_of_vector = |text: &str| {
            let workload: Workload = text.parse().unwrap();
            axes(text).0.is_of_vector(workload.spec().main())
        };
        assert!(
            ["m=1,n=5,k=6", "m=5,n=1,k=6", "m=1,n=1,k=6", "b=3,m=1,n=1,k=6"]
                .iter()
                .all(|sizes| is_of_vector(&format!("matmul:{sizes}")))
        );
        assert!(!is_of_vector("matmul:m=2,n=2,k=6") && !is_of_vector("matmul:b=2,m=1,n=5,k=6"));
        assert!(!is_of_vector("conv2d:c=1,h=6,w=6,o=1,k=3"));
    }

    #[test]
    fn few_rows_or_columns_may_go_along_the_step() {
        let few = |text: &str| {
            let workload: Workload = text.parse().unwrap();
            let (axes, main) = (axes(text).0, workload.spec().main());
            (axes.few(main), axes.are_contiguous_along_step(main))
        };
        assert_eq!(few("matmul:m=9,n=8,k=6,tb"), (Some(1), true));
        assert_eq!(few("matmul:m=2,n=9,k=6"), (Some(0), false));
        assert_eq!(few("matmul:m=9,n=9,k=6,tb"), (None, true));
        assert_eq!(few("matmul:b=2,m=2,n=9,k=6"), (None, false));
        assert_eq!(few("conv2d:c=8,h=6,w=6,o=4,k=1"), (None, false));
    }

    #[test]
    fn depthwise_convolutions_have_no_columns() {
        assert!(axes("conv2d:c=8,h=6,w=6,o=8,k=3,g=8").2);
        assert!(axes("conv2d:c=8,h=6,w=6,o=4,k=1,g=4").2);
        assert!(!axes("conv2d:c=8,h=6,w=6,o=8,k=3,g=4").2);
        assert!(!axes("conv2d:c=1,h=6,w=6,o=1,k=3").2);
        assert!(!axes("matmul:b=3,m=4,n=1,k=6").2);
    }
}
