//! Roles of a contraction's axes in a tiling, and the location of its elements in memory.
//!
//! The tiled axes are those of the spec, or, for a convolution, with the pixels of all outputs
//! fused into one axis `p`:
//!
//! ```text
//! for n, o, oh, ow { for c, kh, kw {
//!   output[n, o, oh, ow] += input[n, c, oh + kh, ow + kw] * weight[o, c, kh, kw] } }
//!   →  for o, p { for c, kh, kw { output[o, p] += columns[c, kh, kw, p] * weight[o, c, kh, kw] } }
//! ```
//!
//! A tile of pixels continues from row to row and from image to image, so that it fits outputs of
//! any size. The matrix `columns` is never stored: copies to shared memory split `p` into its
//! digits and read the input (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning",
//! 2014).

use std::mem::take;
use std::sync::Arc;

use crate::contraction::{AxisId, Contraction, Operand};
use crate::lower::at;
use autotune_ir::Spec;
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{AxisInfo, AxisOf, Layout};
use autotune_workloads::axes::Axes;

/// Name of the fused axis of pixels.
pub const PIXELS: &str = "p";

/// Minimum stride of an axis in the input for which a block would copy far more elements than it
/// reads.
const SPARSE: i64 = 5;

/// Fused axes of the result that only the data uses. For a convolution these are the images, rows
/// and columns of the output.
#[derive(Clone, Debug)]
pub struct Pixels {
    /// The fused axis, in the tiled axes.
    pub axis: AxisId,
    /// Names and extents of the axes that are fused, outermost first.
    pub digits: Vec<(&'static str, usize)>,
    /// True if adjacent pixels of a row are contiguous in memory, false if channels are.
    pub contiguous: bool,
    /// Number of adjacent pixels that are contiguous in the input: 1, 2 or 4.
    pub vector: usize,
}

/// A contraction with a role for each of its axes.
#[derive(Clone, Debug)]
pub struct AxisRoles {
    /// The contraction in the spec's axes, its operands in their memory layouts.
    pub own: Contraction,
    /// Tiled axes of the contraction, with pixels fused.
    pub axes: Vec<AxisInfo>,
    /// Data and weights in terms of `axes`. With pixels, the data is the matrix `columns`.
    pub operands: [Operand; 2],
    /// True if the weights are read backwards, as in a transposed convolution. They are then packed
    /// with one dimension per axis.
    pub unfolded: bool,
    /// The fused axis of pixels, if there is one.
    pub pixels: Option<Pixels>,
    /// Spatial axes that are tiled, in the order of thread numbers.
    pub spatial: Vec<AxisId>,
    /// Spatial axes that are not tiled: a block has one element of each.
    pub batch: Vec<AxisId>,
    /// Reduction axes; the one with the most elements is the last.
    pub reduce: Vec<AxisId>,
    /// With pixels, the tiled axis for each axis of the spec, or the number of tiled axes plus the
    /// number of its digit in a pixel.
    tiled_axes: Vec<AxisId>,
    /// True if data and output are stored with their second dimension last (`NHWC`).
    channels_last: bool,
}

fn var(axis: AxisId) -> Affine {
    Affine::var(VarId(axis as u32))
}

/// True if an operand is read forwards along all axes, so that a chunk in shared memory begins at
/// its first element.
pub(crate) fn is_forward(index: &[Affine]) -> bool {
    index.iter().flat_map(|index| &index.terms).all(|term| term.1 > 0)
}

/// Returns the axes of a contraction that reads its data forwards. Weights may be read backwards,
/// since they can be packed.
fn forward_axes(spec: &Spec) -> Option<Axes> {
    let [data, _] = spec.main().loads()[..] else { return None };
    is_forward(&data.index).then(|| Axes::of(spec)).flatten()
}

/// Returns the weights with forward indices, and whether they must be packed for that. Weights that
/// are read backwards get one dimension per axis.
fn weights(own: &Contraction) -> (Operand, bool) {
    if is_forward(&own.weight.index) {
        return (own.weight.clone(), false);
    }
    let used: Vec<AxisId> = (0..own.axes.len()).filter(|&axis| own.weight.uses(axis)).collect();
    let shape = used.iter().map(|&axis| own.axes[axis].extent).collect();
    (Operand { shape, index: used.into_iter().map(var).collect() }, true)
}

impl AxisRoles {
    /// Creates the roles from lists of spatial, batch and reduction axes.
    pub(crate) fn new(own: Contraction, [spatial, batch, reduce]: [Vec<AxisId>; 3]) -> Self {
        let (weight, unfolded) = weights(&own);
        let (axes, operands) = (own.axes.clone(), [own.data.clone(), weight]);
        let (pixels, tiled_axes) = (None, Vec::new());
        let roles =
            Self { own, axes, operands, unfolded, pixels, spatial, batch, reduce, tiled_axes, channels_last: false };
        roles.of_used_axes()
    }

