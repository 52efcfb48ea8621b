//! Products of tiles by AMX.

use autotune_ir::analyse::analyse;
use autotune_ir::instruction::{TILE_BF16, TILE_I8};
use autotune_ir::program::{LoopKind, Node, Scope, preorder};
use autotune_ir::{CpuTarget, DType, Isa, Program, Target, interpret, verify};
use autotune_schedules::{Candidate, KnobValue, ScheduleSpace, lower};
use autotune_workloads::{Operands, Types, Workload, max_rel_error, reference};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::common::cases::{cases, for_cases_in_parallel};
use crate::common::convolutions::random_convolution;
use crate::common::or_long;
use crate::dots::{check, with_rounded_sums};

/// Numbers of random cases in an ordinary and in a long run.
const CASES: [u64; 2] = [24, 300];

fn with_tiles(threads: usize) -> Target {
    let features = ["amx", "avx512bf16", "avx512vnni"].map(String::from).to_vec();
    Target::Cpu(CpuTarget { isa: Isa::Avx512, features, ..CpuTarget::generic_avx2(threads) })
}

/// Returns true if a program calls a tile instruction.
fn has_tiles(program: &Program) -> bool {
    let calls =
        |node: &Node| matches!(node, Node::Call { instruction, .. } if [&TILE_BF16, &TILE_I8].contains(instruction));
    program.stages.iter().flat_map(|stage| preorder(&stage.body)).any(calls)
}

fn is_tiled(candidate: &Candidate) -> bool {
    candidate.config().knobs.get("instruction") == Some(&KnobValue::Choice("tile".into()))
}

/// Returns the text of a product.
fn random_product(rng: &mut ChaCha8Rng) -> String {
    let mut pick = |of: &[usize]| of[rng.random_range(0..of.len())];
    let (m, n) = (pick(&[1, 5, 16, 17, 32, 40, 70]), pick(&[1, 8, 16, 24, 32, 64, 70]));
    let k = 4 * pick(&[2, 8, 9, 16, 34]);
    let flags = ["", ",tb", ",b=2", ",weights=data", ",bias,act=gelu", ",scale,bias,act=relu"];
    format!("matmul:m={m},n={n},k={k}{}", flags[pick(&[0, 1, 2, 3, 4, 5])])
}

/// Returns the text of a convolution, also of few channels.
fn random_images(rng: &mut ChaCha8Rng) -> String {
    let mut pick = |of: &[usize]| of[rng.random_range(0..of.len())];
    let channels = [2, 3, 5, 8, 12, 16, 24, 32, 48, 58, 64, 67, 80, 112];
    let (g, c, o) = (pick(&[1, 1, 2, 3]), pick(&channels), pick(&[8, 16, 24, 32, 48]));
    let (n, h, w) = (pick(&[1, 1, 2]), pick(&[1, 5, 7]), pick(&[4, 7, 16, 19, 33]));
    let (k, s, p) = (pick(&[1, 3, 3, 5, 7]), pick(&[1, 1, 2]), pick(&[0, 1]));
    let tail = ["", ",bias,act=relu", ",pre=relu", ",bias,add"][pick(&[0, 1, 2, 3])];
    format!("conv2d:n={n},c={},h={h},w={w},o={},k={k},s={s},p={p},g={g}{tail}", g * c, g * o)
}

/// Returns a convolution or a product with random element types that tile instructions multiply.
fn random_workload(rng: &mut ChaCha8Rng) -> Workload {
    let integers = |data, weights, out| Types { out, ..Types::of_sums(data, weights) };
    let all = [
        Types::of(DType::Bf16),
        Types { out: DType::F32, ..Types::of(DType::Bf16) },
        Types::of(DType::F32),
        integers(DType::U8, DType::I8, DType::U8),
        integers(DType::U8, DType::I8, DType::I32),
        integers(DType::I8, DType::I8, DType::I8),
        integers(DType::I8, DType::I8, DType::F32),
        integers(DType::U8, DType::U8, DType::I32),
        integers(DType::I8, DType::U8, DType::F32),
    ];

    let types = all[rng.random_range(0..all.len())];
    loop {
        let plain = match rng.random_range(0..3) {
            0 => Ok(random_convolution(rng)),
            1 => random_product(rng).parse(),
            _ => random_images(rng).parse(),
        };
        if let Some(workload) = plain.ok().and_then(|plain: Workload| plain.with_types(types).ok()) {
            return with_rounded_sums(workload, rng);
        }
    }
}

