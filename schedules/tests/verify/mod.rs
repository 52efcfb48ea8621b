//! The verifier on correct programs and on known kinds of faults.
#![allow(clippy::unwrap_used)]

mod random;

use std::sync::Arc;

use autotune_ir::program::{
    Access, AxisOf, BinaryOp, BufferId, Expr, Loop, LoopKind, Node, Role, Scope, Store, StoreMode, When,
};
use autotune_ir::{Affine, CpuTarget, DType, Problem, Program, Spec, Target, VarId, verify};
use autotune_workloads::Workload;

use crate::common::nests;

fn target() -> Target {
    Target::Cpu(CpuTarget::generic_avx2(2))
}

fn matmul() -> Program {
    nests::tiled_matmul("matmul:m=7,n=21,k=14,bias,act=relu", [4, 8, 4])
}

fn conv() -> Program {
    nests::peeled_conv("conv2d:c=4,h=1,w=9,o=8,kh=1,kw=3,ph=0,pw=1,add")
}

fn padded() -> Program {
    nests::padded_conv("conv2d:c=2,h=4,w=5,o=3,k=3,p=1,bias")
}

/// Returns the problem of `program` after `change`.
fn problem(mut program: Program, change: impl FnOnce(&mut Program)) -> Problem {
    assert_eq!(verify(&program, &target()), Ok(()));
    change(&mut program);
    match verify(&program, &target()) {
        Err(e) => e.problem,
        Ok(()) => panic!("not found to be wrong:\n{program}"),
    }
}

macro_rules! assert_problem {
    ($problem:expr, $pattern:pat $(if $guard:expr)?) => {{
        let problem = $problem;
        assert!(matches!(&problem, $pattern $(if $guard)?), "{problem:?}");
    }};
}

fn change_loop(program: &mut Program, stage: usize, number: usize, change: impl Fn(&mut Loop)) {
    let mut at = 0;
    nests::for_each_loop(&mut program.stages[stage].body, &mut |l| {
        if at == number {
            change(l);
        }
        at += 1;
    });
    assert!(number < at, "the stage has only {at} loops");
}

fn change_store(program: &mut Program, stage: usize, number: usize, change: impl Fn(&mut Store)) {
    let mut at = 0;
    nests::for_each_store(&mut program.stages[stage].body, &mut |store| {
        if at == number {
            change(store);
        }
        at += 1;
    });
    assert!(number < at, "the stage has only {at} stores");
}

fn change_products(program: &mut Program, change: impl Fn(&mut Store)) {
    for stage in &mut program.stages {
        nests::for_each_store(&mut stage.body, &mut |store| {
            if store.iteration.is_some() {
                change(store);
            }
        });
    }
}

fn point(store: &mut Store) -> &mut Vec<Affine> {
    &mut store.iteration.as_mut().unwrap().point
}

fn var(program: &Program, name: &str) -> VarId {
    VarId(program.vars.iter().position(|v| v == name).unwrap() as u32)
}

fn left(store: &mut Store) -> &mut Access {
    match &mut store.value {
        Expr::Binary(BinaryOp::Mul, factors) => match &mut factors[0] {
            Expr::Load(access) => access,
            _ => panic!("no load"),
        },
        _ => panic!("no product"),
    }
}

fn the_loop(node: &mut Node) -> &mut Loop {
    match node {
        Node::Loop(l) => l,
        _ => panic!("no loop"),
    }
}

#[test]
fn a_lost_remainder_is_incomplete() {
    let lost = |tree: usize| problem(matmul(), |p| drop(p.stages[1].body.remove(tree)));
    for tree in 0..4 {
        assert_problem!(lost(tree), Problem::Incomplete { .. });
    }
    // A chunk of the reduction is lost; the output is still assigned.
    let chunk = problem(matmul(), |p| {
        let rows = the_loop(&mut the_loop(&mut p.stages[1].body[0]).body[0]);
        rows.body.remove(1);
    });
    assert_problem!(chunk, Problem::Incomplete { .. });
    // A boundary column of the convolution is lost.
    let column = problem(conv(), |p| drop(the_loop(&mut p.stages[0].body[0]).body.remove(2)));
    assert_problem!(column, Problem::Incomplete { covered, required } if required > covered);
}

