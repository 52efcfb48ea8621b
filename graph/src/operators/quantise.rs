//! Quantisation to 8-bit integers and back, by scales and zero points.

use super::binary::Binary;
use super::choose::Where;
use super::prelude::*;
use crate::memory::is_of_bytes;
use crate::onnx::MICROSOFT;
use crate::onnx::error;
use autotune_ir::program::UnaryOp;
use autotune_workloads::ReduceOp;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("QuantizeLinear", quantize_linear).of_bytes(),
    OnnxOperator::one("DequantizeLinear", dequantize_linear).of_bytes(),
    OnnxOperator::one("QuantizeLinear", quantize_linear).of_bytes().in_domain(MICROSOFT),
    OnnxOperator::one("DequantizeLinear", dequantize_linear).of_bytes().in_domain(MICROSOFT),
    OnnxOperator::many("DynamicQuantizeLinear", dynamic),
];

/// `saturate(round(x / scale) + zero)` as [`DType::U8`] or [`DType::I8`]; halfway cases round to
/// even and NaN becomes 0. The operands are `x`, a scale and a zero point of the output's type;
/// scale and zero point are single numbers, or one for each element along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantize {
    /// Type of the output.
    pub dtype: DType,
    /// Axis of scale and zero point, if they have several elements.
    pub axis: usize,
}

/// `(x - zero) * scale` for 8-bit integers. The operands are those of [`Quantize`], the zero point
/// of the type of `x`. Constants remain integers until rewrite rules have seen them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dequantize {
    /// Axis of scale and zero point, if they have several elements.
    pub axis: usize,
}

/// Rounding to an 8-bit type, halfway cases to even, with saturation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saturate(pub DType);

/// Fails unless scale and zero point are single numbers, or have one for each element along an
/// axis.
fn check(x: &[usize], [scale, zero]: [&[usize]; 2], axis: usize) -> Result<(), OpError> {
    if product(scale) == Some(1) && product(zero) == Some(1) {
        return Ok(());
    }
    let extent = x[axis_of(axis, x)?];
    match scale == [extent] && zero == [extent] {
        true => Ok(()),
        false => unfit(format!(
            "scale of shape {scale:?} and zero point of shape {zero:?} do not match {extent} elements along axis {axis}: \
             expected one each, or one for each element; blocks are not supported"
        )),
    }
}

/// Returns a function from an element's number to the number of its scale.
fn places(shape: &[usize], axis: usize, scales: usize) -> impl Fn(usize) -> usize {
    let inner: usize = shape.iter().skip(axis + 1).product();
    move |at| if scales == 1 { 0 } else { at / inner % scales }
}

impl Operator for Quantize {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 3..=3)?;
        check_dtype(operands, 0, DType::F32)?;
        check_dtype(operands, 1, DType::F32)?;
        check_dtype(operands, 2, self.dtype)?;
        check(operands[0].0, [operands[1].0, operands[2].0], self.axis)?;
        match is_of_bytes(self.dtype) {
            true => Ok((operands[0].0.to_vec(), self.dtype)),
            false => unfit(format!("{} is not an 8-bit type", self.dtype)),
        }
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (x, scale) = (values::<f32>(operands, 0)?, values::<f32>(operands, 1)?);
        let zero = operands[2].to_numbers();
        let place = places(shape, self.axis, scale.len());
        let whole = |(at, x): (usize, &f32)| {
            let number = (x / scale[place(at)]).round_ties_even() + zero[place(at)];
            if number.is_nan() { 0.0 } else { self.dtype.stored(number) }
        };
        Tensor::of_numbers(shape, self.dtype, &x.iter().enumerate().map(whole).collect::<Vec<_>>())
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("QuantizeLinear", vec![int("axis", self.axis)])
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        true
    }
}

impl Operator for Dequantize {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 3..=3)?;
        let (x, dtype) = operands[0];
        if !is_of_bytes(dtype) {
            return Err(OpError::DType { operand: 0, found: dtype, wanted: "u8 or i8" });
        }
        check_dtype(operands, 1, DType::F32)?;
        check_dtype(operands, 2, dtype)?;
        check(x, [operands[1].0, operands[2].0], self.axis)?;
        Ok((x.to_vec(), DType::F32))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let (x, zero) = (operands[0].to_numbers(), operands[2].to_numbers());
        let scale = values::<f32>(operands, 1)?;
        let place = places(shape, self.axis, scale.len());
        let number = |(at, x): (usize, &f32)| (x - zero[place(at)]) * scale[place(at)];
        tensor(shape, x.iter().enumerate().map(number).collect())
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator("DequantizeLinear", vec![int("axis", self.axis)])
    }

    fn is_cheap(&self) -> bool {
        true
    }

    fn keeps_constants(&self) -> bool {
        true
    }
}

