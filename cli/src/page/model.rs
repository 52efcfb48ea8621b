//! The section that compares the cost model's predictions with measurements.

use anyhow::Result;
use autotune::{Predicted, predict_held_out};
use autotune_charts::{Chart, ChartAxis, Colour, Mark, MarkupElement, Scale};
use autotune_cost_model::metrics::pairwise_accuracy;
use autotune_cost_model::relative_throughputs;
use autotune_db::TuningRecord;
use autotune_ir::Target;
use autotune_schedules::Config;
use autotune_workloads::Workload;

use super::history::History;
use super::html::{card, cards, paragraph, section};
use super::number::with_noun;

/// Minimum number of held-out schedules for a chart of a task.
const FEWEST: usize = 4;
/// One configuration in this many is held out.
const HELD_OUT_ONE_IN: u64 = 5;

const NOTE: &str = "The cost model is fitted, as in a search, on four fifths of the measured schedules and predicts the remaining \
    fifth; where a pretrained model ships for the target, fitting starts from it. A hash of the schedule decides \
    which are held out (FNV-1a of its text, remainder 0 by 5), so the split is always the same. Scores order the \
    schedules of one task and have no unit: a schedule further to the right is predicted to be faster. Pairwise \
    accuracy is the share of pairs of held-out schedules that are in the right order, failed ones last; guessing \
    gives 0.50.";

const SIZE: [f64; 2] = [360.0, 230.0];

fn is_held_out(config: &Config) -> bool {
    config.stable_hash().is_multiple_of(HELD_OUT_ONE_IN)
}

/// Predictions for the held-out schedules of a task.
struct Judged {
    /// Pairs of a score and a run time divided by the best held-out one, for the schedules that
    /// ran.
    points: Vec<[f64; 2]>,
    /// Number of held-out schedules.
    held_out: usize,
    /// Share of pairs in the right order; `None` if all schedules are equally fast.
    pairwise_accuracy: Option<f64>,
}

impl Judged {
    fn of(predicted: &[Predicted<'_>], workload: &Workload) -> Self {
        let of_task: Vec<_> = predicted.iter().filter(|one| one.record.workload == *workload).collect();
        let secs: Vec<Option<f64>> = of_task.iter().map(|one| one.record.measurement.run_secs()).collect();
        let best_secs = secs.iter().flatten().copied().fold(f64::INFINITY, f64::min);
        // Without a score a schedule cannot be lowered or spills heavily, so it ranks last.
        let scores: Vec<f32> = of_task.iter().map(|one| one.score.unwrap_or(f32::NEG_INFINITY)).collect();

        let point = |(score, secs): (&f32, &Option<f64>)| Some([f64::from(*score), (*secs)? / best_secs]);
        Self {
            points: scores.iter().zip(&secs).filter_map(point).filter(|point| point[0].is_finite()).collect(),
            held_out: of_task.len(),
            pairwise_accuracy: pairwise_accuracy(&scores, &relative_throughputs(&secs)),
        }
    }
}

pub(crate) fn draw(histories: &[History], target: &Target) -> Result<MarkupElement> {
    let section = section("model", "Predictions of the cost model", NOTE);
    let trials: Vec<TuningRecord> = histories.iter().flat_map(History::trials).cloned().collect();
    let Some(predicted) = predict_held_out(target, &trials, is_held_out)? else {
        return Ok(section.child(paragraph("There are too few trials to fit a model.")));
    };

    let judged: Vec<(&History, Judged)> =
        histories.iter().map(|history| (history, Judged::of(&predicted, &history.task.workload))).collect();
    let accuracies: Vec<(f64, f64)> =
        judged.iter().filter_map(|(_, judged)| Some((judged.pairwise_accuracy?, judged.held_out as f64))).collect();
    if accuracies.is_empty() {
        return Ok(section.child(paragraph("No task has two held-out schedules that differ.")));
    }
    let weight: f64 = accuracies.iter().map(|(_, weight)| weight).sum();
    let mean = accuracies.iter().map(|(accuracy, weight)| accuracy * weight).sum::<f64>() / weight;
    let over = with_noun(accuracies.len(), "task");
    let text =
        format!("Mean pairwise accuracy over {over}, weighted by their {weight:.0} held-out schedules: {mean:.2}.");

    let shown = judged.iter().filter(|(_, judged)| judged.pairwise_accuracy.is_some() && judged.points.len() >= FEWEST);
    Ok(section.child(paragraph(text)).child(cards(shown.map(|(history, judged)| figure(&history.task.name, judged)))))
}

fn figure(name: &str, judged: &Judged) -> MarkupElement {
    let accuracy =
        judged.pairwise_accuracy.map_or_else(String::new, |accuracy| format!("pairwise accuracy {accuracy:.2}, "));
    let more = format!("{accuracy}{} held out", with_noun(judged.held_out, "schedule"));
    let axes = [
        ChartAxis::new("predicted score (right: faster)", Scale::linear(judged.points.iter().map(|point| point[0]))),
        ChartAxis::new(
            "measured time over the best held-out one",
            Scale::log(judged.points.iter().map(|point| point[1])),
        ),
    ];
    let chart = Chart::new(format!("{name}: measured against predicted"), SIZE, axes);
    card(name, more, chart.mark(Mark::Dots { points: judged.points.clone(), colour: Colour::Series(0) }).draw())
}
