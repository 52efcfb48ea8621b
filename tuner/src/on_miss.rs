//! Tuning on a look-up miss during deployment.

use std::time::Duration;

use autotune_db::TuningDb;
use autotune_ir::Target;
use autotune_workloads::Workload;

use crate::error::TuneError;
use crate::network::Task;
use crate::tuner::Tuner;

/// Returns a function for [`TuneOnMiss::into`](crate::TuneOnMiss::into) that tunes a workload. It
/// uses at most `trials` measurements, including those of earlier runs, and `time_budget` of
/// wall-clock time, including the final race; `None` means no limit.
///
/// ```no_run
/// use std::time::Duration;
/// use autotune::{Deploy, Snapshot, Target, TuneOnMiss, tune_within};
///
/// autotune::serve_if_worker(); // candidates run in child processes of this program
/// let snapshot = Snapshot::open("tuning.snapshot")?;
/// let tune = tune_within(64, Duration::from_secs(10));
/// let on_miss = TuneOnMiss::into("tuning.db", tune).after(&snapshot);
/// let (workload, target) = ("matmul:m=197,n=768,k=768".parse()?, Target::detect("cpu", None)?);
/// println!("{}", Deploy::TuneOnMiss(on_miss).schedule(&workload, &target)?.config());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn tune_within(
    trials: usize,
    time_budget: impl Into<Option<Duration>>,
) -> impl Fn(&TuningDb, &Workload, &Target) -> Result<(), TuneError> + Send + Sync {
    let time_budget = time_budget.into();
    move |db, workload, target| {
        let tuner = Tuner::new(target).trials(trials).time_budget(time_budget).database(db);
        tuner.tune(&[Task::single(workload.clone())]).map(drop)
    }
}
