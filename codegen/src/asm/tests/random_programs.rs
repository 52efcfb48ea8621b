//! Random programs on instruction sets of other sizes than x86 has: lowered programs, and programs
//! that read what they have just written.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use autotune_ir::layout::{from_layout, to_layout};
use autotune_ir::plan::PlanBuffer;
use autotune_ir::program::{Access, Expr, Loop, LoopKind, Node, Role, Store, StoreMode, UnaryOp, When};
use autotune_ir::{Affine, CpuTarget, Isa, KernelPlan, Program, Target, VarId, interpret};
use autotune_schedules::{EXACT_TOLERANCE, KnobValue, ScheduleSpace, lower, tolerance};
use autotune_workloads::{Operands, Workload, max_rel_error};
use rand::{Rng, RngExt};

use super::simulator::{Machine, Recorded, SETS, SimulatedSet, StepRecorder};
use crate::asm::{AssembleError, generate};

#[path = "../../../../workloads/tests/common/cases.rs"]
#[allow(dead_code, unreachable_pub)]
pub(super) mod cases;

#[path = "../../../../workloads/tests/common/epilogues.rs"]
#[allow(dead_code, unreachable_pub)]
mod epilogues;

#[path = "../../../../workloads/tests/common/workloads.rs"]
#[allow(dead_code, unreachable_pub)]
mod workloads;

#[path = "../../../../schedules/tests/common/spaces.rs"]
#[allow(dead_code, unreachable_pub)]
mod spaces;

#[path = "../../../../schedules/tests/common/maps.rs"]
#[allow(dead_code, unreachable_pub)]
pub(super) mod maps;

/// Returns a program's output on a simulated machine.
pub(super) fn run(
    program: &Program,
    (code, entries): (&Recorded, &[usize]),
    operands: &Operands,
) -> ndarray::ArrayD<f32> {
    run_on(program, operands, |memory, runs| {
        let mut machine = Machine::new(code, memory);
        runs.iter().for_each(|&(stage, tasks)| machine.run(code, entries[stage], tasks));
        machine.memory
    })
}

/// Returns a program's output. `execute` runs ranges of tasks of stages on the buffers, the last of
/// which is thread-private memory. The tasks of each stage run in several parts.
pub(super) fn run_on(
    program: &Program,
    operands: &Operands,
    execute: impl FnOnce(Vec<Vec<u8>>, &[(usize, [i64; 2])]) -> Vec<Vec<u8>>,
) -> ndarray::ArrayD<f32> {
    let plan = KernelPlan::of(program);
    // Undefined bytes have all bits set, which is NaN in types that have one.
    let content = |buffer: &PlanBuffer| {
        let bytes = buffer.bytes().unwrap();
        let content = operands.find(buffer.role).map(|tensor| to_layout(tensor, buffer.layout).unwrap());
        let words = content.map(|content| buffer.dtype.words(&content));
        let known = words.map(|words| words.into_iter().flat_map(u32::to_le_bytes).take(bytes).collect());
        known.unwrap_or_else(|| vec![u8::MAX; bytes])
    };
    let mut memory: Vec<Vec<u8>> = plan.buffers.iter().map(content).collect();
    memory.push(vec![u8::MAX; plan.local_bytes]);

    let mut runs = Vec::new();
    for when in [When::AheadOfTime, When::EveryRun] {
        for (number, stage) in plan.stages.iter().enumerate().filter(|(_, stage)| stage.when == when) {
            let (tasks, split) = (stage.tasks as i64, stage.tasks as i64 / 3);
            runs.extend([[split, tasks], [split, split], [0, split]].map(|tasks| (number, tasks)));
        }
    }
    let memory = execute(memory, &runs);

    let output = program.find(Role::Output).unwrap();
    let (layout, dtype) = (program.buffer(output).layout, program.dtype(output));
    let bytes = &memory[output.0 as usize];
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    let words: Vec<u32> = bytes.chunks(4).map(word).collect();
    let content = dtype.values(&words, bytes.len() / dtype.bytes());
    from_layout(&content, &program.spec.find(Role::Output).unwrap().shape, layout).unwrap()
}

