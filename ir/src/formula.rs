//! What the operations of values compute exactly: short straight programs of operations that vector
//! units have.
//!
//! The interpreter evaluates a formula, the assembler writes it out, C and GPU sources get a
//! function of it; so they all agree, bit for bit where a target rounds division, square root and
//! fused multiply-add as IEEE 754 says and adds no fusing of its own.
//!
//! | operation | largest error in ulp | how |
//! |---|---|---|
//! | add, sub, mul, div, sqrt, max, min, neg, abs, floor, casts | exact or rounded once | as they are |
//! | rsqrt | 1.5 | a square root and a quotient |
//! | exp | 1.5 | `2^n` times a polynomial in what is left of the exponent |
//! | log | 1 | the exponent, and a polynomial in the mantissa less one |
//! | tanh | 3 | `E / (E + 2)` with `E = exp(2x) - 1` |
//! | erf | 1.5 | below 1 an odd polynomial, beyond it `1 - exp(-p(x))` |
//! | sigmoid | 3 | `exp(-abs(x))`, or 1, over `1 + exp(-abs(x))` |
//! | pow | 1.5 | `2^(y * log2(x))`, the logarithm and the product as sums of two numbers |
//! | expm1 | 2 | `2^n * (p(x - n * ln 2) + (1 - 2^-n))` |
//! | log1p | 2 | the logarithm of the rounded sum, with what rounding it lost |
//! | softplus | 2 | `max(x, 0) + log1p(exp(-abs(x)))` |
//! | silu | 6 | `x * exp(min(x, 0)) / (1 + exp(-abs(x)))` |
//! | mish | 6 | a quotient of polynomials in `exp(-abs(x))`, times x |
//! | gelu | 7 | `max(x, 0) - abs(x) * exp(-x^2 / 2) * p(abs(x)) / q(abs(x))`, the square as the sum of two numbers |
//! | gelu_tanh | 6 | as silu, with the polynomial in x in the exponents as the sum of two numbers |
//! | sign | exact | |
//!
//! These hold in the tails, too: of results that come near zero, and of denormal ones, in units of
//! the last place that they have. So what is made of several functions is a formula of its own
//! (`formula/functions/tails.rs`): `log(exp(x) + 1)` is 0 below -17 in f32, where `softplus(x)` is
//! `exp(x)`.
//!
//! The errors are tested for 2000 mantissas of every exponent, infinities and denormals
//! (`ir/tests/formulas.rs`). What is not a number is passed on, but that every number to the power
//! of 0, and 1 to every power, is 1, as in IEEE 754; silu, mish, gelu and gelu_tanh of minus
//! infinity, which is multiplied by 0, are not numbers; `exp(inf) = inf`, `exp(-inf) = 0`, `log(0)
//! = -inf`, the logarithm and the root of negative values are not numbers, tanh and erf end at 1,
//! sigmoid at 0 and 1. Denormal operands and results count like any others (gradual underflow); a
//! device that flushes them to zero flushes them here, too.
//!
//! The polynomials' coefficients are minimax ones, found by Remez's algorithm in 200 bits, those of
//! gelu's quotient by Lawson's iteration (`formula/functions.rs` and `tails.rs` have the intervals,
//! weights and errors), then rounded to f32.

use std::sync::LazyLock;

use crate::program::{BinaryOp, Compare, Expr, UnaryOp};

mod functions;
mod narrow;

/// What a step does: what vector units do to each lane by one instruction, or a few.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Primitive {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`.
    Div,
    /// `b` if `a < b`, else `a`.
    Max,
    /// `b` if `b < a`, else `a`.
    Min,
    /// The larger, or what of the two is not a number.
    Maximum,
    /// The smaller, or what of the two is not a number.
    Minimum,
    /// The bits that both have.
    And,
    /// The bits that either has.
    Or,
    /// The sum of the bits as integers, without carry beyond 32.
    AddBits,
    /// The difference of the bits as integers, wrapping in 32 bits.
    SubBits,
    /// The lowest 32 bits of the product of the bits as integers.
    MulBits,
    /// The larger of the bits as signed integers.
    MaxBits,
    /// The smaller of the bits as signed integers.
    MinBits,
    /// The number that is nearest to the bits as a signed integer.
    OfInteger,
    /// The bits of the integer nearest to a number, of two the even one; those of -2^31 where it is
    /// none of 32 bits.
    Nearest,
    /// The bits moved up by a number of places.
    ShiftLeft(u8),
    /// The bits moved down by a number of places, zeros behind them.
    ShiftRight(u8),
    /// `a * 2^b`, rounded once, for whole numbers b from -252 to 254.
    Scale,
    /// Square root.
    Sqrt,
    /// The largest whole number that is not larger.
    Floor,
    /// `a * b + c`, rounded once.
    MulAdd,
    /// `c` where `a` and `b` compare so, else `d`.
    Select(Compare),
}

