//! Functions that are made of others, but whose tails are not: a difference or a product of the
//! parts loses every digit there.
//!
//! Sums beside 1 keep the small summand, and a power of two is the last factor, so that results are
//! rounded once where they are denormal.

use super::{Formula, INFINITY, LOG2_E, POWER_OF_TWO, SIGN, Scaled, WHOLE};
use crate::formula::Primitive;
use crate::program::Compare;

/// `exp(x) - 1` is -1 below it.
const LEAST_EXPM1: f32 = -25.0;

/// `x * exp(x)` is 0 below it.
const LEAST_PRODUCT: f32 = -110.0;

/// `sqrt(2) - 1`: larger summands beside 1 are halved.
const HALVED: f32 = 0.414_213_57;

/// `2 * sqrt(2 / pi) / ln 2` and that times 0.044715, each as the sum of two numbers. The first is
/// a multiple of `2^-19`: its distance to a sum of up to 32 is exact.
const TANH_FIRST: [f32; 2] = [2.302_208, 2.513_669_7e-7];
const TANH_THIRD: [f32; 2] = [0.102_943_24, -2.016_198_5e-9];

/// `x` times the sigmoid of those is 0 below minus this.
const LARGEST_TANH: f32 = 11.0;

/// The normal distribution at `-a` times `exp(a^2 / 2)` as a quotient of polynomials in a, for a up
/// to 14.6, beyond which a times the distribution is 0 in f32: the error is at most `2^-27.3` of
/// it.
const NORMAL_ABOVE: [f32; 5] = [48.370_98, 42.421_032, 17.741_007, 3.935_825, 0.398_946_85];
const NORMAL_BELOW: [f32; 6] = [96.741_96, 162.031_02, 116.392_62, 45.455_74, 9.866_267, 1.0];
const LARGEST_NORMAL: f32 = 14.6;

/// `1 / ln 2` and half of it, as sums of two numbers.
const LOG2_E_PARTS: [f32; 2] = [LOG2_E, 1.925_963e-8];
const HALF_LOG2_E: [f32; 2] = [LOG2_E_PARTS[0] / 2.0, LOG2_E_PARTS[1] / 2.0];

/// `2^n * mantissa`, which may be less than any f32.
struct Power {
    /// `n` in the lowest bits of [`WHOLE`]` + n`, and as a number.
    exponent: u8,
    n: u8,
    /// From `sqrt(1/2)` to `sqrt(2)`.
    mantissa: u8,
}

impl Formula {
    /// 1 or -1, zero and what is not a number being their own signs.
    pub(super) fn sign(&mut self, x: u8) -> u8 {
        let [zero, one, minus_one] = [0.0, 1.0, -1.0].map(|value| self.number(value));
        let neither = self.add(x, zero);
        let below = self.select(Compare::Less, [x, zero], minus_one, neither);
        self.select(Compare::Less, [zero, x], one, below)
    }

    /// `2^n * (fraction + (1 - 2^-n))`.
    pub(super) fn expm1(&mut self, x: u8) -> u8 {
        let [most, least, zero, one] = [89.0, LEAST_EXPM1, 0.0, 1.0].map(|value| self.number(value));
        let bounded = self.apply(Primitive::Min, &[x, most]);
        let bounded = self.apply(Primitive::Max, &[bounded, least]);
        let Scaled { n, fraction, .. } = self.scaled_exp(bounded);

        let inverse = self.inverse_power_of_two(n);
        let rest = self.sub(one, inverse);
        let sum = self.add(fraction, rest);
        let value = self.apply(Primitive::Scale, &[sum, n]);
        // Zero has its own sign.
        self.select(Compare::Equal, [x, zero], x, value)
    }

    /// The logarithm of the rounded sum, with what rounding lost.
    pub(super) fn log1p(&mut self, x: u8) -> u8 {
        let [zero, one] = [0.0, 1.0].map(|value| self.number(value));
        let sum = self.add(x, one);
        let back = self.sub(sum, one);
        let lost = self.sub(x, back);

        let bias = self.number(-127.0 - 8_388_608.0);
        let [n, mantissa] = self.parted_bits(sum, bias);
        let inverse = self.inverse_power_of_two(n);
        let f = self.sub(mantissa, one);
        let f = self.mul_add(lost, inverse, f);
        let log = self.log_of_parts(n, f);

        let (infinity, minus_infinity, not_a_number) =
            (self.bits(INFINITY), self.number(f32::NEG_INFINITY), self.number(f32::NAN));
        let finite = self.select(Compare::Less, [x, infinity], log, x);
        let other = self.select(Compare::Equal, [sum, zero], minus_infinity, not_a_number);
        let value = self.select(Compare::Less, [zero, sum], finite, other);
        self.select(Compare::Equal, [x, zero], x, value)
    }

    /// `max(x, 0) + log(1 + exp(-abs(x)))`.
    pub(super) fn softplus(&mut self, x: u8) -> u8 {
        let below = self.opposite_magnitude(x);
        let power = self.exp_of_negative(below);

        // A sum beyond sqrt(2) is halved without rounding it.
        let [halved, zero, half, one] = [HALVED, 0.0, 0.5, 1.0].map(|value| self.number(value));
        let less_one = self.sub(power, one);
        let half_sum = self.mul(less_one, half);
        let f = self.select(Compare::Less, [power, halved], power, half_sum);
        let n = self.select(Compare::Less, [power, halved], zero, one);
        let log = self.log_of_parts(n, f);

        let above = self.apply(Primitive::Max, &[x, zero]);
        self.add(above, log)
    }

