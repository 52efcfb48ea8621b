//! Measures the quality of schedules found with no trials, with few and with more, on workloads
//! outside every test bed.
//!
//! `cargo run --release -p autotune-lab --example search_quality -- KNOWN_DB`
//!
//! For each workload in `test_bed/held_out.txt`, seed and number of trials, the learned search runs
//! from an empty database, or from a copy of a history. It uses the pretrained model and portfolio,
//! or for `--cold` trials nothing from other workloads.
//!
//! The schedule that each run would deploy races, interleaved, against the schedule chosen without
//! measuring and against the best schedule known from any run. The database `KNOWN_DB` holds the
//! best-known schedules; long searches fill it first. Prints a Markdown table of times over the
//! fastest of the race.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result};
use autotune::{PredictParams, Task, TuneParams, Tuner};
use autotune_db::{Phase, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_lab::test_bed::held_out;
use autotune_lab::{geometric_mean, median};
use autotune_measure::{Measurer, RaceResult, WorkerMeasurer};
use autotune_schedules::{Candidate, ScheduleSpace};
use autotune_workloads::Workload;
use clap::Parser;

/// Number of trials of the long searches, and their seeds.
const LONG_TRIALS: usize = 400;
const LONG_SEEDS: std::ops::Range<u64> = 100..102;
const RACE_SECS: f64 = 2.0;

/// Races what searches of few trials find, and what is chosen without any, on workloads that no
/// test bed holds
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  search_quality known.db\n  search_quality known.db --trials 16 --seeds 1 --only matmul --isa avx2"
)]
struct Arguments {
    /// Database of the best schedules that any run found
    known_db: PathBuf,
    /// Runs of each number of trials
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Numbers of trials
    #[arg(long, value_delimiter = ',', default_values_t = [16, 64])]
    trials: Vec<usize>,
    /// Numbers of trials of searches that know nothing of other workloads
    #[arg(long, value_delimiter = ',')]
    cold: Vec<usize>,
    /// Only workloads whose text contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Database that each run begins with
    #[arg(long, value_name = "DB")]
    history: Option<PathBuf>,
    /// Threads of each kernel; all by default
    #[arg(long)]
    threads: Option<usize>,
    /// Instruction set: this machine's, or avx2 on one that has more
    #[arg(long)]
    isa: Option<String>,
}

fn main() -> Result<()> {
    autotune::serve_if_worker();
    let Arguments { known_db, seeds, trials, cold, only, history, threads, isa } = Arguments::parse();
    let searches = trials.iter().map(|&trials| Search { trials, transfer: true });
    let searches: Vec<Search> = searches.chain(cold.iter().map(|&trials| Search { trials, transfer: false })).collect();
    let known = TuningDb::open(known_db)?;
    let history = history.map(TuningDb::open_reading).transpose()?;

    let target = autotune_lab::cpu_target(threads, isa.as_deref())?;
    let history = history.map_or(Ok(Vec::new()), |db| db.query_target(&target.key()))?;
    let mut measurer = autotune_lab::measurer(&target)?;
    let target = measurer.ceilings(&target)?.rated(&target);
    println!("{target}, {seeds} seeds; times over the fastest of each race\n");
    println!(
        "| workload | ms | untuned | {} |",
        searches.iter().map(Search::to_string).collect::<Vec<_>>().join(" | ")
    );
    println!("|---|---|---|{}", "---|".repeat(searches.len()));
    let mut ratios: BTreeMap<Racer, Vec<f64>> = BTreeMap::new();
    for (_, workload) in held_out()?.into_iter().filter(|(_, workload)| workload.to_string().contains(&only)) {
        let mut runs = Runs { workload, target: &target, measurer: &mut measurer, known: &known, history: &history };
        let racers = runs.racers(&searches, seeds)?;
        let secs = runs.race(&racers)?;
        let least = secs.iter().copied().fold(f64::INFINITY, f64::min);

        let mut cells = Vec::new();
        for column in std::iter::once(Racer::Untuned).chain((0..searches.len()).map(Racer::Search)) {
            let of_column = racers.iter().zip(&secs).filter(|((racer, _), _)| *racer == column);
            let of_column: Vec<f64> = of_column.map(|(_, secs)| secs / least).collect();
            cells.push(of_column.iter().map(|ratio| format!("{ratio:.3}")).collect::<Vec<_>>().join(" "));
            ratios.entry(column).or_default().extend(of_column);
        }
        println!("| {} | {:.4} | {} |", runs.workload, 1e3 * least, cells.join(" | "));
    }
    let cells = |value: &dyn Fn(&[f64]) -> f64| {
        ratios.values().map(|ratios| format!("{:.3}", value(ratios))).collect::<Vec<_>>().join(" | ")
    };
    println!("| geometric mean | | {} |", cells(&|ratios| geometric_mean(ratios.iter().copied())));
    println!("| median | | {} |", cells(&|ratios| median(ratios.to_vec())));
    println!("| worst | | {} |", cells(&|ratios| ratios.iter().copied().fold(0.0, f64::max)));
    let near = |ratios: &[f64]| ratios.iter().filter(|ratio| **ratio <= 1.05).count() as f64 / ratios.len() as f64;
    println!("| share within 5 % | | {} |", cells(&near));
    Ok(())
}

