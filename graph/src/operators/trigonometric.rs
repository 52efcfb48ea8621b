//! Trigonometric and hyperbolic functions, and their inverses.

use std::f32::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4, LN_2, PI};

use autotune_ir::program::UnaryOp;
use autotune_workloads::Function;

use super::binary::Binary;
use super::map::Map;
use super::prelude::*;
use super::sub_nodes::SubNodes;

pub(super) static IMPORTS: &[OnnxOperator] = &[
    OnnxOperator::one("Sin", |call| import(call, Trigonometric::Sin)),
    OnnxOperator::one("Cos", |call| import(call, Trigonometric::Cos)),
    OnnxOperator::one("Tan", |call| import(call, Trigonometric::Tan)),
    OnnxOperator::one("Asin", |call| import(call, Trigonometric::Asin)),
    OnnxOperator::one("Acos", |call| import(call, Trigonometric::Acos)),
    OnnxOperator::one("Atan", |call| import(call, Trigonometric::Atan)),
    OnnxOperator::one("Sinh", |call| import(call, Trigonometric::Sinh)),
    OnnxOperator::one("Cosh", |call| import(call, Trigonometric::Cosh)),
    OnnxOperator::one("Asinh", |call| import(call, Trigonometric::Asinh)),
    OnnxOperator::one("Acosh", |call| import(call, Trigonometric::Acosh)),
    OnnxOperator::one("Atanh", |call| import(call, Trigonometric::Atanh)),
];

/// A trigonometric or hyperbolic function of every element, by its usual name. Angles are radians.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Trigonometric {
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Asinh,
    Acosh,
    Atanh,
}

impl Trigonometric {
    /// Functions in the order of their declaration.
    pub const ALL: [Self; 11] = [
        Self::Sin,
        Self::Cos,
        Self::Tan,
        Self::Asin,
        Self::Acos,
        Self::Atan,
        Self::Sinh,
        Self::Cosh,
        Self::Asinh,
        Self::Acosh,
        Self::Atanh,
    ];
}

impl Operator for Trigonometric {
    fn name(&self) -> &'static str {
        match self {
            Trigonometric::Sin => "Sin",
            Trigonometric::Cos => "Cos",
            Trigonometric::Tan => "Tan",
            Trigonometric::Asin => "Asin",
            Trigonometric::Acos => "Acos",
            Trigonometric::Atan => "Atan",
            Trigonometric::Sinh => "Sinh",
            Trigonometric::Cosh => "Cosh",
            Trigonometric::Asinh => "Asinh",
            Trigonometric::Acosh => "Acosh",
            Trigonometric::Atanh => "Atanh",
        }
    }

    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        Ok((shapes_of(operands, 1..=1, DType::F32)?[0].to_vec(), DType::F32))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        let of = match self {
            Trigonometric::Sin => libm::sin,
            Trigonometric::Cos => libm::cos,
            Trigonometric::Tan => libm::tan,
            Trigonometric::Asin => libm::asin,
            Trigonometric::Acos => libm::acos,
            Trigonometric::Atan => libm::atan,
            Trigonometric::Sinh => libm::sinh,
            Trigonometric::Cosh => libm::cosh,
            Trigonometric::Asinh => libm::asinh,
            // `libm` has numbers for some below 1.
            Trigonometric::Acosh => |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) },
            Trigonometric::Atanh => libm::atanh,
        };
        tensor(shape, values(operands, 0)?.iter().map(|&x: &f32| of(x.into()) as f32).collect())
    }

    /// Returns operations and functions that have kernels. Results are exact to a few ulp; those of
    /// sine, cosine and tangent for angles up to 10^4.
    fn parts(&self, node: &NodeView) -> Option<Vec<SubNode>> {
        let of: fn(&mut SubNodes) -> usize = match self {
            Trigonometric::Sin => |parts| parts.wave(0.0),
            Trigonometric::Cos => |parts| parts.wave(1.0),
            Trigonometric::Tan => SubNodes::tangent,
            Trigonometric::Asin => SubNodes::arc_sine,
            Trigonometric::Acos => SubNodes::arc_cosine,
            Trigonometric::Atan => SubNodes::arc_tangent,
            Trigonometric::Sinh => SubNodes::hyperbolic_sine,
            Trigonometric::Cosh => SubNodes::hyperbolic_cosine,
            Trigonometric::Asinh => SubNodes::area_sine,
            Trigonometric::Acosh => SubNodes::area_cosine,
            Trigonometric::Atanh => SubNodes::area_tangent,
        };
        let mut parts = SubNodes::new(node);
        of(&mut parts);
        Some(parts.finish())
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.operator(self.name(), Vec::new())
    }

    fn amplifies_errors(&self, _: bool) -> bool {
        true
    }
}

