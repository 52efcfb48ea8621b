//! `autotune bench NETWORK --profile`.

use std::path::PathBuf;

use anyhow::Result;
use autotune::Tuned;
use autotune_db::{Empty, Source, TuningDb};
use autotune_ir::KernelPlan;
use autotune_ir::program::{Layout, Role};
use autotune_network::{Compiled, StepTime, quantile, time_in_turns};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use super::JsonSink;
use super::lookup::{look_up_db, origin_word};
use super::run::{inputs, network};
use crate::args::{DbArgs, SubjectArgs, TargetArgs};

/// Runs of the network, and of each step.
const RUNS: usize = 30;

/// The share of runs that are faster than what is told of a step; of the network's runs, in comparison with the sum, the same.
const LOW: f64 = 0.25;

/// A step of a network.
#[derive(Serialize)]
struct StepFigures {
    step: String,
    run_secs: f64,
    /// Right behind itself.
    repeat_secs: f64,
    /// Of the sum of all steps.
    share: f64,
    workload: Option<String>,
    rate: Option<String>,
    /// Of the first operand and the output.
    layouts: Option<String>,
    sketch: Option<String>,
    schedule: &'static str,
    /// Of a conversion between layouts: by which of its times it was planned, measured or estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    conversion: Option<&'static str>,
}

/// A network step by step.
#[derive(Serialize)]
struct Profile {
    network: String,
    latency_secs: f64,
    /// Of the steps, each timed by itself.
    sum_secs: f64,
    /// The same right behind themselves.
    repeat_sum_secs: f64,
    /// How many times the sum of its steps the network takes, both by the low quartiles of their runs.
    over_sum: f64,
    steps: Vec<StepFigures>,
}

pub(super) fn run(subject: &SubjectArgs, target: &TargetArgs, db: &DbArgs, json: Option<PathBuf>) -> Result<()> {
    let json = JsonSink::new(json)?;
    let (graph, target) = network(subject, target)?;
    let db: Option<TuningDb> = look_up_db(db)?;
    let source = db.as_ref().map_or(&Empty as &dyn Source, |db| db);
    let network = Compiled::new(&graph, Some(source), &target)?;
    let mut workspaces = [network.workspace()?];
    let run_secs = time_in_turns(&mut workspaces, &inputs(&graph, &[])?, RUNS)?.swap_remove(0);
    let times = workspaces[0].profile(RUNS)?;

    let sum_secs = times.iter().map(|step| step.run_secs).sum();
    let repeat_sum_secs = times.iter().map(|step| step.repeat_secs).sum();
    let steps = times.iter().map(|time| figures(time, sum_secs, network.schedules())).collect::<Result<_>>()?;
    let latency_secs = quantile(run_secs.clone(), 0.5);
    let over_sum = quantile(run_secs, LOW) / sum_secs;
    let network = graph.name().into();
    let profile = Profile { network, latency_secs, sum_secs, repeat_sum_secs, over_sum, steps };
    json.write(&profile)?;
    json.say(&table(&profile))
}

fn figures(time: &StepTime, sum_secs: f64, schedules: &[Tuned]) -> Result<StepFigures> {
    let tuned = time.kernel.map(|kernel| &schedules[kernel]);
    Ok(StepFigures {
        step: time.name.clone(),
        run_secs: time.run_secs,
        repeat_secs: time.repeat_secs,
        share: time.run_secs / sum_secs,
        workload: tuned.map(|tuned| tuned.workload().to_string()),
        rate: tuned.map(|tuned| tuned.workload().rate(time.run_secs).to_string()),
        layouts: tuned.map(layouts).transpose()?,
        sketch: tuned.map(|tuned| tuned.config().sketch.to_string()),
        schedule: tuned.map_or("no kernel", origin_word),
        conversion: tuned.filter(|_| time.is_conversion).map(planned_time),
    })
}

/// By which time a plan has a conversion.
fn planned_time(tuned: &Tuned) -> &'static str {
    if tuned.is_tuned() { "measured" } else { "estimated" }
}

/// The layouts of a kernel's first operand and of its output.
fn layouts(tuned: &Tuned) -> Result<String> {
    let plan = KernelPlan::of(tuned.program()?);
    let layout = |role: Role| match plan.buffers.iter().find(|buffer| buffer.role == role).map(|buffer| buffer.layout) {
        Some(Layout::ChannelBlocked(block)) => format!("c{block}"),
        _ => "plain".into(),
    };
    Ok(format!("{} > {}", layout(Role::Operand(0)), layout(Role::Output)))
}

fn table(profile: &Profile) -> String {
    let mut table = Table::new();
    let headers = ["step", "us", "repeated us", "share", "rate", "layouts", "sketch", "schedule", "workload"];
    table.load_style(ASCII_MARKDOWN).set_header(headers);

    for step in &profile.steps {
        let or_dash = |cell: &Option<String>| cell.clone().unwrap_or_else(|| "-".into());
        table.add_row([
            step.step.clone(),
            format!("{:.1}", step.run_secs * 1e6),
            format!("{:.1}", step.repeat_secs * 1e6),
            format!("{:.1} %", step.share * 100.0),
            or_dash(&step.rate),
            or_dash(&step.layouts),
            or_dash(&step.sketch),
            step.conversion.map_or(step.schedule.into(), |time| format!("{}, {time} time", step.schedule)),
            or_dash(&step.workload),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }

    let Profile { network, latency_secs, sum_secs, repeat_sum_secs, over_sum, .. } = profile;
    let [latency, sum, repeat_sum] = [latency_secs, sum_secs, repeat_sum_secs].map(|secs| secs * 1e3);
    format!(
        "{table}\n{network}: {latency:.3} ms, {over_sum:.3} times the sum of its steps, {sum:.3} ms; each right behind itself {repeat_sum:.3} ms"
    )
}
