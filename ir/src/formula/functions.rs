//! Formulas of operations on one value.
//!
//! Each polynomial is the minimax approximation on its interval, in the stated weighting, found by
//! Remez's algorithm in 200-bit arithmetic: exchange the points of largest error until the error is
//! equal at all of them.

use super::{Formula, Primitive};
use crate::dtype::DType;
use crate::program::{BinaryOp, Compare, UnaryOp};

mod power;
mod tails;

const SIGN: u32 = 0x8000_0000;
const INFINITY: u32 = 0x7f80_0000;
const ONE: u32 = 0x3f80_0000;

/// `1.5 * 2^23`. A sum with it rounds to an integer, which is then in its lowest bits.
const WHOLE: f32 = 12_582_912.0;

/// `1 / ln 2`, and `ln 2` split in two parts (Cody and Waite). The first part has 9 bits, so that
/// its product with an integer of 15 bits is exact.
const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// Coefficients of `(exp(r) - 1 - r) / r^2` for `abs(r) <= 1.0005 * ln(2) / 2`; the relative error
/// of `exp(r) - 1` is at most `2^-26.1`.
const EXP: [f32; 5] = [0.499_999_97, 0.166_665_43, 4.166_72e-2, 8.366_547_5e-3, 1.388_251_7e-3];

/// Coefficients of `(log(1 + f) - f + f^2 / 2) / f^3` for f from `sqrt(1/2) - 1` to `sqrt(2) - 1`;
/// the relative error of `log(1 + f)` is at most `2^-27.3`.
const LOG: [f32; 8] =
    [0.333_333_3, -0.250_008_2, 0.200_012_28, -0.166_233_58, 0.142_017_45, -0.131_601_6, 0.127_616_5, -7.634_636e-2];

/// Bits of `sqrt(1/2)`, the smallest mantissa after the reduction.
const LEAST_MANTISSA: u32 = 0x3f35_04f3;

/// Coefficients of `erf(x) / x - 1` in `x^2`, for x up to 1; the relative error of `erf(x)` is at
/// most `2^-29.6`.
const ERF_NEAR: [f32; 7] =
    [0.128_379_17, -0.376_126_26, 0.112_835_854, -2.685_381_3e-2, 5.188_327_7e-3, -8.010_193_7e-4, 7.853_861_5e-5];

/// Coefficients of `-log(1 - erf(x))` for x from 1 to 4; the relative error of `erf(x)` is at most
/// `2^-35.4`.
const ERF_FAR: [f32; 8] = [
    -1.884_683_6e-4,
    1.129_580_3,
    0.633_216_4,
    0.108_422_1,
    -2.521_034_1e-2,
    4.205_285e-3,
    -4.414_727_4e-4,
    2.169_762_2e-5,
];

/// Coefficients of `2^f` for `abs(f) <= 0.5001`; the relative error is at most `2^-23.6`.
const POWER_OF_TWO: [f32; 6] = [1.000_000_1, 0.693_146_94, 0.240_221_19, 5.550_713_5e-2, 9.675_564e-3, 1.327_644_9e-3];

/// Number of the form `2^n * (1 + fraction)` with `abs(fraction) < 1/2`, as steps of a formula.
struct Scaled {
    /// Step of `WHOLE + n`, which has `n` in its lowest bits; the field `n` is the number itself.
    exponent: u8,
    n: u8,
    fraction: u8,
}