impl Primitive {
    /// Operands of a primitive, or of an operation, at most.
    pub const MOST_OPERANDS: usize = 4;

    /// How many operands it has.
    pub fn operands(self) -> usize {
        match self {
            Primitive::ShiftLeft(_) | Primitive::ShiftRight(_) | Primitive::Sqrt | Primitive::Floor => 1,
            Primitive::OfInteger | Primitive::Nearest => 1,
            Primitive::MulAdd => 3,
            Primitive::Select(_) => 4,
            _ => 2,
        }
    }

    /// What it makes of values.
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

/// Returns what [`Primitive::Nearest`] has the bits of.
fn nearest(value: f32) -> i32 {
    let rounded = value.round_ties_even();
    if (-2_147_483_648.0..2_147_483_648.0).contains(&rounded) { rounded as i32 } else { i32::MIN }
}

/// A step of a formula, which others know by its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The operand of this number.
    Operand(u8),
    /// A constant, by its bits.
    Constant(u32),
    /// What a primitive makes of steps before it; those that it does not have are zero.
    Apply(Primitive, [u8; Primitive::MOST_OPERANDS]),
}

/// A straight program; its last step is the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formula {
    steps: Vec<Step>,
}

impl Formula {
    /// What the operation of an expression makes of its operands; `None` for what is no operation.
    pub fn of(expr: &Expr) -> Option<&'static Self> {
        match expr {
            Expr::Const(_) | Expr::Load(_) | Expr::Gather(_) | Expr::Guarded { .. } => None,
            Expr::Unary(op, _) => Some(Self::unary(*op)),
            Expr::Select(compare, _) => Some(&SELECTS[*compare as usize]),
            // A constant is a number: it need not be looked at whether the second operand is one.
            Expr::Binary(BinaryOp::Max, of) if is_number(&of[1]) => Some(&BOUNDS[0]),
            Expr::Binary(BinaryOp::Min, of) if is_number(&of[1]) => Some(&BOUNDS[1]),
            Expr::Binary(op, _) => Some(Self::binary(*op)),
        }
    }

    /// What an operation makes of a value.
    pub fn unary(op: UnaryOp) -> &'static Self {
        let position = match op {
            UnaryOp::Neg => 0,
            UnaryOp::Abs => 1,
            UnaryOp::Sqrt => 2,
            UnaryOp::Rsqrt => 3,
            UnaryOp::Floor => 4,
            UnaryOp::Exp => 5,
            UnaryOp::Log => 6,
            UnaryOp::Tanh => 7,
            UnaryOp::Erf => 8,
            UnaryOp::Sigmoid => 9,
            UnaryOp::Gelu => 10,
            UnaryOp::GeluTanh => 11,
            UnaryOp::Silu => 12,
            UnaryOp::Mish => 13,
            UnaryOp::Softplus => 14,
            UnaryOp::Expm1 => 15,
            UnaryOp::Log1p => 16,
            UnaryOp::Sign => 17,
            UnaryOp::Cast(dtype) => 18 + dtype as usize,
        };
        &UNARY[position]
    }

    /// The largest error of an operation's formula, in [ulps]: the table above as numbers, which
    /// tests hold it to.
    pub fn largest_error(op: UnaryOp) -> f64 {
        match op {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Floor | UnaryOp::Sign | UnaryOp::Cast(_) => 0.0,
            UnaryOp::Sqrt => 0.5,
            UnaryOp::Log => 1.0,
            UnaryOp::Rsqrt | UnaryOp::Exp | UnaryOp::Erf => 1.5,
            UnaryOp::Expm1 | UnaryOp::Log1p | UnaryOp::Softplus => 2.0,
            UnaryOp::Tanh | UnaryOp::Sigmoid => 3.0,
            UnaryOp::Silu | UnaryOp::Mish | UnaryOp::GeluTanh => 6.0,
            UnaryOp::Gelu => 7.0,
        }
    }

    /// What an operation makes of two values.
    pub fn binary(op: BinaryOp) -> &'static Self {
        &BINARY[op as usize]
    }

    /// What an operation makes of the bits of two integers ([`BinaryOp::of_integers`]); `None` for
    /// one of floating-point numbers.
    pub fn of_integers(op: BinaryOp) -> Option<&'static Self> {
        INTEGERS[op as usize].as_ref()
    }

    /// [`Primitive::Scale`] for vector units that lack it.
    pub fn scale() -> &'static Self {
        &SCALE
    }

    /// Its steps; operands come first, the result last.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The primitives that it applies.
    pub fn primitives(&self) -> impl Iterator<Item = Primitive> {
        self.steps.iter().filter_map(|step| match step {
            Step::Apply(primitive, _) => Some(*primitive),
            Step::Operand(_) | Step::Constant(_) => None,
        })
    }

    /// The primitive that it is, applied to the operands in order, if it is nothing else.
    pub fn only(&self) -> Option<Primitive> {
        let (last, operands) = self.steps.split_last()?;
        match *last {
            Step::Apply(primitive, _)
                if operands.len() == primitive.operands()
                    && operands.iter().all(|step| matches!(step, Step::Operand(_))) =>
            {
                Some(primitive)
            }
            _ => None,
        }
    }

    /// The result for these operands.
    pub fn value(&self, operands: [f32; Primitive::MOST_OPERANDS]) -> f32 {
        if let Some(primitive) = self.only() {
            return primitive.value(operands);
        }
        let mut values = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            values.push(match *step {
                Step::Operand(number) => operands[usize::from(number)],
                Step::Constant(bits) => f32::from_bits(bits),
                Step::Apply(primitive, of) => {
                    primitive.value(of.map(|of| values.get(usize::from(of)).copied().unwrap_or_default()))
                }
            });
        }
        values.last().copied().unwrap_or_default()
    }

    /// A formula of `operands` operands, as `write` writes it.
    fn written(operands: u8, write: impl FnOnce(&mut Self, &[u8])) -> Self {
        let mut formula = Self::default();
        let numbers: Vec<u8> = (0..operands).map(|number| formula.step(Step::Operand(number))).collect();
        write(&mut formula, &numbers);
        formula
    }

    fn step(&mut self, step: Step) -> u8 {
        self.steps.push(step);
        self.steps.len() as u8 - 1
    }

    fn apply(&mut self, primitive: Primitive, of: &[u8]) -> u8 {
        let mut operands = [0; Primitive::MOST_OPERANDS];
        operands[..of.len()].copy_from_slice(of);
        self.step(Step::Apply(primitive, operands))
    }

    /// The step of a constant, written once.
    fn bits(&mut self, bits: u32) -> u8 {
        let known = self.steps.iter().position(|step| *step == Step::Constant(bits));
        known.map_or_else(|| self.step(Step::Constant(bits)), |known| known as u8)
    }
}

/// Distance of a number from the exact one in units of the last place of an f32 there (ulp), which
/// of denormal numbers is that of the least; infinite where only one of them is a number.
pub fn ulps(found: f32, exact: f64) -> f64 {
    // What rounds to infinity is infinity.
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

/// A primitive applied to the operands.
fn primitive(primitive: Primitive) -> Formula {
    Formula::written(primitive.operands() as u8, |f, of| {
        f.apply(primitive, of);
    })
}

/// By [`Compare`].
static SELECTS: LazyLock<[Formula; 3]> =
    LazyLock::new(|| Compare::ALL.map(|compare| primitive(Primitive::Select(compare))));

/// The larger and the smaller of two of which the second is a number.
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

/// In the order of [`BinaryOp::ALL`].
static BINARY: LazyLock<[Formula; 8]> =
    LazyLock::new(|| BinaryOp::ALL.map(|op| Formula::written(2, |f, of| f.function_of_two(op, [of[0], of[1]]))));

/// In the order of [`UnaryOp::ALL`].
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
                if let Step::Apply(primitive, of) = step {
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
