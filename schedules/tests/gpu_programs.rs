//! The sketches for GPUs on random workloads and configs: the verifier accepts the lowered
//! programs, the interpreter agrees with the reference, and it finds no race.

use std::collections::BTreeMap;

use autotune_ir::program::{BufferId, Digit, Node, Role, Scope, StoreMode};
use autotune_ir::{Affine, DType, InterpError, Launch, Problem, Program, ProgramError, Target, interpret, verify};
use autotune_schedules::gpu::{IMPLICIT_GEMM, MMA, TILED, WGMMA};
use autotune_schedules::{ScheduleSpace, lower, winograd};
use autotune_workloads::{Operands, Workload};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::common::cases::for_cases;
use crate::common::or_long;
use crate::common::random_programs::{check_configs, check_drawn};
use crate::common::spaces::{has_winograd, sample_sketch, sample_winograd};
use crate::common::tiling;
use crate::common::workloads::{random_winograd_of, random_workload};

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for word in ["cuda:sm_90", "opencl"] {
        let target = Target::detect(word, None).unwrap();
        for_cases(or_long([6, 40]), |seed, choices| check_drawn(&random_workload(choices), &target, seed, 3, choices));
    }
}

/// Convolutions over fused pixels: several images of any size, strides, padding, dilation and
/// groups.
#[test]
fn pixels_of_several_rows_and_images_are_tiled_as_one_axis() {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    for (seed, text) in [
        "conv2d:n=3,c=8,h=7,w=7,o=12,k=3,p=1,bias,add,act=relu",
        "conv2d:n=2,c=5,h=9,w=13,o=7,k=3,s=2,p=2,d=2",
        "conv2d:n=2,c=16,h=8,w=8,o=16,k=1,bias",
        "conv2d:n=1,c=12,h=11,w=6,o=18,kh=3,kw=1,ph=1,g=3",
        "conv2d:n=4,c=3,h=14,w=14,o=4,k=5,s=3,p=2",
        "conv2d:n=5,c=33,h=3,w=1,o=9,k=1,add",
        "conv2d:n=2,c=9,h=8,w=8,o=7,k=3,p=1,dtype=f16,bias,add",
        "conv2d:n=3,c=8,h=6,w=4,o=4,k=1,dtype=bf16,act=relu",
    ]
    .into_iter()
    .enumerate()
    {
        let seed = seed as u64;
        let space = ScheduleSpace::new(&text.parse().unwrap(), &target);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        check_configs(&space, seed, (0..12).map(|_| sample_sketch(&space, IMPLICIT_GEMM.name, &mut rng)));
    }

    for text in [
        "matmul:m=9,n=8,k=7",
        "conv2d:c=8,h=9,w=9,o=8,k=3,g=8",
        "conv2d:c=8,h=1,w=9,o=8,k=1",
        "conv2d:n=2,c=16,h=8,w=8,o=16,k=3,dtype=f16",
        "conv2d:n=2,c=2,h=8,w=8,o=2,k=3,dtype=tf32",
    ] {
        let space = ScheduleSpace::new(&text.parse().unwrap(), &target);
        assert!(space.sketches().iter().all(|sketch| sketch.name() != IMPLICIT_GEMM.name), "{text}");
    }
}

/// Odd numbers of channels and tiles, several images, and any padding.
#[test]
fn winograd_programs_are_proven_and_agree_with_the_reference() {
    let targets = ["cuda:sm_90", "opencl"].map(|word| Target::detect(word, None).unwrap());
    let (mut checked, mut seed) = (0, 0);
    while checked < 12 {
        seed += 1;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = random_winograd_of(&mut rng, 1 + seed as usize % 7, 3, 1);
        let space = ScheduleSpace::new(&workload, &targets[seed as usize % 2]);
        if has_winograd(&space) {
            check_configs(&space, seed, (0..3).map(|_| sample_winograd(&space, &mut rng)));
            checked += 1;
        }
        for other in [workload.with_exact(true), workload.with_dtype(DType::F16).unwrap()] {
            let other = ScheduleSpace::new(&other, &targets[0]);
            assert!(!has_winograd(&other));
        }
    }
}

