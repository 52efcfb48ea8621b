//! Two-dimensional transposed convolution.
//!
//! Every element of the input contributes to `kh x kw` elements of the output. Those of adjacent
//! elements are `stride` apart:
//!
//! ```text
//! output[n, o, stride*y + i - pad, stride*x + j - pad] += input[n, c, y, x] * weight[c, o, i, j]
//! ```
//!
//! As a sum over the input elements that an output reads, most taps fall between elements.
//! Inserting zeros there takes `stride^2` times too many multiplications, and a test at each tap
//! prevents vector loads. Instead, outputs are divided into *phases*. Outputs `stride` apart belong
//! to one phase. They read the same taps, which are `stride` apart, at adjacent elements. Each
//! phase is a dense convolution of stride 1 with its part of the weights, which are packed ahead of
//! time (W. Shi et al., "Is the deconvolution layer the same as a convolutional layer?", 2016):
//!
//! ```text
//! output[stride*q + phase] = Σ input[q + shift(phase) - j] * weight[tap(phase) + stride*j],    j in 0..ceil(kernel / stride)
//! ```
//!
//! If the stride does not divide the kernel, weights beyond it are zero. `shift` is 0 or 1, after
//! whole strides of the padding. If the padding is half a stride more than whole strides, the
//! phases have two halves with one shift each.

use std::fmt;

use autotune_ir::Affine;
use autotune_ir::spec::axis_vars;

use super::window::{Window, WindowFields};
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, WorkloadError, WorkloadOperator, check_elements,
    check_positive, write_each,
};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "conv_transpose2d",
    fields: "n,c,h,w,o,k,kh,kw,s,sh,sw,p,ph,pw,op,oph,opw,g",
    example: "conv_transpose2d:c=512,h=4,w=4,o=256,k=4,s=2,p=1",
    parse,
};

const AXES: [WindowFields; 2] = [WindowFields::HEIGHT, WindowFields::WIDTH];
const OUTPUT_PAD: [&str; 2] = ["oph", "opw"];

/// A two-dimensional transposed convolution with `NCHW` input, `C(O/g)KhKw` weights and `NCHW`
/// output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConvTranspose2d {
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
    /// Kernel height and width.
    pub kernel: [usize; 2],
    /// Distance over height and width between the outputs of adjacent input elements.
    pub stride: [usize; 2],
    /// Rows and columns that are cut off at both ends.
    pub pad: [usize; 2],
    /// Rows and columns that are added at the end.
    pub output_pad: [usize; 2],
    /// Number of channel groups.
    pub groups: usize,
}

/// Phases of outputs along one axis. Output `stride*q + half*upper + lower` has number `q` in the
/// phase with digits `upper` and `lower`.
struct OutputPhases {
    stride: i64,
    /// Number of values of the lower digit of a phase.
    lower: usize,
    /// Number of values of the upper digit of a phase.
    upper: usize,
    /// Number of outputs in each phase.
    outputs: usize,
    /// Number of taps in each phase.
    taps: usize,
    /// Input element that the first output of the lowest phase reads at its first tap.
    first_read: i64,
    /// Kernel tap of that read.
    first_tap: i64,
}

impl OutputPhases {
    fn of(outputs: usize, kernel: usize, stride: usize, pad: usize) -> Self {
        let (whole, rest) = ((pad / stride) as i64, pad % stride);
        let (outputs, step) = (outputs / stride, stride as i64);
        if rest == 0 || 2 * rest == stride {
            let taps = kernel.div_ceil(stride);
            let upper = if rest == 0 { 1 } else { 2 };
            let (last, lower) = (taps as i64 - 1, stride / upper);
            // The lower half of the phases begins in the middle of a stride, the upper half at the
            // next stride.
            return Self {
                stride: step,
                lower,
                upper,
                outputs,
                taps,
                first_read: whole - last,
                first_tap: rest as i64 + step * last,
            };
        }

        // One more tap covers the phases beyond the end of a stride.
        let last = (kernel as i64 - 1 - rest as i64).div_euclid(step);
        Self {
            stride: step,
            lower: stride,
            upper: 1,
            outputs,
            taps: (last + 2) as usize,
            first_read: whole - last,
            first_tap: rest as i64 + step * last,
        }
    }

    /// Returns the distance between the halves of phases.
    fn half(&self) -> i64 {
        self.lower as i64
    }

    /// Returns the input element that is read: `q + upper + tap`, plus a constant.
    fn read(&self, upper: &Affine, q: &Affine, tap: &Affine) -> Affine {
        let shift = if self.upper > 1 { upper.clone() } else { Affine::default() };
        q.clone() + shift + tap.clone() + self.first_read
    }

    /// Returns the tap of the kernel, in descending order.
    fn tap(&self, upper: &Affine, lower: &Affine, tap: &Affine) -> Affine {
        upper.clone() * -self.half() + lower.clone() + tap.clone() * -self.stride + self.first_tap
    }

    /// Returns the output element that is written.
    fn written(&self, upper: &Affine, lower: &Affine, q: &Affine) -> Affine {
        q.clone() * self.stride + upper.clone() * self.half() + lower.clone()
    }
}

impl ConvTranspose2d {
    /// Returns the output height and width.
    pub fn output_hw(&self) -> [usize; 2] {
        std::array::from_fn(|axis| {
            let whole = ([self.h, self.w][axis] - 1) * self.stride[axis] + self.kernel[axis] + self.output_pad[axis];
            whole - 2 * self.pad[axis]
        })
    }

    fn windows(&self) -> [Window; 2] {
        let extents = [self.h, self.w];
        std::array::from_fn(|axis| Window {
            extent: extents[axis],
            kernel: self.kernel[axis],
            stride: self.stride[axis],
            pad: self.pad[axis],
            dilation: 1,
        })
    }

