//! The sketches for tensor cores on random workloads and configs: the verifier accepts the lowered
//! programs, the interpreter agrees with the reference and finds no race. Both find planted faults.

use std::cell::Cell;

use autotune_ir::affine::{Affine, VarId};
use autotune_ir::instruction::BOX_COPY;
use autotune_ir::program::{Node, WarpRole};
use autotune_ir::{DType, InterpError, Problem, Target, interpret, verify};
use autotune_schedules::gpu::{MMA, WGMMA};
use autotune_schedules::{Candidate, Config, LowerError, ScheduleSpace, lower, tolerance};
use autotune_workloads::{Matmul, Operands, Workload, max_rel_error, reference};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::cases::for_cases;
use crate::common::or_long;
use crate::common::pipelines::{broken, config, faults, group_config, small_target};
use crate::common::tiling;
use crate::common::workloads::random_workload;

const TYPES: [DType; 3] = [DType::F16, DType::Bf16, DType::Tf32];

/// Draws a workload of few products and a 16-bit type.
fn random_half<R: Rng>(rng: &mut R) -> Workload {
    loop {
        let workload = {
            let dtype = TYPES[rng.random_range(0..3)];
            random_workload(rng).with_dtype(dtype).unwrap()
        };
        if workload.flops() < 2e5 {
            return workload;
        }
    }
}

/// Draws a config whose blocks are small enough for the interpreter.
fn sample<R: Rng>(space: &ScheduleSpace, rng: &mut R) -> Option<Candidate> {
    let gpu = space.target().gpu().unwrap();
    let is_small = |config: &Config| {
        let tiling = tiling(space.workload(), gpu, config).unwrap();
        let block: usize = tiling.spatial.iter().chain(&tiling.reduce).map(|tile| tile.1).product();
        tiling.blocks() * tiling.chunks() * block < 600_000
    };
    (0..2000).map(|_| space.sample(rng)).find(|config| config.sketch == MMA.name && is_small(config))
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    let target = Target::detect("cuda:sm_80", None).unwrap();
    let checked = Cell::new(0);
    for_cases(or_long([20, 60]), |seed, choices| {
        let workload = random_half(choices);
        let space = ScheduleSpace::new(&workload, &target);
        let default = space.default_config();
        // Weights of a convolution that are not constant cannot be packed.
        let is_packed =
            workload.sizes::<Matmul>().is_some() || workload.spec().operands().nth(1).unwrap().is_constant();

        let is_offered = space.sketches().iter().any(|sketch| sketch.name() == MMA.name);
        if space.sketches().is_empty() {
            assert!(!is_packed && workload.dtype() == DType::Tf32, "{workload}");
            return;
        }
        assert!((is_offered || !is_packed) && space.contains(&default), "{workload} {default}");
        verify(&lower(&workload, &target, &default).unwrap(), &target).unwrap();

        let Some(config) = sample(&space, choices) else { return };
        let context = format!("{workload}\n{config}");
        let program = lower(&workload, &target, &config).unwrap();
        verify(&program, &target).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
        let operands = Operands::random(workload.spec(), seed);
        let output = interpret(&program, &operands).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
        let error = max_rel_error(&output, &reference(&workload, &operands));
        assert!(error <= tolerance(&workload, &config), "{context}\nerror {error}\n{program}");
        checked.set(checked.get() + 1);
    });
    assert!(checked.get() > or_long([10, 30]), "{checked:?}");
}

