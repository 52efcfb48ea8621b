//! Figure on the parts of a tuning run's time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::page::Figure;

/// Parts of the time in their order in the table: field of the report, and description.
const PARTS: [(&str, &str); 8] = [
    ("start_secs", "reading the database"),
    ("propose_secs", "proposing: search, lowering, features, predictions"),
    ("fit_secs", "learning"),
    ("build_secs", "building"),
    ("run_secs", "running kernels"),
    ("trial_secs", "loading, packing, checking"),
    ("record_secs", "writing records"),
    ("race_secs", "the final race"),
];

/// Fields of a report that `autotune NETWORK --json FILE` writes.
#[derive(Deserialize)]
struct Report {
    target: String,
    tuning_secs: f64,
    new_trials: usize,
    /// Seconds of each part.
    time: BTreeMap<String, f64>,
}

pub(crate) fn time(file: &Path) -> Result<Figure> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let report: Report = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    let Report { target, tuning_secs, new_trials, time } = report;

    let mut table = vec![["", "seconds", "share", "ms a trial"].map(String::from).to_vec()];
    let row = |name: &str, secs: f64| {
        let share = format!("{:.1} %", 100.0 * secs / tuning_secs);
        vec![name.into(), format!("{secs:.2}"), share, format!("{:.2}", 1e3 * secs / new_trials.max(1) as f64)]
    };
    let secs = |key: &str| time.get(key).copied().unwrap_or(0.0);
    table.extend(PARTS.map(|(key, name)| row(name, secs(key))));
    table.push(row("the rest", tuning_secs - PARTS.iter().map(|(key, _)| secs(key)).sum::<f64>()));

    Ok(Figure {
        name: "time",
        title: "Where the time goes".into(),
        text: format!(
            "A run of {tuning_secs:.0} s and {new_trials} trials on {target}, from `{}`. The paper's searches spent most of their time on \
             measuring, too; AutoTVM's model and annealing cost up to 0.8 s a trial.",
            file.file_name().unwrap_or_default().to_string_lossy()
        ),
        table,
        csv: Vec::new(),
        charts: Vec::new(),
    })
}
