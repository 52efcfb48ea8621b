//! Random workloads and configs: the verifier accepts the lowered programs, and the interpreter
//! agrees with the reference. A failing case is simplified before it is reported.

use autotune_ir::program::{Node, parallel_prefix};
use autotune_ir::{CpuTarget, Isa, Target};
use autotune_schedules::{ScheduleSpace, lower};
use autotune_workloads::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::common::cases::for_cases;
use crate::common::or_long;
use crate::common::random_programs::{check, check_configs, check_drawn};
use crate::common::spaces::random_panel;
use crate::common::workloads::random_workload;

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for (lanes, threads) in [("avx2", 1), ("avx512", 2)] {
        let mut cpu = CpuTarget::generic_avx2(threads);
        if lanes == "avx512" {
            cpu.isa = autotune_ir::Isa::Avx512;
        }
        let target = Target::Cpu(cpu);
        for_cases(or_long([20, 60]), |seed, choices| {
            let workload = random_workload(choices);
            check_drawn(&workload, &target, seed, 4, choices);
        });
    }
}

#[test]
fn random_panels_are_proven_and_agree_with_the_reference() {
    for_cases(or_long([50, 100]), |seed, choices| {
        let isa = if seed % 2 == 0 { Isa::Avx2 } else { Isa::Avx512 };
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 3 / 2) });
        let (workload, config) = random_panel(&target, choices);
        check_configs(&ScheduleSpace::new(&workload, &target), seed, [config]);
    });
}

#[test]
fn defaults_can_be_proposed() {
    for isa in [Isa::Avx2, Isa::Avx512] {
        for_cases(or_long([100, 400]), |seed, choices| {
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 3) });
            let workload = random_workload(choices);
            let space = ScheduleSpace::new(&workload, &target);
            let config = space.default_config();
            assert!(space.contains(&config), "{isa}: {workload}\n{config}");
        });
    }
}

/// Returns the number of multiply-adds in a node.
fn products(node: &Node) -> f64 {
    let within = node.body().iter().map(products).sum::<f64>();
    match node {
        Node::Loop(l) => l.extent as f64 * within,
        Node::Store(store) => f64::from(store.iteration.is_some()),
        _ => within,
    }
}

#[test]
fn threads_get_equal_shares() {
    let target = Target::Cpu(CpuTarget::generic_avx2(2));
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for text in [
        "conv2d:c=16,h=14,w=14,o=64,k=1",
        "conv2d:c=16,h=14,w=15,o=24,k=1,s=2",
        "conv2d:n=3,c=32,h=9,w=9,o=32,k=1,g=32",
        "matmul:m=128,n=64,k=16",
        "matmul:b=5,m=19,n=33,k=16",
    ] {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        for i in 0..30 {
            let config = if i == 0 { space.default_config() } else { space.sample(&mut rng).config().clone() };
            let program = lower(&workload, &target, &config).unwrap();
            let mut tasks = Vec::new();
            for tree in &program.stages.last().unwrap().body {
                let count = parallel_prefix(tree).iter().map(|l| l.extent).product();
                tasks.extend(vec![products(tree) / count as f64; count]);
            }
            let first: f64 = tasks[..tasks.len() / 2].iter().sum();
            let share = first / tasks.iter().sum::<f64>();
            assert!((0.43..0.57).contains(&share), "{share} of {text}\n{config}");
        }
    }
}

#[test]
fn neighbours_and_children_stay_in_the_space() {
    let target = Target::Cpu(CpuTarget::generic_avx2(2));
    for_cases(20, |_, choices| {
        let workload = random_workload(choices);
        let space = ScheduleSpace::new(&workload, &target);
        let (a, b) = (space.sample(choices), space.sample(choices));
        for config in [space.neighbor(&a, choices), space.crossover(&a, &b, choices)] {
            assert!(space.contains(&config), "{workload}\n{config}");
        }
    });
}

#[test]
fn iteration_lists_valid_configs_once() {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    let workload: Workload = "matmul:m=2,n=3,k=2".parse().unwrap();
    let space = ScheduleSpace::new(&workload, &target);
    let mut configs: Vec<_> = space.iter().map(|candidate| candidate.config().clone()).collect();
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
