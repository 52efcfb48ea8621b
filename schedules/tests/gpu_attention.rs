//! Attention on GPUs: by matrix instructions of warps, and chunks of keys that a causal mask hides.
//!
//! Without a compiler, these tests print a notice and pass; `AUTOTUNE_REQUIRE=g++,nvrtc` makes that
//! a failure.

#![cfg(unix)]

use std::cell::RefCell;

use autotune_codegen as codegen;
use autotune_ir::analyse::analyse;
use autotune_ir::instruction::MMA;
use autotune_ir::program::{
    Access, Buffer, BufferId, Expr, InBounds, Node, Program, Scope, Store, StoreMode, UnaryOp, preorder,
};
use autotune_ir::{DType, GpuApi, InterpError, Problem, ProgramError, Target, interpret, verify};
use autotune_schedules::{Config, KnobValue, ScheduleSpace, fused, lower, tolerance};
use autotune_workloads::{AttentionWorkload, Operands, Workload, max_rel_error, reference};
use ndarray::ArrayD;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::cases::for_cases;
use crate::common::cuda_on_cpu::OnCpu;
use crate::common::nvrtc::Nvrtc;
use crate::common::opencl::OpenCl;
use crate::common::random_programs::check_configs;
use crate::common::workloads::random_attention;
use crate::common::{missing, or_long};

/// Name of the sketch with matrix instructions.
const MATRIX: &str = "fused_mma";

fn cuda() -> Target {
    Target::detect("cuda:sm_80", None).unwrap()
}

/// Returns the config of attention by matrix instructions with these knobs.
fn matrix_config(rows: [usize; 2], keys: usize, stages: usize) -> Config {
    let knobs = [
        ("tile.m", KnobValue::Tile(rows.to_vec())),
        ("tile.n", KnobValue::Tile(vec![keys])),
        ("stages", KnobValue::Choice(stages.to_string())),
    ];
    Config { sketch: MATRIX.into(), knobs: knobs.into_iter().map(|(name, value)| (name.into(), value)).collect() }
}

/// Several heads and masks; tails of queries, keys, elements and columns; rows that are not whole
/// copies; causal masks with more keys than queries; one chunk, and fewer chunks than stages.
const CASES: [(&str, [usize; 2], usize, usize); 12] = [
    ("attention:b=2,m=37,n=53,k=16,dtype=f16", [32, 16], 16, 2),
    ("attention:b=2,m=64,n=64,k=64,dtype=bf16", [64, 32], 32, 2),
    ("attention:b=3,m=16,n=70,k=20,d=12,causal,bias,act=relu,dtype=f16", [16, 16], 32, 3),
    ("attention:b=2,m=50,n=50,k=16,causal,dtype=f16", [32, 16], 16, 2),
    ("attention:m=70,n=70,k=8,d=24,causal,dtype=bf16", [16, 16], 16, 4),
    ("attention:b=2,h=3,m=9,n=40,k=8,mask=rows,dtype=f16", [16, 16], 16, 2),
    ("attention:b=2,m=12,n=33,k=8,d=5,mask=matrices,causal,dtype=f16", [16, 16], 32, 2),
    ("attention:m=40,n=40,k=7,mask=matrix,add,dtype=bf16", [32, 32], 16, 2),
    ("attention:b=2,m=8,n=65,k=32,mask=row,dtype=f16", [16, 16], 48, 3),
    ("attention:b=2,m=20,n=12,k=48,d=40,dtype=f16", [32, 16], 16, 2),
    ("attention:m=33,n=90,k=24,d=16,causal,dtype=f16", [32, 16], 16, 3),
    ("attention:b=2,m=8,n=2,k=2,d=2,dtype=bf16", [16, 16], 16, 2),
];

fn cases() -> impl Iterator<Item = (Workload, Config)> {
    CASES.iter().map(|&(text, rows, keys, stages)| (text.parse().unwrap(), matrix_config(rows, keys, stages)))
}