/// Learned search, with or without the pretrained model and portfolio.
#[derive(Clone, Copy)]
struct Search {
    trials: usize,
    transfer: bool,
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} trials{}", self.trials, if self.transfer { "" } else { ", cold" })
    }
}

/// Origin of a racing schedule; a search is given by its column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Racer {
    Untuned,
    Search(usize),
    BestKnown,
}

/// Runs of one workload.
struct Runs<'a> {
    workload: Workload,
    target: &'a Target,
    measurer: &'a mut WorkerMeasurer,
    known: &'a TuningDb,
    history: &'a [TuningRecord],
}

impl Runs<'_> {
    /// Returns the racing schedules: the schedule that each run would deploy, the schedule chosen
    /// without measuring, and the two best known.
    fn racers(&mut self, searches: &[Search], seeds: u64) -> Result<Vec<(Racer, Candidate)>> {
        let space = ScheduleSpace::new(&self.workload, self.target);
        let best = |known: &TuningDb| known.best(&self.workload, &self.target.key(), &|config| space.contains(config));
        if best(self.known)?.is_none() {
            for seed in LONG_SEEDS {
                self.run(Search { trials: LONG_TRIALS, transfer: true }, seed, &[])?;
            }
        }

        let untuned = autotune::predicted(&space, 1, PredictParams::default()).swap_remove(0);
        let mut racers = vec![(Racer::Untuned, untuned)];
        for seed in 0..seeds {
            for (column, &search) in searches.iter().enumerate() {
                racers.push((Racer::Search(column), self.run(search, seed, self.history)?));
            }
        }
        let space = ScheduleSpace::new(&self.workload, self.target);
        let known = self.known.top(&self.workload, &self.target.key(), 2, &|config| space.contains(config))?;
        racers.extend(known.iter().map(|record| (Racer::BestKnown, space.candidate(&record.config))));
        Ok(racers)
    }

    /// Runs a search and returns its best schedule. Its race's measurements are added to the known
    /// ones.
    fn run(&mut self, Search { trials, transfer }: Search, seed: u64, history: &[TuningRecord]) -> Result<Candidate> {
        let db = TuningDb::temporary()?;
        db.append_all(history)?;
        let params = TuneParams { transfer, ..TuneParams::default() };
        let tuner = Tuner::new(self.target).params(params).trials(trials).seed(seed);
        let tuner = tuner.database(&db).measurer(self.measurer);
        let report = tuner.tune(&[Task::single(self.workload.clone())])?;
        let [task] = &report.tasks[..] else { anyhow::bail!("a report of another number of tasks") };
        let config = task.config.clone().with_context(|| format!("nothing ran of {}", self.workload))?;
        let raced = db.query(&self.workload, &self.target.key())?;
        let raced: Vec<TuningRecord> = raced.into_iter().filter(|r| matches!(r.phase, Phase::Race { .. })).collect();
        self.known.append_all(&raced)?;
        Ok(ScheduleSpace::new(&self.workload, self.target).candidate(&config))
    }

    /// Races the schedules and returns the seconds of each. Equal schedules race once.
    fn race(&mut self, racers: &[(Racer, Candidate)]) -> Result<Vec<f64>> {
        let mut distinct: Vec<Candidate> = Vec::new();
        for (_, candidate) in racers {
            if distinct.iter().all(|other| other.stable_hash() != candidate.stable_hash()) {
                distinct.push(candidate.clone());
            }
        }
        let RaceResult { measurements, failure } = self.measurer.race(&distinct, RACE_SECS)?;
        failure.map_or(Ok(()), Err).with_context(|| format!("{} did not race", self.workload))?;
        let secs = |candidate: &Candidate| {
            let place = distinct.iter().position(|other| other.stable_hash() == candidate.stable_hash());
            let measurement = place.and_then(|place| measurements.get(place));
            measurement.and_then(|m| m.run_secs()).with_context(|| format!("{candidate:?} failed"))
        };
        racers.iter().map(|(_, candidate)| secs(candidate)).collect()
    }
}
