//! Elementwise operations; [formulas](crate::formula) define their exact results.

use crate::dtype::DType;

/// Operation on one value. All propagate NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// Negation, also of zeros.
    Neg,
    /// Absolute value: clears the sign.
    Abs,
    /// Square root; NaN for negative values.
    Sqrt,
    /// Reciprocal square root; infinite at 0.
    Rsqrt,
    /// Largest integer that is not larger than the value.
    Floor,
    /// Exponential function, base e.
    Exp,
    /// Power of 2. CUDA kernels compute it by an instruction with an error of up to two units in
    /// the last place, which flushes denormal results to zero.
    Exp2,
    /// Natural logarithm; NaN for negative values.
    Log,
    /// Hyperbolic tangent, in `-1..=1`.
    Tanh,
    /// Error function, `2/sqrt(pi)` times the integral of `exp(-t*t)` from 0 to x.
    Erf,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `x/2 * (1 + erf(x / sqrt(2)))`; NaN at minus infinity.
    Gelu,
    /// Gelu with `tanh(sqrt(2/pi) * (x + 0.044715 * x^3))` instead of the error function; NaN at
    /// minus infinity.
    GeluTanh,
    /// `x / (1 + exp(-x))`; NaN at minus infinity.
    Silu,
    /// `x * tanh(log(1 + exp(x)))`; NaN at minus infinity.
    Mish,
    /// `log(1 + exp(x))`, a smooth maximum of 0 and x.
    Softplus,
    /// `exp(x) - 1`, accurate for small x.
    Expm1,
    /// `log(1 + x)`, accurate for small x.
    Log1p,
    /// Sign: 1 for positive values, -1 for negative ones, 0 for both zeros.
    Sign,
    /// Rounding to a type: [`DType::stored`].
    Cast(DType),
}

/// All operations except casts.
const OTHERS: [UnaryOp; 19] = [
    UnaryOp::Neg,
    UnaryOp::Abs,
    UnaryOp::Sqrt,
    UnaryOp::Rsqrt,
    UnaryOp::Floor,
    UnaryOp::Exp,
    UnaryOp::Exp2,
    UnaryOp::Log,
    UnaryOp::Tanh,
    UnaryOp::Erf,
    UnaryOp::Sigmoid,
    UnaryOp::Gelu,
    UnaryOp::GeluTanh,
    UnaryOp::Silu,
    UnaryOp::Mish,
    UnaryOp::Softplus,
    UnaryOp::Expm1,
    UnaryOp::Log1p,
    UnaryOp::Sign,
];

impl UnaryOp {
    /// Computes the result in f64, for references.
    pub fn exact(self, x: f64) -> f64 {
        match self {
            UnaryOp::Neg => -x,
            UnaryOp::Abs => x.abs(),
            UnaryOp::Sqrt => x.sqrt(),
            UnaryOp::Rsqrt => x.sqrt().recip(),
            UnaryOp::Floor => x.floor(),
            UnaryOp::Exp => x.exp(),
            UnaryOp::Exp2 => x.exp2(),
            UnaryOp::Log => x.ln(),
            UnaryOp::Tanh => x.tanh(),
            UnaryOp::Erf => libm::erf(x),
            UnaryOp::Sigmoid => (1.0 + (-x).exp()).recip(),
            // The complementary function keeps its digits in the tail.
            UnaryOp::Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
            UnaryOp::GeluTanh => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
                x / (1.0 + (-2.0 * inner).exp())
            }

            UnaryOp::Silu => x / (1.0 + (-x).exp()),
            UnaryOp::Mish => x * UnaryOp::Softplus.exact(x).tanh(),
            UnaryOp::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
            UnaryOp::Expm1 => x.exp_m1(),
            UnaryOp::Log1p => x.ln_1p(),

            // `signum` would give 1 for zero.
            UnaryOp::Sign if x == 0.0 => 0.0,
            UnaryOp::Sign => x.signum(),
            UnaryOp::Cast(dtype) => dtype.stored(x as f32).into(),
        }
    }

    /// All operations; casts are last.
    pub const ALL: [UnaryOp; OTHERS.len() + DType::ALL.len()] = {
        let (mut all, mut at) = ([UnaryOp::Neg; OTHERS.len() + DType::ALL.len()], 0);
        while at < all.len() {
            all[at] = match at.checked_sub(OTHERS.len()) {
                Some(number) => UnaryOp::Cast(DType::ALL[number]),
                None => OTHERS[at],
            };
            at += 1;
        }
        all
    };

    /// Returns the name in text and in generated source, a C identifier.
    pub fn word(self) -> &'static str {
        match self {
            UnaryOp::Neg => "neg",
            UnaryOp::Abs => "abs",
            UnaryOp::Sqrt => "sqrt",
            UnaryOp::Rsqrt => "rsqrt",
            UnaryOp::Floor => "floor",
            UnaryOp::Exp => "exp",
            UnaryOp::Exp2 => "exp2",
            UnaryOp::Log => "log",
            UnaryOp::Tanh => "tanh",
            UnaryOp::Erf => "erf",
            UnaryOp::Sigmoid => "sigmoid",
            UnaryOp::Gelu => "gelu",
            UnaryOp::GeluTanh => "gelu_tanh",
            UnaryOp::Silu => "silu",
            UnaryOp::Mish => "mish",
            UnaryOp::Softplus => "softplus",
            UnaryOp::Expm1 => "expm1",
            UnaryOp::Log1p => "log1p",
            UnaryOp::Sign => "sign",
            UnaryOp::Cast(dtype) => dtype.word(),
        }
    }
}

