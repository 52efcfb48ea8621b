//! Compares the analysis' time estimates of GPU kernels with measured times.
//!
//! `cargo run --release -p autotune-lab --example gpu_estimates -- LOG.jsonl[.gz] [--csv]`
//!
//! Prints a Markdown table with, for each workload and sketch of a tuning log: the number of
//! kernels; Spearman's rank correlation of estimated and measured run times; the median of measured
//! over estimated time; and the time of the kernel with the least estimate over that of the
//! workload's fastest. `--csv` prints every kernel with its bounds in cycles instead.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

use anyhow::{Context, Result};
use autotune_cost_model::metrics::spearman;
use autotune_db::TuningRecord;
use autotune_ir::Target;
use autotune_ir::analyse::analyse;
use autotune_ir::analyse::gpu::{BOUNDS, Kernels};
use autotune_lab::{H200_HZ, median};
use autotune_schedules::lower;
use flate2::read::GzDecoder;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().context("wants a tuning log: LOG.jsonl or LOG.jsonl.gz")?;
    let as_csv = arguments.next().is_some_and(|word| word == "--csv");

    let mut groups: BTreeMap<(String, String), Vec<[f64; 2]>> = BTreeMap::new();
    if as_csv {
        println!("workload,sketch,run_secs,stages,cycles,{}", BOUNDS.join(","));
    }
    for line in BufReader::new(open(&path)?).lines() {
        let record: TuningRecord = serde_json::from_str(&line?).with_context(|| path.clone())?;
        let Some(secs) = record.measurement.run_secs() else { continue };
        let Some(kernels) = kernels(&record)? else { continue };
        let (workload, sketch) = (record.workload.to_string(), record.config.sketch.clone());
        if as_csv {
            let bounds = kernels.bounds.map(|cycles| format!("{cycles:.0}")).join(",");
            println!("\"{workload}\",{sketch},{secs:e},{},{:.0},{bounds}", kernels.stages, kernels.cycles);
        }
        groups.entry((workload, sketch)).or_default().push([kernels.cycles / H200_HZ, secs]);
    }
    if !as_csv {
        table(&groups);
    }
    Ok(())
}

fn open(path: &str) -> Result<Box<dyn Read>> {
    let file = File::open(path).with_context(|| path.to_string())?;
    Ok(if path.ends_with(".gz") { Box::new(GzDecoder::new(file)) } else { Box::new(file) })
}

/// Analyses the kernel of a record; `None` if this version does not lower the schedule.
fn kernels(record: &TuningRecord) -> Result<Option<Kernels>> {
    let word: String = record.target.split(':').take(2).collect::<Vec<_>>().join(":");
    let target = Target::detect(&word, None)?;
    let Ok(program) = lower(&record.workload, &target, &record.config) else { return Ok(None) };
    Ok(analyse(&program, &target).kernels)
}

fn table(groups: &BTreeMap<(String, String), Vec<[f64; 2]>>) {
    println!("| workload | sketch | kernels | rank correlation | measured / estimated | least estimate / fastest |");
    println!("|---|---|---|---|---|---|");
    let mut fastest: BTreeMap<&str, f64> = BTreeMap::new();
    for ((workload, _), pairs) in groups {
        let least = fastest.entry(workload).or_insert(f64::INFINITY);
        *least = pairs.iter().fold(*least, |least, pair| least.min(pair[1]));
    }
    for ((workload, sketch), pairs) in groups {
        let (estimated, measured): (Vec<f32>, Vec<f32>) = pairs.iter().map(|&[e, m]| (e as f32, m as f32)).unzip();
        let chosen = pairs.iter().min_by(|a, b| a[0].total_cmp(&b[0])).map_or(f64::NAN, |pair| pair[1]);
        println!(
            "| {workload} | {sketch} | {} | {:.2} | {:.2} | {:.2} |",
            pairs.len(),
            spearman(&estimated, &measured).unwrap_or(f64::NAN),
            median(pairs.iter().map(|[e, m]| m / e).collect()),
            chosen / fastest[workload.as_str()],
        );
    }
}
