//! Activation functions: `act=` in an epilogue, and `op=` as an elementwise operator.

use std::fmt;

use autotune_ir::DType;
use autotune_ir::program::{BinaryOp, Compare, Expr, UnaryOp};

/// An activation function. [`Activation::new`] creates those with parameters, and is used to read
/// every text form.
///
/// | word | function of `x` |
/// |---|---|
/// | `none` | `x` |
/// | `relu` | `max(x, 0)` |
/// | `clip:LO:HI` | `min(max(x, LO), HI)`; `clip:0:6` is ReLU6, a bound may be `-inf` or `inf` |
/// | `round:LO:HI` | `clip:LO:HI`, rounded to the nearest integer, ties to even; finite bounds |
/// | `leaky_relu`, `leaky_relu:ALPHA` | `x`, below zero `ALPHA * x`; default 0.01 |
/// | `prelu` | `x`, below zero `slope[channel] * x`, where the slopes are an operand; only as `act=` |
/// | `sigmoid` | `1 / (1 + exp(-x))` |
/// | `tanh` | hyperbolic tangent |
/// | `hard_sigmoid`, `hard_sigmoid:ALPHA:BETA` | `min(max(ALPHA * x + BETA, 0), 1)`; default 1/6 and 1/2 |
/// | `hard_swish` | `x * min(max(x/6 + 1/2, 0), 1)` |
/// | `elu`, `elu:ALPHA` | `x`, below zero `ALPHA * (exp(x) - 1)`; default 1 |
/// | `softplus` | `log(1 + exp(x))` |
/// | `silu` | `x * sigmoid(x)` |
/// | `mish` | `x * tanh(softplus(x))` |
/// | `gelu` | `x/2 * (1 + erf(x / sqrt(2)))` |
/// | `gelu_tanh` | like `gelu`, with `tanh(sqrt(2/pi) * (x + 0.044715 x^3))` instead of `erf` |
///
/// GELU is from D. Hendrycks and K. Gimpel, "Gaussian error linear units" (2016).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Activation {
    /// The identity function, `x`.
    #[default]
    None,
    /// Rectified linear unit, `max(x, 0)`.
    Relu,
    /// Clipping to two bounds, `min(max(x, lo), hi)`.
    #[non_exhaustive]
    Clip {
        /// Lower bound, possibly -∞.
        lo: f32,
        /// Upper bound, possibly ∞.
        hi: f32,
    },
    /// Clipping to two finite bounds, then rounding to the nearest integer, ties to even.
    #[non_exhaustive]
    Round {
        /// Lower bound, not infinite as that of a clip may be.
        lo: f32,
        /// Upper bound, not infinite either.
        hi: f32,
    },
    /// `x`, below zero `alpha * x`.
    #[non_exhaustive]
    LeakyRelu {
        /// Slope for negative values.
        alpha: f32,
    },
    /// `x`, below zero `slope * x`, with one slope per channel.
    Prelu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The hyperbolic tangent, `tanh(x)`.
    Tanh,
    /// `min(max(alpha * x + beta, 0), 1)`.
    #[non_exhaustive]
    HardSigmoid {
        /// Slope, above 0 and at most 1.
        alpha: f32,
        /// Value at zero, before clipping.
        beta: f32,
    },
    /// `x * min(max(x/6 + 1/2, 0), 1)`.
    HardSwish,
    /// `x`, below zero `alpha * (exp(x) - 1)`.
    #[non_exhaustive]
    Elu {
        /// Factor of the exponential.
        alpha: f32,
    },
    /// Softplus, `log(1 + exp(x))`.
    Softplus,
    /// Sigmoid linear unit, `x * sigmoid(x)`.
    Silu,
    /// Mish, `x * tanh(softplus(x))`.
    Mish,
    /// `x/2 * (1 + erf(x / sqrt(2)))`.
    Gelu,
    /// Like [`Activation::Gelu`], with a hyperbolic tangent approximating the error function.
    GeluTanh,
}

/// Leaky ReLU with the default slope.
const LEAKY_RELU: Activation = Activation::LeakyRelu { alpha: 0.01 };
/// ELU with the default factor.
const ELU: Activation = Activation::Elu { alpha: 1.0 };
/// Hard sigmoid with the default parameters.
const HARD_SIGMOID: Activation = Activation::HardSigmoid { alpha: 1.0 / 6.0, beta: 0.5 };

