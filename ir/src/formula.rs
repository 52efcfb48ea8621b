//! Exact definitions of elementwise operations: straight-line programs of primitives that vector
//! units have.
//!
//! The interpreter evaluates a formula, the assembler emits its steps, and sources in C, CUDA C and
//! OpenCL C contain a function of it. All results agree; they agree bit for bit if the target
//! rounds division, square root and fused multiply-add as IEEE 754 requires and fuses nothing else.
//!
//! | operation | largest error in ulp | method |
//! |---|---|---|
//! | add, sub, mul, div, sqrt, max, min, neg, abs, floor, casts | exact or rounded once | direct |
//! | rsqrt | 1.5 | a square root and a quotient |
//! | exp | 1.5 | `2^n` times a polynomial in the reduced argument |
//! | exp2 | 3 | `2^n` times a polynomial in `x - n` |
//! | log | 1 | the exponent, and a polynomial in the mantissa minus one |
//! | tanh | 3 | `E / (E + 2)` with `E = exp(2x) - 1` |
//! | erf | 1.5 | below 1 an odd polynomial, above `1 - exp(-p(x))` |
//! | sigmoid | 3 | `exp(-abs(x))`, or 1, over `1 + exp(-abs(x))` |
//! | pow | 1.5 | `2^(y * log2(x))`, logarithm and product in double-f32 arithmetic |
//! | expm1 | 2 | `2^n * (p(x - n * ln 2) + (1 - 2^-n))` |
//! | log1p | 2 | logarithm of the rounded sum `1 + x`, corrected by its rounding error |
//! | softplus | 2 | `max(x, 0) + log1p(exp(-abs(x)))` |
//! | silu | 6 | `x * exp(min(x, 0)) / (1 + exp(-abs(x)))` |
//! | mish | 6 | rational function of `exp(-abs(x))`, times x |
//! | gelu | 7 | `max(x, 0) - a * exp(-a^2 / 2) * p(a) / q(a)`, `a = abs(x)`, in double-f32 |
//! | gelu_tanh | 6 | like silu, with the polynomial in the exponents in double-f32 |
//! | sign | exact | |
//!
//! The bounds also hold in the tails: for results near zero and for denormal results, in units of
//! their own last place. Compositions of functions are therefore formulas of their own
//! (`formula/functions/tails.rs`): in f32, `log(exp(x) + 1)` is 0 below -17, where `softplus(x)` is
//! `exp(x)`.
//!
//! The errors are tested for 2000 mantissas of every exponent, for infinities and for denormals
//! (`ir/tests/formulas.rs`). NaN propagates, except that `x^0` and `1^y` are 1, as in IEEE 754.
//! silu, mish, gelu and gelu_tanh of minus infinity are NaN, since it is multiplied by 0.
//! `exp(inf) = inf`, `exp(-inf) = 0`, `log(0) = -inf`; logarithm and square root of negative values
//! are NaN; tanh and erf saturate at ±1, sigmoid at 0 and 1. Denormals are supported (gradual
//! underflow); on a device that flushes denormals to zero, they are flushed here as well.
//!
//! The coefficients are minimax: found by Remez's algorithm in 200-bit arithmetic, those of gelu's
//! quotient by Lawson's iteration, then rounded to f32. `formula/functions.rs` and `tails.rs` state
//! intervals, weights and errors.

use std::sync::LazyLock;

use crate::program::{BinaryOp, Compare, Expr, UnaryOp};

mod functions;
mod narrow;

/// Elementwise primitive of a vector unit: one instruction, or a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Primitive {
    /// Sum `a + b`, rounded once.
    Add,
    /// Difference `a - b`, rounded once.
    Sub,
    /// Product `a * b`, rounded once.
    Mul,
    /// Quotient `a / b`, rounded once.
    Div,
    /// `b` if `a < b`, else `a`.
    Max,
    /// `b` if `b < a`, else `a`.
    Min,
    /// The larger value; NaN if either is NaN.
    Maximum,
    /// The smaller value; NaN if either is NaN.
    Minimum,
    /// Bitwise and of the representations.
    And,
    /// Bitwise or of the representations.
    Or,
    /// Sum of the bits as 32-bit integers, wrapping.
    AddBits,
    /// Difference of the bits as 32-bit integers, wrapping.
    SubBits,
    /// Product of the bits as 32-bit integers, wrapping.
    MulBits,
    /// Maximum of the bits as signed 32-bit integers.
    MaxBits,
    /// Minimum of the bits as signed 32-bit integers.
    MinBits,
    /// Conversion of the bits, as a signed 32-bit integer, to the nearest number.
    OfInteger,
    /// Conversion to the nearest signed 32-bit integer, ties to even, as bits; -2^31 if out of
    /// range.
    Nearest,
    /// Bits shifted left by a constant number of places.
    ShiftLeft(u8),
    /// Bits shifted right by a constant number of places, filling with zeros.
    ShiftRight(u8),
    /// `a * 2^b`, rounded once, for integers b from -252 to 254.
    Scale,
    /// Square root, rounded once.
    Sqrt,
    /// Largest integer that is not larger than `a`.
    Floor,
    /// `a * b + c`, rounded once.
    MulAdd,
    /// `c` if the comparison of `a` with `b` holds, else `d`.
    Select(Compare),
}

