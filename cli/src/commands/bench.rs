//! `autotune bench NETWORK|WORKLOAD`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use autotune::{Network, TuneOptions, bench};
use autotune_measure::Backend;

use super::{JsonSink, Place, cancel_on_ctrl_c, open_db};
use crate::args::{DbArgs, Failure, TargetArgs};
use crate::progress;
use crate::report::table;

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
    let cancel = cancel_on_ctrl_c()?;
    let Place { target, mut measurer, ceilings, setup } = Place::find(target, &network.workloads(), backend, &cancel)?;
    let options = TuneOptions { cancel: cancel.clone(), ceilings, setup, ..TuneOptions::default() };
    let mut observer = progress::observer(None);
    let mut report = bench(&network.tasks, &target, &options, &mut measurer, &db, &mut *observer)?;
    drop(observer);
    report.tuning_secs = start.elapsed().as_secs_f64();
    json.write(&report)?;
    json.say(&table(&report.tasks))?;
    if cancel.is_cancelled() {
        return Err(Failure::Interrupted.into());
    }
    let failed: Vec<&str> = report.tasks.iter().filter(|t| t.best_secs.is_none()).map(|t| t.name.as_str()).collect();
    anyhow::ensure!(failed.is_empty(), "no schedule of {} ran and was right", failed.join(", "));
    Ok(())
}
