//! The command `autotune run NETWORK`: runs a network in this process, times it, and optionally
//! writes its outputs and checks every step.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use autotune::{Timing, Tuned};
use autotune_ir::Target;
use autotune_measure::{Load, LoadWatch};
use autotune_network::rewrite::rewrite_traced;
use autotune_network::{
    Checked, Compiled, DeclaredType, GraphNode, NetworkDevice, NodeId, StepError, Subject, Tensor, Waiting, Workspace,
    listed, printable, quantile, random_input, time_interleaved,
};
use serde::Serialize;

use super::file::{NewFile, check_folder};
use super::lookup::network_source;
use super::rounded::{RoundingEffect, decided, in_f32, warn_if_slow};
use super::shared::{JsonSink, on_device, warn};
use crate::args::{Failure, InputFile, LoadedNetwork, RunArgs, SubjectArgs, TargetArgs, check_precision, needs_phases};
use crate::device_limit::DeviceLimit;
use crate::npy;
use crate::output::say;
use crate::report::{caveat, marked};

/// Figures of a run in the output of `--json`.
#[derive(Serialize)]
struct Figures {
    latency_secs: Latency,
    /// Time by the clock of the GPU, without the transfer of inputs and outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_secs: Option<Latency>,
    /// Reliability of the latency.
    timing: Timing,
    /// Share of the machine's cores that other programs used during the runs.
    load: Option<Load>,
    peak_bytes: Option<u64>,
    load_secs: f64,
    tuned_tasks: usize,
    untuned_tasks: usize,
    /// Effect of rounding, where a network is not in f32.
    #[serde(skip_serializing_if = "Option::is_none")]
    rounding: Option<RoundingEffect>,
}

/// Quantiles of the run time of a network, in seconds.
#[derive(Serialize)]
pub(super) struct Latency {
    pub(super) median: f64,
    pub(super) p10: f64,
    p90: f64,
}

impl Latency {
    pub(super) fn of(secs: Vec<f64>) -> Self {
        let at = |share: f64| quantile(secs.clone(), share);
        Self { median: at(0.5), p10: at(0.1), p90: at(0.9) }
    }

    /// Formats the latency, marked if its error may exceed a tenth.
    pub(super) fn summary(&self, timing: Timing) -> String {
        let [median, p10, p90] = [self.median, self.p10, self.p90].map(|secs| secs * 1e3);
        marked(format!("{median:.3} ms (p10 {p10:.3}, p90 {p90:.3})"), timing)
    }
}

pub(super) fn run(args: RunArgs) -> Result<()> {
    let json = JsonSink::new(args.json.clone())?;
    if let Some(folder) = &args.output {
        check_folder(folder).map_err(|error| Failure::Usage(format!("--output {}: {error}", folder.display())))?;
    }
    let waiting = args.target.waiting(args.spin)?;
    let start = Instant::now();
    if !args.check
        && args.output.is_none()
        && let Some(model) = args.subject.inputs.of_shapes(&args.subject.subject)?
    {
        return super::shapes::run(&args, waiting, &json, model);
    }
    let imported = args.subject.import();
    if let (Err(error), Subject::Model(path)) = (&imported, &args.subject.subject)
        && needs_phases(error)
    {
        return super::phases::run(&args, path, waiting, &json, start);
    }
    let (loaded, target) = on_target(imported?, &args.target)?;
    on_device!(target, run_on(&args, waiting, &json, loaded, &target, start))
}

