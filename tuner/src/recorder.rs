//! Recorder that stores the measurements of a run.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use autotune_db::{DbError, Phase, Provenance, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_measure::{Load, LoadWatch};
use autotune_measurement::Measurement;
use autotune_schedules::{Candidate, Config, LOWERING_VERSION, ScheduleSpace};
use autotune_workloads::Workload;

use crate::settings::Settings;
use crate::task_best::TaskBest;

/// Longest time for which a measurement may be lost by a power failure. Waiting for the disk after
/// each one would take as long as measuring.
const FLUSH_EVERY: Duration = Duration::from_millis(250);

/// Appends the measurements of a run to its database, and tracks each task's best results.
pub(crate) struct Recorder<'a> {
    pub(crate) db: &'a TuningDb,
    pub(crate) target: &'a Target,
    pub(crate) settings: &'a Settings,
    flushed: Cell<Option<Instant>>,
    bests: RefCell<HashMap<Workload, TaskBest>>,
    /// Load of other programs on the target's CPU since the run began; `None` for GPUs.
    watch: Option<LoadWatch>,
    /// Workloads and config hashes that ran in this run.
    ran: RefCell<HashSet<(Workload, u64)>>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(db: &'a TuningDb, target: &'a Target, settings: &'a Settings) -> Self {
        let (flushed, bests, ran) = (Cell::new(None), RefCell::default(), RefCell::default());
        Self { db, target, settings, flushed, bests, watch: watch(target, settings), ran }
    }

    /// Returns the load of other programs since the run began.
    pub(crate) fn load(&self) -> Option<Load> {
        self.watch.as_ref()?.load()
    }

    /// Runs `action`, and returns its result and the share of the threads' time that others used
    /// meanwhile. If it took too little time to tell, that is the share since the run began. 0 if
    /// unknown.
    pub(crate) fn watched<T>(&self, action: impl FnOnce() -> T) -> (T, f64) {
        let watch = watch(self.target, self.settings);
        let done = action();
        let load = watch.and_then(|watch| watch.load()).or_else(|| self.load());
        (done, load.map_or(0.0, |load| load.taken))
    }

    /// Returns the results of a task so far.
    pub(crate) fn best_of(&self, space: &ScheduleSpace) -> TaskBest {
        let standings = self.bests.borrow();
        standings.get(space.workload()).cloned().unwrap_or_else(|| TaskBest::new(space.default_config()))
    }

    /// Returns true if a config ran correctly in this run. Others come from a database and must be
    /// verified before they run.
    pub(crate) fn has_run(&self, space: &ScheduleSpace, config: &Config) -> bool {
        self.ran.borrow().contains(&(space.workload().clone(), config.stable_hash()))
    }

    /// Starts tracking the results of a task.
    pub(crate) fn follow(&self, space: &ScheduleSpace) {
        let standing = TaskBest::new(space.default_config());
        self.bests.borrow_mut().insert(space.workload().clone(), standing);
    }

    /// Appends one measurement. It survives the end of the process at once, and a power failure
    /// after a quarter of a second of further appending or after [`Recorder::flush`].
    pub(crate) fn append(&self, candidate: &Candidate, measurement: &Measurement, phase: Phase) -> Result<(), DbError> {
        let setup = self.settings.setup.clone();
        let toolchain = measurement.toolchain.clone();
        let backend = toolchain.as_ref().and_then(|t| t.backend);
        let (compiler, flags) = toolchain.map(|t| (t.compiler, t.flags)).unwrap_or_default();

        let record = TuningRecord {
            workload: candidate.workload().clone(),
            target: self.target.key(),
            config: candidate.config().clone(),
            measurement: Measurement { toolchain: None, ..measurement.clone() },
            phase,
            imported: false,
            provenance: Provenance {
                device: setup.device,
                backend,
                compiler,
                flags,
                tuner_version: env!("CARGO_PKG_VERSION").into(),
                harness: setup.harness,
                seed: self.settings.seed,
                unix_secs: since_1970().as_secs(),
                lowering: LOWERING_VERSION,
            },
        };
        if !self.is_stored(&record)? {
            self.db.append(&record)?;
        }

        // The run keeps the best result only of the tasks that it tunes.
        if let Some(standing) = self.bests.borrow_mut().get_mut(candidate.workload()) {
            standing.add(candidate.config(), measurement, phase);
        }
        if measurement.outcome.is_ok() {
            self.ran.borrow_mut().insert((candidate.workload().clone(), candidate.stable_hash()));
        }

        let recent = self.flushed.get().is_some_and(|flushed| flushed.elapsed() < FLUSH_EVERY);
        if recent { Ok(()) } else { self.flush() }
    }

    /// Returns true if the database has this very measurement. A measurer that shares the
    /// measurements of other tuners stores them itself, with their provenance.
    fn is_stored(&self, record: &TuningRecord) -> Result<bool, DbError> {
        let TuningRecord { workload, target, config, measurement, .. } = record;
        if record.phase != Phase::Search || !self.db.contains(workload, target, config)? {
            return Ok(false);
        }
        let is_it = |stored: TuningRecord| {
            stored.config == *config && stored.measurement == *measurement && !stored.is_untrusted()
        };
        Ok(self.db.query(workload, target)?.into_iter().any(is_it))
    }

    /// Makes everything appended durable.
    pub(crate) fn flush(&self) -> Result<(), DbError> {
        self.db.flush()?;
        self.flushed.set(Some(Instant::now()));
        Ok(())
    }

    /// Returns the records of a task that were measured on this machine with the present lowering.
    pub(crate) fn measured(&self, workload: &Workload) -> Result<Vec<TuningRecord>, DbError> {
        let mut records = self.db.query(workload, &self.target.key())?;
        records.retain(|record| !record.is_untrusted());
        Ok(records)
    }
}

/// Starts measuring the load of other programs on a target's CPU. GPUs are assumed to have no other
/// users, and the load of other machines comes with their measurements.
fn watch(target: &Target, settings: &Settings) -> Option<LoadWatch> {
    target.cpu().filter(|_| !settings.reports_load).map(|_| LoadWatch::start(target.threads()))
}

/// Returns the time since 1970 (UTC).
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