#[test]
fn a_loop_too_short_or_too_long_is_found() {
    assert_problem!(problem(matmul(), |p| change_loop(p, 1, 0, |l| l.extent = 1)), Problem::Incomplete { .. });
    assert_problem!(problem(matmul(), |p| change_loop(p, 1, 0, |l| l.extent = 3)), Problem::Point(_));
    let taps = |extent| {
        problem(conv(), |p| {
            let kw = var(p, "kw");
            nests::for_each_loop(&mut p.stages[0].body, &mut |l| {
                if l.var == kw && l.extent == 3 {
                    l.extent = extent;
                }
            });
        })
    };
    assert_problem!(taps(2), Problem::Incomplete { .. });
    assert_problem!(taps(4), Problem::OutOfBounds { .. });
    assert_problem!(problem(matmul(), |p| change_loop(p, 1, 2, |l| l.extent = 0)), Problem::Nesting(_));
}

#[test]
fn iterations_that_run_twice_are_found() {
    // A leaf runs twice.
    let twice = problem(conv(), |p| {
        let kw = var(p, "kw");
        nests::for_each_loop(&mut p.stages[0].body, &mut |l| {
            if l.var == kw {
                l.body.push(l.body[0].clone());
            }
        });
    });
    assert_problem!(twice, Problem::Overlap { .. });

    // A tree runs twice: two tasks store to the same output.
    let tree = problem(matmul(), |p| {
        let again = p.stages[1].body[3].clone();
        p.stages[1].body.push(again);
    });
    assert_problem!(tree, Problem::Conflict { .. });

    // An outer loop repeats everything, with a variable that no axis uses.
    let repeated = problem(padded(), |p| {
        p.vars.push("again".into());
        let again = VarId(p.vars.len() as u32 - 1);
        let body = &mut the_loop(&mut p.stages[1].body[0]).body;
        *body = vec![nests::repeat(LoopKind::Serial, again, 2, std::mem::take(body))];
    });
    assert_problem!(repeated, Problem::Point(_));

    // Tiles overlap instead of being adjacent.
    let overlapping = problem(matmul(), |p| {
        let [no, v] = ["no", "v"].map(|name| Affine::var(var(p, name)));
        change_products(p, |store| {
            if point(store)[2].constant == 0 {
                point(store)[2] = no.clone() * 7 + v.clone();
            }
        });
    });
    assert_problem!(overlapping, Problem::Point(_));
}

#[test]
fn tiles_that_are_shifted_are_found() {
    // The second row of tiles starts one element early: that row is computed twice, and the last
    // one is missing.
    let shifted = problem(matmul(), |p| {
        change_products(p, |store| {
            if point(store)[1].constant == 4 {
                point(store)[1] = point(store)[1].clone() + -1;
                left(store).index[1] = left(store).index[1].clone() + -1;
            }
        });
    });
    assert_problem!(shifted, Problem::Overlap { .. });
    let beyond = problem(matmul(), |p| {
        change_products(p, |store| point(store)[3] = point(store)[3].clone() + 1);
    });
    assert_problem!(beyond, Problem::WrongElement { .. } | Problem::Point(_));
}

#[test]
fn operands_read_in_place_at_another_element_are_found() {
    for dim in [1, 3, 4] {
        let wrong = problem(conv(), |p| {
            change_products(p, |store| {
                let value = &mut left(store).index[dim];
                *value = Affine { constant: 0, ..Affine::default() };
            });
        });
        assert_problem!(wrong, Problem::WrongElement { .. });
    }
    let swapped = problem(padded(), |p| {
        let [kh, kw] = ["kh", "kw"].map(|name| Affine::var(var(p, name)));
        change_products(p, |store| {
            let Expr::Binary(BinaryOp::Mul, factors) = &mut store.value else { unreachable!() };
            let Expr::Load(weight) = &mut factors[1] else { unreachable!() };
            (weight.index[2], weight.index[3]) = (kw.clone(), kh.clone());
        });
    });
    assert_problem!(swapped, Problem::WrongElement { buffer, dim: 2 } if buffer == "weight");
}