#[test]
fn matrix_programs_are_proven_and_agree_with_the_reference() {
    for (seed, (workload, config)) in (0..).zip(cases()) {
        let program = lower(&workload, &cuda(), &config).unwrap();
        verify(&program, &cuda()).unwrap_or_else(|e| panic!("{workload} {config}\n{e}\n{program}"));
        let operands = Operands::random(workload.spec(), seed);
        let output = interpret(&program, &operands).unwrap_or_else(|e| panic!("{workload} {config}\n{e}\n{program}"));
        let error = max_rel_error(&output, &reference(&workload, &operands));
        assert!(error <= tolerance(&workload, &config), "{workload} {config}\nerror {error}\n{program}");
    }
}

#[test]
fn matrix_programs_as_cuda_agree_with_the_reference() {
    let all: Vec<(Workload, Config)> = cases().collect();
    let programs = all.iter().map(|(workload, config)| lower(workload, &cuda(), config).unwrap()).collect();
    let built = match OnCpu::build(programs, |_, text| text) {
        Ok(built) => built,
        Err(reason) => return missing("g++", &reason),
    };
    for (number, (workload, config)) in all.iter().enumerate() {
        let operands = Operands::random(workload.spec(), number as u64);
        let expected = reference(workload, &operands);
        for backwards in [false, true] {
            let output = built.run(number, &operands, backwards).unwrap_or_else(|e| panic!("{workload} {config}: {e}"));
            let error = max_rel_error(&output, &expected);
            assert!(error <= tolerance(workload, config), "{workload} {config}: error {error}");
        }
    }
}

/// Random shapes, masks, types and schedules of the whole space, in which both forms are.
#[test]
fn random_attention_is_proven_and_agrees_with_the_reference() {
    let target = cuda();
    let met = RefCell::new([0; 2]);
    for_cases(or_long([12, 120]), |seed, choices| {
        let plain = random_attention(choices);
        let m = plain.m.max(8);
        let plain = AttentionWorkload { m, n: plain.n.max(if plain.causal { m } else { 2 }), ..plain };
        let dtype = [DType::F16, DType::Bf16][choices.random_range(0..2)];
        let workload = Workload::new(plain).unwrap().with_dtype(dtype).unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let drawn: Vec<Config> = (0..3).map(|_| space.sample(choices).config().clone()).collect();
        drawn.iter().for_each(|config| met.borrow_mut()[usize::from(config.sketch == MATRIX)] += 1);
        check_configs(&space, seed, drawn);
    });
    assert!(met.borrow().iter().all(|&count| count > 0), "{met:?}");
}

/// Both sketches are offered in types that matrix instructions multiply, and the default is by
/// them.
#[test]
fn defaults_use_matrix_instructions_where_they_apply() {
    let names = |text: &str, target: &str| {
        let space = ScheduleSpace::new(&text.parse().unwrap(), &Target::detect(target, None).unwrap());
        let names: Vec<&str> = space.sketches().iter().map(|sketch| sketch.name()).collect();
        (names, space.default_config().sketch)
    };
    let both = vec![MATRIX, fused::SKETCH];
    for text in ["attention:b=12,m=512,n=512,k=64,dtype=f16", "attention:b=4,m=300,n=300,k=128,causal,dtype=bf16"] {
        assert_eq!(names(text, "cuda:sm_80"), (both.clone(), MATRIX.into()), "{text}");
    }
    for (text, target) in [
        ("attention:b=12,m=512,n=512,k=64", "cuda:sm_80"),
        ("attention:b=12,m=512,n=512,k=64,dtype=f16", "cuda:sm_70"),
        ("attention:b=12,m=4,n=512,k=64,dtype=f16", "cuda:sm_80"),
        ("attention:b=2,m=64,n=64,k=64,d=1024,dtype=f16", "cuda:sm_80"),
        ("mlp:m=197,k=768,h=3072,n=768,dtype=f16", "cuda:sm_80"),
    ] {
        assert_eq!(names(text, target).0, [fused::SKETCH], "{text}");
    }
}

