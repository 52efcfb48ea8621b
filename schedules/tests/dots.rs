//! Dot products in vector lanes: `vdpbf16ps`, `vpdpbusd` and the like where a CPU has them,
//! products of widened elements elsewhere.

use autotune_codegen::asm::{assemble, x86::disassemble};
use autotune_ir::instruction::{DOT_BF16, Feature, Instruction};
use autotune_ir::program::{LoopKind, Node, Scope, preorder};
use autotune_ir::{CpuTarget, DType, Isa, Program, Target, interpret, verify};
use autotune_schedules::{Candidate, Config, KnobValue, ScheduleSpace, lower, tolerance};
use autotune_workloads::{Activation, Epilogue, Operands, Types, Workload, max_rel_error, reference};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::common::c;
use crate::common::cases::cases;
use crate::common::convolutions::random_convolution;
use crate::common::machine;
use crate::common::or_long;
use crate::common::spaces::{has_winograd, random_odd_winograd, sample_winograd, some};
use crate::common::workloads::random_winograd;

/// Numbers of random cases in an ordinary and in a long run.
const CASES: [u64; 2] = [16, 200];

fn with(isa: Isa, features: &[&str], threads: usize) -> Target {
    let features = features.iter().map(ToString::to_string).collect();
    Target::Cpu(CpuTarget { isa, features, ..CpuTarget::generic_avx2(threads) })
}

fn with_dots(threads: usize) -> Target {
    with(Isa::Avx512, &["avx512bf16", "avx512vnni"], threads)
}

fn of_intel() -> Target {
    let Target::Cpu(cpu) = with_dots(1) else { unreachable!("a CPU") };
    Target::Cpu(CpuTarget { model: "GenuineIntel-6-143".into(), ..cpu })
}

fn without_dots() -> Target {
    Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(1) })
}

/// Returns the dot-product instruction that a program calls, if any.
fn dot_in(program: &Program) -> Option<&'static Instruction> {
    let calls = |node: &&Node| matches!(node, Node::Call { .. });
    let mut nodes = program.stages.iter().flat_map(|stage| preorder(&stage.body));
    match nodes.find(calls) {
        Some(Node::Call { instruction, .. }) => Some(instruction),
        _ => None,
    }
}

/// Returns the mnemonic of an instruction.
fn mnemonic(instruction: &Instruction) -> &'static str {
    instruction.name.split('.').next().unwrap_or_default()
}

fn default_program(text: &str, target: &Target) -> Program {
    let workload: Workload = text.parse().unwrap();
    lower(&workload, target, &ScheduleSpace::new(&workload, target).default_config()).unwrap()
}

/// Returns a convolution or a product with random element types of `all`.
fn random_workload(rng: &mut ChaCha8Rng, all: &[Types]) -> Workload {
    let types = all[rng.random_range(0..all.len())];
    let plain = match rng.random() {
        true => random_convolution(rng),
        false => {
            let [m, n, k] = [40, 70, 40].map(|most| rng.random_range(1..=most));
            let flags = [
                "",
                ",ta",
                ",tb",
                ",ta,tb",
                ",weights=data",
                ",bias,act=gelu",
                ",scale,bias,act=relu",
                ",scale,post_add",
            ];
            format!("matmul:m={m},n={n},k={k}{}", flags[rng.random_range(0..flags.len())]).parse().unwrap()
        }
    };
    with_rounded_sums(plain.with_types(types).unwrap(), rng)
}

/// Returns the workload. If its results are bytes, one in three has an epilogue that rounds sums
/// and adds bytes.
pub fn with_rounded_sums(workload: Workload, rng: &mut ChaCha8Rng) -> Workload {
    let types = workload.types();
    if types.out.bytes() > 1 || rng.random_bool(0.7) {
        return workload;
    }
    let Ok(activation) = Activation::new("round", &types.out.range().map(|end| end as f32)) else { return workload };
    let [scale, bias, residual, post_scale, post_bias, post_residual] = [true, true, false, true, true, true];
    let table = false;
    let epilogue = Epilogue { scale, bias, residual, activation, post_scale, post_bias, post_residual, table };
    let residual = [DType::U8, DType::I8][rng.random_range(0..2)];
    workload.with_epilogue(epilogue).with_types(Types { bias: DType::F32, residual, ..types }).unwrap()
}