#[test]
fn planted_faults_are_found() {
    let target = small_target();
    let small: Workload = "matmul:m=40,n=34,k=72,dtype=f16,bias".parse().unwrap();
    let large: Workload = "matmul:m=70,n=16,k=392,dtype=bf16".parse().unwrap();
    let tiles: Workload = "matmul:m=250,n=64,k=136,dtype=f16,bias".parse().unwrap();
    let knobs = |weights: &str| format!("tile.m=32x16 tile.n=32x16 tile.k=16 stages=3 weights={weights}");
    for (workload, config) in [
        (small.clone(), config(&small, &knobs("packed"))),
        (small.clone(), config(&small, &knobs("inplace"))),
        (large.clone(), group_config(&large, "tile.m=64x64 tile.n=16x16 stages=4")),
        (large.clone(), group_config(&large, "tile.m=64x64 tile.n=16x16 stages=3 producer=group")),
        (tiles.clone(), group_config(&tiles, "tile.m=128x64 tile.n=16x16 stages=2 producer=group grid=persistent")),
    ] {
        let program = lower(&workload, &target, &config).unwrap();
        let operands = Operands::random(workload.spec(), 1);
        let expected = reference(&workload, &operands);
        for (what, broken) in faults(&program) {
            let proof = verify(&broken, &target).unwrap_err();
            match proof.problem {
                Problem::Conflict { .. } => {}
                Problem::Nesting(_) if what == "no release" => {}
                _ => panic!("{what}: {proof}"),
            }
            match interpret(&broken, &operands) {
                // Without a release or a wait, producer and consumers deadlock.
                Err(InterpError::Program(error)) => match error.problem {
                    Problem::Nesting(_) if ["no release", "no wait for a group"].contains(&what) => {}
                    problem => assert!(matches!(problem, Problem::Conflict { .. }), "{what}: {problem}"),
                },
                Err(other) => panic!("{what}: {other}"),
                // Instructions of warp groups still read the slot after they are issued, which the
                // interpreter does not model.
                Ok(_) if ["a busy slot", "an early release"].contains(&what) && config.sketch == WGMMA.name => {}
                Ok(output) => assert!(max_rel_error(&output, &expected) > tolerance(&workload, &config), "{what}"),
            }
        }

        // The instructions do not support sums of other lanes or other fragments of the operands.
        for dim in 0..3 {
            let broken = broken(&program, |list| {
                for node in list.iter_mut() {
                    let Node::Call { instruction, body } = node else { continue };
                    if instruction.threads().is_none() {
                        continue;
                    }
                    crate::common::nests::for_each_store(body, &mut |store| match dim {
                        0 => store.dst.index.swap(2, 3),
                        1 => crate::common::pipelines::for_each_factor(store, &mut |access| access.index.swap(1, 2)),
                        _ => crate::common::pipelines::for_each_factor(store, &mut |access| {
                            access.index[1].constant += 1
                        }),
                    });
                }
            });
            let problem = verify(&broken, &target).unwrap_err().problem;
            assert!(!matches!(problem, Problem::Conflict { .. }), "{dim}: {problem}");
        }
    }
}

#[test]
fn sides_that_skip_different_tiles_are_found() {
    let workload: Workload = "matmul:m=250,n=64,k=136,dtype=f16,bias".parse().unwrap();
    let config = group_config(&workload, "tile.m=128x64 tile.n=16x16 stages=2 producer=group grid=persistent");
    let program = lower(&workload, &small_target(), &config).unwrap();
    let broken = broken(&program, |list| {
        for node in list.iter_mut() {
            let Node::Specialised { role: WarpRole::Consumers, body } = node else { continue };
            crate::common::pipelines::for_each_number(body, &mut |number| {
                if number.terms.len() == 2 && number.terms.iter().any(|term| term.1 == 3) {
                    number.constant += 1;
                }
            });
        }
    });
    let problem = verify(&broken, &small_target()).unwrap_err().problem;
    assert!(matches!(problem, Problem::Nesting(_)), "{problem}");
}