    /// Removes spatial and batch axes that no operand uses: those of extent 1, which indices have
    /// as the constant 0.
    fn of_used_axes(mut self) -> Self {
        let is_used = |axis: &AxisId| self.operands.iter().any(|operand| operand.uses(*axis));
        self.spatial.retain(is_used);
        self.batch.retain(is_used);
        self
    }

    /// Roles of the spec's own axes, with the axes along which the output is contiguous last.
    /// Returns `None` if the spec is not a contraction.
    pub(crate) fn of_axes(spec: &Arc<Spec>) -> Option<Self> {
        Some(Self::of_parts(forward_axes(spec)?, Contraction::with_unit_axes(spec)))
    }

    /// Roles of the own axes of a contraction that reads its data forwards.
    pub(crate) fn of_parts(parts: Axes, own: Contraction) -> Self {
        let is_depthwise = parts.is_depthwise(own.equation());
        let own = own.without_unit_axes();

        // A depthwise convolution has one column per group, so its groups are tiled instead.
        let (batch, beside) = if is_depthwise { (Vec::new(), parts.batch) } else { (parts.batch, Vec::new()) };
        let mut spatial = [parts.rows, parts.columns, beside].concat();
        spatial.sort_unstable();
        let taps = parts.windows.iter().map(|window| window.tap);
        Self::new(own, [spatial, batch, taps.chain(parts.steps).collect()])
    }

    /// Roles with fused pixels. Returns `None` for contractions without windows. Depthwise
    /// convolutions share no products among pixels, and outputs with a single spatial axis need no
    /// fusing. They have these roles only if the input is sparse, because copies of pixels skip the
    /// elements that are not read.
    pub(crate) fn of_pixels(spec: &Arc<Spec>) -> Option<Self> {
        let (parts, own) = (forward_axes(spec)?, Contraction::with_unit_axes(spec).without_unit_axes());
        let is_depthwise = parts.is_depthwise(spec.main());
        let is_tiled = |axis: AxisId| !own.axes[axis].reduce && (is_depthwise || !parts.batch.contains(&axis));
        let mut steps = own.data.index.iter().flat_map(|index| &index.terms);
        let is_sparse = steps.any(|&(VarId(axis), step)| step >= SPARSE && is_tiled(axis as usize));
        let several = parts.rows.iter().filter(|&&row| own.axes[row].extent > 1).count() > 1;
        let is_offered = !parts.windows.is_empty() && (is_sparse || several && !is_depthwise);
        is_offered.then(|| Self::fused(own, &parts, true))
    }

    /// Roles of a batch of matrix products,
    /// `result[row, column] += data[row, ..] * weight[.., column]`. The data of a convolution has
    /// the channels last, so that the elements of a row at a kernel position are contiguous. The
    /// data of a matrix product stays in place.
    ///
    /// | | batch | rows | columns | reduction |
    /// |---|---|---|---|---|
    /// | matmul | `b` | `m` | `n` | `k` |
    /// | conv2d | `g` | `p`: pixels of all images | `o` of a group | `kh`, `kw`, `c` of a group |
    /// | conv_transpose2d | `g`, phases | `p`: pixels of a phase | `o` of a group | as conv2d |
    pub(crate) fn of_matrix(spec: &Arc<Spec>) -> Option<Self> {
        let (mut parts, mut own) = (forward_axes(spec)?, Contraction::with_unit_axes(spec));
        let (column, &[.., step]) = (parts.columns.pop()?, &parts.steps[..]) else { return None };
        // Each value of the other column axes is a separate product. So is each value of the other
        // row axes, unless a window slides along a row.
        parts.batch.append(&mut parts.columns);
        parts.columns.push(column);
        if parts.windows.is_empty() {
            let row = parts.rows.pop()?;
            parts.batch.append(&mut parts.rows);
            parts.rows.push(row);
        }
        let uses = |index: Option<&Affine>, axis| index.is_some_and(|index| index.uses(VarId(axis as u32)));
        let is_product = parts.windows.is_empty();
        let channels_last = !is_product && !uses(own.data.index.last(), step);
        if channels_last {
            // The channels-last layout is that of images along any number of axes, `[n, c, ..]`.
            let has_channels = |operand: &Operand, axis| operand.shape.len() > 2 && uses(operand.index.get(1), axis);
            let are_images = has_channels(&own.data, step) && has_channels(&own.output, column);
            [&mut own.data, &mut own.output].into_iter().filter(|_| are_images).for_each(second_last);
        }
        if !is_product && !uses(own.data.index.last(), step) {
            return None;
        }

        let mut roles = match (&parts.rows[..], &parts.windows[..]) {
            ([], _) => return None,
            (&[row], []) => Self::new(own, [vec![column, row], parts.batch, parts.steps]),
            _ => Self::fused(own, &parts, false),
        };
        // Teams expect the row axis before the column axis.
        roles.spatial.reverse();
        Some(Self { channels_last, ..roles })
    }

