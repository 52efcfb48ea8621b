//! Functions of elements: naive references, random schedules, text forms.

use autotune_ir::program::{BinaryOp, Compare, UnaryOp};
use autotune_ir::{CpuTarget, Isa, Target, interpret};
use autotune_schedules::{ScheduleSpace, lower};
use autotune_workloads::{Broadcast, Function, Operands, Pointwise, PointwiseOp, Workload, max_rel_error, reference};
use ndarray::{ArrayD, Dimension};

use crate::common::cases::for_cases;
use crate::common::epilogues::{ACTIVATIONS, activated, activation};
use crate::common::pointwise::{UNARY, random_pointwise};
use crate::common::random_programs::check_drawn;

fn function(function: Function, x: f64) -> f64 {
    match function {
        Function::Activation(activation) => activated(activation, x, 1.0),
        Function::Op(UnaryOp::Erf) => libm::erf(x),
        Function::Op(UnaryOp::Exp) => x.exp(),
        Function::Op(UnaryOp::Expm1) => x.exp_m1(),
        Function::Op(UnaryOp::Log) => x.ln(),
        Function::Op(UnaryOp::Log1p) => x.ln_1p(),
        Function::Op(UnaryOp::Sqrt) => x.sqrt(),
        Function::Op(UnaryOp::Rsqrt) => 1.0 / x.sqrt(),
        Function::Op(UnaryOp::Abs) => x.abs(),
        Function::Op(UnaryOp::Neg) => -x,
        Function::Op(UnaryOp::Floor) => x.floor(),
        Function::Op(UnaryOp::Sign) => {
            if x == 0.0 {
                0.0
            } else {
                x.signum()
            }
        }
        Function::Op(op) => unreachable!("{op:?} is not of the text form"),
    }
}

fn by_hand(pointwise: &Pointwise, operands: &Operands) -> ArrayD<f32> {
    let Pointwise { shape, pre, op, lhs, rhs, third, .. } = pointwise;
    let all = (1u32 << shape.len()) - 1;
    ArrayD::from_shape_fn(&shape[..], |i| {
        let of = |operand: usize, broadcast: &Broadcast| {
            // Bit mask of the operand's axes, as in the text form.
            let text = match *broadcast {
                Broadcast::FULL => all,
                Broadcast::ROW => 1,
                Broadcast::COLUMN => 2,
                Broadcast::ROWS => 5,
                Broadcast::SCALAR => 0,
                other => (0..all).find(|mask| other == of_mask(*mask, shape.len())).unwrap(),
            };
            let has = |axis: &usize| text >> (shape.len() - 1 - axis) & 1 == 1;
            let at: Vec<usize> = (0..shape.len()).filter(has).map(|axis| i[axis]).collect();
            f64::from(operands[operand][if at.is_empty() { &[0] } else { &at[..] }])
        };

        let (x, y, z) = (function(*pre, of(0, lhs)), || of(1, rhs), || of(2, third));
        let truth = |is_true: bool| f64::from(u8::from(is_true));

        let value = match *op {
            PointwiseOp::Unary(of) => function(of, x),
            PointwiseOp::Binary(BinaryOp::Add) => x + y(),
            PointwiseOp::Binary(BinaryOp::Sub) => x - y(),
            PointwiseOp::Binary(BinaryOp::Mul) => x * y(),
            PointwiseOp::Binary(BinaryOp::Div) => x / y(),
            PointwiseOp::Binary(BinaryOp::Max | BinaryOp::MaxNumber) => x.max(y()),
            PointwiseOp::Binary(BinaryOp::Min) => x.min(y()),
            PointwiseOp::Binary(BinaryOp::Pow) => x.powf(y()),
            PointwiseOp::Not => truth(x == 0.0),
            PointwiseOp::Bool => truth(x != 0.0),
            PointwiseOp::Trunc => {
                if x.is_nan() {
                    0.0
                } else {
                    x.trunc()
                }
            }
            PointwiseOp::Quotient => (x / y()).trunc(),
            PointwiseOp::Compare(Compare::Equal) => truth(x == y()),
            PointwiseOp::Compare(Compare::Less) => truth(x < y()),
            PointwiseOp::Compare(Compare::LessEqual) => truth(x <= y()),
            PointwiseOp::Prelu => {
                if x < 0.0 {
                    x * y()
                } else {
                    x
                }
            }
            PointwiseOp::Where => {
                if x != 0.0 {
                    y()
                } else {
                    z()
                }
            }
        };
        value as f32
    })
}

