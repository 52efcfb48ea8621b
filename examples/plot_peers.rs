//! How many times faster than the best of other libraries each operator of a suite is, as an SVG, from a file that `compare_peers` wrote.
//!
//! `cargo run --release -p autotune-examples --example plot_peers -- OUT.svg FILE.json SUITE`

use std::fmt::Write;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

const LEFT: f64 = 60.0;
const BOTTOM: f64 = 250.0;
/// Pixels of a ratio of 1, of a bar, and between operators.
const UNIT: f64 = 55.0;
const BAR: f64 = 20.0;
const GAP: f64 = 14.0;

/// One for each number of threads; told apart by the colour-blind, too (Okabe and Ito's palette).
const COLOURS: [&str; 3] = ["#0072b2", "#e69f00", "#009e73"];

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
    /// Ours first.
    contenders: Vec<Contender>,
}

#[derive(Deserialize)]
struct Contender {
    /// Its run time over ours.
    ratio: f64,
}

impl Comparison {
    /// Run time of the best peer over ours.
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
    let Some(first) = all.tables.first() else { return String::new() };
    let group = all.tables.len() as f64 * BAR + GAP;
    let right = LEFT + group * first.comparisons.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        right + 20.0,
        BOTTOM + 45.0
    );

    // Writing to a string cannot fail.
    for ratio in 0..=4 {
        let y = BOTTOM - UNIT * f64::from(ratio);
        let stroke = if ratio == 1 { "#000" } else { "#ddd" };
        let _ = writeln!(text, "<path d=\"M{LEFT} {y}H{right}\" stroke=\"{stroke}\"/>");
        let _ = writeln!(text, "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{ratio}x</text>", LEFT - 8.0, y + 4.0);
    }

    for (which, table) in all.tables.iter().enumerate() {
        let colour = COLOURS[which % COLOURS.len()];
        for (number, comparison) in table.comparisons.iter().enumerate() {
            let (x, height) =
                (LEFT + GAP / 2.0 + group * number as f64 + BAR * which as f64, UNIT * comparison.ratio());
            let y = BOTTOM - height;
            let _ = writeln!(
                text,
                "<rect x=\"{x}\" y=\"{y:.1}\" width=\"{BAR}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
            );
        }
        let (x, y) = (right - 150.0, 24.0 + 18.0 * which as f64);
        let plural = if table.threads == 1 { "" } else { "s" };
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\">{} thread{plural}</text>", table.threads);
    }

    for (number, comparison) in first.comparisons.iter().enumerate() {
        let x = LEFT + group * (number as f64 + 0.5);
        let _ = writeln!(
            text,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 18.0,
            escape(&comparison.name)
        );
    }
    let middle = (LEFT + right) / 2.0;
    let title = format!("run time of the best other library over ours, {}", escape(&all.device));
    let _ = writeln!(text, "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{title}</text>", BOTTOM + 38.0);
    text + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
