//! Properties of the features of every program.

use autotune_ir::program::{Expr, Node};
use autotune_ir::{Affine, Program, Rates, Target, VarId};
use autotune_schedules::{Config, KnobValue, ScheduleSpace, lower};
use autotune_workloads::Workload;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::programs::{Gemm, SMALL, close, column, count, gemm, padded_conv, target};
use crate::features::{FEATURE_COUNT, extract, names};

#[test]
fn all_programs_give_rows_of_finite_numbers() {
    let mut programs = vec![gemm(SMALL), padded_conv(3, 9, 5), padded_conv(64, 56, 64)];
    let nothing = Program { stages: Vec::new(), ..gemm(SMALL) };
    let one = gemm(Gemm { m: 1, n: 1, k: 1, rows: 1, columns: 1 });
    programs.extend([nothing, one]);
    let gpu = Target::detect("cuda:sm_90", None).unwrap();
    for text in ["matmul:m=64,n=100,k=33,bias", "conv2d:c=8,h=14,w=14,o=16,k=3,p=1,act=relu"] {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &gpu);
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let sampled = (0..12).map(|_| space.sample(&mut rng).config().clone());
        let configs = sampled.chain([space.default_config()]);
        programs.extend(configs.map(|config| lower(&workload, &gpu, &config).unwrap()));
    }
    assert!(programs.iter().flat_map(|program| extract(program, &gpu)).all(|value| value.is_finite()));
    for program in &programs {
        for threads in [1, 2, 64] {
            let row = extract(program, &target(threads));
            assert_eq!(row.len(), FEATURE_COUNT);
            for (name, value) in names().iter().zip(&row) {
                assert!(value.is_finite(), "{name} of {} is {value}", program.spec.name);
            }
        }
    }
}

#[test]
fn a_panel_holds_the_data_operand_side_by_side() {
    let workload: Workload = "conv2d:c=6,h=9,w=33,o=60,k=3,s=2,p=1".parse().unwrap();
    let target = target(1);
    let mut config = ScheduleSpace::new(&workload, &target).default_config();
    let words = [("data", "panel"), ("vector", "ow"), ("unroll", "1")].map(|(k, v)| (k, KnobValue::Choice(v.into())));
    let tiles = [("tile.o", vec![60, 6]), ("tile.oh", vec![5, 1]), ("tile.ow", vec![16, 16])];
    let tiles = tiles.map(|(knob, tile)| (knob, KnobValue::Tile(tile)));
    config.knobs.extend(words.into_iter().chain(tiles).map(|(knob, value)| (knob.to_string(), value)));
    config.knobs.insert("order".into(), KnobValue::Order(["oh", "ow", "c", "o"].map(String::from).to_vec()));
    let row = extract(&lower(&workload, &target, &config).unwrap(), &target);
    assert!(row.iter().all(|value| value.is_finite()));
    close(column(&row, "vector.stride.data.log2_elements"), 1.0, "side by side");
    close(column(&row, "vector.class.code"), 2.0, "rows of the data are vectorised");
    close(
        count(&row, "iterations.tile.reduce.log2_count") * count(&row, "iterations.body.reduce.log2_count"),
        54.0,
        "taps",
    );
    close(count(&row, "iterations.cache.row.log2_count"), 5.0, "register tiles of a cache tile");
    // A register tile reads 16 pixels in each of 54 steps; a cache tile consists of five of them.
    close(count(&row, "footprint.data.tile.log2_bytes"), 4.0 * 54.0 * 16.0, "one register tile");
    close(count(&row, "footprint.data.task.log2_bytes"), 4.0 * 54.0 * 16.0 * 5.0, "all");
}

/// Returns a copy of a program in which variable `v` is called `renamed[v]`.
fn renumber(program: &Program, renamed: &[u32]) -> Program {
    fn affine(a: &mut Affine, renamed: &[u32]) {
        for term in &mut a.terms {
            term.0 = VarId(renamed[term.0.0 as usize]);
        }
        a.terms.sort();
    }
    fn value(e: &mut Expr, renamed: &[u32]) {
        match e {
            Expr::Load(access) => access.index.iter_mut().for_each(|a| affine(a, renamed)),
            Expr::Gather(gather) => {
                gather.access.index.iter_mut().for_each(|a| affine(a, renamed));
                gather.at.iter_mut().for_each(|e| value(e, renamed));
            }
            Expr::Guarded { .. } => panic!("a program for a CPU has no conditions"),
            _ => e.operands_mut().iter_mut().for_each(|e| value(e, renamed)),
        }
    }

    fn nodes(body: &mut [Node], renamed: &[u32]) {
        for node in body {
            match node {
                Node::Loop(l) => l.var = VarId(renamed[l.var.0 as usize]),
                Node::Store(s) => {
                    value(&mut s.value, renamed);
                    let point = s.iteration.iter_mut().flat_map(|iteration| &mut iteration.point);
                    s.dst.index.iter_mut().chain(point).for_each(|a| affine(a, renamed));
                }
                Node::Prefetch { access, .. } => access.index.iter_mut().for_each(|a| affine(a, renamed)),
                _ => {}
            }
            if let Some(body) = node.body_mut() {
                nodes(body, renamed);
            }
        }
    }

    let mut program = program.clone();
    program.stages.iter_mut().for_each(|s| nodes(&mut s.body, renamed));
    program
}

