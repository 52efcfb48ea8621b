//! Records the test bed: run times of random, searched and transferred schedules of many workloads
//! on this machine.
//!
//! `cargo run --release -p autotune-lab --example record_test_bed -- FILE`
//!
//! For each workload in `test_bed/workloads.txt`, or with `--narrow` in
//! `test_bed/workloads_narrow.txt`, it measures random configs, configs proposed by the learned
//! search with a race of the best, and then the best configs of the family's other workloads,
//! transferred to it. This takes about 20 minutes on a quiet machine, with `--narrow` 12. An
//! interrupted recording continues where it ended, and a recording of a longer list adds the new
//! workloads.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use autotune::search::{Annealing, Random};
use autotune::{Task, TuneParams, Tuner};
use autotune_db::{Phase, TuningDb};
use autotune_ir::Target;
use autotune_lab::test_bed::{
    ConfigSource, RecordedSample, Recording, TestBed, TestBedHeader, narrow_workloads, workloads,
};
use autotune_measure::{Measurer, WorkerMeasurer};
use autotune_schedules::{Candidate, Config, ScheduleSpace};
use autotune_workloads::Workload;
use clap::Parser;

/// Records what schedules of many workloads take on this machine
#[derive(Parser)]
#[command(
    after_help = "Examples:\n  record_test_bed avx512.jsonl\n  record_test_bed avx2.jsonl --isa avx2 --threads 2\n  record_test_bed avx512_narrow.jsonl --narrow"
)]
struct Arguments {
    /// JSON Lines; an interrupted recording goes on
    file: PathBuf,
    /// Threads of each kernel; all by default
    #[arg(long)]
    threads: Option<usize>,
    /// Instruction set: this machine's, or avx2 on one that has more
    #[arg(long)]
    isa: Option<String>,
    /// Workloads of bf16 and 8-bit integers instead of f32
    #[arg(long)]
    narrow: bool,
}

/// Number of random configs of each workload, and of configs that the learned search proposes.
const RANDOM: usize = 100;
const SEARCHED: usize = 140;
/// Number of measurements of each transferred config.
const CARRIED_ROUNDS: usize = 2;

fn main() -> Result<()> {
    autotune::serve_if_worker();
    let Arguments { file, threads, isa, narrow } = Arguments::parse();
    let target = autotune_lab::cpu_target(threads, isa.as_deref())?;
    let mut measurer = autotune_lab::measurer(&target)?;
    let target = measurer.ceilings(&target)?.rated(&target);
    let mut test_bed = TestBed::open(&file, TestBedHeader::new(&target))?;
    let workloads = if narrow { narrow_workloads()? } else { workloads()? };
    for (i, (family, workload)) in workloads.iter().enumerate() {
        if !test_bed.holds(workload, ConfigSource::Race) {
            let start = Instant::now();
            for recording in search(family, workload, &target, &mut measurer)? {
                test_bed.append(recording)?;
            }
            println!("{}/{} {workload}: {:.1} s", i + 1, workloads.len(), start.elapsed().as_secs_f64());
        }
    }

    let origins = best_of_each_sketch(&test_bed, &target);
    for (i, (family, workload)) in workloads.iter().enumerate() {
        if !test_bed.holds(workload, ConfigSource::Portfolio) {
            let start = Instant::now();
            let samples = carry_over(&origins, family, workload, &target, &mut measurer)?;
            let (family, workload) = (family.clone(), workload.clone());
            println!("{}/{} {workload}: carried over, {:.1} s", i + 1, workloads.len(), start.elapsed().as_secs_f64());
            test_bed.append(Recording { family, workload, source: ConfigSource::Portfolio, samples })?;
        }
    }
    Ok(())
}

/// Measures random configs, then searched ones, and races the best.
fn search(family: &str, workload: &Workload, target: &Target, measurer: &mut WorkerMeasurer) -> Result<Vec<Recording>> {
    let db = TuningDb::temporary()?;
    let tasks = [Task::single(workload.clone())];
    let mut params = TuneParams::default();
    params.race.racers = 0;
    params.race.budget_secs = [0.05, 0.05];
    Tuner::new(target)
        .params(params.clone())
        .searcher(|_| Random)
        .trials(RANDOM)
        .database(&db)
        .measurer(measurer)
        .tune(&tasks)?;

    let at_random = db.query(workload, &target.key())?.len();
    params.race.racers = 10;
    params.race.budget_secs = [0.3, 0.3];
    let tuner = Tuner::new(target).params(params).searcher(|_| Annealing::default()).trials(RANDOM + SEARCHED);
    tuner.database(&db).measurer(measurer).tune(&tasks)?;

    let records = db.query(workload, &target.key())?;
    let of = |source, is: &dyn Fn(usize, Phase) -> bool| {
        let chosen = records.iter().enumerate().filter(|(i, record)| is(*i, record.phase));
        let sample = |(_, record): (usize, &autotune_db::TuningRecord)| RecordedSample {
            config: record.config.clone(),
            run_secs: record.measurement.run_secs(),
        };
        let (family, workload, samples) = (family.to_string(), workload.clone(), chosen.map(sample).collect());
        Recording { family, workload, source, samples }
    };
    let is_search = |phase| phase == Phase::Search;
    Ok(vec![
        of(ConfigSource::Random, &|i, phase| i < at_random && is_search(phase)),
        of(ConfigSource::Search, &|i, phase| i >= at_random && is_search(phase)),
        of(ConfigSource::Race, &|i, phase| i >= at_random && !is_search(phase)),
    ])
}

/// Returns the best config of each sketch for each workload, with the workload's space and its
/// family.
fn best_of_each_sketch(test_bed: &TestBed, target: &Target) -> Vec<(String, ScheduleSpace, Config)> {
    let mut origins = Vec::new();
    for task in test_bed.tasks() {
        let space = ScheduleSpace::new(&task.workload, target);
        for best in space.sketches().iter().filter_map(|sketch| task.best_of(sketch.name())) {
            origins.push((task.family.clone(), space.clone(), best.clone()));
        }
    }
    origins
}

/// Transfers the best configs of the family's other workloads to a workload, and measures them.
fn carry_over(
    origins: &[(String, ScheduleSpace, Config)],
    family: &str,
    workload: &Workload,
    target: &Target,
    measurer: &mut WorkerMeasurer,
) -> Result<Vec<RecordedSample>> {
    let space = ScheduleSpace::new(workload, target);
    let mut met = HashSet::new();
    let is_alike = |of: &Workload| of != workload && workload.distance(of).is_finite();
    let others = origins.iter().filter(|(of, origin, _)| of == family && is_alike(origin.workload()));
    let carried = others.filter_map(|(_, origin, config)| space.adapt(config, origin.workload()));
    let candidates: Vec<Candidate> = carried.filter(|candidate| met.insert(candidate.stable_hash())).collect();

    // Each config keeps its least time: in almost one round of ten, another program takes a core
    // away.
    let unmeasured = |candidate: &Candidate| RecordedSample { config: candidate.config().clone(), run_secs: None };
    let mut samples: Vec<RecordedSample> = candidates.iter().map(unmeasured).collect();
    for _ in 0..CARRIED_ROUNDS {
        measurer.measure(&candidates, &mut |i, measurement| {
            let times = samples[i].run_secs.into_iter().chain(measurement.run_secs());
            samples[i].run_secs = times.min_by(f64::total_cmp);
            ControlFlow::Continue(())
        })?;
    }
    Ok(samples)
}