impl Formula {
    /// Appends the steps of an operation applied to a step.
    pub(super) fn function(&mut self, op: UnaryOp, x: u8) {
        match op {
            UnaryOp::Neg => {
                // Subtraction from -0 also flips the sign of zeros.
                let zero = self.bits(SIGN);
                self.sub(zero, x)
            }
            UnaryOp::Abs => self.magnitude(x),
            UnaryOp::Sqrt => self.apply(Primitive::Sqrt, &[x]),
            UnaryOp::Rsqrt => {
                let (root, one) = (self.apply(Primitive::Sqrt, &[x]), self.number(1.0));
                self.div(one, root)
            }

            UnaryOp::Floor => self.apply(Primitive::Floor, &[x]),
            UnaryOp::Exp => self.exp(x),
            UnaryOp::Exp2 => self.exp2(x),
            UnaryOp::Log => self.log(x),
            UnaryOp::Tanh => self.tanh(x),
            UnaryOp::Erf => self.erf(x),
            UnaryOp::Sigmoid => self.sigmoid(x),
            UnaryOp::Gelu => self.gelu(x),
            UnaryOp::GeluTanh => self.gelu_tanh(x),
            UnaryOp::Silu => self.silu(x),
            UnaryOp::Mish => self.mish(x),
            UnaryOp::Softplus => self.softplus(x),
            UnaryOp::Expm1 => self.expm1(x),
            UnaryOp::Log1p => self.log1p(x),
            UnaryOp::Sign => self.sign(x),
            // Or of the value with itself copies all bits, including those of NaN.
            UnaryOp::Cast(dtype) if dtype.is_word() => self.apply(Primitive::Or, &[x, x]),
            UnaryOp::Cast(DType::F16) => self.f16(x),
            UnaryOp::Cast(DType::Bf16) => self.bf16(x),
            UnaryOp::Cast(dtype) => self.integer(x, dtype),
        };
    }

    /// Appends the steps of an operation applied to two steps.
    pub(super) fn function_of_two(&mut self, op: BinaryOp, of: [u8; 2]) {
        match op {
            BinaryOp::Add => self.apply(Primitive::Add, &of),
            BinaryOp::Sub => self.apply(Primitive::Sub, &of),
            BinaryOp::Mul => self.apply(Primitive::Mul, &of),
            BinaryOp::Div => self.apply(Primitive::Div, &of),
            BinaryOp::Max => self.apply(Primitive::Maximum, &of),
            BinaryOp::MaxNumber => self.apply(Primitive::Max, &of),
            BinaryOp::Min => self.apply(Primitive::Minimum, &of),
            BinaryOp::Pow => self.power(of),
        };
    }

    pub(super) fn number(&mut self, value: f32) -> u8 {
        self.bits(value.to_bits())
    }

    pub(super) fn add(&mut self, a: u8, b: u8) -> u8 {
        self.apply(Primitive::Add, &[a, b])
    }

    pub(super) fn sub(&mut self, a: u8, b: u8) -> u8 {
        self.apply(Primitive::Sub, &[a, b])
    }

    fn mul(&mut self, a: u8, b: u8) -> u8 {
        self.apply(Primitive::Mul, &[a, b])
    }

    fn div(&mut self, a: u8, b: u8) -> u8 {
        self.apply(Primitive::Div, &[a, b])
    }

    fn mul_add(&mut self, a: u8, b: u8, c: u8) -> u8 {
        self.apply(Primitive::MulAdd, &[a, b, c])
    }

    pub(super) fn select(&mut self, compare: Compare, [a, b]: [u8; 2], then: u8, otherwise: u8) -> u8 {
        self.apply(Primitive::Select(compare), &[a, b, then, otherwise])
    }

    /// Appends the absolute value of `x`.
    pub(super) fn magnitude(&mut self, x: u8) -> u8 {
        let mask = self.bits(!SIGN);
        self.apply(Primitive::And, &[x, mask])
    }

    /// Appends `x` with a negative sign: `-abs(x)`.
    fn opposite_magnitude(&mut self, x: u8) -> u8 {
        let sign = self.bits(SIGN);
        self.apply(Primitive::Or, &[x, sign])
    }

    /// Appends a non-negative value with the sign of `of`.
    fn with_sign(&mut self, value: u8, of: u8) -> u8 {
        let mask = self.bits(SIGN);
        let sign = self.apply(Primitive::And, &[of, mask]);
        self.apply(Primitive::Or, &[value, sign])
    }

    /// Appends a polynomial in x by Horner's rule; the lowest coefficient is first.
    fn polynomial(&mut self, coefficients: &[f32], x: u8) -> u8 {
        let (last, rest) = coefficients.split_last().unwrap_or((&0.0, &[]));
        let highest = self.number(*last);
        rest.iter().rev().fold(highest, |sum, &coefficient| {
            let coefficient = self.number(coefficient);
            self.mul_add(sum, x, coefficient)
        })
    }