#[test]
fn random_programs_agree_with_the_interpreter() {
    for (isa, set) in SETS {
        let (run_ones, too_large) = (Cell::new(0), Cell::new(0));
        let count = |counter: &Cell<u32>| counter.set(counter.get() + 1);
        cases::for_cases(48, |seed, choices| {
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 2) });
            let (workload, panel) = match seed % 3 {
                0 => (workloads::random_winograd(choices, target.cpu().unwrap().lanes()), None),
                1 => (workloads::random_workload(choices), None),
                _ => {
                    let (workload, panel) = spaces::random_panel(&target, choices);
                    (workload, Some(panel))
                }
            };
            if workload.flops() > 5e5 {
                return;
            }

            let space = ScheduleSpace::new(&workload, &target);
            for config in [space.default_config(), space.sample(choices).config().clone()].into_iter().chain(panel) {
                let mut program = lower(&workload, &target, &config).unwrap();
                program
                    .buffers
                    .iter_mut()
                    .filter(|it| it.role == Role::Output)
                    .for_each(|it| it.streamed = choices.random());
                let context = format!("{set:?}: {workload}\n{config}");
                let (code, entries) = match generate(&program, StepRecorder::new(set)) {
                    Ok(assembled) => assembled,
                    Err(failure) => {
                        let of_registers = AssembleError::RegisterTile { needed: 0, available: 0 };
                        let of_pointers = AssembleError::Pointers { needed: 0, available: 0 };
                        let same = |one| std::mem::discriminant(&one) == std::mem::discriminant(&*failure);
                        // A set with fewer lanes than its programs assume splits rows across
                        // registers, and such rows are not reduced horizontally.
                        let is_split = usize::from(set.lanes) < target.cpu().unwrap().lanes();
                        let is_folded = is_split && matches!(*failure, AssembleError::RegisterIndex { .. });
                        assert!(same(of_registers) || same(of_pointers) || is_folded, "{failure}, {context}");
                        count(&too_large);
                        continue;
                    }
                };

                let operands = Operands::random(&program.spec, seed);
                let output = catch_unwind(AssertUnwindSafe(|| run(&program, (&code, &entries), &operands)));
                let output = output.unwrap_or_else(|_| panic!("{context}\n{program}"));
                let error = max_rel_error(&output, &interpret(&program, &operands).unwrap());
                assert!(error <= tolerance(&workload, &config), "{context}\nerror {error}\n{program}");
                count(&run_ones);
            }
        });
        let (run_ones, too_large) = (run_ones.get(), too_large.get());
        assert!(run_ones > 60 && run_ones > 4 * too_large, "{set:?}: {run_ones} programs, {too_large} too large");
        eprintln!("{set:?}: {run_ones} programs, {too_large} too large");
    }
}

/// Checks the default schedule of a workload on sets with many registers; returns its program.
fn agrees(text: &str, target: &Target, seed: u64) -> Program {
    agrees_on(|_, set| set.registers > 28, text, target, seed)
}

/// Checks the default schedule of a workload on the selected sets; returns its program.
fn agrees_on(is_used: impl Fn(Isa, &SimulatedSet) -> bool, text: &str, target: &Target, seed: u64) -> Program {
    let workload = text.parse().unwrap();
    let config = ScheduleSpace::new(&workload, target).default_config();
    let program = lower(&workload, target, &config).unwrap();
    let operands = Operands::random(&program.spec, seed);
    let wanted = interpret(&program, &operands).unwrap();

    for (_, set) in SETS.into_iter().filter(|(isa, set)| is_used(*isa, set)) {
        let (code, entries) =
            generate(&program, StepRecorder::new(set)).unwrap_or_else(|error| panic!("{text}: {error}"));
        let error = max_rel_error(&run(&program, (&code, &entries), &operands), &wanted);
        assert!(error <= tolerance(&workload, &config), "{text}, {set:?}\n{config}\nerror {error}\n{program}");
    }
    program
}

