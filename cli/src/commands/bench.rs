//! The command `autotune bench NETWORK|WORKLOAD`: times the best known schedule of each task
//! against the default one.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use autotune::{Network, Tuner};
use autotune_measurement::Backend;

use super::shared::{JsonSink, open_db, open_device};
use crate::args::{DbArgs, Failure, TargetArgs};
use crate::report::{caveats, table};
use crate::{interrupt, progress};

pub(super) fn run(
    network: &Network,
    target: &TargetArgs,
    db: &DbArgs,
    backend: Backend,
    json: Option<PathBuf>,
) -> Result<()> {
    let start = Instant::now();
    let json = JsonSink::new(json)?;
    let db = open_db(db)?;
    let cancel = interrupt::cancel();
    let target = target.device(&network.workloads())?;
    let (mut measurer, ceilings, setup) = open_device(&target, &network.workloads(), backend, &cancel)?;

    let mut observer = progress::observer(None);
    let tuner = Tuner::new(&target).measurer(&mut measurer).ceilings(ceilings).setup(setup).database(&db);
    let mut report = tuner.cancel(&cancel).observer(&mut *observer).bench(&network.tasks)?;
    drop(observer);
    report.tuning_secs = start.elapsed().as_secs_f64();
    json.write(&report)?;
    json.say(&table(&report.tasks))?;
    json.say_all(caveats(&report.tasks, &report.disturbance))?;

    // An interrupted run still writes the tasks that it finished, but exits with an error.
    if cancel.is_cancelled() {
        return Err(Failure::Interrupted.into());
    }
    let failed: Vec<&str> = report.tasks.iter().filter(|t| t.best_secs.is_none()).map(|t| t.name.as_str()).collect();
    anyhow::ensure!(failed.is_empty(), "no schedule of {} ran with a correct result", failed.join(", "));
    Ok(())
}
