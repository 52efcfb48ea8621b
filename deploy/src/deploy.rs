//! Deployment modes of a program: default schedules only, look-up, or tuning on a miss.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use autotune_db::{DbError, Source, TaskHold, TimeProvenance, TuningDb};
use autotune_ir::Target;
use autotune_workloads::Workload;
use thiserror::Error;

use crate::query::{LookupSpace, Query};
use crate::tuned::{LookupError, Tuned};

/// Pause between two attempts to open a database that another process writes.
const PAUSE: Duration = Duration::from_millis(50);

/// Source of a deployed program's schedules.
///
/// ```no_run
/// use std::time::Duration;
/// use autotune_db::{DbError, Snapshot, TuningDb};
/// use autotune_deploy::{Deploy, TuneOnMiss};
/// use autotune_ir::Target;
/// use autotune_workloads::Workload;
///
/// // `autotune::tune_within(64, Duration::from_secs(10))` is such a function.
/// let tune = |db: &TuningDb, workload: &Workload, target: &Target| -> Result<(), DbError> {
///     todo!()
/// };
/// let snapshot = Snapshot::open("tuning.snapshot")?;
/// let on_miss = TuneOnMiss::into("tuning.db", tune);
/// let on_miss = on_miss.after(&snapshot).wait(Duration::from_secs(30));
/// let (workload, target) = ("matmul:m=197,n=768,k=768".parse()?, Target::detect("cpu", None)?);
/// for deploy in [Deploy::Off, Deploy::LookUp(&snapshot), Deploy::TuneOnMiss(on_miss)] {
///     println!("{}", deploy.schedule(&workload, &target)?.config());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub enum Deploy<'a> {
    /// Always the default schedule.
    Off,
    /// Schedule from a database or a snapshot; on a miss a predicted one.
    LookUp(&'a dyn Source),
    /// Schedule from a database or a snapshot; on a miss the workload is tuned first.
    TuneOnMiss(TuneOnMiss<'a>),
}

/// Tunes workloads on a miss, each once among all processes.
///
/// A miss is a workload that was not raced on this machine. Untrusted records, those of other
/// machines and those of an unfinished run therefore lead to tuning, too. One thread of one process
/// tunes a workload while the others wait, or continue with the best available schedule. If the
/// process is killed, its measurements remain, and the next process continues from there. Only one
/// process writes the database at a time, so that tuning runs do not disturb one another.
pub struct TuneOnMiss<'a> {
    db: PathBuf,
    first: Option<&'a dyn Source>,
    wait: Duration,
    tune: Box<TuneFn<'a>>,
}

/// Error of the tuning function.
type Failure = Box<dyn Error + Send + Sync>;
type TuneFn<'a> = dyn Fn(&TuningDb, &Workload, &Target) -> Result<(), Failure> + Send + Sync + 'a;

/// Reason that there is no schedule.
#[derive(Debug, Error)]
pub enum DeployError {
    /// The look-up of the schedule failed.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The tuning function failed.
    #[error(transparent)]
    Tune(Failure),
    /// The database for tuned schedules cannot be opened.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl Deploy<'_> {
    /// Returns the schedule of a workload on a target. For tuning on a miss the target must be this
    /// machine's.
    pub fn schedule(&self, workload: &Workload, target: &Target) -> Result<Tuned, DeployError> {
        match self {
            Deploy::Off => Ok(Query::new(workload, target).best()?),
            Deploy::LookUp(source) => Ok(Query::new(workload, target).source(*source).best()?),
            Deploy::TuneOnMiss(on_miss) => on_miss.schedule(workload, target),
        }
    }
}

impl<'a> TuneOnMiss<'a> {
    /// Tunes with a function into the database at a path, in which schedules are also looked up. By
    /// default no caller waits while another one tunes.
    pub fn into<E: Into<Failure>>(
        db: impl AsRef<Path>,
        tune: impl Fn(&TuningDb, &Workload, &Target) -> Result<(), E> + Send + Sync + 'a,
    ) -> Self {
        let tune =
            move |db: &TuningDb, workload: &Workload, target: &Target| tune(db, workload, target).map_err(Into::into);
        Self { db: db.as_ref().to_path_buf(), first: None, wait: Duration::ZERO, tune: Box::new(tune) }
    }