#[test]
fn names_of_variables_do_not_matter() {
    for program in [gemm(Gemm { m: 27, ..SMALL }), padded_conv(8, 14, 16)] {
        let reversed: Vec<u32> = (0..program.vars.len() as u32).rev().collect();
        assert_eq!(extract(&renumber(&program, &reversed), &target(2)), extract(&program, &target(2)));
    }
}

const WORKLOADS: [&str; 12] = [
    "conv2d:c=3,h=32,w=32,o=16,k=7,s=2,p=3,bias,act=relu",
    "conv2d:c=64,h=56,w=56,o=64,k=3,p=1",
    "conv2d:c=512,h=7,w=7,o=512,k=3,p=1,bias,add,act=relu",
    "conv2d:c=64,h=28,w=28,o=128,k=1,s=2",
    "conv2d:c=48,h=15,w=17,o=48,k=3,p=1,g=48",
    "conv2d:n=2,c=12,h=9,w=11,o=20,kh=3,kw=5,p=2,d=2,g=4",
    "conv2d:c=1,h=5,w=5,o=1,k=5",
    "matmul:m=197,n=768,k=3072,bias",
    "matmul:m=1,n=1000,k=512",
    "matmul:m=1,n=1,k=1",
    "matmul:b=12,m=197,n=197,k=64",
    "matmul:m=37,n=1,k=5",
];

#[test]
fn maps_and_reductions_are_described_by_their_statement() {
    for (seed, text) in
        ["pool2d:c=8,h=30,w=41,k=3,s=2,p=1", "reduce:m=40,n=300,op=max", "transpose:m=65,n=130"].into_iter().enumerate()
    {
        let (workload, target): (Workload, _) = (text.parse().unwrap(), target(2));
        let space = ScheduleSpace::new(&workload, &target);
        let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
        for candidate in (0..16).map(|_| space.sample(&mut rng)) {
            let row = extract(&candidate.lower().unwrap(), &target);
            assert!(row.iter().all(|value| value.is_finite()), "{text}\n{candidate}");
            let share = column(&row, "total.dominant_leaf.share");
            assert!(share > 0.0 && share <= 1.0, "{text}: {share}\n{candidate}");
        }
    }
}

#[test]
fn every_config_of_every_workload_gives_a_row_of_its_own() {
    for (number, workload) in WORKLOADS.into_iter().enumerate() {
        let workload: Workload = workload.parse().unwrap();
        let target = target(1 + number % 3);
        let space = ScheduleSpace::new(&workload, &target);
        let mut rng = ChaCha8Rng::seed_from_u64(number as u64);
        let mut configs: Vec<Config> = (0..24).map(|_| space.sample(&mut rng).config().clone()).collect();
        configs.push(space.default_config());

        let mut programs: Vec<Program> = Vec::new();
        for config in &configs {
            let program = lower(&workload, &target, config).unwrap();
            if !programs.contains(&program) {
                programs.push(program);
            }
        }

        let mut distinct = Vec::new();
        for row in programs.iter().map(|program| extract(program, &target)) {
            for (name, value) in names().iter().zip(&row) {
                assert!(value.is_finite(), "{name} of {workload} is {value}");
            }
            let is = |name, low: f64, high: f64| {
                let value = column(&row, name);
                assert!((low..=high).contains(&value), "{workload}: {name} is {value}");
            };
            // At best, Winograd's algorithm multiplies 64 times for 36 outputs of 9 taps.
            is("total.fmas.per_direct_fma", 0.19, 1.0);
            is("total.stores.per_output", 1.0, 1e6);
            is("total.lane_use.ratio", 0.124, 1.0);
            // Column sums of long rows have their accumulators in cache.
            let adds_in_cache = configs.iter().any(|config| config.sketch == "map_reduce");
            is("register.in_memory.flag", 0.0, f64::from(u8::from(adds_in_cache)));
            is("estimate.roofline.per_peak", 0.19, 32e3);
            if !distinct.contains(&row) {
                distinct.push(row);
            }
        }
        // Programs of the smallest workloads differ only in the order of equal loops.
        let (distinct, all) = (distinct.len(), programs.len());
        assert!(
            workload.flops() < 1e3 || 5 * distinct >= 4 * all,
            "{workload}: {all} programs have {distinct} different rows"
        );
    }
}

/// True for the columns of the rates, and for those that depend on them.
fn follows_from_rates(name: &str) -> bool {
    name.starts_with("estimate.") || name.contains("_reads.") || name == "target.fork_join.log2_cycles"
}