#[test]
fn padding_that_is_read_in_place_is_out_of_bounds() {
    let below = problem(conv(), |p| {
        change_products(p, |store| left(store).index[3] = left(store).index[3].clone() + -1);
    });
    assert_problem!(below, Problem::OutOfBounds { dim: 3, low: -1, .. });
    let store = problem(matmul(), |p| {
        change_store(p, 0, 1, |store| store.dst.index[0] = store.dst.index[0].clone() + 1);
    });
    assert_problem!(store, Problem::OutOfBounds { dim: 0, high: 3, extent: 3, .. });
}

#[test]
fn prefetches_are_checked_like_loads() {
    let changed = |change: &dyn Fn(&mut Program, &mut Vec<Node>)| {
        problem(matmul(), |p| {
            let mut stage = p.stages.remove(1);
            nests::for_each_loop(&mut stage.body, &mut |l| {
                if l.kind == LoopKind::Serial && matches!(l.body.last(), Some(Node::Prefetch { .. })) {
                    change(p, &mut l.body);
                }
            });
            p.stages.push(stage);
        })
    };
    let with = |change: &dyn Fn(&mut Program, &mut Access)| {
        changed(&|p, body| {
            if let Some(Node::Prefetch { access, .. }) = body.last_mut() {
                change(p, access);
            }
        })
    };

    assert_problem!(with(&|_, a| a.index[1].constant += 1), Problem::OutOfBounds { dim: 1, .. });
    assert_problem!(with(&|_, a| a.index = a.index[..2].to_vec().into()), Problem::Nesting(_));
    assert_problem!(with(&|p, a| a.index[0] = Affine::var(var(p, "v"))), Problem::OutOfScope(name) if name == "v");
    assert_problem!(with(&|_, a| a.buffer = BufferId(99)), Problem::Nesting(_));
    let registers = with(&|p, a| {
        let buffer = p.find(Role::Accumulator).unwrap();
        *a = Access { buffer, index: [nests::number(0), nests::number(0)].into() };
    });
    assert_problem!(registers, Problem::Nesting(_));

    let in_vector = changed(&|_, body| {
        let prefetch = body.pop().unwrap();
        nests::for_each_loop(body, &mut |l| {
            if l.kind == LoopKind::Vectorized {
                l.body.push(prefetch.clone());
            }
        });
    });
    assert_problem!(in_vector, Problem::Nesting(_));
}

#[test]
fn an_output_that_is_not_assigned_is_found() {
    let accumulated = problem(conv(), |p| {
        let output = p.find(Role::Output).unwrap();
        nests::for_each_store(&mut p.stages[0].body, &mut |store| {
            if store.dst.buffer == output && store.dst.index[3].constant == 8 {
                store.mode = StoreMode::Accumulate;
            }
        });
    });
    assert_problem!(accumulated, Problem::OutputGap { index } if index[3] == 8);
    let lost = problem(conv(), |p| {
        nests::for_each_loop(&mut p.stages[0].body, &mut |l| {
            if let [Node::Alloc { body, .. }] = l.body.as_mut_slice() {
                body.truncate(2);
            }
        });
    });
    assert_problem!(lost, Problem::OutputGap { .. });
}

#[test]
fn private_buffers_stay_in_their_allocation() {
    let moved = problem(conv(), |p| {
        nests::for_each_loop(&mut p.stages[0].body, &mut |l| {
            if let [Node::Alloc { body, .. }] = l.body.as_mut_slice() {
                let end = body.pop().unwrap();
                l.body.push(end);
            }
        });
    });
    assert_problem!(moved, Problem::OutOfScope(name) if name == "acc");
    let twice = problem(conv(), |p| {
        let acc = p.find(Role::Accumulator).unwrap();
        let rows = the_loop(&mut p.stages[0].body[0]);
        rows.body = vec![Node::Alloc { buffer: acc, body: std::mem::take(&mut rows.body) }];
    });
    assert_problem!(twice, Problem::Nesting(_));
    let global = problem(conv(), |p| {
        let output = p.find(Role::Output).unwrap();
        let tree = p.stages[0].body.remove(0);
        p.stages[0].body.push(Node::Alloc { buffer: output, body: vec![tree] });
    });
    assert_problem!(global, Problem::Nesting(_));
}

