//! Assembled kernels against the reference, for schedules that are rarely drawn (`operators.rs`
//! tests all others), and programs that the assembler refuses.

#![cfg(target_arch = "x86_64")]

use autotune_codegen::asm::{AssembleError, assemble, x86::disassemble};
use autotune_ir::program::{Expr, LoopKind, Role, StoreMode};
use autotune_ir::{Affine, CpuTarget, Isa, Program, Target, VarId};
use autotune_schedules::{EXACT_TOLERANCE, KnobValue, ScheduleSpace, lower, tolerance};
use autotune_workloads::{Operands, Workload, max_rel_error, reference};

use crate::common::cases::for_cases_in_parallel;
use crate::common::machine;
use crate::common::nests::{access, assign, for_each_store, number, padded_conv, peeled_conv, repeat, tiled_matmul};
use crate::common::or_long;
use crate::common::spaces::{random_blocked, random_odd_winograd, random_panel, sample_winograd};
use crate::common::workloads::random_winograd;

const ISAS: [Isa; 2] = [Isa::Avx2, Isa::Avx512];

fn target(isa: Isa, threads: usize) -> Target {
    Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(threads) })
}

fn check_program(program: &Program, target: &Target, seed: u64, tolerance: f64, context: &str) {
    let code = assemble(program, target).unwrap_or_else(|e| panic!("{context}\n{e}\n{program}"));
    assert_eq!(code.entries.len(), program.stages.len());
    if !machine::runs(target.cpu().unwrap().isa) {
        return;
    }
    let operands = Operands::random(&program.spec, seed);
    let output = machine::run(program, &code, &operands);
    let error = max_rel_error(&output, &reference(&program.spec.name.parse().unwrap(), &operands));
    assert!(error <= tolerance, "{context}\nerror {error}\n{program}");
}

/// Masks with scores of minus infinity, and sums that overflow in other rows.
#[test]
fn keys_that_a_mask_leaves_out_have_no_weight() {
    for isa in ISAS.into_iter().filter(|&isa| machine::runs(isa)) {
        let target = target(isa, 1);
        for text in ["attention:b=2,m=3,n=21,k=4,mask=rows", "attention:b=2,m=21,n=21,k=4,mask=rows,causal"] {
            let workload: Workload = text.parse().unwrap();
            let program = lower(&workload, &target, &ScheduleSpace::new(&workload, &target).default_config()).unwrap();
            let mut operands = Operands::random(workload.spec(), 0);
            for (at, value) in operands[3].indexed_iter_mut() {
                *value = [*value, f32::NEG_INFINITY, 3e38, -3e38][if at[0] == 0 { at[1] % 2 } else { at[1] % 4 }];
            }
            let output = machine::run(&program, &assemble(&program, &target).unwrap(), &operands);
            let error = max_rel_error(&output, &reference(&workload, &operands));
            assert!(error <= EXACT_TOLERANCE, "{isa}: {workload}: {error}");
        }
    }
}

#[test]
fn random_images_in_blocks_of_channels_agree_with_the_reference() {
    for isa in ISAS {
        for_cases_in_parallel(200, |seed, choices| {
            let target = target(isa, 1 + seed as usize % 2);
            let (workload, config) = random_blocked(&target, choices);
            let program = lower(&workload, &target, &config).unwrap();
            let context = format!("seed {seed}, {isa}: {workload}\n{config}");
            check_program(&program, &target, seed, EXACT_TOLERANCE, &context);
        });
    }
}

#[test]
fn random_winograd_programs_agree_with_the_reference() {
    for isa in ISAS {
        for_cases_in_parallel(120, |seed, choices| {
            let target = target(isa, 1 + seed as usize % 2);
            let block = target.cpu().unwrap().lanes().max(8);
            let workload = match seed < 60 {
                true => random_winograd(choices, block),
                false => random_odd_winograd(choices, &target),
            };
            let space = ScheduleSpace::new(&workload, &target);
            for _ in 0..4 {
                let config = sample_winograd(&space, choices);
                let program = lower(&workload, &target, &config).unwrap();
                let context = format!("seed {seed}, {isa}: {workload}\n{config}");
                check_program(&program, &target, seed, tolerance(&workload, &config), &context);
            }
        });
    }
}

