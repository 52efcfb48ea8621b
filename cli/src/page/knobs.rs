//! The section on the effect of each knob on the run time.

use std::collections::BTreeMap;

use autotune_charts::MarkupElement;
use autotune_schedules::KnobValue;

use super::history::History;
use super::html::{card, cards, code_cell, number_cell, paragraph, section, table};
use super::number::{NONE, percent, with_noun};

/// Minimum number of trials for a statement about a task.
const FEWEST: usize = 20;
/// Maximum number of knobs shown per task.
const SHOWN: usize = 6;

const NOTE: &str = "Share of the variance of the logarithm of the run time that a single knob explains, over the trials of the \
    winner's sketch that ran: epsilon squared of grouping them by the knob's value, corrected for the share that as \
    many groups explain by chance. A search measures fast schedules more often, so the shares hold for the measured \
    schedules; they need not add up to 100 %.";

/// Effect of one knob on the run time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Effect {
    pub(crate) knob: String,
    /// Share of the variance that the knob explains; `None` where it is undefined: one value only,
    /// or another value in each trial.
    pub(crate) share: Option<f64>,
    /// Number of values tried.
    pub(crate) values: usize,
    /// Value in the best schedule.
    pub(crate) winner: String,
}

/// Returns the effects of the knobs in the best schedule's sketch, the largest first, and the
/// number of trials they are computed from. Returns `None` if these are fewer than [`FEWEST`].
pub(crate) fn effects(history: &History) -> Option<(Vec<Effect>, usize)> {
    let winner = &history.best.as_ref()?.record.config;
    let of_sketch = history.trials().filter(|trial| trial.config.sketch == winner.sketch);
    let timed = of_sketch.filter_map(|trial| Some((&trial.config.knobs, trial.measurement.run_secs()?.ln())));
    let timed: Vec<_> = timed.collect();
    if timed.len() < FEWEST {
        return None;
    }

    let effect = |(knob, value): (&String, &KnobValue)| {
        let mut groups: BTreeMap<Option<&KnobValue>, Vec<f64>> = BTreeMap::new();
        for (knobs, log_secs) in &timed {
            groups.entry(knobs.get(knob)).or_default().push(*log_secs);
        }
        let groups: Vec<Vec<f64>> = groups.into_values().collect();
        Effect { knob: knob.clone(), share: epsilon_squared(&groups), values: groups.len(), winner: format!("{value}") }
    };
    let mut effects: Vec<Effect> = winner.knobs.iter().map(effect).collect();
    let order = |effect: &Effect| effect.share.unwrap_or(-1.0);
    effects.sort_by(|a, b| order(b).total_cmp(&order(a)));
    Some((effects, timed.len()))
}

/// Returns epsilon squared (Kelley, 1935) of grouped values: the share of the variance between
/// groups, corrected for chance, from 0 to 1. It is `None` for a single group, one value in each
/// group, or no variance.
fn epsilon_squared(groups: &[Vec<f64>]) -> Option<f64> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let squares = |values: &[f64], from: f64| values.iter().map(|value| (value - from).powi(2)).sum::<f64>();

    let all = groups.concat();
    let total = squares(&all, mean(&all));
    let within: f64 = groups.iter().map(|group| squares(group, mean(group))).sum();
    let (count, spare) = (groups.len(), all.len().checked_sub(groups.len())?);
    if count < 2 || spare == 0 || total <= 0.0 {
        return None;
    }
    // Mean square within groups, times the degrees of freedom between them.
    let by_chance = (count - 1) as f64 * within / spare as f64;
    Some(((total - within - by_chance) / total).clamp(0.0, 1.0))
}

