//! Configs with edited text: those that still lower are verified, and their machine code computes
//! the right result. `AUTOTUNE_CASES` sets the number of configs.

#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::atomic::{AtomicU64, Ordering};

use autotune_codegen::asm::assemble;
use autotune_ir::{CpuTarget, Isa, Target, verify};
use autotune_schedules::{Config, ScheduleSpace, lower, tolerance};
use autotune_workloads::{Operands, Reference, Workload};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde_json::Value;

use crate::common::cases::cases;
use crate::common::machine;
use crate::common::operators::random_operator;
use crate::common::or_long;
use crate::common::workloads::{random_winograd, random_workload};

const CASES: [u64; 2] = [200, 600];

/// Returns the text of a config with the values of some knobs changed.
fn edited(config: &Config, space: &ScheduleSpace, rng: &mut impl Rng) -> String {
    let mut json = serde_json::to_value(config).unwrap();
    let other = serde_json::to_value(space.sample(rng).config()).unwrap();
    let knobs = json["knobs"].as_object_mut().unwrap();
    let names: Vec<String> = knobs.keys().cloned().collect();
    for _ in 0..rng.random_range(1..4) {
        let name = &names[rng.random_range(0..names.len())];
        match (&mut knobs[name], other["knobs"].get(name)) {
            (Value::Array(items), _) if items.iter().all(Value::is_u64) && rng.random() => {
                for item in items {
                    if rng.random() {
                        *item = rng.random_range(0..70).into();
                    }
                }
            }
            (Value::Array(items), _) if rng.random() => {
                let (a, b) = (rng.random_range(0..items.len()), rng.random_range(0..items.len()));
                items.swap(a, b);
            }
            (value, Some(other)) => value.clone_from(other),
            (value, None) => *value = "none".into(),
        }
    }
    json.to_string()
}

/// Checks the program of an edited text. Returns true if it ran.
fn runs_right(text: &str, workload: &Workload, target: &Target, seed: u64) -> bool {
    let Ok(config) = serde_json::from_str::<Config>(text) else { return false };
    let Ok(program) = lower(workload, target, &config) else { return false };
    verify(&program, target).unwrap_or_else(|error| panic!("seed {seed}: {workload}\n{text}\n{error}\n{program}"));
    let Ok(code) = assemble(&program, target) else { return false };

    let operands = Operands::random(workload.spec(), seed);
    let output = machine::run(&program, &code, &operands);
    let reference = Reference::new(workload, &operands, seed).unwrap();
    let exact = reference.exact().expect("small workloads are compared in full");
    let differences = output.iter().zip(exact).map(|(a, r)| if a.is_finite() { (a - r).abs() } else { f32::INFINITY });
    let error = f64::from(differences.fold(0.0, f32::max) / reference.largest());
    let tolerance = tolerance(workload, &config);
    assert!(error <= tolerance, "seed {seed}: {workload}\n{text}\nerror {error} exceeds {tolerance}\n{program}");
    true
}

#[test]
fn edited_configs_that_lower_run_and_are_right() {
    let isas = [Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| machine::runs(isa));
    for isa in isas {
        let ran = AtomicU64::new(0);
        (0..cases(or_long(CASES))).into_par_iter().for_each(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 3) });
            let lanes = target.cpu().unwrap().lanes();
            let workload = match seed % 5 {
                0 => random_winograd(&mut rng, lanes),
                1 => random_workload(&mut rng),
                _ => random_operator(&mut rng),
            };
            let space = ScheduleSpace::new(&workload, &target);
            let config =
                if rng.random_ratio(1, 4) { space.default_config() } else { space.sample(&mut rng).config().clone() };
            let text = edited(&config, &space, &mut rng);
            ran.fetch_add(runs_right(&text, &workload, &target, seed).into(), Ordering::Relaxed);
        });
        let ran = ran.into_inner();
        println!("{isa}: {ran} of {} edited configs ran", cases(or_long(CASES)));
        assert!(ran > 0);
    }
}
