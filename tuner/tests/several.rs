//! Tuning on several devices of one target, and for several targets, at the same time.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use autotune::search::Random;
use autotune::{Report, Task, TuneParams, Tuner, contract};
use autotune_db::{Phase, TuningDb};
use autotune_ir::{CpuTarget, Target};
use autotune_measure::{Batches, MeasureError, Measurer, MeasurerPool, OnResult, RaceResult};
use autotune_schedules::{Candidate, ScheduleSpace};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::support::{PaperDevice, paper_secs};

const TRIALS: usize = 60;
const WORKLOADS: [&str; 2] = ["matmul:m=96,n=192,k=64", "matmul:m=20,n=16,k=8"];

fn target() -> Target {
    Target::Cpu(CpuTarget::generic_avx2(2))
}

fn candidates(count: usize) -> Vec<Candidate> {
    let space = ScheduleSpace::new(&WORKLOADS[0].parse().unwrap(), &target());
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    (0..count).map(|_| space.sample(&mut rng)).collect()
}

/// Device that fails after a number of results, and in every race.
struct Breaking(usize);

impl Measurer for Breaking {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        let (mut left, mut broke) = (self.0, false);
        PaperDevice::default().measure_batches(next_batch, &mut |index, measurement| {
            broke = left == 0;
            left = left.saturating_sub(1);
            if broke { ControlFlow::Break(()) } else { on_result(index, measurement) }
        })?;
        if broke { Err(worn_out()) } else { Ok(()) }
    }

    fn race(&mut self, _candidates: &[Candidate], _budget_secs: f64) -> Result<RaceResult, MeasureError> {
        Err(worn_out())
    }
}

fn worn_out() -> MeasureError {
    MeasureError::Worker { message: "worn out".into() }
}

#[test]
fn a_pool_keeps_the_contract() {
    let paper = || PaperDevice::default();
    let pools: [Vec<Box<dyn Measurer + Send>>; 4] = [
        vec![Box::new(paper())],
        vec![Box::new(paper()), Box::new(PaperDevice { backwards: true, ..paper() }), Box::new(paper())],
        vec![Box::new(PaperDevice { ahead: true, ..paper() }), Box::new(paper())],
        vec![Box::new(Breaking(1)), Box::new(paper()), Box::new(Breaking(0))],
    ];
    for devices in pools {
        contract::measurer(&mut MeasurerPool::new(devices), &target());
    }
}

/// Returns a function that yields the list in batches, then empty batches.
fn in_batches(all: &[Candidate], size: usize) -> impl FnMut() -> Vec<Candidate> + Send {
    let mut batches = all.chunks(size).map(<[Candidate]>::to_vec).collect::<Vec<_>>().into_iter();
    move || batches.next().unwrap_or_default()
}

#[test]
fn no_device_waits_for_the_slowest_of_a_batch() {
    const TOO_LONG: Duration = Duration::from_secs(60);
    let (all, done) = (candidates(12), Arc::new(AtomicUsize::new(0)));
    let done_by_the_fast = done.clone();
    let waits = move |_: usize| {
        let start = Instant::now();
        while done_by_the_fast.load(Ordering::SeqCst) < 11 {
            assert!(start.elapsed() < TOO_LONG, "the fast device waits for the slow one");
            thread::yield_now();
        }
    };
    // The fast device waits until the slow one has its candidate.
    let slow = PaperDevice { before: Some(Box::new(waits)), ..PaperDevice::default() };
    let counts = move |measured: usize| done.store(measured + 1, Ordering::SeqCst);
    let fast = PaperDevice { before: Some(Box::new(counts)), ..PaperDevice::default() };

    let mut seen = Vec::new();
    let mut pool = MeasurerPool::new(vec![Box::new(slow), Box::new(fast)]);
    let measured = pool.measure_batches(&mut in_batches(&all, 4), &mut |position, _| {
        seen.push(position);
        ControlFlow::Continue(())
    });
    measured.unwrap();
    seen.sort_unstable();
    assert_eq!(seen, Vec::from_iter(0..12));
}