impl Primitive {
    /// Maximum number of operands of a primitive or of an operation.
    pub const MOST_OPERANDS: usize = 4;

    /// Returns the number of operands.
    pub fn operands(self) -> usize {
        match self {
            Primitive::ShiftLeft(_) | Primitive::ShiftRight(_) | Primitive::Sqrt | Primitive::Floor => 1,
            Primitive::OfInteger | Primitive::Nearest => 1,
            Primitive::MulAdd => 3,
            Primitive::Select(_) => 4,
            _ => 2,
        }
    }

    /// Returns the result for these operands; operands that the primitive does not have are
    /// ignored.
    pub fn value(self, [a, b, c, d]: [f32; Primitive::MOST_OPERANDS]) -> f32 {
        let of_bits = |bits: u32| f32::from_bits(bits);
        let of_integer = |integer: i32| f32::from_bits(integer.cast_unsigned());
        let [integer_a, integer_b] = [a, b].map(|value| value.to_bits().cast_signed());

        match self {
            Primitive::Add => a + b,
            Primitive::Sub => a - b,
            Primitive::Mul => a * b,
            Primitive::Div => a / b,
            Primitive::Max => [a, b][usize::from(a < b)],
            Primitive::Min => [a, b][usize::from(b < a)],
            Primitive::Maximum => [a, b][usize::from(a < b || b.is_nan())],
            Primitive::Minimum => [a, b][usize::from(b < a || b.is_nan())],
            Primitive::And => of_bits(a.to_bits() & b.to_bits()),
            Primitive::Or => of_bits(a.to_bits() | b.to_bits()),
            Primitive::AddBits => of_bits(a.to_bits().wrapping_add(b.to_bits())),
            Primitive::SubBits => of_integer(integer_a.wrapping_sub(integer_b)),
            Primitive::MulBits => of_integer(integer_a.wrapping_mul(integer_b)),
            Primitive::MaxBits => of_integer(integer_a.max(integer_b)),
            Primitive::MinBits => of_integer(integer_a.min(integer_b)),
            Primitive::OfInteger => integer_a as f32,
            Primitive::Nearest => of_integer(nearest(a)),
            Primitive::ShiftLeft(places) => of_bits(a.to_bits() << places),
            Primitive::ShiftRight(places) => of_bits(a.to_bits() >> places),
            Primitive::Scale => (f64::from(a) * f64::from(b).exp2()) as f32,
            Primitive::Sqrt => a.sqrt(),
            Primitive::Floor => a.floor(),
            Primitive::MulAdd => a.mul_add(b, c),
            Primitive::Select(compare) => [d, c][usize::from(compare.holds(a, b))],
        }
    }
}

/// Returns the integer whose bits are the result of [`Primitive::Nearest`].
fn nearest(value: f32) -> i32 {
    let rounded = value.round_ties_even();
    if (-2_147_483_648.0..2_147_483_648.0).contains(&rounded) { rounded as i32 } else { i32::MIN }
}

/// A step of a formula. Other steps refer to it by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormulaStep {
    /// Operand of the operation, by its number.
    Operand(u8),
    /// Constant, by its bits.
    Constant(u32),
    /// Primitive, and the positions of the earlier steps that are its operands; unused positions
    /// are 0.
    Apply(Primitive, [u8; Primitive::MOST_OPERANDS]),
}

/// Straight-line program; its last step is the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formula {
    steps: Vec<FormulaStep>,
}

