//! Conversion between 32-bit numbers and elements of narrower types.

use std::sync::LazyLock;

use super::{Formula, Primitive};
use crate::dtype::DType;
use crate::program::Compare;

const SIGN: u32 = 1 << 31;
/// Difference of the exponent biases of f32 and f16, in the exponent field of an f32.
const BASE: u32 = 112 << 23;
const REBASED: u32 = BASE.wrapping_neg();
/// Smallest positive normal f16.
const LEAST: f32 = 6.103_515_6e-5;
/// Negated bits of one half.
const MINUS_HALF: u32 = 0x3f00_0000u32.wrapping_neg();
/// Bits of an infinite f16, and of NaN elements.
const INFINITY_F16: u32 = 0x7c00;
const NOT_A_NUMBER_F16: u32 = 0x7e00;
const NOT_A_NUMBER_BF16: u32 = 0x7fc0;

static F16: LazyLock<Formula> = LazyLock::new(|| Formula::written(1, |f, of| f.bits_of_f16(of[0])));
static BF16: LazyLock<Formula> = LazyLock::new(|| Formula::written(1, |f, of| f.bits_of_bf16(of[0])));

static OF_F16: LazyLock<Formula> = LazyLock::new(|| Formula::written(1, |f, of| f.of_f16(of[0])));
static OF_BF16: LazyLock<Formula> = LazyLock::new(|| {
    Formula::written(1, |f, of| {
        f.apply(Primitive::ShiftLeft(16), of);
    })
});

/// Formula of integers of all types in [`INTEGERS`].
static OF_INTEGER: LazyLock<Formula> = LazyLock::new(|| {
    Formula::written(1, |f, of| {
        f.apply(Primitive::OfInteger, of);
    })
});
static INTEGERS: [DType; 4] = [DType::I8, DType::U8, DType::I16, DType::I32];
static TO_INTEGER: LazyLock<[Formula; 4]> =
    LazyLock::new(|| INTEGERS.map(|dtype| Formula::written(1, |f, of| f.bits_of_integer(of[0], dtype))));
static SATURATED: LazyLock<[Formula; 4]> =
    LazyLock::new(|| INTEGERS.map(|dtype| Formula::written(1, |f, of| f.saturation(of[0], dtype))));

fn of_integers(formulas: &'static [Formula; 4], dtype: DType) -> Option<&'static Formula> {
    INTEGERS.iter().position(|known| *known == dtype).map(|number| &formulas[number])
}

impl Formula {
    /// Returns the formula that converts an element to its value. The operand has the element's
    /// bits: a floating-point number of 16 bits zero-extended, an integer extended to 32 bits.
    /// `None` for types without conversion.
    pub fn widened(dtype: DType) -> Option<&'static Self> {
        match dtype {
            DType::F16 => Some(&OF_F16),
            DType::Bf16 => Some(&OF_BF16),
            _ => INTEGERS.contains(&dtype).then_some(&*OF_INTEGER),
        }
    }

    /// Returns the formula that rounds a value to the bits of an element ([`DType::rounded`]), in
    /// the lowest bits of the result. Higher bits are 0 for floating-point numbers of 16 bits. NaN
    /// becomes NaN, or the smallest integer if the type has none. `None` for types without
    /// conversion.
    pub fn narrowed(dtype: DType) -> Option<&'static Self> {
        match dtype {
            DType::F16 => Some(&F16),
            DType::Bf16 => Some(&BF16),
            _ => of_integers(&TO_INTEGER, dtype),
        }
    }

    /// Returns the formula that saturates a 32-bit integer to the range of a type, bits to bits.
    /// `None` for types without conversion.
    pub fn saturated(dtype: DType) -> Option<&'static Self> {
        of_integers(&SATURATED, dtype)
    }

    fn bits_of_integer(&mut self, x: u8, dtype: DType) {
        let [least, most] = dtype.range().map(|end| self.number(end as f32));
        // In this order, NaN compares false and becomes the smallest integer.
        let x = self.apply(Primitive::Max, &[least, x]);
        // f32 rounds 2^31 - 1 to 2^31, so a minimum would not saturate correctly.
        if dtype == DType::I32 {
            let (nearest, largest) = (self.apply(Primitive::Nearest, &[x]), self.bits(i32::MAX.cast_unsigned()));
            self.select(Compare::Less, [x, most], nearest, largest);
            return;
        }
        let x = self.apply(Primitive::Min, &[x, most]);
        self.apply(Primitive::Nearest, &[x]);
    }

    fn saturation(&mut self, x: u8, dtype: DType) {
        let [least, most] = dtype.range().map(|end| self.bits((end as i32).cast_unsigned()));
        let x = self.apply(Primitive::MaxBits, &[x, least]);
        self.apply(Primitive::MinBits, &[x, most]);
    }

    fn bits_of_bf16(&mut self, x: u8) {
        let rounded = self.rounding(x, 16);
        let other = self.bits(NOT_A_NUMBER_BF16 << 16);
        let bits = self.select(Compare::Equal, [x, x], rounded, other);
        self.apply(Primitive::ShiftRight(16), &[bits]);
    }

    fn of_f16(&mut self, x: u8) {
        let mask = self.bits(0x7fff);
        let magnitude = self.apply(Primitive::And, &[x, mask]);
        let (moved, base) = (self.apply(Primitive::ShiftLeft(13), &[magnitude]), self.bits(BASE));
        let value = self.apply(Primitive::AddBits, &[moved, base]);

        // The largest exponent must become that of infinity; the smallest is that of denormals,
        // whose last place equals that of an f32 from one half to 1.
        let (end, more) = (self.number(65536.0), self.apply(Primitive::AddBits, &[value, base]));
        let larger = self.select(Compare::Less, [value, end], value, more);
        let half = self.number(0.5);
        let above_half = self.apply(Primitive::AddBits, &[magnitude, half]);
        let (denormal, least) = (self.sub(above_half, half), self.number(LEAST));
        let value = self.select(Compare::Less, [value, least], denormal, larger);

        let sign = self.bits(0x8000);
        let sign = self.apply(Primitive::And, &[x, sign]);
        let sign = self.apply(Primitive::ShiftLeft(16), &[sign]);
        self.apply(Primitive::Or, &[value, sign]);
    }

    fn bits_of_f16(&mut self, x: u8) {
        let magnitude = self.magnitude(x);
        let (rounded, rebased) = (self.rounding(magnitude, 13), self.bits(REBASED));
        let rounded = self.apply(Primitive::AddBits, &[rounded, rebased]);
        let rounded = self.apply(Primitive::ShiftRight(13), &[rounded]);
        let (end, infinity) = (self.number(65536.0), self.bits(INFINITY_F16));
        let rounded = self.select(Compare::Less, [magnitude, end], rounded, infinity);

        // Next to a half, the last place of an f32 is that of a denormal f16: the sum rounds
        // correctly.
        let (half, minus_half) = (self.number(0.5), self.bits(MINUS_HALF));
        let sum = self.add(magnitude, half);
        let denormal = self.apply(Primitive::AddBits, &[sum, minus_half]);
        let least = self.number(LEAST);
        let bits = self.select(Compare::Less, [magnitude, least], denormal, rounded);
        let other = self.bits(NOT_A_NUMBER_F16);
        let bits = self.select(Compare::Equal, [x, x], bits, other);

        let sign = self.bits(SIGN);
        let sign = self.apply(Primitive::And, &[x, sign]);
        let sign = self.apply(Primitive::ShiftRight(16), &[sign]);
        self.apply(Primitive::Or, &[bits, sign]);
    }
}
