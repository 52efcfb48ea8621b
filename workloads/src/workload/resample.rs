//! Image resizing with interpolation.

use std::fmt;

use autotune_ir::Affine;
use autotune_ir::program::{Access, BinaryOp, BufferId, Expr, UnaryOp};
use autotune_ir::spec::{Reduction, axis_vars};

use super::operator::{element, named_axes};
use super::pad::MOST_PLACES;
use super::resize::KIND;
use super::{
    Fields, OperandTensor, OperatorFormula, OperatorKind, Table, WorkloadError, WorkloadOperator, check_elements,
    check_positive,
};

const COORDS: [(&str, Coordinates); 3] = [
    ("half_pixel", Coordinates::HalfPixel),
    ("align_corners", Coordinates::AlignCorners),
    ("asymmetric", Coordinates::Asymmetric),
];
const ROUNDINGS: [(&str, Rounding); 4] = [
    ("prefer_floor", Rounding::PreferFloor),
    ("prefer_ceil", Rounding::PreferCeil),
    ("floor", Rounding::Floor),
    ("ceil", Rounding::Ceil),
];

/// Mapping of output to input coordinates: for element `y` of `oh`, in an input of `h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Coordinates {
    /// `(y + 1/2) * h/oh - 1/2`: aligns the edges of the images.
    #[default]
    HalfPixel,
    /// `y * (h-1)/(oh-1)`: aligns the centres of the outermost elements.
    AlignCorners,
    /// `y * h/oh`: aligns the upper left elements.
    Asymmetric,
}

/// Rounding of a coordinate between two elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rounding {
    /// To nearest; halfway cases down.
    #[default]
    PreferFloor,
    /// To nearest; halfway cases up.
    PreferCeil,
    /// Down, to the first element.
    Floor,
    /// Up, to the second element.
    Ceil,
}

/// Interpolation of the elements around a coordinate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sampling {
    /// The nearest element, with a rounding.
    Nearest(Rounding),
    /// Bilinear interpolation of the four elements around.
    Linear,
}

/// Interpolates `output[n, c, y, x]` from the elements around its coordinates in `input[n, c, ..]`.
/// Coordinates outside the image are clamped. Coordinates and roundings are those of ONNX's
/// `ResizeWorkload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Resample {
    /// Number of images in the batch.
    pub n: usize,
    /// Number of channels per image.
    pub c: usize,
    /// Input height and width.
    pub input: [usize; 2],
    /// Output height and width.
    pub output: [usize; 2],
    /// Mapping of output to input coordinates.
    pub coordinates: Coordinates,
    /// Interpolation of the elements around a coordinate.
    pub sampling: Sampling,
}

impl Resample {
    /// Returns the input coordinate of an output element along an axis, as numerator and
    /// denominator.
    fn place(&self, axis: usize, y: i128) -> [i128; 2] {
        let (from, to) = (self.input[axis] as i128, self.output[axis] as i128);
        match self.coordinates {
            Coordinates::HalfPixel => [(2 * y + 1) * from - to, 2 * to],
            Coordinates::AlignCorners => [y * (from - 1), (to - 1).max(1)],
            Coordinates::Asymmetric => [y * from, to],
        }
    }

    /// Returns the input coordinate of each output element along height (0) or width (1), clamped,
    /// and rounded for nearest sampling.
    pub fn places(&self, axis: usize) -> Vec<f64> {
        let last = self.input[axis] as i128 - 1;
        let place = |y: i128| {
            let [number, of] = self.place(axis, y);
            let nearest = |number: i128, of: i128| number.div_euclid(of).clamp(0, last) as f64;
            match self.sampling {
                Sampling::Linear => (number as f64 / of as f64).clamp(0.0, last as f64),
                Sampling::Nearest(Rounding::Floor) => nearest(number, of),
                Sampling::Nearest(Rounding::Ceil) => nearest(number + of - 1, of),
                Sampling::Nearest(Rounding::PreferFloor) => nearest(2 * number + of - 1, 2 * of),
                Sampling::Nearest(Rounding::PreferCeil) => nearest(2 * number + of, 2 * of),
            }
        };
        (0..self.output[axis] as i128).map(place).collect()
    }

    /// Returns the integral factors between input and output sizes, if the resizing only repeats
    /// elements.
    pub fn scale(&self) -> Option<[usize; 2]> {
        let repeats = matches!(
            (self.coordinates, self.sampling),
            (Coordinates::HalfPixel, Sampling::Nearest(Rounding::PreferFloor | Rounding::PreferCeil))
                | (Coordinates::Asymmetric, Sampling::Nearest(Rounding::Floor))
        );
        let is_whole = (0..2).all(|axis| self.output[axis].is_multiple_of(self.input[axis].max(1)));
        (repeats && is_whole).then(|| std::array::from_fn(|axis| self.output[axis] / self.input[axis].max(1)))
    }
}