/// The shared memory that sketches compute for their limits is that of the programs.
#[test]
fn shared_memory_is_that_of_the_program() {
    let mut met = BTreeMap::new();
    let sketches = [TILED.name, IMPLICIT_GEMM.name, winograd::SKETCH, MMA.name, WGMMA.name];
    for word in ["cuda:sm_90", "cuda:sm_80", "cuda:sm_70", "opencl"] {
        let target = Target::detect(word, None).unwrap();
        let gpu = target.gpu().unwrap();
        for seed in 0..60 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let plain = match seed % 4 {
                0 => random_winograd_of(&mut rng, 3, 3, 1),
                1 => "matmul:m=200,n=72,k=96".parse().unwrap(),
                _ => random_workload(&mut rng),
            };
            for dtype in DType::ALL.into_iter().filter(|&dtype| target.supports(dtype)) {
                let workload = plain.with_dtype(dtype).unwrap();
                let space = ScheduleSpace::new(&workload, &target);
                for config in (0..3).map(|_| space.sample(&mut rng)) {
                    let context = format!("seed {seed}: {workload} on {word}\n{config}");
                    // Contractions that no matrix instruction multiplies may be sums of rows.
                    if !sketches.contains(&&*config.sketch) {
                        continue;
                    }

                    let said = tiling(&workload, gpu, &config).unwrap().shared_bytes();
                    let program = lower(&workload, &target, &config).unwrap();
                    let ids = (0..program.buffers.len() as u32).map(BufferId);
                    let shared = ids.filter(|&id| program.buffer(id).scope == Scope::Shared);
                    let bytes_of = |id: BufferId| program.buffer(id).len() * program.dtype(id).bytes();
                    let bytes: Vec<usize> = shared.map(bytes_of).collect();
                    let (sum, slack) = (bytes.iter().sum::<usize>(), 16 * bytes.len());
                    assert!(!bytes.is_empty() && sum <= said, "{context}: {said} bytes, of buffers {bytes:?}");
                    // Box copies have mbarriers after the buffers.
                    assert!(said < sum + slack + 160, "{context}: {said} bytes, of buffers {bytes:?}");
                    let launches = program.stages.iter().filter_map(|stage| Launch::of(&program, stage));
                    assert_eq!(launches.map(|launch| launch.shared_bytes).max(), Some(said), "{context}");
                    *met.entry((config.sketch.clone(), dtype)).or_insert(0) += 1;
                }
            }
        }
    }

    for (sketch, dtypes) in [
        (TILED.name, &[DType::F32, DType::F16, DType::Bf16][..]),
        (IMPLICIT_GEMM.name, &[DType::F32, DType::F16, DType::Bf16]),
        (winograd::SKETCH, &[DType::F32]),
        (MMA.name, &[DType::Tf32, DType::F16, DType::Bf16]),
        (WGMMA.name, &[DType::F16, DType::Bf16]),
    ] {
        for dtype in dtypes {
            assert!(met.get(&(sketch.to_string(), *dtype)).is_some_and(|&n| n > 5), "{sketch} {dtype:?}: {met:?}");
        }
    }
}

/// Single threads widen 16-bit elements once, when these are staged, not at each read.
#[test]
fn threads_of_their_own_multiply_what_is_wide_already() {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    for dtype in [DType::F16, DType::Bf16] {
        for text in
            ["conv2d:c=3,h=23,w=23,o=64,k=7,s=2,p=3,bias", "conv2d:c=9,h=8,w=8,o=7,k=3,p=1", "matmul:m=33,n=40,k=65"]
        {
            let space = ScheduleSpace::new(&text.parse::<Workload>().unwrap().with_dtype(dtype).unwrap(), &target);
            let mut rng = ChaCha8Rng::seed_from_u64(3);
            for sketch in [TILED.name, IMPLICIT_GEMM.name] {
                if space.sketches().iter().all(|offered| offered.name() != sketch) {
                    continue;
                }
                for config in (0..4).map(|_| sample_sketch(&space, sketch, &mut rng)) {
                    let program = lower(space.workload(), &target, &config).unwrap();
                    let mut shared = program.buffers.iter().filter(|buffer| buffer.scope == Scope::Shared);
                    assert!(shared.all(|buffer| buffer.dtype == DType::F32), "{text}\n{config}\n{program}");
                }
            }
        }
    }
}