#[test]
fn others_measure_what_a_device_leaves_that_fails() {
    let all = candidates(20);
    let measure = |breaking: &[usize], paper: usize| {
        let mut devices: Vec<Box<dyn Measurer + Send>> = Vec::new();
        devices.extend(breaking.iter().map(|&after| Box::new(Breaking(after)) as _));
        devices.extend((0..paper).map(|_| Box::new(PaperDevice::default()) as _));
        let mut seen = Vec::new();
        let measured = MeasurerPool::new(devices).measure_batches(&mut in_batches(&all, 6), &mut |position, result| {
            assert_eq!(result.run_secs(), Some(paper_secs("", &all[position])));
            seen.push(position);
            ControlFlow::Continue(())
        });
        seen.sort_unstable();
        (measured.map_err(|error| error.to_string()), seen)
    };
    for breaking in [&[0][..], &[3], &[1, 2, 0]] {
        assert_eq!(measure(breaking, 1), (Ok(()), Vec::from_iter(0..20)), "{breaking:?}");
    }
    let (failed, seen) = measure(&[2, 3], 0);
    assert_eq!((failed.unwrap_err().as_str(), seen.len()), ("the measuring worker failed: worn out", 5));
    assert!(measure(&[], 0).0.unwrap_err().contains("no devices"));
}

/// Tunes both workloads by random search.
fn tune(target: &Target, device: &mut dyn Measurer, db: &TuningDb) -> Report {
    let tasks = WORKLOADS.map(|text| Task::single(text.parse().unwrap()));
    let params = TuneParams { prediction: None, ..TuneParams::default() };
    let tuner = Tuner::new(target).params(params).searcher(|_| Random).trials(TRIALS).seed(3);
    tuner.measurer(device).database(db).tune(&tasks).unwrap()
}

/// Checks that the search of a target has one record per trial, each with the time of its schedule
/// on the simulated device `name`.
fn check_records(db: &TuningDb, target: &Target, name: &str) {
    let mut records = db.query_target(&target.key()).unwrap();
    records.retain(|record| record.phase == Phase::Search);
    let known: HashSet<_> = records.iter().map(|record| (&record.workload, record.config.to_string())).collect();
    assert_eq!((records.len(), known.len()), (TRIALS, TRIALS), "{target}");
    for record in &records {
        let candidate = ScheduleSpace::new(&record.workload, target).candidate(&record.config);
        assert_eq!(record.measurement.run_secs(), Some(paper_secs(name, &candidate)), "{}", record.config);
    }
}

#[test]
fn a_search_measures_on_several_devices() {
    let db = TuningDb::temporary().unwrap();
    let devices: [Box<dyn Measurer + Send>; 3] = [
        Box::new(PaperDevice::default()),
        Box::new(PaperDevice { backwards: true, ..PaperDevice::default() }),
        Box::new(Breaking(7)),
    ];
    let report = tune(&target(), &mut MeasurerPool::new(devices.into()), &db);
    assert_eq!(report.new_trials, TRIALS);
    assert!(report.tasks.iter().all(|task| task.best_secs.is_some()), "{report:?}");
    check_records(&db, &target(), "");
}

#[test]
fn targets_are_tuned_at_the_same_time_into_one_database() {
    let db = TuningDb::temporary().unwrap();
    let targets = ["cpu:avx2", "cuda:sm_80", "cuda:sm_90"].map(|word| Target::detect(word, None).unwrap());
    let paper = |name| PaperDevice { name, ..PaperDevice::default() };
    let names = ["cpu", "old", "new"];
    thread::scope(|scope| {
        for (target, name) in targets.iter().zip(names) {
            let db = &db;
            scope.spawn(move || {
                let mut pool = MeasurerPool::new(vec![Box::new(paper(name)), Box::new(paper(name))]);
                assert_eq!(tune(target, &mut pool, db).target, target.key());
            });
        }
    });
    for (target, name) in targets.iter().zip(names) {
        check_records(&db, target, name);
    }
}
