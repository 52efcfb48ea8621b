//! Quantiles of measured times.

/// Quantile that represents several runs. It is low, since disturbances only add time.
pub(crate) const QUIET: f64 = 0.25;

/// Returns the `share` quantile of the values, with `share` from 0 to 1; NaN if there are none.
pub fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len().saturating_sub(1) as f64 * share).round() as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}
