//! The tiled sketch on random workloads × random configs: the verifier accepts what lowering makes, the interpreter agrees with
//! the reference and finds no race.

#![allow(clippy::unwrap_used)]

mod common;

use autotune_schedules::program::{Node, Scope, StoreMode};
use autotune_schedules::verify::Problem;
use autotune_schedules::{InterpError, Operands, Program, ScheduleSpace, Target, Workload, interpret, lower, verify};
use common::random_programs::check;
use common::workloads::random_workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for word in ["cuda:sm_90", "opencl"] {
        let target = Target::detect(word, None).unwrap();
        for seed in 0..40 {
            check(&random_workload(&mut ChaCha8Rng::seed_from_u64(seed)), &target, seed, 3);
        }
    }
}

/// Calls `change` on every list of nodes, outermost first.
fn for_each_list(nodes: &mut Vec<Node>, change: &mut impl FnMut(&mut Vec<Node>)) {
    change(nodes);
    nodes.iter_mut().filter_map(Node::body_mut).for_each(|body| for_each_list(body, change));
}

/// The nodes of the stage that multiplies.
fn compute(program: &mut Program) -> &mut Vec<Node> {
    &mut program.stages.iter_mut().find(|s| s.name == "compute").unwrap().body
}

/// A program with some barrier, the `number`th, left out; `None` if there are fewer.
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

/// A barrier left out is a race, and both the interpreter and the verifier say so.
#[test]
fn a_missing_barrier_is_a_race() {
    let target = Target::detect("cuda:sm_80", None).unwrap();
    for text in ["matmul:m=40,n=36,k=24", "conv2d:c=6,h=9,w=9,o=20,k=3,p=1"] {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let operands = Operands::random(&workload, 1);
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let mut planted = 0;
        while planted < 12 {
            let config = space.sample(&mut rng);
            let program = lower(&workload, &target, &config).unwrap();
            let mut number = 0;
            while let Some(broken) = without_barrier(&program, number) {
                let proof = verify(&broken, &target).unwrap_err();
                assert!(matches!(proof.problem, Problem::Conflict { .. }), "{config}: {proof}");
                // A single thread that does not need what others copied is no race, but nothing that is proven.
                match interpret(&broken, &operands) {
                    Err(InterpError::Race { buffer, .. }) => {
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
        // The output stored where the tile sticks out.
        let problem = fails(&mut |list| {
            if let [Node::Guard { body, .. }] = &mut list[..] {
                *list = std::mem::take(body);
            }
        });
        if let Some(problem) = problem {
            assert!(matches!(problem, Problem::OutOfBounds { .. }), "{problem}\n{program}");
            unguarded += 1;
        }
        // The product of another step.
        let problem = fails(&mut |list| {
            if let [Node::Store(store)] = &mut list[..]
                && store.mode == StoreMode::Accumulate
            {
                store.point[3] = store.point[3].clone() + 1;
            }
        });
        assert!(
            matches!(problem, Some(Problem::Incomplete { .. } | Problem::Overlap { .. })),
            "{problem:?}\n{program}"
        );
        // More shared memory than there is.
        let mut broken = program.clone();
        let shared = broken.buffers.iter_mut().find(|b| b.scope == Scope::Shared).unwrap();
        shared.shape[1] += 1 << 16;
        assert!(matches!(verify(&broken, &target).unwrap_err().problem, Problem::Memory { .. }));
        // A condition that is too strict; the way of partial sums is not proven.
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
