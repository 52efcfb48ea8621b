//! The section on failed candidates and their causes.

use std::collections::BTreeMap;

use autotune_charts::MarkupElement;
use autotune_db::Phase;
use autotune_measurement::CandidateError;

use super::history::History;
use super::html::{cell, code_cell, number_cell, paragraph, section, table};

/// Maximum number of characters shown of an error message.
const SHOWN: usize = 160;

const NOTE: &str = "Candidates without a run time, by cause. The example is the message of the first.";

/// One kind of failure of a task.
struct Cause<'h> {
    word: &'static str,
    trials: usize,
    races: usize,
    example: &'h CandidateError,
}

/// Returns the causes of a task's failures, the most frequent first.
fn causes(history: &History) -> Vec<Cause<'_>> {
    let mut causes: BTreeMap<&str, Cause<'_>> = BTreeMap::new();
    for record in &history.records {
        let Err(error) = &record.measurement.outcome else { continue };
        let word = error.kind();
        let cause = causes.entry(word).or_insert(Cause { word, trials: 0, races: 0, example: error });
        match record.phase {
            Phase::Search => cause.trials += 1,
            Phase::Race { .. } => cause.races += 1,
        }
    }
    let mut causes: Vec<Cause<'_>> = causes.into_values().collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.trials + cause.races));
    causes
}

pub(crate) fn draw(histories: &[History]) -> MarkupElement {
    let of_task = |history| causes(history).into_iter().map(move |cause| (history, cause));
    let rows: Vec<Vec<MarkupElement>> =
        histories.iter().flat_map(of_task).map(|(history, cause)| row(history, &cause)).collect();
    if rows.is_empty() {
        return section("failures", "Failures", "").child(paragraph("Every candidate ran with a correct result."));
    }
    let headings = [("task", false), ("cause", false), ("trials", true), ("in races", true), ("example", false)];
    section("failures", "Failures", NOTE).child(table(&headings, rows))
}

fn row(history: &History, cause: &Cause<'_>) -> Vec<MarkupElement> {
    let mut example = cause.example.to_string();
    if let Some((end, _)) = example.char_indices().nth(SHOWN) {
        example.truncate(end);
        example.push('…');
    }
    vec![
        cell(&history.task.name),
        cell(cause.word.replace('_', " ")),
        number_cell(cause.trials),
        number_cell(cause.races),
        code_cell(example),
    ]
}
