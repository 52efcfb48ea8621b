//! Conversions to 8-bit integers, and look-ups in tables of them, on simulated instruction sets,
//! some of which pack four vectors.

use autotune_ir::{CpuTarget, DType, Isa, Program, Target, interpret};
use autotune_schedules::{ScheduleSpace, lower};
use autotune_workloads::{Operands, Workload};
use rand::{Rng, RngExt};
use std::ops::Range;

use super::random_programs::{cases, run};
use super::simulator::{Recorded, SETS, SimulatedSet, StepRecorder};
use crate::asm::generate;

/// Numbers beyond the range of the integers, halfway between two of them, and without order.
const SPECIAL: [f32; 10] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e9, -3e9, 0.5, -0.5, 254.5, -128.5, 127.5];

/// Returns a random program of a workload, with its code for a set and a description.
fn programmed(
    text: &str,
    (isa, set): (Isa, SimulatedSet),
    choices: &mut impl Rng,
) -> (Program, (Recorded, Vec<usize>), String) {
    let (workload, target): (Workload, _) =
        (text.parse().unwrap(), Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) }));
    let config = ScheduleSpace::new(&workload, &target).sample(choices).config().clone();
    let program = lower(&workload, &target, &config).unwrap();
    let context = format!("{set:?}: {workload}\n{config}\n{program}");
    let code = generate(&program, StepRecorder::new(set)).unwrap_or_else(|e| panic!("{e}: {context}"));
    (program, code, context)
}

/// Fills numbers from a range, some of which are special.
fn fill<'v>(values: impl IntoIterator<Item = &'v mut f32>, range: Range<f32>, choices: &mut impl Rng) {
    for value in values {
        let is_special = choices.random_ratio(1, 8);
        let special = SPECIAL[choices.random_range(0..SPECIAL.len())];
        *value = if is_special { special } else { choices.random_range(range.clone()) };
    }
}

#[test]
fn conversions_to_bytes_agree_with_the_interpreter_bit_for_bit() {
    for (isa, set) in SETS {
        cases::for_cases(40, |seed, choices| {
            let [m, n] = [choices.random_range(1..5), choices.random_range(1..160)];
            let (out, least, range) =
                [("u8", 0.0, -40.0..300.0), ("i8", -128.0, -160.0..160.0)][seed as usize % 2].clone();
            let after = ["", ",act=relu", ",bias", ",channels=column,scale,bias"][seed as usize / 2 % 4];
            let text = format!("pointwise:m={m},n={n},op=copy,data=f32,out={out}{after}");
            let (program, (code, entries), context) = programmed(&text, (isa, set), choices);

            let mut operands = Operands::random(&program.spec, seed);
            fill(operands.iter_mut().next().into_iter().flatten(), range, choices);
            let output = run(&program, (&code, &entries), &operands);
            let mut expected = interpret(&program, &operands).unwrap();
            // The interpreter keeps NaN, code converts it to the least integer.
            expected.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = least);
            assert_eq!(output, expected, "{context}");
        });
    }
}

#[test]
fn look_ups_of_bytes_agree_with_the_table() {
    for (isa, set) in SETS {
        cases::for_cases(40, |seed, choices| {
            let [m, n] = [choices.random_range(1..5), choices.random_range(1..160)];
            let data = [DType::U8, DType::F32, DType::I8][seed as usize % 3];
            let out = [DType::U8, DType::I8][seed as usize / 3 % 2];
            let text = format!("pointwise:m={m},n={n},op=copy,data={data},out={out},table");
            let (program, (code, entries), context) = programmed(&text, (isa, set), choices);

            let mut operands = Operands::random(&program.spec, seed);
            let [least, most] = out.range().map(|end| end as f32);
            let mut tensors = operands.iter_mut();
            let (input, table) = (tensors.next().unwrap(), tensors.next().unwrap());
            table.iter_mut().for_each(|element| *element = choices.random_range(least..=most).floor());
            if data == DType::F32 {
                fill(&mut *input, -40.0..300.0, choices);
            }
            let wanted = input.map(|x| table[usize::from(x.round_ties_even() as u8)]);

            let output = run(&program, (&code, &entries), &operands);
            assert_eq!(output, wanted.into_shape_with_order(output.shape()).unwrap(), "{context}");
            assert_eq!(interpret(&program, &operands).unwrap(), output, "{context}");
        });
    }
}