    /// Appends `WHOLE + n` and `n`, where `n` is the integer nearest to `a * b`.
    fn nearest(&mut self, a: u8, b: u8) -> [u8; 2] {
        let whole = self.number(WHOLE);
        let shifted = self.mul_add(a, b, whole);
        [shifted, self.sub(shifted, whole)]
    }

    /// Appends `2^n`, with n from -126 to 127 in the lowest bits of a step.
    fn power_of_two(&mut self, exponent: u8) -> u8 {
        let (moved, one) = (self.apply(Primitive::ShiftLeft(23), &[exponent]), self.bits(ONE));
        self.apply(Primitive::AddBits, &[moved, one])
    }

    /// Appends `exp(x)`, scaled, for x from -104 to 89.
    fn scaled_exp(&mut self, x: u8) -> Scaled {
        // Reduced argument `x - n * ln 2`, in two steps of which the first is exact.
        let per_ln_2 = self.number(LOG2_E);
        let [exponent, n] = self.nearest(x, per_ln_2);
        let left = LN_2.iter().fold(x, |left, &part| {
            let part = self.number(-part);
            self.mul_add(n, part, left)
        });

        let series = self.polynomial(&EXP, left);
        let square = self.mul(left, left);
        Scaled { exponent, n, fraction: self.mul_add(square, series, left) }
    }

    /// Appends `exp(x)` for x from -104 to 89; underflows to 0 and overflows to infinity.
    fn bounded_exp(&mut self, x: u8) -> u8 {
        let Scaled { n, fraction, .. } = self.scaled_exp(x);
        let one = self.number(1.0);
        let mantissa = self.add(fraction, one);
        self.apply(Primitive::Scale, &[mantissa, n])
    }

    /// Appends `x * 2^n` as two products, since `2^n` may be out of the range of f32. The second
    /// product rounds denormal results.
    pub(super) fn scaled_by_halves(&mut self, x: u8, n: u8) {
        let (whole, half) = (self.number(WHOLE), self.number(0.5));
        let [first, first_n] = self.nearest(n, half);
        let second_n = self.sub(n, first_n);
        let second = self.add(second_n, whole);
        let [first, second] = [first, second].map(|part| self.power_of_two(part));
        let scaled = self.mul(x, first);
        self.mul(scaled, second);
    }

    /// Appends `exp(x)` for negative x.
    fn exp_of_negative(&mut self, x: u8) -> u8 {
        // exp(-104) is rounded to 0.
        let least = self.number(-104.0);
        let x = self.apply(Primitive::Max, &[x, least]);
        self.bounded_exp(x)
    }

    fn exp(&mut self, x: u8) -> u8 {
        // exp(89) overflows already. NaN passes the bounds, since it compares false.
        let most = self.number(89.0);
        let x = self.apply(Primitive::Min, &[x, most]);
        self.exp_of_negative(x)
    }

    fn exp2(&mut self, x: u8) -> u8 {
        // Beyond these bounds, the result is 0 or infinite. NaN passes, since it compares false.
        let (most, least, one) = (self.number(129.0), self.number(-151.0), self.number(1.0));
        let x = self.apply(Primitive::Min, &[x, most]);
        let x = self.apply(Primitive::Max, &[x, least]);
        let [_, n] = self.nearest(x, one);
        let fraction = self.sub(x, n);
        let mantissa = self.polynomial(&POWER_OF_TWO, fraction);
        self.apply(Primitive::Scale, &[mantissa, n])
    }

    /// Appends n and m of a positive finite number `2^n * m`, with m from `sqrt(1/2)` to `sqrt(2)`.
    fn exponent_and_mantissa(&mut self, x: u8) -> [u8; 2] {
        // Denormal numbers are first scaled to normal ones, and n is corrected by the bias.
        let (least, scale) = (self.number(f32::MIN_POSITIVE), self.number(8_388_608.0));
        let scaled = self.mul(x, scale);
        let bits = self.select(Compare::Less, [x, least], scaled, x);
        let (of_denormals, of_others) = (self.number(-127.0 - 23.0 - 8_388_608.0), self.number(-127.0 - 8_388_608.0));
        let bias = self.select(Compare::Less, [x, least], of_denormals, of_others);
        self.parted_bits(bits, bias)
    }

