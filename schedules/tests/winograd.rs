//! The Winograd sketch: random workloads that it applies to, every tile size, and both ways of
//! transforming the input.

use autotune_ir::interp::interpret;
use autotune_ir::program::{Buffer, BufferId, Loop, Role};
use autotune_ir::{CpuTarget, Isa, Problem, Program, Target, verify};
use autotune_schedules::{Config, KnobValue, ScheduleSpace, lower, tolerance, winograd};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::common::cases::for_cases_in_parallel;
use crate::common::nests::{for_each_loop, for_each_store};
use crate::common::or_long;
use crate::common::spaces::{random_odd_winograd, sample_winograd};
use crate::common::workloads::random_winograd;

fn target(isa: Isa, threads: usize) -> Target {
    Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(threads) })
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Neon] {
        for_cases_in_parallel(or_long([9, 70]), |seed, choices| {
            let target = target(isa, 1 + seed as usize % 2);
            let block = target.cpu().unwrap().lanes().max(8);
            let workload = match seed % 7 < 3 {
                true => random_winograd(choices, block),
                false => random_odd_winograd(choices, &target),
            };
            let space = ScheduleSpace::new(&workload, &target);
            let operands = Operands::random(workload.spec(), seed);
            let expected = reference(&workload, &operands);

            for _ in 0..3 {
                let config = sample_winograd(&space, choices);
                let context = format!("seed {seed}, {isa}: {workload}\n{config}");
                assert!(space.contains(&config), "{context}");
                assert!(!ScheduleSpace::new(&workload.with_exact(true), &target).contains(&config), "{context}");
                let json = serde_json::to_string(&config).unwrap();
                assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config, "{context}");

                let program = lower(&workload, &target, &config).unwrap();
                verify(&program, &target).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
                let output = interpret(&program, &operands).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
                let error = max_rel_error(&output, &expected);
                assert!(error <= tolerance(&workload, &config), "{context}\nerror {error}\n{program}");
            }
        });
    }
}

fn small() -> (Workload, Target, Config) {
    let target = target(Isa::Avx2, 1);
    let workload: Workload = "conv2d:c=16,h=9,w=7,o=16,k=3,p=1,bias".parse().unwrap();
    let config = sample_winograd(&ScheduleSpace::new(&workload, &target), &mut ChaCha8Rng::seed_from_u64(0));
    (workload, target, config)
}

/// Returns the problem that the verifier finds after `change`.
fn problem(change: impl FnOnce(&mut Program)) -> Problem {
    let (workload, target, config) = small();
    let mut program = lower(&workload, &target, &config).unwrap();
    assert_eq!(verify(&program, &target), Ok(()));
    change(&mut program);
    verify(&program, &target).unwrap_err().problem
}

#[test]
fn configs_from_before_there_were_prefetches_have_none() {
    let (workload, target, mut config) = small();
    let mut lowered = |prefetch: Option<&str>| {
        config.knobs.remove("prefetch");
        config.knobs.extend(prefetch.map(|bytes| ("prefetch".to_string(), KnobValue::Choice(bytes.into()))));
        lower(&workload, &target, &config)
    };
    let none = lowered(None).unwrap();
    assert!(!none.to_string().contains("prefetch"));
    assert_eq!(lowered(Some("0")).unwrap(), none);
    assert!(lowered(Some("4096")).unwrap().to_string().contains(" + 1024 to L2\n"));
    for malformed in ["", "-4096", "4098", "2097152"] {
        assert!(lowered(Some(malformed)).is_err(), "{malformed}");
    }
}

#[test]
fn sizes_of_tiles_that_there_are_no_matrices_for_are_refused() {
    let (workload, target, mut config) = small();
    for m in ["0", "1", "5", "7", "16", "18446744073709551615", "-2", ""] {
        config.knobs.insert(winograd::TILE_SIZE_KNOB.into(), KnobValue::Choice(m.into()));
        assert!(lower(&workload, &target, &config).is_err(), "{m}");
        assert_eq!(config.work(&workload).flops.max(workload.flops()), workload.flops(), "{m}");
        assert!(tolerance(&workload, &config) <= 4e-4, "{m}");
    }
}