#[test]
fn registers_are_chosen_by_written_out_loops() {
    let serial = problem(matmul(), |p| {
        let i = var(p, "i");
        nests::for_each_loop(&mut p.stages[1].body, &mut |l| {
            if l.var == i {
                l.kind = LoopKind::Serial;
            }
        });
    });
    assert_problem!(serial, Problem::RegisterIndex { buffer, var } if buffer == "acc" && var == "i");
    let outside = problem(conv(), |p| {
        let cb = Affine::var(var(p, "cb"));
        change_products(p, |store| store.dst.index[0] = cb.clone());
    });
    assert_problem!(outside, Problem::RegisterIndex { .. });
}

#[test]
fn variables_stay_in_their_loops() {
    let unbound = problem(matmul(), |p| {
        let ko = Affine::var(var(p, "ko"));
        change_store(p, 0, 0, |store| store.dst.index[1] = ko.clone());
    });
    assert_problem!(unbound, Problem::OutOfScope(name) if name == "ko");
    let nameless = problem(matmul(), |p| drop(p.vars.pop()));
    assert_problem!(nameless, Problem::Nesting(_));
    let reused = problem(matmul(), |p| {
        let no = var(p, "no");
        change_loop(p, 1, 1, |l| l.var = no);
    });
    assert_problem!(reused, Problem::Nesting(_));
}

#[test]
fn parallel_loops_are_on_top_and_vectors_at_the_bottom() {
    let below = problem(matmul(), |p| {
        change_loop(p, 1, 0, |l| l.kind = LoopKind::Serial);
    });
    assert_problem!(below, Problem::Nesting(_));
    let in_alloc = problem(conv(), |p| {
        let tree = the_loop(&mut p.stages[0].body[0]);
        tree.kind = LoopKind::Parallel;
        nests::for_each_loop(&mut tree.body, &mut |l| l.kind = LoopKind::Parallel);
    });
    assert_problem!(in_alloc, Problem::Nesting(_));
    let around = problem(matmul(), |p| {
        let i = var(p, "i");
        nests::for_each_loop(&mut p.stages[1].body, &mut |l| {
            if l.var == i {
                l.kind = LoopKind::Vectorized;
            }
        });
    });
    assert_problem!(around, Problem::Nesting(_));
}

#[test]
fn lanes_and_tasks_store_to_elements_of_their_own() {
    let lanes = problem(matmul(), |p| {
        change_products(p, |store| store.dst.index[1] = nests::number(0));
    });
    assert_problem!(lanes, Problem::Conflict { buffer, .. } if buffer == "acc");
    // The reduction over input channels is divided among tasks.
    let tasks = problem(padded(), |p| {
        let tree = the_loop(&mut p.stages[1].body[0]);
        let (o, extent) = (tree.var, tree.extent);
        let mut sums = tree.body.remove(1);
        the_loop(&mut sums).kind = LoopKind::Parallel;
        let [first, last] = [0, 1].map(|i| nests::repeat(LoopKind::Serial, o, extent, vec![tree.body[i].clone()]));
        let mut stages = [first, nests::repeat(LoopKind::Parallel, o, extent, vec![sums]), last].map(|tree| {
            let mut stage = p.stages[1].clone();
            stage.body = vec![tree];
            stage
        });
        for (i, stage) in stages.iter_mut().enumerate() {
            stage.name = format!("compute_{i}");
        }
        p.stages.truncate(1);
        p.stages.extend(stages);
    });
    assert_problem!(tasks, Problem::Conflict { buffer, .. } if buffer == "output");
}

