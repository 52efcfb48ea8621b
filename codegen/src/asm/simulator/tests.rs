//! Random programs on instruction sets of other sizes than x86 has.

#![allow(clippy::unwrap_used)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use autotune_ir::layout::{from_layout, to_layout};
use autotune_ir::plan::PlanBuffer;
use autotune_ir::program::{Role, When};
use autotune_ir::{CpuTarget, Isa, KernelPlan, Program, Target, interpret};
use autotune_schedules::{Operands, ScheduleSpace, lower, max_rel_error, tolerance};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{Machine, Recorded, Recorder, Set};
use crate::asm::{AssembleError, generate};

#[path = "../../../../schedules/tests/common/workloads.rs"]
#[allow(dead_code, unreachable_pub)]
mod workloads;

/// What each set is made for, and the programs that it runs are made for.
const SETS: [(Isa, Set); 5] = [
    (Isa::Neon, Set { lanes: 4, registers: 32, integers: 20, operands: [false, false], transposes: None }),
    (Isa::Neon, Set { lanes: 4, registers: 27, integers: 11, operands: [false, true], transposes: Some(4) }),
    (Isa::Generic, Set { lanes: 4, registers: 16, integers: 32, operands: [true, false], transposes: Some(4) }),
    (Isa::Avx2, Set { lanes: 8, registers: 17, integers: 13, operands: [true, true], transposes: Some(8) }),
    (Isa::Avx512, Set { lanes: 8, registers: 32, integers: 15, operands: [false, false], transposes: Some(5) }),
];

/// What a program's output is on a simulated machine, its stages run in parts of their tasks.
fn run(program: &Program, (code, entries): (&Recorded, &[usize]), operands: &Operands) -> ndarray::ArrayD<f32> {
    let plan = KernelPlan::of(program);
    let content = |buffer: &PlanBuffer| {
        let undefined = || vec![f32::NAN; buffer.shape.iter().product()];
        operands.find(buffer.role).map_or_else(undefined, |tensor| to_layout(tensor, buffer.layout).unwrap())
    };
    let mut memory: Vec<Vec<f32>> = plan.buffers.iter().map(content).collect();
    memory.push(vec![f32::NAN; plan.local_bytes / 4]);

    let mut machine = Machine::new(code, memory);
    for when in [When::AheadOfTime, When::EveryRun] {
        for (stage, &entry) in plan.stages.iter().zip(entries).filter(|(stage, _)| stage.when == when) {
            let (tasks, split) = (stage.tasks as i64, stage.tasks as i64 / 3);
            [[split, tasks], [split, split], [0, split]].iter().for_each(|&tasks| machine.run(code, entry, tasks));
        }
    }
    let output = program.find(Role::Output).unwrap();
    let layout = program.buffer(output).layout;
    from_layout(&machine.memory[output.0 as usize], &program.spec.find(Role::Output).unwrap().shape, layout).unwrap()
}

#[test]
fn random_programs_agree_with_the_interpreter() {
    for (isa, set) in SETS {
        let (mut run_ones, mut too_large) = (0, 0);
        for seed in 0..48 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);

            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 2) });
            let (workload, panel) = match seed % 3 {
                0 => (workloads::random_winograd(&mut rng, target.cpu().unwrap().lanes()), None),
                1 => (workloads::random_workload(&mut rng), None),
                _ => {
                    let (workload, panel) = workloads::random_panel(&target, &mut rng);
                    (workload, Some(panel))
                }
            };
            if workload.flops() > 5e5 {
                continue;
            }

            let space = ScheduleSpace::new(&workload, &target);
            for config in [space.default_config(), space.sample(&mut rng)].into_iter().chain(panel) {
                let program = lower(&workload, &target, &config).unwrap();
                let context = format!("seed {seed}, {set:?}: {workload}\n{config}");
                let (code, entries) = match generate(&program, Recorder::new(set)) {
                    Ok(assembled) => assembled,
                    Err(failure) => {
                        let of_registers = AssembleError::RegisterTile { needed: 0, available: 0 };
                        let of_pointers = AssembleError::Pointers { needed: 0, available: 0 };
                        let same = |one| std::mem::discriminant(&one) == std::mem::discriminant(&*failure);
                        assert!(same(of_registers) || same(of_pointers), "{failure}, {context}");
                        too_large += 1;
                        continue;
                    }
                };

                let operands = Operands::random(&program.spec, seed);
                let output = catch_unwind(AssertUnwindSafe(|| run(&program, (&code, &entries), &operands)));
                let output = output.unwrap_or_else(|_| panic!("{context}\n{program}"));
                let error = max_rel_error(&output, &interpret(&program, &operands).unwrap());
                assert!(error <= tolerance(&workload, &config), "{context}\nerror {error}\n{program}");
                run_ones += 1;
            }
        }
        assert!(run_ones > 60 && run_ones > 4 * too_large, "{set:?}: {run_ones} programs, {too_large} too large");
        eprintln!("{set:?}: {run_ones} programs, {too_large} too large");
    }
}
