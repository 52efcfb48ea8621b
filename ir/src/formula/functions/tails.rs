//! Compositions of functions as formulas of their own: in the tails, a difference or a product of
//! the separate results would lose every digit.
//!
//! A sum with 1 keeps the small summand exactly, and the power of two is the last factor, so that
//! denormal results are rounded only once.

use super::{Formula, INFINITY, LOG2_E, POWER_OF_TWO, SIGN, Scaled, WHOLE};
use crate::formula::Primitive;
use crate::program::Compare;

/// Lower bound of x; below it `exp(x) - 1` is -1.
const LEAST_EXPM1: f32 = -25.0;

/// Lower bound of x; below it `x * exp(x)` is 0.
const LEAST_PRODUCT: f32 = -110.0;

/// `sqrt(2) - 1`; a sum of 1 and a larger number is halved.
const HALVED: f32 = 0.414_213_57;

/// `2 * sqrt(2 / pi) / ln 2` and 0.044715 times that, each as the sum of two numbers. The first is
/// a multiple of `2^-19`, so that its difference to a sum of up to 32 is exact.
const TANH_FIRST: [f32; 2] = [2.302_208, 2.513_669_7e-7];
const TANH_THIRD: [f32; 2] = [0.102_943_24, -2.016_198_5e-9];

/// Bound of `abs(x)`; below its negative, the tanh form of gelu is 0.
const LARGEST_TANH: f32 = 11.0;

/// Numerator and denominator, as polynomials in a, of the standard normal distribution function at
/// `-a` times `exp(a^2 / 2)`. The relative error is at most `2^-27.3` for a up to 14.6; beyond
/// that, `a` times the distribution function is 0 in f32.
const NORMAL_ABOVE: [f32; 5] = [48.370_98, 42.421_032, 17.741_007, 3.935_825, 0.398_946_85];
const NORMAL_BELOW: [f32; 6] = [96.741_96, 162.031_02, 116.392_62, 45.455_74, 9.866_267, 1.0];
const LARGEST_NORMAL: f32 = 14.6;

/// `1 / ln 2` and half of it, each as the sum of two numbers.
const LOG2_E_PARTS: [f32; 2] = [LOG2_E, 1.925_963e-8];
const HALF_LOG2_E: [f32; 2] = [LOG2_E_PARTS[0] / 2.0, LOG2_E_PARTS[1] / 2.0];

/// The number `2^n * mantissa`, which may be smaller than any f32, as steps of a formula.
struct Power {
    /// Step of `WHOLE + n`, which has `n` in its lowest bits; the field `n` is the number itself.
    exponent: u8,
    n: u8,
    /// Step with a value from `sqrt(1/2)` to `sqrt(2)`.
    mantissa: u8,
}

impl Formula {
    /// Appends the sign of `x`: 1 or -1; zero and NaN are returned as they are.
    pub(super) fn sign(&mut self, x: u8) -> u8 {
        let [zero, one, minus_one] = [0.0, 1.0, -1.0].map(|value| self.number(value));
        // The sum turns -0 into 0 and keeps NaN.
        let neither = self.add(x, zero);
        let below = self.select(Compare::Less, [x, zero], minus_one, neither);
        self.select(Compare::Less, [zero, x], one, below)
    }

    /// Appends `exp(x) - 1` as `2^n * (fraction + (1 - 2^-n))`.
    pub(super) fn expm1(&mut self, x: u8) -> u8 {
        let [most, least, zero, one] = [89.0, LEAST_EXPM1, 0.0, 1.0].map(|value| self.number(value));
        let bounded = self.apply(Primitive::Min, &[x, most]);
        let bounded = self.apply(Primitive::Max, &[bounded, least]);
        let Scaled { n, fraction, .. } = self.scaled_exp(bounded);

        let inverse = self.inverse_power_of_two(n);
        // Both summands are small if x is, so there is no cancellation as in exp(x) - 1.
        let rest = self.sub(one, inverse);
        let sum = self.add(fraction, rest);
        let value = self.apply(Primitive::Scale, &[sum, n]);
        // The sign of zero is preserved.
        self.select(Compare::Equal, [x, zero], x, value)
    }

