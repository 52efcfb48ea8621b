//! Convolutions that minimal filtering applies to.

use super::matrices::Filtering;
use autotune_ir::DType;
use autotune_ir::program::{Access, Role};
use autotune_ir::spec::AxisId;
use autotune_ir::{Affine, VarId};
use autotune_workloads::Workload;
use autotune_workloads::axes::{Axes, WindowAxis, count};

/// Candidate sizes of output tiles; matrices exist for some of them, depending on kernel and
/// stride.
const TILE_SIZES: [usize; 4] = [2, 3, 4, 6];

/// Maximum work, as a share of the direct algorithm's multiply-adds, for channels that are padded
/// and transposed.
const MAX_FILLED_SHARE: f64 = 0.7;
/// Minimum number of tiles per image for such channels, and for an estimate of time by work: with
/// fewer, multiply-adds wait for each other.
const MIN_TILES: usize = 8;

/// Maximum number of input channels for which phases become channels.
const FEW_CHANNELS: usize = 4;
/// Maximum number of lanes for the phases of few channels.
const MAX_PHASED: usize = 16;

/// Maximum number of finite points if transformed tensors are bf16. With 3 points, rounding them
/// causes errors of 4e-3 of the largest output; with 4 points 1e-2, with 5 points 2e-2.
const MAX_ROUNDED_POINTS: usize = 3;

/// A convolution in one group with a square kernel, the same stride along both axes, dilation 1,
/// and less padding than taps.
///
/// With few input channels, a strided convolution is computed as one of stride 1 whose channels are
/// the phases: input elements a stride apart. Products then have more reduction steps, so fewer
/// sums are transformed back, and vectors have more lanes.
///
/// ```text
/// sum[o, oh, ow] = Σ input[c, s*oh + kh, s*ow + kw] * weight[o, c, kh, kw]
///   →  Σ phased[(c, fh, fw), oh + kh, ow + kw] * phased_weight[o, (c, fh, fw), kh, kw]
///      phased[(c, fh, fw), y, x] = input[c, s*y + fh, s*x + fw]
///      phased_weight[o, (c, fh, fw), y, x] = weight[o, c, s*y + fh, s*x + fw], zero after the taps
/// ```
#[derive(Clone, Copy, Debug)]
pub struct WinogradConv {
    /// Number of images, `n`.
    pub n: usize,
    /// Number of input channels.
    pub c: usize,
    /// Number of output channels.
    pub o: usize,
    /// Rows and columns of an input image.
    pub input: [usize; 2],
    /// Rows and columns of an output image.
    pub output: [usize; 2],
    /// Padding before the first row and before the first column.
    pub pad: [usize; 2],
    /// Rows (and columns) of the kernel.
    pub taps: usize,
    /// Stride along both axes.
    pub stride: usize,
    /// Element type of transformed inputs and filters: bf16 if data and filters are, else f32.
    pub transformed: DType,
}

impl WinogradConv {
    /// Returns a workload's main equation as such a convolution. Returns `None` if it is none or
    /// operands must not be transformed. The result is cached per workload.
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
        let filters = workload.spec().tensor(weight);
        let dtypes = [workload.spec().tensor(data).dtype, filters.dtype];
        let transformed = if dtypes == [DType::Bf16; 2] { DType::Bf16 } else { DType::F32 };
        if !filters.is_constant() || !filters.dtype.is_word() && transformed == DType::F32 {
            return None;
        }

        let images: Vec<AxisId> = axes.rows.iter().copied().filter(|&row| !axes.is_windowed(row)).collect();
        let (&[n], &[c], &[o]) = (&images[..], &axes.steps[..], &axes.columns[..]) else { return None };

