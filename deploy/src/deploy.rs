//! How a program that deploys gets its schedules: not at all, by looking them up, or by tuning what
//! is not there.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use autotune_db::{DbError, Source, Standing, TaskHold, TuningDb};
use autotune_ir::Target;
use autotune_workloads::Workload;
use thiserror::Error;

use crate::query::{LookupSpace, Query};
use crate::tuned::{LookupError, Tuned};

/// Pause between two attempts to open a database that another process writes.
const PAUSE: Duration = Duration::from_millis(50);

/// How a program that deploys gets its schedules.
///
/// ```no_run
/// use std::time::Duration;
/// use autotune_db::{DbError, Snapshot, TuningDb};
/// use autotune_deploy::{Deploy, TuneOnMiss};
/// use autotune_ir::Target;
/// use autotune_workloads::Workload;
///
/// // `autotune::tune_within(64, Duration::from_secs(10))` is such a function.
/// let tune = |db: &TuningDb, workload: &Workload, target: &Target| -> Result<(), DbError> { todo!() };
/// let snapshot = Snapshot::open("tuning.snapshot")?;
/// let on_miss = TuneOnMiss::into("tuning.db", tune).after(&snapshot).wait(Duration::from_secs(30));
/// let (workload, target) = ("matmul:m=197,n=768,k=768".parse()?, Target::detect("cpu", None)?);
/// for deploy in [Deploy::Off, Deploy::LookUp(&snapshot), Deploy::TuneOnMiss(on_miss)] {
///     println!("{}", deploy.schedule(&workload, &target)?.config());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub enum Deploy<'a> {
    /// The default schedule, always.
    Off,
    /// What a database or a snapshot has; the default schedule on a miss.
    LookUp(&'a dyn Source),
    /// What there is; on a miss the workload is tuned first.
    TuneOnMiss(TuneOnMiss<'a>),
}

/// Tuning what is not there, once among all processes.
///
/// A miss is a workload that was not raced on this very machine: claims, what other machines found,
/// and what a killed run left half done are tuned, too. One thread of one process tunes a workload
/// while the others wait, or go on with the best there is; a process that is killed leaves what it
/// measured, and the next goes on from there. Only one process writes the database at a time, so
/// that tuning never disturbs tuning.
pub struct TuneOnMiss<'a> {
    db: PathBuf,
    first: Option<&'a dyn Source>,
    wait: Duration,
    tune: Box<TuneFn<'a>>,
}

/// Why tuning failed, in the words of the function that tunes.
type Failure = Box<dyn Error + Send + Sync>;
type TuneFn<'a> = dyn Fn(&TuningDb, &Workload, &Target) -> Result<(), Failure> + Send + Sync + 'a;

/// Why there is no schedule.
#[derive(Debug, Error)]
pub enum DeployError {
    /// It cannot be looked up.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// It cannot be tuned.
    #[error(transparent)]
    Tune(Failure),
    /// The database that is tuned into cannot be opened.
    #[error(transparent)]
    Db(#[from] DbError),
}

impl Deploy<'_> {
    /// The schedule of a workload on a target, which to be tuned must be this machine's.
    pub fn schedule(&self, workload: &Workload, target: &Target) -> Result<Tuned, DeployError> {
        match self {
            Deploy::Off => Ok(Query::new(workload, target).best()?),
            Deploy::LookUp(source) => Ok(Query::new(workload, target).source(*source).best()?),
            Deploy::TuneOnMiss(on_miss) => on_miss.schedule(workload, target),
        }
    }
}

impl<'a> TuneOnMiss<'a> {
    /// Tunes by a function into the database at a path, which is looked up in, too. By default no
    /// one waits who finds that another tunes.
    pub fn into<E: Into<Failure>>(
        db: impl AsRef<Path>,
        tune: impl Fn(&TuningDb, &Workload, &Target) -> Result<(), E> + Send + Sync + 'a,
    ) -> Self {
        let tune =
            move |db: &TuningDb, workload: &Workload, target: &Target| tune(db, workload, target).map_err(Into::into);
        Self { db: db.as_ref().to_path_buf(), first: None, wait: Duration::ZERO, tune: Box::new(tune) }
    }

