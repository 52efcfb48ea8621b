//! The analysis of loop nests against elements counted one by one, and against the assembler's code
//! for register tiles.

#![cfg(target_arch = "x86_64")]

use std::collections::BTreeSet;

use autotune_codegen::asm::{assemble, x86::disassemble};
use autotune_ir::analyse::{RegisterTile, analyse};
use autotune_ir::program::{Access, Node, Store, When};
use autotune_ir::{CpuTarget, Isa, Program, Target, VarId};
use autotune_schedules::{KnobValue, ScheduleSpace, lower};
use autotune_workloads::Workload;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::common::workloads::random_workload;

fn target(isa: Isa) -> Target {
    Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1) })
}

/// A multiply-accumulate with the loops around it.
type Chain<'a> = (Vec<(VarId, usize)>, &'a Store);

/// Returns the multiply-accumulate that runs most often; the first one of several.
fn dominant(program: &Program) -> Option<Chain<'_>> {
    fn visit<'a>(nodes: &'a [Node], main: usize, loops: &mut Vec<(VarId, usize)>, best: &mut Option<Chain<'a>>) {
        let trips = |loops: &[(VarId, usize)]| loops.iter().map(|l| l.1).product::<usize>();
        for node in nodes {
            match node {
                // Copies that compute a prologue are iterations of another equation.
                Node::Store(store) if store.iteration.as_ref().is_some_and(|it| it.equation == main) => {
                    if best.as_ref().is_none_or(|(known, _)| trips(known) < trips(loops)) {
                        *best = Some((loops.clone(), store));
                    }
                }
                Node::Loop(l) => {
                    loops.push((l.var, l.extent));
                    visit(&l.body, main, loops, best);
                    loops.pop();
                }
                node => visit(node.body(), main, loops, best),
            }
        }
    }
    let mut best = None;
    for stage in program.stages.iter().filter(|stage| stage.when == When::EveryRun) {
        visit(&stage.body, program.algorithm.main, &mut Vec::new(), &mut best);
    }
    best
}

/// Counts the distinct elements of an access in the loops from `level` on, with the outer loops at
/// their first iteration.
fn count_elements(program: &Program, access: &Access, loops: &[(VarId, usize)], level: usize) -> usize {
    let strides = program.buffer(access.buffer).strides();
    let moves = |var: VarId| access.index.iter().any(|index| index.coefficient(var) != 0);
    let inner: Vec<(VarId, usize)> = loops[level..].iter().copied().filter(|l| moves(l.0)).collect();
    let mut elements = BTreeSet::new();
    for number in 0..inner.iter().map(|l| l.1).product::<usize>() {
        let mut rest = number;
        let values: Vec<(VarId, i64)> =
            inner.iter().map(|&(var, extent)| ((var, (rest % extent) as i64), rest /= extent).0).collect();
        let value = |var: VarId| values.iter().find(|v| v.0 == var).map_or(0, |v| v.1);
        let offset: i64 = access.index.iter().zip(&strides).map(|(index, s)| index.eval(value) * s).sum();
        elements.insert(offset);
    }
    elements.len()
}

#[test]
fn footprints_are_the_elements_that_loops_touch() {
    const MOST: usize = 1 << 17;
    let (mut levels, mut exact) = (0, 0);
    for seed in 0..150u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let workload = random_workload(&mut rng);
        let target = target(Isa::Avx2);
        let config = ScheduleSpace::new(&workload, &target).sample(&mut rng);
        let program = lower(&workload, &target, &config).unwrap();
        let Some((loops, store)) = dominant(&program) else { continue };
        let found = analyse(&program, &target).dominant.unwrap();
        assert_eq!(found.trips, loops.iter().map(|l| l.1 as f64).product::<f64>(), "seed {seed}: {workload}\n{config}");

        // A copy of nothing but padding cannot be attributed to an operand.
        if (0..2).any(|operand| found.footprint(operand, 0).elements == 0.0) {
            continue;
        }

        let mut loads = Vec::new();
        store.value.for_each_load(&mut |load| loads.push(load));
        for level in (0..=loops.len()).filter(|&level| loops[level..].iter().map(|l| l.1).product::<usize>() < MOST) {
            for load in &loads {
                let counted = count_elements(&program, load, &loops, level) as f64;
                // The analysis knows the operand; here it is the one with the nearest footprint.
                let footprints = [0, 1].map(|operand| found.footprint(operand, level).elements);
                let nearest = footprints
                    .into_iter()
                    .map(|f| f / counted)
                    .min_by(|a, b| (a - 1.0).abs().total_cmp(&(b - 1.0).abs()));
                let share = nearest.unwrap();
                levels += 1;
                exact += usize::from(share == 1.0);
                assert!(
                    (0.99..1.6).contains(&share),
                    "seed {seed}, level {level}: {share} of {counted}\n{workload}\n{config}"
                );
            }
        }
    }
    assert!(levels > 1000 && 20 * exact >= 19 * levels, "{exact} of {levels} are exact");
}

/// Instructions in the innermost loop around the only multiply-accumulate of a program.
#[derive(Debug, Default, PartialEq)]
struct Emitted {
    fmas: usize,
    accumulators: usize,
    /// Loads of vectors and of single elements.
    reads: usize,
}