#[test]
fn random_panels_agree_with_the_reference() {
    for isa in ISAS {
        for_cases_in_parallel(150, |seed, choices| {
            let target = target(isa, 1 + seed as usize % 2);
            let (workload, config) = random_panel(&target, choices);
            let program = lower(&workload, &target, &config).unwrap();
            let context = format!("seed {seed}, {isa}: {workload}\n{config}");
            check_program(&program, &target, seed, EXACT_TOLERANCE, &context);
        });
    }
}

#[test]
fn panels_are_copied_by_shuffles() {
    let panel = |workload: &str, changes: &[(&str, KnobValue)]| {
        let (workload, target) = (workload.parse().unwrap(), target(Isa::Avx2, 1));
        let mut config = ScheduleSpace::new(&workload, &target).default_config();
        config.knobs.insert("data".into(), KnobValue::Choice("panel".into()));
        config.knobs.extend(changes.iter().map(|(name, value)| (name.to_string(), value.clone())));
        let program = lower(&workload, &target, &config).unwrap();
        check_program(&program, &target, 1, EXACT_TOLERANCE, &config.to_string());
        disassemble(&assemble(&program, &target).unwrap())
    };
    let order = KnobValue::Order(["m", "k", "n"].map(String::from).to_vec());
    let matmul = panel("matmul:m=11,n=1024,k=9", &[("tile.m", KnobValue::Tile(vec![6, 6])), ("order", order)]);
    assert!(matmul.contains("vunpckhps") && matmul.contains("vunpcklpd"), "{matmul}");
    let along_width = [("vector", KnobValue::Choice("ow".into())), ("tile.o", KnobValue::Tile(vec![60, 6]))];
    let changes = [&along_width[..], &[("tile.ow", KnobValue::Tile(vec![16, 16]))]].concat();
    let conv = panel("conv2d:c=5,h=9,w=33,o=60,k=3,s=2", &changes);
    assert!(conv.contains("vshufps") && conv.contains("vpermpd"), "{conv}");
}

/// Copies of whole vectors, of several, and of a remainder.
#[test]
fn transposes_are_copied_by_permutations() {
    let code = |isa, text: &str, [m, n]: [usize; 2], vector: &str| {
        let (workload, target): (Workload, _) = (text.parse().unwrap(), target(isa, 1));
        let mut config = ScheduleSpace::new(&workload, &target).default_config();
        for (name, tile) in [("tile.m", m), ("tile.n", n)] {
            config.knobs.insert(name.into(), KnobValue::Tile(vec![tile]));
        }
        config.knobs.insert("vector".into(), KnobValue::Choice(vector.into()));
        let program = lower(&workload, &target, &config).unwrap();
        check_program(&program, &target, 1, EXACT_TOLERANCE, &format!("{isa}: {workload}\n{config}"));
        disassemble(&assemble(&program, &target).unwrap())
    };
    for isa in ISAS {
        for k in [3, 5, 7] {
            for vectors in [1, 12 / k] {
                let tile = vectors * isa.vector_bytes() / 4;
                let first = code(isa, &format!("transpose:b=2,m={k},n=203"), [k, tile], "n");
                let last = code(isa, &format!("transpose:b=2,m=203,n={k}"), [tile, k], "m");
                assert!(first.contains("vpermps") && last.contains("vpermps"), "{first}\n{last}");
            }
        }
        for tile in [4, 8, 16].into_iter().filter(|tile| 4 * tile <= isa.vector_bytes()) {
            let block = code(isa, "transpose:b=2,m=37,n=45", [tile, 8], "m");
            assert!(block.contains("vunpcklpd"), "{block}");
        }

        // With a power-of-two stride, the elements of a column share few lines of the first-level
        // cache. The copy then transposes square blocks.
        let (lanes, word) = (isa.vector_bytes() / 4, if isa == Isa::Avx512 { "vshuff32x4" } else { "vperm2f128" });
        for (n, is_square) in [(1024, true), (2048, true), (1040, false)] {
            let blocks = code(isa, &format!("transpose:m=37,n={n}"), [lanes, lanes], "m");
            assert_eq!(blocks.contains(word), is_square, "{n}: {blocks}");
        }
    }
}

