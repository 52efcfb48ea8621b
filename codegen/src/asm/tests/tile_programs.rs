//! Random products of tiles: on simulated instruction sets, and on an emulator of the instructions
//! that are emitted for x86.

#![allow(clippy::unwrap_used)]

use autotune_ir::instruction::{
    CallSite, Instruction, TILE_BF16, TILE_I8, TILE_REGISTERS, TILE_ROWS, tile_registers_of,
};
use autotune_ir::program::{
    Access, Buffer, BufferId, Expr, Loop, LoopKind, Node, Role, Scope, Store, StoreMode, When, preorder,
};
use autotune_ir::{Affine, CpuTarget, DType, Isa, Program, Target, VarId, interpret};
use autotune_schedules::{ScheduleSpace, lower};
use autotune_workloads::Operands;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::emulator::Emulator;
use super::random_programs::cases::for_cases;
use super::random_programs::maps::difference;
use super::random_programs::{run, run_on};
use super::simulator::{SETS, StepRecorder};
use crate::asm::x86::disassemble;
use crate::asm::{assemble, generate};

/// Types of the factors, as fields of a workload's text; their instruction; the number of elements
/// in a word; and the number of parts of each factor.
const TYPES: [(&str, &Instruction, usize, usize); 6] = [
    ("dtype=bf16,out=f32", &TILE_BF16, 2, 1),
    ("dtype=bf16,out=f32", &TILE_BF16, 2, 2),
    ("data=u8,weights=i8", &TILE_I8, 4, 1),
    ("data=i8,weights=i8", &TILE_I8, 4, 1),
    ("data=u8,weights=u8", &TILE_I8, 4, 1),
    ("data=i8,weights=u8", &TILE_I8, 4, 1),
];

/// Product of `data`, `[rows, k]`, and `weights`, `[column blocks, k / steps, columns, steps]`.
#[derive(Debug)]
struct TileCase {
    /// Position of the element types and their instruction in [`TYPES`].
    types: usize,
    /// Register tiles; each has sums of its own.
    tiles: Vec<RegisterTileCase>,
    /// Column loop and lanes of a register tile.
    columns: [usize; 2],
    /// Number of register tiles along the columns.
    column_blocks: usize,
    /// Extents of serial loops around the products.
    outer_loops: Vec<usize>,
    words: usize,
    /// Position of the loop over columns among those over rows.
    column_loop: usize,
    /// True if consecutive register tiles have the same columns, false if the same rows.
    are_rows_inside: bool,
}

/// Rows of a register tile.
#[derive(Debug)]
struct RegisterTileCase {
    /// Extents of two loops over rows.
    rows: [usize; 2],
    /// Rows of data between iterations of the outer one that belong to no tile.
    gap: usize,
    /// Number of register tiles along the rows.
    blocks: usize,
}

impl RegisterTileCase {
    /// Returns the rows of data and output of one register tile.
    fn spanned(&self) -> usize {
        self.rows[0] * (self.rows[1] + self.gap)
    }

    /// Returns the number of row tiles.
    fn tiles(&self) -> usize {
        match self.gap {
            0 => (self.rows[0] * self.rows[1]).div_ceil(TILE_ROWS),
            _ => self.rows[0] * self.rows[1].div_ceil(TILE_ROWS),
        }
    }
}

impl TileCase {
    /// Returns a random case that fits the tile registers.
    fn random(rng: &mut impl Rng) -> Self {
        loop {
            let case = Self::any(rng);
            let columns = case.columns[0] * case.columns[1].div_ceil(TILE_ROWS);
            let fits = |tile: &RegisterTileCase| tile_registers_of([tile.tiles(), columns]) <= TILE_REGISTERS;
            // The interpreter is slow.
            let count: usize = case.tiles.iter().map(|tile| tile.blocks * tile.spanned()).sum();
            let steps = case.outer_loops.iter().product::<usize>() * case.words;
            let work = count * case.columns[0] * case.columns[1] * case.column_blocks * steps;
            if case.tiles.iter().all(fits) && work < 100_000 {
                return case;
            }
        }
    }

    fn any(rng: &mut impl Rng) -> Self {
        let tiles = (0..rng.random_range(1..3)).map(|_| RegisterTileCase {
            rows: match rng.random_range(0..3) {
                0 => [1, rng.random_range(1..41)],
                1 => [rng.random_range(1..4), rng.random_range(2..18)],
                _ => [1, rng.random_range(48..97)],
            },
            gap: rng.random_range(0..2),
            blocks: rng.random_range(1..4),
        });
        let tiles = tiles.collect();

        let columns = match rng.random_range(0..3) {
            0 => [rng.random_range(1..4), 16],
            1 => [1, rng.random_range(1..97)],
            _ => [rng.random_range(1..3), rng.random_range(1..18)],
        };
        Self {
            types: rng.random_range(0..TYPES.len()),
            tiles,
            columns,
            column_blocks: rng.random_range(1..4),
            outer_loops: (0..rng.random_range(0..3)).map(|_| rng.random_range(1..4)).collect(),
            words: rng.random_range(1..17),
            column_loop: rng.random_range(0..3),
            are_rows_inside: rng.random(),
        }
    }

