//! A depthwise convolution followed by a pointwise one.

use std::fmt;

use autotune_ir::Affine;
use autotune_ir::spec::axis_vars;

use super::window::{Window, WindowFields};
use super::{
    Between, Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "separable_conv2d",
    fields: "n,c,h,w,o,k,kh,kw,s,sh,sw,p,ph,pw,d,dh,dw,mid,mid_bias",
    example: "separable_conv2d:n=1,c=64,h=56,w=56,o=128,k=3,s=1,p=1,mid=relu",
    parse,
};

/// A depthwise convolution, an activation, and a pointwise convolution: `NCHW` input, `C1KhKw`
/// depthwise and `OC11` pointwise weights, `NCHW` output (Chollet, "Xception: Deep Learning with
/// Depthwise Separable Convolutions", 2017).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeparableConv2d {
    /// Number of images in the batch.
    pub n: usize,
    /// Number of input channels.
    pub c: usize,
    /// Number of output channels.
    pub o: usize,
    /// Windows of the depthwise convolution over height and width.
    pub windows: [Window; 2],
    /// Operations between the convolutions.
    pub between: Between,
}

const AXES: [WindowFields; 2] = [WindowFields::HEIGHT, WindowFields::WIDTH];

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let extents = [fields.required("h")?, fields.required("w")?];
    Ok(Box::new(SeparableConv2d {
        n: fields.number("n")?.unwrap_or(1),
        c: fields.required("c")?,
        o: fields.required("o")?,
        windows: Window::read(fields, extents, WindowFields::ALL, AXES)?,
        between: Between::read(fields)?,
    }))
}

impl WorkloadOperator for SeparableConv2d {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let [rows, columns] = self.windows;
        write!(f, "n={},c={},h={},w={},o={}", self.n, self.c, rows.extent, columns.extent, self.o)?;
        Window::write(f, self.windows, WindowFields::ALL, AXES)?;
        self.between.write(f)
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { n, c, o, windows, .. }, op) = (*self, KIND.name);
        let [h, w] = windows.map(|window| window.extent);
        check_positive(op, &[("n", n), ("c", c), ("h", h), ("w", w), ("o", o)])?;
        windows.iter().zip(AXES).try_for_each(|(window, fields)| window.check(op, fields, "dilated kernel"))?;

        self.between.check(op)?;

        let ([ph, pw], [kh, kw]) = (windows.map(|window| window.padded()), windows.map(|window| window.kernel));
        let [oh, ow] = windows.map(|window| window.outputs());
        let tensors: [(_, &[usize]); 5] = [
            ("input", &[n, c, ph, pw]),
            ("depthwise", &[c, kh, kw]),
            ("mid", &[n, c, oh, ow]),
            ("pointwise", &[o, c]),
            ("output", &[n, o, oh, ow]),
        ];
        check_elements(op, &tensors, &[n, c, oh, ow, kh, kw])?;
        check_elements(op, &[], &[n, c, oh, ow, o])
    }

    /// Axes `n, c, oh, ow | kh, kw`, then `n, o, oh, ow | c, kh, kw` with a single tap, like other
    /// convolutions.
    fn formula(&self) -> OperatorFormula {
        let Self { n, c, o, windows, between } = *self;
        let [oh, ow] = windows.map(|window| window.outputs());
        let tensor = |name, shape, is_constant| OperandTensor { name, shape, is_constant };

        let [image, channel, row, column, down, across] = axis_vars();
        let [h, w] = [windows[0].at(&row, &down), windows[1].at(&column, &across)];
        let image_rows = [("n", n, false), ("c", c, false), ("oh", oh, false), ("ow", ow, false)];
        let taps = [("kh", windows[0].kernel, true), ("kw", windows[1].kernel, true)];
        let input = tensor("input", vec![n, c, windows[0].extent, windows[1].extent], false);
        let weight = tensor("depthwise", vec![c, 1, windows[0].kernel, windows[1].kernel], true);
        let depthwise = OperatorFormula::product(
            &[&image_rows[..], &taps].concat(),
            [
                (input, vec![image.clone(), channel.clone(), h, w]),
                (weight, vec![channel.clone(), Affine::default(), down, across]),
            ],
            (vec![n, c, oh, ow], vec![image, channel, row, column]),
            1,
        );

        let [image, channel, row, column, from, down, across] = axis_vars();
        let axes = [
            ("n", n, false),
            ("o", o, false),
            ("oh", oh, false),
            ("ow", ow, false),
            ("c", c, true),
            ("kh", 1, true),
            ("kw", 1, true),
        ];
        let mid = tensor("mid", vec![n, c, oh, ow], false);
        let weight = tensor("pointwise", vec![o, c, 1, 1], true);
        let read = vec![image.clone(), from.clone(), row.clone() + &down, column.clone() + &across];
        let pointwise = OperatorFormula::product(
            &axes,
            [(mid, read), (weight, vec![channel.clone(), from, down, across])],
            (vec![n, o, oh, ow], vec![image, channel, row, column]),
            1,
        );
        between.formula(depthwise, pointwise)
    }
}