/// Runs a network on the target's device; `start` is the time at which the command began.
fn run_on<D: NetworkDevice>(
    args: &RunArgs,
    waiting: Waiting,
    json: &JsonSink,
    loaded: LoadedNetwork,
    target: &Target,
    start: Instant,
) -> Result<()> {
    let command = LoadWatch::start(target.threads());
    let inputs = inputs(&loaded)?;
    let (graph, trace) = rewrite_traced(&loaded.graph)?;
    // The imported network is dropped here to free its memory, unless `--check` compares with it.
    let imported = args.check.then_some(loaded.graph);
    // Checked before anything runs, so that a bad output name costs no time.
    let files = output_files(graph.outputs().iter().map(|output| &*output.name))?;

    let source = network_source(args.db.place()?)?;
    let graph = decided::<D>(graph, loaded.max_error, &*source, target, &inputs)?;
    let network = Compiled::<D>::on_device(&graph, Some(&*source), target)?;
    warn(&*source);
    let limit = DeviceLimit::start(graph.name(), target);
    let mut workspace = network.workspace()?;
    workspace.set_waiting(waiting);
    let load_secs = start.elapsed().as_secs_f64();
    let tuned_tasks = network.schedules().iter().filter(|tuned| tuned.is_tuned()).count();
    let untuned_tasks = network.schedules().len() - tuned_tasks;

    // The first, untimed run warms up caches and yields the outputs.
    let outputs = workspace.run_tensors(&inputs)?;
    drop(limit);
    if let Some(folder) = &args.output {
        let stored = graph.outputs().iter().map(|output| output.stored);
        write(folder, &files, stored, &outputs).with_context(|| format!("--output {}", folder.display()))?;
    }

    let runs = LoadWatch::start(target.threads());
    let mut latencies = latencies(std::slice::from_mut(&mut workspace), &inputs, args.repeat as usize, &|| false)?;
    let latency_secs = latencies.swap_remove(0);
    let device_secs = match target.gpu() {
        Some(_) => Some(device_latency(&mut workspace, args.repeat as usize)?),
        None => None,
    };
    let load = runs.load().or_else(|| command.awaited_load());
    let timing = Timing::under_load(load);

    say_untuned(network.schedules(), target);
    let on_device = device_secs.as_ref().map(|secs| format!(", on the device {}", secs.summary(timing)));
    let latency = latency_secs.summary(timing) + &on_device.unwrap_or_default();
    json.say(&format!("{}: {latency}, loaded in {load_secs:.2} s", graph.name()))?;
    json.say_all(caveat(load))?;

    // Read before the network in f32 is made, which needs memory of its own.
    let peak_bytes = peak_bytes();
    let rounding = match in_f32::<D>(&graph, &*source, target)? {
        Some(network) => Some(RoundingEffect::of(&graph, &outputs, &network.workspace()?.run_tensors(&inputs)?)),
        None => None,
    };
    json.say_all(rounding.map(|rounding| rounding.summary()))?;
    json.write(&Figures {
        latency_secs,
        device_secs,
        timing,
        load,
        peak_bytes,
        load_secs,
        tuned_tasks,
        untuned_tasks,
        rounding,
    })?;
    match imported {
        Some(imported) => report(&workspace.check(&inputs, &imported, &trace)?),
        None => Ok(()),
    }
}

/// Prints the number of kernels without a tuned schedule.
pub(super) fn say_untuned<'a>(schedules: impl IntoIterator<Item = &'a Tuned>, target: &Target) {
    let are_tuned: Vec<bool> = schedules.into_iter().map(Tuned::is_tuned).collect();
    let untuned = are_tuned.iter().filter(|&&is_tuned| !is_tuned).count();
    if untuned > 0 {
        say(format_args!(
            "{untuned} of {} kernels are not tuned on {target}: using the schedules predicted to be the fastest",
            are_tuned.len()
        ));
    }
}

/// Loads a network and detects this machine's device for it.
pub(super) fn network(subject: &SubjectArgs, target: &TargetArgs) -> Result<(LoadedNetwork, Target)> {
    on_target(subject.load()?, target)
}

/// Returns a network; a workload is a usage error.
pub(super) fn a_network(loaded: Option<LoadedNetwork>) -> Result<LoadedNetwork> {
    let error = || Failure::Usage("a workload cannot be run: use autotune bench to time it".into());
    Ok(loaded.ok_or_else(error)?)
}

/// Returns a network with this machine's device for it.
fn on_target(loaded: Option<LoadedNetwork>, target: &TargetArgs) -> Result<(LoadedNetwork, Target)> {
    let loaded = a_network(loaded)?;
    target.check_types(&loaded.graph)?;
    let target = target.device(&[])?;
    let is_given = loaded.max_error.is_none();
    check_precision(is_given.then(|| loaded.graph.precision()), &target)?;
    warn_if_slow(&loaded.graph, &target);
    Ok((loaded, target))
}

/// Number of GPU runs that are timed together, so that launches overlap with execution.
pub(super) const RUNS_IN_A_ROW: usize = 10;

/// Times runs with the clock of the device.
fn device_latency<D: NetworkDevice>(workspace: &mut Workspace<D>, runs: usize) -> Result<Latency> {
    let secs = (0..runs).map(|_| workspace.run_secs(RUNS_IN_A_ROW));
    Ok(Latency::of(secs.collect::<Result<_, _>>()?))
}

