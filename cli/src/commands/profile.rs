//! The command `autotune bench NETWORK --profile`: times each step of a network.

use std::path::PathBuf;

use anyhow::Result;
use autotune::{Origin, Timing, Tuned};
use autotune_db::TimeProvenance;
use autotune_ir::Target;
use autotune_ir::program::{Layout, Role};
use autotune_measure::{Ceilings, LoadWatch, MeasureOptions, WorkerMeasurer};
use autotune_network::{Compiled, NetworkDevice, StepTime, Waiting, quantile, time_interleaved};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use super::lookup::{network_source, untrusted_note};
use super::rounded::decided;
use super::run::{RUNS_IN_A_ROW, inputs, network};
use super::shared::{JsonSink, on_device, or_warn, warn};
use crate::args::{DbArgs, LoadedNetwork, SubjectArgs, TargetArgs};
use crate::device_limit::DeviceLimit;
use crate::report::{caveat, marked};

/// Number of timed runs of the network, and of each step.
const RUNS: usize = 30;

/// Quantile of the run times reported for a step. Compared with the sum of the steps, the network's
/// time is the same quantile.
const LOW: f64 = 0.25;

/// Figures of one step of a network.
#[derive(Serialize)]
struct StepFigures {
    step: String,
    run_secs: f64,
    /// Time in seconds when the step is repeated immediately, with its data in the caches.
    repeat_secs: f64,
    /// Share of the sum of all steps.
    share: f64,
    workload: Option<String>,
    rate: Option<String>,
    /// Minimum time by the machine's ceilings for the work of the algorithm, divided by the step's
    /// time.
    roofline_fraction: Option<f64>,
    /// Layouts of the first operand and the output.
    layouts: Option<String>,
    schedule: Option<String>,
    /// Reason for this schedule.
    chosen: String,
    /// For a layout conversion: `measured` or `estimated`, the kind of time that the plan was made
    /// from.
    #[serde(skip_serializing_if = "Option::is_none")]
    conversion: Option<&'static str>,
}

/// Figures of a network and of its steps.
#[derive(Serialize)]
struct Profile {
    network: String,
    latency_secs: f64,
    /// Reliability of all times, by the load of other programs.
    timing: Timing,
    /// Sum of `run_secs` of the steps.
    sum_secs: f64,
    /// Sum of `repeat_secs` of the steps.
    repeat_sum_secs: f64,
    /// Network time divided by the sum of its steps, both from the quantile [`LOW`] of the runs.
    over_sum: f64,
    steps: Vec<StepFigures>,
}

pub(super) fn run(
    subject: &SubjectArgs,
    target: &TargetArgs,
    spin: Option<Waiting>,
    db: &DbArgs,
    json: Option<PathBuf>,
) -> Result<()> {
    let json = JsonSink::new(json)?;
    let waiting = target.waiting(spin)?;
    let (loaded, target) = network(subject, target)?;
    on_device!(target, profile(&json, &loaded, &target, waiting, db))
}

fn profile<D: NetworkDevice>(
    json: &JsonSink,
    loaded: &LoadedNetwork,
    target: &Target,
    waiting: Waiting,
    db: &DbArgs,
) -> Result<()> {
    let source = network_source(db.place()?)?;
    let ceilings = or_warn(WorkerMeasurer::new(MeasureOptions::default())?.ceilings(target));
    let inputs = inputs(loaded)?;
    let graph = decided::<D>(loaded.graph.clone(), loaded.max_error, &*source, target, &inputs)?;
    let network = Compiled::<D>::on_device(&graph, Some(&*source), target)?;
    warn(&*source);
    let limit = DeviceLimit::start(graph.name(), target);
    let mut workspaces = [network.workspace()?];
    workspaces[0].set_waiting(waiting);
    workspaces[0].run_tensors(&inputs)?;
    drop(limit);
    let watch = LoadWatch::start(target.threads());
    let mut run_secs = time_interleaved(&mut workspaces, &inputs, RUNS, &|| false)?.swap_remove(0);
    if target.gpu().is_some() {
        // The device's clock also times the steps, so the two are comparable.
        run_secs = (0..RUNS).map(|_| workspaces[0].run_secs(RUNS_IN_A_ROW)).collect::<Result<_, _>>()?;
    }
    let times = workspaces[0].profile(RUNS)?;
    let load = watch.awaited_load();
    let timing = Timing::under_load(load);

    let sum_secs = times.iter().map(|step| step.run_secs).sum();
    let repeat_sum_secs = times.iter().map(|step| step.repeat_secs).sum();
    let figures = |time: &StepTime| figures(time, sum_secs, network.schedules(), ceilings);
    let steps = times.iter().map(figures).collect::<Result<_>>()?;
    let latency_secs = quantile(run_secs.clone(), 0.5);
    let over_sum = quantile(run_secs, LOW) / sum_secs;
    let network = loaded.graph.name().into();
    let profile = Profile { network, latency_secs, timing, sum_secs, repeat_sum_secs, over_sum, steps };
    json.write(&profile)?;
    json.say(&table(&profile))?;
    json.say_all(caveat(load))
}

