//! Convolutions as one matrix product: the pixels of all outputs are one axis.
//!
//! ```text
//! for n, o, oh, ow { for c, kh, kw { output[n, o, oh, ow] += input[n, c, oh + kh, ow + kw] * weight[o, c, kh, kw] } }
//!   →  for o, p { for c, kh, kw { output[o, p] += columns[c, kh, kw, p] * weight[o, c, kh, kw] } }
//! ```
//!
//! A tile of pixels goes on from row to row and from image to image, so that it fits outputs of any size. The matrix `columns`
//! is never made: copies to shared memory take `p` apart and read the input where it is (Chetlur et al., "cuDNN: Efficient
//! Primitives for Deep Learning", 2014).

use crate::contraction::{Contraction, Operand};
use crate::workload::{Conv2d, Operator, Workload};
use std::sync::Arc;

use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{AxisInfo, AxisOf};

/// Name of the axis over pixels, of extent `n * oh * ow`.
pub const AXIS: &str = "p";

/// What the pixels are of.
#[derive(Clone, Debug)]
pub struct Pixels {
    /// The convolution by its own axes.
    pub conv: Contraction,
    /// Images, rows and columns of the output.
    pub extents: [usize; 3],
    /// Neighbouring pixels that lie together in the input, as far as they are a power of two up to 4.
    pub vector: usize,
}

/// Distance between what neighbours along an axis read from which on a block would copy far more than it reads.
const SPARSE: i64 = 5;

/// The contraction over pixels; none of workloads that are no convolution. Where pixels share no products (depthwise) or lie
/// along one axis as it is, there is one only if the input is sparse: copies of pixels leave out what nobody reads.
pub(super) fn fuse(workload: &Workload) -> Option<(Contraction, Pixels)> {
    let Operator::Conv2d(conv) = workload.op else { return None };
    let [oh, ow] = conv.output_hw();
    let extents = [conv.n, oh, ow];
    let depthwise = conv.groups > 1 && conv.o == conv.groups;
    let own = Contraction::of(workload);
    let pays = !depthwise && extents.iter().filter(|&&extent| extent > 1).count() > 1;
    if !pays && !is_sparse(&own, depthwise) {
        return None;
    }
    let in_rows = conv.kw == 1 && conv.stride[1] == 1 && conv.pad[1] == 0;
    let vector = [4, 2].into_iter().find(|&v| in_rows && ow.is_multiple_of(v)).unwrap_or(1);
    Some((contraction(workload, &conv, &own, extents.iter().product()), Pixels { conv: own, extents, vector }))
}

/// True if neighbours along an axis that is tiled without this form read elements that are far apart.
fn is_sparse(own: &Contraction, depthwise: bool) -> bool {
    let tiled = |&(axis, step): &(VarId, i64)| {
        let info = &own.axes[axis.0 as usize];
        !info.reduce && (info.name != "g" || depthwise) && step >= SPARSE
    };
    own.data.index.iter().flat_map(|index| &index.terms).any(tiled)
}

/// Axes `g, o, p | c, kh, kw`. The data operand is `columns` with its groups.
fn contraction(workload: &Workload, conv: &Conv2d, own_contraction: &Contraction, pixels: usize) -> Contraction {
    let (group_o, group_c) = (conv.o / conv.groups, conv.c / conv.groups);
    let own = |name| own_contraction.axis(name).unwrap_or_default();
    let part = |name| AxisOf::Part { axis: own(name), step: 1 };
    let axis = |(name, extent, reduce, of)| AxisInfo { name, extent, reduce, of };
    let axes = [
        ("g", conv.groups, false, part("g")),
        ("o", group_o, false, part("o")),
        (AXIS, pixels, false, AxisOf::Fused([own("n"), own("oh"), own("ow")].into())),
        ("c", group_c, true, part("c")),
        ("kh", conv.kh, true, part("kh")),
        ("kw", conv.kw, true, part("kw")),
    ];
    let [g, o, p, c, kh, kw] = [0, 1, 2, 3, 4, 5].map(|axis| Affine::var(VarId(axis)));
    let channel = g.clone() * group_o as i64 + o;
    Contraction {
        axes: axes.map(axis).to_vec(),
        data: Operand {
            shape: vec![conv.groups, group_c, conv.kh, conv.kw, pixels],
            index: vec![g, c.clone(), kh.clone(), kw.clone(), p.clone()],
        },
        weight: Operand { shape: workload.weight_shape(), index: vec![channel.clone(), c, kh, kw] },
        output: Operand { shape: vec![conv.o, pixels], index: vec![channel.clone(), p] },
        bias: channel,
        weight_is_constant: true,
        spec: Arc::clone(&own_contraction.spec),
    }
    .without_unit_axes()
}
