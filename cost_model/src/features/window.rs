//! Window that the main equation of a spec moves over its data.

use autotune_ir::VarId;
use autotune_ir::program::Access;
use autotune_ir::spec::{AxisId, Spec};

/// The window of a convolution; other equations have a window of one tap. Values of several
/// dimensions are multiplied.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowFeatures {
    /// True if an axis of the result and a reduction axis move along the same dimension of the
    /// data.
    pub(super) slides: bool,
    taps: usize,
    stride: i64,
    dilation: i64,
    /// Iterations of the result's axes that both operands have.
    batch: usize,
}

impl WindowFeatures {
    pub(super) fn of(spec: &Spec) -> Self {
        let mut window = Self { slides: false, taps: 1, stride: 1, dilation: 1, batch: 1 };
        let equation = spec.main();
        let [data, weight, ..] = equation.loads()[..] else { return window };
        let uses = |access: &Access, axis: AxisId| access.index.iter().any(|i| i.uses(VarId(axis as u32)));
        for (id, axis) in equation.axes.iter().enumerate() {
            if !axis.reduce && uses(data, id) && uses(weight, id) {
                window.batch *= axis.extent;
            }
        }

        for index in &data.index {
            let axis = |&(VarId(axis), step): &(VarId, i64)| (axis as usize, step);
            let spatial = |(id, _): &(AxisId, i64)| !equation.axes[*id].reduce && !uses(weight, *id);
            let moving = index.terms.iter().map(axis).find(spatial);
            let tap = index.terms.iter().map(axis).find(|(id, _)| equation.axes[*id].reduce);
            if let (Some((_, stride)), Some((id, dilation))) = (moving, tap) {
                window.slides = true;
                window.taps *= equation.axes[id].extent;
                window.stride *= stride;
                window.dilation *= dilation;
            }
        }
        window
    }

    /// Returns the counts of taps, stride, dilation and batch.
    pub(super) fn counts(&self) -> [f64; 4] {
        [self.taps as f64, self.stride as f64, self.dilation as f64, self.batch as f64]
    }
}
