//! Selection of a batch that is both promising and diverse (AutoTVM paper, section 5.2, equation
//! 3).

use std::collections::HashSet;

use autotune_schedules::{Candidate, KnobValue};

/// Selects up to `n` of the `scored` candidates by greedy maximisation. The objective is the sum of
/// their scores, in units of the standard deviation of all scores, plus `diversity_weight` times
/// the number of distinct knob values among them. Scores may have any sign and scale.
///
/// The objective is submodular, so the greedy selection is within `1 - 1/e` of the best (Nemhauser,
/// Wolsey and Fisher, 1978). Ties are resolved in favour of the earlier candidate. Returns
/// positions in `scored`, in the order of selection; the first has the best score, up to diversity.
pub fn select_diverse(scored: &[(Candidate, f32)], n: usize, diversity_weight: f32) -> Vec<usize> {
    let spread = standard_deviation(scored.iter().map(|(_, score)| *score)).max(f32::MIN_POSITIVE);
    let top = scored.iter().map(|(_, score)| *score).fold(f32::NEG_INFINITY, f32::max);
    let mut covered: HashSet<(&str, &str, &KnobValue)> = HashSet::new();
    let mut left: Vec<usize> = (0..scored.len()).collect();
    let mut chosen = Vec::new();

    while chosen.len() < n {
        let gain = |&i: &usize| {
            let (candidate, score) = &scored[i];
            let fresh = knob_values(candidate).filter(|value| !covered.contains(value)).count();
            (score - top) / spread + diversity_weight * fresh as f32
        };
        // `max_by` returns the last of equal elements; in reverse order that is the earliest.
        let best = left.iter().enumerate().rev().map(|(at, i)| (at, gain(i))).max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((at, _)) = best else { break };
        let i = left.remove(at);
        covered.extend(knob_values(&scored[i].0));
        chosen.push(i);
    }
    chosen
}

/// Returns the knob values of a candidate together with its sketch, because the same knob means
/// different things in different sketches.
pub(super) fn knob_values(candidate: &Candidate) -> impl Iterator<Item = (&str, &str, &KnobValue)> {
    let sketch = candidate.sketch();
    candidate.knobs().map(move |(name, value)| (sketch, name, value))
}

/// Returns the standard deviation; 0 without values.
pub(super) fn standard_deviation(values: impl Iterator<Item = f32> + Clone) -> f32 {
    let n = values.clone().count().max(1) as f32;
    let mean = values.clone().sum::<f32>() / n;
    (values.map(|v| (v - mean).powi(2)).sum::<f32>() / n).sqrt()
}

#[cfg(test)]
mod tests {
    use autotune_schedules::Config;

    use super::*;
    use crate::testing::synthetic;

    fn candidate(knobs: &[(&str, &str)]) -> Candidate {
        let knobs = knobs.iter().map(|(k, v)| (k.to_string(), KnobValue::Choice(v.to_string())));
        synthetic(Config { sketch: "s".into(), knobs: knobs.collect() })
    }

    #[test]
    fn equal_scores_cover_new_values_first() {
        let scored = [
            (candidate(&[("a", "0"), ("b", "0")]), 1.0),
            (candidate(&[("a", "0"), ("b", "1")]), 1.0),
            (candidate(&[("a", "1"), ("b", "1")]), 1.0),
        ];
        assert_eq!(select_diverse(&scored, 2, 0.1), [0, 2]);
        assert_eq!(select_diverse(&scored, 9, 0.1), [0, 2, 1]);
        assert!(select_diverse(&[], 4, 0.1).is_empty());
    }

    #[test]
    fn a_much_better_score_wins_over_diversity_at_any_scale_and_sign() {
        for (scale, offset) in [(1.0, 0.0), (1e-6, -3.0), (1e6, -5e6)] {
            let score = |s: f32| s * scale + offset;
            let scored = [
                (candidate(&[("a", "0")]), score(0.0)),
                (candidate(&[("a", "1")]), score(9.0)),
                (candidate(&[("a", "1")]), score(10.0)),
                (candidate(&[("a", "2")]), score(1.0)),
            ];
            assert_eq!(select_diverse(&scored, 2, 0.1), [2, 1], "scale {scale}, offset {offset}");
        }
    }
}