    /// Sets a source to look up before the database, such as a snapshot.
    pub fn after(mut self, source: &'a dyn Source) -> Self {
        self.first = Some(source);
        self
    }

    /// Sets how long to wait while another caller tunes the workload or writes the database. After
    /// that the best available schedule is used, in the worst case the default.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    fn schedule(&self, workload: &Workload, target: &Target) -> Result<Tuned, DeployError> {
        let start = Instant::now();
        let space = LookupSpace::new(workload, target)?;
        let first = self.first.map(|source| space.found(source)).transpose()?.flatten();
        if let Some(settled) = first.as_ref().filter(|tuned| was_raced(tuned)) {
            return Ok(settled.clone());
        }

        let seen = self.known_schedules(first.as_ref(), &space)?;
        if let Some(settled) = seen.best.filter(was_raced) {
            return Ok(settled);
        }

        // Only one caller tunes a workload. The records are read again below, because another one
        // may have tuned it meanwhile.
        let Some(_hold) = TaskHold::take(&self.db, workload, &target.key(), self.wait)? else {
            return self.or_predicted(self.known_schedules(first.as_ref(), &space)?, &space);
        };
        let db = match open_writable(&self.db)? {
            Some(db) => db,
            None => {
                let seen = self.known_schedules(first.as_ref(), &space)?;
                let is_done = seen.best.as_ref().is_some_and(was_raced);
                match if is_done { None } else { self.awaited(start)? } {
                    Some(db) => db,
                    None => return self.or_predicted(seen, &space),
                }
            }
        };
        if let Some(settled) = space.found(&db)?.filter(was_raced) {
            return Ok(settled);
        }

        (self.tune)(&db, workload, target).map_err(DeployError::Tune)?;
        Ok(Query::new(workload, target).source(&db).best()?)
    }

    /// Reads the database, and returns the better of its schedule and `first`.
    fn known_schedules(&self, first: Option<&Tuned>, space: &LookupSpace) -> Result<KnownSchedules, DeployError> {
        let stored = match TuningDb::open_reading(&self.db) {
            Ok(db) => Some(db),
            Err(DbError::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let found = stored.as_ref().map(|db| space.found(db)).transpose()?.flatten();
        // If both are equally good, the one from the database wins.
        let best = found.into_iter().chain(first.cloned()).min_by_key(|tuned| tuned.best().map(|best| best.standing));
        Ok(KnownSchedules { stored, best })
    }

    /// Returns the best schedule seen, else one predicted from the first source and the database.
    fn or_predicted(
        &self,
        KnownSchedules { stored, best }: KnownSchedules,
        space: &LookupSpace,
    ) -> Result<Tuned, DeployError> {
        if let Some(best) = best {
            return Ok(best);
        }
        let stored = stored.as_ref().map(|db| db as &dyn Source);
        let sources: Vec<&dyn Source> = self.first.into_iter().chain(stored).collect();
        Ok(space.predicted(&sources)?)
    }

    /// Waits for the database and opens it for writing; `None` if another process still writes it
    /// after the waiting time.
    fn awaited(&self, start: Instant) -> Result<Option<TuningDb>, DbError> {
        while start.elapsed() < self.wait {
            sleep(PAUSE);
            if let Some(db) = open_writable(&self.db)? {
                return Ok(Some(db));
            }
        }
        Ok(None)
    }
}

/// Database as read, and the best schedule available.
struct KnownSchedules {
    /// Open database; `None` if it does not exist.
    stored: Option<TuningDb>,
    best: Option<Tuned>,
}

/// Opens the database for writing; `None` if another process writes it.
fn open_writable(path: &Path) -> Result<Option<TuningDb>, DbError> {
    match TuningDb::open(path) {
        Ok(db) => Ok(Some(db)),
        Err(DbError::Held { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if the schedule was raced on this machine, so that nothing is left to tune.
fn was_raced(tuned: &Tuned) -> bool {
    tuned.best().is_some_and(|best| best.standing == TimeProvenance::Raced)
}