    /// Appends `log(1 + x)`: the logarithm of the rounded sum, corrected by its rounding error.
    pub(super) fn log1p(&mut self, x: u8) -> u8 {
        let [zero, one] = [0.0, 1.0].map(|value| self.number(value));
        let sum = self.add(x, one);
        let back = self.sub(sum, one);
        let lost = self.sub(x, back);

        let bias = self.number(-127.0 - 8_388_608.0);
        let [n, mantissa] = self.parted_bits(sum, bias);
        let inverse = self.inverse_power_of_two(n);
        let f = self.sub(mantissa, one);
        // The rounding error is scaled like the mantissa.
        let f = self.mul_add(lost, inverse, f);
        let log = self.log_of_parts(n, f);

        let (infinity, minus_infinity, not_a_number) =
            (self.bits(INFINITY), self.number(f32::NEG_INFINITY), self.number(f32::NAN));
        let finite = self.select(Compare::Less, [x, infinity], log, x);
        let other = self.select(Compare::Equal, [sum, zero], minus_infinity, not_a_number);
        let value = self.select(Compare::Less, [zero, sum], finite, other);
        self.select(Compare::Equal, [x, zero], x, value)
    }

    /// Appends `max(x, 0) + log(1 + exp(-abs(x)))`.
    pub(super) fn softplus(&mut self, x: u8) -> u8 {
        let below = self.opposite_magnitude(x);
        let power = self.exp_of_negative(below);

        // A sum above sqrt(2) is halved, without rounding it.
        let [halved, zero, half, one] = [HALVED, 0.0, 0.5, 1.0].map(|value| self.number(value));
        let less_one = self.sub(power, one);
        let half_sum = self.mul(less_one, half);
        let f = self.select(Compare::Less, [power, halved], power, half_sum);
        let n = self.select(Compare::Less, [power, halved], zero, one);
        let log = self.log_of_parts(n, f);

        let above = self.apply(Primitive::Max, &[x, zero]);
        self.add(above, log)
    }

    /// Appends `x * exp(min(x, 0)) / (1 + exp(-abs(x)))`.
    pub(super) fn silu(&mut self, x: u8) -> u8 {
        let below = self.bounded_below(x, LEAST_PRODUCT);
        let power = self.exp_of_bounded(below);
        self.weighed_by_sigmoid(x, below, power)
    }

    /// Appends the tanh form of gelu: `x` times the sigmoid of
    /// `2 * sqrt(2/pi) * (x + 0.044715 * x^3)`.
    pub(super) fn gelu_tanh(&mut self, x: u8) -> u8 {
        let a = self.bounded_magnitude(x, LARGEST_TANH);
        let (below, square, lost) = self.squared(a);

        // The factor of x in the exponent is linear in a^2; `low` is its rounding error.
        let [first, first_low] = TANH_FIRST.map(|part| self.number(part));
        let [minus_third, minus_third_low] = TANH_THIRD.map(|part| self.number(-part));
        let third = self.number(TANH_THIRD[0]);
        let line = self.mul_add(square, minus_third, first);
        let back = self.sub(first, line);
        let low = self.mul_add(square, minus_third, back);
        let low = self.mul_add(lost, third, low);
        let low = self.mul_add(square, minus_third_low, low);
        let low = self.add(low, first_low);

        let power = self.power_of_product([below, line], &[[below, low]]);
        self.weighed_by_sigmoid(x, below, power)
    }

    /// Appends `x` times the sigmoid of an argument, given a power `exp(-abs(argument))`. `below`
    /// is `-abs(x)`, limited to where the result is not 0.
    fn weighed_by_sigmoid(&mut self, x: u8, below: u8, power: Power) -> u8 {
        // sigmoid(a) is exp(a) / (1 + exp(a)) for negative a, else 1 / (1 + exp(-a)).
        let product = self.mul(below, power.mantissa);
        let [zero, one] = [0.0, 1.0].map(|value| self.number(value));
        let tail = self.scaled_tail(x, product, power.n);
        let numerator = self.select(Compare::Less, [x, zero], tail, x);

        let scale = self.power_of_two_or_zero(power.exponent);
        let denominator = self.mul_add(power.mantissa, scale, one);
        self.div(numerator, denominator)
    }

    /// Appends `max(x, 0) - a * normal(-a)` for `a = abs(x)`. The second term is even, so one
    /// formula serves both signs.
    pub(super) fn gelu(&mut self, x: u8) -> u8 {
        let a = self.bounded_magnitude(x, LARGEST_NORMAL);
        let (below, square, lost) = self.squared(a);

        // exp(-a^2 / 2) times the quotient of polynomials.
        let [high, low] = HALF_LOG2_E.map(|part| self.number(part));
        let minus_high = self.number(-HALF_LOG2_E[0]);
        let power = self.power_of_product([square, high], &[[square, low], [lost, minus_high]]);
        let (above_line, below_line) = (self.polynomial(&NORMAL_ABOVE, a), self.polynomial(&NORMAL_BELOW, a));
        let product = self.mul(below, above_line);
        let product = self.mul(product, power.mantissa);
        let tail = self.div(product, below_line);
        let tail = self.apply(Primitive::Scale, &[tail, power.n]);

        // Minus infinity times 0 gives NaN, as documented.
        let [zero, one] = [0.0, 1.0].map(|value| self.number(value));
        let is_positive = self.select(Compare::Less, [zero, x], one, zero);
        self.mul_add(x, is_positive, tail)
    }

