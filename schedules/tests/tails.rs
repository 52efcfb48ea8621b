//! Error in ulps of functions over all exponents, including denormal results: interpreted, in
//! machine code and in C.

#![cfg(unix)]

use autotune_ir::formula::{Formula, ulps};
use autotune_ir::program::LoopKind::{Parallel, Vectorized};
use autotune_ir::program::{Compare, Expr, UnaryOp};
use autotune_ir::{CpuTarget, Isa, Program, Target, interpret};
use autotune_workloads::Operands;
use ndarray::{ArrayD, Axis};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::maps::{mapped, operand};
use crate::common::missing;

/// Exponents with both signs, and mantissas per exponent.
const EXTENTS: [usize; 2] = [512, 24];

/// Name, expression, exact function, and maximum error in ulps.
type Function = (String, Expr, Box<dyn Fn(f64) -> f64>, f64);

/// Returns every function of one value.
fn functions() -> Vec<Function> {
    let casts = |op: &UnaryOp| matches!(op, UnaryOp::Cast(_));
    let operations = UnaryOp::ALL.into_iter().filter(|op| !casts(op));
    let mut all: Vec<Function> = Vec::new();
    for op in operations {
        let exact = move |x| op.exact(x);
        all.push((op.word().into(), Expr::unary(op, operand(0)), Box::new(exact), Formula::largest_error(op)));
    }

    // Expressions that activations without a formula of their own consist of.
    let below = Expr::product(Expr::unary(UnaryOp::Expm1, operand(0)), Expr::Const(0.75));
    let elu = Expr::select(Compare::Less, [operand(0), Expr::Const(0.0)], below, operand(0));
    all.push(("elu".into(), elu, Box::new(|x| if x < 0.0 { 0.75 * x.exp_m1() } else { x }), 3.0));
    let opposite = |x: Expr| Expr::unary(UnaryOp::Neg, x);
    let log_sigmoid = opposite(Expr::unary(UnaryOp::Softplus, opposite(operand(0))));
    let exact = |x: f64| -UnaryOp::Softplus.exact(-x);
    all.push(("log_sigmoid".into(), log_sigmoid, Box::new(exact), Formula::largest_error(UnaryOp::Softplus)));
    all
}

/// Returns operands of which the first has every exponent with both signs, each with the least, the
/// greatest and random mantissas.
fn every_exponent(program: &Program) -> Operands {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut operands = Operands::random(&program.spec, 1);
    for (at, x) in operands[1].iter_mut().enumerate() {
        let mantissa = match at % EXTENTS[1] {
            0 => 0,
            1 => 1,
            2 => (1 << 23) - 1,
            _ => rng.random_range(0..1 << 23),
        };
        *x = f32::from_bits(((at / EXTENTS[1]) as u32) << 23 | mantissa);
    }
    operands
}

/// Asserts that every function of the operands is near the exact one; the output has a row per
/// function.
fn check(found: &ArrayD<f32>, operands: &Operands, backend: &str) {
    let rows = found.axis_chunks_iter(Axis(found.ndim() - 2), 1);
    for (row, (name, _, exact, most)) in rows.zip(functions()) {
        for (&found, &x) in row.iter().zip(&operands[1]) {
            let wanted = exact(x.into());
            let off = ulps(found, wanted);
            assert!(off <= most, "{backend}: {name} of {x:e} is {found:e}, {off} ulp from {wanted:e}");
        }
    }
}

fn program(isa: Isa) -> (Program, Target) {
    let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) });
    let maps: Vec<Expr> = functions().into_iter().map(|(_, map, _, _)| map).collect();
    (mapped(&target, &maps, EXTENTS, [Parallel, Vectorized]), target)
}

#[test]
fn the_interpreter_is_as_near_as_stated() {
    let (program, _) = program(Isa::Avx2);
    let operands = every_exponent(&program);
    check(&interpret(&program, &operands).unwrap(), &operands, "interpreter");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn machine_code_is_as_near_as_stated() {
    for isa in [Isa::Avx2, Isa::Avx512] {
        let (program, target) = program(isa);
        let code = autotune_codegen::asm::assemble(&program, &target).unwrap();
        if crate::common::machine::runs(isa) {
            let operands = every_exponent(&program);
            check(&crate::common::machine::run(&program, &code, &operands), &operands, &isa.to_string());
        }
    }
}

#[test]
fn sources_in_c_are_as_near_as_stated() {
    let (program, target) = program(Isa::Avx2);
    let operands = every_exponent(&program);
    match crate::common::c::run(&program, &target, &operands) {
        Ok(output) => check(&output, &operands, "C"),
        Err(reason) => missing("cc", &reason),
    }
}
