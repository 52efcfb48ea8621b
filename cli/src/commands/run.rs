//! `autotune run NETWORK`.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use autotune::Tuned;
use autotune_ir::Target;
use autotune_network::{Compiled, Element, Graph, Node, StepError, Tensor, Workspace, quantile, time_in_turns};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::file::{NewFile, check_folder};
use super::lookup::network_source;
use super::{JsonSink, npy, warn};
use crate::args::{Failure, RunArgs, SubjectArgs, TargetArgs};
use crate::output::say;

/// What `--json` has of a run.
#[derive(Serialize)]
struct Figures {
    latency_secs: Latency,
    peak_bytes: Option<u64>,
    load_secs: f64,
    tuned_tasks: usize,
    untuned_tasks: usize,
}

/// Seconds of a run of the network.
#[derive(Serialize)]
pub(super) struct Latency {
    pub(super) median: f64,
    p10: f64,
    p90: f64,
}

pub(super) fn run(args: RunArgs) -> Result<()> {
    let json = JsonSink::new(args.json.clone())?;
    if let Some(folder) = &args.output {
        check_folder(folder).map_err(|error| Failure::Usage(format!("--output {}: {error}", folder.display())))?;
    }
    let start = Instant::now();
    let (graph, target) = network(&args.subject, &args.target)?;
    let inputs = inputs(&graph, &args.input)?;
    let files = output_files(&graph)?;

    let source = network_source(args.db.place()?)?;
    let network = Compiled::new(&graph, Some(&*source), &target)?;
    warn(&*source);
    let mut workspace = network.workspace()?;
    let load_secs = start.elapsed().as_secs_f64();
    let tuned_tasks = network.schedules().iter().filter(|tuned| tuned.is_tuned()).count();
    let untuned_tasks = network.schedules().len() - tuned_tasks;

    let outputs = workspace.run_tensors(&inputs)?;
    if let Some(folder) = &args.output {
        write(folder, &files, &outputs).with_context(|| format!("--output {}", folder.display()))?;
    }
    let mut latencies = latencies(std::slice::from_mut(&mut workspace), &inputs, args.repeat as usize, &|| false)?;
    let latency_secs = latencies.swap_remove(0);
    say_untuned(network.schedules(), &target);
    let Latency { median, p10, p90 } = &latency_secs;
    let [median, p10, p90] = [median, p10, p90].map(|secs| secs * 1e3);
    json.say(&format!("{}: {median:.3} ms (p10 {p10:.3}, p90 {p90:.3}), loaded in {load_secs:.2} s", graph.name()))?;
    json.write(&Figures { latency_secs, peak_bytes: peak_bytes(), load_secs, tuned_tasks, untuned_tasks })?;
    if args.check { check(&mut workspace, &inputs) } else { Ok(()) }
}

/// Tells how many kernels were not tuned.
pub(super) fn say_untuned(schedules: &[Tuned], target: &Target) {
    let untuned = schedules.iter().filter(|tuned| !tuned.is_tuned()).count();
    if untuned > 0 {
        say(format_args!(
            "{untuned} of {} kernels not tuned on {target}: predicted to be the fastest",
            schedules.len()
        ));
    }
}

/// The graph of a network, and the CPU that it runs on.
pub(super) fn network(subject: &SubjectArgs, target: &TargetArgs) -> Result<(Graph, Target)> {
    let Some(graph) = subject.graph()? else {
        return Err(Failure::Usage("a workload is no network: autotune bench times it".into()).into());
    };
    let target = target.detect(&[])?;
    match target.cpu() {
        Some(_) => Ok((graph, target)),
        None => Err(Failure::Usage("networks run on CPUs: --target cpu".into()).into()),
    }
}

/// How long networks take on the same tensors, in turns; by fewer runs once it `is_over`.
pub(super) fn latencies(
    workspaces: &mut [Workspace],
    inputs: &[Tensor],
    runs: usize,
    is_over: &dyn Fn() -> bool,
) -> Result<Vec<Latency>> {
    let latency = |secs: Vec<f64>| {
        let at = |share: f64| quantile(secs.clone(), share);
        Latency { median: at(0.5), p10: at(0.1), p90: at(0.9) }
    };
    Ok(time_in_turns(workspaces, inputs, runs, is_over)?.into_iter().map(latency).collect())
}

