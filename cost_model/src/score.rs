//! Scores of measured times.

/// Returns the throughput of each candidate of one group, relative to the fastest.
///
/// The fastest has 1, a candidate that takes twice as long 0.5. A candidate without a time (it
/// failed), or with a time that is not a positive number, has 0: it ranks below every candidate
/// that ran and does not influence other scores.
///
/// ```
/// let run_secs = [Some(0.004), None, Some(0.001), Some(0.002)];
/// assert_eq!(autotune_cost_model::relative_throughputs(&run_secs), [0.25, 0.0, 1.0, 0.5]);
/// ```
pub fn relative_throughputs(run_secs: &[Option<f64>]) -> Vec<f32> {
    let valid = |secs: &f64| secs.is_finite() && *secs > 0.0;
    let best_secs = run_secs.iter().flatten().copied().filter(valid).fold(f64::INFINITY, f64::min);
    run_secs
        .iter()
        .map(|secs| match secs.filter(valid) {
            // Never rounded down to 0, so that a slow candidate still ranks above a failed one.
            Some(secs) => ((best_secs / secs) as f32).max(f32::MIN_POSITIVE),
            None => 0.0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_do_not_move_the_scale() {
        let ran = [Some(3.0), Some(1.5)];
        let mixed = [Some(3.0), None, Some(f64::INFINITY), Some(1.5), Some(f64::NAN), Some(0.0), Some(-1.0)];
        assert_eq!(relative_throughputs(&ran), [0.5, 1.0]);
        assert_eq!(relative_throughputs(&mixed), [0.5, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn order_is_that_of_speed() {
        let run_secs = [Some(1e-300), Some(1e300), Some(2e-300), None];
        let scores = relative_throughputs(&run_secs);
        assert_eq!(scores[0], 1.0);
        assert_eq!(scores[2], 0.5);
        assert!(scores[1] > scores[3], "{scores:?}");
        assert_eq!(scores[3], 0.0);
    }

    #[test]
    fn without_any_time_all_are_zero() {
        assert!(relative_throughputs(&[]).is_empty());
        assert_eq!(relative_throughputs(&[None, Some(f64::NAN)]), [0.0, 0.0]);
    }
}