/// All functions by name, with default parameters; `clip` and `round` have none.
const WORDS: [(&str, Activation); 14] = [
    ("none", Activation::None),
    ("relu", Activation::Relu),
    ("leaky_relu", LEAKY_RELU),
    ("prelu", Activation::Prelu),
    ("sigmoid", Activation::Sigmoid),
    ("tanh", Activation::Tanh),
    ("hard_sigmoid", HARD_SIGMOID),
    ("hard_swish", Activation::HardSwish),
    ("elu", ELU),
    ("softplus", Activation::Softplus),
    ("silu", Activation::Silu),
    ("mish", Activation::Mish),
    ("gelu", Activation::Gelu),
    ("gelu_tanh", Activation::GeluTanh),
];
pub(super) const EXPECTED: &str = "an activation (none, relu, clip:LO:HI, round:LO:HI, leaky_relu[:ALPHA], prelu, sigmoid, \
                                   tanh, hard_sigmoid[:ALPHA:BETA], hard_swish, elu[:ALPHA], softplus, silu, mish, gelu or \
                                   gelu_tanh)";

impl Activation {
    /// Creates the function of a name with parameters. Without parameters, it has the defaults in
    /// the [table](Activation). Fails with a description of valid texts.
    ///
    /// ```
    /// use autotune_workloads::Activation;
    /// assert_eq!(Activation::new("clip", &[0.0, 6.0]).unwrap().to_string(), "clip:0:6");
    /// assert_eq!(Activation::new("leaky_relu", &[]).unwrap(), Activation::new("leaky_relu", &[0.01]).unwrap());
    /// assert!(Activation::new("clip", &[6.0, 0.0]).is_err());
    /// ```
    pub fn new(word: &str, parameters: &[f32]) -> Result<Self, &'static str> {
        // Normalises -0 to 0, so that equal functions have one text.
        let without_sign = |x: f32| x + 0.0;

        match (word, parameters) {
            ("clip", &[lo, hi]) if lo <= hi && lo < f32::INFINITY && hi > f32::NEG_INFINITY => {
                Ok(Self::Clip { lo: without_sign(lo), hi: without_sign(hi) })
            }
            ("round", &[lo, hi]) if lo <= hi && lo > f32::NEG_INFINITY && hi < f32::INFINITY => {
                Ok(Self::Round { lo: without_sign(lo), hi: without_sign(hi) })
            }
            ("round", _) => Err("round:LO:HI with finite numbers, LO at most HI"),
            ("clip", _) => Err("clip:LO:HI with LO at most HI"),
            ("leaky_relu", &[alpha]) if alpha.is_finite() => Ok(Self::LeakyRelu { alpha: without_sign(alpha) }),
            ("leaky_relu", &[_, ..]) => Err("leaky_relu:ALPHA with a finite slope"),
            ("elu", &[alpha]) if alpha.is_finite() => Ok(Self::Elu { alpha: without_sign(alpha) }),
            ("elu", &[_, ..]) => Err("elu:ALPHA with a finite number"),
            ("hard_sigmoid", &[alpha, beta]) if alpha > 0.0 && alpha <= 1.0 && beta.is_finite() => {
                Ok(Self::HardSigmoid { alpha, beta: without_sign(beta) })
            }
            ("hard_sigmoid", &[_, ..]) => Err("hard_sigmoid:ALPHA:BETA with 0 < ALPHA <= 1 and a finite BETA"),
            _ => match WORDS.iter().find(|known| known.0 == word) {
                Some((_, activation)) if parameters.is_empty() => Ok(*activation),
                Some(_) => Err("a function with parameters (clip, round, leaky_relu, hard_sigmoid or elu)"),
                None => Err(EXPECTED),
            },
        }
    }

    /// Reads a text form. Fails with a description of valid texts.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut parts = text.split(':');
        let word = parts.next().unwrap_or_default();
        let parameters: Result<Vec<f32>, _> = parts.map(str::parse).collect();
        // NaN is not a valid parameter of any function.
        Self::new(word, &parameters.unwrap_or_else(|_| vec![f32::NAN]))
    }

    /// True if it has an operand: one slope per channel.
    pub fn has_slopes(self) -> bool {
        self == Self::Prelu
    }

    /// True if it rounds, so that a rounding error of its argument can change it by a whole step.
    pub fn rounds(self) -> bool {
        matches!(self, Self::Round { .. })
    }

    /// True if it can be applied to values that further equations read: it has no operand, and
    /// rounding errors of its argument stay small.
    pub(super) fn can_precede(self) -> bool {
        !self.has_slopes() && !self.rounds()
    }

    /// Returns the function applied to a value, whose channel has the slope `slope`.
    pub(super) fn of(self, x: Expr, slope: Option<Expr>) -> Expr {
        match self {
            Self::None => x,
            Self::Relu => Expr::max(x, Expr::Const(0.0)),
            Self::Clip { lo, hi } => clipped(x, [lo, hi]),
            Self::Round { lo, hi } => rounded(x, [lo, hi]),
            Self::LeakyRelu { alpha } => leaky(x, Expr::Const(alpha)),
            Self::Prelu => leaky(x, slope.unwrap_or(Expr::Const(1.0))),
            Self::Sigmoid => Expr::unary(UnaryOp::Sigmoid, x),
            Self::Tanh => Expr::unary(UnaryOp::Tanh, x),
            Self::HardSigmoid { alpha, beta } => clipped(plus(times(alpha, x), beta), [0.0, 1.0]),
            Self::HardSwish => Expr::product(x.clone(), HARD_SIGMOID.of(x, None)),
            Self::Elu { alpha } => {
                let below = times(alpha, Expr::unary(UnaryOp::Expm1, x.clone()));
                Expr::select(Compare::Less, [x.clone(), Expr::Const(0.0)], below, x)
            }
            Self::Softplus => Expr::unary(UnaryOp::Softplus, x),
            Self::Silu => Expr::unary(UnaryOp::Silu, x),
            Self::Mish => Expr::unary(UnaryOp::Mish, x),
            Self::Gelu => Expr::unary(UnaryOp::Gelu, x),
            Self::GeluTanh => Expr::unary(UnaryOp::GeluTanh, x),
        }
    }
}