#[test]
fn copies_that_no_instruction_does_are_found() {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let workload: Workload = "matmul:m=70,n=16,k=392,dtype=bf16".parse().unwrap();
    let config = group_config(&workload, "tile.m=64x64 tile.n=16x16 stages=4 raster=1");
    let program = lower(&workload, &target, &config).unwrap();
    let lane = program.vars.iter().rposition(|name| name == "column.t").unwrap();
    for fault in 0..4 {
        let broken = broken(&program, |list| {
            for node in list.iter_mut() {
                let Node::Call { instruction, body } = node else { continue };
                if **instruction != BOX_COPY {
                    continue;
                }
                crate::common::pipelines::for_each_number(body, &mut |number| number.constant += i64::from(fault == 0));
                crate::common::nests::for_each_store(body, &mut |store| match fault {
                    // The faults are one row less, another box per lane, and more than the slot.
                    1 => store.dst.index[0] = store.dst.index[0].clone() + Affine::var(VarId(lane as u32)),
                    2 => store.dst.index.swap(1, 2),
                    3 => store.dst.index[1] = store.dst.index[1].clone() + 8,
                    _ => {}
                });
            }
        });
        assert!(verify(&broken, &target).is_err(), "fault {fault} is proven");
    }
}

#[test]
fn programs_of_warp_groups_are_proven_and_agree_with_the_reference() {
    let target = small_target();
    for (text, knobs) in [
        ("matmul:m=70,n=40,k=200,dtype=f16,bias,add,act=relu", "tile.m=128x64 tile.n=16x16 stages=4 raster=1"),
        ("matmul:m=130,n=16,k=256,dtype=bf16", "tile.m=128x128 tile.n=16x16 stages=3 raster=1 split=2"),
        ("matmul:m=130,n=44,k=264,dtype=bf16,add", "tile.m=128x64 tile.n=32x32 stages=2 producer=group"),
        ("matmul:m=64,n=96,k=512,dtype=f16,bias", "tile.m=64x64 tile.n=96x96 stages=3 producer=group split=2"),
        (
            "matmul:m=250,n=64,k=136,dtype=f16,bias",
            "tile.m=128x64 tile.n=16x16 stages=2 producer=group grid=persistent",
        ),
        (
            "matmul:m=384,n=90,k=192,dtype=bf16,add",
            "tile.m=128x64 tile.n=32x32 stages=3 raster=3 producer=group grid=persistent",
        ),
    ] {
        let workload: Workload = text.parse().unwrap();
        let config = group_config(&workload, knobs);
        let program = lower(&workload, &target, &config).unwrap();
        verify(&program, &target).unwrap();
        let operands = Operands::random(workload.spec(), 5);
        let error = max_rel_error(&interpret(&program, &operands).unwrap(), &reference(&workload, &operands));
        assert!(error <= tolerance(&workload, &config), "{workload} {config}: {error}");
    }

    let target = Target::detect("cuda:sm_90", None).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    for text in ["matmul:m=2048,n=1000,k=1024,dtype=f16", "matmul:m=65,n=17,k=40,dtype=bf16,bias"] {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let mut groups = 0;
        for i in 0..40 {
            let config = if i == 0 { space.default_config() } else { space.sample(&mut rng).config().clone() };
            assert!(space.contains(&config) && (i > 0 || config.sketch == WGMMA.name), "{config}");
            if config.sketch == WGMMA.name {
                verify(&lower(&workload, &target, &config).unwrap(), &target)
                    .unwrap_or_else(|e| panic!("{config}: {e}"));
                groups += 1;
            }
        }
        assert!(groups > 5);
    }
}

#[test]
fn types_that_a_target_does_not_have_are_refused() {
    let of_cpu = [DType::F16, DType::Tf32];
    for (word, dtypes) in [("cpu", &of_cpu[..]), ("opencl", &TYPES), ("cuda:sm_75", &[DType::Bf16, DType::Tf32])] {
        let target = Target::detect(word, None).unwrap();
        for &dtype in dtypes {
            let workload = "matmul:m=40,n=36,k=24".parse::<Workload>().unwrap().with_dtype(dtype).unwrap();
            let space = ScheduleSpace::new(&workload, &target);
            let config = space.default_config();
            assert!(!target.multiplies(dtype) && !space.contains(&config), "{word}: {dtype:?}");
            let refused = lower(&workload, &target, &config).unwrap_err();
            assert!(matches!(refused, LowerError::DType { .. }), "{word}: {refused}");
        }
    }
}