    /// Returns the number of words that one part of a row of data has.
    fn part_words(&self) -> usize {
        self.outer_loops.iter().product::<usize>() * self.words
    }

    /// Returns the program. Its operands are those of a matrix product, of which it interprets the
    /// weights as packed.
    fn program(&self) -> Program {
        let (types, _, steps, parts) = TYPES[self.types];
        // Low parts follow the high parts along the reduction axis.
        let words = parts * self.part_words();
        let rows: usize = self.tiles.iter().map(|tile| tile.blocks * tile.spanned()).sum();
        let columns = self.columns[0] * self.columns[1];
        let text = format!("matmul:m={rows},n={},k={},{types}", columns * self.column_blocks, words * steps);
        let (workload, target) = (text.parse().unwrap(), Target::Cpu(CpuTarget::generic_avx2(1)));
        let mut program = lower(&workload, &target, &ScheduleSpace::new(&workload, &target).default_config()).unwrap();

        let weights = program.find(Role::Operand(1)).unwrap();
        program.buffers[weights.0 as usize].shape = vec![self.column_blocks, words, columns, steps];
        program.buffers.retain(|buffer| buffer.scope == Scope::Global && buffer.role != Role::Packed);
        program.vars.clear();
        program.stages.truncate(1);
        program.stages[0].when = When::EveryRun;
        program.stages[0].body.clear();

        let mut first = 0;
        for tile in &self.tiles {
            let tree = self.tree(&mut program, tile, first);
            program.stages[0].body.push(tree);
            first += tile.blocks * tile.spanned();
        }
        program
    }

    /// Returns the loops over the register tiles whose rows begin at `first`.
    fn tree(&self, program: &mut Program, tile: &RegisterTileCase, first: usize) -> Node {
        let [block, column_block] = ["b", "cb"].map(|name| new_var(program, name));
        let at = SumLoops::new(program, tile.rows, self.columns);
        let [y, x, column, lane] = at.vars();
        let row = Affine::var(block) * tile.spanned() as i64 + y * (tile.rows[1] + tile.gap) as i64 + x + first as i64;
        let column = column * self.columns[1] as i64 + lane;
        let call = self.call(program, &at, [row.clone(), Affine::var(column_block), column.clone()]);

        let output = program.find(Role::Output).unwrap();
        let output_column = Affine::var(column_block) * (self.columns[0] * self.columns[1]) as i64 + column;
        let stored = |row: Affine, value: Expr| {
            let dst = Access { buffer: output, index: [Affine::default(), row, output_column.clone()].into() };
            at.for_all(store(dst, StoreMode::Assign, value))
        };
        let mut body = vec![call];
        if tile.gap > 0 {
            // Also the rows between those of the tile.
            body.push(stored(row.clone() + tile.gap as i64, Expr::Const(0.0)));
        }
        body.push(stored(row, Expr::Load(at.sum())));

        let alloc = Node::Alloc { buffer: at.sums, body };
        let mut loops = [(column_block, self.column_blocks), (block, tile.blocks)];
        if self.are_rows_inside {
            loops.swap(0, 1);
        }
        let [inner, outer] = loops;
        repeat(outer, LoopKind::Parallel, repeat(inner, LoopKind::Serial, alloc))
    }

    /// Returns the product for a row of data, and a block and a column of weights.
    fn call(&self, program: &mut Program, at: &SumLoops, [row, column_block, column]: [Affine; 3]) -> Node {
        let (_, instruction, steps, parts) = TYPES[self.types];
        let around: Vec<(VarId, usize)> =
            self.outer_loops.iter().map(|&extent| (new_var(program, "k"), extent)).collect();
        let [word, step] = ["u", "s"].map(|name| new_var(program, name));
        let first_word =
            around.iter().fold(Affine::default(), |at, &(var, extent)| at * extent as i64 + Affine::var(var));
        let word_of = first_word * self.words as i64 + Affine::var(word);

        let load = |role: Role, index: &[Affine]| {
            let buffer = program.find(role).unwrap();
            Expr::Load(Access { buffer, index: index.iter().cloned().collect() })
        };
        let factors = |part: usize| {
            let word = word_of.clone() + (part * self.part_words()) as i64;
            let element = word.clone() * steps as i64 + Affine::var(step);
            let data = load(Role::Operand(0), &[Affine::default(), row.clone(), element]);
            [data, load(Role::Operand(1), &[column_block.clone(), word, column.clone(), Affine::var(step)])]
        };
        let value = match (factors(0), parts) {
            ([data, weights], 1) => Expr::product(data, weights),
            (high, _) => Expr::split_product(high, factors(1)),
        };
        let added = store(at.sum(), StoreMode::Accumulate, value);

        let mut loops = at.outer.to_vec();
        loops[self.column_loop..].rotate_right(1);
        loops.extend([(word, self.words), (step, steps)]);
        let lanes = repeat(at.lane, LoopKind::Vectorized, Node::Store(added));
        let unrolled = loops.into_iter().rev().fold(lanes, |node, l| repeat(l, LoopKind::Unrolled, node));
        let product = around.into_iter().rev().fold(unrolled, |node, l| repeat(l, LoopKind::Serial, node));
        let clear = at.for_all(store(at.sum(), StoreMode::Assign, Expr::Const(0.0)));
        Node::Call { instruction, body: vec![clear, product] }
    }