/// Reads a resizing, with the factors by which elements are repeated, if that is all.
pub(super) fn parse(fields: &Fields) -> Result<(Resample, Option<[usize; 2]>), WorkloadError> {
    let [h, w] = [fields.required("h")?, fields.required("w")?];
    let own = [fields.number("oh")?, fields.number("ow")?];
    let unfit = |field, reason: &str| Err(WorkloadError::Unfit { op: KIND.name, field, reason: reason.into() });
    let output = match own {
        [None, None] => {
            let [sh, sw] = fields.each("s", ["sh", "sw"], None)?;
            let overflow = || WorkloadError::Overflow { op: KIND.name, what: "output" };
            [h.checked_mul(sh).ok_or_else(overflow)?, w.checked_mul(sw).ok_or_else(overflow)?]
        }
        [Some(oh), Some(ow)] => {
            for field in ["s", "sh", "sw"] {
                if fields.number(field)?.is_some() {
                    return unfit(field, "cannot be combined with 'oh' and 'ow'");
                }
            }
            [oh, ow]
        }
        [Some(_), None] => return unfit("ow", "is required with 'oh'"),
        [None, Some(_)] => return unfit("oh", "is required with 'ow'"),
    };

    let is_linear = [("nearest", false), ("linear", true)];
    let is_linear = fields.word("mode", &is_linear, "an interpolation (nearest or linear)")?.unwrap_or(false);
    let coordinates =
        fields.word("coord", &COORDS, "a coordinate mapping (half_pixel, align_corners or asymmetric)")?;
    let rounding = fields.word("round", &ROUNDINGS, "a rounding (prefer_floor, prefer_ceil, floor or ceil)")?;
    let sampling = match (is_linear, rounding) {
        (true, Some(_)) => return unfit("round", "applies only to mode=nearest"),
        (true, None) => Sampling::Linear,
        (false, rounding) => Sampling::Nearest(rounding.unwrap_or_default()),
    };
    let (n, c) = (fields.number("n")?.unwrap_or(1), fields.required("c")?);
    let made = Resample { n, c, input: [h, w], output, coordinates: coordinates.unwrap_or_default(), sampling };
    let scale = made.scale();
    Ok((made, scale))
}

impl WorkloadOperator for Resample {
    fn kind(&self) -> &'static OperatorKind {
        &KIND
    }

    fn write_fields(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let ([h, w], [oh, ow]) = (self.input, self.output);
        if self.n != 1 {
            write!(f, "n={},", self.n)?;
        }
        let mode = if self.sampling == Sampling::Linear { "linear" } else { "nearest" };
        write!(f, "c={},h={h},w={w},oh={oh},ow={ow},mode={mode}", self.c)?;
        if let Some((word, _)) = COORDS[1..].iter().find(|(_, known)| *known == self.coordinates) {
            write!(f, ",coord={word}")?;
        }
        match ROUNDINGS[1..].iter().find(|(_, known)| Sampling::Nearest(*known) == self.sampling) {
            Some((word, _)) => write!(f, ",round={word}"),
            None => Ok(()),
        }
    }

    fn check(&self) -> Result<(), WorkloadError> {
        let (Self { n, c, input: [h, w], output: [oh, ow], .. }, op) = (*self, KIND.name);
        check_positive(op, &[("n", n), ("c", c), ("h", h), ("w", w), ("oh", oh), ("ow", ow)])?;
        for (field, extent) in [("h", h), ("w", w), ("oh", oh), ("ow", ow)] {
            if extent > MOST_PLACES {
                let reason = format!("{extent} exceeds the maximum of {MOST_PLACES}");
                return Err(WorkloadError::Unfit { op, field, reason });
            }
        }
        check_elements(op, &[("input", &[n, c, h, w]), ("output", &[n, c, oh, ow])], &[n, c, oh, ow])
    }

    /// Axes `n, c, oh, ow`, without a reduction.
    fn formula(&self) -> OperatorFormula {
        let Self { n, c, input: [h, w], output: [oh, ow], sampling, .. } = *self;
        let [image, channel, y, x] = axis_vars();
        let first = vec![image.clone(), channel.clone(), Affine::default(), Affine::default()];
        let [row, column] = [(1, &y), (2, &x)].map(|(table, at)| element(table, std::slice::from_ref(at)));
        let at = |row: Expr, column: Expr| {
            let first = Access { buffer: BufferId(0), index: first.clone().into() };
            Expr::gather(first, vec![2, 3], vec![row, column])
        };

        let one = || Expr::Const(1.0);
        let whole = |place: &Expr| Expr::unary(UnaryOp::Floor, place.clone());
        let next = |place: &Expr| Expr::sum(whole(place), one());
        // `(1 - f) * a + f * b`, where `f` is the fraction of the coordinate.
        let between = |place: &Expr, a: Expr, b: Expr| {
            let rest = Expr::binary(BinaryOp::Sub, place.clone(), whole(place));
            let before = Expr::binary(BinaryOp::Sub, one(), rest.clone());
            Expr::sum(Expr::product(before, a), Expr::product(rest, b))
        };
        let of_row = |row: Expr| between(&column, at(row.clone(), whole(&column)), at(row, next(&column)));
        let value = match sampling {
            Sampling::Nearest(_) => at(row.clone(), column.clone()),
            Sampling::Linear => between(&row, of_row(whole(&row)), of_row(next(&row))),
        };
        OperatorFormula {
            operands: vec![OperandTensor { name: "input", shape: vec![n, c, h, w], is_constant: false }],
            computed: Vec::new(),
            axes: named_axes(&[("n", n, false), ("c", c, false), ("oh", oh, false), ("ow", ow, false)]),
            value,
            reduction: Reduction::Sum,
            share: None,
            shape: vec![n, c, oh, ow],
            index: vec![image, channel, y, x],
            channel: 1,
        }
    }

    fn tables(&self) -> Vec<Table> {
        let elements = |axis| self.places(axis).into_iter().map(|place| place as f32).collect();
        [(0, "row_of"), (1, "column_of")].map(|(axis, name)| Table { name, elements: elements(axis) }).into()
    }
}
