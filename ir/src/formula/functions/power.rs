//! Powers of any exponent: `2^(y * log2(x))`, with logarithm and product in double-f32 arithmetic
//! (each as the unevaluated sum of two f32).

use super::{EXP, Formula, INFINITY, SIGN};
use crate::formula::Primitive;
use crate::program::Compare;

/// First two coefficients of the series of the binary logarithm, `2 / ln 2` and a third of it, each
/// as the sum of two numbers.
const LOG_2: [[f32; 2]; 2] = [[2.885_39, 3.851_926e-8], [0.961_796_7, -7.028_462e-9]];

/// Further coefficients of the series of the binary logarithm: `2 / ln 2` over 5, 7, 9, 11 and 13.
/// For `s` up to 0.1716 the first omitted term is less than `2^-39` of the sum.
const LOG_2_REST: [f32; 5] = [0.577_078_04, 0.412_198_6, 0.320_598_9, 0.262_308_2, 0.221_953_1];

/// Bound of the exponent of two; beyond it the result is 0 or infinite.
const LARGEST_POWER: f32 = 160.0;

/// Bound of `y`; beyond it the result is 0, 1 or infinity for every `x`, the same as at the bound.
const LARGEST_EXPONENT: f32 = 8_589_934_592.0;

impl Formula {
    fn minus(&mut self, x: u8) -> u8 {
        let zero = self.number(-0.0);
        self.sub(zero, x)
    }

    /// Appends a product as the sum of two numbers: the rounded product and its error. The first is
    /// a fused operation as well, so that a compiler that fuses products with sums leaves it alone.
    fn exact_product(&mut self, a: u8, b: u8) -> [u8; 2] {
        let zero = self.number(-0.0);
        let high = self.mul_add(a, b, zero);
        let minus_high = self.minus(high);
        [high, self.mul_add(a, b, minus_high)]
    }

    /// Appends the sum of a large, a smaller and a still smaller number as the sum of two numbers
    /// (Dekker, "A floating-point technique for extending the available precision", 1971).
    fn exact_sum(&mut self, large: u8, small: u8, smaller: u8) -> [u8; 2] {
        let high = self.add(large, small);
        let back = self.sub(large, high);
        let low = self.add(back, small);
        [high, self.add(low, smaller)]
    }

    /// Appends the binary logarithm of a positive finite number as the sum of two numbers, with an
    /// error of about 2^-33.
    ///
    /// It is `n + 2/ln 2 * (s + s^3/3 + s^5/5 + ..)` with `s = (m - 1) / (m + 1)`.
    fn exact_log_2(&mut self, x: u8) -> [u8; 2] {
        let [n, mantissa] = self.exponent_and_mantissa(x);

        let one = self.number(1.0);
        // The error of the rounded denominator and of the quotient give the low part of s.
        let (above, below) = (self.sub(mantissa, one), self.add(mantissa, one));
        let back = self.sub(below, one);
        let minus_below_low = self.sub(back, mantissa);
        let s = self.div(above, below);
        let minus_below = self.minus(below);
        let left = self.mul_add(s, minus_below, above);
        let left = self.mul_add(s, minus_below_low, left);
        let s_low = self.div(left, below);

        // Only the first two terms of the series over s need double-f32 arithmetic.
        let [square, square_low] = self.exact_product(s, s);
        // (s + s_low)^2 is s^2 + 2 * s * s_low; the square of s_low is negligible.
        let twice = self.add(s, s);
        let square_low = self.mul_add(twice, s_low, square_low);
        let [[first, first_low], [third, third_low]] = LOG_2.map(|parts| parts.map(|part| self.number(part)));
        let rest = self.polynomial(&LOG_2_REST, square);
        let rest = self.mul_add(square, rest, third_low);
        let [term, term_low] = self.exact_product(square, third);
        let term_low = self.mul_add(square_low, third, term_low);
        let term_low = self.mul_add(square, rest, term_low);
        let term_low = self.add(term_low, first_low);
        let [series, series_low] = self.exact_sum(first, term, term_low);

        let [log, log_low] = self.exact_product(s, series);
        let log_low = self.mul_add(s, series_low, log_low);
        let log_low = self.mul_add(s_low, series, log_low);
        self.exact_sum(n, log, log_low)
    }