fn import(call: &mut Call, function: Trigonometric) -> call::Result<ImportValue> {
    let x = call.only()?;
    call.add(function, &[x])
}

/// Number of the decomposed node's operand.
const X: usize = 0;

/// Half of pi as a sum. The first numbers have at most 11 bits, so that their products with
/// quarters of turns up to 2^13, and thus up to angles of 10^4, are exact.
const HALF_PI: [f32; 4] = [1.570_312_5, 4.837_513e-4, 7.549_533_6e-8, 2.563_344e-12];

/// Approximations by polynomials in the square of the angle, highest power first (Cephes):
/// `(sin(r) - r) / r^3`, `(cos(r) - 1 + r^2 / 2) / r^4` up to pi/4, `(asin(y) - y) / y^3` up to
/// 1/2, `(atan(y) - y) / y^3` up to tan(pi/8).
const SINE: [f32; 3] = [-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1];
const COSINE: [f32; 3] = [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2];
const ARC_SINE: [f32; 5] = [4.216_32e-2, 2.418_131e-2, 4.547_002_6e-2, 7.495_300_3e-2, 1.666_675_2e-1];
const ARC_TANGENT: [f32; 4] = [8.053_744_6e-2, -1.387_768_6e-1, 1.997_771_1e-1, -3.333_295e-1];

/// Angle within a quarter of a turn.
struct ReducedAngle {
    sine: usize,
    cosine: usize,
    /// Number of quarters of turns that were subtracted.
    quarters: usize,
}

// Parts of the functions. Each returns the number of its result.
impl SubNodes {
    fn op(&mut self, op: UnaryOp, x: usize) -> usize {
        self.add(Map(Function::Op(op)), &[x])
    }

    fn polynomial(&mut self, x: usize, coefficients: &[f32]) -> usize {
        let mut sum = self.constant(Tensor::scalar(coefficients[0]));
        for &coefficient in &coefficients[1..] {
            let product = self.add(Binary::Mul, &[x, sum]);
            sum = self.with(Binary::Add, product, coefficient);
        }
        sum
    }

    /// Returns `y + y * z * polynomial(z)`.
    fn odd(&mut self, y: usize, z: usize, coefficients: &[f32]) -> usize {
        let sum = self.polynomial(z, coefficients);
        let cube = self.add(Binary::Mul, &[y, z]);
        let rest = self.add(Binary::Mul, &[sum, cube]);
        self.add(Binary::Add, &[rest, y])
    }

    fn number_minus(&mut self, number: f32, x: usize) -> usize {
        let number = self.constant(Tensor::scalar(number));
        self.add(Binary::Sub, &[number, x])
    }

    fn is_above(&mut self, x: usize, number: f32) -> usize {
        let number = self.constant(Tensor::scalar(number));
        self.add(Binary::Less, &[number, x])
    }

    /// Returns `magnitude` with the sign of the operand.
    fn signed(&mut self, magnitude: usize) -> usize {
        let sign = self.op(UnaryOp::Sign, X);
        self.add(Binary::Mul, &[magnitude, sign])
    }

    /// Returns `x - 2 * floor(x / 2)`, 0 or 1 for integers, and the floor.
    fn parity(&mut self, x: usize) -> [usize; 2] {
        let half = self.with(Binary::Mul, x, 0.5);
        let half = self.op(UnaryOp::Floor, half);
        let even = self.with(Binary::Mul, half, 2.0);
        [self.add(Binary::Sub, &[x, even]), half]
    }

