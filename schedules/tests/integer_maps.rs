//! Operators that move integers or round to them: assembled, in C and interpreted, with several
//! schedules each.

#![cfg(all(target_arch = "x86_64", unix))]

use autotune_codegen::asm::{assemble, x86::disassemble};
use autotune_ir::{CpuTarget, Isa, Target, interpret, verify};
use autotune_schedules::{ScheduleSpace, lower, tolerance};
use autotune_workloads::{Operands, Reference, Workload, reference};
use ndarray::ArrayD;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::cases::for_cases_in_parallel;
use crate::common::spaces::some;
use crate::common::{c, machine, missing, or_long};

/// Conversions with scales and zero points per channel, sums of two operands, and copies of bytes.
const WORKLOADS: [&str; 18] = [
    "pointwise:b=2,m=19,n=37,op=copy,channels=column,scale,bias,data=f32,out=u8",
    "pointwise:m=19,n=37,op=copy,scale,bias,data=f32,out=i8",
    "pointwise:b=2,m=16,n=49,op=copy,channels=column,scale,bias=f32,data=u8,out=f32",
    "pointwise:m=19,n=37,op=copy,scale,bias=f32,data=i8,out=f32",
    "pointwise:m=19,n=37,op=copy,scale,bias=f32,data=u8,out=u8",
    "pointwise:m=19,n=37,op=copy,scale,bias=f32,data=i8,out=u8",
    "pointwise:m=19,n=37,op=copy,data=u8,out=f32",
    "pointwise:m=19,n=37,op=copy,data=f32,out=u8",
    "pointwise:b=1,m=16,n=49,op=copy,channels=column,scale,bias=f32,add=f32,act=relu,post_scale,post_bias,data=u8,out=u8",
    "pointwise:b=1,m=16,n=49,op=copy,channels=column,scale,bias=f32,add=u8,act=relu,post_scale,post_bias,data=u8,out=u8",
    "pointwise:m=19,n=37,op=add,data=u8,out=u8",
    "pointwise:m=19,n=37,op=max,rhs=row,dtype=i8",
    "pool2d:c=5,h=13,w=17,k=3,s=2,p=1,kind=max,dtype=u8",
    "pool2d:c=16,h=9,w=9,k=2,s=2,kind=max,dtype=i8",
    "pool2d:c=16,h=7,w=7,k=7,kind=avg,data=u8,out=f32",
    "pool2d:c=16,h=9,w=7,k=3,p=1,kind=avg,data=u8,out=f32",
    "transpose:m=33,n=47,dtype=u8",
    "transpose:shape=5x12x32,perm=102,dtype=i8",
];

/// Asserts that a program's output is near the reference.
fn check(found: &ArrayD<f32>, reference: &Reference, tolerance: f64, context: &str) {
    let exact = reference.exact().unwrap();
    let worst = found.iter().zip(exact).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
    assert!(worst <= tolerance * f64::from(reference.largest()), "{context}: off by {worst}");
}

#[test]
fn integers_are_moved_and_rounded_to() {
    for (isa, text) in [Isa::Avx2, Isa::Avx512].into_iter().flat_map(|isa| WORKLOADS.map(|text| (isa, text))) {
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) });
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        assert_eq!(space.refusal(), None, "{workload}");
        let operands = Operands::random(workload.spec(), 7);
        let reference = Reference::new(&workload, &operands, 7).unwrap();

        for (number, candidate) in some(&space, 4, &mut ChaCha8Rng::seed_from_u64(1)).into_iter().enumerate() {
            let program = candidate.lower().unwrap();
            let context = format!("{isa}: {workload}\n{}", candidate.config());
            let tolerance = tolerance(&workload, candidate.config());
            verify(&program, &target).unwrap();
            check(&interpret(&program, &operands).unwrap(), &reference, tolerance, &context);
            let code = assemble(&program, &target).unwrap_or_else(|e| panic!("{context}: {e}\n{program}"));
            if machine::runs(isa) {
                check(&machine::run(&program, &code, &operands), &reference, tolerance, &context);
            }
            if number == 0 {
                match c::run(&program, &target, &operands) {
                    Ok(found) => check(&found, &reference, tolerance, &format!("in C, {context}")),
                    Err(reason) => missing("cc", &reason),
                }
            }
        }
    }
}

/// Blocks of 16, 8 and 4 rows, of any number of columns, and what is left.
#[test]
fn bytes_are_transposed_exactly() {
    for isa in [Isa::Avx2, Isa::Avx512] {
        for_cases_in_parallel(or_long([60, 200]), |seed, choices| {
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) });
            let [m, n] = [choices.random_range(1..70), choices.random_range(1..70)];
            let dtype = ["u8", "i8"][seed as usize % 2];
            let workload: Workload = format!("transpose:b=2,m={m},n={n},dtype={dtype}").parse().unwrap();
            let space = ScheduleSpace::new(&workload, &target);
            for config in [space.default_config(), space.sample(choices).config().clone()] {
                let mut program = lower(&workload, &target, &config).unwrap();
                program.buffers.iter_mut().for_each(|buffer| buffer.streamed = seed % 3 == 0);
                let code = assemble(&program, &target).unwrap();
                let operands = Operands::random(&program.spec, seed);
                let context = format!("{isa}: {workload}\n{config}\n{}", disassemble(&code));
                if machine::runs(isa) {
                    let output = machine::run(&program, &code, &operands);
                    assert_eq!(output, reference(&workload, &operands), "{context}");
                }
            }
        });
    }
}

/// Blocks of channels to planes, and planes to blocks.
#[test]
fn layouts_of_bytes_are_converted_by_interleaving() {
    for (isa, block) in [(Isa::Avx2, 8), (Isa::Avx512, 16)] {
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) });
        for text in [format!("transpose:b=2,m=81,n={block},dtype=u8"), format!("transpose:b=2,m={block},n=81,dtype=i8")]
        {
            let workload: Workload = text.parse().unwrap();
            let program = lower(&workload, &target, &ScheduleSpace::new(&workload, &target).default_config()).unwrap();
            let code = disassemble(&assemble(&program, &target).unwrap());
            assert!(code.contains("vpunpckhbw"), "{isa}: {text}\n{code}");
        }
    }
}