pub(crate) fn draw(histories: &[History]) -> MarkupElement {
    let section = section("knobs", "Knobs that matter", NOTE);
    let known: Vec<_> = histories.iter().filter_map(|history| Some((history, effects(history)?))).collect();
    if known.is_empty() {
        let fewest =
            format!("Too few trials for an estimate: no task has {FEWEST} trials of its winner's sketch that ran.");
        return section.child(paragraph(fewest));
    }

    let card = |(history, (effects, trials)): &(&History, (Vec<Effect>, usize))| {
        let sketch = history.best.as_ref().map_or(NONE, |best| &best.record.config.sketch);
        let headings = [("knob", false), ("explains", true), ("", false), ("values", true), ("winner's", false)];
        let rows = effects.iter().take(SHOWN).map(row);
        card(&history.task.name, format!("{sketch}, {}", with_noun(*trials, "trial")), table(&headings, rows))
    };
    let lacking = histories.len() - known.len();
    let note = format!(
        "Left out {} with fewer than {FEWEST} trials of the winner's sketch that ran.",
        with_noun(lacking, "task")
    );
    let note = (lacking > 0).then(|| paragraph(note));
    section.children(note).child(cards(known.iter().map(card)))
}

fn row(effect: &Effect) -> Vec<MarkupElement> {
    let share = effect.share.unwrap_or_default();
    let bar = MarkupElement::new("span").set("class", "bar").set("style", format!("width:{:.0}px", 40.0 * share));
    vec![
        code_cell(&effect.knob),
        number_cell(effect.share.map_or_else(|| NONE.into(), percent)),
        MarkupElement::new("td").child(bar),
        number_cell(effect.values),
        code_cell(&effect.winner),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune::Task;
    use autotune_db::{Best, TimeProvenance};

    use super::*;
    use crate::page::made_up::record;

    fn history(trials: usize, secs: impl Fn(usize) -> f64) -> History {
        let workload = "matmul:m=8,n=16,k=8";
        let records: Vec<_> = (0..trials).map(|i| record(workload, i, Some(secs(i)), 0)).collect();
        let best = records.first().map(|record| Best { record: record.clone(), standing: TimeProvenance::Searched });
        History { task: Task::single(workload.parse().unwrap()), records, untrusted: 0, best, default: None }
    }

    #[test]
    fn the_knob_that_decides_is_first_and_chance_explains_nothing() {
        // The run time depends on whether the number is odd, apart from a little noise.
        let (effects, trials) =
            effects(&history(40, |i| [1.0, 3.0][i % 2] * (1.0 + 0.01 * (i / 2 % 3) as f64))).unwrap();
        assert_eq!(trials, 40);
        assert_eq!((effects[0].knob.as_str(), effects[0].values, effects[0].winner.as_str()), ("odd", 2, "0"));
        assert!(effects[0].share.unwrap() > 0.99, "{effects:?}");
        let of = |knob: &str| effects.iter().find(|effect| effect.knob == knob).unwrap();
        assert_eq!(of("tile").share, None, "every trial has its own tile");
        assert_eq!(of("same").share, None, "there is one value only");

        let noise = |i: usize| 1.0 + (i * 7919 % 101) as f64;
        let (effects, _) = super::effects(&history(200, noise)).unwrap();
        assert!(effects.iter().all(|effect| effect.share.unwrap_or_default() < 0.05), "{effects:?}");
    }

    #[test]
    fn too_little_is_said_to_be() {
        assert_eq!(effects(&history(FEWEST - 1, |_| 1.0)), None);
        assert_eq!(effects(&history(0, |_| 1.0)), None);
        let (effects, _) = effects(&history(FEWEST, |_| 1.0)).unwrap();
        assert!(effects.iter().all(|effect| effect.share.is_none()), "equal times have no variance");
        assert!(draw(&[history(3, |_| 1.0)]).to_string().contains("Too few trials"));
    }

    #[test]
    fn absurd_times_do_no_harm() {
        let (effects, _) = effects(&history(40, |i| [5e-324, 1e308][i % 2])).unwrap();
        assert_eq!((effects[0].knob.as_str(), effects[0].share), ("odd", Some(1.0)));
    }
}
