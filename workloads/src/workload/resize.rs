//! Image resizing by repetition of elements. Other ways to resize are in `resample.rs`.

use std::fmt;

use autotune_ir::spec::{Reduction, axis_vars};

use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, Resample, WorkloadError, WorkloadOperator, check_elements,
    check_positive, resample, write_each,
};

pub(super) static KIND: OperatorKind = OperatorKind {
    name: "resize",
    fields: "n,c,h,w,s,sh,sw,oh,ow,mode,coord,round",
    example: "resize:c=64,h=28,w=28,s=2,mode=nearest",
    parse,
};

/// Choice of the input element for an output element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResizeMode {
    /// Nearest element. With integral scales, every element is repeated, for half-pixel and
    /// asymmetric coordinates alike.
    #[default]
    Nearest,
}

/// `output[n, c, sh*y + i, sw*x + j] = input[n, c, y, x]`: enlarges `NCHW` images by integral
/// scales.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResizeWorkload {
    /// Number of images in the batch.
    pub n: usize,
    /// Number of channels per image.
    pub c: usize,
    /// Input height in elements.
    pub h: usize,
    /// Input width in elements.
    pub w: usize,
    /// Factors between input and output height and width.
    pub scale: [usize; 2],
    /// Choice of the input element for an output element.
    pub mode: ResizeMode,
}

fn parse(fields: &Fields) -> Result<Box<dyn WorkloadOperator>, WorkloadError> {
    let (resample, scale) = resample::parse(fields)?;
    let Resample { n, c, input: [h, w], .. } = resample;
    Ok(match scale {
        Some(scale) => Box::new(ResizeWorkload { n, c, h, w, scale, mode: ResizeMode::Nearest }),
        None => Box::new(resample),
    })
}

impl WorkloadOperator for ResizeWorkload {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        if self.n != 1 {
            write!(f, "n={},", self.n)?;
        }
        write!(f, "c={},h={},w={}", self.c, self.h, self.w)?;
        write_each(f, "s", ["sh", "sw"], self.scale, None)?;
        match self.mode {
            ResizeMode::Nearest => f.write_str(",mode=nearest"),
        }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { n, c, h, w, scale: [sh, sw], .. }, op) = (*self, KIND.name);
        check_positive(op, &[("n", n), ("c", c), ("h", h), ("w", w), ("sh", sh), ("sw", sw)])?;
        let output = [n, c, h, sh, w, sw];
        check_elements(op, &[("input", &[n, c, h, w]), ("output", &output)], &output)
    }

    /// Axes `n, c, h, vh, w, vw`: element `vh`, `vw` of the repetitions of element `h`, `w`.
    fn formula(&self) -> OperatorFormula {
        let Self { n, c, h, w, scale: [sh, sw], .. } = *self;
        let axes =
            [("n", n, false), ("c", c, false), ("h", h, false), ("vh", sh, false), ("w", w, false), ("vw", sw, false)];
        let [image, channel, y, i, x, j] = axis_vars();
        let input = OperandTensor { name: "input", shape: vec![n, c, h, w], is_constant: false };
        let [row, column] = [y.clone() * sh as i64 + i, x.clone() * sw as i64 + j];
        OperatorFormula::reduced(
            &axes,
            Reduction::Sum,
            (input, vec![image.clone(), channel.clone(), y, x]),
            (vec![n, c, h * sh, w * sw], vec![image, channel, row, column]),
            1,
        )
    }
}
