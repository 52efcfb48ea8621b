//! Sliding windows of convolutions and poolings: one per spatial axis.

use std::fmt;

use autotune_ir::Affine;

use super::{Fields, WorkloadError, check_positive, write_each};

/// A sliding window along one axis of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Window {
    /// Elements of the image along the axis.
    pub extent: usize,
    /// Elements of the window.
    pub kernel: usize,
    /// Distance between adjacent windows, in elements of the image.
    pub stride: usize,
    /// Elements of padding at both ends of the image.
    pub pad: usize,
    /// Distance between adjacent elements of the window, in elements of the image.
    pub dilation: usize,
}

/// Names of a window's fields in the text form.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowFields {
    pub(super) kernel: &'static str,
    pub(super) stride: &'static str,
    pub(super) pad: &'static str,
    pub(super) dilation: &'static str,
}

impl WindowFields {
    /// Fields that apply to all axes of an image without fields of their own.
    pub(super) const ALL: Self = Self { kernel: "k", stride: "s", pad: "p", dilation: "d" };
    pub(super) const HEIGHT: Self = Self { kernel: "kh", stride: "sh", pad: "ph", dilation: "dh" };
    pub(super) const WIDTH: Self = Self { kernel: "kw", stride: "sw", pad: "pw", dilation: "dw" };

    /// Returns the four names in a fixed order.
    fn names(&self) -> [&'static str; 4] {
        [self.kernel, self.stride, self.pad, self.dilation]
    }
}

impl Window {
    /// Reads windows over images of these extents. The fields of an axis override those for all
    /// axes.
    pub(super) fn read<const N: usize>(
        fields: &Fields,
        extents: [usize; N],
        all: WindowFields,
        own: [WindowFields; N],
    ) -> Result<[Self; N], WorkloadError> {
        let read = |part: usize, default| fields.each(all.names()[part], own.map(|own| own.names()[part]), default);
        let (kernel, stride) = (read(0, None)?, read(1, Some(1))?);
        let (pad, dilation) = (read(2, Some(0))?, read(3, Some(1))?);
        Ok(std::array::from_fn(|axis| Self {
            extent: extents[axis],
            kernel: kernel[axis],
            stride: stride[axis],
            pad: pad[axis],
            dilation: dilation[axis],
        }))
    }

    /// Writes the fields that [`Window::read`] reads, except extents, and dilations of 1.
    pub(super) fn write<const N: usize>(
        f: &mut dyn fmt::Write,
        windows: [Self; N],
        all: WindowFields,
        own: [WindowFields; N],
    ) -> fmt::Result {
        let mut write = |part: usize, value: fn(&Self) -> usize, default| {
            let values = windows.each_ref().map(value);
            write_each(f, all.names()[part], own.map(|own| own.names()[part]), values, default)
        };
        write(0, |window| window.kernel, None)?;
        write(1, |window| window.stride, None)?;
        write(2, |window| window.pad, None)?;
        write(3, |window| window.dilation, Some(1))
    }

    /// Fails with the first invalid field. `what` describes the window in messages.
    pub(super) fn check(&self, op: &'static str, fields: WindowFields, what: &str) -> Result<(), WorkloadError> {
        let Self { extent, kernel, stride, pad, dilation } = *self;
        check_positive(op, &[(fields.kernel, kernel), (fields.stride, stride), (fields.dilation, dilation)])?;
        let overflow = WorkloadError::Overflow { op, what: "padded input" };
        let padded = pad.checked_mul(2).and_then(|pad| pad.checked_add(extent)).ok_or(overflow.clone())?;
        let reach = dilation.checked_mul(kernel - 1).and_then(|reach| reach.checked_add(1)).ok_or(overflow)?;

        if reach > padded {
            let reason = format!("the {what} spans {reach} but the padded input only {padded}");
            return Err(WorkloadError::Unfit { op, field: fields.kernel, reason });
        }
        if pad > reach {
            let reason = format!("padding {pad} is larger than the {what} ({reach})");
            return Err(WorkloadError::Unfit { op, field: fields.pad, reason });
        }
        Ok(())
    }

    /// Returns the number of image elements from the first to the last element of a window.
    pub fn reach(&self) -> usize {
        self.dilation * (self.kernel - 1) + 1
    }

    /// Returns the number of elements of the image and its padding.
    pub fn padded(&self) -> usize {
        self.extent + 2 * self.pad
    }

    /// Returns the number of windows inside the padded image.
    pub fn outputs(&self) -> usize {
        (self.padded() - self.reach()) / self.stride + 1
    }

    /// Returns the image element that is read at a tap of a window.
    pub(super) fn at(&self, window: &Affine, tap: &Affine) -> Affine {
        window.clone() * self.stride as i64 + tap.clone() * self.dilation as i64 + -(self.pad as i64)
    }
}
