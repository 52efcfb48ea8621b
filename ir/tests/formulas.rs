//! Tests of formulas against f64: every exponent of both signs, several mantissas of each, and
//! special values.

use autotune_ir::DType::{Bf16, F16, F32, Tf32};
use autotune_ir::formula::{Formula, Primitive, ulps};
use autotune_ir::program::{BinaryOp, Compare, Expr, UnaryOp};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn value(op: UnaryOp, x: f32) -> f32 {
    Formula::unary(op).value([x, 0.0, 0.0, 0.0])
}

/// Iterates over every exponent of both signs with `mantissas` random mantissas, the smallest and
/// the largest.
fn operands(mantissas: usize) -> impl Iterator<Item = f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(14);
    (0..512u32).flat_map(move |high| {
        let drawn: Vec<u32> = (0..mantissas).map(|_| rng.random_range(0..1 << 23)).collect();
        [0, 1, (1 << 23) - 1].into_iter().chain(drawn).map(move |low| f32::from_bits(high << 23 | low))
    })
}

#[test]
fn errors_are_within_what_is_stated() {
    // Casts are compared in a separate test.
    for op in UnaryOp::ALL.into_iter().filter(|op| !matches!(op, UnaryOp::Cast(_))) {
        let bound = Formula::largest_error(op);
        let error = |x: f32| (ulps(value(op, x), op.exact(x.into())), x);
        let (error, x) =
            operands(2000).map(error).fold((0.0, 0.0), |most, next| if next.0 > most.0 { next } else { most });
        eprintln!("{}: {error:.3} ulp at {x:e}", op.word());
        assert!(error <= bound, "{op:?}: {error} ulp at {x:e}");
    }
}

#[test]
fn values_rounded_once_are_the_nearest() {
    let casts = [F32, Tf32, F16, Bf16].map(UnaryOp::Cast);
    for op in [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sqrt, UnaryOp::Floor].into_iter().chain(casts) {
        for x in operands(100) {
            let (found, exact) = (value(op, x), op.exact(x.into()) as f32);
            let same = found.to_bits() == exact.to_bits() || found.is_nan() && exact.is_nan();
            assert!(same, "{op:?} of {x:e} is {found:e}, not {exact:e}");
        }
    }
}

/// Tests the bits of every f16 and bf16, of the midpoints between two neighbours, and of the
/// numbers next to these.
#[test]
fn elements_of_16_bits_are_the_nearest() {
    for dtype in [F16, Bf16] {
        let formula = Formula::narrowed(dtype).unwrap();
        let places = if dtype == F16 { 13 } else { 16 };
        let halfway = |bits: u32| [0, 1 << (places - 1)].map(|behind| bits.wrapping_add(behind));
        let near = |bits: u32| [u32::MAX, 0, 1].map(|behind| bits.wrapping_add(behind));
        let every =
            dtype.values(&(0..1 << 15).map(|pair| ((2 * pair + 1) << 16) | (2 * pair)).collect::<Vec<u32>>(), 1 << 16);
        let near_every = every.iter().flat_map(|x| halfway(x.to_bits())).flat_map(near).map(f32::from_bits);
        for x in near_every.chain(operands(100)) {
            let (found, wanted) = (formula.value([x, 0.0, 0.0, 0.0]).to_bits(), dtype.words(&[x])[0]);
            let is_none = |bits: u32| dtype.values(&[bits], 1)[0].is_nan();
            let same = found == wanted || found < 1 << 16 && is_none(found) && is_none(wanted);
            assert!(same, "{dtype:?} of {x:e} ({:#x}): {found:#x}, not {wanted:#x}", x.to_bits());
        }
    }
    assert!([F32, Tf32].iter().all(|&dtype| Formula::narrowed(dtype).is_none()));
}

#[test]
fn every_element_of_16_bits_has_its_value() {
    for dtype in [F16, Bf16] {
        let formula = Formula::widened(dtype).unwrap();
        for element in 0..1 << 16 {
            let (found, wanted) =
                (formula.value([f32::from_bits(element), 0.0, 0.0, 0.0]), dtype.values(&[element], 1)[0]);
            let same = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
            assert!(same, "{dtype:?} {element:#x}: {found:e}, not {wanted:e}");
        }
    }
}