/// Transforms that leave out a tile, or store several tiles to the same place, are found.
#[test]
fn wrong_tiles_of_winograd_programs_are_found() {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let workload: Workload = "conv2d:n=2,c=6,h=10,w=9,o=5,k=3,p=1".parse().unwrap();
    let space = ScheduleSpace::new(&workload, &target);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for _ in 0..5 {
        let program = lower(&workload, &target, &sample_winograd(&space, &mut rng)).unwrap();
        let (output, tiles) = (program.find(Role::Output).unwrap(), "input_transformed");
        let tiles = BufferId(program.buffers.iter().position(|b| b.name == tiles).unwrap() as u32);

        // Each change applies to digits by depth: (o, t) or (c, t) outside, (n, th, tw) inside.
        type Break = fn(&mut Affine, &mut [Digit]);
        let cases: [(BufferId, usize, Break); 6] = [
            (output, 0, |value, _| *value = value.clone() * 2),
            (output, 0, |_, digits| digits[1].extent -= 4),
            (output, 1, |_, digits| digits[2].extent -= 1),
            (output, 1, |value, _| *value = Affine::constant(value.constant)),
            (tiles, 0, |value, _| value.terms[0].1 -= 1),
            (tiles, 1, |_, digits| digits[0].extent -= 1),
        ];

        for (case, (buffer, wanted, change)) in cases.into_iter().enumerate() {
            let mut broken = program.clone();
            for stage in &mut broken.stages {
                let mut depth = 0;
                for_each_list(&mut stage.body, &mut |list| {
                    for node in list.iter_mut().filter(|node| stores_to(node, buffer)) {
                        if let Node::Unflatten { value, digits, .. } = node {
                            if depth == wanted {
                                change(value, digits);
                            }
                            depth += 1;
                        }
                    }
                });
            }
            let proof = verify(&broken, &target);
            assert!(proof.is_err(), "case {case}\n{broken}");
        }
    }
}

fn stores_to(node: &Node, buffer: BufferId) -> bool {
    matches!(node, Node::Store(store) if store.dst.buffer == buffer)
        || node.body().iter().any(|node| stores_to(node, buffer))
}

/// Pixels with wrong digits are stored to the wrong place, or not at all.
#[test]
fn wrong_digits_of_pixels_are_found() {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let workload: Workload = "conv2d:n=3,c=8,h=7,w=10,o=12,k=3,p=1".parse().unwrap();
    let space = ScheduleSpace::new(&workload, &target);
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for case in 0..30 {
        let config = sample_sketch(&space, IMPLICIT_GEMM.name, &mut rng);
        let program = lower(&workload, &target, &config).unwrap();
        if program.stages.iter().any(|stage| stage.name == "add_partial") {
            continue;
        }

        let output = program.find(Role::Output).unwrap();
        // The faults are one column less, and every other pixel mapped to its neighbour.
        for change in 0..2 {
            let mut broken = program.clone();
            for_each_list(compute(&mut broken), &mut |list| {
                for node in list.iter_mut().filter(|node| stores_to(node, output)) {
                    match (node, change) {
                        (Node::Unflatten { digits, .. }, 0) => digits[2].extent -= 1,
                        (Node::Unflatten { value, .. }, _) => *value = value.clone() * 2,
                        _ => {}
                    }
                }
            });
            let problem = verify(&broken, &target).unwrap_err().problem;
            assert!(
                matches!(problem, Problem::OutputGap { .. } | Problem::Conflict { .. } | Problem::Nesting(_)),
                "case {case}, change {change}: {problem}\n{broken}"
            );
        }
    }
}

/// Calls `change` on every list of nodes, outermost first.
fn for_each_list(nodes: &mut Vec<Node>, change: &mut impl FnMut(&mut Vec<Node>)) {
    change(nodes);
    nodes.iter_mut().filter_map(Node::body_mut).for_each(|body| for_each_list(body, change));
}

/// Returns the nodes of the compute stage.
fn compute(program: &mut Program) -> &mut Vec<Node> {
    &mut program.stages.iter_mut().find(|s| s.name == "compute").unwrap().body
}

/// Returns the program without barrier number `number`; `None` if it has fewer barriers.
fn without_barrier(program: &Program, number: usize) -> Option<Program> {
    let mut program = program.clone();
    let (mut seen, mut removed) = (0, false);
    for_each_list(compute(&mut program), &mut |list| {
        let mut at = 0;
        while at < list.len() {
            let is_barrier = list[at] == Node::Barrier;
            if is_barrier && seen == number && !removed {
                list.remove(at);
                removed = true;
            } else {
                at += 1;
            }
            seen += usize::from(is_barrier);
        }
    });
    removed.then_some(program)
}