fn of_mask(mask: u32, rank: usize) -> Broadcast {
    let has: Vec<bool> = (0..rank).map(|axis| mask >> (rank - 1 - axis) & 1 == 1).collect();
    Broadcast::of(&has)
}

/// Returns operands that cover more than the nonlinear range of the functions.
fn operands(workload: &Workload, seed: u64) -> Operands {
    let mut operands = Operands::random(workload.spec(), seed);
    operands[0].mapv_inplace(|x| 5.0 * x);
    let pointwise: &Pointwise = workload.sizes().unwrap();
    if let PointwiseOp::Compare(_) | PointwiseOp::Quotient | PointwiseOp::Not | PointwiseOp::Where = pointwise.op {
        // Comparisons are tested on integers, some of which are equal. Divisors are not zero.
        operands[0].mapv_inplace(f32::round);
        if pointwise.op.operands() == 2 {
            operands[1].mapv_inplace(|x| (3.0 * x).abs().round() + 1.0);
        }
    }
    operands
}

/// NaN, infinities and zeros are compared and selected according to IEEE 754.
#[test]
fn special_values_are_what_each_operation_says() {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.0, -2.5, f32::MIN_POSITIVE / 4.0];
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    for op in ["equal", "less", "less_equal", "not", "bool", "trunc", "prelu", "pow", "where"] {
        let text = match op {
            "not" | "bool" | "trunc" => format!("pointwise:m=8,n=8,op={op}"),
            "where" => "pointwise:m=8,n=8,op=where,third=row".into(),
            _ => format!("pointwise:m=8,n=8,op={op},rhs=row"),
        };
        let workload: Workload = text.parse().unwrap();
        let mut operands = Operands::random(workload.spec(), 1);
        for number in 0..operands.len() {
            let is_row = operands[number].ndim() == 1;
            let of = |at: &[usize]| special[if is_row { at[0] } else { (at[0] + number * at[1]) % 8 }];
            let shape = operands[number].shape().to_vec();
            operands[number] = ArrayD::from_shape_fn(shape, |i| of(i.as_array_view().as_slice().unwrap()));
        }
        let space = ScheduleSpace::new(&workload, &target);
        let program = lower(&workload, &target, &space.default_config()).unwrap();
        let found = interpret(&program, &operands).unwrap();
        let wanted = by_hand(workload.sizes().unwrap(), &operands);
        for (at, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert!(found == wanted || found.is_nan() && wanted.is_nan(), "{text} at {at}: {found} for {wanted}");
        }
    }
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
    for_cases(200, |seed, choices| {
        let workload = random_pointwise(choices).with_epilogue(Default::default());
        let operands = operands(&workload, seed);
        let wanted = by_hand(workload.sizes().unwrap(), &operands);
        let error = max_rel_error(&reference(&workload, &operands), &wanted);
        assert!(error < 1e-6, "{workload}: {error}");
    });
}