    /// Appends n and m of the normal number `2^n * m` with these bits. `bias` is the number that,
    /// added to `2^23` plus the exponent field, gives n.
    fn parted_bits(&mut self, bits: u8, bias: u8) -> [u8; 2] {
        // With the distance from sqrt(1/2) to 1 added to the bits, the exponent field is n + 127.
        let (mantissa_mask, distance) = (self.bits(0x007f_ffff), self.bits(ONE - LEAST_MANTISSA));
        let moved = self.apply(Primitive::AddBits, &[bits, distance]);
        let n = self.apply(Primitive::ShiftRight(23), &[moved]);
        let two_to_23 = self.number(8_388_608.0);
        let n = self.apply(Primitive::Or, &[n, two_to_23]);
        let n = self.add(n, bias);
        let behind = self.apply(Primitive::And, &[moved, mantissa_mask]);
        let least_mantissa = self.bits(LEAST_MANTISSA);
        [n, self.apply(Primitive::AddBits, &[behind, least_mantissa])]
    }

    fn log(&mut self, x: u8) -> u8 {
        let zero = self.number(0.0);
        let [n, mantissa] = self.exponent_and_mantissa(x);

        let one = self.number(1.0);
        let f = self.sub(mantissa, one);
        let sum = self.log_of_parts(n, f);

        // Infinity and NaN are returned as they are; the logarithm of zero is minus infinity, of a
        // negative value NaN.
        let (infinity, minus_infinity, not_a_number) =
            (self.bits(INFINITY), self.bits(SIGN | INFINITY), self.number(f32::NAN));
        let finite = self.select(Compare::Less, [x, infinity], sum, x);
        let other = self.select(Compare::Equal, [x, zero], minus_infinity, not_a_number);
        self.select(Compare::Less, [zero, x], finite, other)
    }

    /// Appends `n * log(2) + log(1 + f)` for f from `sqrt(1/2) - 1` to `sqrt(2) - 1`.
    fn log_of_parts(&mut self, n: u8, f: u8) -> u8 {
        // log(1 + f) = f + f^2 * (f * series - 1/2); small parts are added first.
        let series = self.polynomial(&LOG, f);
        let half = self.number(-0.5);
        let series = self.mul_add(series, f, half);
        let square = self.mul(f, f);
        let [high, low] = LN_2.map(|part| self.number(part));
        let small = self.mul(n, low);
        let small = self.mul_add(square, series, small);
        let sum = self.add(f, small);
        self.mul_add(n, high, sum)
    }

    fn tanh(&mut self, x: u8) -> u8 {
        // From 10 on the result is rounded to 1: exp(20) - 1 over exp(20) + 1.
        let magnitude = self.magnitude(x);
        let end = self.number(10.0);
        let magnitude = self.apply(Primitive::Min, &[magnitude, end]);
        // tanh(x) = E / (E + 2) with E = exp(2x) - 1.
        let twice = self.add(magnitude, magnitude);
        let Scaled { exponent, fraction, .. } = self.scaled_exp(twice);

        // 2^n * (1 + fraction) - 1, without cancellation where n is zero.
        let (scale, one, two) = (self.power_of_two(exponent), self.number(1.0), self.number(2.0));
        let less_one = self.sub(scale, one);
        let less_one = self.mul_add(fraction, scale, less_one);
        let plus_one = self.add(less_one, two);
        let quotient = self.div(less_one, plus_one);
        self.with_sign(quotient, x)
    }

    fn erf(&mut self, x: u8) -> u8 {
        let magnitude = self.magnitude(x);
        let end = self.number(4.0);
        // From 4 on, the result is rounded to 1.
        let bounded = self.apply(Primitive::Min, &[magnitude, end]);

        // Near zero: x + x * series.
        let square = self.mul(bounded, bounded);
        let series = self.polynomial(&ERF_NEAR, square);
        let near = self.mul_add(series, bounded, bounded);

        // From 1 on: 1 - exp(-series).
        let series = self.polynomial(&ERF_FAR.map(|coefficient| -coefficient), bounded);
        let Scaled { exponent, fraction, .. } = self.scaled_exp(series);
        let (scale, one) = (self.power_of_two(exponent), self.number(1.0));
        let rest = self.mul_add(fraction, scale, scale);
        let far = self.sub(one, rest);

        let value = self.select(Compare::Less, [magnitude, one], near, far);
        self.with_sign(value, x)
    }

