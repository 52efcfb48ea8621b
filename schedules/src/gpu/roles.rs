//! A workload's contraction as it is tiled: which axes play which part, and where an element of an operand is.
//!
//! The axes are those of the workload, or, of a convolution, with the pixels of all outputs as one axis `p`:
//!
//! ```text
//! for n, o, oh, ow { for c, kh, kw { output[n, o, oh, ow] += input[n, c, oh + kh, ow + kw] * weight[o, c, kh, kw] } }
//!   →  for o, p { for c, kh, kw { output[o, p] += columns[c, kh, kw, p] * weight[o, c, kh, kw] } }
//! ```
//!
//! A tile of pixels goes on from row to row and from image to image, so that it fits outputs of any size. The matrix `columns`
//! is never made: copies to shared memory take `p` apart and read the input where it is (Chetlur et al., "cuDNN: Efficient
//! Primitives for Deep Learning", 2014).

use std::sync::Arc;

use crate::contraction::{AxisId, Contraction, Operand};
use crate::lower::at;
use crate::workload::{Conv2d, Known, Workload};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{AxisInfo, AxisOf, Layout};

/// Name of the axis over pixels, of extent `n * oh * ow`.
pub const PIXELS: &str = "p";

/// Axes over images, rows and columns of a convolution's output in [`Contraction::of`].
const OWN_PIXEL: [AxisId; 3] = [0, 3, 4];
/// For each of its axes `n, g, o, oh, ow, c, kh, kw` the one among `g, o, p, c, kh, kw` and, behind those, `n, oh, ow`.
const SEEN_AS: [AxisId; 8] = [6, 0, 1, 7, 8, 3, 4, 5];

/// What the pixels are of.
#[derive(Clone, Debug)]
pub struct Pixels {
    /// The convolution by its own axes.
    pub own: Contraction,
    /// The axis over pixels.
    pub axis: AxisId,
    /// Images, rows and columns of the output.
    pub extents: [usize; 3],
    /// True if neighbouring pixels of a row are neighbours in memory; else channels are.
    pub contiguous: bool,
    /// Neighbouring pixels that lie together in the input, as far as they are a power of two up to 4.
    pub vector: usize,
}

/// A contraction whose axes play parts.
#[derive(Clone, Debug)]
pub struct AxisRoles {
    /// The contraction by the axes that are tiled. With pixels, its data operand is `columns`.
    pub contraction: Contraction,
    /// What its axis of pixels stands for, if it has one.
    pub pixels: Option<Pixels>,
    /// Spatial axes that are tiled, in the order in which threads are numbered.
    pub spatial: Vec<AxisId>,
    /// Spatial axes that are not: a block has one element of each.
    pub batch: Vec<AxisId>,
    /// Reduction axes, the one of many elements last.
    pub reduce: Vec<AxisId>,
}

/// Distance between what neighbours along an axis read from which on a block would copy far more than it reads.
const SPARSE: i64 = 5;

impl AxisRoles {
    /// A contraction with the axes of these names in their parts.
    pub(crate) fn new(
        contraction: Contraction,
        pixels: Option<Pixels>,
        [spatial, batch, reduce]: [&[&str]; 3],
    ) -> Self {
        let ids = |names: &[&str]| names.iter().filter_map(|name| contraction.axis(name)).collect();
        let (spatial, batch, reduce) = (ids(spatial), ids(batch), ids(reduce));
        Self { contraction, pixels, spatial, batch, reduce }
    }

    /// The same without spatial axes of one element.
    pub(crate) fn without_unit_axes(mut self) -> Self {
        self.contraction = self.contraction.without_unit_axes();
        let axes = &self.contraction.axes;
        self.spatial.retain(|&axis| axes[axis].extent > 1);
        self.batch.retain(|&axis| axes[axis].extent > 1);
        self
    }

    /// By the workload's own axes, those along which the output is contiguous last.
    pub(crate) fn of_axes(workload: &Workload) -> Self {
        let parts: [&[&str]; 3] = match workload.known() {
            Known::Conv2d(c) if is_depthwise(&c) => [&["n", "g", "oh", "ow"], &[], &["kh", "kw", "c"]],
            Known::Conv2d(_) => [&["n", "o", "oh", "ow"], &["g"], &["kh", "kw", "c"]],
            Known::Matmul(_) => [&["m", "n"], &["b"], &["k"]],
        };
        Self::new(Contraction::of(workload), None, parts).without_unit_axes()
    }