    /// Fuses the rows into one axis of pixels, with the matrix `columns` as data. Its last
    /// dimension is the pixels if `contiguous`, else the steps.
    fn fused(own: Contraction, parts: &Axes, contiguous: bool) -> Self {
        // The order is axes of the result, pixels, reduction axes. The fused rows come last and are
        // not tiled.
        let mut axes = own.axes.clone();
        let digits: Vec<_> = parts.rows.iter().map(|&row| (axes[row].name, axes[row].extent)).collect();
        let extent = digits.iter().map(|digit| digit.1).product();
        axes.push(AxisInfo { name: PIXELS, extent, reduce: false, of: AxisOf::Fused(parts.rows[..].into()) });
        let mut order: Vec<AxisId> = (0..axes.len()).collect();
        order.sort_by_key(|axis| (parts.rows.contains(axis), axes[*axis].reduce));

        let mut tiled_axes = vec![0; axes.len()];
        order.iter().enumerate().for_each(|(place, &axis)| tiled_axes[axis] = place);
        let axes: Vec<AxisInfo> = order[..order.len() - digits.len()].iter().map(|&id| axes[id].clone()).collect();

        let pixel = tiled_axes[own.axes.len()];
        let seen = |ids: &Vec<AxisId>| ids.iter().map(|&id| tiled_axes[id]).collect::<Vec<_>>();
        let [batch, columns, steps] = [&parts.batch, &parts.columns, &parts.steps].map(seen);
        let taps: Vec<AxisId> = parts.taps().map(|id| tiled_axes[id]).collect();
        let dims = match contiguous {
            true => [&batch[..], &steps, &taps, &[pixel]].concat(),
            false => [&batch[..], &taps, &[pixel], &steps].concat(),
        };
        // The dimensions of a matrix product keep their axes of extent 1.
        let place = |&axis: &AxisId| if contiguous && axes[axis].extent == 1 { Affine::default() } else { var(axis) };
        let data = Operand {
            shape: dims.iter().map(|&axis| axes[axis].extent).collect(),
            index: dims.iter().map(place).collect(),
        };

        let vars: Vec<Affine> = tiled_axes.iter().map(|&axis| var(axis)).collect();
        let (Operand { shape, index }, unfolded) = weights(&own);
        let weight = Operand { shape, index: index.iter().map(|index| at(index, &vars)).collect() };

        // Pixels of a row are adjacent in memory if the innermost index is the row axis, with
        // stride 1.
        let in_rows = contiguous && own.data.index.last() == parts.rows.last().map(|&row| var(row)).as_ref();
        let width = digits.last().map_or(1, |digit| digit.1);
        let vector = [4, 2].into_iter().find(|&v| in_rows && width.is_multiple_of(v)).unwrap_or(1);
        let pixels = Some(Pixels { axis: pixel, digits, contiguous, vector });
        let (spatial, reduce) = ([&columns[..], &[pixel]].concat(), [taps, steps].concat());
        let operands = [data, weight];
        let roles =
            Self { own, axes, operands, unfolded, pixels, spatial, batch, reduce, tiled_axes, channels_last: false };
        roles.of_used_axes()
    }

    /// Returns shape and layout in memory of input and output.
    pub(crate) fn in_memory(&self) -> [(&[usize], Layout); 2] {
        [&self.own.data.shape, &self.own.output.shape].map(|shape| match shape.last() {
            Some(&channels) if self.channels_last => (&shape[..], Layout::ChannelBlocked(channels)),
            _ => (&shape[..], Layout::Plain),
        })
    }

    pub(crate) fn name(&self, axis: AxisId) -> &'static str {
        self.axes[axis].name
    }