    fn reduced_angle(&mut self) -> ReducedAngle {
        let turns = self.with(Binary::Mul, X, FRAC_2_PI);
        let shifted = self.with(Binary::Add, turns, 0.5);
        let quarters = self.op(UnaryOp::Floor, shifted);
        let mut angle = X;
        for part in HALF_PI {
            let covered = self.with(Binary::Mul, quarters, part);
            angle = self.add(Binary::Sub, &[angle, covered]);
        }
        // Of huge angles nothing is left but rounding errors, which must not leave the range.
        let angle = self.with(Binary::Max, angle, -1.0);
        let angle = self.with(Binary::Min, angle, 1.0);

        let square = self.add(Binary::Mul, &[angle, angle]);
        let sine = self.odd(angle, square, &SINE);
        let fourth = self.add(Binary::Mul, &[square, square]);
        let sum = self.polynomial(square, &COSINE);
        let rest = self.add(Binary::Mul, &[sum, fourth]);
        let half = self.with(Binary::Mul, square, 0.5);
        let parabola = self.number_minus(1.0, half);
        let cosine = self.add(Binary::Add, &[rest, parabola]);
        ReducedAngle { sine, cosine, quarters }
    }

    /// Returns the sine of the angle that is larger by a number of quarters of a turn.
    fn wave(&mut self, ahead: f32) -> usize {
        let ReducedAngle { sine, cosine, quarters } = self.reduced_angle();
        let quarters = if ahead == 0.0 { quarters } else { self.with(Binary::Add, quarters, ahead) };
        let [odd, half] = self.parity(quarters);
        let [negative, _] = self.parity(half);
        let is_odd = self.is_above(odd, 0.5);
        let magnitude = self.choose(is_odd, cosine, sine);
        let doubled = self.with(Binary::Mul, negative, 2.0);
        let sign = self.number_minus(1.0, doubled);
        self.add(Binary::Mul, &[magnitude, sign])
    }

    fn tangent(&mut self) -> usize {
        let ReducedAngle { sine, cosine, quarters } = self.reduced_angle();
        let [odd, _] = self.parity(quarters);
        let is_odd = self.is_above(odd, 0.5);
        let above = self.choose(is_odd, cosine, sine);
        let opposite = self.op(UnaryOp::Neg, sine);
        let below = self.choose(is_odd, opposite, cosine);
        self.add(Binary::Div, &[above, below])
    }

    /// Returns `asin(y)` of `y = |x|` up to 1/2, and of `y = sqrt((1 - |x|) / 2)` above; then also
    /// the truth value that says so.
    fn small_arc(&mut self) -> [usize; 2] {
        let size = self.op(UnaryOp::Abs, X);
        let is_large = self.is_above(size, 0.5);
        let half = self.with(Binary::Mul, size, 0.5);
        let rest = self.number_minus(0.5, half);
        let root = self.op(UnaryOp::Sqrt, rest);
        let y = self.choose(is_large, root, size);
        let square = self.add(Binary::Mul, &[size, size]);
        let z = self.choose(is_large, rest, square);
        [self.odd(y, z, &ARC_SINE), is_large]
    }

    fn arc_sine(&mut self) -> usize {
        let [arc, is_large] = self.small_arc();
        let twice = self.with(Binary::Mul, arc, 2.0);
        let rest = self.number_minus(FRAC_PI_2, twice);
        let arc = self.choose(is_large, rest, arc);
        self.signed(arc)
    }

    fn arc_cosine(&mut self) -> usize {
        let [arc, is_large] = self.small_arc();
        let twice = self.with(Binary::Mul, arc, 2.0);
        let behind = self.number_minus(PI, twice);
        let is_positive = self.is_above(X, 0.0);
        let large = self.choose(is_positive, twice, behind);
        let small = self.signed(arc);
        let small = self.number_minus(FRAC_PI_2, small);
        self.choose(is_large, large, small)
    }

    /// Returns `base + atan(y)`, where `y` is `-1 / |x|`, `(|x| - 1) / (|x| + 1)` or `|x|`.
    fn arc_tangent(&mut self) -> usize {
        // The tangents of pi/8 and 3 pi/8.
        let (low, high) = (0.414_213_57, 2.414_213_6);
        let size = self.op(UnaryOp::Abs, X);
        let (is_high, is_middle) = (self.is_above(size, high), self.is_above(size, low));
        let minus_one = self.constant(Tensor::scalar(-1.0));
        let inverse = self.add(Binary::Div, &[minus_one, size]);
        let (before, behind) = (self.with(Binary::Add, size, -1.0), self.with(Binary::Add, size, 1.0));
        let turned = self.add(Binary::Div, &[before, behind]);
        let y = self.choose(is_middle, turned, size);
        let y = self.choose(is_high, inverse, y);

        let [none, quarter, half] = [0.0, FRAC_PI_4, FRAC_PI_2].map(|base| self.constant(Tensor::scalar(base)));
        let base = self.choose(is_middle, quarter, none);
        let base = self.choose(is_high, half, base);
        let z = self.add(Binary::Mul, &[y, y]);
        let arc = self.odd(y, z, &ARC_TANGENT);
        let whole = self.add(Binary::Add, &[arc, base]);
        self.signed(whole)
    }