    /// Appends `2^(y * log2(abs(x)))`. For negative x, the result has the sign of x if y is odd,
    /// and is NaN if y is not an integer.
    pub(super) fn power(&mut self, [x, y]: [u8; 2]) -> u8 {
        let magnitude = self.magnitude(x);
        let [log, log_low] = self.exact_log_2(magnitude);
        let (zero, infinity, minus_infinity) = (self.number(0.0), self.bits(INFINITY), self.bits(SIGN | INFINITY));
        let log = self.select(Compare::Less, [magnitude, infinity], log, magnitude);
        let log = self.select(Compare::Equal, [magnitude, zero], minus_infinity, log);

        let ends = [LARGEST_EXPONENT, LARGEST_POWER].map(|end| [self.number(end), self.number(-end)]);
        let [[most_y, least_y], [most, least]] = ends;

        // Bounds keep the products finite; infinite logarithms keep their sign.
        let exponent = self.apply(Primitive::Min, &[y, most_y]);
        let exponent = self.apply(Primitive::Max, &[exponent, least_y]);
        let [power, power_low] = self.exact_product(exponent, log);
        let power_low = self.mul_add(exponent, log_low, power_low);
        // Beyond the bound, the low part would only disturb the result.
        let size = self.magnitude(power);
        let power_low = self.select(Compare::Less, [size, most], power_low, zero);
        let power = self.apply(Primitive::Min, &[power, most]);
        let power = self.apply(Primitive::Max, &[power, least]);

        // 2^n * exp(ln 2 * remainder).
        let (one, ln_2) = (self.number(1.0), self.number(std::f32::consts::LN_2));
        let [_, n] = self.nearest(power, one);
        let left = self.sub(power, n);
        let left = self.add(left, power_low);
        let left = self.mul(left, ln_2);
        let series = self.polynomial(&EXP, left);
        let square = self.mul(left, left);
        let fraction = self.mul_add(square, series, left);
        let mantissa = self.add(fraction, one);
        let value = self.apply(Primitive::Scale, &[mantissa, n]);

        let value = self.signed_power([x, y], value);
        // IEEE 754 defines 1^y and x^0 as 1, even for NaN.
        let value = self.select(Compare::Equal, [x, one], one, value);
        self.select(Compare::Equal, [y, zero], one, value)
    }

    /// Appends the power of x, given the power of its magnitude in `value`.
    fn signed_power(&mut self, [x, y]: [u8; 2], value: u8) -> u8 {
        let (zero, half, sign) = (self.number(0.0), self.number(0.5), self.bits(SIGN));
        let whole = self.apply(Primitive::Floor, &[y]);
        let halved = self.mul(y, half);
        let whole_half = self.apply(Primitive::Floor, &[halved]);
        let sign = self.apply(Primitive::And, &[x, sign]);
        // An integer y is odd if y / 2 is not an integer.
        let of_odd = self.select(Compare::Equal, [halved, whole_half], zero, sign);
        let sign = self.select(Compare::Equal, [y, whole], of_odd, zero);
        let signed = self.apply(Primitive::Or, &[value, sign]);

        // A negative number to a non-integer power is NaN, unless it is infinite.
        let (minus_infinity, not_a_number) = (self.bits(SIGN | INFINITY), self.number(f32::NAN));
        let of_finite = self.select(Compare::Less, [minus_infinity, x], not_a_number, signed);
        let of_negative = self.select(Compare::Equal, [y, whole], signed, of_finite);
        self.select(Compare::Less, [x, zero], of_negative, signed)
    }
}