impl Operator for Saturate {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let shape = shapes_of(operands, 1..=1, DType::F32)?[0];
        match is_of_bytes(self.0) {
            true => Ok((shape.to_vec(), self.0)),
            false => unfit(format!("{} is not an 8-bit type", self.0)),
        }
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let whole = |x: &f32| if x.is_nan() { 0.0 } else { self.0.stored(*x) };
        Tensor::of_numbers(shape, self.0, &values(operands, 0)?.iter().map(whole).collect::<Vec<_>>())
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        let zero = to.constant(&Tensor::of_numbers(&[], self.0, &[0.0]).map_err(|e| to.wrong(e.to_string()))?);
        let (x, one) = (to.input(0), to.number(1.0));
        to.node("QuantizeLinear", &[&x, &one, &zero], Vec::new())
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        true
    }
}

// Import of quantised tensors.
impl Call<'_> {
    /// Returns a scale; a constant one must be positive.
    pub(super) fn scale(&self, input: usize) -> call::Result<ImportValue> {
        let value = self.operand(input)?;
        let wrong = |reason: String| Err(NodeError::Input { input, reason });
        if self.dtype(value) != DType::F32 {
            return wrong(format!("scale is {}, expected f32", self.dtype(value)));
        }
        let Some(constant) = self.constant_of(value) else { return Ok(value) };
        let numbers = constant.tensor()?.to_numbers();
        match numbers.iter().find(|scale| !(scale.is_finite() && **scale > 0.0)) {
            Some(scale) => wrong(format!("scale is {scale}, expected a positive number")),
            None => Ok(value),
        }
    }

    /// Returns an 8-bit zero point for each scale: zeros if the input is absent.
    pub(super) fn zero(&mut self, input: usize, scale: ImportValue, dtype: DType) -> call::Result<ImportValue> {
        let shape = self.shape(scale);
        match self.optional(input) {
            Some(zero) if self.dtype(zero) == dtype => {
                // A single zero point for several scales is repeated.
                let is_one = elements(&self.shape(zero))? == 1 && elements(&shape)? > 1;
                if !is_one {
                    return Ok(zero);
                }
                let zero = self.reshape(&[], zero)?;
                self.expand(&shape, zero)
            }
            Some(zero) => {
                let reason = format!("zero point is {}, expected {dtype}", self.type_word(zero));
                Err(NodeError::Input { input, reason })
            }
            None => {
                let zeros = vec![0.0; elements(&shape)?];
                Ok(self.constant(Tensor::of_numbers(&shape, dtype, &zeros)?))
            }
        }
    }

    /// Returns a type's name for messages; all wider integers are one type here.
    fn type_word(&self, value: ImportValue) -> &'static str {
        match self.dtype(value) {
            DType::I64 => "another integer type",
            other => other.word(),
        }
    }

    /// Returns the axis along which a tensor's scales vary.
    pub(super) fn scale_axis(&self, axis: i64, x: ImportValue, scale: ImportValue) -> call::Result<usize> {
        let (rank, scales) = (self.rank(x), self.shape(scale));
        match elements(&scales)? {
            1 => Ok(0),
            _ => call::axis(axis, rank),
        }
    }

    /// Quantises by the scale and the zero point at these inputs; the type is the zero point's, or
    /// u8 without one.
    pub(super) fn quantised(
        &mut self,
        x: ImportValue,
        [scale, zero]: [usize; 2],
        axis: i64,
    ) -> call::Result<ImportValue> {
        let dtype = match self.optional(zero) {
            Some(given) if is_of_bytes(self.dtype(given)) => self.dtype(given),
            _ => DType::U8,
        };
        self.quantised_to(dtype, x, [scale, zero], axis)
    }

    fn quantised_to(
        &mut self,
        dtype: DType,
        x: ImportValue,
        inputs: [usize; 2],
        axis: i64,
    ) -> call::Result<ImportValue> {
        let scale = self.scale(inputs[0])?;
        let zero = self.zero(inputs[1], scale, dtype)?;
        let axis = self.scale_axis(axis, x, scale)?;
        self.add(Quantize { dtype, axis }, &[x, scale, zero])
    }

    /// Dequantises an input by the scale and the zero point at other inputs. Wider integers,
    /// usually biases, are converted to f32 and scaled right away.
    pub(super) fn dequantised(&mut self, x: usize, [scale, zero]: [usize; 2], axis: i64) -> call::Result<ImportValue> {
        let (x, number) = (self.operand(x)?, x);
        let scale = self.scale(scale)?;
        let axis = self.scale_axis(axis, x, scale)?;
        match self.dtype(x) {
            dtype if is_of_bytes(dtype) => {
                let zero = self.zero(zero, scale, dtype)?;
                self.add(Dequantize { axis }, &[x, scale, zero])
            }
            DType::I64 => self.dequantised_integers(x, scale, self.optional(zero), axis),
            other => Err(NodeError::Input { input: number, reason: format!("{other}, expected integers") }),
        }
    }

    /// Adds `(x - zero) * scale` for integers wider than 8 bits.
    pub(super) fn dequantised_integers(
        &mut self,
        mut x: ImportValue,
        scale: ImportValue,
        zero: Option<ImportValue>,
        axis: usize,
    ) -> call::Result<ImportValue> {
        let rank = self.rank(x);
        // Several scales extend along the axis; a single one broadcasts anyway.
        let along = |call: &mut Self, of: ImportValue| {
            let count = elements(&call.shape(of))?;
            let mut shape = vec![1; if count == 1 { 0 } else { rank }];
            shape.get_mut(axis).into_iter().for_each(|extent| *extent = count);
            call.reshape(&shape, of)
        };

        if let Some(zero) = zero {
            // Rows of an 8-bit table have 64 bits here, but their zero point has 8.
            let zero = self.cast(DType::I64, zero)?;
            let zero = along(self, zero)?;
            x = self.binary(Binary::Sub, x, zero)?;
        }

        let scale = along(self, scale)?;
        let shape = self.shape(x);
        let x = self.cast(DType::F32, x)?;
        let product = self.binary(Binary::Mul, x, scale)?;
        match self.shape(product) == shape {
            true => Ok(product),
            false => error::unfit(format!("the scales do not match a tensor of shape {shape:?}")),
        }
    }
}