#[test]
fn refusals_of_matrix_configs_name_the_knob() {
    let workload: Workload = CASES[0].0.parse().unwrap();
    let refused = |rows: [usize; 2], keys: usize, stages: usize| {
        lower(&workload, &cuda(), &matrix_config(rows, keys, stages)).unwrap_err().to_string()
    };
    assert!(refused([32, 24], 16, 2).starts_with("knob 'tile.m'"), "{}", refused([32, 24], 16, 2));
    assert!(refused([16, 0], 16, 2).starts_with("knob 'tile.m'"));
    assert!(refused([16, 16], 20, 2).starts_with("knob 'tile.n'"));
    assert!(refused([16, 16], 16, 1).starts_with("knob 'stages'"));
    assert!(refused([16, 16], 32, 4).starts_with("knob 'stages'"));
    assert!(refused([4096, 16], 16, 2).starts_with("knob 'tile'"));
}

/// Returns the guards around barriers: those of whole chunks of keys.
fn chunk_guards(program: &Program) -> Vec<InBounds> {
    let has_barrier = |body: &[Node]| preorder(body).any(|node| *node == Node::Barrier);
    let nodes = program.stages.iter().flat_map(|stage| preorder(&stage.body));
    let guards = nodes.filter_map(|node| match node {
        Node::Guard { when, body } if has_barrier(body) => Some(when.clone()),
        _ => None,
    });
    guards.flatten().collect()
}

fn edit_guards(nodes: &mut [Node], edit: &impl Fn(&mut Vec<InBounds>, &[Node])) {
    for node in nodes {
        if let Node::Guard { when, body } = node {
            edit(when, body);
        }
        if let Some(body) = node.body_mut() {
            edit_guards(body, edit);
        }
    }
}

/// Programs of causal attention in all forms.
fn causal_programs() -> Vec<(Workload, Target, Config, Program)> {
    let mut all = Vec::new();
    for (text, word) in [
        ("attention:b=2,m=50,n=61,k=16,causal,dtype=f16", "cuda:sm_80"),
        ("attention:b=2,m=50,n=61,k=16,causal", "cuda:sm_80"),
        ("attention:b=2,m=40,n=40,k=12,causal,bias", "opencl"),
    ] {
        let (workload, target): (Workload, _) = (text.parse().unwrap(), Target::detect(word, None).unwrap());
        let space = ScheduleSpace::new(&workload, &target);
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for _ in 0..12 {
            let config = space.sample(&mut rng).config().clone();
            let program = lower(&workload, &target, &config).unwrap();
            all.push((workload.clone(), target.clone(), config, program));
        }
    }
    all
}

/// Chunks that a causal mask hides are left out, together with the table of positions, and the
/// verifier rejects programs that leave out more.
#[test]
fn hidden_chunks_and_no_others_are_left_out() {
    let mut guarded = 0;
    for (workload, target, config, program) in causal_programs() {
        let context = format!("{workload} {config}\n{program}");
        verify(&program, &target).unwrap_or_else(|e| panic!("{context}\n{e}"));
        assert!(program.buffers.iter().all(|buffer| buffer.name != "position"), "{context}");
        if chunk_guards(&program).is_empty() {
            continue;
        }
        guarded += 1;

        // The last query of a block would lose the last key that it sees.
        let mut lost = program.clone();
        let has_barrier = |body: &[Node]| preorder(body).any(|node| *node == Node::Barrier);
        let less = |when: &mut Vec<InBounds>, body: &[Node]| {
            when.iter_mut().filter(|_| has_barrier(body)).for_each(|guard| guard.index.constant -= 1);
        };
        lost.stages.iter_mut().for_each(|stage| edit_guards(&mut stage.body, &less));
        let problem = verify(&lost, &target).unwrap_err().to_string();
        assert!(problem.contains("must not be under a condition"), "{problem}\n{context}");

        // A condition of single threads would let some of them miss a barrier.
        let Some(thread) = preorder(&program.stages[0].body).find_map(|node| match node {
            Node::Loop(l) if l.kind == autotune_ir::program::LoopKind::Thread => Some(l.var),
            _ => None,
        }) else {
            panic!("{context}")
        };
        let mut apart = program.clone();
        let by_thread = |when: &mut Vec<InBounds>, body: &[Node]| {
            let term = autotune_ir::Affine::var(thread);
            when.iter_mut().filter(|_| has_barrier(body)).for_each(|guard| guard.index.add_scaled(&term, 1));
        };
        apart.stages.iter_mut().for_each(|stage| edit_guards(&mut stage.body, &by_thread));
        let operands = Operands::random(workload.spec(), 1);
        assert!(verify(&apart, &target).is_err() && interpret(&apart, &operands).is_err(), "{context}");
    }
    assert!(guarded > 12, "{guarded}");
}