impl Formula {
    /// Returns the formula of an expression's outermost operation; `None` if it has none.
    pub fn of(expr: &Expr) -> Option<&'static Self> {
        match expr {
            Expr::Const(_) | Expr::Load(_) | Expr::Gather(_) | Expr::Guarded { .. } => None,
            Expr::Unary(op, _) => Some(Self::unary(*op)),
            Expr::Select(compare, _) => Some(&SELECTS[*compare as usize]),
            // A non-NaN constant as the second operand allows the cheaper max and min without a NaN
            // check.
            Expr::Binary(BinaryOp::Max, of) if is_number(&of[1]) => Some(&BOUNDS[0]),
            Expr::Binary(BinaryOp::Min, of) if is_number(&of[1]) => Some(&BOUNDS[1]),
            Expr::Binary(op, _) => Some(Self::binary(*op)),
        }
    }

    /// Returns the formula of an operation on one value.
    pub fn unary(op: UnaryOp) -> &'static Self {
        let position = match op {
            UnaryOp::Neg => 0,
            UnaryOp::Abs => 1,
            UnaryOp::Sqrt => 2,
            UnaryOp::Rsqrt => 3,
            UnaryOp::Floor => 4,
            UnaryOp::Exp => 5,
            UnaryOp::Exp2 => 6,
            UnaryOp::Log => 7,
            UnaryOp::Tanh => 8,
            UnaryOp::Erf => 9,
            UnaryOp::Sigmoid => 10,
            UnaryOp::Gelu => 11,
            UnaryOp::GeluTanh => 12,
            UnaryOp::Silu => 13,
            UnaryOp::Mish => 14,
            UnaryOp::Softplus => 15,
            UnaryOp::Expm1 => 16,
            UnaryOp::Log1p => 17,
            UnaryOp::Sign => 18,
            UnaryOp::Cast(dtype) => 19 + dtype as usize,
        };
        &UNARY[position]
    }

    /// Returns the largest error of an operation's formula, in [ulps]: the table above as numbers,
    /// which tests enforce.
    pub fn largest_error(op: UnaryOp) -> f64 {
        match op {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Floor | UnaryOp::Sign | UnaryOp::Cast(_) => 0.0,
            UnaryOp::Sqrt => 0.5,
            UnaryOp::Log => 1.0,
            UnaryOp::Rsqrt | UnaryOp::Exp | UnaryOp::Erf => 1.5,
            UnaryOp::Expm1 | UnaryOp::Log1p | UnaryOp::Softplus => 2.0,
            UnaryOp::Exp2 | UnaryOp::Tanh | UnaryOp::Sigmoid => 3.0,
            UnaryOp::Silu | UnaryOp::Mish | UnaryOp::GeluTanh => 6.0,
            UnaryOp::Gelu => 7.0,
        }
    }

    /// Returns the formula of an operation on two values.
    pub fn binary(op: BinaryOp) -> &'static Self {
        &BINARY[op as usize]
    }

    /// Returns the formula of an operation on the bits of two 32-bit integers
    /// ([`BinaryOp::of_integers`]); `None` if the operation is defined for floating-point numbers
    /// only.
    pub fn of_integers(op: BinaryOp) -> Option<&'static Self> {
        INTEGERS[op as usize].as_ref()
    }

    /// Returns a formula of [`Primitive::Scale`] for vector units that lack it.
    pub fn scale() -> &'static Self {
        &SCALE
    }

    /// Returns the steps: operands first, the result last.
    pub fn steps(&self) -> &[FormulaStep] {
        &self.steps
    }

    /// Returns the primitives that the formula applies, in order.
    pub fn primitives(&self) -> impl Iterator<Item = Primitive> {
        self.steps.iter().filter_map(|step| match step {
            FormulaStep::Apply(primitive, _) => Some(*primitive),
            FormulaStep::Operand(_) | FormulaStep::Constant(_) => None,
        })
    }

    /// Returns the primitive if the formula is a single one, applied to the operands in order.
    pub fn only(&self) -> Option<Primitive> {
        let (last, operands) = self.steps.split_last()?;
        match *last {
            FormulaStep::Apply(primitive, _)
                if operands.len() == primitive.operands()
                    && operands.iter().all(|step| matches!(step, FormulaStep::Operand(_))) =>
            {
                Some(primitive)
            }
            _ => None,
        }
    }

    /// Evaluates the formula for these operands.
    pub fn value(&self, operands: [f32; Primitive::MOST_OPERANDS]) -> f32 {
        // Most formulas are a single primitive and need no list of values.
        if let Some(primitive) = self.only() {
            return primitive.value(operands);
        }
        let mut values = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            values.push(match *step {
                FormulaStep::Operand(number) => operands[usize::from(number)],
                FormulaStep::Constant(bits) => f32::from_bits(bits),
                FormulaStep::Apply(primitive, of) => {
                    primitive.value(of.map(|of| values.get(usize::from(of)).copied().unwrap_or_default()))
                }
            });
        }
        values.last().copied().unwrap_or_default()
    }

    /// Builds a formula of `operands` operands, to which `write` appends steps.
    fn written(operands: u8, write: impl FnOnce(&mut Self, &[u8])) -> Self {
        let mut formula = Self::default();
        let numbers: Vec<u8> = (0..operands).map(|number| formula.step(FormulaStep::Operand(number))).collect();
        write(&mut formula, &numbers);
        formula
    }

    fn step(&mut self, step: FormulaStep) -> u8 {
        self.steps.push(step);
        self.steps.len() as u8 - 1
    }

    fn apply(&mut self, primitive: Primitive, of: &[u8]) -> u8 {
        let mut operands = [0; Primitive::MOST_OPERANDS];
        operands[..of.len()].copy_from_slice(of);
        self.step(FormulaStep::Apply(primitive, operands))
    }

    /// Returns the step of a constant; equal constants share one step.
    fn bits(&mut self, bits: u32) -> u8 {
        let known = self.steps.iter().position(|step| *step == FormulaStep::Constant(bits));
        known.map_or_else(|| self.step(FormulaStep::Constant(bits)), |known| known as u8)
    }
}

