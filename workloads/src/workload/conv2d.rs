//! The operator `conv2d`: two-dimensional convolution.

use std::fmt;

use super::convolution::Convolution;
use super::window::{Window, WindowFields};
use super::{Fields, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_positive};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "conv2d",
    fields: "n,c,h,w,o,k,kh,kw,s,sh,sw,p,ph,pw,d,dh,dw,g",
    example: "conv2d:n=1,c=64,h=56,w=56,o=64,k=3,s=1,p=1",
    parse,
};

/// A two-dimensional convolution (cross-correlation) with `NCHW` input, `O(C/g)KhKw` weights and
/// `NCHW` output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Conv2d {
    /// Number of images in the batch.
    pub n: usize,
    /// Number of input channels.
    pub c: usize,
    /// Input height in elements.
    pub h: usize,
    /// Input width in elements.
    pub w: usize,
    /// Number of output channels.
    pub o: usize,
    /// Kernel height in taps.
    pub kh: usize,
    /// Kernel width in taps.
    pub kw: usize,
    /// Stride over height and width.
    pub stride: [usize; 2],
    /// Zero padding on both ends of height and width.
    pub pad: [usize; 2],
    /// Distance between adjacent taps over height and width.
    pub dilation: [usize; 2],
    /// Number of channel groups; depthwise is `groups == c`.
    pub groups: usize,
}

impl Conv2d {
    /// Returns the output height and width.
    pub fn output_hw(&self) -> [usize; 2] {
        self.windows().map(|window| window.outputs())
    }

    /// Returns the windows over height and width.
    fn windows(&self) -> [Window; 2] {
        let (extents, kernels) = ([self.h, self.w], [self.kh, self.kw]);
        std::array::from_fn(|axis| Window {
            extent: extents[axis],
            kernel: kernels[axis],
            stride: self.stride[axis],
            pad: self.pad[axis],
            dilation: self.dilation[axis],
        })
    }

    fn convolution<'a>(&self, windows: &'a [Window; 2]) -> Convolution<'a> {
        let Self { n, c, o, groups, .. } = *self;
        Convolution { op: KIND.name, n, c, o, groups, windows, fields: &AXES }
    }
}

const AXES: [WindowFields; 2] = [WindowFields::HEIGHT, WindowFields::WIDTH];

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let [h, w] = [fields.required("h")?, fields.required("w")?];
    let [rows, columns] = Window::read(fields, [h, w], WindowFields::ALL, AXES)?;
    Ok(Box::new(Conv2d {
        n: fields.number("n")?.unwrap_or(1),
        c: fields.required("c")?,
        h,
        w,
        o: fields.required("o")?,
        kh: rows.kernel,
        kw: columns.kernel,
        stride: [rows.stride, columns.stride],
        pad: [rows.pad, columns.pad],
        dilation: [rows.dilation, columns.dilation],
        groups: fields.number("g")?.unwrap_or(1),
    }))
}

impl WorkloadOperator for Conv2d {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "n={},c={},h={},w={},o={}", self.n, self.c, self.h, self.w, self.o)?;
        Window::write(f, self.windows(), WindowFields::ALL, AXES)?;
        if self.groups != 1 { write!(f, ",g={}", self.groups) } else { Ok(()) }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        check_positive(KIND.name, &[("h", self.h), ("w", self.w)])?;
        self.convolution(&self.windows()).check()
    }

    /// Axes `n, g, o, oh, ow | c, kh, kw`, with `o` and `c` counted within a group.
    fn formula(&self) -> OperatorFormula {
        self.convolution(&self.windows()).formula()
    }
}
