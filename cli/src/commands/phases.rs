//! Runs of a model whose shapes depend on the data.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use autotune::Timing;
use autotune_measure::{Load, LoadWatch};
use autotune_network::{Session, Tensor, Waiting, output_error, printable};
use serde::Serialize;

use super::lookup::network_source;
use super::run::{Latency, output_files, peak_bytes, say_untuned, write};
use super::shared::{JsonSink, warn};
use crate::args::{PhasedModel, RunArgs};
use crate::output::say;
use crate::report::caveat;

/// Largest difference between kernels and the reference that `--check` accepts, relative to the
/// largest element of an output.
const TOLERANCE: f64 = 1e-3;

/// Figures of a run in the output of `--json`.
#[derive(Serialize)]
struct PhasedFigures {
    latency_secs: Latency,
    /// Time of the first run, which makes the networks of the phases.
    first_secs: f64,
    /// Number of networks that were compiled.
    networks: usize,
    timing: Timing,
    load: Option<Load>,
    peak_bytes: Option<u64>,
    load_secs: f64,
}

/// Runs a model in phases; `start` is the time at which the command began.
pub(super) fn run(args: &RunArgs, path: &Path, waiting: Waiting, json: &JsonSink, start: Instant) -> Result<()> {
    args.target.check_cpu("models whose shapes depend on data run on CPUs only")?;
    let target = args.target.device(&[])?;
    let source = Arc::from(network_source(args.db.place()?)?);
    let PhasedModel { session, inputs } = args.subject.inputs.phased(path, &target, Arc::clone(&source), waiting)?;
    warn(&*source);
    let load_secs = start.elapsed().as_secs_f64();

    let first = Instant::now();
    let outputs = session.run(&inputs)?;
    let first_secs = first.elapsed().as_secs_f64();
    let described = session.described(&outputs);
    if let Some(folder) = &args.output {
        let files = output_files(described.iter().map(|output| &*output.name))?;
        let stored = described.iter().map(|output| output.stored);
        write(folder, &files, stored, &outputs).with_context(|| format!("--output {}", folder.display()))?;
    }

    let watch = LoadWatch::start(target.threads());
    let mut secs = Vec::new();
    for _ in 0..args.repeat {
        let start = Instant::now();
        session.run(&inputs)?;
        secs.push(start.elapsed().as_secs_f64());
    }
    let load = watch.load();
    let (timing, latency_secs) = (Timing::under_load(load), Latency::of(secs));

    let networks = session.phases();
    say_untuned(networks.iter().flat_map(|network| network.schedules()), &target);
    let (name, count) = (session.name(), networks.len());
    json.say(&format!("{name}: {}, loaded in {load_secs:.2} s", latency_secs.summary(timing)))?;
    let phases = format!("runs in phases: {count} networks were compiled in the first run");
    json.say(&format!("{phases}, which took {:.1} ms", first_secs * 1e3))?;
    json.say_all(caveat(load))?;
    let peak_bytes = peak_bytes();
    json.write(&PhasedFigures { latency_secs, first_secs, networks: count, timing, load, peak_bytes, load_secs })?;
    if args.check { check(&session, &inputs, &outputs) } else { Ok(()) }
}

/// Compares outputs with those of the interpreter.
fn check(session: &Session, inputs: &[Tensor], outputs: &[Tensor]) -> Result<()> {
    let reference = session.run_reference(inputs)?;
    let mut largest: f64 = 0.0;
    for ((described, found), wanted) in session.described(outputs).iter().zip(outputs).zip(&reference) {
        let name = printable(&described.name);
        ensure!(
            found.shape() == wanted.shape(),
            "'{name}' has shape {:?}, but the reference {:?}: values near a limit may fall on its other side",
            found.shape(),
            wanted.shape()
        );
        let error = output_error(std::slice::from_ref(found), std::slice::from_ref(wanted));
        ensure!(error <= TOLERANCE, "'{name}' differs from the reference ({error:.1e}, at most {TOLERANCE:.1e})");
        largest = largest.max(error);
    }
    say(format_args!("{} outputs compared with the reference; largest relative error {largest:.1e}", outputs.len()));
    Ok(())
}
