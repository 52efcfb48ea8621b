//! Metrics of how well predicted scores rank candidates.
//!
//! Higher scores are better, with any sign; only their order counts. A metric is `None` where it is
//! not defined: slices of different lengths, NaN, or nothing to compare. Candidates of different
//! groups are not comparable: compute the metrics of each group separately.

/// Returns the share of pairs that are predicted in the right order, from 0 to 1; guessing gives
/// 0.5.
///
/// Pairs with equal actual scores do not count; a pair with equal predictions counts one half.
/// Takes time quadratic in the number of candidates.
///
/// ```
/// use autotune_cost_model::metrics::pairwise_accuracy;
///
/// assert_eq!(pairwise_accuracy(&[0.1, 0.7, 0.3], &[-3.0, -1.0, -2.0]), Some(1.0));
/// assert_eq!(pairwise_accuracy(&[0.1, 0.7], &[5.0, 5.0]), None);
/// ```
pub fn pairwise_accuracy(predicted: &[f32], actual: &[f32]) -> Option<f64> {
    let len = comparable(predicted, actual)?;
    let mut pairs = 0_u64;
    let mut half_hits = 0_u64;
    for i in 1..len {
        for j in 0..i {
            if actual[i] == actual[j] {
                continue;
            }
            pairs += 1;
            half_hits += if predicted[i] == predicted[j] {
                1
            } else {
                2 * u64::from((predicted[i] < predicted[j]) == (actual[i] < actual[j]))
            };
        }
    }
    (pairs > 0).then(|| half_hits as f64 / (2 * pairs) as f64)
}

/// Returns the share of the actual best `k` candidates among the predicted best `k`, from 0 to 1;
/// guessing gives `k / n`.
///
/// A candidate whose actual score equals that of the `k`-th best counts as one of the best. If
/// predictions are tied at the `k`-th place, the result is the mean over all ways to break the tie.
/// `k` is limited to the number of candidates; the metric is not defined for 0.
///
/// ```
/// use autotune_cost_model::metrics::top_k_recall;
///
/// let actual = [-1.0, -2.0, -3.0, -4.0];
/// assert_eq!(top_k_recall(&[0.4, 0.1, 0.3, 0.2], &actual, 2), Some(0.5));
/// assert_eq!(top_k_recall(&[0.0; 4], &actual, 1), Some(0.25));
/// ```
pub fn top_k_recall(predicted: &[f32], actual: &[f32], k: usize) -> Option<f64> {
    let len = comparable(predicted, actual)?;
    let k = k.min(len);
    let kth = |values: &[f32]| {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        sorted.get(k.checked_sub(1)?).copied()
    };
    let (predicted_kth, actual_kth) = (kth(predicted)?, kth(actual)?);
    // Counts of candidates predicted above the k-th place and of those tied with it, and how many
    // of each are among the actual best.
    let (mut above, mut above_hits, mut tied, mut tied_hits) = (0_usize, 0_usize, 0_usize, 0_usize);
    for (&predicted, &actual) in predicted.iter().zip(actual) {
        let hit = usize::from(actual >= actual_kth);
        if predicted > predicted_kth {
            above += 1;
            above_hits += hit;
        } else if predicted == predicted_kth {
            tied += 1;
            tied_hits += hit;
        }
    }
    let hits = above_hits as f64 + tied_hits as f64 * (k - above) as f64 / tied as f64;
    Some(hits / k as f64)
}

/// Returns Spearman's rank correlation, from -1 to 1; guessing gives 0. Ties share the mean of
/// their ranks. Not defined if all predictions or all actual scores are equal.
///
/// ```
/// use autotune_cost_model::metrics::spearman;
///
/// let correlation = spearman(&[1.0, 2.0, 30.0], &[-9.0, -1.0, -0.5]);
/// assert!(correlation.is_some_and(|correlation| (correlation - 1.0).abs() < 1e-12));
/// ```
pub fn spearman(predicted: &[f32], actual: &[f32]) -> Option<f64> {
    let len = comparable(predicted, actual)?;
    let (predicted, actual) = (ranks(predicted), ranks(actual));
    // Ranks with shared ties have this mean, too.
    let mean = (len as f64 - 1.0) / 2.0;
    let (mut covariance, mut predicted_variance, mut actual_variance) = (0.0, 0.0, 0.0);
    for (predicted, actual) in predicted.iter().zip(&actual) {
        covariance += (predicted - mean) * (actual - mean);
        predicted_variance += (predicted - mean).powi(2);
        actual_variance += (actual - mean).powi(2);
    }
    let scale = (predicted_variance * actual_variance).sqrt();
    (scale > 0.0).then(|| covariance / scale)
}

/// Returns the rank of each value, from 0; ties share the mean of their ranks.
fn ranks(values: &[f32]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for tied in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = first as f64 + (tied.len() as f64 - 1.0) / 2.0;
        for &index in tied {
            ranks[index] = rank;
        }
        first += tied.len();
    }
    ranks
}