/// Operators on bf16, and on bf16 and f32: elements are widened by loads and rounded by stores.
#[test]
fn operators_of_bf16_agree_with_the_interpreter() {
    const OPERATORS: [&str; 12] = [
        "softmax:m=5,n=37",
        "layer_norm:m=3,n=40",
        "pool2d:c=16,h=9,w=7,k=3,s=2,p=1,kind=max",
        "pool2d:c=5,h=6,w=7,k=3,p=1,kind=avg",
        "pointwise:m=3,n=29,op=gelu,add",
        "transpose:m=19,n=21",
        "reduce:m=7,n=33,op=max",
        "gather:m=9,n=21,k=5",
        "resize:c=3,h=5,w=7,oh=13,ow=19,mode=linear",
        "pad:c=3,h=5,w=9,p=2,mode=reflect",
        "attention:b=2,m=5,n=7,k=8",
        "conv2d:c=16,h=7,w=6,o=16,k=3,s=2,p=1,g=16,bias,act=relu",
    ];
    for isa in [Isa::Neon, Isa::Avx2] {
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) });
        for (seed, text) in (0..).zip(OPERATORS) {
            for types in ["dtype=bf16", "data=bf16,out=f32", "data=f32,out=bf16"] {
                agrees_on(|of, _| of == isa, &format!("{text},{types}"), &target, seed);
            }
        }
    }
}

/// Dot products of bf16, by an instruction where a set has it, else by their loop nest.
#[test]
fn dot_products_agree_with_the_interpreter() {
    let features = vec!["avx512bf16".into()];
    let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, features, ..CpuTarget::generic_avx2(1) });
    for (number, text) in [
        "matmul:m=3,n=21,k=24,dtype=bf16,out=f32,bias",
        "matmul:m=2,n=16,k=6,dtype=bf16,act=relu",
        "matmul:b=2,m=3,n=20,k=8,dtype=bf16,out=f32,weights=constant",
        "conv2d:c=16,h=5,w=4,o=16,k=3,p=1,dtype=bf16,out=f32",
        "conv2d:c=3,h=5,w=7,o=16,k=3,s=2,p=1,dtype=bf16",
        "conv2d:c=6,h=3,w=8,o=3,k=3,p=1,dtype=bf16,out=f32",
    ]
    .into_iter()
    .enumerate()
    {
        let program = agrees(text, &target, number as u64);
        assert!(program.to_string().contains("call vdpbf16ps"), "{program}");
    }
}

/// Dot products of integers, by instructions where a set has them, else by their loop nests.
#[test]
fn dot_products_of_integers_agree_with_the_interpreter() {
    for (features, texts) in [
        (
            "avx512vnni",
            [
                "matmul:m=3,n=21,k=24,data=u8,weights=i8,out=u8,scale,bias",
                "matmul:m=2,n=16,k=6,data=i8,weights=i8,act=relu",
                "conv2d:c=16,h=5,w=4,o=16,k=3,p=1,data=u8,weights=i8,out=i8,bias,scale,add",
                "conv2d:c=5,h=5,w=7,o=16,k=3,s=2,p=1,data=u8,weights=i8,out=u8,scale",
                "conv2d:c=3,h=3,w=8,o=3,k=3,p=1,data=i8,weights=i8,out=i8,scale",
            ],
        ),
        (
            "",
            [
                "matmul:m=3,n=21,k=7,data=u8,weights=i8,out=u8,scale,bias",
                "matmul:m=2,n=16,k=6,data=u8,weights=u8,out=f32,scale",
                "conv2d:c=16,h=5,w=4,o=16,k=3,p=1,data=u8,weights=i8,out=bf16,scale",
                "conv2d:c=3,h=3,w=8,o=3,k=3,p=1,data=u8,weights=u8,out=f32,scale",
                "conv2d:c=5,h=5,w=9,o=16,k=3,s=2,data=i8,weights=i8,out=u8,scale",
            ],
        ),
    ] {
        let features: Vec<String> = features.split_whitespace().map(Into::into).collect();
        let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, features, ..CpuTarget::generic_avx2(1) });

        for (number, text) in texts.into_iter().enumerate() {
            agrees(text, &target, number as u64);
        }
    }
}

/// Elements of a group in the programs that read what they have written.
const GROUP: usize = 12;
/// Groups of a buffer.
const GROUPS: usize = 8;