fn axis_attribute(call: &Call) -> call::Result<i64> {
    call.ignore(&["saturate", "precision"]);
    if call.int_or("block_size", 0)? != 0 {
        return Err(attribute("block_size", "blocked scales are not supported"));
    }
    call.int_or("axis", 1)
}

fn quantize_linear(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(3)?;
    let x = call.operand(0)?;
    let x = call.cast(DType::F32, x)?;
    let axis = axis_attribute(call)?;
    let wanted = match call.int("output_dtype")? {
        None | Some(0) => None,
        Some(2) => Some(DType::U8),
        Some(3) => Some(DType::I8),
        Some(_) => return Err(attribute("output_dtype", "expected uint8 or int8")),
    };
    match wanted {
        Some(dtype) => call.quantised_to(dtype, x, [1, 2], axis),
        None => call.quantised(x, [1, 2], axis),
    }
}

fn dequantize_linear(call: &mut Call) -> call::Result<ImportValue> {
    call.check_most(3)?;
    call.ignore(&["output_dtype"]);
    let axis = axis_attribute(call)?;
    call.dequantised(0, [1, 2], axis)
}

/// Imports quantisation to u8 by a range that is computed from the input and includes 0. The
/// outputs are the integers, scale and zero point. A tensor of zeros has scale 1.
fn dynamic(call: &mut Call, _: usize) -> call::Result<Vec<ImportValue>> {
    let x = call.only()?;
    quantised_in_its_range(call, x).map(Vec::from)
}

/// Quantises a tensor to [`DType::U8`] in the range of its numbers and 0. Returns the integers,
/// their scale and their zero point.
pub(super) fn quantised_in_its_range(call: &mut Call, x: ImportValue) -> call::Result<[ImportValue; 3]> {
    const STEPS: f32 = 255.0;
    let row = call.reshape(&[elements(&call.shape(x))?], x)?;
    let [least, most] = [ReduceOp::Min, ReduceOp::Max].map(|op| call.reduce(op, &[0], false, row));
    // The range includes 0, so that 0 is represented exactly.
    let (least, most) = (call.with(Binary::Min, least?, 0.0)?, call.with(Binary::Max, most?, 0.0)?);

    let range = call.binary(Binary::Sub, most, least)?;
    let [none, one] = [0.0, 1.0].map(Tensor::scalar).map(|number| call.constant(number));
    // A scale of 0 would divide by zero.
    let is_none = call.binary(Binary::Equal, range, none)?;
    let step = call.with(Binary::Div, range, STEPS)?;
    let scale = call.add(Where, &[is_none, one, step])?;

    // The zero point is -least / scale, quantised like a number with zero point 0.
    let below = call.unary(UnaryOp::Neg, least)?;
    let zero_of_zero = call.constant(Tensor::of_numbers(&[], DType::U8, &[0.0])?);
    let to_bytes = Quantize { dtype: DType::U8, axis: 0 };
    let zero = call.add(to_bytes, &[below, scale, zero_of_zero])?;
    Ok([call.add(to_bytes, &[x, scale, zero])?, scale, zero])
}