    /// By pixels; none of workloads that are no convolution. Where pixels share no products (depthwise) or lie along one axis as it
    /// is, there are such roles only if the input is sparse: copies of pixels leave out what nobody reads.
    pub(crate) fn of_pixels(workload: &Workload) -> Option<Self> {
        let Known::Conv2d(conv) = workload.known() else { return None };
        let own = Contraction::of(workload);
        let [oh, ow] = conv.output_hw();
        let pays = !is_depthwise(&conv) && [conv.n, oh, ow].iter().filter(|&&extent| extent > 1).count() > 1;
        if !pays && !is_sparse(&own, is_depthwise(&conv)) {
            return None;
        }
        let (contraction, pixels) = fuse(&conv, own, true);
        let parts: [&[&str]; 3] = [&["o", PIXELS], &["g"], &["kh", "kw", "c"]];
        Some(Self::new(contraction, Some(pixels), parts).without_unit_axes())
    }

    /// As a matrix product, `result[row, column] += data[row, ..] * weight[.., column]`, for each of a batch. The data of a convolution
    /// has the channels last, so that what a row needs at a kernel position lies together.
    ///
    /// | | batch | rows | columns | reduction |
    /// |---|---|---|---|---|
    /// | matmul | `b` | `m` | `n` | `k` |
    /// | conv2d | `g` | `p`: pixels of all images | `o` of a group | `kh`, `kw`, `c` of a group |
    pub(crate) fn of_matrix(workload: &Workload) -> Self {
        let whole = Contraction::with_unit_axes(workload.spec());
        match workload.known() {
            Known::Matmul(_) => Self::new(whole, None, [&["m", "n"], &["b"], &["k"]]),
            Known::Conv2d(conv) => {
                let own = Contraction { data: channels_last(whole.data), output: channels_last(whole.output), ..whole };
                let (contraction, pixels) = fuse(&conv, own, false);
                Self::new(contraction, Some(pixels), [&[PIXELS, "o"], &["g"], &["kh", "kw", "c"]])
            }
        }
    }

    /// The contraction by the workload's own axes, with operands as they lie in memory.
    pub(crate) fn own(&self) -> &Contraction {
        self.pixels.as_ref().map_or(&self.contraction, |pixels| &pixels.own)
    }

    /// Shape and layout of input and output in memory.
    pub(crate) fn operands(&self) -> [(&[usize], Layout); 2] {
        let own = self.own();
        [&own.data.shape, &own.output.shape].map(|shape| match (&self.pixels, shape.last()) {
            (Some(Pixels { contiguous: false, .. }), Some(&channels)) => (&shape[..], Layout::ChannelBlocked(channels)),
            _ => (&shape[..], Layout::Plain),
        })
    }

