//! The Winograd sketch: random workloads that it applies to, every size of tiles, both ways of transforming the input.

#![allow(clippy::unwrap_used)]

mod common;

use autotune_schedules::interp::interpret;
use autotune_schedules::verify::verify;
use autotune_schedules::workload::{Activation, Epilogue};
use autotune_schedules::{
    Config, Conv2d, CpuTarget, Isa, Operands, ScheduleSpace, Target, Workload, lower, max_rel_error, reference,
    tolerance, winograd,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A workload that the sketch applies to on vectors of `block` lanes.
fn random_workload<R: Rng>(rng: &mut R, block: usize) -> Workload {
    let mut pick = |values: &[usize]| values[rng.random_range(0..values.len())];
    let conv = Conv2d {
        n: pick(&[1, 1, 1, 2]),
        c: block * pick(&[1, 1, 2, 3]),
        h: pick(&[1, 2, 3, 5, 6, 7, 8, 11, 13, 14, 17]),
        w: pick(&[2, 3, 4, 5, 7, 9, 10, 12, 13, 15]),
        o: block * pick(&[1, 2, 3, 5]),
        kh: 3,
        kw: 3,
        stride: [1, 1],
        pad: [pick(&[1, 1, 2]), pick(&[0, 1, 1, 2])],
        dilation: [1, 1],
        groups: 1,
    };
    let epilogue = Epilogue {
        bias: rng.random_bool(0.5),
        residual: rng.random_bool(0.3),
        activation: if rng.random_bool(0.5) { Activation::Relu } else { Activation::None },
    };
    match Workload::conv2d(conv) {
        Ok(workload) => workload.with_epilogue(epilogue),
        Err(_) => random_workload(rng, block),
    }
}

fn target(isa: Isa, threads: usize) -> Target {
    Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(threads) })
}

/// A config of the sketch, if the workload has one.
fn sample(space: &ScheduleSpace, rng: &mut ChaCha8Rng) -> Option<Config> {
    (0..64).map(|_| space.sample(rng)).find(|config| config.sketch == winograd::SKETCH)
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    let mut drawn = 0;
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Neon] {
        for seed in 0..40 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let target = target(isa, 1 + seed as usize % 2);
            let workload = random_workload(&mut rng, target.cpu().lanes().max(8));
            let space = ScheduleSpace::new(&workload, &target);
            let operands = Operands::random(&workload, seed);
            let expected = reference(&workload, &operands);
            for _ in 0..3 {
                let Some(config) = sample(&space, &mut rng) else { continue };
                let context = format!("seed {seed}, {isa}: {workload}\n{config}");
                assert!(space.contains(&config), "{context}");
                assert!(!ScheduleSpace::exact(&workload, &target).contains(&config), "{context}");
                let program = lower(&workload, &target, &config).unwrap();
                verify(&program, &target).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
                let output = interpret(&program, &operands).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
                let error = max_rel_error(&output, &expected);
                assert!(error <= tolerance(&config), "{context}\nerror {error}\n{program}");
                drawn += 1;
            }
        }
    }
    assert!(drawn > 300, "{drawn} configs");
}