/// Measures the latencies of networks on the same inputs with interleaved runs; stops early once
/// `is_over` returns true.
pub(super) fn latencies<D: NetworkDevice>(
    workspaces: &mut [Workspace<D>],
    inputs: &[Tensor],
    runs: usize,
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<Latency>> {
    Ok(time_interleaved(workspaces, inputs, runs, is_over)?.into_iter().map(Latency::of).collect())
}

/// Returns the input tensors of a network: the given ones, and random ones for the rest.
pub(super) fn inputs(loaded: &LoadedNetwork) -> Result<Vec<Tensor>> {
    let graph = &loaded.graph;
    let tensor = |(number, &id): (usize, &NodeId)| match loaded.given.get(&graph.node(id).name) {
        Some(file) => Ok(checked(graph.node(id), file)?),
        None => Ok(random_input(graph.node(id), number as u64)?),
    };
    graph.inputs().iter().enumerate().map(tensor).collect()
}

/// Returns the tensor of a file if it has the shape of the input, and only integers that are exact
/// as f32.
pub(super) fn checked(node: &GraphNode, file: &InputFile) -> Result<Tensor, Failure> {
    let (found, wanted) = (file.tensor.shape(), &node.shape);
    if found != wanted {
        let (path, name) = (file.path.display(), printable(&node.name));
        return Err(Failure::Usage(format!("--input {path}: shape {found:?}, but '{name}' has {wanted:?}")));
    }
    file.check_exact("--input")?;
    Ok(file.tensor.clone())
}

/// Returns the names of the files for outputs. Fails if two of them are equal.
pub(super) fn output_files<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<String>, Failure> {
    // A slash in an output's name must not lead to another folder.
    let files: Vec<String> = names.map(|name| format!("{}.npy", name.replace('/', "_"))).collect();
    let mut known = HashSet::new();
    match files.iter().find(|file| !known.insert(*file)) {
        Some(file) => Err(Failure::Usage(format!("--output: two outputs would be written to {}", printable(file)))),
        None => Ok(files),
    }
}

/// Writes tensors to files in a folder, which is created if missing. The element types are those of
/// the outputs in the network's file.
pub(super) fn write(
    folder: &Path,
    files: &[String],
    stored: impl Iterator<Item = Option<DeclaredType>>,
    tensors: &[Tensor],
) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut written = Vec::new();
    for ((file, stored), tensor) in files.iter().zip(stored).zip(tensors) {
        let mut new = NewFile::create(&folder.join(file))?;
        npy::write(&mut new, tensor, stored).with_context(|| printable(file))?;
        written.push(new);
    }
    Ok(NewFile::keep_all(written)?)
}

/// Prints the results of comparing a network with the reference. Fails if an error exceeds its
/// tolerance.
fn report(checked: &Checked) -> Result<()> {
    let conversions = checked.steps.iter().filter(|step| step.is_conversion).count();
    say(format_args!(
        "{} steps and {conversions} conversions compared with the reference, each on the results of earlier steps{}",
        checked.steps.len() - conversions,
        nearest(&checked.steps)
    ));
    say(format_args!(
        "{} tensors compared with the network before rewriting{}",
        checked.imported.len(),
        nearest(&checked.imported)
    ));

    let told =
        |step: &StepError| format!("'{}' ({:.1e}, at most {:.1e})", step.name, step.max_rel_error, step.tolerance);
    for (all, what) in [
        (&checked.steps, "results differ from the reference"),
        (&checked.imported, "results differ from the network before rewriting"),
    ] {
        let wrong: Vec<String> = all.iter().filter(|step| !step.is_within_tolerance()).map(told).collect();
        anyhow::ensure!(wrong.is_empty(), "{what}: {}", listed(&wrong));
    }
    Ok(())
}

/// Describes the error with the largest ratio to its tolerance.
fn nearest(errors: &[StepError]) -> String {
    let of_tolerance =
        |step: &StepError| if step.is_within_tolerance() { step.max_rel_error / step.tolerance } else { f64::INFINITY };
    let rounded = errors.iter().filter(|step| step.tolerance > 0.0);
    rounded.max_by(|a, b| of_tolerance(a).total_cmp(&of_tolerance(b))).map_or(String::new(), |step| {
        let StepError { name, max_rel_error: error, tolerance, .. } = step;
        format!("; closest to its tolerance: '{name}', relative error {error:.1e} of {tolerance:.1e}")
    })
}

/// Returns the peak resident memory of this process in bytes; `None` where the system does not
/// report it.
pub(super) fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_under_load_is_marked() {
        let latency = Latency { median: 2e-3, p10: 1e-3, p90: 3.5e-3 };
        assert_eq!(latency.summary(Timing::Raced), "2.000 ms (p10 1.000, p90 3.500)");
        assert_eq!(latency.summary(Timing::Disturbed), "≈ 2.000 ms (p10 1.000, p90 3.500)");
    }
}
