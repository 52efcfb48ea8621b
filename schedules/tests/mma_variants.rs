//! Every variant of the sketches for tensor cores, in small sizes: interpreted, and as CUDA C on
//! the CPU. There are more chunks than stages, so that phases wrap around twice, or once with many
//! splits. Persistent grids have more tiles than blocks.
//!
//! Neither detects a missing fence, since both run threads one after the other on one memory.
//!
//! Without a C++ compiler, the second test prints a notice and passes; `AUTOTUNE_REQUIRE=g++` makes
//! that a failure.

#![cfg(unix)]

use std::collections::BTreeSet;

use autotune_ir::{DType, GpuTarget, Program, interpret, verify};
use autotune_schedules::gpu::{MMA, Tiling, WGMMA};
use autotune_schedules::{Config, lower, tolerance};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};

use crate::common::cuda_on_cpu::OnCpu;
use crate::common::pipelines::{group_config, small_target};
use crate::common::variants::{self, Variant};
use crate::common::{missing, or_long};

/// Workload for which the sketches have each variant.
const NOMINAL: &str = "matmul:m=4096,n=4096,k=6144";

/// Convolutions with padding, strides, several taps, groups and a single tap, and batched products,
/// for given numbers of splits and chunks.
const OTHERS: [fn(usize, usize) -> String; 6] = [
    |parts, chunks| format!("conv2d:n=2,c={},h=5,w=6,o=20,k=3,p=1,bias,add", 16 * parts * chunks.div_ceil(9)),
    |parts, chunks| format!("conv2d:c={},h=9,w=7,o=24,k=3,s=2,p=1,g=2,act=relu", 32 * parts * chunks.div_ceil(9)),
    |parts, chunks| format!("conv2d:n=3,c={},h=7,w=5,o=18,k=1,s=2", 16 * parts * chunks - 4),
    |parts, chunks| format!("conv2d:c={},h=6,w=6,o=17,k=5,p=2,bias", 16 * parts * chunks.div_ceil(25)),
    |parts, chunks| format!("matmul:b=3,m=20,n=24,k={},bias", 16 * parts * chunks - 8),
    |parts, chunks| format!("matmul:b=2,m=33,n=20,k={},add", 16 * parts * chunks - 4),
];

/// Stride through the variants.
const ONE_IN: [usize; 2] = [16, 1];

struct Case {
    workload: Workload,
    config: Config,
    variant: Variant,
}

fn number(variant: &Variant, name: &str) -> usize {
    variant[name].parse().unwrap()
}

/// Returns the chunks per split. Phases wrap around twice, or once with many splits.
fn chunks(stages: usize, split: usize) -> usize {
    if split > 2 { stages + 1 } else { 2 * stages + 1 }
}

/// Returns a matrix product with a few tiles.
fn product(sketch: &str, dtype: DType, variant: &Variant) -> Workload {
    let (stages, split) = (number(variant, "stages"), number(variant, "split"));
    let whole = split * chunks(stages, split);
    let (m, n, whole) = match variant.get("grid").map(String::as_str) {
        // Each block has at least two tiles.
        Some("persistent") => (400, 24, whole.div_ceil(2)),
        Some(_) if split > 2 || variant["producer"] == "inline" => (60, 12, whole),
        Some(_) => (100, 12, whole),
        None => (40, 24, whole),
    };
    let bytes = if sketch == WGMMA.name { 128 } else { 32 };
    // The last chunk is incomplete.
    let k = (bytes * whole - 16) / dtype.bytes();
    format!("matmul:m={m},n={n},k={k},dtype={},bias,act=relu", dtype.word()).parse().unwrap()
}

/// True if phases wrap around, and blocks of a persistent grid have several tiles, some one more
/// than others.
fn is_long(tiling: &Tiling) -> bool {
    let (tiles, persistent) = (tiling.all_tiles(), tiling.persistent);
    let turns = persistent.map_or(1, |blocks| tiles / blocks);
    let uneven = persistent.is_none_or(|blocks| turns > 1 && !tiles.is_multiple_of(blocks));
    turns * tiling.chunks() >= chunks(tiling.slots, tiling.split) && uneven
}

/// Returns the choices of a sketch's knobs that no found variant has.
fn without_case(combinations: &[Variant], found: &[Variant]) -> BTreeSet<(String, String)> {
    let words = |variants: &[Variant]| variants.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    let (all, found): (BTreeSet<_>, BTreeSet<_>) = (words(combinations), words(found));
    all.difference(&found).cloned().collect()
}

/// Element types of each sketch.
const TYPES: [(&str, &[DType]); 2] =
    [(MMA.name, &[DType::F16, DType::Bf16, DType::Tf32]), (WGMMA.name, &[DType::F16, DType::Bf16])];

