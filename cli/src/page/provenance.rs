//! The section on the origin of the records.

use std::collections::BTreeMap;

use autotune_charts::MarkupElement;
use autotune_db::{Phase, TuningRecord};

use super::Page;
use super::html::{cell, section};
use super::number::{moment, with_noun};

/// Maximum number of distinct values shown in a row.
const SHOWN: usize = 8;

pub(crate) fn draw(page: &Page<'_>) -> MarkupElement {
    let records: Vec<&TuningRecord> = page.histories.iter().flat_map(|history| &history.records).collect();
    let texts = |text: &dyn Fn(&TuningRecord) -> String| distinct(records.iter().map(|record| text(record)));
    let toolchain = |record: &TuningRecord| {
        let backend = record.provenance.backend.map_or_else(String::new, |backend| format!("{backend}: "));
        format!("{backend}{} {}", record.provenance.compiler, record.provenance.flags)
    };

    let rows = [
        ("target", page.key.to_string()),
        ("device", texts(&|record| record.provenance.device.clone())),
        ("records", records_text(page, &records)),
        ("measured", dates(&records)),
        ("seeds", texts(&|record| record.provenance.seed.to_string())),
        ("tuner", texts(&|record| record.provenance.tuner_version.clone())),
        ("lowering version", texts(&|record| record.provenance.lowering.to_string())),
        ("code made by", texts(&toolchain)),
        ("timing options", texts(&|record| record.provenance.harness.clone())),
        ("ceilings", ceilings(page)),
        ("page written by", format!("autotune {}", env!("CARGO_PKG_VERSION"))),
    ];
    let row = |(name, text): (&'static str, String)| {
        let name = MarkupElement::new("th").set("scope", "row").text(name);
        MarkupElement::new("tr").child(name).child(cell(text))
    };
    let table =
        MarkupElement::new("table").set("class", "facts").child(MarkupElement::new("tbody").children(rows.map(row)));
    section("provenance", "Provenance", "").child(MarkupElement::new("div").set("class", "wide").child(table))
}

/// Lists the distinct texts, the most frequent first, each with its number of records if there are
/// several.
fn distinct(texts: impl Iterator<Item = String>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));

    let named = |text: &str| if text.trim().is_empty() { "not recorded".to_string() } else { text.trim().to_string() };
    if let [(only, _)] = &counts[..] {
        return named(only);
    }
    let shown =
        counts.iter().take(SHOWN).map(|(text, count)| format!("{} ({})", named(text), with_noun(*count, "record")));
    let more = counts.len().saturating_sub(SHOWN);
    let more = (more > 0).then(|| format!("and {more} more"));
    shown.chain(more).collect::<Vec<_>>().join("; ")
}

/// Counts the records by kind, and the untrusted records left out.
fn records_text(page: &Page<'_>, records: &[&TuningRecord]) -> String {
    let raced = records.iter().filter(|record| record.phase != Phase::Search).count();
    let claims: usize = page.histories.iter().map(|history| history.untrusted).sum();
    let shown = records.iter().filter(|record| record.is_untrusted()).count();
    let mut text = format!(
        "{}: {}, {raced} of races",
        with_noun(records.len(), "record"),
        with_noun(records.len() - raced, "trial")
    );
    if shown > 0 {
        text += &format!("; {} never measured here as current code", with_noun(shown, "untrusted record"));
    }
    if claims > shown {
        text += &format!(
            "; {} left out, since their tasks were measured here",
            with_noun(claims - shown, "untrusted record")
        );
    }
    text
}

fn dates(records: &[&TuningRecord]) -> String {
    let moments = || records.iter().map(|record| record.provenance.unix_secs);
    let [first, last] = [moments().min(), moments().max()].map(|at| at.map(moment).unwrap_or_default());
    if first == last { first } else { format!("{first} to {last}") }
}

fn ceilings(page: &Page<'_>) -> String {
    match &page.ceilings {
        Ok(_) => "measured on this machine".into(),
        Err(why) => format!("unknown: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_provenance_is_counted_and_common_provenance_is_said_once() {
        let text = |texts: &[&str]| distinct(texts.iter().map(|text| text.to_string()));
        assert_eq!(text(&["a", "a"]), "a");
        assert_eq!(text(&[" "]), "not recorded");
        assert_eq!(text(&["b", "a", "b"]), "b (2 records); a (1 record)");
        let many: Vec<String> = (0..20).map(|i| format!("{i:02}")).collect();
        assert!(distinct(many.into_iter()).ends_with("07 (1 record); and 12 more"));
    }
}