/// Applies the epilogue by hand to the sums of the same workload without one.
#[test]
fn epilogues_are_what_each_part_says() {
    for (seed, (act, text)) in (0..).zip(ACTIVATIONS.iter().flat_map(|act| {
        ["conv2d:n=2,c=7,h=5,w=6,o=9,k=3,p=1", "matmul:b=2,m=7,n=12,k=300", "pool2d:c=5,h=7,w=6,k=2,kind=avg"]
            .map(|text| (act, text))
    })) {
        let bare: Workload = text.parse().unwrap();
        let workload: Workload =
            format!("{text},scale,bias,add,act={act},post_scale,post_bias,post_add").parse().unwrap();
        let operands = Operands::random(workload.spec(), seed);
        let mut own = Operands::random(bare.spec(), seed);
        (0..own.len()).for_each(|number| own[number] = operands[number].clone());
        let sums = reference(&bare, &own);

        let channel = if text.starts_with("matmul") { 2 } else { 1 };
        let of = |name: &str, at: &[usize]| operands.named(name).map(|tensor| f64::from(tensor[at]));
        let wanted = ArrayD::from_shape_fn(sums.shape(), |i| {
            let at: Vec<usize> = (0..i.ndim()).map(|dim| i[dim]).collect();
            let of_channel = |name| of(name, &at[channel..=channel]);
            let sum = f64::from(sums[&at[..]]) * of_channel("output_scale").unwrap();
            let sum = sum + of_channel("bias").unwrap() + of("residual", &at).unwrap();
            let value = activated(activation(act), sum, of_channel("slope").unwrap_or(1.0));
            let value = value * of_channel("post_scale").unwrap() + of_channel("post_bias").unwrap();
            (value + of_channel("residual_scale").unwrap() * of("post_residual", &at).unwrap()) as f32
        });
        let error = max_rel_error(&reference(&workload, &operands), &wanted);
        assert!(error < 1e-6, "{workload}: {error}");
    }
}

/// Channels before the pixels have a scale, a bias and a slope per channel.
#[test]
fn channels_may_be_columns() {
    let text = "pointwise:b=2,m=3,n=5,op=copy,channels=column,scale,bias,act=prelu";
    let workload: Workload = text.parse().unwrap();
    let operands = operands(&workload, 1);
    let wanted = ArrayD::from_shape_fn(vec![2, 3, 5], |i| {
        let of_channel = |name| operands.named(name).unwrap()[[i[1]]];
        let y = operands[0][&i] * of_channel("output_scale") + of_channel("bias");
        if y < 0.0 { y * of_channel("slope") } else { y }
    });
    assert!(max_rel_error(&reference(&workload, &operands), &wanted) < 1e-6);
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Generic] {
        for_cases(60, |seed, choices| {
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 3) });
            check_drawn(&random_pointwise(choices), &target, seed, 4, choices);
        });
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
        "pointwise:m=3,n=5,op=pow,lhs=row",
        "pointwise:m=3,n=5,op=clip:-1:inf,act=clip:0:6",
        "pointwise:m=3,n=5,op=copy,scale,act=prelu",
        "pointwise:m=3,n=5,op=leaky_relu:0.2,act=leaky_relu",
        "pointwise:b=2,m=3,n=5,pre=sigmoid,op=mul,lhs=column,rhs=rows,channels=column,scale",
        "pointwise:m=3,n=5,pre=leaky_relu:0.2,op=exp,lhs=scalar",
        "pointwise:m=3,n=5,op=less_equal,lhs=column,rhs=row",
        "pointwise:b=2,m=3,n=5,op=where,lhs=01,rhs=scalar,third=0",
        "pointwise:shape=2x3x4x5,op=add,rhs=13",
        "pointwise:shape=2x3x4x5x6x7,pre=sqrt,op=trunc",
    ] {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
    }

    let defaults = "pointwise:b=1,m=3,n=5,pre=copy,op=add,lhs=full,rhs=full,channels=row";
    assert_eq!(defaults.parse::<Workload>().unwrap().to_string(), "pointwise:m=3,n=5,op=add");

    for (text, canonical) in [
        ("pointwise:shape=3x5,op=add,rhs=1,lhs=01", "pointwise:m=3,n=5,op=add,rhs=row"),
        ("pointwise:shape=2x3x5,op=add,rhs=02", "pointwise:b=2,m=3,n=5,op=add,rhs=rows"),
    ] {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), canonical);
    }
}