        let extent = |axis: AxisId| main.axes[axis].extent;
        // Both axes need the same kernel and stride, no dilation, and less padding than a kernel.
        let slides = |window: &WindowAxis| {
            let WindowAxis { tap, stride, dilation, pad, .. } = *window;
            let taps = extent(tap);
            (taps, stride, dilation) == (extent(h.tap), h.stride, 1) && (0..taps as i64).contains(&pad)
        };
        // Indices must be plain sums of one axis each, which the transforms read and write
        // directly.
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
            transformed,
        });
        conv.filter(|conv| conv.tile_sizes().next().is_some())
    }

    /// Number of phases along each axis that become channels: the stride, or 1.
    pub fn phases(&self) -> usize {
        let is_phased = self.c <= FEW_CHANNELS && self.stride * self.stride <= MAX_PHASED;
        if is_phased { self.stride } else { 1 }
    }

    /// Number of reduction steps of the products, `[c, fh, fw]`.
    pub fn depth(&self) -> usize {
        self.c * self.phases() * self.phases()
    }

    /// Returns the one-dimensional filtering of a tile of `m` outputs.
    pub fn filtering(&self, m: usize) -> Filtering {
        let phases = self.phases();
        Filtering { m, taps: self.taps.div_ceil(phases), stride: self.stride / phases }
    }

    /// Number of reduction steps that are transformed together: `block`, or all phases of a few
    /// input channels.
    pub fn depth_block(&self, block: usize) -> usize {
        let phases = self.phases() * self.phases();
        if phases == 1 { block } else { phases * (MAX_PHASED / phases).min(self.c) }
    }

    /// Returns the sizes of output tiles for which matrices exist and rounding errors are small.
    pub fn tile_sizes(&self) -> impl Iterator<Item = usize> {
        let is_precise = |filtering: Filtering| match self.transformed {
            DType::F32 => true,
            _ => filtering.points() <= MAX_ROUNDED_POINTS,
        };
        let sizes = TILE_SIZES.into_iter().map(|m| self.filtering(m));
        sizes.filter(move |&filtering| filtering.is_known() && is_precise(filtering)).map(|filtering| filtering.m)
    }

    /// Rows and columns of tiles of `m` outputs in one image.
    pub fn grid(&self, m: usize) -> [usize; 2] {
        self.output.map(|extent| extent.div_ceil(m))
    }

    /// Returns the multiply-adds with tiles of `m` outputs, as a share of the direct algorithm's.
    pub fn work_share(&self, m: usize) -> f64 {
        let product = |extents: [usize; 2]| extents.iter().product::<usize>() as f64;
        let [products, taps] = [self.filtering(m).inputs() * self.phases(), self.taps].map(|size| product([size; 2]));
        product(self.grid(m)) * products / (product(self.output) * taps)
    }

    /// Returns the least [`WinogradConv::work_share`] of all tiles for which matrices exist, and of
    /// which images have enough.
    pub fn least_work_share(&self) -> f64 {
        let sizes = self.tile_sizes().filter(|&m| self.has_tiles(m));
        sizes.map(|m| self.work_share(m)).fold(f64::INFINITY, f64::min)
    }

    /// True if an image has enough tiles of `m` outputs for a register tile.
    fn has_tiles(&self, m: usize) -> bool {
        self.grid(m).iter().product::<usize>() >= MIN_TILES
    }

    /// True if tiles of `m` outputs are worth a trial in blocks of `block` channels. If the block
    /// divides the channels, they must save work. Otherwise they must save enough, counting the
    /// padded last block of outputs, and an image must have enough tiles.
    pub fn pays(&self, m: usize, block: usize) -> bool {
        let is_whole = [self.c, self.o].iter().all(|channels| channels.is_multiple_of(block));
        let filled = self.o.next_multiple_of(block) as f64 / self.o as f64;
        let saves_enough = || self.work_share(m) * filled <= MAX_FILLED_SHARE;
        self.saves_work(m) && (is_whole || saves_enough() && self.has_tiles(m))
    }

    /// True if matrices for tiles of `m` outputs exist, and they take fewer multiply-adds than the
    /// direct algorithm.
    pub fn saves_work(&self, m: usize) -> bool {
        self.tile_sizes().any(|size| size == m) && self.work_share(m) < 1.0
    }
}
