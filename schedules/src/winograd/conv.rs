//! The convolutions that minimal filtering is for.

use super::matrices::Filtering;
use autotune_ir::program::{Access, Role};
use autotune_ir::spec::AxisId;
use autotune_ir::{Affine, VarId};
use autotune_workloads::Workload;
use autotune_workloads::axes::{Axes, Window, count};

/// Sizes of output tiles that are offered where there are matrices for them.
const TILE_SIZES: [usize; 4] = [2, 3, 4, 6];

/// The share of the direct way's multiply-adds that tiles may take where channels are padded and
/// transposed.
const MAX_FILLED_SHARE: f64 = 0.7;
/// Tiles of an image that there are at least then: multiply-adds of fewer wait for one another.
const MIN_TILES: usize = 8;

/// Input channels up to which phases are channels.
const FEW_CHANNELS: usize = 4;
/// Lanes that phases of few channels take, at most.
const MAX_PHASED: usize = 16;

/// A convolution with as many taps and the same stride along both axes, of dilation 1, in one
/// group, padded by less than a kernel.
///
/// Of few channels it is computed as one of stride 1, whose input channels are the phases of the
/// strided one: there are more products to add up then, so that fewer sums have to be transformed
/// back, and more lanes.
///
/// ```text
/// sum[o, oh, ow] = Σ input[c, s*oh + kh, s*ow + kw] * weight[o, c, kh, kw]
///   →  Σ phased[(c, fh, fw), oh + kh, ow + kw] * phased_weight[o, (c, fh, fw), kh, kw]
///      phased[(c, fh, fw), y, x] = input[c, s*y + fh, s*x + fw], and so are the weights, zero beyond the taps
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Conv {
    /// Images.
    pub n: usize,
    /// Input channels.
    pub c: usize,
    /// Output channels.
    pub o: usize,
    /// Rows and columns of an input image.
    pub input: [usize; 2],
    /// Rows and columns of an output image.
    pub output: [usize; 2],
    /// Padding before rows and columns.
    pub pad: [usize; 2],
    /// Rows and columns of the kernel.
    pub taps: usize,
    /// Rows and columns of the input between outputs.
    pub stride: usize,
}

impl Conv {
    /// What a workload's main equation is, if it is one of these and operands may be transformed.
    pub fn of(workload: &Workload) -> Option<Self> {
        *workload.once((), || Self::find(workload))
    }

    fn find(workload: &Workload) -> Option<Self> {
        let main = workload.spec().main();
        let (axes, loads) = (Axes::of(workload.spec())?, main.loads());
        let mut tensors = workload.spec().operands().chain(workload.spec().find(Role::Output));
        if workload.spec().prologue().is_some() || tensors.any(|tensor| tensor.dtype.is_integer()) {
            return None;
        }
        let ([h, w], [data, weight]) = (&axes.windows[..], &loads[..]) else { return None };
        // Filters are transformed ahead of time, from and to f32.
        let filters = workload.spec().tensor(weight);
        if !filters.is_constant() || !filters.dtype.is_word() {
            return None;
        }
        let images: Vec<AxisId> = axes.rows.iter().copied().filter(|&row| !axes.is_windowed(row)).collect();
        let (&[n], &[c], &[o]) = (&images[..], &axes.steps[..], &axes.columns[..]) else { return None };

        let extent = |axis: AxisId| main.axes[axis].extent;
        let slides = |window: &Window| {
            let Window { tap, stride, dilation, pad, .. } = *window;
            let taps = extent(tap);
            (taps, stride, dilation) == (extent(h.tap), h.stride, 1) && (0..taps as i64).contains(&pad)
        };
        let lies = |access: &Access, axes: [AxisId; 4], step: i64| {
            let counts = |(number, (index, axis)): (usize, (&Affine, AxisId))| {
                index.coefficient(VarId(axis as u32)) == if number < 2 { 1 } else { step }
            };
            access.index.len() == axes.len() && access.index.iter().zip(axes).enumerate().all(counts)
        };
        let lie = lies(data, [n, c, h.row, w.row], h.stride)
            && lies(weight, [o, c, h.tap, w.tap], 1)
            && lies(&main.output, [n, o, h.row, w.row], 1);
        let fits = !workload.is_exact() && count(main, &axes.batch) == 1 && slides(h) && slides(w) && lie;
        let conv = fits.then(|| Self {
            n: extent(n),
            c: extent(c),
            o: extent(o),
            input: [h.extent, w.extent],
            output: [extent(h.row), extent(w.row)],
            pad: [h.pad as usize, w.pad as usize],
            taps: extent(h.tap),
            stride: h.stride as usize,
        });
        conv.filter(|conv| conv.tile_sizes().next().is_some())
    }

    /// Phases along each axis that are channels of their own.
    pub fn phases(&self) -> usize {
        let is_phased = self.c <= FEW_CHANNELS && self.stride * self.stride <= MAX_PHASED;
        if is_phased { self.stride } else { 1 }
    }

    /// Channels that products are added up over, `[c, fh, fw]`.
    pub fn depth(&self) -> usize {
        self.c * self.phases() * self.phases()
    }

    /// What is computed of a tile of `m` outputs, along each axis.
    pub fn filtering(&self, m: usize) -> Filtering {
        let phases = self.phases();
        Filtering { m, taps: self.taps.div_ceil(phases), stride: self.stride / phases }
    }

    /// Channels of products that are transformed together, `block` of them or those of some input
    /// channels.
    pub fn depth_block(&self, block: usize) -> usize {
        let phases = self.phases() * self.phases();
        if phases == 1 { block } else { phases * (MAX_PHASED / phases).min(self.c) }
    }

    /// Sizes of output tiles that there are matrices for.
    pub fn tile_sizes(&self) -> impl Iterator<Item = usize> {
        TILE_SIZES.into_iter().filter(|&m| self.filtering(m).is_known())
    }

    /// Rows and columns of tiles of `m` outputs of an image.
    pub fn grid(&self, m: usize) -> [usize; 2] {
        self.output.map(|extent| extent.div_ceil(m))
    }

    /// Multiply-adds with tiles of `m` outputs over those of the direct way.
    pub fn work_share(&self, m: usize) -> f64 {
        let product = |extents: [usize; 2]| extents.iter().product::<usize>() as f64;
        let [products, taps] = [self.filtering(m).inputs() * self.phases(), self.taps].map(|size| product([size; 2]));
        product(self.grid(m)) * products / (product(self.output) * taps)
    }

    /// The least of [`Conv::work_share`], of all tiles that there are matrices for.
    pub fn least_work_share(&self) -> f64 {
        self.tile_sizes().map(|m| self.work_share(m)).fold(f64::INFINITY, f64::min)
    }

    /// True if tiles of `m` outputs are worth offering in blocks of `block` channels: where these
    /// divide the channels if they save work, else if they save enough of it with the last block of
    /// outputs filled up, and there are some.
    pub fn pays(&self, m: usize, block: usize) -> bool {
        let is_whole = [self.c, self.o].iter().all(|channels| channels.is_multiple_of(block));
        let filled = self.o.next_multiple_of(block) as f64 / self.o as f64;
        let saves_enough = || self.work_share(m) * filled <= MAX_FILLED_SHARE;
        self.saves_work(m) && (is_whole || saves_enough() && self.grid(m).iter().product::<usize>() >= MIN_TILES)
    }

    /// True if there are matrices for tiles of `m` outputs, and they take fewer multiply-adds than
    /// the direct way.
    pub fn saves_work(&self, m: usize) -> bool {
        self.tile_sizes().any(|size| size == m) && self.work_share(m) < 1.0
    }
}