#[test]
fn stages_touch_what_they_may() {
    let store_to = |role: Role| {
        problem(nests::tiled_matmul("matmul:m=8,n=8,k=4,bias,add", [4, 8, 4]), |p| {
            let buffer = p.find(role).unwrap();
            let index = vec![nests::number(0); p.buffer(buffer).shape.len()];
            let store = nests::assign(Access { buffer, index: index.into() }, Expr::Const(0.0));
            p.stages[1].body.push(store);
        })
    };
    for role in (0..4).map(Role::Operand) {
        assert_problem!(store_to(role), Problem::Forbidden { access: "written", .. });
    }
    // Buffers that are packed ahead of time must not be written in a run.
    assert_problem!(store_to(Role::Packed), Problem::Forbidden { access: "written", .. });
    let early = problem(padded(), |p| p.stages[0].when = When::AheadOfTime);
    assert_problem!(early, Problem::Forbidden { buffer, access: "read" } if buffer == "input");
    let output = problem(padded(), |p| {
        let (output, weight) = (p.find(Role::Output).unwrap(), p.find(Role::Operand(1)).unwrap());
        let zeros = vec![nests::number(0); 4];
        let store = nests::assign(nests::access(output, &zeros), nests::load(weight, &zeros));
        p.stages[0].when = When::AheadOfTime;
        p.stages[0].body = vec![store];
    });
    assert_problem!(output, Problem::Forbidden { buffer, access: "written" } if buffer == "output");
}

#[test]
fn products_without_points_do_not_count() {
    assert_problem!(
        problem(matmul(), |p| change_products(p, |store| store.iteration = None)),
        Problem::Incomplete { covered: 0, .. }
    );
    assert_problem!(problem(matmul(), |p| change_products(p, |store| drop(point(store).pop()))), Problem::Point(_));
    assert_problem!(
        problem(matmul(), |p| change_products(p, |store| store.mode = StoreMode::Assign)),
        Problem::Point(_)
    );
    assert_problem!(
        problem(padded(), |p| change_products(p, |store| store.value = Expr::Const(1.0))),
        Problem::Point(_)
    );
}

fn spec(text: &str) -> Arc<Spec> {
    Arc::clone(text.parse::<Workload>().unwrap().spec())
}

#[test]
fn the_surroundings_get_what_they_expect() {
    let interface = |program: Program, change: &dyn Fn(&mut Program)| {
        assert_problem!(problem(program, change), Problem::Interface(_));
    };
    interface(matmul(), &|p| p.buffers[0].shape[1] += 1);
    interface(matmul(), &|p| p.buffers[0].name = "weight".into());
    interface(matmul(), &|p| p.buffers[0].name = "a b".into());
    interface(matmul(), &|p| p.buffers[0].role = Role::Packed);
    interface(matmul(), &|p| p.buffers[0].scope = Scope::Local);
    interface(matmul(), &|p| p.stages[0].name = "compute".into());
    interface(matmul(), &|p| p.axes[3].extent += 1);
    interface(matmul(), &|p| p.axes[3].name = p.axes[2].name);
    interface(matmul(), &|p| p.axes[3].of = AxisOf::Part { axis: 9, step: 1 });
    interface(matmul(), &|p| p.axes[2].of = AxisOf::Part { axis: 2, step: 2 });
    interface(matmul(), &|p| p.axes[2].of = AxisOf::Fused([1, 2][..].into()));
    interface(matmul(), &|p| p.buffers[0].dtype = DType::F16);
    interface(matmul(), &|p| p.algorithm = conv().spec);
    interface(matmul(), &|p| p.axes[3].reduce = false);
    interface(matmul(), &|p| p.spec = spec("matmul:m=7,n=21,k=14"));
    interface(conv(), &|p| p.spec = spec("conv2d:c=4,h=1,w=9,o=8,kh=1,kw=3,ph=0,pw=1"));
}

#[test]
fn memory_has_limits() {
    for (scope, shape) in [(Scope::Local, vec![1 << 12, (1 << 12) + 1]), (Scope::Global, vec![usize::MAX, 4])] {
        let memory = problem(matmul(), |p| {
            let mut big = p.buffers[0].clone();
            (big.name, big.role, big.scope, big.shape) = ("big".into(), Role::Packed, scope, shape);
            p.buffers.push(big);
        });
        assert_problem!(memory, Problem::Memory { .. });
    }
    assert_problem!(problem(matmul(), |p| p.stages[0].body.clear()), Problem::Nesting(_));
}

#[test]
fn errors_tell_the_place() {
    let mut program = matmul();
    change_loop(&mut program, 1, 0, |l| l.extent = 3);
    let error = verify(&program, &target()).unwrap_err();
    assert!(error.place.starts_with("stage 'compute', no > mo > kk > i > v"), "{error}");
    assert!(error.to_string().contains("axis 'n' of extent 21 runs from 0 to 23"), "{error}");
}
