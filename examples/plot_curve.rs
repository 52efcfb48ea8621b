//! The best network time so far against tuning seconds, as an SVG, from files that `autotune NETWORK --json FILE` wrote.
//!
//! `cargo run --release -p autotune-examples --example plot_curve -- OUT.svg FILE.json ...`
//!
//! Each file is one curve, named like the file.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Size of the picture and of the margins that hold the labels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = 50.0;

/// Told apart by the colour-blind, too (Okabe and Ito's palette).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#000000"];

/// Intervals of an axis, about.
const INTERVALS: f64 = 6.0;

#[derive(Deserialize)]
struct Report {
    curve: Vec<Point>,
    tuning_secs: f64,
}

/// From here on the network takes `network_secs`.
#[derive(Deserialize)]
struct Point {
    elapsed_secs: f64,
    network_secs: f64,
}

/// From values to pixels.
struct Axes {
    max_secs: f64,
    /// Network milliseconds at the bottom and at the top.
    ms: [f64; 2],
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let out = arguments.next().context("usage: plot_curve OUT.svg FILE.json ...")?;
    let curves = arguments.map(|file| read(Path::new(&file))).collect::<Result<Vec<_>>>()?;
    ensure!(!curves.is_empty(), "no file to plot");
    std::fs::write(&out, svg(&curves)).with_context(|| out.clone())
}

/// A file's curve and its name.
fn read(file: &Path) -> Result<(String, Report)> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let report: Report = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    ensure!(!report.curve.is_empty(), "{}: nothing was found, so there is no curve", file.display());
    Ok((file.file_stem().unwrap_or_default().to_string_lossy().into_owned(), report))
}

fn svg(curves: &[(String, Report)]) -> String {
    let points = || curves.iter().flat_map(|(_, report)| &report.curve);
    let (low, high) =
        points().fold((f64::INFINITY, 0.0f64), |(low, high), p| (low.min(p.network_secs), high.max(p.network_secs)));
    let room = (0.05 * (high - low)).max(0.01 * high);
    let max_secs = curves.iter().map(|(_, report)| report.tuning_secs).fold(f64::MIN_POSITIVE, f64::max);
    let axes = Axes { max_secs, ms: [(low - room) * 1e3, (high + room) * 1e3] };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    axes.draw(&mut text);
    for (i, (name, report)) in curves.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let path = axes.steps(report);
        let (x, y) = (WIDTH - RIGHT - 10.0, TOP + 18.0 * (i as f64 + 1.0));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        let _ =
            writeln!(text, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>", escape(name));
    }
    text + "</svg>\n"
}

impl Axes {
    fn x(&self, secs: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * secs / self.max_secs
    }

    fn y(&self, ms: f64) -> f64 {
        let [low, high] = self.ms;
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (ms - low) / (high - low)
    }

    /// A line that falls where something better was found and goes on to the end of the run.
    fn steps(&self, report: &Report) -> String {
        let mut path = String::new();
        for point in &report.curve {
            let (x, y) = (self.x(point.elapsed_secs), self.y(point.network_secs * 1e3));
            let _ = if path.is_empty() { write!(path, "M{x:.1} {y:.1}") } else { write!(path, "H{x:.1}V{y:.1}") };
        }
        path + &format!("H{:.1}", self.x(report.tuning_secs))
    }

    /// Grid, numbers and titles.
    fn draw(&self, text: &mut String) {
        let (bottom, right, middle) = (HEIGHT - BOTTOM, WIDTH - RIGHT, (TOP + HEIGHT - BOTTOM) / 2.0);
        for secs in ticks(0.0, self.max_secs) {
            let x = self.x(secs);
            let _ = writeln!(text, "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#ddd\"/>");
            let _ = writeln!(text, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{secs}</text>", bottom + 18.0);
        }
        for ms in ticks(self.ms[0], self.ms[1]) {
            let y = self.y(ms);
            let _ = writeln!(text, "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#ddd\"/>");
            let (x, y) = (LEFT - 8.0, y + 4.0);
            let _ = writeln!(text, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", ms);
        }
        let x = (LEFT + right) / 2.0;
        let _ = writeln!(text, "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">tuning, s</text>", HEIGHT - 10.0);
        let turned = format!("x=\"18\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {middle})\"");
        let _ = writeln!(text, "<text {turned}>best network time so far, ms</text>");
    }
}

/// Round numbers from `low` to `high`.
fn ticks(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let raw = (high - low) / INTERVALS;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|f| f * power).into_iter().find(|&step| step >= raw).unwrap_or(raw);
    let first = (low / step).ceil();
    // Rounded to print short.
    let tick = move |i: i32| ((first + f64::from(i)) * step * 1e9).round() / 1e9;
    (0..20).map(tick).take_while(move |&tick| tick <= high)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
