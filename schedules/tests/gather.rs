//! Rows of a table by index: a naive reference, random schedules, invalid indices, generated code,
//! text forms.

#[cfg(target_arch = "x86_64")]
#[cfg(target_arch = "x86_64")]
use autotune_codegen::asm::assemble;
use autotune_ir::program::{Expr, Role};
use autotune_ir::{CpuTarget, DType, GpuTarget, Isa, Problem, Target, interpret, verify};
use autotune_schedules::{ScheduleSpace, lower, tolerance};
use autotune_workloads::{GatherWorkload, Operands, Workload, reference};
use ndarray::ArrayD;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::common::machine;
use crate::common::nests::for_each_store;
use crate::common::random_programs::check;
use crate::common::{c, missing};

const WORKLOADS: [&str; 15] = [
    "gather:m=1,n=1,k=1",
    "gather:m=7,n=13,k=5",
    "gather:m=3,n=64,k=1",
    "gather:m=40,n=17,k=301,bias",
    "gather:m=5,n=96,k=33,add,act=gelu",
    "gather:m=64,n=1,k=9",
    "gather:m=129,n=32,k=1009,scale,act=prelu",
    "gather:m=23,n=19,k=7,from_end",
    "gather:m=9,n=1,k=12,from_end,bias",
    "gather:m=23,n=37,k=19,dtype=bf16",
    "gather:m=64,n=1,k=9,dtype=bf16",
    "gather:m=64,n=1,k=1,dtype=bf16",
    "gather:m=3,n=64,k=1,dtype=bf16",
    "gather:m=11,n=33,k=7,from_end,data=bf16,out=f32,bias",
    "gather:m=40,n=19,k=5,data=f32,out=bf16,add",
];

fn cpu(isa: Isa) -> Target {
    Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) })
}

fn gpu(name: &str) -> Target {
    Target::Gpu(GpuTarget::stated(name).unwrap())
}

/// Returns the row of an index by the operator's definition.
fn row(number: f32, &GatherWorkload { k: rows, from_end, .. }: &GatherWorkload) -> usize {
    let number = if from_end && number < 0.0 { number + rows as f32 } else { number };
    if number.is_nan() { 0 } else { number.floor().clamp(0.0, (rows - 1) as f32) as usize }
}

fn by_hand(gather: &GatherWorkload, operands: &Operands) -> ArrayD<f32> {
    ArrayD::from_shape_fn(vec![gather.m, gather.n], |at| operands[0][[row(operands[1][at[0]], gather), at[1]]])
}

/// Puts indices of every kind into the operands: fractional, negative, out of range, NaN.
fn odd(operands: &mut Operands, rows: usize) {
    let last = rows as f32 - 1.0;
    let kinds = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        -0.0,
        -3.5,
        -1.0,
        -last,
        -last - 1.0,
        -last - 2.0,
        0.999,
        last,
        last + 0.5,
        last + 1.0,
        3e38,
        2147483648.0,
    ];
    for (number, kind) in operands[1].iter_mut().zip(kinds.into_iter().cycle()) {
        *number = kind;
    }
}

#[test]
fn references_and_programs_are_what_the_operator_says_whatever_the_numbers_are() {
    for (seed, (m, end)) in (0..).zip([(1, ""), (5, ""), (11, ""), (40, ""), (1, ",from_end"), (40, ",from_end")]) {
        let workload: Workload = format!("gather:m={m},n=9,k=7{end}").parse().unwrap();
        let gather = *workload.sizes::<GatherWorkload>().unwrap();
        let mut operands = Operands::random(workload.spec(), seed);
        for is_odd in [false, true] {
            if is_odd {
                odd(&mut operands, gather.k);
            }
            let wanted = by_hand(&gather, &operands);
            assert_eq!(reference(&workload, &operands), wanted, "{workload}");
            for target in [cpu(Isa::Avx2), gpu("opencl"), gpu("cuda:sm_90")] {
                let config = ScheduleSpace::new(&workload, &target).default_config();
                let program = lower(&workload, &target, &config).unwrap();
                assert_eq!(interpret(&program, &operands).unwrap(), wanted, "{workload}\n{program}");
            }
        }
    }
}

#[test]
fn random_numbers_are_those_of_rows_and_now_and_then_beyond() {
    let workload: Workload = "gather:m=4000,n=2,k=50".parse().unwrap();
    let operands = Operands::random(workload.spec(), 1);
    let count = |is_it: &dyn Fn(f32) -> bool| operands[1].iter().filter(|&&number| is_it(number)).count();
    assert_eq!(count(&|number| number == number.floor()), 4000);
    assert!((50..300).contains(&count(&|number| number < 0.0)), "{}", count(&|number| number < 0.0));
    assert!((50..300).contains(&count(&|number| number >= 50.0)), "{}", count(&|number| number >= 50.0));
    assert!((0..50).all(|row| count(&|number| number == row as f32) > 20));
    // An index has 4 bytes for any element type, and the table has more rows than are read.
    let halves = workload.with_dtype(DType::F16).unwrap();
    assert_eq!(halves.work().bytes, (50 * 2 * 2 + 4000 * 4 + 4000 * 2 * 2) as f64);
    assert_eq!("gather:m=3,n=8,k=100".parse::<Workload>().unwrap().work().bytes, (4 * (3 * 8 + 3 + 3 * 8)) as f64);
}

