//! Searching without hardware: a paper device whose run times follow from a formula.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashSet;

use autotune::{Ask, Cancel, Network, SearchKind, Silent, Stop, Task, TuneOptions, tune};
use autotune_db::{Phase, TuningDb};
use autotune_schedules::{Config, CpuTarget, ScheduleSpace, Target, Workload};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use support::PaperDevice;

const KINDS: [SearchKind; 4] = [
    SearchKind::Model,
    SearchKind::Genetic,
    SearchKind::Random,
    SearchKind::Grid,
];

fn target() -> Target {
    Target::Cpu(CpuTarget::generic_avx2(2))
}

fn workload(text: &str) -> Workload {
    text.parse().unwrap()
}

fn options(search: SearchKind, trials: usize, seed: u64) -> TuneOptions {
    TuneOptions {
        trials: Some(trials),
        search,
        seed,
        ..TuneOptions::default()
    }
}

/// Best time found for a workload by a fresh run.
fn best_secs(text: &str, options: &TuneOptions) -> f64 {
    let db = TuningDb::temporary().unwrap();
    let tasks = [Task::single(workload(text))];
    let report = tune(
        &tasks,
        &target(),
        options,
        &mut PaperDevice::default(),
        &db,
        &mut Silent,
    )
    .unwrap();
    report.tasks[0].best_secs.unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn annealing_with_a_model_beats_random_and_genetic_search_at_equal_trials() {
    let text = "matmul:m=96,n=192,k=64";
    let found = |kind| {
        median(
            (0..3)
                .map(|seed| best_secs(text, &options(kind, 96, seed)))
                .collect(),
        )
    };
    let (model, genetic, random) = (
        found(SearchKind::Model),
        found(SearchKind::Genetic),
        found(SearchKind::Random),
    );
    assert!(model < 0.9 * random, "model {model}, random {random}");
    assert!(model < genetic, "model {model}, genetic {genetic}");
}

#[test]
fn searchers_propose_only_valid_unseen_distinct_configs() {
    let target = target();
    for text in ["matmul:m=12,n=16,k=8", "conv2d:c=8,h=9,w=9,o=16,k=3,p=1"] {
        let space = ScheduleSpace::new(&workload(text), &target);
        for kind in KINDS {
            let (mut searcher, mut seen) = (kind.searcher(), HashSet::new());
            let mut rng = ChaCha8Rng::seed_from_u64(7);
            // A score of only negative values: rank scores may be.
            let mut score = |configs: &[Config]| {
                configs
                    .iter()
                    .map(|c| Some(-1.0 - (c.stable_hash() % 1000) as f32))
                    .collect::<Vec<_>>()
            };
            for round in 0..6 {
                let asked = Ask {
                    space: &space,
                    score: Some(&mut score),
                    seen: &seen,
                    n: 9,
                    rng: &mut rng,
                };
                let batch = searcher.ask(asked);
                assert_eq!(batch.len(), 9, "{kind} {text} round {round}");
                for config in &batch {
                    assert!(space.contains(config), "{kind}: {config}");
                    assert!(seen.insert(config.stable_hash()), "{kind}: {config} twice");
                }
            }
        }
    }
}
