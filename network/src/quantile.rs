//! What stands for several times.

/// Share of some runs that are faster than what stands for them: disturbances only add time.
pub(crate) const QUIET: f64 = 0.25;

/// The value that a share of all, from 0 to 1, is not above; not a number if there is none.
pub fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len().saturating_sub(1) as f64 * share).round() as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}