#[test]
fn random_products_of_tiles_agree_with_the_reference() {
    let checked: usize = (0..cases(or_long(CASES)))
        .into_par_iter()
        .map(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let workload = random_workload(&mut rng);
            let target = with_tiles(1 + seed as usize % 2);
            let space = ScheduleSpace::new(&workload, &target);

            let default = Some(space.default_candidate().clone()).filter(is_tiled);
            let drawn = (0..60).map(|_| space.sample(&mut rng)).filter(is_tiled).take(2);
            let tiled: Vec<Candidate> = default.into_iter().chain(drawn).collect();
            tiled.iter().for_each(|candidate| assert!(check(candidate, seed)));
            tiled.len()
        })
        .sum();
    assert!(checked as u64 > cases(or_long(CASES)), "{checked} programs with tiles");
}

/// Returns the error of the default schedule of a workload on operands that `map` changes.
fn error_of(workload: &Workload, seed: u64, map: fn(f32) -> f32) -> f64 {
    let candidate = ScheduleSpace::new(workload, &with_tiles(1)).default_candidate().clone();
    assert!(is_tiled(&candidate), "{workload}");
    let mut operands = Operands::random(workload.spec(), seed);
    operands.iter_mut().for_each(|tensor| tensor.mapv_inplace(map));
    let output = interpret(&candidate.lower().unwrap(), &operands).unwrap();
    max_rel_error(&output, &reference(workload, &operands))
}

/// A value of two parts has 16 significant bits, so that it differs by at most 2^-17 (8e-6).
/// Without one of the products of high and low parts, errors would be a hundred times as large.
#[test]
fn products_of_parts_keep_16_bits() {
    const BOUND: f64 = 1e-5;
    for_cases_in_parallel(6, |seed, rng| {
        let mut pick = |of: &[usize]| of[rng.random_range(0..of.len())];
        let (m, n, k) = (pick(&[8, 17, 40]), pick(&[32, 48]), pick(&[32, 48, 64, 130]));
        let (c, o, taps) = (pick(&[32, 48, 80]), pick(&[32, 40]), pick(&[1, 3]));
        for text in [format!("matmul:m={m},n={n},k={k}"), format!("conv2d:c={c},h=7,w=9,o={o},k={taps},p={}", taps / 2)]
        {
            let workload = text.parse().unwrap();
            let errors = [error_of(&workload, seed, |x| x), error_of(&workload, seed, f32::abs)];
            assert!(errors.iter().all(|&error| error <= BOUND), "seed {seed}: {text}: {errors:?}");
        }
    });
}

/// Zeros fill the last row of a tile, so that no row is much shorter than an instruction needs.
#[test]
fn channels_are_multiplied_in_as_few_rows_as_possible() {
    for (text, rows, words) in [
        ("conv2d:c=58,h=14,w=14,o=58,k=1,dtype=bf16", 2, 15),
        ("conv2d:c=116,h=14,w=14,o=64,k=3,p=1,dtype=bf16", 4, 15),
        ("conv2d:c=112,h=14,w=14,o=64,k=1,dtype=bf16", 4, 16),
        ("conv2d:c=224,h=14,w=14,o=64,k=1,data=u8,weights=i8,out=u8,scale", 4, 16),
        ("conv2d:c=80,h=14,w=14,o=64,k=1,data=u8,weights=i8,out=u8,scale", 2, 12),
        ("conv2d:c=67,h=14,w=14,o=64,k=1,data=u8,weights=i8,out=u8,scale", 2, 9),
        ("conv2d:c=272,h=14,w=14,o=272,k=1,g=4,dtype=bf16", 3, 12),
        ("conv2d:c=224,h=14,w=14,o=64,k=3,p=1,g=2,dtype=bf16", 4, 16),
        ("conv2d:c=268,h=14,w=14,o=112,k=3,s=2,p=1,g=4,data=u8,weights=i8,out=u8,scale", 2, 9),
    ] {
        let (workload, target): (Workload, _) = (text.parse().unwrap(), with_tiles(1));
        let candidate = ScheduleSpace::new(&workload, &target).default_candidate().clone();
        let program = lower(&workload, &target, candidate.config()).unwrap();

        let packed = program.buffers.iter().find(|buffer| buffer.name == "weight_packed").unwrap();
        let found = [rows, words].iter().all(|extent| packed.shape.contains(extent));
        assert!(found, "{text}: {:?}", packed.shape);
        assert!(check(&candidate, 0), "{text}");
    }
}