    /// Appends `x * tanh(log(1 + exp(x)))`. With `E = exp(-abs(x))` it is
    /// `x * E * (E + 2) / (E * (E + 2) + 2)` for negative x, else
    /// `x * (1 + 2 * E) / (1 + 2 * E + 2 * E^2)`.
    pub(super) fn mish(&mut self, x: u8) -> u8 {
        let below = self.bounded_below(x, LEAST_PRODUCT);
        let power = self.exp_of_bounded(below);
        let [zero, one, two] = [0.0, 1.0, 2.0].map(|value| self.number(value));
        let scale = self.power_of_two_or_zero(power.exponent);
        let value = self.mul(power.mantissa, scale);

        let more = self.add(value, two);
        let product = self.mul(below, power.mantissa);
        let product = self.mul(product, more);
        let tail = self.scaled_tail(x, product, power.n);
        let of_tail = self.mul_add(value, more, two);

        let twice = self.add(value, value);
        let factor = self.add(twice, one);
        let above = self.mul(x, factor);
        let of_above = self.mul_add(twice, value, factor);

        let numerator = self.select(Compare::Less, [x, zero], tail, above);
        let denominator = self.select(Compare::Less, [x, zero], of_tail, of_above);
        self.div(numerator, denominator)
    }

    /// Appends `2^-n` for an integer n from -127 on. Above 126 it is `2^-126`, which vanishes next
    /// to 1.
    fn inverse_power_of_two(&mut self, n: u8) -> u8 {
        let [most, whole] = [126.0, WHOLE].map(|value| self.number(value));
        let limited = self.apply(Primitive::Min, &[n, most]);
        let opposite = self.sub(whole, limited);
        self.power_of_two(opposite)
    }

    /// Appends `-abs(x)`, at least `bound`.
    fn bounded_below(&mut self, x: u8, bound: f32) -> u8 {
        let (below, bound) = (self.opposite_magnitude(x), self.number(bound));
        self.apply(Primitive::Max, &[below, bound])
    }

    /// Appends `abs(x)`, at most `bound`.
    fn bounded_magnitude(&mut self, x: u8, bound: f32) -> u8 {
        let (magnitude, bound) = (self.magnitude(x), self.number(bound));
        self.apply(Primitive::Min, &[magnitude, bound])
    }

    /// Appends `-a`, the rounded `-a^2`, and its rounding error `a^2 + rounded(-a^2)`.
    fn squared(&mut self, a: u8) -> (u8, u8, u8) {
        let sign = self.bits(SIGN);
        let below = self.apply(Primitive::Or, &[a, sign]);
        let square = self.mul(a, below);
        (below, square, self.mul_add(a, a, square))
    }

    /// Appends `exp(x)` for x from -125 to 0.
    fn exp_of_bounded(&mut self, x: u8) -> Power {
        let [high, low] = LOG2_E_PARTS.map(|part| self.number(part));
        self.power_of_product([x, high], &[[x, low]])
    }

    /// Appends 2 to the power of a product from -250 to 0 plus smaller products.
    fn power_of_product(&mut self, [a, b]: [u8; 2], smaller: &[[u8; 2]]) -> Power {
        let whole = self.number(WHOLE);
        let exponent = self.mul_add(a, b, whole);
        let (n, opposite) = (self.sub(exponent, whole), self.sub(whole, exponent));
        let fraction = self.mul_add(a, b, opposite);
        // Small products change the fraction only, not n.
        let fraction = smaller.iter().fold(fraction, |sum, &[a, b]| self.mul_add(a, b, sum));
        Power { exponent, n, mantissa: self.polynomial(&POWER_OF_TWO, fraction) }
    }

    /// Appends `2^n`, with n in the lowest bits of a step; 0 for n below -126.
    fn power_of_two_or_zero(&mut self, exponent: u8) -> u8 {
        let least = self.number(WHOLE - 127.0);
        let exponent = self.apply(Primitive::Max, &[exponent, least]);
        self.power_of_two(exponent)
    }

    /// Appends a product times `2^n`; NaN if x is infinite, since infinity times 0 is NaN.
    fn scaled_tail(&mut self, x: u8, product: u8, n: u8) -> u8 {
        let zero = self.number(0.0);
        let scaled = self.apply(Primitive::Scale, &[product, n]);
        self.mul_add(x, zero, scaled)
    }
}