/// The tensors of a network's inputs: those that are given, and random ones.
pub(super) fn inputs(graph: &Graph, given: &[String]) -> Result<Vec<Tensor>> {
    let names: Vec<&str> = graph.inputs().iter().map(|&id| &*graph.node(id).name).collect();
    let mut tensors: Vec<Option<Tensor>> = vec![None; names.len()];
    for word in given {
        let named = word.split_once('=').map(|(name, path)| (names.iter().position(|known| *known == name), path));
        // What is behind no input's name is the path of a single input.
        let (at, path) = match named {
            Some((Some(at), path)) => (Some(at), path),
            _ => ((names.len() == 1 && (named.is_none() || Path::new(word).exists())).then_some(0), word.as_str()),
        };
        let unknown = || format!("--input {word}: give NAME=FILE.npy, one of the inputs {}", names.join(", "));
        let at = at.ok_or_else(|| Failure::Usage(unknown()))?;
        if tensors[at].is_some() {
            return Err(Failure::Usage(format!("--input {word}: input {} is given twice", names[at])).into());
        }
        tensors[at] = Some(read(graph.node(graph.inputs()[at]), Path::new(path))?);
    }
    let random = |(number, tensor): (usize, Option<Tensor>)| match tensor {
        Some(tensor) => Ok(tensor),
        None => random(graph.node(graph.inputs()[number]), number as u64),
    };
    tensors.into_iter().enumerate().map(random).collect()
}

fn read(node: &Node, path: &Path) -> Result<Tensor> {
    let tensor = npy::read(path, node.element)?;
    match tensor.shape() == node.shape {
        true => Ok(tensor),
        false => {
            let (found, wanted) = (tensor.shape(), &node.shape);
            let why = format!("--input {}: shape {found:?}, where '{}' is {wanted:?}", path.display(), node.name);
            Err(Failure::Usage(why).into())
        }
    }
}

fn random(node: &Node, seed: u64) -> Result<Tensor> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let count = node.shape.iter().product();
    Ok(match node.element {
        Element::F32 => Tensor::f32(&node.shape, (0..count).map(|_| rng.random_range(-1.0..1.0)).collect())?,
        Element::I64 => Tensor::i64(&node.shape, (0..count).map(|_| rng.random_range(0..2)).collect())?,
        Element::Bool => Tensor::Bool(ndarray::ArrayD::from_elem(node.shape.clone(), true)),
    })
}

/// The names of the files that outputs are written to, each another.
fn output_files(graph: &Graph) -> Result<Vec<String>, Failure> {
    // A name that is no file's name may not lead elsewhere.
    let names = graph.outputs().iter().map(|output| output.name.replace('/', "_"));
    let files: Vec<String> = names.map(|name| format!("{name}.npy")).collect();
    match files.iter().enumerate().find(|(at, file)| files[..*at].contains(file)) {
        Some((_, file)) => Err(Failure::Usage(format!("--output: two outputs would be {file}"))),
        None => Ok(files),
    }
}

/// Writes tensors to files in a folder, which is made where there is none.
fn write(folder: &Path, files: &[String], tensors: &[Tensor]) -> Result<()> {
    fs::create_dir_all(folder)?;
    let mut written = Vec::new();
    for (file, tensor) in files.iter().zip(tensors) {
        let mut new = NewFile::create(&folder.join(file))?;
        npy::write(&mut new, tensor)?;
        written.push(new);
    }
    Ok(NewFile::keep_all(written)?)
}

/// Compares every step with the reference.
fn check(workspace: &mut Workspace, inputs: &[Tensor]) -> Result<()> {
    let errors = workspace.check(inputs)?;
    let conversions = errors.iter().filter(|step| step.is_conversion).count();
    let of_tolerance =
        |step: &StepError| if step.is_right() { step.max_rel_error / step.tolerance } else { f64::INFINITY };
    let nearest = errors.iter().filter(|step| step.tolerance > 0.0);
    let nearest = nearest.max_by(|a, b| of_tolerance(a).total_cmp(&of_tolerance(b))).map_or(String::new(), |step| {
        let StepError { name, max_rel_error: error, tolerance, .. } = step;
        format!(": nearest to its tolerance is '{name}', with a relative error of {error:.1e} of {tolerance:.1e}")
    });
    say(format_args!(
        "{} steps and {conversions} conversions compared with the reference, each on what those before it computed{nearest}",
        errors.len() - conversions
    ));

    let told =
        |step: &StepError| format!("'{}' ({:.1e}, at most {:.1e})", step.name, step.max_rel_error, step.tolerance);
    let wrong: Vec<String> = errors.iter().filter(|step| !step.is_right()).map(told).collect();
    anyhow::ensure!(wrong.is_empty(), "not what the reference computes: {}", wrong.join(", "));
    Ok(())
}

/// The most memory that this process had at any time; `None` where the system does not tell.
fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}
