//! Plots the speed-up of whole networks over the best other library as an SVG, from a file that
//! `peers/networks.py` wrote.
//!
//! `cargo run --release -p autotune-lab --example plot_networks -- OUT.svg FILE.json`

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use autotune_charts::{BarRow, Bars, standalone};
use serde::Deserialize;

/// Name of this library among the contenders.
const OURS: &str = "autotune";

// Names of the other contenders that compute in f32.
const PEERS: [&str; 3] = ["ort", "ort_extended", "ov_f32"];

#[derive(Deserialize)]
struct Comparisons {
    cpu: String,
    /// Contenders by number of threads, network and name.
    threads: BTreeMap<String, BTreeMap<String, BTreeMap<String, Contender>>>,
}

#[derive(Deserialize)]
struct Contender {
    /// Median seconds of a run.
    median: f64,
    /// True if its outputs are as exact as f32 allows.
    right: bool,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out, file] = &arguments[..] else { anyhow::bail!("usage: plot_networks OUT.svg FILE.json") };
    let text = std::fs::read_to_string(file).with_context(|| file.clone())?;
    let all: Comparisons = serde_json::from_str(&text).with_context(|| file.clone())?;
    ensure!(!all.threads.is_empty(), "{file}: nothing was compared");
    std::fs::write(out, svg(&all)).with_context(|| out.clone())
}

fn svg(all: &Comparisons) -> String {
    let plural = |threads: &str| if threads == "1" { "" } else { "s" };
    let series = all.threads.keys().map(|threads| format!("{threads} thread{}", plural(threads)));
    let mut networks: Vec<&String> = all.threads.values().flat_map(BTreeMap::keys).collect();
    networks.sort();
    networks.dedup();
    let row = |network: &String| BarRow {
        name: network.trim_start_matches("light_").into(),
        values: all.threads.values().map(|networks| ratio(networks.get(network)?)).collect(),
    };

    let title = format!("run time of the best f32 run of ONNX Runtime and OpenVINO over ours, {}", all.cpu);
    let rows = networks.into_iter().map(row).collect();
    standalone(Bars { title: title.clone(), axis: title, series: series.collect(), rows }.draw())
}

/// Returns the run time of the best peer over this library's.
fn ratio(contenders: &BTreeMap<String, Contender>) -> Option<f64> {
    let secs = |name: &str| contenders.get(name).filter(|contender| contender.right).map(|contender| contender.median);
    Some(PEERS.into_iter().filter_map(secs).reduce(f64::min)? / secs(OURS)?)
}