/// Skipped chunks contain barriers, which all threads of a block then skip.
#[test]
fn causal_programs_agree_with_the_reference_as_cuda_and_opencl() {
    let all = causal_programs();
    let device = OpenCl::find();
    if let Err(reason) = &device {
        missing("opencl", reason);
    }
    let on_cuda: Vec<&(Workload, Target, Config, Program)> =
        all.iter().filter(|(_, target, ..)| target.to_string().starts_with("cuda")).collect();
    let built = OnCpu::build(on_cuda.iter().map(|(.., program)| program.clone()).collect(), |_, text| text);
    if let Err(reason) = &built {
        missing("g++", reason);
    }

    let mut number = 0;
    for (workload, target, config, program) in &all {
        let operands = Operands::random(workload.spec(), 7);
        let expected = reference(workload, &operands);
        let is_right = |output: &ArrayD<f32>| {
            let error = max_rel_error(output, &expected);
            assert!(error <= tolerance(workload, config), "{workload} {config}: error {error}\n{program}");
        };
        is_right(&interpret(program, &operands).unwrap_or_else(|e| panic!("{workload} {config}\n{e}\n{program}")));
        match (target.to_string().starts_with("cuda"), &built, &device) {
            (true, Ok(built), _) => [false, true].into_iter().for_each(|backwards| {
                is_right(
                    &built.run(number, &operands, backwards).unwrap_or_else(|e| panic!("{workload} {config}: {e}")),
                );
            }),
            (false, _, Ok(device)) => is_right(&device.run(program, &operands).unwrap()),
            _ => {}
        }
        number += usize::from(target.to_string().starts_with("cuda"));
    }
}

/// With another mask, all visible scores of a row may be as small as hidden ones: nothing is left
/// out.
#[test]
fn nothing_is_left_out_next_to_another_mask() {
    let workload: Workload = "attention:b=2,m=24,n=40,k=16,causal,mask=row,dtype=f16".parse().unwrap();
    let mut operands = Operands::random(workload.spec(), 4);
    operands[3].fill(f32::NEG_INFINITY);
    // Hidden keys have the least number as their score, visible ones minus infinity.
    let expected = reference(&workload, &operands);
    assert!(expected.iter().any(|value| value.is_finite()) && expected.iter().any(|value| value.is_nan()));
    for config in [matrix_config([16, 16], 16, 2), ScheduleSpace::new(&workload, &cuda()).default_config()] {
        let program = lower(&workload, &cuda(), &config).unwrap();
        verify(&program, &cuda()).unwrap();
        assert!(chunk_guards(&program).is_empty(), "{program}");
        let output = interpret(&program, &operands).unwrap();
        let is_alike = |(a, b): (&f32, &f32)| a.is_nan() && b.is_nan() || (a - b).abs() < 2e-3;
        assert!(output.iter().zip(&expected).all(is_alike), "{config}\n{output}\n{expected}");
    }
}

