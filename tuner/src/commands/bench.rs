//! `autotune bench NETWORK|WORKLOAD`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use autotune::report::{table, to_json};
use autotune::{Network, TuneOptions, bench};
use autotune_measure::Backend;

use super::{JsonSink, Place, cancel_on_ctrl_c, open_db};
use crate::cli::{DbArgs, Failure, TargetArgs};
use crate::progress;

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
    let reports = bench(&network.tasks, &target, &options, &mut measurer, &db, &mut *observer)?;
    drop(observer);
    json.write(|| to_json(&target.key(), &reports, start.elapsed()))?;
    json.say(&table(&reports))?;
    if cancel.is_cancelled() {
        return Err(Failure::Interrupted.into());
    }
    let failed: Vec<&str> = reports.iter().filter(|t| t.best_secs.is_none()).map(|t| t.name.as_str()).collect();
    anyhow::ensure!(failed.is_empty(), "no schedule of {} ran and was right", failed.join(", "));
    Ok(())
}