impl Emitted {
    fn of(program: &Program, target: &Target) -> Self {
        let text = disassemble(&assemble(program, target).unwrap());
        let lines: Vec<&str> = text.lines().collect();
        let is_fma = |line: &&str| line.contains("vfmadd");
        // The innermost loop ends at the first jump after the multiply-adds, and begins at its
        // target.
        let last = lines.iter().rposition(&is_fma).unwrap();
        let jump = lines[last..].iter().find(|line| line.contains("jne near")).unwrap();
        let top = jump.split_whitespace().last().unwrap().trim_end_matches('h');
        let top = usize::from_str_radix(top, 16).unwrap();
        let offset = |line: &&str| usize::from_str_radix(line.split_whitespace().next().unwrap_or(""), 16).ok();
        let body = &lines[lines.iter().position(|line| offset(line) == Some(top)).unwrap()..=last];
        let operand = |line: &str| line.split_whitespace().nth(2).map(|word| word.trim_end_matches(',').to_string());
        let accumulators: BTreeSet<_> = body.iter().filter(|l| is_fma(l)).map(|line| operand(line)).collect();
        let is_read =
            |line: &&&str| line.contains('[') && ["vfmadd", "vmov", "vbroadcast"].iter().any(|op| line.contains(op));
        Self {
            fmas: body.iter().filter(|l| is_fma(l)).count(),
            accumulators: accumulators.len(),
            reads: body.iter().filter(is_read).count(),
        }
    }
}

/// Sizes are multiples of the tiles, so that there is one multiply-accumulate. Only sums stay in
/// registers from one step to the next.
#[test]
fn register_tiles_are_what_the_assembler_emits() {
    let mut full = 0;
    for (isa, lanes) in [(Isa::Avx2, 8), (Isa::Avx512, 16)] {
        let target = target(isa);
        for rows in 1..=14 {
            for vectors in 1..=4 {
                let workload: Workload =
                    format!("matmul:m={},n={},k=64", 4 * rows, 2 * vectors * lanes).parse().unwrap();
                let mut config = ScheduleSpace::new(&workload, &target).default_config();
                let tiles = [("tile.m", vec![4 * rows, rows]), ("tile.n", vec![2 * vectors * lanes, vectors * lanes])];
                let tiles = tiles.map(|(knob, tile)| (knob.to_string(), KnobValue::Tile(tile)));
                config.knobs.extend(tiles);
                config.knobs.insert("unroll".into(), KnobValue::Choice("4".into()));
                config.knobs.insert("data".into(), KnobValue::Choice("inplace".into()));
                // The rules refuse tiles that need too many registers.
                let Ok(program) = lower(&workload, &target, &config) else { continue };
                let tile: RegisterTile = analyse(&program, &target).dominant.unwrap().tile;
                assert!(tile.free_registers >= 0.0, "{config}: {tile:?}");
                full += usize::from(tile.free_registers == 0.0);

                let steps = tile.unrolled_steps as usize;
                let expected = Emitted {
                    fmas: steps * tile.fmas as usize,
                    accumulators: tile.fmas as usize,
                    reads: steps * (tile.vector_loads + tile.broadcasts) as usize,
                };
                assert_eq!(Emitted::of(&program, &target), expected, "{isa}: {config}\n{program}");
            }
        }
    }
    assert!(full >= 2, "{full} tiles that fill the registers");
}

/// Uncached constants come from memory once per element in their stored layout; cached constants do
/// not.
#[test]
fn cold_constants_are_counted_as_they_are_stored() {
    let target = target(Isa::Avx512);
    let cold_bytes = |text: &str, set: &[(&str, KnobValue)]| {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let mut config = space.default_config();
        for (knob, value) in set {
            if let Some(direct) = config.knobs.get_mut(*knob) {
                *direct = value.clone();
            }
        }
        analyse(&lower(&workload, &target, &config).unwrap(), &target).totals.cold_bytes
    };

    let (product, weights) = ("matmul:m=6,n=96,k=50", |choice: &str| [("weights", KnobValue::Choice(choice.into()))]);
    assert_eq!(cold_bytes(product, &[]), 0.0);
    assert_eq!(cold_bytes(&format!("{product},cold"), &weights("inplace")), 4.0 * 50.0 * 96.0);
    // Packing pads the columns to whole vectors.
    assert!(cold_bytes(&format!("{product},cold"), &weights("packed")) >= 4.0 * 50.0 * 96.0);

    // The transformed filters of F(m x m, 3 x 3) have (m + 2)² taps.
    let conv: Workload = "conv2d:c=64,h=28,w=28,o=64,k=3,p=1".parse().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for cold in [false, true] {
        let workload = conv.with_cold(cold);
        let space = ScheduleSpace::new(&workload, &target);
        let (config, m) = std::iter::repeat_with(|| space.sample(&mut rng).config().clone())
            .find_map(|config| match config.knobs.get("m")? {
                KnobValue::Choice(m) => Some((config.clone(), m.parse::<f64>().unwrap())),
                _ => None,
            })
            .unwrap();
        let found = analyse(&lower(&workload, &target, &config).unwrap(), &target).totals.cold_bytes;
        let stored = 4.0 * (m + 2.0).powi(2) * 64.0 * 64.0;
        assert!(
            if cold { (stored..1.02 * stored).contains(&found) } else { found == 0.0 },
            "{found} of {stored}: {config}"
        );
    }
}
