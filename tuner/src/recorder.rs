//! Writing what is measured.

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
use crate::standing::Standing;

/// How long a measurement may be at the mercy of a power failure: waiting for the disk each time
/// would cost as much as measuring.
const FLUSH_EVERY: Duration = Duration::from_millis(250);

/// Appends measurements of a run to its database, and remembers where each task stands by them.
pub(crate) struct Recorder<'a> {
    pub(crate) db: &'a TuningDb,
    pub(crate) target: &'a Target,
    pub(crate) settings: &'a Settings,
    flushed: Cell<Option<Instant>>,
    standings: RefCell<HashMap<Workload, Standing>>,
    /// Watches what others take of the target's processor since the run began.
    watch: Option<LoadWatch>,
    /// Tasks and configs that ran in this run.
    ran: RefCell<HashSet<(Workload, u64)>>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(db: &'a TuningDb, target: &'a Target, settings: &'a Settings) -> Self {
        let (flushed, standings, ran) = (Cell::new(None), RefCell::default(), RefCell::default());
        Self { db, target, settings, flushed, standings, watch: watch(target), ran }
    }

    /// What others have taken of the machine since the run began.
    pub(crate) fn load(&self) -> Option<Load> {
        self.watch.as_ref()?.load()
    }

    /// Does something, and tells the share of the threads' time that others took meanwhile; since
    /// the run began, where that took too little time to tell. 0 where it is not known.
    pub(crate) fn watched<T>(&self, action: impl FnOnce() -> T) -> (T, f64) {
        let watch = watch(self.target);
        let done = action();
        let load = watch.and_then(|watch| watch.load()).or_else(|| self.load());
        (done, load.map_or(0.0, |load| load.taken))
    }

    /// Where a task of the space stands.
    pub(crate) fn standing(&self, space: &ScheduleSpace) -> Standing {
        let standings = self.standings.borrow();
        standings.get(space.workload()).cloned().unwrap_or_else(|| Standing::new(space.default_config()))
    }

    /// True if a config ran and was right in this run; others come from a database, and are to be
    /// proven before they run.
    pub(crate) fn has_run(&self, space: &ScheduleSpace, config: &Config) -> bool {
        self.ran.borrow().contains(&(space.workload().clone(), config.stable_hash()))
    }

    /// Remembers what is measured of a task of the space from now on.
    pub(crate) fn follow(&self, space: &ScheduleSpace) {
        let standing = Standing::new(space.default_config());
        self.standings.borrow_mut().insert(space.workload().clone(), standing);
    }

    /// Appends one measurement: from then on it outlives the process, and a loss of power after a
    /// quarter of a second of further appending or after [`Recorder::flush`].
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
        self.db.append(&record)?;

        // What was only read from the database is nothing of this run.
        if let Some(standing) = self.standings.borrow_mut().get_mut(candidate.workload()) {
            standing.take_in(candidate.config(), measurement, phase);
        }
        if measurement.outcome.is_ok() {
            self.ran.borrow_mut().insert((candidate.workload().clone(), candidate.stable_hash()));
        }

        let recent = self.flushed.get().is_some_and(|flushed| flushed.elapsed() < FLUSH_EVERY);
        if recent { Ok(()) } else { self.flush() }
    }

    /// Makes everything appended durable.
    pub(crate) fn flush(&self) -> Result<(), DbError> {
        self.db.flush()?;
        self.flushed.set(Some(Instant::now()));
        Ok(())
    }

    /// The records of a task that were measured here, by the present lowering.
    pub(crate) fn measured(&self, workload: &Workload) -> Result<Vec<TuningRecord>, DbError> {
        let mut records = self.db.query(workload, &self.target.key())?;
        records.retain(|record| !record.is_claim());
        Ok(records)
    }
}

/// Watches what others take of a target's processor; nobody else runs on a GPU.
fn watch(target: &Target) -> Option<LoadWatch> {
    target.cpu().map(|_| LoadWatch::start(target.threads()))
}

/// Time since 1970 (UTC).
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