/// Returns a program that stores `0.5 * input` for `GROUPS` groups, then runs statements twice that
/// read and write groups of the output.
fn random_overwrites<R: Rng>(rng: &mut R) -> Program {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    let elements = GROUP * GROUPS;
    let workload = format!("matmul:m=1,n={elements},k={elements}").parse().unwrap();
    let config = ScheduleSpace::new(&workload, &target).default_config();
    let mut program = lower(&workload, &target, &config).unwrap();
    program.vars = ["x", "twice", "once"].map(Into::into).to_vec();
    let [x, twice, once] = [VarId(0), VarId(1), VarId(2)];

    let halved = Expr::product(Expr::Const(0.5), load(&program, Role::Operand(0), Affine::var(x)));
    let first =
        repeat(x, elements, LoopKind::Vectorized, vec![store(&program, Affine::var(x), StoreMode::Assign, halved)]);
    let mut body = Vec::new();
    for _ in 0..10 {
        // Whole groups are read and written lane by lane. Elements of other groups are broadcast.
        let extent = [1, 5, GROUP][rng.random_range(0..3)];
        let (group, step) = (rng.random_range(0..GROUPS - 1), rng.random_range(0..2));
        let at = |group: usize, step: i64, lane: Affine| {
            Affine::var(twice) * (step * GROUP as i64) + lane + (group * GROUP) as i64
        };
        let lane = || Affine::var(x);
        let operand = |rng: &mut R| {
            let role = if rng.random_bool(0.8) { Role::Output } else { Role::Operand(0) };
            if rng.random_bool(0.3) {
                let other = (group + rng.random_range(1..GROUPS - 1)) % (GROUPS - 1);
                return load(&program, role, at(other, step, Affine::constant(rng.random_range(0..GROUP as i64))));
            }
            load(&program, role, at(rng.random_range(0..GROUPS - 1), rng.random_range(0..2), lane()))
        };
        let (a, b) = (operand(rng), operand(rng));
        let value = match rng.random_range(0..4) {
            0 => a,
            1 => Expr::max(a, b),
            2 => Expr::sum(Expr::unary(UnaryOp::Abs, a), b),
            _ => Expr::sum(a, Expr::product(Expr::Const(0.5), b)),
        };
        let mode = if rng.random_bool(0.3) { StoreMode::Accumulate } else { StoreMode::Assign };
        let statement = store(&program, at(group, step, lane()), mode, value);
        body.push(repeat(x, extent, LoopKind::Vectorized, vec![statement]));
    }
    program.stages.truncate(1);
    program.stages[0].when = When::EveryRun;
    program.stages[0].body =
        vec![repeat(once, 1, LoopKind::Serial, vec![first, repeat(twice, 2, LoopKind::Serial, body)])];
    program
}

fn access(program: &Program, role: Role, offset: Affine) -> Access {
    let buffer = program.find(role).unwrap();
    let mut index = vec![Affine::default(); program.buffer(buffer).shape.len()];
    *index.last_mut().unwrap() = offset;
    Access { buffer, index: index.into() }
}

fn load(program: &Program, role: Role, offset: Affine) -> Expr {
    Expr::Load(access(program, role, offset))
}

fn store(program: &Program, offset: Affine, mode: StoreMode, value: Expr) -> Node {
    Node::Store(Store { dst: access(program, Role::Output, offset), mode, value, iteration: None })
}

fn repeat(var: VarId, extent: usize, kind: LoopKind, body: Vec<Node>) -> Node {
    Node::Loop(Loop { var, extent, kind, body })
}

