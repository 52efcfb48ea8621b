//! Configs that no space proposes: knobs that are missing, unknown or of the wrong kind, absurd
//! tiles, huge numbers, sketches of other targets. Any JSON is either refused with an error or
//! lowered to a program that the verifier accepts; nothing panics. A failing config is simplified
//! before it is reported. `AUTOTUNE_CASES` sets the number of configs.

use std::sync::atomic::{AtomicUsize, Ordering};

use autotune_codegen::asm::assemble;
use autotune_codegen::gpu;
use autotune_ir::{DType, Target, verify};
use autotune_schedules::{Config, KnobValue, ScheduleSpace, lower};
use autotune_workloads::Workload;
use rand::seq::{IndexedRandom, IteratorRandom};
use rand::{Rng, RngExt};

use crate::common::cases::{Choices, cases, for_cases_in_parallel};
use crate::common::odd_workloads::odd_workload;
use crate::common::or_long;
use crate::common::pairs::{odd_pair, random_pair};
use crate::common::targets::{random_cpu, random_gpu};
use crate::common::workloads::random_workload;

const CASES: [u64; 2] = [1000, 4000];
/// Number of configs per workload, each with one more change than the one before.
const CHANGES: usize = 12;

fn random_value<R: Rng>(rng: &mut R) -> KnobValue {
    const WORDS: [&str; 16] = [
        "0",
        "1",
        "2",
        "3",
        "16",
        "4096",
        "4097",
        "-1",
        "18446744073709551615",
        "18446744073709551616",
        "",
        "all",
        "packed",
        "panel",
        "copy",
        "blocked",
    ];
    const AXES: [&str; 9] = ["o", "oh", "ow", "c", "kh", "n", "m", "k", "none"];

    let size = |rng: &mut R| match rng.random_range(0..6) {
        0 => 0,
        1 => 1usize << rng.random_range(0..64),
        2 => usize::MAX - rng.random_range(0..3),
        _ => rng.random_range(0..300),
    };

    match rng.random_range(0..4) {
        0 => KnobValue::Choice(WORDS.choose(rng).unwrap().to_string()),
        1 => KnobValue::Order((0..rng.random_range(0..5)).map(|_| AXES.choose(rng).unwrap().to_string()).collect()),
        _ => KnobValue::Tile((0..rng.random_range(0..5)).map(|_| size(rng)).collect()),
    }
}

/// Makes one change: to another value of the space or any value, to a number in a value, to the set
/// of knobs, or to the sketch.
fn change<R: Rng>(config: &mut Config, space: &ScheduleSpace, rng: &mut R) {
    const NAMES: [&str; 8] = ["unknown", "", "tile.o", "order", "m", "input", "split", "layout.in"];
    const SKETCHES: [&str; 8] = ["direct", "fused", "winograd", "tiled", "implicit_gemm", "mma", "wgmma", "none"];
    let knobs = space.sketches().iter().flat_map(|sketch| &sketch.knobs);
    let Some(name) = config.knobs.keys().choose(rng).cloned() else {
        return;
    };

    match rng.random_range(0..16) {
        0 => {
            config.knobs.remove(&name);
        }
        1 => {
            config.knobs.insert(NAMES.choose(rng).unwrap().to_string(), random_value(rng));
        }
        2 => config.sketch = SKETCHES.choose(rng).unwrap().to_string(),
        3..5 => {
            config.knobs.insert(name, random_value(rng));
        }
        5..9 => match config.knobs.get_mut(&name) {
            Some(KnobValue::Tile(sizes)) if !sizes.is_empty() => {
                let at = rng.random_range(0..sizes.len());
                sizes[at] = match rng.random_range(0..4) {
                    0 => sizes[at].saturating_mul(rng.random_range(0..5)),
                    1 => sizes[at].saturating_add(1),
                    _ => rng.random_range(0..70),
                };
            }
            Some(KnobValue::Order(axes)) if !axes.is_empty() => {
                let (a, b) = (rng.random_range(0..axes.len()), rng.random_range(0..axes.len()));
                axes.swap(a, b);
            }
            Some(KnobValue::Choice(word)) => *word = rng.random_range(0..40).to_string(),
            _ => {}
        },
        _ => {
            let knob = knobs.choose(rng).unwrap();
            config.knobs.insert(knob.name.clone(), knob.values.choose(rng).unwrap().clone());
        }
    }
}