/// Checks a program by the verifier, the interpreter and, if this machine has the instructions, in
/// machine code. Returns true if it calls an instruction.
pub fn check(candidate: &Candidate, seed: u64) -> bool {
    let (workload, config, target) = (candidate.workload(), candidate.config(), candidate.target());
    let program =
        candidate.lower().unwrap_or_else(|error| panic!("seed {seed}: {workload} on {target}\n{config}\n{error}"));
    let context = format!("seed {seed}: {workload}\n{config}\n{program}");
    verify(&program, target).unwrap_or_else(|problem| panic!("{context}\n{problem}"));
    let operands = Operands::random(workload.spec(), seed);
    let wanted = reference(workload, &operands);
    let allowed = tolerance(workload, config);
    let error = max_rel_error(&interpret(&program, &operands).unwrap(), &wanted);
    assert!(error <= allowed, "{context}\ninterpreted: error {error}");

    let code = assemble(&program, target).unwrap_or_else(|problem| panic!("{context}\n{problem}"));
    let dot = dot_in(&program);
    let has_feature = |dot: &Instruction| match dot.feature {
        Feature::Cpu(_, feature) => machine::has(feature),
        _ => true,
    };
    // Which instruction multiplies bytes depends on their signs.
    let by = |dot: &Instruction| mnemonic(dot).split("usd").next().unwrap_or_default();
    assert!(dot.is_none_or(|dot| disassemble(&code).contains(by(dot))), "{context}");
    if machine::runs(target.cpu().unwrap().isa) && dot.is_none_or(has_feature) {
        let error = max_rel_error(&machine::run(&program, &code, &operands), &wanted);
        assert!(error <= allowed, "{context}\nassembled: error {error}");
    }
    dot.is_some()
}

fn check_all(targets: &[fn(usize) -> Target], types: &[Types]) {
    let dots: usize = (0..cases(or_long(CASES)))
        .into_par_iter()
        .map(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let workload = random_workload(&mut rng, types);
            let target = targets[seed as usize % targets.len()](1 + seed as usize % 2);
            let space = ScheduleSpace::new(&workload, &target);
            some(&space, 3, &mut rng).iter().filter(|candidate| check(candidate, seed)).count()
        })
        .sum();
    assert!(dots as u64 > cases(or_long(CASES)) / 2, "{dots} programs with dot products");
}

#[test]
fn random_products_of_bf16_agree_with_the_reference() {
    let of_bf16 = Types::of(DType::Bf16);
    check_all(&[with_dots], &[of_bf16, Types { out: DType::F32, ..of_bf16 }]);
}

#[test]
fn random_products_of_integers_agree_with_the_reference() {
    let factors = [(DType::U8, DType::I8), (DType::U8, DType::I8), (DType::I8, DType::I8), (DType::U8, DType::U8)];
    let results = [DType::I32, DType::F32, DType::U8, DType::I8];
    let of = |(data, weights)| results.map(|out| Types { out, ..Types::of_sums(data, weights) });
    let types: Vec<Types> = factors.into_iter().flat_map(of).collect();
    let targets: [fn(usize) -> Target; 4] = [
        with_dots,
        |threads| with(Isa::Avx512, &[], threads),
        |threads| with(Isa::Avx2, &[], threads),
        |threads| with(Isa::Avx2, &["avxvnni"], threads),
    ];
    check_all(&targets, &types);
}

/// Winograd's algorithm multiplies transformed pairs of channels.
#[test]
fn random_convolutions_by_winograd_agree_with_the_reference() {
    let of_bf16 = Types::of(DType::Bf16);
    let types = [of_bf16, Types { bias: DType::F32, ..of_bf16 }, Types { out: DType::F32, ..of_bf16 }];
    let dots: usize = (0..cases(or_long(CASES)))
        .into_par_iter()
        .map(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let target = with_dots(1 + seed as usize % 2);
            let plain = match seed % 3 {
                0 => random_odd_winograd(&mut rng, &target),
                _ => random_winograd(&mut rng, 16),
            };
            let workload = plain.with_types(types[rng.random_range(0..types.len())]).unwrap();
            let space = ScheduleSpace::new(&workload, &target);
            if !has_winograd(&space) {
                return 0;
            }
            let drawn = (0..3).map(|_| space.candidate(&sample_winograd(&space, &mut rng)));
            drawn.filter(|candidate| check(candidate, seed)).count()
        })
        .sum();
    assert!(dots as u64 > cases(or_long(CASES)) / 2, "{dots} programs with dot products");
}