#[test]
fn random_schedules_are_proven_and_agree_with_the_reference() {
    let targets = [cpu(Isa::Avx2), cpu(Isa::Avx512), cpu(Isa::Generic), gpu("opencl"), gpu("cuda:sm_90")];
    for (seed, text) in (0..).zip(WORKLOADS) {
        let workload: Workload = text.parse().unwrap();
        let supporting = targets.iter().filter(|target| workload.unsupported_dtype(target).is_none());
        supporting.for_each(|target| check(&workload, target, seed, 4));
    }
    check(&"gather:m=37,n=24,k=50,dtype=f16,bias".parse().unwrap(), &gpu("cuda:sm_90"), 9, 4);
}

#[test]
fn c_agrees_with_the_reference() {
    for (seed, text) in (0..).zip(WORKLOADS) {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &cpu(Isa::Avx2));
        let program = lower(&workload, &cpu(Isa::Avx2), &space.default_config()).unwrap();
        let mut operands = Operands::random(workload.spec(), seed);
        for is_odd in [false, true] {
            if is_odd {
                odd(&mut operands, workload.sizes::<GatherWorkload>().unwrap().k);
            }
            let output = match c::run(&program, &cpu(Isa::Avx2), &operands) {
                Ok(output) => output,
                Err(reason) => return missing("cc", &reason),
            };
            let error = autotune_workloads::max_rel_error(&output, &reference(&workload, &operands));
            assert!(error <= tolerance(&workload, &space.default_config()), "{workload}: {error}\n{program}");
        }
    }
}

/// Default and random schedules that gather rows and single elements, compared bit for bit.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_assembler_agrees_with_the_interpreter() {
    const OTHERS: [&str; 8] = [
        "pad:c=3,h=5,w=29,p=2,mode=reflect",
        "pad:c=2,h=7,w=13,pt=1,pb=0,pl=3,pr=4,mode=constant,value=1.5",
        "pad:n=2,c=17,h=2,w=2,p=1,mode=edge",
        "resize:c=3,h=5,w=7,oh=13,ow=19,mode=linear",
        "resize:c=2,h=9,w=21,oh=4,ow=5,mode=nearest,round=ceil",
        "resize:n=2,c=5,h=3,w=33,oh=7,ow=50,mode=linear,coord=align_corners",
        "pad:c=3,h=5,w=29,p=2,mode=reflect,dtype=bf16",
        "resize:c=2,h=9,w=21,oh=4,ow=5,mode=nearest,round=ceil,dtype=bf16",
    ];

    let rounding = CpuTarget { isa: Isa::Avx512, features: vec!["avx512bf16".into()], ..CpuTarget::generic_avx2(2) };
    for target in [cpu(Isa::Avx2), cpu(Isa::Avx512), Target::Cpu(rounding)] {
        let cpu = target.cpu().unwrap();
        let runs = machine::runs(cpu.isa) && cpu.features.iter().all(|feature| machine::has(feature));
        for (seed, text) in (0..).zip(WORKLOADS.into_iter().chain(OTHERS)) {
            let workload: Workload = text.parse().unwrap();
            let space = ScheduleSpace::new(&workload, &target);
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut operands = Operands::random(workload.spec(), seed);
            if let Some(gather) = workload.sizes::<GatherWorkload>() {
                odd(&mut operands, gather.k);
            }

            let drawn = (0..8).map(|_| space.sample(&mut rng).config().clone());
            for config in std::iter::once(space.default_config()).chain(drawn) {
                let program = lower(&workload, &target, &config).unwrap();
                let code =
                    assemble(&program, &target).unwrap_or_else(|e| panic!("{workload}\n{config}\n{e}\n{program}"));
                if runs {
                    let (found, wanted) = (machine::run(&program, &code, &operands), interpret(&program, &operands));
                    assert_eq!(found, wanted.unwrap(), "{workload}\n{config}\n{program}");
                }
            }
        }
    }
}

#[test]
fn elements_found_by_values_are_those_of_operands_along_dimensions_that_there_are() {
    let workload: Workload = WORKLOADS[1].parse().unwrap();
    let target = cpu(Isa::Avx2);
    let program = lower(&workload, &target, &ScheduleSpace::new(&workload, &target).default_config()).unwrap();
    assert_eq!(verify(&program, &target), Ok(()));
    let output = program.find(Role::Output).unwrap();
    let problem = |change: &dyn Fn(&mut autotune_ir::program::GatherAccess)| {
        let mut program = program.clone();
        for stage in &mut program.stages {
            for_each_store(&mut stage.body, &mut |store| {
                if let Expr::Gather(gather) = &mut store.value {
                    change(gather);
                }
            });
        }
        verify(&program, &target).unwrap_err().problem
    };

    for found in [
        problem(&|gather| gather.access.buffer = output),
        problem(&|gather| gather.dims = vec![2]),
        problem(&|gather| gather.dims = vec![1]),
        problem(&|gather| gather.access.index[0].constant = 1),
        problem(&|gather| gather.at.clear()),
    ] {
        assert!(matches!(found, Problem::Nesting(_) | Problem::Point(_) | Problem::WrongElement { .. }), "{found:?}");
    }
}

#[test]
fn the_text_forms_are_read_as_they_are_written_and_errors_name_the_field() {
    for text in WORKLOADS {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
    }
    for (text, wanted) in [
        ("gather:m=4,n=4", "gather: field 'k' is missing"),
        ("gather:m=0,n=4,k=3", "gather: field 'm': must be at least 1"),
        ("gather:m=4,n=4,k=16777217", "gather: field 'k': row numbers are f32, which is exact up to 16777216"),
        (
            "gather:m=4,n=99999999999,k=16",
            "gather: field 'n': 99999999999 is too large: table exceeds the supported size",
        ),
    ] {
        let error = text.parse::<Workload>().unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text}: {error}");
    }
}