    pub(crate) fn extent(&self, axis: AxisId) -> usize {
        self.axes[axis].extent
    }

    /// Returns the values of the spec's axes, given the values of the tiled axes and the digits of
    /// a pixel.
    pub(crate) fn own_values(&self, values: &[Affine], pixel: &[Affine]) -> Vec<Affine> {
        let value = |&axis: &AxisId| values.get(axis).unwrap_or_else(|| &pixel[axis - values.len()]).clone();
        self.tiled_axes[..self.own.axes.len()].iter().map(value).collect()
    }

    /// Returns the index of a weight in memory, given its index in the operand that is multiplied,
    /// and the bounds `0..extent` that the index must be in.
    pub(crate) fn weight_in_memory(&self, place: Vec<Affine>) -> (Vec<Affine>, Vec<(Affine, usize)>) {
        let Operand { shape, index } = &self.operands[1];
        if !self.unfolded {
            let bounds = place.iter().cloned().zip(shape.iter().copied()).collect();
            return (place, bounds);
        }

        let mut values = vec![Affine::default(); self.axes.len()];
        for (axis, place) in index.iter().flat_map(|index| &index.terms).map(|term| term.0.0 as usize).zip(place) {
            values[axis] = place;
        }
        if let Some(pixels) = &self.pixels {
            values = self.own_values(&values, &vec![Affine::default(); pixels.digits.len()]);
        }
        let element: Vec<Affine> = self.own.weight.index.iter().map(|index| at(index, &values)).collect();
        let bounds = element.iter().cloned().zip(self.own.weight.shape.iter().copied()).collect();
        (element, bounds)
    }

    /// Returns the index of an operand's element in memory, and the bounds `0..extent` that it must
    /// be in. The element is at `values` of the axes, plus `offsets` along each dimension. The axes
    /// are the tiled ones, or with `by_own` the spec's. There are no bounds for `whole`, a tiled
    /// axis that no chunk exceeds.
    pub(crate) fn element(
        &self,
        (operand, by_own): (&Operand, bool),
        values: &[Affine],
        offsets: &[Affine],
        whole: Option<AxisId>,
    ) -> (Vec<Affine>, Vec<(Affine, usize)>) {
        let axes = if by_own { &self.own.axes } else { &self.axes };
        let seen = |axis: AxisId| if by_own { self.tiled_axes[axis] } else { axis };
        let behind = |value: Affine, dim: usize| match offsets.get(dim) {
            Some(offset) => value + offset,
            None => value,
        };
        let (mut elements, mut bounds) = (Vec::new(), Vec::new());
        for (dim, index) in operand.index.iter().enumerate() {
            elements.push(behind(at(index, values), dim));

            // If a dimension counts a single axis apart from the batch, its bound is that axis's
            // extent. Any other dimension is bounded by the tensor.
            let mut counted = index.terms.iter().filter(|term| !self.batch.contains(&seen(term.0.0 as usize)));
            let only = match (counted.next(), counted.next()) {
                (Some(&(VarId(axis), 1)), None) if index.constant == 0 => Some(axis as usize),
                _ => None,
            };
            match only {
                Some(axis) if whole == Some(seen(axis)) => {}
                Some(axis) if index.terms.len() > 1 && is_digit(index, axis, axes[axis].extent) => {
                    bounds.push((behind(values[axis].clone(), dim), axes[axis].extent));
                }
                _ => {
                    // Kernel positions after the last may still be inside the tensor, so they need
                    // bounds of their own.
                    let reduced = index.terms.iter().map(|term| term.0.0 as usize).filter(|&axis| axes[axis].reduce);
                    let beside = reduced.filter(|_| by_own && only.is_none());
                    bounds.extend(beside.map(|axis| (values[axis].clone(), axes[axis].extent)));
                    bounds.push((elements[dim].clone(), operand.shape[dim]));
                }
            }
        }
        (elements, bounds)
    }
}

/// True if an axis counts between the strides of all other axes in an index, as a channel within
/// its group does.
fn is_digit(index: &Affine, axis: AxisId, extent: usize) -> bool {
    index.terms.iter().all(|&(VarId(other), step)| other as usize == axis || step >= extent as i64)
}

/// Converts `[n, c, ..]` to `[n, 1, .., c]`.
fn second_last(operand: &mut Operand) {
    let (shape, index) = (std::mem::replace(&mut operand.shape[1], 1), take(&mut operand.index[1]));
    operand.shape.push(shape);
    operand.index.push(index);
}
