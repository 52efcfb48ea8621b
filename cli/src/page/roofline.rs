//! The section that compares the tasks with the peak rates of the machine.

use autotune_charts::{Chart, ChartAxis, Colour, Mark, MarkupElement, NamedPoint, Scale, TextAnchor};
use autotune_ir::DType;
use autotune_measure::Ceilings;
use autotune_schedules::Config;

use super::Page;
use super::history::History;
use super::html::{paragraph, section};
use super::number::{or_placeholder, percent, rate};

const NOTE: &str = "The best schedule of each task, with the work of its own algorithm: operations for each byte of operands and \
    output, against operations a second. The sloping lines are the bandwidths of the caches and the memory for pure \
    reading; a task is compared with the line of the smallest level that holds its operands, so that a dot may be \
    above the lines of larger levels. Thin lines start at the default schedule.";

const SIZE: [f64; 2] = [900.0, 460.0];
/// Names of the memory levels, in the order of [`Ceilings::read_bytes_per_sec`].
const LEVELS: [&str; 3] = ["second-level caches", "last-level cache", "memory"];

pub(crate) fn draw(page: &Page<'_>) -> MarkupElement {
    let section = section("roofline", "Roofline", NOTE);
    let ceilings = page.ceilings.as_ref();
    let points: Vec<NamedPoint> = page.histories.iter().filter_map(|history| point(history, ceilings.ok())).collect();
    if points.is_empty() {
        return section.child(paragraph("No task has a time."));
    }
    let section = match &ceilings {
        Ok(_) => section,
        Err(why) => section.child(paragraph(format!("The ceilings are unknown, so there is no roof: {why}."))),
    };

    let mut dtypes: Vec<DType> = page.histories.iter().map(|history| history.task.workload.dtype()).collect();
    dtypes.sort();
    dtypes.dedup();
    section.child(MarkupElement::new("figure").set("class", "full").child(chart(points, ceilings.ok(), &dtypes)))
}

/// Returns the dot of a task's best schedule, with a line from its default.
fn point(history: &History, ceilings: Option<&Ceilings>) -> Option<NamedPoint> {
    let best = &history.best.as_ref()?.record;
    let at = |config: &Config, secs: f64| {
        let work = config.work(&history.task.workload);
        [work.flops / work.bytes, work.flops / secs / 1e9]
    };
    let at_best = at(&best.config, history.best_secs()?);
    let default = history.default.as_ref().map(|default| at(&default.config, default.run_secs));
    let share = ceilings.and_then(|ceilings| history.roofline_shares(ceilings)).map(|[own, _]| percent(own));
    let more = format!(
        "{}: {} GFLOP/s at {} FLOP a byte, {} of its roofline",
        history.task.name,
        rate(at_best[1]),
        rate(at_best[0]),
        or_placeholder(share),
    );
    Some(NamedPoint { at: at_best, name: history.task.name.clone(), more, from: default })
}

fn chart(points: Vec<NamedPoint>, ceilings: Option<&Ceilings>, dtypes: &[DType]) -> MarkupElement {
    // Operations per byte from which on a memory level no longer limits the fastest type (the ridge
    // points).
    let peak = |ceilings: &Ceilings| {
        dtypes.iter().map(|dtype| ceilings.dtype_flops_per_sec(*dtype)).fold(f64::MIN_POSITIVE, f64::max)
    };
    let ridges = ceilings.iter().flat_map(|c| c.read_bytes_per_sec.map(|rate| peak(c) / rate));
    let places = || points.iter().flat_map(|point| [Some(point.at), point.from]).flatten();
    let x = Scale::log(places().map(|[x, _]| x).chain(ridges.clone()));
    // The axis includes the highest roof, and the memory's line at its left end.
    let roofs = ceilings.iter().flat_map(|c| [peak(c) * 1.3 / 1e9, c.read_bytes_per_sec[2] * x.ends()[0] / 1e9]);
    let y = Scale::log(places().map(|[_, y]| y).chain(roofs));

    let axes = [ChartAxis::new("arithmetic intensity, FLOP a byte", x), ChartAxis::new("GFLOP/s", y)];
    let mut chart = Chart::new("Roofline of all tasks", SIZE, axes);
    for mark in ceilings.iter().flat_map(|ceilings| roofline(ceilings, dtypes, peak(ceilings), x.ends())) {
        chart = chart.mark(mark);
    }
    chart.mark(Mark::Named { points, colour: Colour::Series(0) }).draw()
}

/// Returns the lines of the roofline: a horizontal one for each type, and for each memory level a
/// slope up to the highest of them.
fn roofline(ceilings: &Ceilings, dtypes: &[DType], peak: f64, [left, right]: [f64; 2]) -> Vec<Mark> {
    let colour = Colour::Quiet;
    let line =
        |points: [[f64; 2]; 2], name: String| Mark::Line { points: points.to_vec(), colour, dashed: false, name };
    let mut marks = Vec::new();

    for dtype in dtypes {
        let gflops = ceilings.dtype_flops_per_sec(*dtype) / 1e9;
        let text = format!("{gflops:.0} GFLOP/s {}", dtype.word());
        marks.push(line([[left, gflops], [right, gflops]], String::new()));
        marks.push(Mark::Label { at: [right, gflops], text, colour, anchor: TextAnchor::End, lower: -5.0 });
    }
    for (level, rate) in LEVELS.into_iter().zip(ceilings.read_bytes_per_sec) {
        let ridge = (peak / rate).max(left);
        let name = format!("{level}, {:.0} GB/s", rate / 1e9);
        marks.push(line([[left, left * rate / 1e9], [ridge, ridge * rate / 1e9]], name));
    }
    marks
}