    /// Returns operands whose products and sums are exact.
    fn operands(&self, program: &Program, seed: u64) -> Operands {
        let mut operands = Operands::random(&program.spec, seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let dtypes = [0, 1].map(|number| program.spec.tensors[number].dtype);
        for (tensor, dtype) in operands.iter_mut().zip(dtypes) {
            let range = match dtype {
                DType::U8 => 0..256,
                DType::I8 => -128..128,
                _ => -16..17,
            };
            tensor.iter_mut().for_each(|x| *x = rng.random_range(range.clone()) as f32);
        }
        operands
    }
}

/// Sums of a register tile, and the loops over them.
struct SumLoops {
    sums: BufferId,
    /// Two loops over rows, and one over columns.
    outer: [(VarId, usize); 3],
    lane: (VarId, usize),
}

impl SumLoops {
    fn new(program: &mut Program, [outer, inner]: [usize; 2], [columns, lanes]: [usize; 2]) -> Self {
        let sums = BufferId(program.buffers.len() as u32);
        let dtype = program.dtype(program.find(Role::Operand(0)).unwrap()).accumulator();
        let shape = vec![outer, inner, columns, lanes];
        program.buffers.push(Buffer::plain(format!("sums{}", sums.0), Role::Accumulator, Scope::Local, shape, dtype));
        let outer = [("y", outer), ("x", inner), ("c", columns)].map(|(name, extent)| (new_var(program, name), extent));
        Self { sums, outer, lane: (new_var(program, "v"), lanes) }
    }

    fn vars(&self) -> [Affine; 4] {
        let [y, x, column] = self.outer;
        [y, x, column, self.lane].map(|(var, _)| Affine::var(var))
    }

    fn sum(&self) -> Access {
        Access { buffer: self.sums, index: self.vars().into() }
    }

    /// Returns the loops over all sums with this statement.
    fn for_all(&self, store: Store) -> Node {
        let lanes = repeat(self.lane, LoopKind::Vectorized, Node::Store(store));
        self.outer.iter().rev().fold(lanes, |node, &l| repeat(l, LoopKind::Unrolled, node))
    }
}

fn new_var(program: &mut Program, name: &str) -> VarId {
    program.vars.push(format!("{name}{}", program.vars.len()).into());
    VarId(program.vars.len() as u32 - 1)
}

fn store(dst: Access, mode: StoreMode, value: Expr) -> Store {
    Store { dst, mode, value, iteration: None }
}

fn repeat((var, extent): (VarId, usize), kind: LoopKind, body: Node) -> Node {
    Node::Loop(Loop { var, extent, kind, body: vec![body] })
}

/// Checks that the instructions of a program compute their nests.
fn check_calls(program: &Program) {
    let site = CallSite { program, grid: None, extent: &|_| 1 };
    for node in preorder(&program.stages[0].body) {
        if let Node::Call { instruction, body } = node {
            assert_eq!(instruction.check(body, &site), Ok(()), "{program}");
        }
    }
}

#[test]
fn products_of_tiles_agree_with_the_interpreter() {
    for (isa, set) in SETS {
        for_cases(if set.tiles { 100 } else { 25 }, |seed, rng| {
            let case = TileCase::random(rng);
            let program = case.program();
            check_calls(&program);
            let assembled = generate(&program, StepRecorder::new(set));
            let (code, entries) = assembled.unwrap_or_else(|error| panic!("{error}: {case:?}, {isa} {set:?}"));
            let operands = case.operands(&program, seed);
            let output = run(&program, (&code, &entries), &operands);
            let wrong = difference(&output, &interpret(&program, &operands).unwrap());
            assert_eq!(wrong, None, "{case:?}, {isa} {set:?}\n{program}");
        });
    }
}

#[test]
fn code_of_tiles_agrees_with_the_interpreter() {
    let features = vec!["amx".into()];
    let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, features, ..CpuTarget::generic_avx2(1) });
    for_cases(150, |seed, rng| {
        let case = TileCase::random(rng);
        let program = case.program();
        let code = assemble(&program, &target).unwrap_or_else(|error| panic!("{error}: {case:?}"));

        let operands = case.operands(&program, seed);
        let output = run_on(&program, &operands, |memory, runs| {
            let mut emulator = Emulator::new(&code, memory);
            runs.iter().for_each(|&(stage, tasks)| emulator.run(stage, tasks));
            emulator.memory()
        });
        let wrong = difference(&output, &interpret(&program, &operands).unwrap());
        assert_eq!(wrong, None, "{case:?}\n{}", disassemble(&code));
    });
}
