//! Text form of numbers and times on the page.

use jiff::Timestamp;

/// Placeholder for an unknown value.
pub(crate) const NONE: &str = "–";

/// Formats milliseconds like the command's tables, and very short or very long times in scientific
/// notation.
pub(crate) fn ms(secs: f64) -> String {
    match secs * 1e3 {
        ms @ 0.001..1e6 => format!("{ms:.4}"),
        ms => format!("{ms:.3e}"),
    }
}

/// Formats a ratio: `3.66x`.
pub(crate) fn times(ratio: f64) -> String {
    match ratio {
        0.01..1e5 => format!("{ratio:.2}x"),
        _ => format!("{ratio:.2e}x"),
    }
}

/// Formats a share: `85 %`.
pub(crate) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent @ 0.0..1e5 => format!("{percent:.0} %"),
        percent => format!("{percent:.1e} %"),
    }
}

/// Formats a rate: `881.2`, `0.093`.
pub(crate) fn rate(value: f64) -> String {
    match value {
        10.0..1e6 => format!("{value:.1}"),
        0.05..10.0 => format!("{value:.3}"),
        0.0 => "0".into(),
        _ => format!("{value:.2e}"),
    }
}

/// Returns a text or the placeholder [`NONE`].
pub(crate) fn or_placeholder(text: Option<String>) -> String {
    text.unwrap_or_else(|| NONE.into())
}

/// Formats seconds since 1970: `2026-11-22 19:43 UTC`, or as a number if they exceed the calendar.
pub(crate) fn moment(unix_secs: u64) -> String {
    let moment = i64::try_from(unix_secs).ok().and_then(|secs| Timestamp::from_second(secs).ok());
    moment.map_or_else(|| format!("{unix_secs} s after 1970"), |at| at.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// Formats a count with its noun: `1 trial`, `2 trials`.
pub(crate) fn with_noun(count: usize, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Returns the geometric mean, computed through logarithms so that it cannot overflow; `None` for
/// no values.
pub(crate) fn geometric_mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().map(|value| value.ln()).sum();
    (!values.is_empty()).then(|| (sum / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_whatever_they_are() {
        assert_eq!([2.624e-4, 5e-324, 1e300].map(ms), ["0.2624", "4.941e-321", "1.000e303"]);
        assert_eq!([3.664, 1e9, f64::INFINITY].map(times), ["3.66x", "1.00e9x", "infx"]);
        assert_eq!([0.853, 1e12].map(percent), ["85 %", "1.0e14 %"]);
        assert_eq!([881.23, 0.0926, 0.0, 1e-9, 1e18].map(rate), ["881.2", "0.093", "0", "1.00e-9", "1.00e18"]);
        assert_eq!([with_noun(0, "trial"), with_noun(1, "trial")], ["0 trials", "1 trial"]);
    }

    #[test]
    fn a_moment_is_a_date_as_long_as_there_is_one() {
        assert_eq!(moment(0), "1970-01-01 00:00 UTC");
        assert_eq!(moment(951_827_696), "2000-02-29 12:34 UTC");
        assert_eq!(moment(u64::MAX), "18446744073709551615 s after 1970");
    }

    #[test]
    fn a_geometric_mean_does_not_overflow() {
        assert_eq!(geometric_mean(&[]), None);
        assert!((geometric_mean(&[2.0, 8.0]).unwrap_or_default() - 4.0).abs() < 1e-12);
        assert!(geometric_mean(&[1e300, 1e300]).is_some_and(f64::is_finite));
    }
}