/// Removes barrier number `left_out` of the first stage.
fn without_barrier(program: &Program, left_out: usize) -> Option<Program> {
    fn remove(nodes: &mut Vec<Node>, number: &mut usize, left_out: usize) {
        nodes.retain(|node| {
            *number += usize::from(*node == Node::Barrier);
            *node != Node::Barrier || *number != left_out + 1
        });
        nodes.iter_mut().filter_map(Node::body_mut).for_each(|body| remove(body, number, left_out));
    }
    let (mut broken, mut count) = (program.clone(), 0);
    remove(&mut broken.stages[0].body, &mut count, left_out);
    (count > left_out).then_some(broken)
}

/// Barriers within skipped chunks are needed, too.
#[test]
fn a_barrier_that_is_left_out_of_a_matrix_program_is_a_race() {
    for case in [0, 3] {
        let (workload, config) = cases().nth(case).unwrap();
        let program = lower(&workload, &cuda(), &config).unwrap();
        let operands = Operands::random(workload.spec(), 1);
        let broken: Vec<Program> = (0..).map_while(|number| without_barrier(&program, number)).collect();
        assert_eq!(broken.len(), 4, "{program}");
        let mut races = 0;
        for (number, broken) in broken.iter().enumerate() {
            let problem = verify(broken, &cuda()).unwrap_err().to_string();
            assert!(
                problem.contains("without a barrier between") || problem.contains("in progress"),
                "{number}: {problem}"
            );
            let result = interpret(broken, &operands);
            let is_race =
                matches!(result, Err(InterpError::Program(ProgramError { problem: Problem::Conflict { .. }, .. })));
            races += usize::from(is_race);
        }
        assert!(races >= 2, "{races}");
    }
}

/// Attention of the size of BERT and of longer texts: two products by matrix instructions, no
/// spill, and much less time than without.
#[test]
fn large_attention_is_fast_by_the_analysis_and_does_not_spill() {
    let target = Target::detect("cuda:sm_90", None).unwrap();
    let mut cycles = Vec::new();
    for text in [
        "attention:b=12,m=512,n=512,k=64,dtype=f16",
        "attention:b=12,m=4096,n=4096,k=64,dtype=f16",
        "attention:b=12,m=4096,n=4096,k=64,causal,dtype=f16",
        "attention:b=12,m=4096,n=4096,k=128,dtype=bf16",
        "attention:b=12,m=4096,n=4096,k=128,causal,dtype=bf16",
    ] {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let config = space.default_config();
        let program = lower(&workload, &target, &config).unwrap();
        let calls = preorder(&program.stages[0].body)
            .filter(|node| matches!(node, Node::Call { instruction, .. } if *instruction == &MMA));
        assert_eq!(calls.count(), 2, "{text}\n{config}");
        let is_power = |expr: &Expr| matches!(expr, Expr::Unary(UnaryOp::Exp2, _));
        let is_exp = |node: &Node| matches!(node, Node::Store(store) if store.value.any(&is_power));
        assert!(preorder(&program.stages[0].body).any(is_exp), "{text}");
        cycles.push((text, analyse(&program, &target).cycles()));

        let nvrtc = match Nvrtc::find() {
            Ok(nvrtc) => nvrtc,
            Err(reason) => return missing("nvrtc", &reason),
        };
        let source = codegen::gpu::generate(&program, GpuApi::Cuda { sm: 90 });
        let usage = nvrtc.compile(&source, 90).unwrap_or_else(|e| panic!("{config}\n{source}\n{e}"));
        eprintln!("{text}: {config}\n{usage:?}, {:.0} cycles", cycles[cycles.len() - 1].1);
        assert!(usage.iter().all(|kernel| kernel.spill_bytes <= 64), "{text}\n{config}\n{usage:?}");
    }
    let of = |number: usize| cycles[number].1;
    assert!(of(2) < 0.65 * of(1) && of(4) < 0.65 * of(3), "{cycles:?}");
}