/// Returns the error of `found` in units in the last place (ulp) of an f32 at `exact`; denormal
/// numbers have the unit of the smallest normal one. Infinite if only one of the two is NaN.
pub fn ulps(found: f32, exact: f64) -> f64 {
    // An exact value beyond the range of f32 rounds to infinity.
    if found.is_nan() && exact.is_nan() || found.is_infinite() && found == exact as f32 {
        return 0.0;
    }
    let exponent = exact.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor().min(127.0) as i32;
    let error = (f64::from(found) - exact).abs() / 2f64.powi(exponent - 23);
    if error.is_nan() { f64::INFINITY } else { error }
}

fn is_number(expr: &Expr) -> bool {
    matches!(expr, Expr::Const(value) if !value.is_nan())
}

/// Builds the formula of one primitive, applied to the operands in order.
fn primitive(primitive: Primitive) -> Formula {
    Formula::written(primitive.operands() as u8, |f, of| {
        f.apply(primitive, of);
    })
}

/// Formulas of selections, indexed by [`Compare`].
static SELECTS: LazyLock<[Formula; 3]> =
    LazyLock::new(|| Compare::ALL.map(|compare| primitive(Primitive::Select(compare))));

/// Formulas of max and min if the second operand is not NaN.
static BOUNDS: LazyLock<[Formula; 2]> = LazyLock::new(|| [Primitive::Max, Primitive::Min].map(primitive));

static INTEGERS: LazyLock<[Option<Formula>; 8]> = LazyLock::new(|| {
    BinaryOp::ALL.map(|op| {
        Some(primitive(match op {
            BinaryOp::Add => Primitive::AddBits,
            BinaryOp::Sub => Primitive::SubBits,
            BinaryOp::Mul => Primitive::MulBits,
            BinaryOp::Max | BinaryOp::MaxNumber => Primitive::MaxBits,
            BinaryOp::Min => Primitive::MinBits,
            BinaryOp::Div | BinaryOp::Pow => return None,
        }))
    })
});

static SCALE: LazyLock<Formula> = LazyLock::new(|| Formula::written(2, |f, of| f.scaled_by_halves(of[0], of[1])));

/// Formulas in the order of [`BinaryOp::ALL`].
static BINARY: LazyLock<[Formula; 8]> =
    LazyLock::new(|| BinaryOp::ALL.map(|op| Formula::written(2, |f, of| f.function_of_two(op, [of[0], of[1]]))));

/// Formulas in the order of [`UnaryOp::ALL`].
static UNARY: LazyLock<[Formula; UnaryOp::ALL.len()]> =
    LazyLock::new(|| UnaryOp::ALL.map(|op| Formula::written(1, |f, of| f.function(op, of[0]))));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_before_those_that_need_them() {
        let unary = UnaryOp::ALL.map(Formula::unary);
        let binary = BinaryOp::ALL.map(Formula::binary);
        for formula in unary.into_iter().chain(binary) {
            for (position, step) in formula.steps().iter().enumerate() {
                if let FormulaStep::Apply(primitive, of) = step {
                    assert!(of[..primitive.operands()].iter().all(|&of| usize::from(of) < position), "{formula:?}");
                }
            }
        }
    }

    #[test]
    fn each_operation_has_its_own_formula() {
        for op in UnaryOp::ALL {
            let written = Formula::written(1, |f, of| f.function(op, of[0]));
            assert_eq!(*Formula::unary(op), written, "{op:?}");
        }
    }
}