/// Rounding errors grow with tiles, and without dot products f32 takes no more time than bf16.
#[test]
fn winograd_of_bf16_has_small_tiles_and_needs_dots() {
    let sizes = |text: &str, target: &Target| {
        let space = ScheduleSpace::new(&text.parse().unwrap(), target);
        let size = |m: &&&str| {
            let mut rng = ChaCha8Rng::seed_from_u64(0);
            let mut drawn = (0..100).map(|_| space.sample(&mut rng).config().clone());
            let is_of_size = |config: Config| config.knobs.get("m") == Some(&KnobValue::Choice(m.to_string()));
            drawn.any(is_of_size)
        };
        ["2", "3", "4", "6"].iter().filter(size).map(|m| m.to_string()).collect::<Vec<_>>()
    };
    let (plain, strided) = ("conv2d:c=32,h=28,w=28,o=32,k=3,p=1", "conv2d:c=32,h=28,w=28,o=32,k=3,s=2,p=1");
    let bf16 = |text: &str| format!("{text},dtype=bf16");
    assert_eq!(sizes(plain, &with_dots(1)), ["2", "3", "4", "6"]);
    assert_eq!(sizes(&bf16(plain), &with_dots(1)), ["2"]);
    assert_eq!(sizes(&bf16(strided), &with_dots(1)), ["2", "3"]);
    for target in [of_intel(), without_dots()] {
        assert!(!has_winograd(&ScheduleSpace::new(&bf16(plain).parse().unwrap(), &target)), "{target}");
    }
    let odd = "conv2d:c=33,h=28,w=28,o=32,k=3,p=1,dtype=bf16".parse().unwrap();
    assert!(!has_winograd(&ScheduleSpace::new(&odd, &with_dots(1))));
}

/// Returns a random convolution with few channels.
fn random_images(rng: &mut ChaCha8Rng) -> Workload {
    loop {
        let mut pick = |of: &[usize]| of[rng.random_range(0..of.len())];
        let (g, c, o) =
            (pick(&[1, 1, 1, 2, 3]), pick(&[2, 3, 3, 4, 5, 7, 8, 12, 16, 24]), pick(&[1, 3, 8, 12, 16, 24, 32]));
        let (n, c, o) = (pick(&[1, 1, 2]), g * c, g * o);
        let (h, w) = (pick(&[1, 5, 8, 11]), pick(&[1, 4, 7, 16, 19, 28, 33, 64]));
        let mut text = format!("conv2d:n={n},c={c},h={h},w={w},o={o},g={g}");
        for axis in ["h", "w"] {
            let (k, s, p, d) = (pick(&[1, 2, 3, 3, 5]), pick(&[1, 1, 2, 3]), pick(&[0, 1, 2]), pick(&[1, 1, 2]));
            text += &format!(",k{axis}={k},s{axis}={s},p{axis}={p},d{axis}={d}");
        }
        text += ["", ",bias,act=relu", ",pre=relu", ",pre=scale+bias", ",weights=data"][pick(&[0, 1, 2, 3, 4])];
        if let Ok(workload) = text.parse() {
            return workload;
        }
    }
}

/// Returns the number of steps in a group, if the program copies images with these adjacent.
fn copy_in_groups(program: &Program) -> Option<usize> {
    let dims = program.spec.tensors[0].shape.len();
    let is_copy = |name: &str| name == "data_tile" || name == "data_copy";
    let copy = program.buffers.iter().find(|buffer| is_copy(&buffer.name) && buffer.shape.len() > dims)?;
    copy.shape.last().copied().filter(|steps| [2, 4].contains(steps))
}

