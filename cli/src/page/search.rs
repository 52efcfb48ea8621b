//! The section on the progress of the searches.

use autotune_charts::{Chart, ChartAxis, Colour, Mark, MarkupElement, Scale, TextAnchor};
use autotune_db::TuningRecord;

use super::curve::{SearchMoment, best_so_far, spread};
use super::history::History;
use super::html::{card, cards, pair, paragraph, section};
use super::number::with_noun;
use super::runs::{SearchRun, runs};

const NOTE: &str = "The best time so far, as measured by the search, against trials and against the seconds spent on building and \
    measuring; the time of search and model is not recorded. Each seed that started without results is a separate \
    run; one that continued from the results of another belongs to that run. The curve of all tasks together begins \
    when each has a time. With several runs, the line is their median and the band reaches from the fastest to the \
    slowest; a run that ended keeps its best. The dashed line is the best time in the table. The lowest of many \
    single measurements is partly luck, so a curve may end below it.";

const NETWORK: [f64; 2] = [560.0, 300.0];
const TASK: [f64; 2] = [360.0, 210.0];

/// Minimum ratio between the ends of the time axis, so that measurement noise does not look like
/// progress.
const LEAST_RATIO: f64 = 1.25;

/// Quantity on the horizontal axis of a curve.
#[derive(Clone, Copy)]
enum Against {
    Trials,
    Seconds,
}

impl Against {
    fn title(self) -> &'static str {
        match self {
            Against::Trials => "trials",
            Against::Seconds => "building and measuring, s",
        }
    }

    fn of(self, points: &[SearchMoment]) -> Vec<[f64; 2]> {
        let x = |point: &SearchMoment| match self {
            Against::Trials => point.trials,
            Against::Seconds => point.spent_secs,
        };
        points.iter().map(|point| [x(point), point.best_secs * 1e3]).collect()
    }
}

pub(crate) fn draw(histories: &[History]) -> MarkupElement {
    let section = section("search", "Best so far", NOTE);
    let runs: Vec<Vec<SearchRun<'_>>> = histories.iter().map(runs).collect();
    let both = [Against::Trials, Against::Seconds];
    let mut section = match network(histories, &runs) {
        Some(curves) => section
            .child(MarkupElement::new("h3").text("All together, each task as often as it occurs"))
            .child(pair(both.map(|against| {
                MarkupElement::new("figure").child(chart("All together", NETWORK, against, &curves, None))
            }))),
        None if histories.len() > 1 => {
            section.child(paragraph("No run has a time for every task, so there is no curve of all tasks together."))
        }
        None => section,
    };

    for against in both {
        let figure = |(history, runs): (&History, &Vec<SearchRun<'_>>)| {
            let curves: Vec<Vec<SearchMoment>> = runs.iter().map(|run| best_so_far(&[(1.0, &run.trials)])).collect();
            let chart = chart(&history.task.name, TASK, against, &curves, history.best_secs());
            card(&history.task.name, summary(history, runs), chart)
        };
        let heading = format!("Each task, against {}", against.title());
        section = section.child(MarkupElement::new("h3").text(heading));
        section = section.child(cards(histories.iter().zip(&runs).map(figure)));
    }
    section
}

/// Describes the number of trials and runs of a curve.
fn summary(history: &History, runs: &[SearchRun<'_>]) -> String {
    let trials = with_noun(history.trials().count(), "trial");
    match runs {
        [] | [_] => trials,
        several => format!("{trials}, {} runs", several.len()),
    }
}

/// Returns the curves of all tasks together, one for each run with a time of every task that
/// occurs. Returns `None` if there is no such run, or only one task.
fn network(histories: &[History], runs: &[Vec<SearchRun<'_>>]) -> Option<Vec<Vec<SearchMoment>>> {
    let of_tasks: Vec<(f64, &Vec<SearchRun<'_>>)> =
        histories.iter().map(|history| history.task.count as f64).zip(runs).filter(|(count, _)| *count > 0.0).collect();
    let (_, first) = of_tasks.first().filter(|_| of_tasks.len() > 1)?;

    let curve = |run: &SearchRun<'_>| {
        let seed = run.seeds[0];
        // Runs of different tasks belong together if they began with the same seed.
        let same = |(count, runs): &(f64, &'_ Vec<SearchRun<'_>>)| {
            let found = runs.iter().position(|run| run.seeds[0] == seed)?;
            Some((*count, found))
        };
        let found = of_tasks.iter().map(same).collect::<Option<Vec<_>>>()?;
        let trials = found.iter().zip(&of_tasks).map(|((count, found), (_, runs))| (*count, &runs[*found].trials[..]));
        let trials: Vec<(f64, &[&TuningRecord])> = trials.collect();
        Some(best_so_far(&trials)).filter(|points| !points.is_empty())
    };
    let curves: Vec<Vec<SearchMoment>> = first.iter().filter_map(curve).collect();
    (!curves.is_empty()).then_some(curves)
}

/// Draws a single curve, or median and range of several.
fn chart(
    title: &str,
    size: [f64; 2],
    against: Against,
    curves: &[Vec<SearchMoment>],
    best_secs: Option<f64>,
) -> MarkupElement {
    let curves: Vec<Vec<[f64; 2]>> = curves.iter().map(|points| against.of(points)).filter(|c| !c.is_empty()).collect();
    if curves.is_empty() {
        return paragraph("No trial of a search ran.");
    }
    let best_ms = best_secs.map(|secs| secs * 1e3);
    let values = |which: usize| curves.iter().flatten().map(move |point| point[which]);
    let x = Scale::log(values(0));
    let axes = [
        ChartAxis::new(against.title(), x),
        ChartAxis::new("best run time so far, ms", Scale::log(values(1).chain(best_ms)).at_least(LEAST_RATIO)),
    ];

    let colour = Colour::Series(0);
    let mut chart = Chart::new(format!("{title}: best so far against {}", against.title()), size, axes);
    if let Some(best_ms) = best_ms {
        let points = x.ends().map(|x| [x, best_ms]).to_vec();
        chart = chart.mark(Mark::Line { points, colour: Colour::Quiet, dashed: true, name: String::new() });
    }
    if let [only] = &curves[..] {
        return chart.mark(Mark::Steps { points: only.clone(), colour }).draw();
    }
    let spread = spread(&curves);
    let band = spread.iter().map(|s| [s.x, s.low, s.high]).collect();
    let median = spread.iter().map(|s| [s.x, s.median]).collect();
    let label = Mark::Label {
        at: [x.ends()[1], spread.first().map_or(f64::NAN, |s| s.high)],
        text: format!("median of {} runs", curves.len()),
        colour,
        anchor: TextAnchor::End,
        lower: 14.0,
    };
    chart.mark(Mark::Band { points: band, colour }).mark(Mark::Steps { points: median, colour }).mark(label).draw()
}
