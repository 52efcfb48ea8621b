//! Measurer of a tuner with a collector: asks, before each batch, which candidates other tuners
//! have measured meanwhile, and answers those with their results.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use autotune_db::{DbError, Phase, TuningDb};
use autotune_measure::{Batches, MeasureError, Measurer, OnResult, RaceResult};
use autotune_measurement::Measurement;
use autotune_schedules::Candidate;
use autotune_workloads::Workload;

use crate::team::TeamMemory;

/// Time for which a collector that did not answer is not asked again.
const REST: Duration = Duration::from_secs(10);

/// Measurer that measures nothing that the team has measured.
///
/// A result of another tuner is stored in the tuner's database before it is reported.
pub struct Recalling<'a> {
    inner: &'a mut dyn Measurer,
    recall: Mutex<Recall<'a>>,
}

/// Records of the team, as far as they are known here.
struct Recall<'a> {
    memory: TeamMemory,
    db: &'a TuningDb,
    target: String,
    /// Position up to which the records of each task were recalled.
    positions: HashMap<Workload, u64>,
    /// Results of other tuners, by workload and hash of the config.
    known: HashMap<(Workload, u64), Measurement>,
    rests_until: Option<Instant>,
    answered: usize,
}

impl<'a> Recalling<'a> {
    /// Returns a measurer for candidates of one target key. Records of each task before its
    /// position are in the database already.
    pub fn new(
        inner: &'a mut dyn Measurer,
        memory: TeamMemory,
        db: &'a TuningDb,
        target: &str,
        positions: HashMap<Workload, u64>,
    ) -> Self {
        let (target, known) = (target.to_string(), HashMap::new());
        let recall = Mutex::new(Recall { memory, db, target, positions, known, rests_until: None, answered: 0 });
        Self { inner, recall }
    }

    /// Returns the number of candidates that were answered with results of other tuners.
    pub fn answered(&self) -> usize {
        lock(&self.recall).answered
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recall<'_> {
    /// Returns the results of those candidates that other tuners have measured.
    fn results_of(&mut self, batch: &[Candidate]) -> Vec<Option<Measurement>> {
        let workloads: HashSet<&Workload> = batch.iter().map(Candidate::workload).collect();
        for workload in workloads {
            self.learn(workload);
        }
        let key = |candidate: &Candidate| (candidate.workload().clone(), candidate.stable_hash());
        let results: Vec<Option<Measurement>> =
            batch.iter().map(|candidate| self.known.get(&key(candidate)).cloned()).collect();
        self.answered += results.iter().flatten().count();
        results
    }

    /// Stores the new records of a task. Without an answer of the collector there are none.
    fn learn(&mut self, workload: &Workload) {
        if self.rests_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let from = self.positions.get(workload).copied().unwrap_or_default();
        let Ok((records, next)) = self.memory.recall(workload, &self.target, from) else {
            self.rests_until = Instant::now().checked_add(REST);
            return;
        };

        self.rests_until = None;
        for record in &records {
            // A record that the database has already is one of this tuner.
            let stored: Result<usize, DbError> = self.db.append_all(std::slice::from_ref(record));
            if matches!(stored, Ok(1)) && record.phase == Phase::Search && !record.is_untrusted() {
                let key = (workload.clone(), record.config.stable_hash());
                self.known.insert(key, record.measurement.clone());
            }
        }
        self.positions.insert(workload.clone(), next);
    }
}

/// Candidates of a run of batches, by their positions.
#[derive(Default)]
struct GivenCandidates {
    count: usize,
    /// Positions of the candidates that the inner measurer got.
    measured: Vec<usize>,
    /// Results of other tuners that were not reported yet.
    recalled: VecDeque<(usize, Measurement)>,
}

impl Measurer for Recalling<'_> {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        let Self { inner, recall } = self;
        let given = Mutex::new(GivenCandidates::default());
        let mut next_unknown = || {
            loop {
                let batch = next_batch();
                let is_last = batch.is_empty();
                let unknown = sort(batch, &mut lock(recall), &mut lock(&given));
                if is_last || !unknown.is_empty() {
                    return unknown;
                }
            }
        };

        let mut is_over = false;
        let measured = inner.measure_batches(&mut next_unknown, &mut |index, measurement| {
            let mut flow = report(&given, on_result);
            let position = lock(&given).measured.get(index).copied();
            if let (ControlFlow::Continue(()), Some(position)) = (flow, position) {
                flow = on_result(position, measurement);
            }
            is_over |= flow.is_break();
            flow
        });
        measured?;
        if !is_over {
            // The last batches may have been known as a whole.
            let _ = report(&given, on_result);
        }
        Ok(())
    }

    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError> {
        self.inner.race(candidates, budget_secs)
    }

    fn reports_load(&self) -> bool {
        self.inner.reports_load()
    }
}

/// Keeps the results that the team has, and returns the other candidates of a batch.
fn sort(batch: Vec<Candidate>, recall: &mut Recall<'_>, given: &mut GivenCandidates) -> Vec<Candidate> {
    let results = recall.results_of(&batch);
    let mut unknown = Vec::new();
    for (candidate, result) in batch.into_iter().zip(results) {
        match result {
            Some(measurement) => given.recalled.push_back((given.count, measurement)),
            None => {
                given.measured.push(given.count);
                unknown.push(candidate);
            }
        }
        given.count += 1;
    }
    unknown
}

/// Reports results of other tuners.
fn report(given: &Mutex<GivenCandidates>, on_result: &mut OnResult<'_>) -> ControlFlow<()> {
    // The callback must not hold up the next batch, so that the lock ends before it.
    let recalled = std::mem::take(&mut lock(given).recalled);
    for (position, measurement) in recalled {
        on_result(position, measurement)?;
    }
    ControlFlow::Continue(())
}