#[test]
fn elements_of_16_bits_agree_with_the_interpreter_bit_for_bit() {
    for (isa, set) in SETS {
        let target = Target::Cpu(CpuTarget { isa, l2_bytes: 1 << 8, ..CpuTarget::generic_avx2(1) });
        cases::for_cases(60, |seed, choices| {
            let [m, n] = [choices.random_range(1..5), choices.random_range(1..60)];
            let op = ["op=copy", "op=relu", "op=add,rhs=column", "op=exp", "op=mul,lhs=row,bias"][seed as usize % 5];
            let to = ["f16", "bf16", "f32"][choices.random_range(0..3)];
            let dtype = ["", ",dtype=f16", ",dtype=bf16"][seed as usize / 10 % 3];
            let workload: Workload = format!("pointwise:m={m},n={n},{op},to={to}{dtype}").parse().unwrap();
            let config = ScheduleSpace::new(&workload, &target).sample(choices).config().clone();
            let mut program = lower(&workload, &target, &config).unwrap();
            for buffer in program.buffers.iter_mut().filter(|buffer| buffer.role == Role::Output) {
                buffer.streamed = choices.random();
            }
            let context = format!("{set:?}: {workload}\n{config}\n{program}");
            let (code, entries) =
                generate(&program, StepRecorder::new(set)).unwrap_or_else(|e| panic!("{e}: {context}"));
            let operands = maps::operands(&program, seed);
            let output = run(&program, (&code, &entries), &operands);
            let wrong = maps::difference(&output, &interpret(&program, &operands).unwrap());
            assert_eq!(wrong, None, "{context}");
        });
    }
}

#[test]
fn lanes_of_rows_are_folded_together() {
    let is_of_isa = |(isa, set): &(Isa, SimulatedSet)| {
        let target = CpuTarget { isa: *isa, ..CpuTarget::generic_avx2(1) };
        target.lanes() == usize::from(set.lanes)
    };
    for (isa, set) in SETS.into_iter().filter(is_of_isa) {
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) });
        for (text, rows) in
            ["reduce:m=9,n=41,op=sum", "reduce:m=9,n=41,op=max", "reduce:m=9,n=41,op=prod", "softmax:m=9,n=41"]
                .into_iter()
                .flat_map(|text| [2, 3, 4, 6].map(|rows| (text, rows)))
        {
            let workload: Workload = text.parse().unwrap();
            let mut config = ScheduleSpace::new(&workload, &target).default_config();
            config.knobs.insert("tile.m".into(), KnobValue::Tile(vec![rows]));
            config.knobs.insert("vector".into(), KnobValue::Choice("n".into()));
            let program = lower(&workload, &target, &config).unwrap();
            let context = format!("{set:?}: {workload}\n{config}\n{program}");
            assert!(program.to_string().contains("folded"), "{context}");

            let (code, entries) =
                generate(&program, StepRecorder::new(set)).unwrap_or_else(|e| panic!("{e}: {context}"));
            let operands = Operands::random(&program.spec, rows as u64);
            let output = run(&program, (&code, &entries), &operands);
            let error = max_rel_error(&output, &interpret(&program, &operands).unwrap());
            assert!(error <= tolerance(&workload, &config), "error {error}, {context}");
        }
    }
}

#[test]
fn overwritten_elements_are_read_again() {
    for (_, set) in SETS {
        cases::for_cases(150, |seed, choices| {
            let program = random_overwrites(choices);
            let (code, entries) = generate(&program, StepRecorder::new(set)).unwrap();
            let operands = Operands::random(&program.spec, seed);
            let output = run(&program, (&code, &entries), &operands);
            let error = max_rel_error(&output, &interpret(&program, &operands).unwrap());
            assert!(error <= EXACT_TOLERANCE, "{set:?}: error {error}\n{program}");
        });
    }
}

#[test]
fn random_maps_agree_with_the_interpreter_bit_for_bit() {
    for (isa, set) in SETS {
        let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) });
        cases::for_cases(60, |seed, rng| {
            let count = rng.random_range(1..4);
            let values: Vec<Expr> = (0..count).map(|_| maps::random_value(rng, 1 + seed as usize % 4)).collect();
            let extents = [rng.random_range(1..4), rng.random_range(1..36)];
            let program = maps::mapped(&target, &values, extents, [LoopKind::Parallel, LoopKind::Vectorized]);
            let (code, entries) = generate(&program, StepRecorder::new(set)).unwrap();
            let operands = maps::operands(&program, seed);
            let output = run(&program, (&code, &entries), &operands);
            let wrong = maps::difference(&output, &interpret(&program, &operands).unwrap());
            assert_eq!(wrong, None, "{set:?}\n{program}");
        });
    }
}
