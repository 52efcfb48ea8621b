//! Runs of a model with random shapes of its inputs.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use autotune::Timing;
use autotune_ir::Target;
use autotune_measure::{Load, LoadWatch};
use autotune_network::{Family, FamilyWorkspace, InputShapes, NetworkDevice, Waiting, random_input};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::lookup::network_source;
use super::run::{Latency, peak_bytes};
use super::shared::{JsonSink, on_device, warn};
use super::variants::{family, usage};
use crate::args::{ModelOfShapes, RunArgs, check_precision};
use crate::report::{caveat, marked};

/// Figures of runs with several shapes in the output of `--json`.
#[derive(Serialize)]
struct ShapeFigures {
    /// Mean time of all runs, in seconds, including the networks that had to be made.
    mean_secs: f64,
    /// Time of a run, without that of making its network.
    known_secs: Latency,
    /// Time by which the first run of a shape takes longer: that of making its network.
    new_secs: Option<Latency>,
    /// Number of different shapes.
    shapes: usize,
    /// Number of networks in memory at the end.
    networks: usize,
    /// Reliability of the times.
    timing: Timing,
    /// Share of the machine's cores that other programs used during the runs.
    load: Option<Load>,
    peak_bytes: Option<u64>,
    runs: Vec<ShapeRun>,
}

/// A run of one shape.
#[derive(Serialize)]
struct ShapeRun {
    shapes: InputShapes,
    secs: f64,
    /// Part of the time in which the network of a new shape was made; 0 if it was known.
    new_secs: f64,
}

/// Runs a model with shapes drawn from the ranges or calls.
pub(super) fn run(args: &RunArgs, waiting: Waiting, json: &JsonSink, model: ModelOfShapes) -> Result<()> {
    let target = args.target.device(&[])?;
    check_precision(Some(model.types.precision), &target)?;
    on_device!(target, run_on(args, waiting, json, model, &target))
}

fn run_on<D: NetworkDevice>(
    args: &RunArgs,
    waiting: Waiting,
    json: &JsonSink,
    model: ModelOfShapes,
    target: &Target,
) -> Result<()> {
    let name = model.name.clone();
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let all = model.drawn(args.repeat as usize, &mut || rng.random_range(0.0..1.0))?;

    let source = Arc::from(network_source(args.db.place()?)?);
    let family = family::<D>(model, Arc::clone(&source), target)?;
    warn(&*source);

    let watch = LoadWatch::start(target.threads());
    let mut workspace = family.workspace();
    workspace.set_waiting(waiting);
    let runs: Vec<ShapeRun> =
        all.into_iter().map(|shapes| timed(&family, &mut workspace, shapes)).collect::<Result<_>>()?;
    let load = watch.load();
    let timing = Timing::under_load(load);

    let different = runs.iter().map(|run| &run.shapes).collect::<HashSet<_>>().len();
    let latency = |secs: Vec<f64>| (!secs.is_empty()).then(|| Latency::of(secs));
    let new_secs = latency(runs.iter().map(|run| run.new_secs).filter(|&secs| secs > 0.0).collect());
    let known_secs = Latency::of(runs.iter().map(|run| run.secs - run.new_secs).collect());
    let mean_secs = runs.iter().map(|run| run.secs).sum::<f64>() / runs.len() as f64;
    let figures = ShapeFigures {
        mean_secs,
        known_secs,
        new_secs,
        shapes: different,
        networks: family.len(),
        timing,
        load,
        peak_bytes: peak_bytes(),
        runs,
    };
    say(json, &name, &figures)?;
    json.write(&figures)
}

/// Prints the figures for people.
fn say(json: &JsonSink, name: &str, figures: &ShapeFigures) -> Result<()> {
    let ShapeFigures { mean_secs, shapes, networks, timing, runs, .. } = figures;
    let mean = marked(format!("{:.3} ms", mean_secs * 1e3), *timing);
    json.say(&format!("{name}: mean {mean} of {} runs with {shapes} different shapes", runs.len()))?;
    json.say(&format!("a run without making a network: {}", figures.known_secs.summary(*timing)))?;
    if let Some(new) = &figures.new_secs {
        json.say(&format!("making the network of a new shape: {}", new.summary(*timing)))?;
    }
    let peak = figures.peak_bytes.map(|bytes| format!(", peak memory {} MB", bytes >> 20));
    json.say(&format!("{networks} networks in memory{}", peak.unwrap_or_default()))?;
    json.say_all(caveat(figures.load))
}

/// Runs one shape on random inputs.
fn timed<D: NetworkDevice>(
    family: &Family<D>,
    workspace: &mut FamilyWorkspace<D>,
    shapes: InputShapes,
) -> Result<ShapeRun> {
    let start = Instant::now();
    let is_known = family.has(&shapes);
    let network = family.network(&shapes).map_err(usage)?;
    let new_secs = if is_known { 0.0 } else { start.elapsed().as_secs_f64() };

    // Inputs are made outside of the time.
    let graph = network.graph();
    let tensors = graph.inputs().iter().enumerate().map(|(number, &id)| random_input(graph.node(id), number as u64));
    let numbers = tensors.map(|tensor| Ok(tensor?.to_numbers())).collect::<Result<Vec<Vec<f32>>>>()?;
    let inputs: Vec<&[f32]> = numbers.iter().map(Vec::as_slice).collect();

    let start = Instant::now();
    let workspace = workspace.of(&shapes).map_err(usage)?;
    let mut outputs = workspace.outputs();
    workspace.run(&inputs, &mut outputs.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>())?;
    Ok(ShapeRun { shapes, secs: new_secs + start.elapsed().as_secs_f64(), new_secs })
}
