//! Dot products of bf16: `vdpbf16ps` where a CPU has it, f32 products of widened elements elsewhere.

#![allow(clippy::unwrap_used)]

mod common;

use autotune_codegen::asm::{assemble, x86::disassemble};
use autotune_ir::instruction::DOT_BF16;
use autotune_ir::program::{LoopKind, Node, Scope};
use autotune_ir::{CpuTarget, DType, Isa, Program, Target, interpret, verify};
use autotune_schedules::{Candidate, ScheduleSpace, Value, lower, tolerance};
use autotune_workloads::{Operands, Types, Workload, max_rel_error, reference};
use common::cases::cases;
use common::convolutions::random_convolution;
use common::machine;
use common::spaces::some;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

const USUAL_CASES: u64 = 200;

fn with_dots(threads: usize) -> Target {
    let features = vec!["avx512bf16".into()];
    Target::Cpu(CpuTarget { isa: Isa::Avx512, features, ..CpuTarget::generic_avx2(threads) })
}

fn without_dots() -> Target {
    Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(1) })
}

fn has_dots(program: &Program) -> bool {
    program.to_string().contains("call vdpbf16ps")
}

fn default_program(text: &str, target: &Target) -> Program {
    let workload: Workload = text.parse().unwrap();
    lower(&workload, target, &ScheduleSpace::new(&workload, target).default_config()).unwrap()
}

/// A convolution or a product whose factors are bf16.
fn random_workload(rng: &mut ChaCha8Rng) -> Workload {
    let plain = match rng.random() {
        true => random_convolution(rng),
        false => {
            let [m, n, k] = [40, 70, 40].map(|most| rng.random_range(1..=most));
            let flags = ["", ",ta", ",tb", ",ta,tb", ",weights=data", ",bias,act=gelu"];
            format!("matmul:m={m},n={n},k={k}{}", flags[rng.random_range(0..flags.len())]).parse().unwrap()
        }
    };
    let of_bf16 = Types::of(DType::Bf16);
    let types = if rng.random() { of_bf16 } else { Types { out: DType::F32, ..of_bf16 } };
    plain.with_types(types).unwrap()
}

fn check(candidate: &Candidate, seed: u64) -> bool {
    let (workload, config, target) = (candidate.workload(), candidate.config(), candidate.target());
    let program = candidate.lower().unwrap();
    let context = format!("seed {seed}: {workload}\n{config}\n{program}");
    verify(&program, target).unwrap_or_else(|problem| panic!("{context}\n{problem}"));
    let operands = Operands::random(workload.spec(), seed);
    let wanted = reference(workload, &operands);
    let allowed = tolerance(workload, config);
    let error = max_rel_error(&interpret(&program, &operands).unwrap(), &wanted);
    assert!(error <= allowed, "{context}\ninterpreted: error {error}");

    let code = assemble(&program, target).unwrap_or_else(|problem| panic!("{context}\n{problem}"));
    assert_eq!(disassemble(&code).contains("vdpbf16ps"), has_dots(&program), "{context}");
    if machine::runs(Isa::Avx512) && (!has_dots(&program) || machine::has("avx512bf16")) {
        let error = max_rel_error(&machine::run(&program, &code, &operands), &wanted);
        assert!(error <= allowed, "{context}\nassembled: error {error}");
    }
    has_dots(&program)
}

#[test]
fn random_products_of_bf16_agree_with_the_reference() {
    let dots: usize = (0..cases(USUAL_CASES))
        .into_par_iter()
        .map(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let workload = random_workload(&mut rng);
            let target = with_dots(1 + seed as usize % 2);
            let space = ScheduleSpace::new(&workload, &target);
            some(&space, 3, &mut rng).iter().filter(|candidate| check(candidate, seed)).count()
        })
        .sum();
    assert!(dots as u64 > cases(USUAL_CASES) / 2, "{dots} programs with dot products");
}