    pub(crate) fn name(&self, axis: AxisId) -> &'static str {
        self.contraction.axes[axis].name
    }

    pub(crate) fn extent(&self, axis: AxisId) -> usize {
        self.contraction.axes[axis].extent
    }

    /// The values of a convolution's own axes by those that are tiled, and by the image, row and column of the pixel.
    pub(crate) fn own_values(&self, values: &[Affine], pixel: &[Affine]) -> Vec<Affine> {
        let value = |axis: AxisId| values.get(axis).unwrap_or_else(|| &pixel[axis - values.len()]);
        SEEN_AS.map(|axis| value(axis).clone()).into()
    }

    /// The element of an operand in memory `offsets` behind that at values of the axes, those that are tiled or, with `by_own`, the
    /// workload's own: its index, and what must be within `0..extent` for it to be there. Conditions on `whole`, a tiled axis no chunk of which
    /// sticks out, are left out.
    pub(crate) fn element(
        &self,
        (operand, by_own): (&Operand, bool),
        values: &[Affine],
        offsets: &[Affine],
        whole: Option<AxisId>,
    ) -> (Vec<Affine>, Vec<(Affine, usize)>) {
        let axes = if by_own { &self.own().axes } else { &self.contraction.axes };
        let seen = |axis: AxisId| if by_own { SEEN_AS[axis] } else { axis };
        let behind = |value: Affine, dim: usize| match offsets.get(dim) {
            Some(offset) => value + offset,
            None => value,
        };
        let (mut elements, mut bounds) = (Vec::new(), Vec::new());
        for (dim, index) in operand.index.iter().enumerate() {
            elements.push(behind(at(index, values), dim));

            // The one axis that this dimension counts within a batch ends where the axis does; any other dimension where the tensor
            // does.
            let mut counted = index.terms.iter().filter(|term| !self.batch.contains(&seen(term.0.0 as usize)));
            let only = match (counted.next(), counted.next()) {
                (Some(&(VarId(axis), 1)), None) if index.constant == 0 => Some(axis as usize),
                _ => None,
            };
            match only {
                Some(axis) if whole == Some(seen(axis)) => {}
                Some(axis) if index.terms.len() > 1 => {
                    bounds.push((behind(values[axis].clone(), dim), axes[axis].extent));
                }
                _ => {
                    // Positions of a kernel that there are not would be within the tensor, too.
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

fn is_depthwise(conv: &Conv2d) -> bool {
    conv.groups > 1 && conv.o == conv.groups
}

/// True if neighbours along an axis that is tiled without pixels read elements that are far apart.
fn is_sparse(own: &Contraction, depthwise: bool) -> bool {
    let tiled = |&(axis, step): &(VarId, i64)| {
        let info = &own.axes[axis.0 as usize];
        !info.reduce && (info.name != "g" || depthwise) && step >= SPARSE
    };
    own.data.index.iter().flat_map(|index| &index.terms).any(tiled)
}

/// `[n, c, h, w]` as `[n, 1, h, w, c]`.
fn channels_last(mut operand: Operand) -> Operand {
    let (shape, index) = (operand.shape.remove(1), operand.index.remove(1));
    operand.shape.insert(1, 1);
    operand.index.insert(1, Affine::default());
    operand.shape.push(shape);
    operand.index.push(index);
    operand
}

/// Axes `g, o, p | c, kh, kw` of a convolution by its own axes. The data operand is `columns` with its groups, where pixels or channels
/// are contiguous.
fn fuse(conv: &Conv2d, own: Contraction, contiguous: bool) -> (Contraction, Pixels) {
    let extents = OWN_PIXEL.map(|axis| own.axes[axis].extent);
    let of = AxisOf::Fused(OWN_PIXEL.into());
    let pixels = AxisInfo { name: PIXELS, extent: extents.iter().product(), reduce: false, of };
    let axes: Vec<AxisInfo> =
        [own.axes[1].clone(), own.axes[2].clone(), pixels].into_iter().chain(own.axes[5..].iter().cloned()).collect();
    let vars: Vec<Affine> = SEEN_AS.iter().map(|&axis| Affine::var(VarId(axis as u32))).collect();
    let seen = |index: &Affine| at(index, &vars);

    let columns = if contiguous { [0, 3, 4, 5, 2] } else { [0, 4, 5, 2, 3] };
    let channel = seen(&own.weight.index[0]);
    let contraction = Contraction {
        data: Operand {
            shape: columns.map(|axis| axes[axis].extent).into(),
            index: columns.map(|axis| Affine::var(VarId(axis as u32))).into(),
        },
        weight: Operand { shape: own.weight.shape.clone(), index: own.weight.index.iter().map(seen).collect() },
        output: Operand { shape: vec![conv.o, axes[2].extent], index: vec![channel.clone(), Affine::var(VarId(2))] },
        spec: Arc::clone(&own.spec),
        bias: seen(&own.bias),
        weight_is_constant: true,
        axes,
    };

    let in_rows = contiguous && conv.kw == 1 && conv.stride[1] == 1 && conv.pad[1] == 0;
    let vector = [4, 2].into_iter().find(|&v| in_rows && extents[2].is_multiple_of(v)).unwrap_or(1);
    (contraction, Pixels { own, axis: 2, extents, contiguous, vector })
}