/// Overlapping windows, in tiles of one register per result and of several. Each element is
/// combined as few times as possible, and a NaN is propagated from any position.
#[test]
fn windows_share_what_they_combine() {
    let pools =
        ["k=3,s=1,p=1", "k=3,s=2,p=1", "k=3,s=1,p=1,exclude_pad", "kh=2,kw=5,s=1,ph=1,pw=2", "k=3,s=1,d=2", "k=3,s=3"];
    let kinds = ["max", "avg"];
    for (isa, pool, kind) in
        ISAS.into_iter().flat_map(|isa| pools.iter().flat_map(move |pool| kinds.map(|kind| (isa, pool, kind))))
    {
        let lanes = isa.vector_bytes() / 4;
        let Ok(workload) = format!("pool2d:c={},h=11,w=13,{pool},kind={kind}", 2 * lanes).parse::<Workload>() else {
            continue;
        };
        let target = target(isa, 1);
        for (tile, unroll) in
            [([1, 2, 4], "16"), ([1, 1, 4], "16"), ([2, 2, 2], "8"), ([1, 4, 2], "4"), ([1, 1, 8], "2")]
        {
            let mut config = ScheduleSpace::new(&workload, &target).default_config();
            let tiles = [("tile.c", tile[0] * lanes), ("tile.oh", tile[1]), ("tile.ow", tile[2])];
            tiles
                .into_iter()
                .for_each(|(name, tile)| drop(config.knobs.insert(name.into(), KnobValue::Tile(vec![tile]))));
            config.knobs.insert("unroll".into(), KnobValue::Choice(unroll.into()));
            let Ok(program) = lower(&workload, &target, &config) else { continue };
            check_program(&program, &target, 1, EXACT_TOLERANCE, &format!("{workload}\n{config}"));

            if !machine::runs(isa) {
                continue;
            }
            let mut operands = Operands::random(&program.spec, 1);
            for (number, value) in operands[0].iter_mut().enumerate().filter(|(number, _)| number % 29 == 7) {
                *value = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0][number % 5];
            }
            let output = machine::run(&program, &assemble(&program, &target).unwrap(), &operands);
            for (index, expected) in reference(&workload, &operands).indexed_iter() {
                let found = output[&index];
                let is_close = (found - expected).abs() <= 1e-5 * expected.abs().max(1.0);
                let is_same = found == *expected || found.is_nan() && expected.is_nan();
                assert!(is_same || is_close, "{isa}: {workload}\n{config}\n{index:?}: {found}, expected {expected}");
            }
        }
    }
}

/// Max is computed with the instruction that ignores NaN, and again with NaN propagation if some
/// input is NaN. The NaN may be at any position. Infinities of both signs, and sums that overflow,
/// look like NaN to the check.
#[test]
fn maxima_pass_on_what_is_not_a_number_from_every_place() {
    let tile = |names: [&str; 2], tile: [usize; 2]| {
        names.into_iter().zip(tile).map(|(name, tile)| (name.to_string(), KnobValue::Tile(vec![tile]))).collect()
    };
    let windows = |tiles| tile(["tile.oh", "tile.ow"], tiles);
    let cases: [(&str, Vec<(String, KnobValue)>); 5] = [
        ("pool2d:c=LANES,h=4,w=6,k=3,s=1,p=1,kind=max", windows([2, 4])),
        ("pool2d:c=LANES,h=5,w=5,k=3,s=2,p=1,kind=max", windows([1, 2])),
        ("pool2d:c=LANES,h=4,w=4,k=2,s=2,act=relu,kind=max", windows([2, 2])),
        ("reduce:m=5,n=37,op=max", tile(["tile.m", "tile.n"], [3, 8])),
        ("reduce:m=5,n=37,k=19,op=max", tile(["tile.m", "tile.n"], [1, 2])),
    ];
    for (isa, (text, tiles)) in ISAS.into_iter().flat_map(|isa| cases.each_ref().map(|case| (isa, case))) {
        if !machine::runs(isa) {
            continue;
        }
        let text = text.replace("LANES", &(isa.vector_bytes() / 4).to_string());
        let (workload, target): (Workload, _) = (text.parse().unwrap(), target(isa, 1));
        let mut config = ScheduleSpace::new(&workload, &target).default_config();
        for (name, tile) in
            tiles.iter().filter(|(name, _)| config.knobs.contains_key(name)).cloned().collect::<Vec<_>>()
        {
            config.knobs.insert(name, tile);
        }
        let program = lower(&workload, &target, &config).unwrap_or_else(|e| panic!("{text}: {config}: {e}"));
        let assembled = assemble(&program, &target).unwrap();
        let check = |operands: &Operands, what: &str| {
            let output = machine::run(&program, &assembled, operands);
            for (index, expected) in reference(&workload, operands).indexed_iter() {
                let found = output[&index];
                let is_same = found == *expected || found.is_nan() && expected.is_nan();
                assert!(is_same, "{isa}: {text}\n{config}\n{what}, {index:?}: {found}, expected {expected}");
            }
        };

        let operands = Operands::random(&program.spec, 1);
        for place in (0..operands[0].len()).step_by(or_long([5, 1])) {
            for value in [f32::NAN, -f32::NAN, f32::INFINITY] {
                let mut operands = operands.clone();
                operands[0].as_slice_mut().unwrap()[place] = value;
                check(&operands, &format!("{value} at {place}"));
                operands[0].as_slice_mut().unwrap()[(place + 1) % 7] = f32::NEG_INFINITY;
                check(&operands, &format!("{value} at {place}, beside the other infinity"));
            }
        }
        for values in [[f32::MAX, f32::MAX], [f32::MAX, f32::NEG_INFINITY], [-f32::MAX, f32::NAN]] {
            let mut operands = operands.clone();
            operands[0].iter_mut().enumerate().for_each(|(i, value)| *value = values[usize::from(i % 11 == 5)]);
            check(&operands, &format!("{values:?}"));
        }
    }
}