    /// `x * exp(min(x, 0)) / (1 + exp(-abs(x)))`.
    pub(super) fn silu(&mut self, x: u8) -> u8 {
        let below = self.bounded_below(x, LEAST_PRODUCT);
        let power = self.exp_of_bounded(below);
        self.weighed_by_sigmoid(x, below, power)
    }

    /// The same with `2 * sqrt(2/pi) * (x + 0.044715 * x^3)` for the x of the powers.
    pub(super) fn gelu_tanh(&mut self, x: u8) -> u8 {
        let a = self.bounded_magnitude(x, LARGEST_TANH);
        let (below, square, lost) = self.squared(a);

        // A line in a^2, and what it is off by.
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

    /// x times the sigmoid of what a power of `-abs(x)` is of; so is x given, within the bounds of
    /// what is not 0.
    fn weighed_by_sigmoid(&mut self, x: u8, below: u8, power: Power) -> u8 {
        let product = self.mul(below, power.mantissa);
        let [zero, one] = [0.0, 1.0].map(|value| self.number(value));
        let tail = self.scaled_tail(x, product, power.n);
        let numerator = self.select(Compare::Less, [x, zero], tail, x);

        let scale = self.power_of_two_or_zero(power.exponent);
        let denominator = self.mul_add(power.mantissa, scale, one);
        self.div(numerator, denominator)
    }

    /// `max(x, 0) - a * normal(-a)` of `a = abs(x)`, which is even: no side of zero needs a formula
    /// of its own.
    pub(super) fn gelu(&mut self, x: u8) -> u8 {
        let a = self.bounded_magnitude(x, LARGEST_NORMAL);
        let (below, square, lost) = self.squared(a);

        // exp(-a^2 / 2) times a quotient.
        let [high, low] = HALF_LOG2_E.map(|part| self.number(part));
        let minus_high = self.number(-HALF_LOG2_E[0]);
        let power = self.power_of_product([square, high], &[[square, low], [lost, minus_high]]);
        let (above_line, below_line) = (self.polynomial(&NORMAL_ABOVE, a), self.polynomial(&NORMAL_BELOW, a));
        let product = self.mul(below, above_line);
        let product = self.mul(product, power.mantissa);
        let tail = self.div(product, below_line);
        let tail = self.apply(Primitive::Scale, &[tail, power.n]);

        // Minus infinity times 0 is no number.
        let [zero, one] = [0.0, 1.0].map(|value| self.number(value));
        let is_positive = self.select(Compare::Less, [zero, x], one, zero);
        self.mul_add(x, is_positive, tail)
    }

    /// `x * tanh(log(1 + exp(x)))`: with `E = exp(-abs(x))` it is `x * E * (E + 2) / (E * (E + 2) +
    /// 2)` below zero, above it `x * (1 + 2 * E) / (1 + 2 * E + 2 * E^2)`.
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

    /// `2^-n` of whole n from -127 on, of those beyond 126 `2^-126`: beside 1 that is as good as 0.
    fn inverse_power_of_two(&mut self, n: u8) -> u8 {
        let [most, whole] = [126.0, WHOLE].map(|value| self.number(value));
        let limited = self.apply(Primitive::Min, &[n, most]);
        let opposite = self.sub(whole, limited);
        self.power_of_two(opposite)
    }

    /// `-abs(x)`, or a bound if that is less.
    fn bounded_below(&mut self, x: u8, bound: f32) -> u8 {
        let (below, bound) = (self.opposite_magnitude(x), self.number(bound));
        self.apply(Primitive::Max, &[below, bound])
    }

    /// `abs(x)`, or a bound if that is less.
    fn bounded_magnitude(&mut self, x: u8, bound: f32) -> u8 {
        let (magnitude, bound) = (self.magnitude(x), self.number(bound));
        self.apply(Primitive::Min, &[magnitude, bound])
    }

    /// `-a`, `-a^2` rounded, and what has to be taken from that: `a^2 + (-a^2 rounded)`.
    fn squared(&mut self, a: u8) -> (u8, u8, u8) {
        let sign = self.bits(SIGN);
        let below = self.apply(Primitive::Or, &[a, sign]);
        let square = self.mul(a, below);
        (below, square, self.mul_add(a, a, square))
    }

    /// `exp(x)` for x from -125 to 0.
    fn exp_of_bounded(&mut self, x: u8) -> Power {
        let [high, low] = LOG2_E_PARTS.map(|part| self.number(part));
        self.power_of_product([x, high], &[[x, low]])
    }

    /// Two to the power of a product from -250 to 0 and of smaller ones.
    fn power_of_product(&mut self, [a, b]: [u8; 2], smaller: &[[u8; 2]]) -> Power {
        let whole = self.number(WHOLE);
        let exponent = self.mul_add(a, b, whole);
        let (n, opposite) = (self.sub(exponent, whole), self.sub(whole, exponent));
        let fraction = self.mul_add(a, b, opposite);
        let fraction = smaller.iter().fold(fraction, |sum, &[a, b]| self.mul_add(a, b, sum));
        Power { exponent, n, mantissa: self.polynomial(&POWER_OF_TWO, fraction) }
    }

    /// `2^n` of the n in the lowest bits of a step, 0 for n below -126.
    fn power_of_two_or_zero(&mut self, exponent: u8) -> u8 {
        let least = self.number(WHOLE - 127.0);
        let exponent = self.apply(Primitive::Max, &[exponent, least]);
        self.power_of_two(exponent)
    }

    /// A product times `2^n`, and no number where x is infinite, as infinity times 0 is none.
    fn scaled_tail(&mut self, x: u8, product: u8, n: u8) -> u8 {
        let zero = self.number(0.0);
        let scaled = self.apply(Primitive::Scale, &[product, n]);
        self.mul_add(x, zero, scaled)
    }
}
