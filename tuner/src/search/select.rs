//! Picking a batch that is both promising and diverse (AutoTVM paper, section 5.2, equation 3).

use std::collections::HashSet;

use autotune_schedules::{Candidate, Value};

/// Up to `n` of the `scored` candidates, greedily maximising the sum of their scores plus
/// `diversity_weight` times their standard deviation times the number of distinct knob values among
/// them. Scores are of any sign and scale; they are compared in units of their spread.
///
/// The objective is submodular, so the greedy choice is within `1 - 1/e` of the best. Ties go to
/// the earlier candidate. Returns positions in `scored`, in the order of choice; the first is the
/// one with the best score, up to diversity.
pub fn select_diverse(scored: &[(Candidate, f32)], n: usize, diversity_weight: f32) -> Vec<usize> {
    let spread = standard_deviation(scored.iter().map(|(_, score)| *score)).max(f32::MIN_POSITIVE);
    let top = scored.iter().map(|(_, score)| *score).fold(f32::NEG_INFINITY, f32::max);
    let mut covered: HashSet<(&str, &str, &Value)> = HashSet::new();
    let mut left: Vec<usize> = (0..scored.len()).collect();
    let mut chosen = Vec::new();

    while chosen.len() < n {
        let gain = |&i: &usize| {
            let (candidate, score) = &scored[i];
            let fresh = knob_values(candidate).filter(|value| !covered.contains(value)).count();
            (score - top) / spread + diversity_weight * fresh as f32
        };
        // `max_by` keeps the last of equals: reversed, that is the earliest.
        let best = left.iter().enumerate().rev().map(|(at, i)| (at, gain(i))).max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((at, _)) = best else { break };
        let i = left.remove(at);
        covered.extend(knob_values(&scored[i].0));
        chosen.push(i);
    }
    chosen
}

/// The knob values of a candidate, told apart by sketch: the same knob means different things in
/// different sketches.
pub(super) fn knob_values(candidate: &Candidate) -> impl Iterator<Item = (&str, &str, &Value)> {
    let sketch = candidate.sketch();
    candidate.knobs().map(move |(name, value)| (sketch, name, value))
}

/// Standard deviation, 0 for none.
pub(super) fn standard_deviation(values: impl Iterator<Item = f32> + Clone) -> f32 {
    let n = values.clone().count().max(1) as f32;
    let mean = values.clone().sum::<f32>() / n;
    (values.map(|v| (v - mean).powi(2)).sum::<f32>() / n).sqrt()
}

#[cfg(test)]
mod tests {
    use autotune_schedules::Config;

    use super::*;
    use crate::testing::made_up;

    fn candidate(knobs: &[(&str, &str)]) -> Candidate {
        let knobs = knobs.iter().map(|(k, v)| (k.to_string(), Value::Choice(v.to_string())));
        made_up(Config { sketch: "s".into(), knobs: knobs.collect() })
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