/// A tile of two by four windows of three by three takes 32 operations, or a few more where
/// registers run out. Computing each window separately takes 64.
#[test]
fn a_tile_of_windows_takes_half_of_the_operations() {
    let count = |isa: Isa, text: &str| {
        let (workload, target): (Workload, _) = (text.parse().unwrap(), target(isa, 1));
        let mut config = ScheduleSpace::new(&workload, &target).default_config();
        for (name, tile) in [("tile.c", isa.vector_bytes() / 4), ("tile.oh", 2), ("tile.ow", 4)] {
            config.knobs.insert(name.into(), KnobValue::Tile(vec![tile]));
        }
        config.knobs.insert("unroll".into(), KnobValue::Choice("16".into()));
        let code = disassemble(&assemble(&lower(&workload, &target, &config).unwrap(), &target).unwrap());
        ["vmaxps", "vaddps"].map(|word| code.matches(word).count())
    };
    for isa in ISAS {
        let c = isa.vector_bytes() / 4;
        let pool = |kind: &str, rest: &str| count(isa, &format!("pool2d:c={c},{rest},kind={kind}"));
        // Max is computed once ignoring NaN, in fewer registers, with sums that detect NaN, and a
        // second time if there is one. With AVX-512 this is used only where it is faster.
        let (beside, apart) = match isa {
            Isa::Avx512 => ([32 + 32, 3], [8 * 8, 0]),
            _ => ([36 + 32, 1], [2 * 8 * 8, 3]),
        };
        assert_eq!(pool("max", "h=4,w=6,k=3,s=1"), beside, "{isa}");
        assert_eq!(pool("max", "h=6,w=12,k=3,s=3"), apart, "{isa}");
        assert_eq!(pool("avg", "h=4,w=6,k=3,s=1"), [0, 32], "{isa}");
        assert_eq!(pool("avg", "h=6,w=12,k=3,s=3"), [0, 8 * 8], "{isa}");
    }
}

/// Adjacent rows whose lanes are reduced together: up to as many rows as a register has lanes,
/// more, and a remainder.
#[test]
fn lanes_of_rows_are_folded_together() {
    let operators = ["op=sum", "op=max", "op=min", "op=prod", "op=mean"].map(|op| format!("reduce:m=23,n=49,{op}"));
    let chains = ["softmax:m=23,n=49", "layer_norm:m=23,n=49", "pool2d:n=3,c=23,h=2,w=49,kh=2,kw=49,kind=max"];
    let workloads = operators.into_iter().chain(chains.map(String::from)).map(|text| text.parse::<Workload>().unwrap());

    for (isa, workload) in workloads.flat_map(|workload| ISAS.map(|isa| (isa, workload.clone()))) {
        let target = target(isa, 1);
        for (rows, width) in [(2, "1"), (3, "2"), (4, "2"), (8, "1"), (12, "1"), (20, "1"), (23, "1")] {
            let mut config = ScheduleSpace::new(&workload, &target).default_config();
            for (name, value) in &mut config.knobs {
                match name.as_str() {
                    "tile.m" | "tile.c" => *value = KnobValue::Tile(vec![rows]),
                    "vector" => {
                        *value = KnobValue::Choice(if workload.to_string().contains("kw") { "kw" } else { "n" }.into())
                    }
                    "width" => *value = KnobValue::Choice(width.into()),
                    _ => {}
                }
            }

            let context = format!("{isa}: {workload}\n{config}");
            let program = match lower(&workload, &target, &config) {
                Ok(program) => program,
                Err(error) => {
                    assert!(error.to_string().contains("registers"), "{context}\n{error}");
                    continue;
                }
            };

            check_program(&program, &target, rows as u64, tolerance(&workload, &config), &context);
            let is_folded = disassemble(&assemble(&program, &target).unwrap()).contains("vunpckhps");
            assert!(is_folded || rows > 8 || isa == Isa::Avx2 && rows > 2, "{context}\n{program}");
        }
    }
}

