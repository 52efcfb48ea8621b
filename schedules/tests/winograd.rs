//! The Winograd sketch: random workloads that it applies to, every size of tiles, both ways of transforming the input.

#![allow(clippy::unwrap_used)]

mod common;

use autotune_schedules::interp::interpret;
use autotune_schedules::verify::verify;
use autotune_schedules::{
    Config, CpuTarget, Isa, Operands, ScheduleSpace, Target, Workload, lower, max_rel_error, reference, tolerance,
};
use common::workloads::{random_winograd, sample_winograd};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

fn target(isa: Isa, threads: usize) -> Target {
    Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(threads) })
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Neon] {
        (0..40u64).into_par_iter().for_each(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let target = target(isa, 1 + seed as usize % 2);
            let workload = random_winograd(&mut rng, target.cpu().unwrap().lanes().max(8));
            let space = ScheduleSpace::new(&workload, &target);
            let operands = Operands::random(&workload, seed);
            let expected = reference(&workload, &operands);
            for _ in 0..3 {
                let config = sample_winograd(&space, &mut rng);
                let context = format!("seed {seed}, {isa}: {workload}\n{config}");
                assert!(space.contains(&config), "{context}");
                assert!(
                    !ScheduleSpace::new(&Workload { exact: true, ..workload }, &target).contains(&config),
                    "{context}"
                );
                let json = serde_json::to_string(&config).unwrap();
                assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config, "{context}");
                let program = lower(&workload, &target, &config).unwrap();
                verify(&program, &target).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
                let output = interpret(&program, &operands).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
                let error = max_rel_error(&output, &expected);
                assert!(error <= tolerance(&config), "{context}\nerror {error}\n{program}");
            }
        });
    }
}
