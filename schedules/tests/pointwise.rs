//! Functions of elements: plain references, random schedules, text forms.

#![allow(clippy::unwrap_used)]

mod common;

use autotune_ir::program::{BinaryOp, UnaryOp};
use autotune_ir::{CpuTarget, Isa, Target};
use autotune_schedules::workload::{Broadcast, Function, Pointwise, PointwiseOp};
use autotune_schedules::{Operands, Workload, max_rel_error, reference};
use common::pointwise::{UNARY, random_pointwise};
use common::random_programs::check;
use ndarray::ArrayD;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn function(function: Function, x: f64) -> f64 {
    let unit = (x / 6.0 + 0.5).clamp(0.0, 1.0);
    match function {
        Function::Copy => x,
        Function::Relu => x.max(0.0),
        Function::Gelu => 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt())),
        Function::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
        }
        Function::Silu => x / (1.0 + (-x).exp()),
        Function::HardSigmoid => unit,
        Function::HardSwish => x * unit,
        Function::Op(UnaryOp::Sigmoid) => 1.0 / (1.0 + (-x).exp()),
        Function::Op(UnaryOp::Tanh) => x.tanh(),
        Function::Op(UnaryOp::Erf) => libm::erf(x),
        Function::Op(UnaryOp::Exp) => x.exp(),
        Function::Op(UnaryOp::Log) => x.ln(),
        Function::Op(UnaryOp::Sqrt) => x.sqrt(),
        Function::Op(UnaryOp::Rsqrt) => 1.0 / x.sqrt(),
        Function::Op(UnaryOp::Abs) => x.abs(),
        Function::Op(UnaryOp::Neg) => -x,
        Function::Op(UnaryOp::Floor) => x.floor(),
        Function::Op(UnaryOp::Cast(_)) => unreachable!("no operation of the text form"),
    }
}

fn by_hand(pointwise: &Pointwise, operands: &Operands) -> ArrayD<f32> {
    ArrayD::from_shape_fn(vec![pointwise.m, pointwise.n], |i| {
        let x = f64::from(operands[0][[i[0], i[1]]]);
        let rhs = || match pointwise.rhs {
            Broadcast::Full => f64::from(operands[1][[i[0], i[1]]]),
            Broadcast::Row => f64::from(operands[1][[i[1]]]),
            Broadcast::Column => f64::from(operands[1][[i[0]]]),
            Broadcast::Scalar => f64::from(operands[1][[0]]),
        };
        let y = match pointwise.op {
            PointwiseOp::Unary(of) => function(of, x),
            PointwiseOp::Binary(BinaryOp::Add) => x + rhs(),
            PointwiseOp::Binary(BinaryOp::Sub) => x - rhs(),
            PointwiseOp::Binary(BinaryOp::Mul) => x * rhs(),
            PointwiseOp::Binary(BinaryOp::Div) => x / rhs(),
            PointwiseOp::Binary(BinaryOp::Max) => x.max(rhs()),
            PointwiseOp::Binary(BinaryOp::Min) => x.min(rhs()),
        };
        y as f32
    })
}

/// Operands that every operation has a number for, over more than the range that the functions bend in.
fn operands(workload: &Workload, seed: u64) -> Operands {
    let mut operands = Operands::random(workload.spec(), seed);
    let is_of_positive = ["log", "sqrt"].iter().any(|op| workload.as_str().contains(op));
    operands[0].mapv_inplace(|x| if is_of_positive { 5.0 * x.abs() } else { 5.0 * x });
    operands
}

#[test]
fn references_are_what_each_operation_says() {
    for (seed, op) in (0..).zip(UNARY) {
        let workload: Workload = format!("pointwise:m=7,n=131,op={op}").parse().unwrap();
        let operands = operands(&workload, seed);
        let wanted = by_hand(workload.sizes().unwrap(), &operands);
        let error = max_rel_error(&reference(&workload, &operands), &wanted);
        assert!(error < 1e-6, "{workload}: {error}");
    }
    for seed in 0..200 {
        let workload = random_pointwise(&mut ChaCha8Rng::seed_from_u64(seed)).with_epilogue(Default::default());
        let operands = operands(&workload, seed);
        let wanted = by_hand(workload.sizes().unwrap(), &operands);
        let error = max_rel_error(&reference(&workload, &operands), &wanted);
        assert!(error < 1e-6, "seed {seed}: {workload}: {error}");
    }
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Generic] {
        for seed in 0..60 {
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 3) });
            check(&random_pointwise(&mut ChaCha8Rng::seed_from_u64(seed)), &target, seed, 4);
        }
    }
}

#[test]
fn the_text_forms_are_read_as_they_are_written() {
    for text in [
        "pointwise:m=4096,n=1024,op=gelu",
        "pointwise:m=1,n=1,op=hard_swish,bias,act=relu",
        "pointwise:m=3,n=5,op=mul",
        "pointwise:m=3,n=5,op=div,rhs=row",
        "pointwise:m=3,n=5,op=min,rhs=column,add",
        "pointwise:m=3,n=5,op=sub,rhs=scalar",
    ] {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
    }
    assert_eq!(
        "pointwise:m=3,n=5,op=add,rhs=full".parse::<Workload>().unwrap().to_string(),
        "pointwise:m=3,n=5,op=add"
    );
}

#[test]
fn errors_name_the_operator_and_the_field() {
    for (text, wanted) in [
        ("pointwise:m=4,n=4", "pointwise: field 'op' is missing"),
        ("pointwise:m=4,n=4,op=cosh", "pointwise: field 'op': 'cosh' is not an operation (relu, gelu,"),
        ("pointwise:m=4,n=4,op=exp,rhs=row", "pointwise: field 'rhs': the operation has one operand only"),
        ("pointwise:m=4,n=4,op=add,rhs=rows", "pointwise: field 'rhs': 'rows' is not a shape of the second operand"),
        ("pointwise:m=0,n=4,op=add", "pointwise: field 'm': must be at least 1"),
        ("pointwise:m=4,n=4,op=add,k=3", "pointwise: unknown field 'k'"),
        ("pointwise:m=99999999999,n=99999999999,op=exp", "pointwise: input overflows the supported size"),
    ] {
        let error = text.parse::<Workload>().unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text}: {error}");
    }
}