/// Every number of lanes with a stride of two elements, in tiles of one vector and of several.
#[test]
fn every_other_element_is_loaded_by_numbers() {
    for (isa, columns) in ISAS.into_iter().flat_map(|isa| (1..=33).map(move |columns| (isa, columns))) {
        let target = target(isa, 1);
        for text in [format!("pool2d:c=3,h=5,w={},kh=2,kw=1,s=2,kind=max", 2 * columns)] {
            let workload: Workload = text.parse().unwrap();
            let mut config = ScheduleSpace::new(&workload, &target).default_config();
            for (name, tile) in [("tile.ow", columns), ("tile.oh", 2)] {
                config.knobs.entry(name.into()).and_modify(|value| *value = KnobValue::Tile(vec![tile]));
            }
            let program = lower(&workload, &target, &config).unwrap();
            let context = format!("{isa}: {workload}\n{config}");
            check_program(&program, &target, columns as u64, EXACT_TOLERANCE, &context);
            let code = disassemble(&assemble(&program, &target).unwrap());
            assert_eq!(code.contains("vpermt2ps"), isa == Isa::Avx512 && columns > 8, "{context}\n{code}");
        }
    }
}

/// Results that are stored normally, prefetched, and stored with streaming stores; tiles of part of
/// a vector and of a whole one.
#[test]
fn results_are_stored_past_caches_where_they_are_aligned() {
    let isas = ISAS.into_iter().filter(|&isa| machine::runs(isa));
    for (isa, width) in isas.flat_map(|isa| [1000usize, 1024].map(|width| (isa, width))) {
        let target = Target::Cpu(CpuTarget { isa, l2_bytes: 1 << 10, ..CpuTarget::generic_avx2(2) });

        let transpose: Workload = format!("transpose:m={width},n=7").parse().unwrap();
        for (tile, is_whole) in [(4, false), (isa.vector_bytes() / 4, true)] {
            let mut config = ScheduleSpace::new(&transpose, &target).default_config();
            let knobs = [("vector", KnobValue::Choice("m".into())), ("result", KnobValue::Choice("streamed".into()))];
            let tiles = [("tile.m", tile), ("tile.n", 4)].map(|(name, tile)| (name, KnobValue::Tile(vec![tile])));
            knobs.into_iter().chain(tiles).for_each(|(name, value)| drop(config.knobs.insert(name.into(), value)));
            let program = lower(&transpose, &target, &config).unwrap();
            check_program(&program, &target, 1, EXACT_TOLERANCE, &format!("{transpose}\n{config}"));
            let code = disassemble(&assemble(&program, &target).unwrap());
            let is_aligned = (4 * width).is_multiple_of(isa.vector_bytes());
            assert_eq!(code.contains("vmovntps"), is_whole && is_aligned, "{code}");
        }

        for operator in ["softmax", "layer_norm", "log_softmax"] {
            let workload: Workload = format!("{operator}:m=7,n={width}").parse().unwrap();
            let mut config = ScheduleSpace::new(&workload, &target).default_config();
            for (result, word) in [("cached", "vmovups"), ("fetched", "prefetchw"), ("streamed", "vmovntps")] {
                config.knobs.insert("result".into(), KnobValue::Choice(result.into()));
                let program = lower(&workload, &target, &config).unwrap();
                check_program(&program, &target, 1, tolerance(&workload, &config), &format!("{workload}\n{config}"));
                let code = disassemble(&assemble(&program, &target).unwrap());
                assert!(code.contains(word) && code.contains("sfence") == (result == "streamed"), "{code}");
            }
        }
    }
}