/// Operation on two values. All propagate NaN unless stated otherwise, except that `1^y` and `x^0`
/// are 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOp {
    /// Sum `a + b`; wraps for integers.
    Add,
    /// Difference `a - b`; wraps for integers.
    Sub,
    /// Product `a * b`; wraps for integers.
    Mul,
    /// Quotient `a / b`; not for integers.
    Div,
    /// Larger value; of two zeros the first.
    Max,
    /// Larger value, or the first if the second is NaN; of two zeros the first. CUDA kernels
    /// compute it by an instruction that ignores a NaN in either value and orders zeros.
    MaxNumber,
    /// Smaller value; of two zeros the first.
    Min,
    /// Power (IEEE 754 `pow`): a negative base has a result for integer exponents only.
    Pow,
}

impl BinaryOp {
    /// Computes the result in f64, for references.
    pub fn exact(self, a: f64, b: f64) -> f64 {
        match self {
            BinaryOp::Add => a + b,
            BinaryOp::Sub => a - b,
            BinaryOp::Mul => a * b,
            BinaryOp::Div => a / b,
            BinaryOp::Max | BinaryOp::Min if a.is_nan() || b.is_nan() => f64::NAN,
            BinaryOp::Max => a.max(b),
            BinaryOp::MaxNumber => [a, b][usize::from(a < b)],
            BinaryOp::Min => a.min(b),
            BinaryOp::Pow => libm::pow(a, b),
        }
    }

    /// Computes the result for two integers, wrapping in 32 bits; `None` if the operation is
    /// defined for floating-point numbers only.
    pub fn of_integers(self, a: i32, b: i32) -> Option<i32> {
        match self {
            BinaryOp::Add => Some(a.wrapping_add(b)),
            BinaryOp::Sub => Some(a.wrapping_sub(b)),
            BinaryOp::Mul => Some(a.wrapping_mul(b)),
            BinaryOp::Max | BinaryOp::MaxNumber => Some(a.max(b)),
            BinaryOp::Min => Some(a.min(b)),
            BinaryOp::Div | BinaryOp::Pow => None,
        }
    }

    /// All operations, in the order of the variants.
    pub const ALL: [BinaryOp; 8] = [
        BinaryOp::Add,
        BinaryOp::Sub,
        BinaryOp::Mul,
        BinaryOp::Div,
        BinaryOp::Max,
        BinaryOp::MaxNumber,
        BinaryOp::Min,
        BinaryOp::Pow,
    ];

    /// Returns the name in text and in generated source, a C identifier.
    pub fn word(self) -> &'static str {
        match self {
            BinaryOp::Add => "add",
            BinaryOp::Sub => "sub",
            BinaryOp::Mul => "mul",
            BinaryOp::Div => "div",
            BinaryOp::Max => "max",
            BinaryOp::MaxNumber => "max_number",
            BinaryOp::Min => "min",
            BinaryOp::Pow => "pow",
        }
    }
}

/// Comparison of two values; false if either is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// Less than: `a < b`.
    Less,
    /// Less than or equal: `a <= b`.
    LessEqual,
    /// Equal: `a == b`; both zeros are equal.
    Equal,
}

impl Compare {
    /// All comparisons, in the order of the variants.
    pub const ALL: [Compare; 3] = [Compare::Less, Compare::LessEqual, Compare::Equal];

    /// Returns the operator in text and in C.
    pub fn sign(self) -> &'static str {
        match self {
            Compare::Less => "<",
            Compare::LessEqual => "<=",
            Compare::Equal => "==",
        }
    }

    /// Returns true if the comparison of `a` with `b` holds.
    pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            Compare::Less => a < b,
            Compare::LessEqual => a <= b,
            Compare::Equal => a == b,
        }
    }
}
