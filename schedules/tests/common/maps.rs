//! Programs that map operands: every operation, and random expressions.

use autotune_ir::program::{
    Access, BinaryOp, Compare, Expr, Loop, LoopKind, Node, Role, Store, StoreMode, UnaryOp, When,
};
use autotune_ir::{Affine, Program, Target, VarId};
use autotune_schedules::{ScheduleSpace, lower};
use autotune_workloads::Operands;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Number of operands that a map may read.
pub const READ: usize = 3;

/// Returns the load of operand `number`: weights, then the two rows of the added operand.
fn load(program: &Program, number: usize, x: &Affine) -> Expr {
    match number {
        0 => Expr::Load(access(program, Role::Operand(1), 0, x)),
        _ => Expr::Load(access(program, Role::Operand(2), number - 1, x)),
    }
}

fn access(program: &Program, role: Role, row: usize, x: &Affine) -> Access {
    let buffer = program.find(role).unwrap();
    let dims = program.buffer(buffer).shape.len();
    let mut index = vec![Affine::default(); dims];
    index[dims - 1] = x.clone();
    index[dims - 2] = Affine::constant(row as i64);
    Access { buffer, index: index.into() }
}

/// Returns a program with one output row per map of [`READ`] operands. Each row has `outer` times
/// `inner` elements in two loops of the given kinds.
pub fn mapped(target: &Target, maps: &[Expr], [outer, inner]: [usize; 2], kinds: [LoopKind; 2]) -> Program {
    let (rows, elements) = (maps.len().max(2), outer * inner);
    let workload = format!("matmul:m={rows},n={elements},k=1,add").parse().unwrap();
    let config = ScheduleSpace::new(&workload, target).default_config();
    let mut program = lower(&workload, target, &config).unwrap();

    program.vars = ["o", "i"].map(Into::into).to_vec();
    let [o, i] = [VarId(0), VarId(1)];
    let x = Affine::var(o) * inner as i64 + Affine::var(i);
    let store = |row: usize| {
        let mut value = maps[row % maps.len()].clone();
        set_loads(&mut value, &|number| load(&program, number, &x));
        let dst = access(&program, Role::Output, row, &x);
        Node::Store(Store { dst, mode: StoreMode::Assign, value, iteration: None })
    };
    let body = (0..rows).map(store).collect();
    let inner = Node::Loop(Loop { var: i, extent: inner, kind: kinds[1], body });
    program.stages.truncate(1);
    program.stages[0].when = When::EveryRun;
    program.stages[0].body = vec![Node::Loop(Loop { var: o, extent: outer, kind: kinds[0], body: vec![inner] })];
    program
}

/// Replaces placeholders by loads, see [`operand`].
fn set_loads(value: &mut Expr, load: &dyn Fn(usize) -> Expr) {
    match value {
        Expr::Load(access) => *value = load(access.buffer.0 as usize),
        _ => value.operands_mut().iter_mut().for_each(|of| set_loads(of, load)),
    }
}

/// Placeholder for an operand of a map.
pub fn operand(number: usize) -> Expr {
    Expr::Load(Access { buffer: autotune_ir::program::BufferId(number as u32), index: [].into() })
}

/// Returns an expression for every operation.
pub fn every_operation() -> Vec<Expr> {
    let unary = UnaryOp::ALL.map(|op| Expr::unary(op, operand(0)));
    let binary = BinaryOp::ALL.map(|op| Expr::binary(op, operand(0), operand(1)));
    let bounds = [BinaryOp::Max, BinaryOp::Min].map(|op| Expr::binary(op, operand(0), Expr::Const(0.5)));
    let selects =
        Compare::ALL.map(|compare| Expr::select(compare, [operand(0), operand(1)], operand(2), Expr::Const(1.0)));
    unary.into_iter().chain(binary).chain(bounds).chain(selects).collect()
}

/// Returns a random expression of the given depth.
pub fn random_value(rng: &mut impl Rng, depth: usize) -> Expr {
    let next = |rng: &mut _| random_value(rng, depth - 1);
    match if depth == 0 { rng.random_range(0..4) } else { rng.random_range(4..10) } {
        0 => Expr::Const([0.0, -0.0, 0.5, -1.0, 2.75, 1e-3, f32::INFINITY][rng.random_range(0..7)]),
        1..4 => operand(rng.random_range(0..READ)),
        4..7 => Expr::unary(UnaryOp::ALL[rng.random_range(0..UnaryOp::ALL.len())], next(rng)),
        7..9 => {
            let op = BinaryOp::ALL[rng.random_range(0..BinaryOp::ALL.len())];
            Expr::binary(op, next(rng), next(rng))
        }
        _ => {
            let compare = Compare::ALL[rng.random_range(0..Compare::ALL.len())];
            let of = [next(rng), next(rng)];
            Expr::select(compare, of, next(rng), next(rng))
        }
    }
}

/// Returns operands with special values, values of any exponent, and values of usual size.
pub fn operands(program: &Program, seed: u64) -> Operands {
    let mut operands = Operands::random(&program.spec, seed);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let special = [
        f32::NAN,
        f32::INFINITY,
        -f32::INFINITY,
        0.0,
        -0.0,
        1.0,
        -1.0,
        f32::MAX,
        f32::MIN_POSITIVE,
        -f32::from_bits(1),
        f32::from_bits(0x7f_ffff),
        88.8,
        -104.0,
        0.5,
        65519.0,
        65520.0,
        2.5,
    ];

    for x in operands.iter_mut().flat_map(|tensor| tensor.iter_mut()) {
        *x = match rng.random_range(0..4) {
            0 => special[rng.random_range(0..special.len())],
            1 => f32::from_bits(rng.random()),
            _ => rng.random_range(-12.0..12.0),
        };
    }
    operands
}

/// Describes the first element in which outputs differ bit by bit; any two NaN are equal.
pub fn difference(found: &ndarray::ArrayD<f32>, wanted: &ndarray::ArrayD<f32>) -> Option<String> {
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    let mut elements = found.indexed_iter().zip(wanted);
    let ((at, found), wanted) = elements.find(|((_, found), wanted)| !same(**found, **wanted))?;
    Some(format!("{found:e} instead of {wanted:e} at {at:?}"))
}