#[test]
fn handmade_programs_agree_with_the_reference() {
    let programs = [
        tiled_matmul("matmul:m=7,n=21,k=13,bias,act=relu", [3, 8, 5]),
        tiled_matmul("matmul:m=5,n=19,k=6,bias,add", [2, 16, 2]),
        tiled_matmul("matmul:m=5,n=23,k=6", [2, 11, 2]),
        peeled_conv("conv2d:c=4,h=7,w=6,o=8,k=3,p=1,bias,act=relu"),
        padded_conv("conv2d:c=3,h=5,w=6,o=4,k=3,p=1,s=2,bias,add,act=relu"),
    ];
    for isa in ISAS {
        for (i, program) in programs.iter().enumerate() {
            check_program(program, &target(isa, 1), 7, EXACT_TOLERANCE, &format!("handmade {i}, {isa}"));
        }
    }
}

#[test]
fn a_tile_beyond_the_registers_is_refused() {
    let program = tiled_matmul("matmul:m=16,n=16,k=4", [8, 16, 4]);
    let refused = assemble(&program, &target(Isa::Avx2, 1));
    assert_eq!(refused, Err(AssembleError::RegisterTile { needed: 18, available: 16 }));
    assert!(assemble(&program, &target(Isa::Avx512, 1)).is_ok());
    assert_eq!(assemble(&program, &target(Isa::Neon, 1)), Err(AssembleError::Isa(Isa::Neon)));
}

#[test]
fn every_number_of_lanes_agrees_with_the_reference() {
    for isa in ISAS {
        for lanes in 1..=20 {
            let program = tiled_matmul(&format!("matmul:m=4,n={},k=5,bias", 2 * lanes + lanes / 2), [3, lanes, 2]);
            check_program(&program, &target(isa, 1), lanes as u64, EXACT_TOLERANCE, &format!("{lanes} lanes, {isa}"));
        }
    }
}

#[test]
fn indices_that_are_no_registers_are_refused() {
    let refused = Err(AssembleError::RegisterIndex { buffer: "acc".into() });
    let whole = tiled_matmul("matmul:m=2,n=8,k=4", [2, 8, 4]);
    let kk = VarId(whole.vars.iter().position(|v| v == "kk").unwrap() as u32);
    let change = |new: &dyn Fn(&mut [Affine])| {
        let mut program = whole.clone();
        for_each_store(&mut program.stages[1].body, &mut |store| {
            if store.mode == StoreMode::Accumulate {
                new(&mut store.dst.index);
            }
        });
        assemble(&program, &target(Isa::Avx2, 1))
    };
    assert!(change(&|_| {}).is_ok());
    assert_eq!(change(&|index| index[0] = Affine::var(kk)), refused);
    assert_eq!(change(&|index| index[1] = index[1].clone() + 1), refused);
    assert_eq!(change(&|index| index[1] = index[1].clone() * 2), refused);
}

#[test]
fn far_elements_are_refused() {
    let mut program = tiled_matmul("matmul:m=2,n=8,k=4", [2, 8, 4]);
    program.buffers[0].shape[2] = 1 << 29;
    assert_eq!(assemble(&program, &target(Isa::Avx2, 1)), Err(AssembleError::Displacement { bytes: 1 << 31 }));
}

#[test]
fn deep_nests_are_refused() {
    let mut program = tiled_matmul("matmul:m=2,n=8,k=4", [2, 8, 4]);
    let output = program.find(Role::Output).unwrap();
    let nest = |depth: u32| {
        let store = assign(access(output, &[number(0), number(0), number(0)]), Expr::Const(1.5));
        (0..depth).fold(store, |body, d| repeat(LoopKind::Serial, VarId(d % 6), 2, vec![body]))
    };
    program.stages[1].body = vec![nest(13)];
    assert!(assemble(&program, &target(Isa::Avx512, 1)).is_ok());
    program.stages[1].body = vec![nest(14)];
    let refused = Err(AssembleError::Pointers { needed: 15, available: 14 });
    assert_eq!(assemble(&program, &target(Isa::Avx512, 1)), refused);
}

#[test]
fn disassembly_of_a_small_kernel() {
    let program = tiled_matmul("matmul:m=2,n=11,k=3,bias,act=relu", [2, 11, 3]);
    for isa in ISAS {
        let code = assemble(&program, &target(isa, 1)).unwrap();
        crate::common::golden::assert_golden(&format!("tiled_matmul_{isa}.asm"), &disassemble(&code));
    }
}
