//! The interpreter against the reference, and programs that it must reject.

use autotune_ir::program::{BinaryOp, Expr, LoopKind, Node, Role, StoreMode};
use autotune_ir::{Affine, InterpError, Problem, Program, ProgramError, interpret};
use autotune_schedules::EXACT_TOLERANCE;
use autotune_workloads::{Operands, max_rel_error, reference};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::nests;

fn error_of(program: &Program, seed: u64) -> f64 {
    let operands = Operands::random(&program.spec, seed);
    let output = interpret(program, &operands).unwrap_or_else(|e| panic!("{e}, seed {seed}\n{program}"));
    max_rel_error(&output, &reference(&program.spec.name.parse().unwrap(), &operands))
}

fn assert_right(program: &Program, seed: u64) {
    let error = error_of(program, seed);
    assert!(error <= EXACT_TOLERANCE, "error {error}, seed {seed}\n{program}");
}

fn failure_of(program: &Program) -> ProgramError {
    match interpret(program, &Operands::random(&program.spec, 0)) {
        Err(InterpError::Program(error)) => error,
        other => panic!("{other:?}\n{program}"),
    }
}

fn matmul() -> Program {
    nests::tiled_matmul("matmul:m=7,n=21,k=14,bias,act=relu", [4, 8, 4])
}

fn conv() -> Program {
    nests::peeled_conv("conv2d:c=4,h=5,w=6,o=8,k=3,p=1,bias,add,act=relu")
}

/// Returns the body `depth` loops down, following the first branch of each loop.
fn body_at(nodes: &mut Vec<Node>, depth: usize) -> &mut Vec<Node> {
    if depth == 0 {
        return nodes;
    }
    body_at(nodes[0].body_mut().unwrap(), depth - 1)
}

#[test]
fn tiled_matmuls_agree_with_the_reference() {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for seed in 0..40 {
        let mut pick = |high: usize| rng.random_range(1..=high);
        let text = format!("matmul:m={},n={},k={},bias,add,act=relu", pick(9), pick(20), pick(20));
        assert_right(&nests::tiled_matmul(&text, [pick(5), pick(8), pick(9)]), seed);
    }
}

#[test]
fn convolutions_agree_with_the_reference() {
    for (seed, text) in [
        "conv2d:c=4,h=5,w=6,o=8,k=3,p=1,bias,add,act=relu",
        "conv2d:c=2,h=9,w=7,o=4,k=3,s=2,p=1,bias",
        "conv2d:c=4,h=1,w=9,o=8,kh=1,kw=3,ph=0,pw=1",
        "conv2d:c=2,h=8,w=8,o=4,k=5,s=2,p=2",
        "conv2d:c=2,h=4,w=4,o=4,k=1,add",
    ]
    .into_iter()
    .enumerate()
    {
        assert_right(&nests::peeled_conv(text), seed as u64);
        assert_right(&nests::padded_conv(text), seed as u64);
    }
}

#[test]
fn undefined_memory_reaches_the_output_through_the_activation() {
    // The accumulator is not cleared: `max(NaN, 0)` must not become 0.
    let mut program = conv();
    body_at(&mut program.stages[0].body, 4).remove(0);
    assert_eq!(error_of(&program, 0), f64::INFINITY);
}

#[test]
fn an_allocation_forgets_what_the_last_one_held() {
    // The allocation must clear the buffer each time. Otherwise tiles would start from the sums of
    // the tile before.
    let mut program = nests::peeled_conv("conv2d:c=2,h=3,w=3,o=4,k=1");
    let tile = body_at(&mut program.stages[0].body, 4);
    let clear = tile.remove(0);
    let acc = program.find(Role::Accumulator).unwrap();
    let rows = body_at(&mut program.stages[0].body, 1);
    rows.insert(0, Node::Alloc { buffer: acc, body: vec![clear] });
    assert_eq!(error_of(&program, 0), f64::INFINITY);
}

#[test]
fn a_stage_that_is_left_out_shows() {
    let mut program = matmul();
    program.stages.remove(0);
    assert_eq!(error_of(&program, 0), f64::INFINITY);
}

#[test]
fn indices_out_of_bounds_name_stage_buffer_and_index() {
    let mut program = matmul();
    let Node::Loop(no) = &mut program.stages[0].body[1] else { unreachable!() };
    no.extent = 2;
    let error = failure_of(&program);
    let Problem::OutOfBounds { buffer, dim, low, high, extent } = &error.problem else { panic!("{error}") };
    assert_eq!((error.place.as_str(), buffer.as_str()), ("stage 'pack_weight'", "weight_packed"));
    assert_eq!((*dim, *low, *high, *extent), (0, 3, 3, 3));

    let mut program = conv();
    nests::for_each_store(&mut program.stages[0].body, &mut |store| {
        if let Expr::Binary(BinaryOp::Mul, factors) = &mut store.value
            && let Expr::Load(input) = &mut factors[0]
        {
            input.index[2] = input.index[2].clone() + -1;
        }
    });
    let error = failure_of(&program);
    assert!(matches!(&error.problem, Problem::OutOfBounds { dim: 2, low: -1, .. }), "{error}");
}

