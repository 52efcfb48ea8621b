//! Durations in words, such as budgets of time.

use std::time::Duration;

use thiserror::Error;

/// Error: a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not a time such as 90s, 10m or 1h30m")]
pub struct DurationError(String);

/// Parses a duration such as `90`, `90s`, `10m`, `1h30m` or `500ms`; at least a millisecond.
///
/// ```
/// assert_eq!(autotune::parse_duration("1m30s")?.as_secs(), 90);
/// # Ok::<(), autotune::DurationError>(())
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let bad = || DurationError(text.into());
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let unit_len = tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_len);
        let millis: u64 = match unit {
            "ms" => 1,
            "s" | "" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(bad()),
        };
        let part = number.parse::<u64>().ok().and_then(|n| n.checked_mul(millis)).ok_or_else(bad)?;
        total = total.checked_add(Duration::from_millis(part)).ok_or_else(bad)?;
        rest = next;
    }
    if total.is_zero() { Err(bad()) } else { Ok(total) }
}
