//! The command `autotune report NETWORK|WORKLOAD... -o FILE`: writes an HTML page about the
//! records.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use autotune::{Network, Task};
use autotune_db::TuningDb;
use autotune_ir::Target;
use autotune_measure::{Ceilings, MeasureOptions, WorkerMeasurer};
use autotune_workloads::Workload;

use super::file::{check_output, replace};
use super::lookup::look_up_db;
use super::shared::warn;
use crate::args::{Failure, ReportArgs};
use crate::output::{print, say};
use crate::page::{History, Page};

pub(super) fn run(args: ReportArgs) -> Result<()> {
    let mut networks = Vec::new();
    for subject in &args.subjects {
        let loaded = args.inputs.load_all(subject)?;
        let tasks = args.target.tasks(subject, &loaded)?;
        networks.push(args.variant.of(tasks)?);
    }
    let subject = networks.iter().map(|network| network.name.as_str()).collect::<Vec<_>>().join(" ");
    let tasks = tasks(&networks);
    if tasks.is_empty() {
        bail!("{subject} has no tasks: none of its steps is a tunable kernel");
    }
    let workloads: Vec<Workload> = tasks.iter().map(|task| task.workload.clone()).collect();
    let target = args.target.detect(&workloads)?;
    let output = PageOutput::new(args.output)?;

    let nothing = || format!("no records of {subject} on {target}: tune it first (autotune {subject})");
    let db = look_up_db(args.db.place()?)?.with_context(nothing)?;
    let key = key(&db, &target, &workloads)?;
    let known = tasks.iter().map(|task| db.query(&task.workload, &key)).collect::<Result<Vec<_>, _>>()?;
    if known.iter().all(Vec::is_empty) {
        warn(&db);
        bail!(nothing());
    }

    // Measured only now: a report that fails for want of records should fail fast.
    let ceilings = ceilings(&target);
    let target = ceilings.as_ref().map_or(target.clone(), |ceilings| ceilings.rated(&target));
    let history = |(task, known)| History::of(task, known, &db, &target, &key);
    let histories = tasks.iter().zip(known).map(history).collect::<Result<Vec<_>>>()?;
    warn(&db);

    let records: usize = histories.iter().map(|history| history.records.len()).sum();
    let page = Page { subject: &subject, target: &target, key: &key, ceilings, histories: &histories };
    output.write(&page.write()?)?;
    if let PageOutput::File(file) = &output {
        say(format_args!("wrote {}: {} task(s), {records} record(s)", file.display(), tasks.len()));
    }
    Ok(())
}

/// Merges the tasks of all networks: equal workloads become one task with the sum of the counts,
/// and equal names get a number.
fn tasks(networks: &[Network]) -> Vec<Task> {
    let mut tasks: Vec<Task> = Vec::new();
    for task in networks.iter().flat_map(|network| &network.tasks) {
        match tasks.iter_mut().find(|known| known.workload == task.workload) {
            Some(known) => known.count += task.count,
            None => tasks.push(task.clone()),
        }
    }

    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for task in &mut tasks {
        let number = seen.entry(task.name.clone()).or_default();
        *number += 1;
        if *number > 1 {
            task.name = format!("{} {number}", task.name);
        }
    }
    tasks
}

/// Returns the key of the records to report: the key of the target. For a GPU named by its kind
/// only, it is the key of the device of that kind with the most records.
fn key(db: &TuningDb, target: &Target, workloads: &[Workload]) -> Result<String> {
    let Some(gpu) = target.gpu().filter(|gpu| gpu.is_stated()) else {
        return Ok(target.key());
    };
    let kind = format!("{}:", gpu.api);
    let mut records: BTreeMap<String, u64> = BTreeMap::new();
    for task in
        db.tasks()?.into_iter().filter(|task| task.target.starts_with(&kind) && workloads.contains(&task.workload))
    {
        *records.entry(task.target).or_default() += task.records;
    }

    let most = records.iter().max_by_key(|(_, count)| **count).map(|(key, _)| key.clone());
    if let (Some(most), 2..) = (&most, records.len()) {
        let keys = records.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        say(format_args!("autotune: several devices have records ({keys}); using {most}, which has the most"));
    }
    Ok(most.unwrap_or_else(|| target.key()))
}

/// Measures the peak rates of the target, or says why that is impossible: the target is a device
/// that this machine lacks.
fn ceilings(target: &Target) -> Result<Ceilings, String> {
    if target.gpu().is_some_and(|gpu| gpu.is_stated()) {
        return Err("the device is not on this machine".into());
    }
    let measured = WorkerMeasurer::new(MeasureOptions::default()).and_then(|mut measurer| measurer.ceilings(target));
    measured.map_err(|error| error.to_string())
}

/// Destination of the page.
enum PageOutput {
    Stdout,
    File(PathBuf),
}

impl PageOutput {
    /// Accepts a file in an existing folder, or `-` for standard output.
    fn new(path: PathBuf) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::Stdout);
        }
        check_output("-o", &path, "page", |start| start.starts_with(b"<!DOCTYPE html>"))?;
        Ok(Self::File(path))
    }

    fn write(&self, page: &str) -> Result<()> {
        match self {
            Self::Stdout => print(page),
            Self::File(file) => {
                let written = replace(file, |out| out.write_all(page.as_bytes()));
                written.with_context(|| format!("-o {}", file.display()))
            }
        }
    }
}