#[test]
fn private_memory_ends_with_its_allocation() {
    let mut program = conv();
    let tile = body_at(&mut program.stages[0].body, 3);
    let Node::Alloc { body, .. } = &mut tile[0] else { unreachable!() };
    let end = body.pop().unwrap();
    tile.push(end);
    assert!(matches!(failure_of(&program).problem, Problem::OutOfScope(_)));
}

#[test]
fn operands_are_read_only() {
    let mut program = matmul();
    let (input, output) = (program.find(Role::Operand(0)).unwrap(), program.find(Role::Output).unwrap());
    let zero = nests::number(0);
    let index = [zero.clone(), zero.clone(), zero];
    let store = nests::assign(nests::access(input, &index), nests::load(output, &index));
    program.stages[1].body.push(store);
    assert!(matches!(failure_of(&program).problem, Problem::Forbidden { access: "written", .. }));
}

#[test]
fn malformed_trees_are_errors() {
    let malformed = |change: &dyn Fn(&mut Program)| {
        let mut program = matmul();
        change(&mut program);
        let error = failure_of(&program);
        assert!(matches!(error.problem, Problem::Nesting(_) | Problem::OutOfScope(_)), "{error}");
    };
    malformed(&|p| p.vars.clear());
    malformed(&|p| p.buffers.truncate(4));
    let first = |p: &mut Program, change: &dyn Fn(&mut autotune_ir::program::Loop)| {
        let Node::Loop(l) = &mut p.stages[1].body[0] else { unreachable!() };
        change(l);
    };
    malformed(&|p| first(p, &|l| l.extent = 0));
    malformed(&|p| first(p, &|l| l.body = vec![Node::Loop(l.clone())]));
    malformed(&|p| p.stages[1].body = body_at(&mut p.stages[1].body, 1).clone());
}

#[test]
fn tasks_that_share_an_element_race() {
    // Rows are divided among tasks, but each task also stores a row of the next task.
    let overlapping = |mode: StoreMode| {
        let mut program = nests::padded_conv("conv2d:c=2,h=3,w=3,o=4,k=1");
        let output = program.find(Role::Output).unwrap();
        let o = program.vars.iter().position(|name| name == "o").unwrap() as u32;
        let var = Affine::var(autotune_ir::VarId(o));
        let zero = nests::number(0);
        let own = [zero.clone(), var, zero.clone(), zero.clone()];
        let first = [zero.clone(), zero.clone(), zero.clone(), zero];
        let (dst, src) = if mode == StoreMode::Assign { (&first, &own) } else { (&own, &first) };
        let stray = nests::assign(nests::access(output, dst), nests::load(output, src));
        let Node::Loop(tasks) = &mut program.stages[1].body[0] else { unreachable!() };
        tasks.body.push(stray);
        program
    };

    for mode in [StoreMode::Assign, StoreMode::Accumulate] {
        let program = overlapping(mode);
        let error = failure_of(&program);
        assert!(
            matches!(&error.problem, Problem::Conflict { buffer, what } if buffer == "output" && what.ends_with("element 0"))
        );
        // The same nest does not race if a single task runs it.
        let mut serial = program;
        let Node::Loop(tasks) = &mut serial.stages[1].body[0] else { unreachable!() };
        tasks.kind = LoopKind::Serial;
        assert!(interpret(&serial, &Operands::random(&serial.spec, 0)).is_ok());
    }
}

#[test]
fn trees_of_a_stage_are_tasks_of_their_own() {
    let mut program = nests::padded_conv("conv2d:c=2,h=3,w=3,o=4,k=1");
    let Node::Loop(tasks) = program.stages[1].body[0].clone() else { unreachable!() };
    let serial = |body: Vec<Node>| nests::repeat(LoopKind::Serial, tasks.var, tasks.extent, body);
    program.stages[1].body = tasks.body.iter().map(|node| serial(vec![node.clone()])).collect();
    let error = failure_of(&program);
    assert!(matches!(error.problem, Problem::Conflict { .. }), "{error}");
    // As two stages, with a barrier between them, the program is right.
    let stage = program.stages.pop().unwrap();
    for (i, tree) in stage.body.iter().enumerate() {
        let mut own = stage.clone();
        own.name = format!("compute_{i}");
        own.body = vec![tree.clone()];
        program.stages.push(own);
    }
    assert_right(&program, 0);
}
