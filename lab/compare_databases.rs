//! Races the best schedules of several tuning databases against each other.
//!
//! ```sh
//! cargo run --release -p autotune-lab --example compare_databases -- \
//!     ROUNDS DATABASE DATABASE [DATABASE ...]
//! ```
//!
//! Prints a Markdown table. For each task of ResNet-18 it has the milliseconds of each database's
//! best schedule: medians over the rounds of an interleaved race on all cores. The last lines have
//! the network's sum, and the median over the rounds of its ratio to the first database's sum.

use anyhow::{Context, ensure};
use autotune::Network;
use autotune_db::TuningDb;
use autotune_ir::Target;
use autotune_lab::median;
use autotune_measure::Measurer;
use autotune_schedules::{Candidate, ScheduleSpace};

/// Maximum seconds of one race.
const RACE_SECS: f64 = 10.0;

fn main() -> anyhow::Result<()> {
    autotune::serve_if_worker();
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().context("how many rounds?")?.parse()?;
    let paths: Vec<String> = arguments.collect();
    ensure!(rounds > 0 && paths.len() > 1, "wants a number of rounds and two databases or more");

    // Collects the best schedule of each database for each task.
    let target = Target::detect("cpu", None)?;
    let network = Network::resnet18();
    let mut racers: Vec<Vec<Candidate>> = vec![Vec::new(); network.tasks.len()];
    for path in &paths {
        let db = TuningDb::open_reading(path)?;
        for (task, racers) in network.tasks.iter().zip(&mut racers) {
            let workload = task.workload.clone();
            let space = ScheduleSpace::new(&workload, &target);
            let best = db.best(&workload, &target.key(), &|config| space.contains(config))?;
            let config = best.with_context(|| format!("{path} lacks {workload}"))?.record.config;
            racers.push(space.candidate(&config));
        }
    }

    // Races all candidates of a task, round after round.
    let mut measurer = autotune_lab::measurer(&target)?;
    println!("{target}, {rounds} rounds; ms\n\n| task | {} |\n|---|{}", paths.join(" | "), "---|".repeat(paths.len()));
    let mut sums = vec![vec![0.0; paths.len()]; rounds];
    for (task, racers) in network.tasks.iter().zip(&racers) {
        let mut secs = vec![Vec::new(); paths.len()];
        for sum in &mut sums {
            let race = measurer.race(racers, RACE_SECS)?;
            race.failure.map_or(Ok(()), Err).with_context(|| format!("{} did not race", task.name))?;
            for (i, measurement) in race.measurements.iter().enumerate() {
                let run_secs =
                    measurement.run_secs().with_context(|| format!("{}: {:?}", task.name, measurement.outcome))?;
                secs[i].push(run_secs);
                sum[i] += task.weight() * run_secs;
            }
        }
        line(&task.name, secs.into_iter().map(|secs| 1e3 * median(secs)));
    }

    let of_rounds = |value: &dyn Fn(&[f64], usize) -> f64| {
        (0..paths.len()).map(|i| median(sums.iter().map(|sum| value(sum, i)).collect())).collect::<Vec<_>>()
    };
    line("network", of_rounds(&|sum, i| 1e3 * sum[i]).into_iter());
    line("ratio", of_rounds(&|sum, i| sum[i] / sum[0]).into_iter());
    Ok(())
}

fn line(name: &str, values: impl Iterator<Item = f64>) {
    println!("| {name} | {} |", values.map(|value| format!("{value:.4}")).collect::<Vec<_>>().join(" | "));
}
