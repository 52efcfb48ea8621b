//! Plots the speed-up of each operator of a suite over the best other library as an SVG, from a
//! file that `compare_peers` wrote.
//!
//! `cargo run --release -p autotune-lab --example plot_peers -- OUT.svg FILE.json SUITE`

use anyhow::{Context, Result, ensure};
use autotune_charts::{BarRow, Bars, standalone};
use serde::Deserialize;

#[derive(Deserialize)]
struct Comparisons {
    device: String,
    tables: Vec<Table>,
}

#[derive(Deserialize)]
struct Table {
    threads: usize,
    comparisons: Vec<Comparison>,
}

#[derive(Deserialize)]
struct Comparison {
    suite: String,
    name: String,
    /// Contenders; the first is this library.
    contenders: Vec<Contender>,
}

#[derive(Deserialize)]
struct Contender {
    /// Run time over this library's.
    ratio: f64,
}

impl Comparison {
    /// Returns the run time of the best peer over this library's.
    fn ratio(&self) -> f64 {
        self.contenders.iter().skip(1).map(|peer| peer.ratio).fold(f64::INFINITY, f64::min)
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out, file, suite] = &arguments[..] else { anyhow::bail!("usage: plot_peers OUT.svg FILE.json SUITE") };
    let text = std::fs::read_to_string(file).with_context(|| file.clone())?;
    let mut all: Comparisons = serde_json::from_str(&text).with_context(|| file.clone())?;
    for table in &mut all.tables {
        table.comparisons.retain(|comparison| comparison.suite == *suite && comparison.contenders.len() > 1);
        ensure!(!table.comparisons.is_empty(), "{file}: nothing of suite '{suite}' was compared");
    }
    std::fs::write(out, svg(&all)).with_context(|| out.clone())
}

fn svg(all: &Comparisons) -> String {
    let series = all.tables.iter().map(|table| {
        let plural = if table.threads == 1 { "" } else { "s" };
        format!("{} thread{plural}", table.threads)
    });
    let row = |(number, first): (usize, &Comparison)| {
        let ratio = |table: &Table| table.comparisons.get(number).map(Comparison::ratio);
        BarRow { name: first.name.clone(), values: all.tables.iter().map(ratio).collect() }
    };

    let title = format!("run time of the best other library over ours, {}", all.device);
    let first = all.tables.first().map(|table| &table.comparisons[..]).unwrap_or_default();
    let rows = first.iter().enumerate().map(row).collect();
    standalone(Bars { title: title.clone(), axis: title, series: series.collect(), rows }.draw())
}
