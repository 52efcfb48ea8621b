//! The verifier on random programs: correct ones, and randomly changed ones, which the interpreter
//! runs if the verifier accepts them.

use std::cell::Cell;

use autotune_ir::program::{BinaryOp, BufferId, Expr, LoopKind, Store};
use autotune_ir::{Affine, InterpError, Problem, Program, ProgramError, VarId, interpret, verify};
use autotune_workloads::Operands;
use rand::{Rng, RngExt};

use super::{change_loop, change_store, target};
use crate::common::cases::for_cases;
use crate::common::nests;

#[test]
fn right_programs_are_proven() {
    for_cases(200, |_, choices| {
        let mut pick = |high: usize| choices.random_range(1..=high);
        let text = format!("matmul:m={},n={},k={},bias,add,act=relu", pick(40), pick(40), pick(40));
        let program = nests::tiled_matmul(&text, [pick(9), pick(16), pick(20)]);
        assert_eq!(verify(&program, &target()), Ok(()), "{program}");
    });
    for text in [
        "conv2d:c=4,h=5,w=6,o=8,k=3,p=1,bias,add,act=relu",
        "conv2d:c=2,h=9,w=7,o=4,k=3,s=2,p=1,bias",
        "conv2d:c=4,h=1,w=9,o=8,kh=1,kw=3,ph=0,pw=1",
        "conv2d:c=2,h=8,w=8,o=4,k=5,s=2,p=2",
        "conv2d:c=256,h=14,w=14,o=256,k=3,p=1",
    ] {
        for program in [nests::peeled_conv(text), nests::padded_conv(text)] {
            assert_eq!(verify(&program, &target()), Ok(()), "{program}");
        }
    }
}

/// Makes a random small change to an index, an extent, a loop kind, or a list of nodes.
fn mutate(program: &mut Program, rng: &mut impl Rng) {
    let stage = rng.random_range(0..program.stages.len());
    let pick = rng.random_range(0..200usize);
    let vars = program.vars.len() as u32;
    let buffers = program.buffers.len() as u32;
    let delta = [-1, 1, 8][rng.random_range(0..3)];
    let other_var = Affine::var(VarId(rng.random_range(0..vars)));
    let other_buffer = BufferId(rng.random_range(0..buffers));
    let kind = rng.random_range(0..9);

    let (mut loops, mut stores) = (0, 0);
    nests::for_each_loop(&mut program.stages[stage].body, &mut |_| loops += 1);
    nests::for_each_store(&mut program.stages[stage].body, &mut |_| stores += 1);
    let store =
        |program: &mut Program, change: &dyn Fn(&mut Store)| change_store(program, stage, pick % stores, change);
    let at = |index: &[Affine]| pick / 7 % index.len().max(1);

    match kind {
        0 => change_loop(program, stage, pick % loops, |l| l.extent = l.extent.saturating_add_signed(delta as isize)),
        1 => change_loop(program, stage, pick % loops, |l| l.kind = LoopKind::Serial),
        2 => change_loop(program, stage, pick % loops, |l| l.kind = LoopKind::Parallel),
        3 => change_loop(program, stage, pick % loops, |l| drop(l.body.pop())),
        4 => change_loop(program, stage, pick % loops, |l| l.body.extend(l.body.first().cloned())),
        5 => store(program, &|s| {
            let d = at(&s.dst.index);
            s.dst.index[d] = s.dst.index[d].clone() + delta;
        }),
        6 => store(program, &|s| {
            let d = at(&s.dst.index);
            s.dst.index[d] = s.dst.index[d].clone() + other_var.clone();
        }),
        7 => store(program, &|s| s.dst.buffer = other_buffer),
        _ => store(program, &|s| {
            if let Expr::Binary(BinaryOp::Mul, factors) = &mut s.value
                && let Expr::Load(load) = &mut factors[0]
            {
                let d = at(&load.index);
                load.index[d] = load.index[d].clone() + delta;
            }
        }),
    }
}

#[test]
fn verified_programs_run() {
    let (proven, refuted) = (Cell::new(0), Cell::new(0));
    let count = |counter: &Cell<u32>| counter.set(counter.get() + 1);
    for_cases(3000, |seed, choices| {
        let mut program = [
            nests::tiled_matmul("matmul:m=5,n=11,k=7,bias", [4, 8, 3]),
            nests::peeled_conv("conv2d:c=4,h=3,w=4,o=4,k=3,p=1"),
            nests::padded_conv("conv2d:c=2,h=3,w=4,o=2,k=3,p=1"),
        ][seed as usize % 3]
            .clone();
        mutate(&mut program, choices);
        let result = interpret(&program, &Operands::random(&program.spec, seed));
        let proof = verify(&program, &target());
        match (&proof, &result) {
            (Ok(()), Ok(_)) => count(&proven),
            // The verifier does not check that tasks read what other tasks write; the interpreter
            // does.
            (Ok(()), Err(InterpError::Program(ProgramError { problem: Problem::Conflict { .. }, .. }))) => {}
            (Ok(()), Err(e)) => panic!("proven, but {e}\n{program}"),
            (Err(_), _) => count(&refuted),
        }
    });
    let (proven, refuted) = (proven.get(), refuted.get());
    assert!(proven > 100 && refuted > 1000, "{proven} proven, {refuted} refuted");
}