    fn sigmoid(&mut self, x: u8) -> u8 {
        // The exponential of a negative number cannot overflow.
        let negative = self.opposite_magnitude(x);
        let power = self.exp_of_negative(negative);

        let (zero, one) = (self.number(0.0), self.number(1.0));
        let numerator = self.select(Compare::Less, [x, zero], power, one);
        let denominator = self.add(power, one);
        self.div(numerator, denominator)
    }

    /// Appends the bits of `x` rounded to multiples of `2^places`, ties to even.
    fn rounded_bits(&mut self, x: u8, places: u8) -> u8 {
        let sum = self.rounding(x, places);
        let mask = self.bits(u32::MAX << places);
        self.apply(Primitive::And, &[sum, mask])
    }

    /// Appends the bits of `x` rounded like [`Formula::rounded_bits`]; the bits below `places` are
    /// left undefined.
    pub(super) fn rounding(&mut self, x: u8, places: u8) -> u8 {
        let (one, most) = (self.bits(1), self.bits((1 << (places - 1)) - 1));
        let last = self.apply(Primitive::ShiftRight(places), &[x]);
        let odd = self.apply(Primitive::And, &[last, one]);
        // A tie is rounded up only if the last kept bit is odd.
        let almost_half = self.apply(Primitive::AddBits, &[x, most]);
        self.apply(Primitive::AddBits, &[almost_half, odd])
    }

    /// Appends the nearest integer in the range of a type, ties to even; NaN is returned as it is.
    fn integer(&mut self, x: u8, dtype: DType) -> u8 {
        let [least, most] = dtype.range().map(|end| self.number(end as f32));
        // NaN compares false and passes both.
        let x = self.apply(Primitive::Max, &[x, least]);
        let x = self.apply(Primitive::Min, &[x, most]);

        if dtype.bytes() == 1 {
            // A sum with 1.5 * 2^23 has no fraction bits left, whatever the sign.
            let middle = self.number(12_582_912.0);
            let sum = self.add(x, middle);
            return self.sub(sum, middle);
        }
        // A sum with 2^23 has no fraction bits left; larger numbers have none to begin with.
        let (magnitude, end) = (self.magnitude(x), self.number(8_388_608.0));
        let sum = self.add(magnitude, end);
        let (rounded, zero) = (self.sub(sum, end), self.number(0.0));
        let opposite = self.sub(zero, rounded);
        let signed = self.select(Compare::Less, [x, zero], opposite, rounded);
        self.select(Compare::Less, [magnitude, end], signed, x)
    }

    fn bf16(&mut self, x: u8) -> u8 {
        let rounded = self.rounded_bits(x, 16);
        // Rounding could turn NaN into infinity, so NaN is returned unchanged.
        self.select(Compare::Equal, [x, x], rounded, x)
    }

    fn f16(&mut self, x: u8) -> u8 {
        let magnitude = self.magnitude(x);
        let rounded = self.rounded_bits(magnitude, 13);
        let (end, infinity) = (self.number(65536.0), self.bits(INFINITY));
        // 65536 exceeds the range of f16; numbers from 65520 on are rounded to it.
        let rounded = self.select(Compare::Less, [rounded, end], rounded, infinity);

        // Next to a half, the last place of an f32 is that of a denormal f16: the sum rounds
        // correctly.
        let half = self.number(0.5);
        let sum = self.add(magnitude, half);
        let denormal = self.sub(sum, half);
        let least = self.number(6.103_515_6e-5);
        let value = self.select(Compare::Less, [magnitude, least], denormal, rounded);
        let value = self.select(Compare::Equal, [x, x], value, x);
        self.with_sign(value, x)
    }
}
