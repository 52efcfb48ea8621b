//! Imports of Fourier transforms, as products with constant matrices, and of their windows.

use std::f64::consts::TAU;

use super::binary::Binary;
use super::conv::Conv;
use super::prelude::*;
use super::window::Sliding;
use crate::onnx::call::Result;
use crate::onnx::error::unfit;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("DFT", transform),
    OnnxOperator::one("STFT", transform_of_frames),
    OnnxOperator::one("HannWindow", |call| cosine_window(call, [0.5, 0.5, 0.0])),
    OnnxOperator::one("HammingWindow", |call| cosine_window(call, [25.0 / 46.0, 21.0 / 46.0, 0.0])),
    OnnxOperator::one("BlackmanWindow", |call| cosine_window(call, [0.42, 0.5, 0.08])),
    OnnxOperator::one("MelWeightMatrix", mel_weights),
];

/// A discrete Fourier transform of numbers with `from_parts` parts, real and imaginary, to numbers
/// with `to_parts`.
struct Fourier {
    length: usize,
    is_inverse: bool,
    from_parts: usize,
    to_parts: usize,
    /// True if an inverse transform has one of each two conjugates only.
    is_halved: bool,
}

impl Fourier {
    /// Returns the factor of part `c` of input `n` in part `d` of output `k`.
    fn factor(&self, [k, d]: [usize; 2], [n, c]: [usize; 2]) -> f64 {
        // Reducing the product keeps the angle exact for long transforms.
        let turns = (k as u64).wrapping_mul(n as u64) % self.length as u64;
        let angle = TAU * turns as f64 / self.length as f64;
        let (sine, cosine) = if self.is_inverse { angle } else { -angle }.sin_cos();
        let product = match (d, c) {
            (0, 0) | (1, 1) => cosine,
            (0, _) => -sine,
            _ => sine,
        };
        let weight = if self.is_inverse { 1.0 / self.length as f64 } else { 1.0 };
        let has_conjugate = self.is_halved && n > 0 && 2 * n != self.length;
        product * weight * if has_conjugate { 2.0 } else { 1.0 }
    }

    /// Adds the matrix from `from` inputs to `to` outputs, the parts of each number side by side.
    fn matrix(&self, call: &mut Call, to: usize, from: usize) -> Result<ImportValue> {
        let (rows, columns) = (to.saturating_mul(self.to_parts), from.saturating_mul(self.from_parts));
        let element = |at: usize| {
            let (row, column) = (at / columns, at % columns);
            let (to, from) =
                ([row / self.to_parts, row % self.to_parts], [column / self.from_parts, column % self.from_parts]);
            self.factor(to, from) as f32
        };
        call.computed(&[rows, columns], || (0..rows * columns).map(element).collect())
    }
}

/// Imports a transform along an axis, of the first elements or with zeros behind the last.
fn transform(call: &mut Call) -> Result<ImportValue> {
    call.check_most(3)?;
    let x = call.operand(0)?;
    let (shape, rank) = (call.shape(x), call.rank(x));
    let number = match call.version < 20 {
        true => call.int_or("axis", 1)?,
        false => call.single_integer(2)?.unwrap_or(-2),
    };
    let (axis, is_inverse, is_halved) =
        (axis(number, rank)?, call.flag("inverse", false)?, call.flag("onesided", false)?);
    let from_parts = shape[rank - 1];
    if axis + 1 == rank || !(1..=2).contains(&from_parts) {
        return unfit(format!("numbers of shape {shape:?} have no real and imaginary parts along the last axis"));
    }
    if is_halved && (from_parts == 2) != is_inverse {
        return Err(attribute("onesided", "a transform of real numbers, or an inverse one to real numbers, is needed"));
    }

    let own = shape[axis];
    let length = match call.length(1)? {
        Some(length) => length,
        None if is_halved && is_inverse => own.saturating_sub(1).saturating_mul(2),
        None => own,
    };
    if length == 0 {
        return unfit("a transform of nothing");
    }
    let half = length / 2 + 1;
    let (from, to) = match (is_halved, is_inverse) {
        (true, true) => (own.min(half), length),
        (true, false) => (own.min(length), half),
        (false, _) => (own.min(length), length),
    };
    let fourier = Fourier {
        length,
        is_inverse,
        from_parts,
        to_parts: if is_halved && is_inverse { 1 } else { 2 },
        is_halved: is_halved && is_inverse,
    };

    // The numbers of a line become adjacent.
    let x = call.part(x, axis, [0, from])?;
    let mut order: Vec<usize> = (0..rank).filter(|&other| other != axis).collect();
    order.insert(rank - 2, axis);
    let lines = call.transpose(&order, x)?;
    let mut shape = call.shape(lines);
    let columns = from.saturating_mul(from_parts);
    let lines = call.reshape(&[&shape[..rank - 2], &[columns]].concat(), lines)?;

    let matrix = fourier.matrix(call, to, from)?;
    let product = call.product_along(lines, rank - 2, matrix)?;
    shape[rank - 2..].copy_from_slice(&[to, fourier.to_parts]);
    let product = call.reshape(&shape, product)?;
    let mut back: Vec<usize> = (0..rank).filter(|&other| other != rank - 2).collect();
    back.insert(axis, rank - 2);
    call.transpose(&back, product)
}