/// Windows with padding, strides, dilation and groups; numbers of channels that are not a multiple
/// of the group.
#[test]
fn random_copies_of_images_have_the_steps_of_a_group_side_by_side() {
    let integers = |data, weights| Types { out: DType::F32, ..Types::of_sums(data, weights) };
    let types = [Types::of(DType::Bf16), integers(DType::U8, DType::I8), integers(DType::I8, DType::I8)];
    let targets = [with_dots(1), with_dots(2), with(Isa::Avx2, &[], 1), with(Isa::Avx2, &["avxvnni"], 1)];
    let copies: usize = (0..cases(or_long(CASES)))
        .into_par_iter()
        .map(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let images = if rng.random_bool(0.8) { random_images(&mut rng) } else { random_convolution(&mut rng) };
            let Ok(workload) = images.with_types(types[rng.random_range(0..types.len())]) else { return 0 };
            let target = &targets[seed as usize % targets.len()];

            let space = ScheduleSpace::new(&workload, target);
            let copies = ["tile", "copy"].map(|word| KnobValue::Choice(word.into()));
            let is_copied =
                |candidate: &Candidate| candidate.config().knobs.get("data").is_some_and(|data| copies.contains(data));
            let is_in_groups = |candidate: &Candidate| candidate.lower().is_ok_and(|p| copy_in_groups(&p).is_some());
            let drawn = (0..30).map(|_| space.sample(&mut rng)).filter(is_copied).filter(is_in_groups).take(2);
            drawn.filter(|candidate| check(candidate, seed)).count()
        })
        .sum();
    assert!(copies as u64 > cases(or_long(CASES)) / 2, "{copies} copies in groups");
}

/// Vectors run along channels if these are whole vectors, else along rows that nearly are.
#[test]
fn plain_images_are_copied_in_groups() {
    for (text, vector) in [
        ("conv2d:c=3,h=32,w=32,o=32,k=7,s=2,p=3", "o"),
        ("conv2d:c=24,h=28,w=28,o=144,k=1", "o"),
        ("conv2d:c=24,h=28,w=28,o=24,k=1", "ow"),
        ("conv2d:c=3,h=32,w=32,o=12,k=3,s=2,p=1", "ow"),
        ("conv2d:c=24,h=7,w=7,o=24,k=1", "o"),
    ] {
        for (types, steps) in [("dtype=bf16", 2), ("data=u8,weights=i8,out=u8,scale", 4)] {
            let text = format!("{text},{types}");
            let (workload, target): (Workload, _) = (text.parse().unwrap(), with_dots(1));
            let config = ScheduleSpace::new(&workload, &target).default_config();
            let program = lower(&workload, &target, &config).unwrap();
            assert_eq!(copy_in_groups(&program), Some(steps), "{text}\n{config}");
            assert_eq!(config.knobs.get("vector"), Some(&KnobValue::Choice(vector.into())), "{text}\n{config}");
        }
    }
    // Channel-blocked data already has the steps adjacent.
    let blocked = default_program("conv2d:c=16,h=28,w=28,o=16,k=3,p=1,dtype=bf16", &with_dots(1));
    assert!(copy_in_groups(&blocked).is_none() && dot_in(&blocked).is_some());
}

/// Compilers select their own instructions.
#[test]
fn integers_are_computed_alike_in_c() {
    for (number, text) in [
        "matmul:m=3,n=21,k=24,data=u8,weights=i8,out=u8,scale,bias,act=relu",
        "matmul:m=2,n=37,k=6,data=i8,weights=i8,bias,act=relu",
        "matmul:m=5,n=16,k=7,tb,data=u8,weights=u8,out=i8,scale",
        "conv2d:c=16,h=5,w=4,o=16,k=3,p=1,data=u8,weights=i8,out=i8,bias,scale,add",
        "conv2d:c=16,h=5,w=6,o=16,k=3,g=16,data=u8,weights=i8,out=f32,scale",
        "conv2d:c=16,h=5,w=6,o=16,k=3,data=u8,weights=i8,out=u8,scale,bias,act=round:0:255,post_scale,post_bias",
        "conv2d:c=16,h=5,w=6,o=16,k=1,data=u8,weights=i8,out=u8,scale,bias=f32,act=round:0:255,post_scale,post_bias,post_add=u8",
        "conv2d:c=3,h=7,w=9,o=8,k=3,s=2,data=u8,weights=i8,out=bf16,scale",
        "conv2d:c=5,h=4,w=19,o=16,k=3,p=1,data=i8,weights=i8,out=i8,scale",
    ]
    .into_iter()
    .enumerate()
    {
        let workload: Workload = text.parse().unwrap();
        let operands = Operands::random(workload.spec(), number as u64);
        let wanted = reference(&workload, &operands);
        // In an ordinary run, targets alternate.
        for (turn, target) in [with_dots(1), without_dots(), with(Isa::Avx2, &[], 1)].into_iter().enumerate() {
            if or_long([number % 3 != turn, false]) {
                continue;
            }
            let config = ScheduleSpace::new(&workload, &target).default_config();
            let program = lower(&workload, &target, &config).unwrap();
            let output = match c::run(&program, &target, &operands) {
                Ok(output) => output,
                Err(reason) => return eprintln!("no C compiler, so that nothing is tested: {reason}"),
            };

            let error = max_rel_error(&output, &wanted);
            assert!(error <= tolerance(&workload, &config), "{text} on {target}: error {error}\n{program}");
        }
    }
}