    /// Fails with the first invalid field of an axis.
    fn check_axis(&self, axis: usize) -> Result<(), WorkloadError> {
        let (op, names, own) = (KIND.name, AXES[axis], self.windows()[axis]);
        let Window { extent, kernel, stride, pad, .. } = own;
        let output_pad = self.output_pad[axis];
        check_positive(op, &[(names.kernel, kernel), (names.stride, stride)])?;
        let unfit = |field, reason| Err(WorkloadError::Unfit { op, field, reason });
        if output_pad >= stride {
            return unfit(OUTPUT_PAD[axis], format!("{output_pad} is not smaller than the stride ({stride})"));
        }

        let overflow = || WorkloadError::Overflow { op, what: "output" };
        let ends = [kernel, output_pad];
        let whole = (extent - 1).checked_mul(stride);
        let whole = ends.into_iter().try_fold(whole.ok_or_else(overflow)?, |sum, end| sum.checked_add(end));
        let whole = whole.ok_or_else(overflow)?;
        if pad.checked_mul(2).is_none_or(|cut| cut >= whole) {
            return unfit(names.pad, format!("padding {pad} removes the whole output ({whole})"));
        }
        let output = whole - 2 * pad;
        if !output.is_multiple_of(stride) {
            let fits = (output_pad + stride - output % stride) % stride;
            let reason = format!("the output extent {output} is not a multiple of the stride {stride}: use {fits}");
            return unfit(OUTPUT_PAD[axis], reason);
        }
        Ok(())
    }

    fn phases(&self) -> [OutputPhases; 2] {
        let outputs = self.output_hw();
        std::array::from_fn(|axis| {
            OutputPhases::of(outputs[axis], self.kernel[axis], self.stride[axis], self.pad[axis])
        })
    }
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    Ok(Box::new(ConvTranspose2d {
        n: fields.number("n")?.unwrap_or(1),
        c: fields.required("c")?,
        h: fields.required("h")?,
        w: fields.required("w")?,
        o: fields.required("o")?,
        kernel: fields.each("k", ["kh", "kw"], None)?,
        stride: fields.each("s", ["sh", "sw"], Some(1))?,
        pad: fields.each("p", ["ph", "pw"], Some(0))?,
        output_pad: fields.each("op", OUTPUT_PAD, Some(0))?,
        groups: fields.number("g")?.unwrap_or(1),
    }))
}

impl WorkloadOperator for ConvTranspose2d {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        write!(f, "n={},c={},h={},w={},o={}", self.n, self.c, self.h, self.w, self.o)?;
        Window::write(f, self.windows(), WindowFields::ALL, AXES)?;
        write_each(f, "op", OUTPUT_PAD, self.output_pad, Some(0))?;
        if self.groups != 1 { write!(f, ",g={}", self.groups) } else { Ok(()) }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let Self { n, c, h, w, o, groups, kernel: [kh, kw], .. } = *self;
        let op = KIND.name;
        check_positive(op, &[("n", n), ("c", c), ("h", h), ("w", w), ("o", o), ("g", groups)])?;
        if !c.is_multiple_of(groups) || !o.is_multiple_of(groups) {
            let reason = format!("{groups} groups do not divide c={c} and o={o}");
            return Err(WorkloadError::Unfit { op, field: "g", reason });
        }
        self.check_axis(0)?;
        self.check_axis(1)?;

        let ([oh, ow], group_o) = (self.output_hw(), o / groups);
        let tensors: [(_, &[_]); 3] =
            [("input", &[n, c, h, w]), ("weight", &[c, group_o, kh, kw]), ("output", &[n, o, oh, ow])];
        check_elements(op, &tensors, &[n, o, oh, ow, c / groups, kh, kw])
    }

    /// Axes `n, uh, uw, g, vh, vw, o, oh, ow | c, kh, kw`.
    ///
    /// A phase has the upper digits `uh`, `uw` and the lower digits `vh`, `vw`. `oh` and `ow`
    /// number its outputs, `kh` and `kw` its taps. `o` and `c` are counted within a group.
    fn formula(&self) -> OperatorFormula {
        let [rows, columns] = self.phases();
        let (group_o, group_c) = (self.o / self.groups, self.c / self.groups);
        let axes = [
            ("n", self.n, false),
            ("uh", rows.upper, false),
            ("uw", columns.upper, false),
            ("g", self.groups, false),
            ("vh", rows.lower, false),
            ("vw", columns.lower, false),
            ("o", group_o, false),
            ("oh", rows.outputs, false),
            ("ow", columns.outputs, false),
            ("c", group_c, true),
            ("kh", rows.taps, true),
            ("kw", columns.taps, true),
        ];
        let [n, uh, uw, g, vh, vw, o, y, x, c, kh, kw] = axis_vars();
        let from = g.clone() * group_c as i64 + c;
        let to = g * group_o as i64 + o.clone();

        let input = OperandTensor { name: "input", shape: vec![self.n, self.c, self.h, self.w], is_constant: false };
        let [height, width] = self.kernel;
        let weight = OperandTensor { name: "weight", shape: vec![self.c, group_o, height, width], is_constant: true };
        let [oh, ow] = self.output_hw();
        let read = vec![n.clone(), from.clone(), rows.read(&uh, &y, &kh), columns.read(&uw, &x, &kw)];
        let factor = vec![from, o, rows.tap(&uh, &vh, &kh), columns.tap(&uw, &vw, &kw)];
        let written = vec![n, to, rows.written(&uh, &vh, &y), columns.written(&uw, &vw, &x)];
        OperatorFormula::product(&axes, [(input, read), (weight, factor)], (vec![self.n, self.o, oh, ow], written), 1)
    }
}
