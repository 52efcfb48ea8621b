//! Conversions to 8-bit integers on simulated instruction sets, some of which pack four vectors.

use autotune_ir::{CpuTarget, Target, interpret};
use autotune_schedules::{ScheduleSpace, lower};
use autotune_workloads::{Operands, Workload};
use rand::RngExt;

use super::random_programs::{cases, run};
use super::simulator::{SETS, StepRecorder};
use crate::asm::generate;

/// Numbers beyond the range of the integers, halfway between two of them, and without order.
const SPECIAL: [f32; 10] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 3e9, -3e9, 0.5, -0.5, 254.5, -128.5, 127.5];

#[test]
fn conversions_to_bytes_agree_with_the_interpreter_bit_for_bit() {
    for (isa, set) in SETS {
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) });
        cases::for_cases(40, |seed, choices| {
            let [m, n] = [choices.random_range(1..5), choices.random_range(1..160)];
            let (out, least, range) =
                [("u8", 0.0, -40.0..300.0), ("i8", -128.0, -160.0..160.0)][seed as usize % 2].clone();
            let after = ["", ",act=relu", ",bias", ",channels=column,scale,bias"][seed as usize / 2 % 4];
            let text = format!("pointwise:m={m},n={n},op=copy,data=f32,out={out}{after}");
            let workload: Workload = text.parse().unwrap();
            let space = ScheduleSpace::new(&workload, &target);
            let config = space.sample(choices).config().clone();
            let program = lower(&workload, &target, &config).unwrap();
            let context = format!("{set:?}: {workload}\n{config}\n{program}");
            let (code, entries) =
                generate(&program, StepRecorder::new(set)).unwrap_or_else(|e| panic!("{e}: {context}"));

            let mut operands = Operands::random(&program.spec, seed);
            for value in operands.iter_mut().next().into_iter().flatten() {
                let is_special = choices.random_ratio(1, 8);
                let special = SPECIAL[choices.random_range(0..SPECIAL.len())];
                *value = if is_special { special } else { choices.random_range(range.clone()) };
            }
            let output = run(&program, (&code, &entries), &operands);
            let mut expected = interpret(&program, &operands).unwrap();
            // The interpreter keeps NaN, code converts it to the least integer.
            expected.iter_mut().filter(|value| value.is_nan()).for_each(|value| *value = least);
            assert_eq!(output, expected, "{context}");
        });
    }
}