#[test]
fn dot_products_are_where_the_processor_and_the_workload_have_them() {
    let product = "matmul:m=8,n=32,k=64,dtype=bf16";
    for (text, target, wanted) in [
        (product, with_dots(1), true),
        (product, without_dots(), false),
        // Multiply-adds of widened elements are faster there; dot products of bytes are not slow.
        (product, of_intel(), false),
        ("matmul:m=8,n=32,k=64,data=u8,weights=i8", of_intel(), true),
        ("conv2d:c=16,h=8,w=8,o=32,k=3,p=1,dtype=bf16,out=f32", with_dots(1), true),
        ("conv2d:c=6,h=8,w=8,o=32,k=3,p=1,dtype=bf16", with_dots(1), true),
        // The last group is incomplete.
        ("conv2d:c=3,h=8,w=8,o=32,k=3,p=1,dtype=bf16", with_dots(1), true),
        ("conv2d:c=5,h=8,w=8,o=32,k=3,p=1,data=u8,weights=i8", with_dots(1), true),
        // A single step is not a group.
        ("conv2d:c=1,h=8,w=8,o=32,k=3,p=1,dtype=bf16", with_dots(1), false),
        ("conv2d:c=16,h=8,w=8,o=16,k=3,g=16,dtype=bf16", with_dots(1), false),
        ("matmul:m=8,n=32,k=64", with_dots(1), false),
        ("matmul:m=8,n=32,k=64,data=bf16,weights=f32", with_dots(1), false),
    ] {
        assert_eq!(dot_in(&default_program(text, &target)).is_some(), wanted, "{text} on {target}");
    }
}

/// Copies for other instructions are f32, so that only the copy converts. Queries of attention are
/// copied if there are several keys.
#[test]
fn elements_are_widened_once() {
    let wide = |text| {
        let buffers = default_program(text, &without_dots()).buffers;
        buffers.into_iter().find(|buffer| buffer.name.starts_with("wide")).map(|buffer| buffer.dtype)
    };
    assert_eq!(wide("attention:b=2,m=8,n=16,k=32,dtype=bf16"), Some(DType::F32));
    assert_eq!(wide("attention:b=2,m=8,n=16,k=32"), None);
    assert_eq!(wide("attention:b=2,m=8,n=1,k=32,dtype=bf16"), None);
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
    assert!(serial.contains("the number of unrolled steps"), "{serial}");

    let apart = broken(|program| {
        let packed = program.buffers.iter_mut().find(|buffer| buffer.name == "weight_packed").unwrap();
        packed.dtype = DType::F32;
    });
    assert!(apart.contains("the instruction does not multiply these element types"), "{apart}");

    let elsewhere = broken(|program| {
        let sums = program.buffers.iter_mut().find(|buffer| buffer.scope == Scope::Register).unwrap();
        sums.scope = Scope::Local;
    });
    assert!(elsewhere.contains("sums of a dot product must be in registers"), "{elsewhere}");
    assert_eq!(DOT_BF16.steps(DType::Bf16), Some(2));
}

#[test]
fn chunks_of_a_reduction_keep_their_sums_in_f32() {
    let chunk = |tile: &str| (tile.to_string(), KnobValue::Tile(vec![16]));
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