#[test]
fn dot_products_are_where_the_processor_and_the_workload_have_them() {
    let product = "matmul:m=8,n=32,k=64,dtype=bf16";
    for (text, target, wanted) in [
        (product, with_dots(1), true),
        (product, without_dots(), false),
        ("conv2d:c=16,h=8,w=8,o=32,k=3,p=1,dtype=bf16,out=f32", with_dots(1), true),
        ("conv2d:c=6,h=8,w=8,o=32,k=3,p=1,dtype=bf16", with_dots(1), true),
        // One step of the reduction would be left over, and depthwise convolutions have but one.
        ("conv2d:c=3,h=8,w=8,o=32,k=3,p=1,dtype=bf16", with_dots(1), false),
        ("conv2d:c=16,h=8,w=8,o=16,k=3,g=16,dtype=bf16", with_dots(1), false),
        ("matmul:m=8,n=32,k=64", with_dots(1), false),
        ("matmul:m=8,n=32,k=64,data=bf16,weights=f32", with_dots(1), false),
    ] {
        assert_eq!(has_dots(&default_program(text, &target)), wanted, "{text} on {target}");
    }
}

/// Copies that other instructions multiply are f32, so that only the copy takes conversions.
#[test]
fn elements_are_widened_once() {
    let program = default_program("matmul:m=8,n=32,k=64,dtype=bf16", &without_dots());
    let packed = program.buffers.iter().find(|buffer| buffer.name == "weight_packed").unwrap();
    assert_eq!(packed.dtype, DType::F32);
    let program = default_program("matmul:m=8,n=32,k=64,dtype=bf16", &with_dots(1));
    let packed = program.buffers.iter().find(|buffer| buffer.name == "weight_packed").unwrap();
    assert_eq!(packed.dtype, DType::Bf16);
}

fn first_call(nodes: &mut [Node]) -> Option<&mut Vec<Node>> {
    nodes.iter_mut().find_map(|node| match node {
        Node::Call { body, .. } => Some(body),
        node => first_call(node.body_mut()?),
    })
}

fn broken(change: impl FnOnce(&mut Program)) -> String {
    let target = with_dots(1);
    let mut program = default_program("matmul:m=8,n=32,k=64,dtype=bf16,out=f32", &target);
    verify(&program, &target).unwrap();
    change(&mut program);
    verify(&program, &target).unwrap_err().to_string()
}

#[test]
fn nests_that_the_instruction_does_not_do_are_found() {
    let compute = |program: &mut Program| program.stages.len() - 1;
    let serial = broken(|program| {
        let stage = compute(program);
        let Some(Node::Loop(steps)) = first_call(&mut program.stages[stage].body).unwrap().first_mut() else {
            panic!()
        };
        steps.kind = LoopKind::Serial;
    });
    assert!(serial.contains("another number of steps"), "{serial}");

    let apart = broken(|program| {
        let packed = program.buffers.iter_mut().find(|buffer| buffer.name == "weight_packed").unwrap();
        packed.dtype = DType::F32;
    });
    assert!(apart.contains("types that the instruction does not multiply"), "{apart}");

    let elsewhere = broken(|program| {
        let sums = program.buffers.iter_mut().find(|buffer| buffer.scope == Scope::Register).unwrap();
        sums.scope = Scope::Local;
    });
    assert!(elsewhere.contains("sums elsewhere than in registers"), "{elsewhere}");
    assert_eq!(DOT_BF16.steps(DType::Bf16), Some(2));
}

#[test]
fn chunks_of_a_reduction_keep_their_sums_in_f32() {
    let chunk = |tile: &str| (tile.to_string(), Value::Tile(vec![16]));
    for (text, knob) in [
        ("matmul:m=8,n=32,k=64,bias,act=relu", "tile.k"),
        ("matmul:b=2,m=9,n=40,k=48,ta", "tile.k"),
        ("conv2d:c=64,h=5,w=6,o=32,k=3,p=1,add", "tile.c"),
    ] {
        for (out, has_own) in [(DType::Bf16, true), (DType::F32, false)] {
            let types = Types { out, ..Types::of(DType::Bf16) };
            let workload: Workload = text.parse::<Workload>().unwrap().with_types(types).unwrap();
            for target in [with_dots(1), with_dots(2), without_dots()] {
                let space = ScheduleSpace::new(&workload, &target);
                let mut config = space.default_config();
                config.knobs.extend([chunk(knob)]);
                let candidate = space.candidate(&config);
                let program = candidate.lower().unwrap();
                let sums = program.buffers.iter().find(|buffer| buffer.name == "partial_sums");
                assert_eq!(sums.map(|sums| sums.dtype), has_own.then_some(DType::F32), "{workload} on {target}");
                check(&candidate, 3);
            }
        }
    }
}
