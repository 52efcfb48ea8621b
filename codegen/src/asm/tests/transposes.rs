//! Transposes of bytes on simulated instruction sets.

use autotune_ir::{CpuTarget, Target, interpret};
use autotune_schedules::{ScheduleSpace, lower};
use autotune_workloads::{Operands, Workload};
use rand::RngExt;

use super::random_programs::{cases, run};
use super::simulator::{SETS, StepRecorder};
use crate::asm::generate;

#[test]
fn transposes_of_bytes_agree_with_the_interpreter() {
    for (isa, set) in SETS {
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) });
        cases::for_cases(40, |seed, choices| {
            let [m, n] = [choices.random_range(1..40), choices.random_range(1..40)];
            let dtype = ["u8", "i8"][seed as usize % 2];
            let workload: Workload = format!("transpose:b=2,m={m},n={n},dtype={dtype}").parse().unwrap();
            let space = ScheduleSpace::new(&workload, &target);
            let (config, other) = (space.default_config(), space.sample(choices).config().clone());
            // Vectors along another axis fill words, at addresses that the simulator refuses.
            let other = (other.knobs.get("vector") == config.knobs.get("vector")).then_some(other);
            for config in other.into_iter().chain([config]) {
                let program = lower(&workload, &target, &config).unwrap();
                let context = format!("{set:?}: {workload}\n{config}\n{program}");
                let (code, entries) =
                    generate(&program, StepRecorder::new(set)).unwrap_or_else(|e| panic!("{e}: {context}"));
                let operands = Operands::random(&program.spec, seed);
                let output = run(&program, (&code, &entries), &operands);
                assert_eq!(output, interpret(&program, &operands).unwrap(), "{context}");
            }
        });
    }
}
