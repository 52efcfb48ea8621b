//! The command `autotune quantize NETWORK -o FILE.onnx`: quantises a network by example inputs.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result};
use autotune_network::{QuantiseError, QuantiseOptions, QuantisedNetwork, Subject, onnx, quantise, rewrite};
use indicatif::{ProgressBar, ProgressStyle};

use super::file::{check_output, replace};
use super::lookup::network_source;
use super::shared::{JsonSink, warn};
use crate::args::{Failure, QuantizeArgs};
use crate::output::say;

mod examples;
mod summary;

use examples::DataFiles;
use summary::{QuantisationFigures, chart, table};

pub(super) fn run(args: QuantizeArgs) -> Result<()> {
    args.target.check_cpu("networks are quantised for CPUs only")?;
    let json = JsonSink::new(args.json.clone())?;
    check_model(&args.subject, &args.output)?;
    if let Some(file) = &args.chart {
        check_output("--chart", file, "picture", |start| start.starts_with(b"<svg"))?;
    }

    let data = DataFiles::of(&args.data, &args.subject)?;
    let loaded = args.inputs.imported(&args.subject, &data.shapes())?;
    let Some(loaded) = loaded else {
        return Err(Failure::Usage("a workload cannot be quantised: specify a network".into()).into());
    };
    if loaded.graph.is_quantised() {
        return Err(Failure::Usage(format!("{}: {}", called(&args.subject), QuantiseError::Quantised)).into());
    }
    let target = args.target.device(&[])?;
    let graph = rewrite(&loaded.graph)?;
    let examples = data.examples(&graph, &loaded.given)?;

    let source = network_source(args.db.place()?)?;
    let display = QuantiseDisplay::default();
    let options = QuantiseOptions {
        method: args.calibration,
        max_error: args.max_error,
        source: Some(&*source),
        target: &target,
        progress: &|work, done, all| display.show(work, done, all),
    };
    let quantised = quantise(&graph, &examples, &options).with_context(|| called(&args.subject))?;
    drop(display);
    warn(&*source);

    let bytes = onnx::write(&quantised.graph)?;
    let written = replace(&args.output, |out| out.write_all(&bytes));
    written.with_context(|| format!("-o {}", args.output.display()))?;
    report(&args, &json, &quantised, graph.name())
}

/// Returns the file or the name of a network, for messages.
fn called(subject: &Subject) -> String {
    match subject {
        Subject::Model(path) => path.display().to_string(),
        Subject::Network(name) => name.clone(),
        Subject::Workload(workload) => workload.to_string(),
    }
}

/// Prints and writes the measurements.
fn report(args: &QuantizeArgs, json: &JsonSink, quantised: &QuantisedNetwork, name: &str) -> Result<()> {
    if let Some(file) = &args.chart {
        let svg = autotune_charts::standalone(chart(quantised, name));
        let written = replace(file, |out| out.write_all(svg.as_bytes()));
        written.with_context(|| format!("--chart {}", file.display()))?;
    }
    json.say(&table(quantised))?;
    if args.data.is_empty() {
        say(
            "autotune: warning: no --data: scales and errors are of random inputs from -1 to 1, and a guess for others; \
             larger inputs are clipped",
        );
    }
    json.write(&QuantisationFigures::of(quantised))
}

/// Checks the path of the file to write: an ONNX model, but not the one to read.
fn check_model(subject: &Subject, output: &Path) -> Result<(), Failure> {
    if output == Path::new("-") {
        return Err(Failure::Usage("-o -: specify a file such as model.int8.onnx".into()));
    }
    // A model starts with its first field, the version of the format.
    check_output("-o", output, "model", |start| start.starts_with(&[0x08]))?;
    let places = [Some(output), if let Subject::Model(path) = subject { Some(path) } else { None }]
        .map(|path| path.and_then(|path| path.canonicalize().ok()));
    match places {
        [Some(output), Some(input)] if output == input => {
            Err(Failure::Usage(format!("-o {}: is the network to quantise", output.display())))
        }
        _ => Ok(()),
    }
}

/// Progress on standard error: a bar on a terminal, else a line for each kind of work. Dropping it
/// removes the bar.
#[derive(Default)]
struct QuantiseDisplay(RefCell<(String, Option<ProgressBar>)>);

impl QuantiseDisplay {
    fn show(&self, work: &str, done: usize, all: usize) {
        let (current, bar) = &mut *self.0.borrow_mut();
        let is_new = current != work;
        if is_new {
            *current = work.into();
        }
        if !std::io::stderr().is_terminal() {
            if is_new {
                say(work);
            }
            return;
        }

        let bar = bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, {elapsed} elapsed");
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_length(all as u64);
        bar.set_message(work.to_string());
        bar.set_position(done as u64);
    }
}

impl Drop for QuantiseDisplay {
    fn drop(&mut self) {
        if let (_, Some(bar)) = &*self.0.borrow() {
            bar.finish_and_clear();
        }
    }
}