#[test]
fn slower_caches_memory_and_threads_never_make_an_estimate_smaller() {
    let mut slowed = [0; 4];
    for (number, workload) in WORKLOADS.into_iter().enumerate() {
        let workload: Workload = workload.parse().unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(number as u64);
        let mut rates = Rates {
            bytes_per_kilocycle: std::array::from_fn(|_| rng.random_range(10..200_000)),
            fork_join_cycles: rng.random_range(1..100_000),
        };
        let target = target(1 + number % 3).with_rates(rates);
        let candidate = ScheduleSpace::new(&workload, &target).sample(&mut rng);
        let program = candidate.lower().unwrap();
        let row = extract(&program, &target);

        for (slower, slowed) in slowed.iter_mut().enumerate() {
            match rates.bytes_per_kilocycle.get_mut(slower) {
                Some(bytes) => *bytes = (*bytes / 3).max(1),
                None => rates.fork_join_cycles *= 3,
            }
            let slower_row = extract(&program, &target.clone().with_rates(rates));
            for ((name, before), after) in names().iter().zip(&row).zip(&slower_row) {
                assert!(after.is_finite(), "{name} of {workload} is {after}\n{candidate}");
                if name.starts_with("estimate.") {
                    assert!(after >= before, "{workload}: {name} falls from {before} to {after}\n{candidate}");
                    *slowed += usize::from(after > before);
                } else if !follows_from_rates(name) {
                    assert_eq!(after, before, "{workload}: {name}");
                }
            }
        }
    }
    assert!(slowed.iter().all(|&columns| columns > 0), "estimates that each rate slowed down: {slowed:?}");
}

/// A larger cache never has more traffic, and every cache loads each operand at least once.
#[test]
fn traffic_falls_with_capacity() {
    for seed in 0..50 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let rows = rng.random_range(1..9);
        let columns = 8 * rng.random_range(1..5);
        let g = Gemm {
            m: rows * rng.random_range(1..40),
            n: columns * rng.random_range(1..40),
            k: rng.random_range(1..900),
            rows,
            columns,
        };
        let row = extract(&gemm(g), &target(1));
        let curve = ["4k", "16k", "64k", "256k", "1m", "4m"]
            .map(|size| column(&row, &format!("traffic_at.{size}.bytes_per_flop")));
        assert!(curve.is_sorted_by(|a, b| *a >= b * 0.999), "seed {seed}: {g:?} {curve:?}");
        let operands = (g.m * g.k + g.k * g.n + g.m * g.n) as f64 * 4.0;
        let least = operands / (2.0 * (g.m * g.n * g.k) as f64);
        assert!(curve[5] >= least * 0.99, "seed {seed}: {g:?} {} < {least}", curve[5]);
    }
}

fn winograd(m: usize, threads: usize) -> Program {
    let workload: Workload = "conv2d:c=64,h=28,w=28,o=64,k=3,p=1,bias,act=relu".parse().unwrap();
    let config = format!(
        r#"{{"sketch":"winograd","knobs":{{"m":"{m}","tile.th":[1],"tile.tw":[5],"tile.register":[5,16],"tile.o":[64],
            "input":"fused","order.inner":["o","t"],"unroll":"4"}}}}"#
    );
    let config: Config = serde_json::from_str(&config).unwrap();
    lower(&workload, &target(threads), &config).unwrap()
}

#[test]
fn winograd_programs_count_the_work_they_do() {
    let program = winograd(4, 1);
    let row = extract(&program, &target(1));
    assert!(row.iter().all(|x| x.is_finite()));
    let tiles = 7.0 * 7.0;
    close(column(&row, "total.fmas.per_direct_fma"), 36.0 * tiles / (9.0 * 28.0 * 28.0), "multiply-adds");
    close(column(&row, "register.accumulators.vectors"), 10.0, "5 tiles of 2 vectors");
    close(count(&row, "iterations.cache.batch.log2_count"), 36.0, "products of a tile");
    close(count(&row, "iterations.tile.reduce.log2_count"), 64.0 / 4.0, "channels");
    for (part, bytes) in [("data", 4.0 * 5.0 * 64.0), ("weight", 4.0 * 16.0 * 64.0)] {
        close(count(&row, &format!("footprint.{part}.tile.log2_bytes")), bytes, part);
    }
    let exact: Workload = format!("{},exact", program.spec.name).parse().unwrap();
    let space = ScheduleSpace::new(&exact, &target(1));
    let direct = lower(&exact, &target(1), &space.default_config()).unwrap();
    let estimate = |program| column(&extract(program, &target(1)), "estimate.sum.log2_per_peak");
    assert!(estimate(&program) < estimate(&direct) + 0.8f64.log2(), "{} {}", estimate(&program), estimate(&direct));
    assert!(estimate(&program) < estimate(&winograd(2, 1)));
}