/// Imports transforms of the frames of a signal: a convolution by the rows of the matrix, each of
/// which is multiplied by the window.
fn transform_of_frames(call: &mut Call) -> Result<ImportValue> {
    call.check_most(4)?;
    let (signal, window) = (call.operand(0)?, call.optional(2));
    let &[batch, samples, from_parts @ 1..=2] = &call.shape(signal)[..] else {
        return unfit(format!("a signal of shape {:?}; expected batch, time, one or two parts", call.shape(signal)));
    };
    let stride = call.length(1)?.filter(|&step| step > 0);
    let stride = stride.ok_or_else(|| NodeError::Input { input: 1, reason: "is missing or zero".into() })?;
    let of_window = window.map(|window| call.shape(window));
    let length = match (call.length(3)?, &of_window) {
        (Some(length), _) => length,
        (None, Some(window)) => window.first().copied().unwrap_or(0),
        (None, None) => samples,
    };
    if length == 0 || length > samples || of_window.as_ref().is_some_and(|window| window[..] != [length]) {
        return unfit(format!("frames of {length} of {samples} samples, with a window of shape {of_window:?}"));
    }
    let is_halved = call.flag("onesided", true)?;
    if is_halved && from_parts == 2 {
        return Err(attribute("onesided", "is for real signals only"));
    }

    let to = if is_halved { length / 2 + 1 } else { length };
    let fourier = Fourier { length, is_inverse: false, from_parts, to_parts: 2, is_halved: false };
    let matrix = fourier.matrix(call, to, length)?;
    let rows = to.saturating_mul(2);
    let kernels = call.reshape(&[rows, length, from_parts], matrix)?;
    let mut kernels = call.transpose(&[0, 2, 1], kernels)?;
    if let Some(window) = window {
        kernels = call.binary(Binary::Mul, kernels, window)?;
    }

    let lines = call.transpose(&[0, 2, 1], signal)?;
    let frames = Conv { window: vec![Sliding::new(length).stride(stride)], groups: 1 };
    let frames = call.add(frames, &[lines, kernels])?;
    let count = (samples - length) / stride + 1;
    let frames = call.reshape(&[batch, to, 2, count], frames)?;
    call.transpose(&[0, 3, 1, 2], frames)
}

/// Imports a window `a - b cos(x) + c cos(2 x)` with `x` from 0 to a full turn, which a periodic
/// window does not reach.
fn cosine_window(call: &mut Call, [a, b, c]: [f64; 3]) -> Result<ImportValue> {
    call.check_most(1)?;
    let size = call.length(0)?.ok_or_else(|| missing(0))?;
    let dtype = call.element_type("output_datatype")?.unwrap_or(DType::F32);
    let steps = if call.flag("periodic", true)? { size } else { size.saturating_sub(1) };
    let element = |at: usize| {
        let x = TAU * at as f64 / steps as f64;
        (a - b * x.cos() + c * (2.0 * x).cos()) as f32
    };
    let window = call.computed(&[size], || match size {
        // A single element has no angle.
        1 => vec![1.0],
        _ => (0..size).map(element).collect(),
    })?;
    call.cast(dtype, window)
}

/// Imports a matrix from the frequencies of a spectrum to bands of equal width on the mel scale:
/// triangles that rise from the middle of the band before and fall to that of the next one.
fn mel_weights(call: &mut Call) -> Result<ImportValue> {
    call.check_most(5)?;
    let [bands, length, rate] = [0, 1, 2].map(|input| call.length(input)?.ok_or_else(|| missing(input)));
    let (bands, length, rate) = (bands?, length?, rate?);
    let [low, high] = [3, 4].map(|input| call.known_number(input)?.ok_or_else(|| missing(input)));
    let [low, high] = [low?, high?].map(|hertz| 2595.0 * (1.0 + f64::from(hertz) / 700.0).log10());
    let dtype = call.element_type("output_datatype")?.unwrap_or(DType::F32);
    if rate == 0 || bands > MOST_BANDS || !(low..f64::INFINITY).contains(&high) {
        return unfit(format!("{bands} bands of a spectrum of {rate} samples a second"));
    }

    let rows = length / 2 + 1;
    let width = (high - low) / (bands + 2) as f64;
    let edge = |number: usize| {
        let hertz = 700.0 * (10f64.powf((low + width * number as f64) / 2595.0) - 1.0);
        ((length as f64 + 1.0) * hertz / rate as f64).floor() as usize
    };
    let edges: Vec<usize> = (0..bands + 2).map(edge).collect();
    let weights = call.computed(&[rows, bands], || {
        let of = |at: usize| triangle(at / bands, &edges[at % bands..][..3]);
        (0..rows * bands).map(of).collect()
    })?;
    call.cast(dtype, weights)
}

/// Maximum number of bands of a mel scale.
const MOST_BANDS: usize = 1 << 16;

/// Returns the height at `x` of a triangle with its start, peak and end at these positions.
fn triangle(x: usize, ends: &[usize]) -> f32 {
    let &[start, peak, end] = ends else { return 0.0 };
    let height = match x {
        _ if x == peak => 1.0,
        _ if (start..peak).contains(&x) => (x - start) as f64 / (peak - start) as f64,
        _ if (peak..end).contains(&x) => (end - x) as f64 / (end - peak) as f64,
        _ => 0.0,
    };
    height as f32
}