#[test]
fn products_left_out_or_done_twice_are_found() {
    let with_xi = |change: &dyn Fn(&mut Loop)| {
        problem(|program| {
            let xi = program.vars.iter().rposition(|v| v == "xi.1").unwrap();
            let body = &mut program.stages.last_mut().unwrap().body;
            for_each_loop(body, &mut |l| {
                if l.var.0 as usize == xi {
                    change(l);
                }
            });
        })
    };
    assert!(matches!(with_xi(&|l| l.extent -= 1), Problem::Incomplete { .. }));
    assert!(matches!(with_xi(&|l| l.extent += 1), Problem::OutOfBounds { .. }));
    assert!(matches!(with_xi(&|l| l.body.extend(l.body.clone())), Problem::Overlap { .. }));
}

#[test]
fn axes_of_another_size_of_tiles_are_found() {
    for axis in 0..5 {
        assert!(matches!(problem(|program| program.axes[axis].extent += 1), Problem::Interface(_)), "axis {axis}");
    }
    let matmul = problem(|program| program.spec = "matmul:m=9,n=16,k=16".parse::<Workload>().unwrap().spec().clone());
    assert!(matches!(matmul, Problem::Interface(_)));
}

#[test]
fn tiles_without_outputs_are_found() {
    let lost = problem(|program| {
        let output = program.find(Role::Output).unwrap();
        let elsewhere = program.buffers.len() as u32;
        let copy = Buffer { name: "elsewhere".into(), role: Role::Packed, ..program.buffer(output).clone() };
        program.buffers.push(copy);
        let mut first = true;
        for_each_store(&mut program.stages.last_mut().unwrap().body, &mut |store| {
            if store.dst.buffer == output && std::mem::take(&mut first) {
                store.dst.buffer = BufferId(elsewhere);
            }
        });
    });
    assert!(matches!(lost, Problem::OutputGap { .. }), "{lost:?}");
}

#[test]
fn workloads_that_the_sketch_is_not_for_have_none() {
    let (_, target, config) = small();
    for text in [
        "conv2d:c=16,h=9,w=7,o=16,k=3,sh=2,sw=1,p=1",
        "conv2d:c=16,h=9,w=9,o=16,k=3,s=3,p=1",
        "conv2d:c=16,h=9,w=9,o=16,k=2,s=2",
        "conv2d:c=16,h=9,w=9,o=16,k=2,s=3",
        "conv2d:c=16,h=9,w=9,o=16,k=1,p=0",
        "conv2d:c=16,h=9,w=9,o=16,kh=3,kw=5,p=1",
        "conv2d:c=16,h=20,w=20,o=16,k=9,p=4",
        "conv2d:c=16,h=2,w=1,o=16,k=3,s=2,p=1",
        "conv2d:c=16,h=9,w=7,o=16,k=5,p=5",
        "conv2d:c=16,h=9,w=7,o=16,k=3,d=2,p=1",
        "conv2d:c=16,h=9,w=7,o=16,k=3,p=1,g=2",
        "conv2d:c=16,h=9,w=7,o=1,k=3,p=1",
        "conv2d:c=16,h=9,w=7,o=16,k=3,p=3",
        "conv2d:c=16,h=9,w=7,o=16,kh=3,kw=1",
        "conv2d:c=16,h=1,w=1,o=16,k=3,p=1",
        "matmul:m=9,n=16,k=16",
    ] {
        let workload: Workload = text.parse().unwrap();
        assert_eq!(ScheduleSpace::new(&workload, &target).sketches().len(), 1, "{text}");
        assert!(lower(&workload, &target, &config).is_err(), "{text}");
    }
}