    /// Returns `(e + e / (e + 1)) / 2` with `e = exp(|x|) - 1`; for large `|x|` half the
    /// exponential, as a square that overflows later.
    fn hyperbolic_sine(&mut self) -> usize {
        let size = self.op(UnaryOp::Abs, X);
        let power = self.op(UnaryOp::Expm1, size);
        let above = self.with(Binary::Add, power, 1.0);
        let ratio = self.add(Binary::Div, &[power, above]);
        let sum = self.add(Binary::Add, &[power, ratio]);
        let small = self.with(Binary::Mul, sum, 0.5);
        let large = self.half_power(size)[0];
        let is_large = self.is_above(size, 20.0);
        let whole = self.choose(is_large, large, small);
        self.signed(whole)
    }

    fn hyperbolic_cosine(&mut self) -> usize {
        let size = self.op(UnaryOp::Abs, X);
        let [half, root] = self.half_power(size);
        let square = self.add(Binary::Mul, &[root, root]);
        let below = self.constant(Tensor::scalar(0.5));
        let inverse = self.add(Binary::Div, &[below, square]);
        self.add(Binary::Add, &[half, inverse])
    }

    /// Returns `exp(x) / 2` and `exp(x / 2)`.
    fn half_power(&mut self, x: usize) -> [usize; 2] {
        let half = self.with(Binary::Mul, x, 0.5);
        let root = self.op(UnaryOp::Exp, half);
        let half = self.with(Binary::Mul, root, 0.5);
        [self.add(Binary::Mul, &[half, root]), root]
    }

    /// Returns `small`, or `log(2 x)` for `x` so large that both are equal in f32 and the square of
    /// `x` may not overflow.
    fn or_log(&mut self, x: usize, small: usize) -> usize {
        let log = self.op(UnaryOp::Log, x);
        let log = self.with(Binary::Add, log, LN_2);
        let is_large = self.is_above(x, 16_384.0);
        self.choose(is_large, log, small)
    }

    /// Returns `log(1 + a + a^2 / (1 + sqrt(a^2 + 1)))` with `a = |x|`.
    fn area_sine(&mut self) -> usize {
        let size = self.op(UnaryOp::Abs, X);
        let square = self.add(Binary::Mul, &[size, size]);
        let above = self.with(Binary::Add, square, 1.0);
        let root = self.op(UnaryOp::Sqrt, above);
        let below = self.with(Binary::Add, root, 1.0);
        let ratio = self.add(Binary::Div, &[square, below]);
        let sum = self.add(Binary::Add, &[size, ratio]);
        let small = self.op(UnaryOp::Log1p, sum);
        let whole = self.or_log(size, small);
        self.signed(whole)
    }

    /// Returns `log(1 + t + sqrt(t) * sqrt(x + 1))` with `t = x - 1`.
    fn area_cosine(&mut self) -> usize {
        let (before, behind) = (self.with(Binary::Add, X, -1.0), self.with(Binary::Add, X, 1.0));
        let (root, other) = (self.op(UnaryOp::Sqrt, before), self.op(UnaryOp::Sqrt, behind));
        let product = self.add(Binary::Mul, &[root, other]);
        let sum = self.add(Binary::Add, &[before, product]);
        let small = self.op(UnaryOp::Log1p, sum);
        self.or_log(X, small)
    }

    /// Returns `log(1 + 2 a / (1 - a)) / 2` with `a = |x|`.
    fn area_tangent(&mut self) -> usize {
        let size = self.op(UnaryOp::Abs, X);
        let twice = self.with(Binary::Mul, size, 2.0);
        let rest = self.number_minus(1.0, size);
        let ratio = self.add(Binary::Div, &[twice, rest]);
        let log = self.op(UnaryOp::Log1p, ratio);
        let whole = self.with(Binary::Mul, log, 0.5);
        self.signed(whole)
    }
}