impl fmt::Display for Activation {
    /// Writes the text form, without default parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((word, _)) = WORDS.iter().find(|known| known.1 == *self) {
            return f.write_str(word);
        }
        match self {
            Self::Clip { lo, hi } => write!(f, "clip:{lo}:{hi}"),
            Self::Round { lo, hi } => write!(f, "round:{lo}:{hi}"),
            Self::LeakyRelu { alpha } => write!(f, "leaky_relu:{alpha}"),
            Self::Elu { alpha } => write!(f, "elu:{alpha}"),
            Self::HardSigmoid { alpha, beta } => write!(f, "hard_sigmoid:{alpha}:{beta}"),
            // Functions without parameters were written above.
            _ => Ok(()),
        }
    }
}

fn times(scale: f32, x: Expr) -> Expr {
    Expr::product(x, Expr::Const(scale))
}

fn plus(x: Expr, by: f32) -> Expr {
    Expr::sum(x, Expr::Const(by))
}

/// Returns the value clipped to bounds; infinite bounds are omitted.
fn clipped(x: Expr, [lo, hi]: [f32; 2]) -> Expr {
    let x = if lo.is_finite() { Expr::max(x, Expr::Const(lo)) } else { x };
    if hi.is_finite() { Expr::binary(BinaryOp::Min, x, Expr::Const(hi)) } else { x }
}

/// Returns the nearest integer of the clipped value, by a cast to the smallest type.
fn rounded(x: Expr, [lo, hi]: [f32; 2]) -> Expr {
    let range = |dtype: &DType| dtype.range().map(|end| end as f32);
    let fits = |dtype: &DType| range(dtype)[0] <= lo && hi <= range(dtype)[1];
    let dtype = [DType::U8, DType::I8].into_iter().find(fits).unwrap_or(DType::I32);
    // The cast itself clips to the range of its type.
    let clipped = if range(&dtype) == [lo, hi] { x } else { clipped(x, [lo, hi]) };
    Expr::unary(UnaryOp::Cast(dtype), clipped)
}

fn leaky(x: Expr, slope: Expr) -> Expr {
    Expr::select(Compare::Less, [x.clone(), Expr::Const(0.0)], Expr::product(x.clone(), slope), x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_round_trip() {
        for (word, activation) in WORDS {
            assert_eq!((activation.to_string().as_str(), Activation::parse(word)), (word, Ok(activation)));
        }
        for text in [
            "clip:0:6",
            "clip:-inf:1",
            "clip:-0.5:inf",
            "round:0:255",
            "round:-3.5:9",
            "leaky_relu:0.2",
            "hard_sigmoid:0.2:0.5",
            "elu:0.5",
        ] {
            assert_eq!(Activation::parse(text).map(|read| read.to_string()), Ok(text.to_string()));
        }
        for (text, short) in [("leaky_relu:0.01", "leaky_relu"), ("clip:-0:6.0", "clip:0:6")] {
            assert_eq!(Activation::parse(text).map(|read| read.to_string()), Ok(short.to_string()));
        }
    }

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        let wrong = [
            "clip",
            "clip:1",
            "clip:6:0",
            "clip:0:nan",
            "clip:inf:inf",
            "clip:0:6:7",
            "clip:0:six",
            "clip:0:",
            "round",
            "round:0:inf",
            "round:9:0",
            "leaky_relu:inf",
            "leaky_relu:",
            "elu:nan",
            "elu:1:2",
            "hard_sigmoid:0.2",
            "hard_sigmoid:0:1",
            "hard_sigmoid:2:0",
            "relu:1",
            "cosh",
            "",
        ];

        for text in wrong {
            assert!(Activation::parse(text).is_err(), "{text}");
        }
    }
}