#[test]
fn errors_name_the_operator_and_the_field() {
    let cases = [
        ("pointwise:m=4,n=4", "pointwise: field 'op' is missing"),
        ("pointwise:m=4,n=4,op=cosh", "pointwise: field 'op': 'cosh' is not an operation (relu, gelu,"),
        ("pointwise:m=4,n=4,op=relu,third=row", "pointwise: field 'third': the operation has only one operand"),
        ("pointwise:m=4,n=4,op=less,third=row", "pointwise: field 'third': the operation has only two operands"),
        ("pointwise:m=4,n=4,op=add,rhs=10", "pointwise: field 'rhs': '10' is not an operand shape (full,"),
        ("pointwise:m=4,n=4,op=add,rhs=2", "pointwise: field 'rhs': '2' is not an operand shape (full,"),
        ("pointwise:shape=2x3x4x5,op=add,rhs=row", "pointwise: field 'rhs': 'row' is not an operand shape (full,"),
        ("pointwise:shape=2x3,m=4,op=add", "pointwise: field 'm': cannot be combined with 'shape'"),
        ("pointwise:shape=7,op=exp", "pointwise: field 'shape': 1 axes, expected 2 to 6"),
        ("pointwise:shape=1x2x3x4x5x6x7,op=exp", "pointwise: field 'shape': 7 axes, expected 2 to 6"),
        ("pointwise:shape=2x0x3x4,op=exp", "pointwise: field 'shape': must be at least 1"),
        ("pointwise:shape=1x3x4,op=exp", "pointwise: field 'b': a batch of one matrix has no batch axis"),
        ("pointwise:shape=2x3x4x5,op=exp,channels=column", "pointwise: field 'channels': column needs a batch of"),
        ("pointwise:m=4,n=4,op=none", "pointwise: field 'op': 'none' is not an operation (relu, gelu,"),
        ("pointwise:m=4,n=4,op=clip:1:0", "pointwise: field 'op': 'clip:1:0' is not clip:LO:HI with LO at most HI"),
        ("pointwise:m=4,n=4,op=add,act=log", "pointwise: field 'act': 'log' is not an activation (none, relu,"),
        ("pointwise:m=4,n=4,op=exp,rhs=row", "pointwise: field 'rhs': the operation has only one operand"),
        ("pointwise:m=4,n=4,op=add,rhs=all", "pointwise: field 'rhs': 'all' is not an operand shape (full,"),
        ("pointwise:m=4,n=4,op=add,rhs=rows", "pointwise: field 'rhs': 'rows' needs a batch: use 'row'"),
        ("pointwise:m=4,n=4,op=exp,lhs=rows", "pointwise: field 'lhs': 'rows' needs a batch: use 'row'"),
        ("pointwise:b=0,m=4,n=4,op=exp", "pointwise: field 'b': must be at least 1"),
        ("pointwise:m=4,n=4,pre=add,op=exp", "pointwise: field 'pre': 'add' is not a function of one operand"),
        ("pointwise:m=4,n=4,pre=cosh,op=exp", "pointwise: field 'pre': 'cosh' is not an operation (relu, gelu,"),
        ("pointwise:m=4,n=4,op=exp,channels=n", "pointwise: field 'channels': 'n' is not a dimension of channels"),
        ("pointwise:m=0,n=4,op=add", "pointwise: field 'm': must be at least 1"),
        ("pointwise:m=4,n=4,op=add,k=3", "pointwise: unknown field 'k'"),
        (
            "pointwise:m=99999999999,n=99999999999,op=exp",
            "pointwise: field 'n': 99999999999 is too large: input exceeds the supported size",
        ),
    ];

    for (text, wanted) in cases {
        let error = text.parse::<Workload>().unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text}: {error}");
    }
}
