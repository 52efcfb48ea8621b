//! Numbers of 32 bits as elements of other types, and the other way.

use std::sync::LazyLock;

use super::{Formula, Primitive};
use crate::dtype::DType;
use crate::program::Compare;

const SIGN: u32 = 1 << 31;
/// What the exponent of an f32 is more than that of an f16, and the same times minus one.
const BASE: u32 = 112 << 23;
const REBASED: u32 = BASE.wrapping_neg();
/// The least f16 that is no denormal.
const LEAST: f32 = 6.103_515_6e-5;
/// The bits of a half, times minus one.
const MINUS_HALF: u32 = 0x3f00_0000u32.wrapping_neg();
/// The bits of an f16 that is infinite, and of elements that are not a number.
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

/// Integers of the types of [`INTEGERS`].
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
    /// The value of an element of a type, whose bits are those of the operand: below zeros if it
    /// has 16 bits of a floating-point number, extended to 32 bits if it is an integer. `None` for
    /// types without conversion.
    pub fn widened(dtype: DType) -> Option<&'static Self> {
        match dtype {
            DType::F16 => Some(&OF_F16),
            DType::Bf16 => Some(&OF_BF16),
            _ => INTEGERS.contains(&dtype).then_some(&*OF_INTEGER),
        }
    }

    /// The bits of the element that a value becomes where a type is stored ([`DType::rounded`]), in
    /// the lowest bits of the result; those above them are zeros if the type has 16 bits of a
    /// floating-point number. NaN is stored as NaN, as the smallest integer where there is none.
    /// `None` for types without conversion.
    pub fn narrowed(dtype: DType) -> Option<&'static Self> {
        match dtype {
            DType::F16 => Some(&F16),
            DType::Bf16 => Some(&BF16),
            _ => of_integers(&TO_INTEGER, dtype),
        }
    }

    /// The nearest integer of a type to an integer of 32 bits, by their bits. `None` for types
    /// without conversion.
    pub fn saturated(dtype: DType) -> Option<&'static Self> {
        of_integers(&SATURATED, dtype)
    }

    fn bits_of_integer(&mut self, x: u8, dtype: DType) {
        let [least, most] = dtype.range().map(|end| self.number(end as f32));
        let x = self.apply(Primitive::Max, &[least, x]);
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

        // The largest exponent stays the largest; the least is that of denormals, whose last place
        // is a half's.
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

        // Beside a half, the last place of an f32 is that of a denormal f16.
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
