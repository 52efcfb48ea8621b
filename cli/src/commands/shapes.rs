//! Runs of a model with random shapes of its inputs.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use autotune::Timing;
use autotune_ir::Target;
use autotune_measure::{Load, LoadWatch};
use autotune_network::onnx::{DeclaredInput, ImportError, ImportOptions};
use autotune_network::{
    Family, FamilyError, FamilyOptions, FamilyWorkspace, Graph, InputShapes, NetworkDevice, ShapeRange, Waiting,
    dequantised, listed, random_input,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;

use super::lookup::network_source;
use super::run::{Latency, peak_bytes};
use super::shared::{JsonSink, on_device, warn};
use crate::args::{Failure, ModelOfShapes, RunArgs};
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

/// Runs a model with shapes drawn from the ranges.
pub(super) fn run(args: &RunArgs, waiting: Waiting, json: &JsonSink, model: ModelOfShapes) -> Result<()> {
    let target = args.target.device(&[])?;
    on_device!(target, run_on(args, waiting, json, model, &target))
}

fn run_on<D: NetworkDevice>(
    args: &RunArgs,
    waiting: Waiting,
    json: &JsonSink,
    model: ModelOfShapes,
    target: &Target,
) -> Result<()> {
    let ModelOfShapes { name, model, import, ranges, precision, is_dequantised } = model;
    let mut declared = model.inputs()?;
    declared.retain(|input| !import.values.contains_key(&input.name));
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut drawn = Vec::new();
    for _ in 0..args.repeat {
        let shapes = draw(&declared, &ranges, &mut rng)?;
        let shapes = model.shapes(&ImportOptions { shapes, ..import.clone() }).map_err(refusal)?;
        drawn.push(shapes.into_iter().map(|(_, shape)| shape).collect::<InputShapes>());
    }

    let options = FamilyOptions::of_inputs(ShapeRange::of_inputs(&declared, &ranges));
    let prepare = move |graph: Graph| {
        let graph = if is_dequantised { dequantised(&graph)? } else { graph };
        Ok(graph.with_precision(precision))
    };
    let source = Arc::from(network_source(args.db.place()?)?);
    let family = Family::<D>::of_model(model, import, prepare, options, Arc::clone(&source), target)?;
    warn(&*source);

    let watch = LoadWatch::start(target.threads());
    let mut workspace = family.workspace();
    workspace.set_waiting(waiting);
    let runs: Vec<ShapeRun> =
        drawn.into_iter().map(|shapes| timed(&family, &mut workspace, shapes)).collect::<Result<_>>()?;
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

/// Draws shapes of the inputs on the command line, uniformly. Extents of one name are equal.
fn draw(
    declared: &[DeclaredInput],
    ranges: &BTreeMap<String, ShapeRange>,
    rng: &mut ChaCha8Rng,
) -> Result<BTreeMap<String, Vec<usize>>> {
    let mut named: BTreeMap<&String, usize> = BTreeMap::new();
    let mut shapes = BTreeMap::new();
    for (name, range) in ranges {
        let names: Vec<&str> = declared.iter().map(|input| &*input.name).collect();
        let unknown = || Failure::Usage(format!("--shape {name}={range}: the inputs are {}", listed(&names)));
        let input = declared.iter().find(|input| input.name == *name).ok_or_else(unknown)?;
        let mut shape = Vec::new();

        for (axis, extents) in range.0.iter().enumerate() {
            let known = input.names.get(axis).and_then(Option::as_ref);
            let drawn = known.and_then(|name| named.get(name)).copied().filter(|&extent| extents.contains(extent));
            let open = || Failure::Usage(format!("--shape {name}={range}: axis {axis} needs a range, such as 1..512"));
            let extent = match drawn {
                Some(drawn) => drawn,
                None => extents.at(rng.random_range(0.0..1.0)).ok_or_else(open)?,
            };
            known.map(|name| named.entry(name).or_insert(extent));
            shape.push(extent);
        }
        shapes.insert(name.clone(), shape);
    }
    Ok(shapes)
}

/// Converts an import error: a bad shape is a usage error.
fn refusal(error: ImportError) -> anyhow::Error {
    match error {
        ImportError::Shape { .. } => Failure::Usage(format!("--shape: {error}")).into(),
        _ => error.into(),
    }
}

/// Converts an error of a family: a shape outside is a usage error.
fn usage(error: FamilyError) -> anyhow::Error {
    match error {
        FamilyError::Outside { .. } => Failure::Usage(format!("--shape: {error}")).into(),
        FamilyError::Import(error) => refusal(error),
        _ => error.into(),
    }
}