fn comparable(predicted: &[f32], actual: &[f32]) -> Option<usize> {
    let ordered = |values: &[f32]| values.iter().all(|value| !value.is_nan());
    (predicted.len() == actual.len() && ordered(predicted) && ordered(actual)).then_some(actual.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    type Metric = fn(&[f32], &[f32]) -> Option<f64>;

    const METRICS: [Metric; 3] = [pairwise_accuracy, |predicted, actual| top_k_recall(predicted, actual, 3), spearman];

    #[test]
    fn undefined_where_there_is_nothing_to_compare() {
        for metric in METRICS {
            assert_eq!(metric(&[], &[]), None);
            assert_eq!(metric(&[1.0, 2.0], &[1.0]), None);
            assert_eq!(metric(&[1.0, f32::NAN], &[1.0, 2.0]), None);
            assert_eq!(metric(&[1.0, 2.0], &[f32::NAN, 2.0]), None);
        }
        assert_eq!(pairwise_accuracy(&[1.0, 2.0], &[3.0, 3.0]), None);
        assert_eq!(spearman(&[1.0, 2.0], &[3.0, 3.0]), None);
        assert_eq!(spearman(&[1.0, 1.0], &[3.0, 4.0]), None);
        assert_eq!(spearman(&[1.0], &[1.0]), None);
        assert_eq!(top_k_recall(&[1.0, 2.0], &[3.0, 4.0], 0), None);
    }

    #[test]
    fn perfect_and_inverted_orders() {
        let actual = [-5.0, -1.0, f32::NEG_INFINITY, 0.0, 3.5];
        let inverted = actual.map(|score: f32| -score);
        assert_eq!(pairwise_accuracy(&actual, &actual), Some(1.0));
        assert_eq!(pairwise_accuracy(&inverted, &actual), Some(0.0));
        assert_eq!(spearman(&actual, &actual), Some(1.0));
        assert_eq!(spearman(&inverted, &actual), Some(-1.0));
        assert_eq!(top_k_recall(&actual, &actual, 2), Some(1.0));
        assert_eq!(top_k_recall(&inverted, &actual, 2), Some(0.0));
        assert_eq!(top_k_recall(&inverted, &actual, 99), Some(1.0));
    }

    #[test]
    fn ties() {
        // Of the pairs (0,1) (0,2) (1,2), the last has equal actual scores, (0,1) equal
        // predictions, and (0,2) is right.
        assert_eq!(pairwise_accuracy(&[1.0, 1.0, 2.0], &[0.0, 1.0, 1.0]), Some(0.75));
        // Three candidates have the actual score of the best two.
        assert_eq!(top_k_recall(&[4.0, 3.0, 2.0, 1.0], &[0.0, 7.0, 7.0, 7.0], 2), Some(0.5));
        // Three candidates share the second predicted place; one of them is among the actual best
        // two.
        let recall = top_k_recall(&[9.0, 5.0, 5.0, 5.0], &[4.0, 3.0, 2.0, 1.0], 2);
        assert!((recall.unwrap() - (1.0 + 1.0 / 3.0) / 2.0).abs() < 1e-12, "{recall:?}");
        // Ranks 0.5 0.5 2 compared with 0 1.5 1.5.
        let correlation = spearman(&[1.0, 1.0, 2.0], &[0.0, 1.0, 1.0]).unwrap();
        assert!((correlation - 0.5).abs() < 1e-12, "{correlation}");
        // Zeros of either sign are equal.
        assert_eq!(ranks(&[0.0, -0.0, 1.0]), [0.5, 0.5, 2.0]);
    }

    #[test]
    fn only_the_order_counts() {
        for seed in 0..50_u64 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let len = random.random_range(2..60);
            // Few different values, so that there are ties.

            let mut scores = || -> Vec<f32> { (0..len).map(|_| random.random_range(-8..8) as f32).collect() };
            let (predicted, actual) = (scores(), scores());
            let warp =
                |values: &[f32]| -> Vec<f32> { values.iter().map(|value| value.powi(3) * 0.25 - 700.0).collect() };
            let negated = |values: &[f32]| -> Vec<f32> { values.iter().map(|value| -value).collect() };
            for metric in METRICS {
                let expected = metric(&predicted, &actual);
                assert_eq!(metric(&warp(&predicted), &warp(&actual)), expected, "seed {seed}");
            }
            let accuracy = pairwise_accuracy(&predicted, &actual);
            let opposite = pairwise_accuracy(&negated(&predicted), &actual);
            if let (Some(accuracy), Some(opposite)) = (accuracy, opposite) {
                assert!((accuracy + opposite - 1.0).abs() < 1e-12, "seed {seed}: {accuracy} {opposite}");
            }
            let forth = spearman(&predicted, &actual);
            assert_eq!(forth.is_some(), spearman(&actual, &predicted).is_some(), "seed {seed}");
            if let (Some(forth), Some(opposite)) = (forth, spearman(&negated(&predicted), &actual)) {
                assert!((forth + opposite).abs() < 1e-12, "seed {seed}: {forth} {opposite}");
                assert!(forth.abs() <= 1.0 + 1e-12, "seed {seed}: {forth}");
            }
        }
    }

    #[test]
    fn guessing_scores_as_documented() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let mut scores = || -> Vec<f32> { (0..1500).map(|_| random.random_range(-1.0..1.0)).collect() };
        let (predicted, actual) = (scores(), scores());
        let near = |value: Option<f64>, expected: f64| assert!((value.unwrap() - expected).abs() < 0.06, "{value:?}");
        near(pairwise_accuracy(&predicted, &actual), 0.5);
        near(spearman(&predicted, &actual), 0.0);
        near(top_k_recall(&predicted, &actual, 300), 0.2);
    }
}