#[test]
fn tiles_are_where_the_processor_and_the_workload_have_them() {
    check_tiles(&[
        ("matmul:m=64,n=64,k=64,dtype=bf16", true),
        ("matmul:m=64,n=64,k=64,data=u8,weights=i8,out=u8,scale", true),
        ("matmul:m=64,n=64,k=64,data=i8,weights=i8", true),
        ("conv2d:c=64,h=14,w=14,o=64,k=3,p=1,dtype=bf16", true),
        ("conv2d:c=64,h=14,w=14,o=64,k=1,data=u8,weights=i8,out=u8,scale", true),
        ("conv2d:c=3,h=32,w=32,o=64,k=7,s=2,p=3,dtype=bf16", true),
        ("conv2d:c=3,h=32,w=32,o=64,k=3,p=1,data=u8,weights=i8,out=u8,scale", true),
        ("conv2d:c=64,h=14,w=14,o=64,k=3,p=1,g=64,dtype=bf16", false),
    ]);
}

#[test]
fn parts_of_f32_are_multiplied_where_that_pays() {
    check_tiles(&[
        ("matmul:m=64,n=64,k=64", true),
        ("matmul:m=512,n=64,k=64,weights=data", true),
        ("matmul:m=128,n=64,k=64,weights=data", false),
        ("matmul:m=3,n=64,k=64", false),
        ("matmul:m=64,n=64,k=16", false),
        ("matmul:m=64,n=64,k=64,exact", false),
        ("conv2d:c=64,h=14,w=14,o=64,k=3,p=1", true),
        ("conv2d:c=64,h=14,w=14,o=16,k=1", false),
        ("conv2d:c=136,h=14,w=14,o=64,k=1,g=2", false),
        ("conv2d:c=3,h=32,w=32,o=64,k=7,s=2,p=3", false),
        ("conv2d:c=64,h=14,w=14,o=64,k=3,p=1,exact", false),
    ]);
}

/// Checks whether the default schedule of each workload has tiles.
fn check_tiles(all: &[(&str, bool)]) {
    for &(text, wanted) in all {
        let (workload, target): (Workload, _) = (text.parse().unwrap(), with_tiles(1));
        let config = ScheduleSpace::new(&workload, &target).default_config();
        let program = lower(&workload, &target, &config).unwrap();
        assert_eq!(has_tiles(&program), wanted, "{text}\n{config}");
    }
}

/// One instruction multiplies a row of 16 words by 16 columns in each cycle.
#[test]
fn tiles_are_analysed_at_their_rate() {
    let (workload, target): (Workload, _) = ("matmul:m=64,n=64,k=1024,dtype=bf16".parse().unwrap(), with_tiles(1));
    let config = ScheduleSpace::new(&workload, &target).default_config();
    let tile = analyse(&lower(&workload, &target, &config).unwrap(), &target).dominant.unwrap().tile;
    assert_eq!((tile.elements, tile.group, tile.inner_steps), (32.0 * 32.0, 32.0, 32.0), "{config}");
    assert_eq!((tile.registers, tile.free_registers, tile.in_memory), (8.0, 0.0, false));
    assert!((64.0..67.0).contains(&tile.cycles) && (0.95..1.0).contains(&tile.efficiency), "{tile:?}");
}

#[test]
fn nests_that_tile_instructions_do_not_compute_are_found() {
    let (workload, target): (Workload, _) = ("matmul:m=64,n=64,k=64,dtype=bf16".parse().unwrap(), with_tiles(1));
    let config = ScheduleSpace::new(&workload, &target).default_config();
    let program = lower(&workload, &target, &config).unwrap();
    verify(&program, &target).unwrap();

    let broken = |change: &dyn Fn(&mut Program)| {
        let mut program = program.clone();
        change(&mut program);
        verify(&program, &target).unwrap_err().to_string()
    };
    let registers = broken(&|program| {
        let sums = program.buffers.iter_mut().find(|buffer| buffer.name.starts_with("sums")).unwrap();
        sums.scope = Scope::Register;
    });
    assert!(registers.contains("the sums of a tile instruction"), "{registers}");

    let serial = broken(&|program| {
        let stage = program.stages.last_mut().unwrap();
        let words = words_of(&mut stage.body).unwrap();
        words.kind = LoopKind::Serial;
    });
    assert!(serial.contains("the loops do not match the tile instruction"), "{serial}");
}

/// Returns the loop over the words of a tile's row: the third from the inside in the first call.
fn words_of(nodes: &mut [Node]) -> Option<&mut autotune_ir::program::Loop> {
    fn third(node: &mut Node, depth: usize) -> Option<&mut autotune_ir::program::Loop> {
        let Node::Loop(l) = node else { return None };
        if depth == 2 { Some(l) } else { third(l.body.first_mut()?, depth - 1) }
    }
    fn loops(node: &Node) -> usize {
        node.body().first().map_or(0, loops) + usize::from(matches!(node, Node::Loop(_)))
    }
    nodes.iter_mut().find_map(|node| match node {
        Node::Call { body, .. } => {
            let product = body.last_mut()?;
            let depth = loops(product);
            third(product, depth - 1)
        }
        node => words_of(node.body_mut()?),
    })
}