#[test]
fn special_values_have_their_results() {
    for op in UnaryOp::ALL {
        assert!(value(op, f32::NAN).is_nan() && value(op, -f32::NAN).is_nan(), "{op:?}");
    }

    let (inf, denormal) = (f32::INFINITY, f32::from_bits(1));
    for (op, x, wanted) in [
        (UnaryOp::Exp, inf, inf),
        (UnaryOp::Exp, -inf, 0.0),
        (UnaryOp::Exp, 0.0, 1.0),
        (UnaryOp::Exp, -103.0, denormal),
        (UnaryOp::Log, inf, inf),
        (UnaryOp::Log, 0.0, -inf),
        (UnaryOp::Log, -0.0, -inf),
        (UnaryOp::Log, 1.0, 0.0),
        (UnaryOp::Tanh, inf, 1.0),
        (UnaryOp::Tanh, -inf, -1.0),
        (UnaryOp::Tanh, denormal, denormal),
        (UnaryOp::Erf, inf, 1.0),
        (UnaryOp::Erf, -inf, -1.0),
        (UnaryOp::Erf, denormal, denormal),
        (UnaryOp::Sigmoid, inf, 1.0),
        (UnaryOp::Sigmoid, -inf, 0.0),
        (UnaryOp::Sigmoid, 0.0, 0.5),
        (UnaryOp::Gelu, inf, inf),
        (UnaryOp::Gelu, 0.0, 0.0),
        (UnaryOp::GeluTanh, inf, inf),
        (UnaryOp::Silu, inf, inf),
        (UnaryOp::Mish, inf, inf),
        (UnaryOp::Softplus, inf, inf),
        (UnaryOp::Softplus, -inf, 0.0),
        (UnaryOp::Softplus, -103.0, denormal),
        (UnaryOp::Expm1, inf, inf),
        (UnaryOp::Expm1, -inf, -1.0),
        (UnaryOp::Expm1, denormal, denormal),
        (UnaryOp::Expm1, -0.0, -0.0),
        (UnaryOp::Log1p, inf, inf),
        (UnaryOp::Log1p, -1.0, -inf),
        (UnaryOp::Log1p, -denormal, -denormal),
        (UnaryOp::Log1p, -0.0, -0.0),
        (UnaryOp::Sign, inf, 1.0),
        (UnaryOp::Sign, -denormal, -1.0),
        (UnaryOp::Sign, -0.0, 0.0),
        (UnaryOp::Rsqrt, 0.0, inf),
        (UnaryOp::Rsqrt, inf, 0.0),
    ] {
        assert_eq!(value(op, x).to_bits(), wanted.to_bits(), "{op:?} of {x:e} is {:e}", value(op, x));
    }
    // These multiply infinity by 0.
    let with_tails = [UnaryOp::Gelu, UnaryOp::GeluTanh, UnaryOp::Silu, UnaryOp::Mish];
    assert!(with_tails.iter().all(|&op| value(op, -inf).is_nan() && value(op, -200.0) == 0.0));
    assert!(value(UnaryOp::Log1p, -1.5).is_nan() && value(UnaryOp::Log1p, -inf).is_nan());

    for x in [-inf, -1.0, -denormal] {
        assert!([UnaryOp::Log, UnaryOp::Sqrt, UnaryOp::Rsqrt].iter().all(|&op| value(op, x).is_nan()), "{x}");
    }
    for op in [UnaryOp::Neg, UnaryOp::Tanh, UnaryOp::Erf, UnaryOp::Gelu, UnaryOp::Floor, UnaryOp::Sqrt] {
        assert_eq!(value(op, -0.0).to_bits(), if op == UnaryOp::Neg { 0 } else { 1 << 31 }, "{op:?}");
    }
}

/// Tests bases of every exponent with results from the smallest denormal to the largest number, and
/// integer exponents of both signs.
#[test]
fn errors_of_powers_are_within_what_is_stated() {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let pow = |x: f32, y: f32| Formula::binary(BinaryOp::Pow).value([x, y, 0.0, 0.0]);
    let (mut most, mut at) = (0.0, (0.0, 0.0));
    let near_one = (0..1 << 16).map(|_| f32::from_bits(0x3f80_0000 + rng.random_range(0..1 << 18) - (1 << 17)));
    let bases: Vec<f32> = operands(200).chain(near_one.collect::<Vec<_>>()).collect();
    for x in bases {
        let of_range = (rng.random_range(-151.0..129.0) / f64::from(x.abs()).log2()) as f32;
        for y in [of_range, of_range.round(), rng.random_range(-40..40) as f32, rng.random_range(-2.0..2.0)] {
            let error = ulps(pow(x, y), libm::pow(x.into(), y.into()));
            if error > most {
                (most, at) = (error, (x, y));
            }
        }
    }
    eprintln!("pow: {most:.3} ulp at {at:?}");
    assert!(most <= 1.5, "{most} ulp of the power of {at:?}");
}

#[test]
fn powers_of_special_values_are_those_of_ieee_754() {
    let pow = |x: f32, y: f32| Formula::binary(BinaryOp::Pow).value([x, y, 0.0, 0.0]);
    let special =
        [0.0, f32::from_bits(1), 0.5, 1.0, 1.5, 2.0, 3.0, 16_777_215.0, 16_777_216.0, f32::MAX, f32::INFINITY];
    let special: Vec<f32> = special.into_iter().flat_map(|x| [x, -x]).chain([f32::NAN]).collect();
    for (&x, &y) in special.iter().flat_map(|x| special.iter().map(move |y| (x, y))) {
        let (found, wanted) = (pow(x, y), libm::pow(x.into(), y.into()) as f32);
        let is_near = ulps(found, libm::pow(x.into(), y.into())) <= 1.5;
        let has_sign = found.is_nan() || found.is_sign_negative() == wanted.is_sign_negative();
        assert!(is_near && has_sign, "{x:e}^{y:e}: {found:e}, not {wanted:e}");
    }
}

#[test]
fn operations_on_two_values_pass_on_what_is_not_a_number() {
    let values = [f32::NAN, -f32::INFINITY, -2.5, -0.0, 0.0, 1.0, f32::MIN_POSITIVE / 8.0, f32::INFINITY];
    for (a, b) in values.into_iter().flat_map(|a| values.map(|b| (a, b))) {
        for op in BinaryOp::ALL {
            let exact = op.exact(a.into(), b.into()) as f32;
            // A second operand that is a non-NaN constant has a separate formula.
            for second in [Expr::Const(b), Expr::unary(UnaryOp::Abs, Expr::Const(b))] {
                let formula = Formula::of(&Expr::binary(op, Expr::Const(a), second)).unwrap();
                let found = formula.value([a, b, 0.0, 0.0]);
                assert!(found == exact || found.is_nan() && exact.is_nan(), "{op:?} of {a} and {b}: {found}");
            }
        }
        for (compare, holds) in Compare::ALL.into_iter().zip([a < b, a <= b, a == b]) {
            let chosen = Primitive::Select(compare).value([a, b, 1.0, 2.0]);
            assert_eq!(chosen == 1.0, holds, "{a} {} {b}", compare.sign());
        }
    }
}