    /// What is looked up in before the database, such as a snapshot.
    pub fn after(mut self, source: &'a dyn Source) -> Self {
        self.first = Some(source);
        self
    }

    /// How long to wait for who tunes the workload, or writes the database; after that the best
    /// there is will do, the default at worst.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    fn schedule(&self, workload: &Workload, target: &Target) -> Result<Tuned, DeployError> {
        let start = Instant::now();
        let space = LookupSpace::new(workload, target)?;
        let first = self.first.map(|source| space.found(source)).transpose()?.flatten();
        if let Some(settled) = first.as_ref().filter(|tuned| is_settled(tuned)) {
            return Ok(settled.clone());
        }
        let seen = self.seen(first.as_ref(), &space)?;
        if let Some(settled) = seen.best.filter(is_settled) {
            return Ok(settled);
        }

        // Another may have tuned it meanwhile.
        let Some(_hold) = TaskHold::take(&self.db, workload, &target.key(), self.wait)? else {
            return self.or_predicted(self.seen(first.as_ref(), &space)?, &space);
        };
        let db = match writable(&self.db)? {
            Some(db) => db,
            None => {
                let seen = self.seen(first.as_ref(), &space)?;
                let is_done = seen.best.as_ref().is_some_and(is_settled);
                match if is_done { None } else { self.awaited(start)? } {
                    Some(db) => db,
                    None => return self.or_predicted(seen, &space),
                }
            }
        };
        if let Some(settled) = space.found(&db)?.filter(is_settled) {
            return Ok(settled);
        }

        (self.tune)(&db, workload, target).map_err(DeployError::Tune)?;
        Ok(Query::new(workload, target).source(&db).best()?)
    }

    /// What the database has by now, and the best of that and of what was found first.
    fn seen(&self, first: Option<&Tuned>, space: &LookupSpace) -> Result<Seen, DeployError> {
        let stored = match TuningDb::open_reading(&self.db) {
            Ok(db) => Some(db),
            Err(DbError::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let found = stored.as_ref().map(|db| space.found(db)).transpose()?.flatten();
        // Of equals what is stored.
        let best = found.into_iter().chain(first.cloned()).min_by_key(|tuned| tuned.best().map(|best| best.standing));
        Ok(Seen { stored, best })
    }

    /// The best that was seen; else what is predicted, by what is looked up in first and the
    /// database.
    fn or_predicted(&self, Seen { stored, best }: Seen, space: &LookupSpace) -> Result<Tuned, DeployError> {
        if let Some(best) = best {
            return Ok(best);
        }
        let stored = stored.as_ref().map(|db| db as &dyn Source);
        let sources: Vec<&dyn Source> = self.first.into_iter().chain(stored).collect();
        Ok(space.predicted(&sources)?)
    }

    /// The database for writing; `None` if another process still writes it when the wait is over.
    fn awaited(&self, start: Instant) -> Result<Option<TuningDb>, DbError> {
        while start.elapsed() < self.wait {
            sleep(PAUSE);
            if let Some(db) = writable(&self.db)? {
                return Ok(Some(db));
            }
        }
        Ok(None)
    }
}

/// What was seen in the database, and the best there is.
struct Seen {
    /// `None` if there is no database.
    stored: Option<TuningDb>,
    best: Option<Tuned>,
}

/// The database for writing; `None` if another process writes it.
fn writable(path: &Path) -> Result<Option<TuningDb>, DbError> {
    match TuningDb::open(path) {
        Ok(db) => Ok(Some(db)),
        Err(DbError::Held { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if there is nothing to tune.
fn is_settled(tuned: &Tuned) -> bool {
    tuned.best().is_some_and(|best| best.standing == Standing::Raced)
}
