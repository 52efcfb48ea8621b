//! Plots the best network time so far against tuning seconds as an SVG, from files that
//! `autotune NETWORK --json FILE` wrote.
//!
//! `cargo run --release -p autotune-lab --example plot_curve -- OUT.svg FILE.json ...`
//!
//! Each file becomes one curve, named after the file.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use autotune_charts::{Chart, ChartAxis, Colour, Mark, Scale, standalone};
use serde::Deserialize;

#[derive(Deserialize)]
struct Report {
    curve: Vec<Point>,
    tuning_secs: f64,
}

/// Time from which the network takes `network_secs`.
#[derive(Deserialize)]
struct Point {
    elapsed_secs: f64,
    network_secs: f64,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let out = arguments.next().context("usage: plot_curve OUT.svg FILE.json ...")?;
    let curves = arguments.map(|file| read(Path::new(&file))).collect::<Result<Vec<_>>>()?;
    ensure!(!curves.is_empty(), "no file to plot");
    std::fs::write(&out, svg(&curves)).with_context(|| out.clone())
}

/// Reads a report; returns it with the name of its file.
fn read(file: &Path) -> Result<(String, Report)> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let report: Report = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    ensure!(!report.curve.is_empty(), "{}: nothing was found, so there is no curve", file.display());
    Ok((file.file_stem().unwrap_or_default().to_string_lossy().into_owned(), report))
}

fn svg(curves: &[(String, Report)]) -> String {
    let reports = || curves.iter().map(|(_, report)| report);
    let ends = reports().map(|report| report.tuning_secs);
    let times = reports().flat_map(|report| &report.curve).map(|point| point.network_secs * 1e3);
    let axes = [
        ChartAxis::new("tuning, s", Scale::linear(ends.chain([0.0]))),
        ChartAxis::new("best network time so far, ms", Scale::linear(times)),
    ];

    let mut chart = Chart::new("Best network time so far", [720.0, 420.0], axes);
    for (number, (name, report)) in curves.iter().enumerate() {
        let colour = Colour::Series(number);
        let mut points: Vec<[f64; 2]> = report.curve.iter().map(|p| [p.elapsed_secs, p.network_secs * 1e3]).collect();
        // The last time holds until the end of the run.
        points.extend(points.last().map(|last| [report.tuning_secs, last[1]]));
        chart = chart.mark(Mark::Steps { points, colour }).legend(name, colour);
    }
    standalone(chart.draw())
}