fn figures(time: &StepTime, sum_secs: f64, schedules: &[Tuned], ceilings: Option<Ceilings>) -> Result<StepFigures> {
    let tuned = time.kernel.map(|kernel| &schedules[kernel]);
    let least_secs = |tuned: &Tuned| {
        let workload = tuned.workload();
        Some(ceilings?.min_secs(tuned.config().work(workload), workload.dtype()))
    };
    Ok(StepFigures {
        step: time.name.clone(),
        run_secs: time.run_secs,
        repeat_secs: time.repeat_secs,
        share: time.run_secs / sum_secs,
        workload: tuned.map(|tuned| tuned.workload().to_string()),
        rate: tuned.map(|tuned| tuned.workload().rate(time.run_secs).to_string()),
        roofline_fraction: tuned.and_then(least_secs).map(|least_secs| least_secs / time.run_secs),
        layouts: tuned.map(layouts).transpose()?,
        schedule: tuned.map(|tuned| tuned.config().to_string()),
        chosen: tuned.map_or_else(|| "no kernel".into(), chosen),
        conversion: tuned.filter(|_| time.is_conversion).map(planned_time),
    })
}

/// Says whether the plan was made from the conversion's measured or estimated time.
fn planned_time(tuned: &Tuned) -> &'static str {
    if tuned.is_tuned() { "measured" } else { "estimated" }
}

/// Explains the choice of a step's schedule.
fn chosen(tuned: &Tuned) -> String {
    match tuned.origin() {
        Origin::Tuned(found) if found.best.record.workload.network().is_some() => "fastest whole network".into(),
        Origin::Tuned(found) => match found.best.standing {
            TimeProvenance::Raced => "won a race".into(),
            TimeProvenance::Searched => "fastest of a search".into(),
            TimeProvenance::Claimed => format!("untrusted record: {}", untrusted_note(found, tuned.target())),
        },
        Origin::Predicted { expected_loss } => format!("predicted, {expected_loss:.2} times the best"),
        Origin::Default => "fixed rule".into(),
        Origin::Transferred => "like a similar workload".into(),
    }
}

/// Returns the layouts of a kernel's first operand and output, such as `c8 > plain`.
fn layouts(tuned: &Tuned) -> Result<String> {
    let plan = tuned.plan()?;
    let layout = |role: Role| match plan.buffers.iter().find(|buffer| buffer.role == role).map(|buffer| buffer.layout) {
        Some(Layout::ChannelBlocked(block)) => format!("c{block}"),
        _ => "plain".into(),
    };
    Ok(format!("{} > {}", layout(Role::Operand(0)), layout(Role::Output)))
}

fn table(profile: &Profile) -> String {
    let mut table = Table::new();
    let headers =
        ["step", "us", "repeated us", "share", "rate", "of roofline", "layouts", "chosen as", "workload", "schedule"];
    table.load_style(ASCII_MARKDOWN).set_header(headers);

    for step in &profile.steps {
        let or_dash = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "-".into());
        table.add_row([
            step.step.clone(),
            format!("{:.1}", step.run_secs * 1e6),
            format!("{:.1}", step.repeat_secs * 1e6),
            format!("{:.1} %", step.share * 100.0),
            or_dash(&step.rate),
            step.roofline_fraction.map_or_else(|| "-".into(), |fraction| format!("{:.0} %", fraction * 100.0)),
            or_dash(&step.layouts),
            step.conversion.map_or_else(|| step.chosen.clone(), |time| format!("{}; {time} time", step.chosen)),
            or_dash(&step.workload),
            or_dash(&step.schedule),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }

    let Profile { network, latency_secs, timing, sum_secs, repeat_sum_secs, over_sum, .. } = profile;
    let ms = |secs: &f64| marked(format!("{:.3} ms", secs * 1e3), *timing);
    let [latency, sum, repeat_sum] = [latency_secs, sum_secs, repeat_sum_secs].map(ms);
    format!(
        "{table}\n{network}: {latency}, {over_sum:.3} times the sum of its steps, {sum}; each step repeated back to back {repeat_sum}"
    )
}
