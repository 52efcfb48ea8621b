//! The commands `autotune fleet`, and the workers of `autotune NETWORK --connect`.

#[cfg(feature = "nats")]
mod nats;
#[cfg(not(feature = "nats"))]
#[path = "fleet/without_nats.rs"]
mod nats;
mod own_name;
pub(super) mod team;
mod up;

use std::sync::Arc;

use anyhow::{Result, bail};
use autotune_fleet::transport::Dial;
use autotune_fleet::{
    DeviceWish, Fleet, FleetError, FleetOptions, FleetParams, LocalDevices, MetricsPlace, Queried, SocketPlace,
    WorkerOptions, query, serve_fleet,
};
use autotune_ir::Target;
use autotune_runtime::affinity;
use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;
use serde::Serialize;

use self::own_name::own_name;
use super::shared::JsonSink;
use crate::args::{Failure, FleetAction, FleetStatusArgs, FleetWorkerArgs, NatsArgs};
use crate::output::{print, say};
use crate::{interrupt, progress};

pub(super) use nats::finder;

pub(super) fn run(action: FleetAction) -> Result<()> {
    match action {
        FleetAction::Worker(args) => worker(args),
        FleetAction::Up(args) => up::run(&args),
        FleetAction::Collect(args) => team::collect(args),
        FleetAction::Status(args) => status(args),
    }
}

/// Serves tuners until a signal or idleness ends it.
fn worker(args: FleetWorkerArgs) -> Result<()> {
    if let Some(cores) = &args.cores {
        let absent = |core| Failure::Usage(format!("--cores: this process may not use core {core}"));
        affinity::restrict_to_cores(&cores.0).map_err(absent)?;
    }
    let cancel = interrupt::service();
    let devices = LocalDevices::detect().map_err(anyhow::Error::msg)?;
    let mut listeners = args.listen.iter().map(SocketPlace::listen).collect::<Result<Vec<_>, _>>()?;
    listeners.extend(nats::listen(&args.nats)?);
    let addresses: Vec<String> = listeners.iter().map(|listener| listener.address()).collect();
    let name = args.name.unwrap_or_else(own_name);
    let metrics = args.metrics.as_deref().map(MetricsPlace::bind).transpose()?;
    let stated = metrics.as_ref().map(|place| format!("fleet worker {name}: metrics at {}", place.url()));
    let options = WorkerOptions { exit_when_idle: args.exit_when_idle, metrics, ..WorkerOptions::new(&name) };

    print(&format!("fleet worker {name}: listening on {}", addresses.join(", ")))?;
    stated.into_iter().try_for_each(|line| print(&line))?;
    let notice = |line: String| say(format_args!("fleet worker: {line}"));
    let state = serve_fleet(listeners, Box::new(devices), &options, &|| cancel.is_cancelled(), notice)?;
    print(&format!("fleet worker {name}: ended after {} trials", state.trials))
}

/// Returns the workers that the command line names, and those that a NATS server knows.
pub(super) fn dials(places: &[SocketPlace], server: &NatsArgs) -> Result<Vec<Arc<dyn Dial>>> {
    let mut dials: Vec<Arc<dyn Dial>> = places.iter().map(|place| Arc::new(place.clone()) as _).collect();
    dials.extend(nats::find(server)?);
    Ok(dials)
}

/// Connects to the workers that the command line names; `None` if it names neither workers nor a
/// server.
pub(super) fn connect(places: &[SocketPlace], server: &NatsArgs, wish: &DeviceWish) -> Result<Option<Fleet>> {
    if places.is_empty() && server.nats.is_none() {
        return Ok(None);
    }
    let dials = dials(places, server)?;
    let switch = interrupt::cancel();
    let options = FleetOptions {
        is_interrupted: Arc::new(move || switch.is_due()),
        notice: Box::new(|line| progress::notice(&line)),
        find: nats::finder(server)?,
        ..FleetOptions::default()
    };
    match Fleet::connect(dials, wish, options) {
        Ok(fleet) => {
            tell_workers(&fleet);
            Ok(Some(fleet))
        }
        Err(FleetError::Interrupted) => Err(Failure::Interrupted.into()),
        Err(error) => Err(error.into()),
    }
}

/// Names the workers of a fleet that was connected.
pub(super) fn tell_workers(fleet: &Fleet) {
    let names: Vec<String> = fleet.workers().into_iter().map(|(name, _)| name).collect();
    say(format_args!("{} worker(s) of {}: {}", names.len(), fleet.target(), names.join(", ")));
}

/// Describes how many wishes each worker of a kind answered.
pub(super) fn summary(fleet: &Fleet, target: &Target) -> String {
    let parts: Vec<String> = fleet.workers().into_iter().map(|(name, trials)| format!("{name} {trials}")).collect();
    format!("trials by the workers of {target}: {}", parts.join(", "))
}

/// Row of `fleet status`, as JSON.
#[derive(Serialize)]
struct WorkerRow {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(flatten)]
    worker: Option<KnownWorker>,
}

#[derive(Serialize)]
struct KnownWorker {
    name: String,
    version: String,
    lowering: u32,
    #[serde(flatten)]
    state: autotune_fleet::WorkerState,
}

fn status(args: FleetStatusArgs) -> Result<()> {
    let json = JsonSink::new(args.json)?;
    let (params, dials) = (FleetParams::default(), dials(&args.connect, &args.nats)?);
    let rows: Vec<WorkerRow> = std::thread::scope(|scope| {
        let asked = dials.iter().map(|dial| {
            let params = &params;
            scope.spawn(move || WorkerRow::of(dial.address(), query(&**dial, params)))
        });
        let asked: Vec<_> = asked.collect();
        asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });

    json.write(&rows)?;
    if rows.iter().any(|row| row.worker.is_some()) {
        json.say(&table(&rows))?;
    }
    let errors: Vec<&str> = rows.iter().filter_map(|row| row.error.as_deref()).collect();
    match errors.is_empty() {
        true => Ok(()),
        false => bail!(errors.join("; ")),
    }
}

impl WorkerRow {
    fn of(address: String, queried: Result<Queried, FleetError>) -> Self {
        match queried {
            Ok(Queried { name, build, state }) => {
                let worker = KnownWorker { name, version: build.version, lowering: build.lowering, state };
                Self { address, error: None, worker: Some(worker) }
            }
            Err(error) => Self { address, error: Some(error.to_string()), worker: None },
        }
    }
}

fn table(rows: &[WorkerRow]) -> String {
    let headers =
        ["worker", "address", "target", "version", "tuners", "queued", "trials", "a second", "up", "last", "health"];
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(headers);
    let secs = |secs: f64| format!("{secs:.0} s");
    for row in rows {
        let Some(KnownWorker { name, version, lowering, state }) = &row.worker else { continue };
        table.add_row([
            name.clone(),
            row.address.clone(),
            state.target.clone(),
            format!("{version}, lowering {lowering}"),
            state.tuners.to_string(),
            state.queued.to_string(),
            state.trials.to_string(),
            format!("{:.1}", state.trials_per_sec),
            secs(state.up_secs),
            state.idle_secs.map_or("-".into(), |idle| format!("{} ago", secs(idle))),
            state.drift.map_or("-".into(), |drift| format!("{drift:.2}x")),
        ]);
    }
    table.to_string()
}