/// Queries, keys and values are in shared memory, and weights in registers, all in 16 bits.
#[test]
fn operands_of_matrix_instructions_are_not_widened() {
    for (workload, config) in cases() {
        let program = lower(&workload, &cuda(), &config).unwrap();
        let shared = program.buffers.iter().filter(|buffer| buffer.scope == Scope::Shared && buffer.name != "parts");
        let dtypes: Vec<DType> = shared.map(|buffer| buffer.dtype).collect();
        assert_eq!(dtypes, [workload.dtype(); 3], "{program}");
        let held: Vec<&Buffer> = program.buffers.iter().filter(|buffer| buffer.scope == Scope::Warp).collect();
        assert!(matches!(held[..], [held] if held.dtype == workload.dtype()), "{program}");
    }
}

fn for_each_store(nodes: &mut [Node], change: &mut impl FnMut(&mut Store)) {
    for node in nodes {
        match node {
            Node::Store(store) => change(store),
            node => node.body_mut().into_iter().for_each(|body| for_each_store(body, change)),
        }
    }
}

/// Registers that a warp holds together are written by their own lanes only, and multiplied by the
/// same warp; otherwise the verifier rejects the program, and the interpreter finds most faults.
#[test]
fn lanes_store_and_warps_multiply_only_what_they_hold() {
    let (workload, config) = cases().next().unwrap();
    let program = lower(&workload, &cuda(), &config).unwrap();
    let is_held = |access: &Access| program.buffer(access.buffer).scope == Scope::Warp;
    let operands = Operands::random(workload.spec(), 2);
    let expected = interpret(&program, &operands).unwrap();
    let edited = |change: &mut dyn FnMut(&mut Store)| {
        let mut edited = program.clone();
        edited.stages.iter_mut().for_each(|stage| for_each_store(&mut stage.body, &mut |store| change(store)));
        edited
    };

    let other_lane = edited(&mut |store| {
        if is_held(&store.dst) {
            store.dst.index[5] = store.dst.index[5].clone() * -1 + 3;
        }
    });
    let other_warp = edited(&mut |store| {
        if is_held(&store.dst) {
            store.dst.index[0] = store.dst.index[0].clone() * -1 + 1;
        }
    });
    for broken in [other_lane, other_warp] {
        let problem = verify(&broken, &cuda()).unwrap_err().to_string();
        assert!(problem.contains("not of its own lane"), "{problem}\n{broken}");
        assert!(interpret(&broken, &operands).is_err());
    }

    let other_rows = edited(&mut |store| {
        let rows = store.factors().map(|[rows, _]| rows.clone()).filter(&is_held);
        if let Some(mut rows) = rows {
            rows.index[0] = rows.index[0].clone() * -1 + 1;
            store.value.operands_mut()[0] = Expr::Load(rows);
        }
    });
    let problem = verify(&other_rows, &cuda()).unwrap_err().to_string();
    assert!(problem.contains("rows in registers"), "{problem}\n{other_rows}");
    assert_ne!(interpret(&other_rows, &operands).unwrap(), expected);

    // Other statements than matrix instructions cannot read them.
    let score = program.buffers.iter().position(|buffer| buffer.name == "score").unwrap();
    let score = Access { buffer: BufferId(score as u32), index: [].into() };
    let mut read = program.clone();
    read_behind(&mut read.stages[0].body, &is_held, &score);
    let problem = verify(&read, &cuda()).unwrap_err().to_string();
    assert!(problem.contains("'weights_held'") && problem.contains("read"), "{problem}\n{read}");
}

/// Loads each element that was stored to some buffers into a register.
fn read_behind(nodes: &mut Vec<Node>, is_from: &impl Fn(&Access) -> bool, to: &Access) {
    let stored = nodes.iter().find_map(|node| match node {
        Node::Store(store) if is_from(&store.dst) => Some(store.dst.clone()),
        _ => None,
    });
    nodes.extend(stored.map(|from| {
        let (dst, value) = (to.clone(), Expr::Load(from));
        Node::Store(Store { dst, mode: StoreMode::Assign, value, iteration: None })
    }));
    nodes.iter_mut().filter_map(Node::body_mut).for_each(|body| read_behind(body, is_from, to));
}