/// Returns the number of changed configs that are lowered.
fn check(workload: &Workload, target: &Target, rng: &mut impl Rng) -> usize {
    let space = ScheduleSpace::new(workload, target);
    let mut config = if rng.random() { space.default_config() } else { space.sample(rng).config().clone() };
    let mut lowered = 0;
    for _ in 0..CHANGES {
        change(&mut config, &space, rng);
        let json = serde_json::to_string(&config).unwrap();
        let read: Config = serde_json::from_str(&json).unwrap();
        let context = || format!("{workload} on {target}\n{json}");
        let contained = space.contains(&read);
        match lower(workload, target, &read) {
            Err(error) => assert!(!contained, "{}\n{error}", context()),
            Ok(program) => {
                lowered += 1;
                verify(&program, target).unwrap_or_else(|e| panic!("{}\n{e}\n{program}", context()));
                match target {
                    Target::Cpu(_) => drop(assemble(&program, target)),
                    Target::Gpu(device) => drop(gpu::generate(&program, device.api)),
                }
            }
        }
    }
    lowered
}

/// Checks `cases` configs of random workloads. One workload in four is drawn by `odd`, and may have
/// any size.
fn check_all(
    cases: u64,
    target_of: impl Fn(&mut Choices) -> Target + Sync,
    [usual, odd]: [fn(&mut Choices) -> Workload; 2],
) {
    let (workloads, lowered) = (cases.div_ceil(CHANGES as u64), AtomicUsize::new(0));
    for_cases_in_parallel(workloads, |seed, choices| {
        let target = target_of(choices);
        let mut workload = if seed % 4 == 0 { odd(choices) } else { usual(choices) };
        let dtype = *DType::WORKLOADS.choose(choices).unwrap();
        if target.supports(dtype) {
            workload = workload.with_dtype(dtype).unwrap();
        }
        lowered.fetch_add(check(&workload, &target, choices), Ordering::Relaxed);
    });
    let lowered = lowered.into_inner();
    assert!(lowered as u64 > workloads / 2, "{lowered} configs of {workloads} workloads are lowered");
}

#[test]
fn configs_for_cpus_are_refused_or_proven() {
    check_all(cases(or_long(CASES)), random_cpu, [random_workload, odd_workload]);
}

#[test]
fn configs_for_gpus_are_refused_or_proven() {
    check_all(cases(or_long(CASES)), random_gpu, [random_workload, odd_workload]);
}

#[test]
fn configs_of_two_contractions_are_refused_or_proven() {
    check_all(cases(or_long(CASES)) / 2, random_cpu, [random_pair, odd_pair]);
}

#[test]
fn json_of_other_kinds_is_no_config() {
    for json in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"sketch":"direct"}"#,
        r#"{"sketch":1,"knobs":{}}"#,
        r#"{"sketch":"direct","knobs":[]}"#,
        r#"{"sketch":"direct","knobs":{"a":-1}}"#,
        r#"{"sketch":"direct","knobs":{"a":[-1]}}"#,
        r#"{"sketch":"direct","knobs":{"a":[1.5]}}"#,
        r#"{"sketch":"direct","knobs":{"a":[18446744073709551616]}}"#,
        r#"{"sketch":"direct","knobs":{"a":{}}}"#,
        r#"{"sketch":"direct","knobs":{"a":[1,"b"]}}"#,
        r#"{"sketch":"direct","knobs":{"a":null}}"#,
    ] {
        assert!(serde_json::from_str::<Config>(json).is_err(), "{json}");
    }
}
