//! Random workloads × random configs: the verifier accepts what lowering makes, and the interpreter agrees with the reference.

#![allow(clippy::unwrap_used)]

mod common;

use autotune_schedules::interp::interpret;
use autotune_schedules::verify::verify;
use autotune_schedules::{
    Config, CpuTarget, Operands, ScheduleSpace, Target, Workload, lower, max_rel_error, reference, tolerance,
};
use common::workloads::random_workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

fn check(workload: &Workload, target: &Target, seed: u64, configs: usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let space = ScheduleSpace::new(workload, target);
    let operands = Operands::random(workload, seed);
    let expected = reference(workload, &operands);
    for i in 0..configs {
        let config = if i == 0 { space.default_config() } else { space.sample(&mut rng) };
        let context = format!("seed {seed}: {workload}\n{config}");
        assert!(space.contains(&config), "{context}");
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config, "{context}");
        let program = lower(workload, target, &config).unwrap();
        verify(&program, target).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
        let output = interpret(&program, &operands).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
        let error = max_rel_error(&output, &expected);
        assert!(error <= tolerance(&config), "{context}\nerror {error}\n{program}");
    }
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for (lanes, threads) in [("avx2", 1), ("avx512", 2)] {
        let mut cpu = CpuTarget::generic_avx2(threads);
        if lanes == "avx512" {
            cpu.isa = autotune_schedules::Isa::Avx512;
        }
        for seed in 0..60 {
            let workload = random_workload(&mut ChaCha8Rng::seed_from_u64(seed));
            check(&workload, &Target::Cpu(cpu.clone()), seed, 4);
        }
    }
}

#[test]
fn neighbours_and_children_stay_in_the_space() {
    let target = Target::Cpu(CpuTarget::generic_avx2(2));
    for seed in 0..20 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = random_workload(&mut rng);
        let space = ScheduleSpace::new(&workload, &target);
        let (a, b) = (space.sample(&mut rng), space.sample(&mut rng));
        for config in [space.neighbor(&a, &mut rng), space.crossover(&a, &b, &mut rng)] {
            assert!(space.contains(&config), "seed {seed}: {workload}\n{config}");
        }
    }
}

#[test]
fn iteration_lists_valid_configs_once() {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    let workload: Workload = "matmul:m=2,n=3,k=2".parse().unwrap();
    let space = ScheduleSpace::new(&workload, &target);
    let mut configs: Vec<_> = space.iter().collect();
    let count = configs.len();
    assert!(count > 10 && count as u128 <= space.len());
    assert!(configs.iter().all(|c| space.contains(c)));
    configs.sort();
    configs.dedup();
    assert_eq!(configs.len(), count);
}

#[test]
fn groups_of_several_inputs_and_one_output_lower() {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    check(&"conv2d:c=64,h=5,w=6,o=8,k=3,p=1,g=8,bias".parse().unwrap(), &target, 0, 20);
    check(&"conv2d:c=16,h=5,w=6,o=16,k=3,p=1,g=16,bias".parse().unwrap(), &target, 0, 20);
}
