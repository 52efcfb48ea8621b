//! The convolutions that minimal filtering is for.

use super::TAPS;
use crate::axes::{Axes, Window, count};
use crate::workload::Workload;
use autotune_ir::program::Access;
use autotune_ir::spec::AxisId;
use autotune_ir::{Affine, VarId};

/// A convolution of 3x3 taps, stride 1 and dilation 1, in one group, padded by up to 2.
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
}

impl Conv {
    /// What a workload's main equation is, if it is one of these and operands may be transformed.
    pub fn of(workload: &Workload) -> Option<Self> {
        *workload.once((), || Self::find(workload))
    }

    fn find(workload: &Workload) -> Option<Self> {
        let main = workload.spec().main();
        let (axes, loads) = (Axes::of(workload.spec())?, main.loads());
        let ([h, w], [data, weight]) = (&axes.windows[..], &loads[..]) else { return None };
        let images: Vec<AxisId> = axes.rows.iter().copied().filter(|&row| !axes.is_windowed(row)).collect();
        let (&[n], &[c], &[o]) = (&images[..], &axes.steps[..], &axes.columns[..]) else { return None };

        let extent = |axis: AxisId| main.axes[axis].extent;
        let slides = |window: &Window| {
            let Window { tap, stride, dilation, pad, .. } = *window;
            (extent(tap), stride, dilation) == (TAPS, 1, 1) && (0..TAPS as i64).contains(&pad)
        };
        let lies = |access: &Access, axes: [AxisId; 4]| {
            let counts = |(index, axis): (&Affine, AxisId)| index.coefficient(VarId(axis as u32)) == 1;
            access.index.len() == axes.len() && access.index.iter().zip(axes).all(counts)
        };
        let lie = lies(data, [n, c, h.row, w.row])
            && lies(weight, [o, c, h.tap, w.tap])
            && lies(&main.output, [n, o, h.row, w.row]);
        let fits = !workload.is_exact() && count(main, &axes.batch) == 1 && slides(h) && slides(w) && lie;
        fits.then(|| Self {
            n: extent(n),
            c: extent(c),
            o: extent(o),
            input: [h.extent, w.extent],
            output: [extent(h.row), extent(w.row)],
            pad: [h.pad as usize, w.pad as usize],
        })
    }

    /// Rows and columns of tiles of `m` outputs of an image.
    pub fn grid(&self, m: usize) -> [usize; 2] {
        self.output.map(|extent| extent.div_ceil(m))
    }

    /// Multiply-adds with tiles of `m` outputs over those of the direct way.
    pub fn work_share(&self, m: usize) -> f64 {
        let product = |extents: [usize; 2]| extents.iter().product::<usize>() as f64;
        product(self.grid(m)) * product([m + TAPS - 1; 2]) / (product(self.output) * product([TAPS; 2]))
    }

    /// True if tiles of `m` outputs take fewer multiply-adds than the direct way.
    pub fn saves_work(&self, m: usize) -> bool {
        self.work_share(m) < 1.0
    }
}
