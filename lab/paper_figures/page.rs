//! Figures as CSV, SVG and Markdown, and the page that contains all of them.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use autotune_lab::test_bed::Recording;
use autotune_lab::{median, quantile};

use crate::Bench;

/// Result of an experiment.
pub(crate) struct Figure {
    /// Stem of the names of its files.
    pub(crate) name: &'static str,
    pub(crate) title: String,
    /// Description of the experiment, and how to read its table.
    pub(crate) text: String,
    /// Table on the page; the first row has the column names.
    pub(crate) table: Vec<Vec<String>>,
    /// Rows of the CSV file; empty if it contains just the table.
    pub(crate) csv: Vec<Vec<String>>,
    /// SVG charts, each with a suffix to the figure's name.
    pub(crate) charts: Vec<(&'static str, String)>,
}

impl Figure {
    /// Writes the figure's CSV and SVG files into a folder.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let save = |name: String, text: &str| {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())
        };
        let rows = if self.csv.is_empty() { &self.table } else { &self.csv };
        let lines = rows.iter().map(|row| row.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",") + "\n");
        save(format!("{}.csv", self.name), &lines.collect::<String>())?;
        self.charts.iter().try_for_each(|(which, svg)| save(format!("{}{which}.svg", self.name), svg))
    }

    pub(crate) fn to_markdown(&self) -> String {
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.text);
        for (i, row) in self.table.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} |", row.join(" | "));
            if i == 0 {
                let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
            }
        }
        for (which, _) in &self.charts {
            let _ = write!(text, "\n![{}]({}{which}.svg)\n", self.title, self.name);
        }
        text
    }
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.into() }
}

/// Formats the median over the seeds with the quartiles, such as `0.912 (0.905–0.918)`; empty if
/// the median is not finite.
pub(crate) fn spread(values: &[f64], digits: usize) -> String {
    let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| quantile(values.to_vec(), share));
    if !middle.is_finite() {
        return String::new();
    }
    format!("{middle:.digits$} ({low:.digits$}–{high:.digits$})")
}

/// Writes the page with all figures.
pub(crate) fn write(bench: &Bench, figures: &[Figure], folder: &Path) -> Result<()> {
    let all = bench.test_bed.tasks();
    let recorded: usize = all.iter().map(|task| task.samples.len()).sum();
    let of_each = median(all.iter().map(|task| task.samples.len() as f64).collect());
    let near = 100.0 * all.iter().map(near_best).sum::<f64>() / all.len() as f64;
    let header = &bench.test_bed.header;

    let mut text = format!(
        "# The experiments of the AutoTVM paper, on recorded data\n\n\
         Chen et al., \"Learning to Optimize Tensor Programs\" (NeurIPS 2018), with this project's parts in place of theirs. Made by\n\n\
         ```\ncargo run --release -p autotune-lab --example paper_figures\n```\n\n\
         from what `record_test_bed` measured on {} (`{}`): {recorded} configs of {} workloads, {of_each:.0} of each in the middle. \
         Searches are whole runs of the tuner on {} of the workloads, {} seeds; only the device is replaced by its record. Quality is the \
         throughput of the best schedule so far over that of the best one recorded, as a geometric mean over the workloads. Figures of \
         several seeds are medians, with quartiles in parentheses or shaded. The first trial is always the default schedule. The pretrained \
         model and the schedules that ship with the library were made from this record: none of the searches here uses them.\n\n\
         Searches are compared twice. *In the record* they may find every measured schedule of a workload, most of which earlier learned \
         searches proposed. {near:.0} % of them are within 5 % of the best, so random draws are good, too, and the curves of all searches \
         meet where the record is used up. The first trials of a curve tell the most.\n\n\
         *In a sample* there are only schedules drawn at random from the space, about a hundred. No search chose them, so that \
         random search does as well as on a machine; but the sample is coarse, and soon used up. Steps finer than either cannot be \
         judged, and the fastest times of both are lucky ones: nothing is run again.\n\n",
        header.device,
        header.target,
        all.len(),
        bench.record.tasks.len(),
        bench.seeds,
    );
    for figure in figures {
        text += &figure.to_markdown();
        text += "\n";
    }
    let path = folder.join("README.md");
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// Returns the share of a workload's configs that are within 5 % of the best.
fn near_best(task: &Recording) -> f64 {
    let secs: Vec<f64> = task.samples.iter().filter_map(|sample| sample.run_secs).collect();
    let best = secs.iter().copied().fold(f64::INFINITY, f64::min);
    secs.iter().filter(|secs| **secs <= 1.05 * best).count() as f64 / task.samples.len().max(1) as f64
}