/// Returns each variant of products and of other workloads, with the types in turn. With
/// `every_type`, returns each variant of products for warps with each type.
fn cases(gpu: &GpuTarget, every_type: bool) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (sketch, types) in TYPES {
        let each = every_type && sketch == MMA.name;
        let of = |turn: usize| if each { types.to_vec() } else { vec![types[turn / 2 % types.len()]] };
        add(&mut cases, gpu, (sketch, NOMINAL), of, |dtype, variant| product(sketch, dtype, variant));
    }
    for other in OTHERS {
        let types = |turn: usize| vec![TYPES[0].1[turn % 3]];
        add(&mut cases, gpu, (MMA.name, &other(1, 7)), types, |dtype, variant| {
            let (stages, split) = (number(variant, "stages"), number(variant, "split"));
            other(split, chunks(stages, split)).parse::<Workload>().unwrap().with_dtype(dtype).unwrap()
        });
    }
    cases
}

/// Adds the variants of a sketch for a workload, each for some types. Returns their number.
fn add(
    cases: &mut Vec<Case>,
    gpu: &GpuTarget,
    (sketch, nominal): (&str, &str),
    types: impl Fn(usize) -> Vec<DType>,
    workload: impl Fn(DType, &Variant) -> Workload,
) {
    let nominal = nominal.parse::<Workload>().unwrap().with_dtype(DType::F16).unwrap();
    let all = variants::combinations(&nominal, &small_target(), sketch);
    let begin = cases.len();
    for (turn, variant) in variants::spread(all.clone()).iter().enumerate() {
        for dtype in types(turn) {
            let workload = workload(dtype, variant);
            let found = variants::config(&workload, gpu, (sketch, variant), turn, is_long);
            cases.extend(found.map(|config| Case { workload, config, variant: variant.clone() }));
        }
    }
    let found: Vec<Variant> = cases[begin..].iter().map(|case| case.variant.clone()).collect();
    eprintln!("{nominal}, {sketch}: {} kernels of {} combinations", found.len(), all.len());
    let missing = without_case(&all, &found);
    assert!(missing.is_empty(), "{nominal}, {sketch}: no {missing:?}");
}

#[test]
fn the_interpreter_agrees_with_the_reference() {
    let target = small_target();
    let cases = cases(target.gpu().unwrap(), false);
    for (number, Case { workload, config, .. }) in cases.iter().enumerate().step_by(or_long(ONE_IN)) {
        let program = lower(workload, &target, config).unwrap();
        verify(&program, &target).unwrap();
        let operands = Operands::random(workload.spec(), number as u64);
        let output = interpret(&program, &operands).unwrap_or_else(|e| panic!("{workload} {config}: {e}"));
        let error = max_rel_error(&output, &reference(workload, &operands));
        assert!(error <= tolerance(workload, config), "{workload} {config}: error {error}");
    }
}

/// Faults that only show once phases have wrapped around twice, because they skip a later wait.
const LATE_FAULTS: [(&str, &str); 3] = [
    ("await_boxes(arrivals, 4, awaited, awaited + 1);", "if (awaited < 8) { } else ++awaited;"),
    ("await_boxes(releases, 4, released, issued - 3);", "if (issued < 11) { } else ++released;"),
    ("release_boxes(releases, 4, released, awaited - 1);", "if (released < 8) { } else ++released;"),
];

/// Returns a product whose phases wrap around three times, with one tile per block and four stages.
fn for_faults() -> (Workload, Config) {
    let workload = "matmul:m=100,n=12,k=840,dtype=f16".parse().unwrap();
    let config = group_config(&workload, "tile.m=128x64 tile.n=16x16 stages=4 producer=group");
    (workload, config)
}

#[test]
fn kernels_agree_with_the_reference_and_late_faults_show() {
    let target = small_target();
    let cases: Vec<Case> = cases(target.gpu().unwrap(), true).into_iter().step_by(or_long(ONE_IN)).collect();
    let (workload, config) = for_faults();
    let all = cases.iter().map(|case| (&case.workload, &case.config));
    let all = all.chain(LATE_FAULTS.iter().map(|_| (&workload, &config)));
    let programs: Vec<Program> = all.map(|(workload, config)| lower(workload, &target, config).unwrap()).collect();

    let kernels = OnCpu::build(programs, |number, text| match number.checked_sub(cases.len()) {
        None => text,
        Some(fault) => {
            let (wait, late) = LATE_FAULTS[fault];
            assert!(text.contains(wait), "{text}");
            text.replace(wait, &late.replace("{ }", wait))
        }
    });
    let kernels = match kernels {
        Ok(kernels) => kernels,
        Err(reason) => return missing("g++", &reason),
    };

    for (number, Case { workload, config, .. }) in cases.iter().enumerate() {
        let operands = Operands::random(workload.spec(), number as u64);
        let output =
            kernels.run(number, &operands, number % 2 == 1).unwrap_or_else(|e| panic!("{workload} {config}: {e}"));
        let error = max_rel_error(&output, &reference(workload, &operands));
        assert!(error <= tolerance(workload, config), "{workload} {config}: error {error}");
    }

    let operands = Operands::random(workload.spec(), 1);
    let expected = reference(&workload, &operands);
    for (fault, (wait, _)) in LATE_FAULTS.iter().enumerate() {
        let shows = |backwards: bool| match kernels.run(cases.len() + fault, &operands, backwards) {
            Ok(output) => max_rel_error(&output, &expected) > tolerance(&workload, &config),
            Err(_) => true,
        };
        assert!(shows(false) || shows(true), "{config}: late without {wait}");
    }
}
