//! Results that are looked up in tables: every element type, on every instruction set.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)]

use autotune_codegen::asm::assemble;
use autotune_ir::{CpuTarget, DType, Isa, Target, interpret, verify};
use autotune_schedules::ScheduleSpace;
use autotune_workloads::{Epilogue, Operands, Types, Workload, reference};
use rand::RngExt;
use rand::seq::IndexedRandom;

use crate::common::cases::{Choices, cases, for_cases_in_parallel};
use crate::common::{machine, or_long};

/// Instruction sets without and with instructions that look bytes up, by the features of CPUs.
const SETS: [(Isa, &[&str]); 3] =
    [(Isa::Avx2, &[]), (Isa::Avx512, &[]), (Isa::Avx512, &["amx", "avx512bf16", "avx512vnni"])];

/// Numbers of workloads for each instruction set, in an ordinary and in a long run.
const WORKLOADS: [u64; 2] = [40, 900];

fn random_workload(choices: &mut Choices) -> Workload {
    let [m, n, k] = [1..9, 1..200, 1..70].map(|range| choices.random_range(range));
    let [out, data] = [["u8", "i8"], ["u8", "f32"]].map(|words| *words.choose(choices).unwrap());
    let product = format!("data=u8,weights=i8,out={out},scale,bias=f32,table");
    let text = match choices.random_range(0..6) {
        0 => format!("pointwise:m={m},n={n},op=copy,data={data},out={out},table"),
        1 => format!("pointwise:m={m},n={n},op=copy,channels=column,data=i8,out={out},scale,bias=f32,act=relu,table"),
        2 => format!("pool2d:c={m},h=9,w={k},k=3,s=2,p=1,kind=max,data=u8,out={out},table"),
        3 => format!("matmul:m={m},n={n},k={k},{product}"),
        4 => format!("matmul:m={m},n={n},k={k},act=round:0:255,post_scale,post_bias,{product}"),
        _ => format!("conv2d:c={k},h=9,w={m},o={n},k=3,p=1,{product}"),
    };
    text.parse().unwrap()
}

/// Returns operands with any table. Scales are powers of two and biases are whole, so that nothing
/// but the last step rounds.
fn exact_operands(workload: &Workload, seed: u64, choices: &mut Choices) -> Operands {
    let mut operands = Operands::random(workload.spec(), seed);
    let [least, most] = workload.result_dtype().range().map(|end| end as i32);
    for (number, tensor) in workload.spec().operands().enumerate() {
        let scale = 0.5f32.powi(choices.random_range(1..8));
        for element in &mut operands[number] {
            match &*tensor.name {
                "table" => *element = choices.random_range(least..=most) as f32,
                "output_scale" | "post_scale" => *element = scale,
                "bias" | "post_bias" => *element = choices.random_range(-40..300) as f32,
                _ if tensor.dtype == DType::F32 => *element = choices.random_range(-40.0..300.0),
                _ => {}
            }
        }
    }
    operands
}

#[test]
fn results_are_elements_of_tables() {
    for (isa, features) in SETS {
        let runs = machine::runs(isa) && features.iter().all(|feature| machine::has(feature));
        for_cases_in_parallel(cases(or_long(WORKLOADS)), |seed, choices| {
            let features = features.iter().map(|feature| feature.to_string()).collect();
            let target = Target::Cpu(CpuTarget { isa, features, ..CpuTarget::generic_avx2(1) });
            let workload = random_workload(choices);
            let operands = exact_operands(&workload, seed, choices);

            let indices = workload.with_epilogue(Epilogue { table: false, ..workload.epilogue() });
            let indices = indices.with_types(Types { out: DType::U8, ..workload.types() }).unwrap();
            let (table, others) = operands.split_last().unwrap();
            let others = Operands::of(indices.spec(), others.to_vec()).unwrap();
            let wanted = reference(&indices, &others).mapv(|index| table[index as usize]);

            let space = ScheduleSpace::new(&workload, &target);
            let candidate = space.sample(choices);
            let program = candidate.lower().unwrap();
            let context = format!("seed {seed}: {workload} on {target}\n{}\n{program}", candidate.config());
            verify(&program, &target).unwrap_or_else(|problem| panic!("{context}\n{problem}"));
            assert_eq!(interpret(&program, &operands).unwrap(), wanted, "{context}");
            let code = assemble(&program, &target).unwrap_or_else(|error| panic!("{context}\n{error}"));
            if runs {
                assert_eq!(machine::run(&program, &code, &operands), wanted, "{context}");
            }
        });
    }
}
