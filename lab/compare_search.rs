//! Compares the learned search with random search at equal trials: geometric mean over ResNet-18's
//! tasks, for several seeds.
//!
//! `cargo run --release -p autotune-lab --example compare_search [TRIALS [SEEDS [THREADS]]]`
//!
//! For each seed, both searches start from an empty database. Prints a Markdown table: for each
//! task and seed, the best time found by random search over the best time found by the learned
//! search. Above 1, the learned search is better.

use autotune::search::{Annealing, Random, Searcher};
use autotune::{Network, Report, Tuner};
use autotune_ir::Target;

fn main() -> anyhow::Result<()> {
    autotune::serve_if_worker();
    let argument = |i: usize, default: usize| std::env::args().nth(i).map_or(Ok(default), |a| a.parse());
    let (trials, seeds, threads) = (argument(1, 256)?, argument(2, 3)?, argument(3, 1)?);
    let target = Target::detect("cpu", Some(threads))?;
    let network = Network::resnet18();
    println!("{target}, {trials} trials over {} tasks\n", network.tasks.len());
    println!("| task | {} |", (0..seeds).map(|s| format!("seed {s}")).collect::<Vec<_>>().join(" | "));
    println!("|---|{}", "---|".repeat(seeds));

    let mut measurer = autotune_lab::measurer(&target)?;
    let mut run = |new: fn() -> Box<dyn Searcher>, seed: usize| -> anyhow::Result<Report> {
        let tuner = Tuner::new(&target).searcher(move |_| new()).trials(trials).seed(seed as u64);
        Ok(tuner.measurer(&mut measurer).tune(&network.tasks)?)
    };
    let mut ratios = vec![Vec::new(); network.tasks.len()];
    for seed in 0..seeds {
        let learned = run(|| Box::<Annealing>::default(), seed)?;
        let random = run(|| Box::new(Random), seed)?;
        for ((row, learned), random) in ratios.iter_mut().zip(&learned.tasks).zip(&random.tasks) {
            row.push(match (random.best_secs, learned.best_secs) {
                (Some(random), Some(learned)) => random / learned,
                _ => f64::NAN,
            });
        }
    }

    let line = |name: &str, row: &[f64]| {
        println!("| {name} | {} |", row.iter().map(|r| format!("{r:.3}")).collect::<Vec<_>>().join(" | "));
    };
    for (task, row) in network.tasks.iter().zip(&ratios) {
        line(&task.name, row);
    }
    let geomean = |seed: usize| (ratios.iter().map(|row| row[seed].ln()).sum::<f64>() / ratios.len() as f64).exp();
    let means: Vec<f64> = (0..seeds).map(geomean).collect();
    line("geometric mean", &means);
    Ok(())
}
