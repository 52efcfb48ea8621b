//! The operator `conv3d`: three-dimensional convolution.

use std::fmt;

use super::convolution::Convolution;
use super::window::{Window, WindowFields};
use super::{Fields, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_positive};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "conv3d",
    fields: "n,c,d,h,w,o,k,kd,kh,kw,s,sd,sh,sw,p,pd,ph,pw,dil,dd,dh,dw,g",
    example: "conv3d:c=16,d=16,h=28,w=28,o=32,k=3,p=1",
    parse,
};

/// `d` is the depth here, so dilation has another name.
const ALL: WindowFields = WindowFields { dilation: "dil", ..WindowFields::ALL };
const DEPTH: WindowFields = WindowFields { kernel: "kd", stride: "sd", pad: "pd", dilation: "dd" };
const AXES: [WindowFields; 3] = [DEPTH, WindowFields::HEIGHT, WindowFields::WIDTH];

/// A three-dimensional convolution (cross-correlation) with `NCDHW` input, `O(C/g)KdKhKw` weights
/// and `NCDHW` output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Conv3d {
    /// Number of volumes in the batch.
    pub n: usize,
    /// Number of input channels.
    pub c: usize,
    /// Number of output channels.
    pub o: usize,
    /// Windows over depth, height and width.
    pub windows: [Window; 3],
    /// Number of channel groups; depthwise is `groups == c`.
    pub groups: usize,
}

impl Conv3d {
    fn convolution(&self) -> Convolution<'_> {
        let Self { n, c, o, groups, windows } = self;
        Convolution { op: KIND.name, n: *n, c: *c, o: *o, groups: *groups, windows, fields: &AXES }
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let extents = [fields.required("d")?, fields.required("h")?, fields.required("w")?];
    let windows = Window::read(fields, extents, ALL, AXES)?;
    let (n, groups) = (fields.number("n")?.unwrap_or(1), fields.number("g")?.unwrap_or(1));
    Ok(Box::new(Conv3d { n, c: fields.required("c")?, o: fields.required("o")?, windows, groups }))
}

impl WorkloadOperator for Conv3d {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let [d, h, w] = self.windows.map(|window| window.extent);
        write!(f, "n={},c={},d={d},h={h},w={w},o={}", self.n, self.c, self.o)?;
        Window::write(f, self.windows, ALL, AXES)?;
        if self.groups != 1 { write!(f, ",g={}", self.groups) } else { Ok(()) }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let [d, h, w] = self.windows.map(|window| window.extent);
        check_positive(KIND.name, &[("d", d), ("h", h), ("w", w)])?;
        self.convolution().check()
    }

    /// Axes `n, g, o, od, oh, ow | c, kd, kh, kw`, with `o` and `c` counted within a group.
    fn formula(&self) -> OperatorFormula {
        self.convolution().formula()
    }
}