/// A missing barrier is a race, which both the interpreter and the verifier report.
#[test]
fn a_missing_barrier_is_a_race() {
    let target = Target::detect("cuda:sm_80", None).unwrap();
    for text in ["matmul:m=40,n=36,k=24", "conv2d:c=6,h=9,w=9,o=20,k=3,p=1"] {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let operands = Operands::random(workload.spec(), 1);
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut planted = 0;
        while planted < 12 {
            let config = space.sample(&mut rng);
            let program = lower(&workload, &target, &config).unwrap();

            let mut number = 0;
            while let Some(broken) = without_barrier(&program, number) {
                let proof = verify(&broken, &target).unwrap_err();
                assert!(matches!(proof.problem, Problem::Conflict { .. }), "{config}: {proof}");
                // A single thread that does not need what others copied does not race, but the
                // program is still not provable.
                match interpret(&broken, &operands) {
                    Err(InterpError::Program(ProgramError { problem: Problem::Conflict { buffer, .. }, .. })) => {
                        assert!(buffer.ends_with("_shared"), "{buffer}");
                        planted += 1;
                    }
                    other => assert!(number > 0, "{config}, barrier {number}: {other:?}\n{broken}"),
                }
                number += 1;
            }
        }
    }
}

#[test]
fn planted_faults_are_found() {
    let target = Target::detect("cuda:sm_80", None).unwrap();
    let workload: Workload = "matmul:m=40,n=36,k=24,bias".parse().unwrap();
    let space = ScheduleSpace::new(&workload, &target);
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let (mut unguarded, mut strict) = (0, 0);
    for _ in 0..40 {
        let program = lower(&workload, &target, &space.sample(&mut rng)).unwrap();
        let fails = |change: &mut dyn FnMut(&mut Vec<Node>)| {
            let mut broken = program.clone();
            for_each_list(compute(&mut broken), &mut |list| change(list));
            (broken != program).then(|| verify(&broken, &target).unwrap_err().problem)
        };

        // The output is stored out of bounds.
        let problem = fails(&mut |list| {
            if let [Node::Guard { body, .. }] = &mut list[..] {
                *list = std::mem::take(body);
            }
        });
        if let Some(problem) = problem {
            assert!(matches!(problem, Problem::OutOfBounds { .. }), "{problem}\n{program}");
            unguarded += 1;
        }

        // The product is that of another step.
        let problem = fails(&mut |list| {
            if let [Node::Store(store)] = &mut list[..]
                && store.mode == StoreMode::Accumulate
            {
                let point = &mut store.iteration.as_mut().unwrap().point;
                point[3] = point[3].clone() + 1;
            }
        });
        assert!(
            matches!(problem, Some(Problem::Incomplete { .. } | Problem::Overlap { .. })),
            "{problem:?}\n{program}"
        );

        // Shared memory exceeds the limit.
        let mut broken = program.clone();
        let shared = broken.buffers.iter_mut().find(|b| b.scope == Scope::Shared).unwrap();
        shared.shape[1] += 1 << 16;
        assert!(matches!(verify(&broken, &target).unwrap_err().problem, Problem::Memory { .. }));

        // A guard is too strict. The stages of partial sums are not verified for this.
        if program.stages.len() > 1 {
            continue;
        }
        let problem = fails(&mut |list| {
            if let [Node::Guard { when, .. }] = &mut list[..] {
                when[0].extent -= 1;
            }
        });
        assert!(problem.is_none_or(|p| matches!(p, Problem::OutputGap { .. })), "{program}");
        strict += 1;
    }
    assert!(unguarded > 5 && strict > 5, "{unguarded} {strict}");
}

#[test]
fn stages_of_the_other_kind_are_refused() {
    let workload: Workload = "matmul:m=40,n=36,k=24".parse().unwrap();
    let targets = ["cuda:sm_80", "cpu"].map(|word| Target::detect(word, None).unwrap());
    for (own, other) in [(&targets[0], &targets[1]), (&targets[1], &targets[0])] {
        let config = ScheduleSpace::new(&workload, own).default_config();
        let program = lower(&workload, own, &config).unwrap();
        verify(&program, own).unwrap();
        assert!(matches!(verify(&program, other).unwrap_err().problem, Problem::Nesting(_)));
        assert!(lower(&workload, other, &config).is_err());
    }
}
