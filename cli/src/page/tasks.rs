//! The table of tasks, and the cost of the untuned schedules.

use autotune::Timing;
use autotune_charts::{BarRow, Bars, MarkupElement};
use autotune_db::{Best, TimeProvenance};
use autotune_measure::Ceilings;

use super::Page;
use super::history::{DefaultTime, History};
use super::html::{cell, code_cell, number_cell, paragraph, section, table};
use super::number::{NONE, geometric_mean, ms, or_placeholder, percent, times, with_noun};
use crate::report::marked;

const NOTE: &str = "Default is the untuned schedule, best the one that the database would deploy. Rates count the operations of the \
    direct algorithm, including padding, or the bytes of operands and output where no tensors are multiplied. The \
    share of the roofline counts the work of the algorithm that the best uses; in brackets, the share by the direct \
    algorithm's operations, where another algorithm needs fewer. Kernels that skip the padding can exceed 100 %.";

const STANDINGS: &str = "Raced: timed interleaved with its rivals. Searched: timed once; the fastest of many such times is partly luck. \
    Claimed: never measured here as the code that its config becomes now. ≈: timed once, or raced while other \
    programs used more than a tenth of the threads' time; for a speed-up, also if the two times are of different \
    races or trials, so that their ratio has the noise of both. †: the schedule with which the search began; the \
    current choice was never measured.";

pub(crate) fn draw(page: &Page<'_>) -> MarkupElement {
    let headings = [
        ("task", false),
        ("times", true),
        ("default ms", true),
        ("best ms", true),
        ("speed-up", true),
        ("rate", true),
        ("of roofline", true),
        ("trials", true),
        ("failed", true),
        ("standing", false),
        ("sketch", false),
        ("workload", false),
    ];

    let ceilings = page.ceilings.as_ref().ok();
    let rows = page.histories.iter().map(|history| row(history, ceilings));
    let mut section = section("tasks", "Tasks", NOTE).child(table(&headings, rows));
    if let Some(secs) = network_secs(page.histories) {
        let timing = of_network(page.histories).map(History::speed_up_timing).max().unwrap_or(Timing::Raced);
        let [default, best] = secs.map(|secs| marked(format!("{} ms", ms(secs)), timing));
        let speed_up = marked(times(secs[0] / secs[1]), timing);
        let text = format!("default {default}, best {best}, speed-up {speed_up}");
        section = section.child(paragraph(format!("All together, each as often as it occurs: {text}.")));
    }
    section.child(MarkupElement::new("p").set("class", "note").text(STANDINGS))
}

fn row(history: &History, ceilings: Option<&Ceilings>) -> Vec<MarkupElement> {
    let (task, best_secs) = (&history.task, history.best_secs());
    let trials = history.trials().count();
    let failed = history.trials().filter(|trial| trial.measurement.outcome.is_err()).count();

    let shares = ceilings.and_then(|ceilings| history.roofline_shares(ceilings));
    let of_roofline = shares.map(|[own, direct]| match own == direct {
        true => percent(own),
        false => format!("{} ({})", percent(own), percent(direct)),
    });
    let rate = best_secs.map(|secs| task.workload.rate(secs).to_string());
    let sketch = history.best.as_ref().map(|best| best.record.config.sketch.clone());
    let standing = history.best.as_ref().map_or(NONE, word);

    vec![
        cell(&task.name),
        number_cell(task.count),
        number_cell(or_placeholder(history.default.as_ref().map(default_text))),
        number_cell(or_placeholder(best_secs.map(|secs| marked(ms(secs), history.best_timing())))),
        number_cell(or_placeholder(history.speed_up().map(|ratio| marked(times(ratio), history.speed_up_timing())))),
        number_cell(or_placeholder(rate)),
        number_cell(or_placeholder(of_roofline)),
        number_cell(trials),
        number_cell(failed),
        cell(standing),
        cell(or_placeholder(sketch)),
        code_cell(&task.workload).set("class", "workload"),
    ]
}

fn default_text(default: &DefaultTime) -> String {
    format!("{}{}", if default.is_current { "" } else { "† " }, marked(ms(default.run_secs), default.timing))
}

fn word(best: &Best) -> &'static str {
    match best.standing {
        TimeProvenance::Raced => "raced",
        TimeProvenance::Searched => "searched",
        TimeProvenance::Claimed => "claimed",
    }
}

/// Returns the tasks that the network runs.
fn of_network(histories: &[History]) -> impl Iterator<Item = &History> {
    histories.iter().filter(|history| history.task.count > 0)
}

/// Returns the total default and best times, each task as often as it occurs. Returns `None` for
/// fewer than two tasks, or if a time is missing.
fn network_secs(histories: &[History]) -> Option<[f64; 2]> {
    let total = |secs: fn(&History) -> Option<f64>| {
        of_network(histories).map(|history| Some(secs(history)? * history.task.count as f64)).sum::<Option<f64>>()
    };
    if of_network(histories).count() < 2 {
        None
    } else {
        Some([total(History::default_secs)?, total(History::best_secs)?])
    }
}

const REGRET: &str =
    "Time of the schedule that is chosen without measuring, the zero-trial pick, divided by the best known time.";

/// Draws the section on the slowdown of the untuned schedules.
pub(crate) fn draw_regret(histories: &[History]) -> MarkupElement {
    let section = section("regret", "Regret of the untuned pick", REGRET);
    let known = histories.iter().filter_map(|history| Some((history, history.speed_up()?)));
    let known: Vec<(&History, f64)> = known.filter(|(_, ratio)| ratio.is_finite() && *ratio > 0.0).collect();
    let Some(mean) = geometric_mean(&known.iter().map(|(_, ratio)| *ratio).collect::<Vec<_>>()) else {
        return section.child(paragraph("No task has both a default and a best time."));
    };

    let rows =
        known.iter().map(|(history, ratio)| BarRow { name: history.task.name.clone(), values: vec![Some(*ratio)] });
    let bars = Bars {
        title: "Default over best time of each task".into(),
        axis: "default over best time".into(),
        series: Vec::new(),
        rows: rows.collect(),
    };
    let mut text = format!("Geometric mean over {} of {} tasks: {}.", known.len(), histories.len(), times(mean));
    let outdated =
        known.iter().filter(|(history, _)| history.default.as_ref().is_some_and(|pick| !pick.is_current)).count();
    if outdated > 0 {
        let tasks = with_noun(outdated, "task");
        text +=
            &format!(" For {tasks} it is the pick with which the search began: the current one was never measured.");
    }
    section.child(paragraph(text)).child(MarkupElement::new("figure").set("class", "bars").child(bars.draw()))
}
