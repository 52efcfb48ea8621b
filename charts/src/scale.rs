//! Positions of values on an axis.

use std::f64::consts::LN_10;

/// Approximate number of intervals between ticks.
const INTERVALS: f64 = 5.0;
/// Margin at either end of an axis, as a share of its length.
const ROOM: f64 = 0.04;
/// Limit of values, beyond which their differences would overflow.
const LARGEST: f64 = 1e300;
/// Largest ratio of a logarithmic axis's ends for which ticks are those of a linear axis.
const FEW_TIMES: f64 = 4.0;
/// Largest number of decades of a logarithmic axis for which ticks are 1, 2, 5, 10, 20, ...; within
/// a single decade 3 is added.
const FEW_DECADES: f64 = 2.6;

/// A linear or logarithmic axis from a lowest to a highest value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    is_log: bool,
    /// Ends of the axis; of a logarithmic one as natural logarithms.
    low: f64,
    high: f64,
}

impl Scale {
    /// Returns a linear axis for values, with a small margin at both ends. Values that are not
    /// finite are ignored; without values it is from 0 to 1.
    pub fn linear(values: impl IntoIterator<Item = f64>) -> Self {
        Self::over(values.into_iter().filter(|value| value.is_finite()), false)
    }

    /// Returns a logarithmic axis for values, with a small margin at both ends. Values that are not
    /// finite and positive are ignored; without values it is from 1 to e.
    pub fn log(values: impl IntoIterator<Item = f64>) -> Self {
        Self::over(values.into_iter().filter(|value| value.is_finite() && *value > 0.0).map(f64::ln), true)
    }

    /// Widens a logarithmic axis so that the ratio of its ends is at least `times`, which keeps
    /// small differences small. A linear axis is unchanged.
    pub fn at_least(self, times: f64) -> Self {
        let lacking = (times.ln() - (self.high - self.low)) / 2.0;
        let room = if self.is_log && lacking > 0.0 { lacking } else { 0.0 };
        Self { low: self.low - room, high: self.high + room, ..self }
    }

    fn over(values: impl Iterator<Item = f64>, is_log: bool) -> Self {
        let values = values.map(|value| value.clamp(-LARGEST, LARGEST));
        let ends = values.fold(None, |ends: Option<[f64; 2]>, value| match ends {
            None => Some([value; 2]),
            Some([low, high]) => Some([low.min(value), high.max(value)]),
        });
        let [low, high] = ends.unwrap_or([0.0, 1.0]);
        // A single value is put in the middle.
        let least = match high.abs() {
            _ if is_log => 0.2,
            0.0 => 1.0,
            size => (0.1 * size).max(f64::MIN_POSITIVE),
        };
        let room = if high - low > 0.0 { ROOM * (high - low) } else { least };
        Self { is_log, low: low - room, high: high + room }
    }

    /// Returns the position of a value: 0 at the low end, 1 at the high end. `None` for values that
    /// the axis cannot show.
    pub fn place(&self, value: f64) -> Option<f64> {
        let value = if self.is_log { value.ln() } else { value };
        let place = (value - self.low) / (self.high - self.low);
        place.is_finite().then_some(place)
    }

    /// Returns the values at the ends.
    pub fn ends(&self) -> [f64; 2] {
        let value = |end: f64| if self.is_log { end.exp() } else { end };
        [value(self.low), value(self.high)]
    }

    /// Returns round values between the ends, with their text.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        let [low, high] = self.ends();
        let span = self.high - self.low;
        let values: Vec<f64> = if !self.is_log || span < FEW_TIMES.ln() {
            return linear_ticks(low, high);
        } else if span < FEW_DECADES * LN_10 {
            let digits: &[f64] = if span < LN_10 { &[1.0, 2.0, 3.0, 5.0] } else { &[1.0, 2.0, 5.0] };
            decades(self.low, self.high, 1).flat_map(|power| digits.iter().map(move |digit| digit * power)).collect()
        } else {
            decades(self.low, self.high, (span / LN_10 / INTERVALS).ceil() as usize).collect()
        };
        let is_shown = |value: &f64| value.is_normal() && (low..=high).contains(value);
        values.into_iter().filter(is_shown).map(|value| (value, short(value))).collect()
    }
}

/// Yields powers of ten that cover the range, given as natural logarithms.
fn decades(low: f64, high: f64, step: usize) -> impl Iterator<Item = f64> {
    // Exponents are multiples of the step, so that 1 is among the ticks if it is in the range.
    let step = step.max(1) as i32;
    let first = ((low / LN_10).floor() as i32).div_euclid(step);
    let last = ((high / LN_10).ceil() as i32).div_euclid(step);
    (first..=last).map(move |multiple| 10f64.powi(multiple * step))
}

/// Returns multiples of 1, 2 or 5 times a power of ten, with as many decimals as they need.
fn linear_ticks(low: f64, high: f64) -> Vec<(f64, String)> {
    let raw = (high - low) / INTERVALS;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|&step| step >= raw).unwrap_or(raw);
    if !(step.is_normal() && (low / step).abs() < 1e9) {
        return Vec::new();
    }
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let text =
        |value: f64| if decimals > 5 || value.abs() >= 1e6 { short(value) } else { format!("{value:.decimals$}") };

    let first = (low / step).ceil() as i64;
    let values = (first..).map(|multiple| multiple as f64 * step).take_while(|&value| value <= high);
    values.map(|value| (value, text(value))).collect()
}

/// Formats a number with three significant digits, or all its digits before the point: `0.25`,
/// `1500`, `2e-7`.
fn short(value: f64) -> String {
    let magnitude = value.abs().log10().floor();
    if (-4.0..6.0).contains(&magnitude) {
        let decimals = (2.0 - magnitude).max(0.0) as usize;
        let text = format!("{value:.decimals$}");
        let is_whole = !text.contains('.');
        return if is_whole { text } else { text.trim_end_matches('0').trim_end_matches('.').to_string() };
    }
    let text = format!("{value:.2e}");
    text.replace(".00e", "e").replace("0e", "e")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn texts(scale: Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn axis_labels_are_round() {
        assert_eq!(texts(Scale::linear([0.0, 10.0])), ["0", "5", "10"]);
        assert_eq!(texts(Scale::linear([0.012, 0.018])), ["0.012", "0.014", "0.016", "0.018"]);
        assert_eq!(texts(Scale::log([1.0, 4.6])), ["1", "2", "3"]);
        assert_eq!(texts(Scale::log([1.0, 90.0])), ["1", "2", "5", "10", "20", "50", "100"]);
        assert_eq!(texts(Scale::log([1.0, 30_000.0])), ["1", "10", "100", "1000", "10000"]);
        assert_eq!(texts(Scale::log([7.0, 14.0])), ["8", "10", "12", "14"]);
        assert_eq!(texts(Scale::log([1e-280, 1e280])), ["1e-242", "1e-121", "1", "1e121", "1e242"]);
    }

    #[test]
    fn nearly_equal_values_look_alike() {
        let [low, high] = Scale::log([1.0, 1.01]).at_least(1.5).ends();
        assert!((high / low - 1.5).abs() < 1e-9 && (low * high - 1.01).abs() < 1e-9, "{low} {high}");
        let wide = Scale::log([1.0, 2.0]);
        assert_eq!(wide.at_least(1.5), wide);
    }

    #[test]
    fn every_value_has_its_place_and_the_absurd_have_none() {
        let scale = Scale::log([0.5, f64::NAN, 0.0, -3.0, f64::INFINITY, 8.0]);
        assert!((scale.place(2.0).unwrap() - 0.5).abs() < 1e-12);
        assert!((0.0..0.1).contains(&scale.place(0.5).unwrap()));
        assert_eq!([0.0, -1.0, f64::NAN, f64::INFINITY].map(|value| scale.place(value)), [None; 4]);
        assert_eq!(Scale::linear([3.0]).place(3.0), Some(0.5));
        assert_eq!(Scale::log([5e-324]).place(5e-324), Some(0.5));
    }

    #[test]
    fn ticks_are_few_and_finite_for_any_values() {
        let values = [f64::MIN, -1.0, -0.0, 5e-324, 1e-300, 1e-9, 1.0, 1.0 + f64::EPSILON, 1e18, f64::MAX, f64::NAN];
        for a in values {
            for b in values {
                for scale in [Scale::linear([a, b]), Scale::log([a, b])] {
                    let ticks = scale.ticks();
                    assert!(ticks.len() <= 12, "{a} {b}: {ticks:?}");
                    for (value, _) in ticks {
                        let place = scale.place(value).unwrap();
                        assert!((-1e-9..=1.0 + 1e-9).contains(&place), "{a} {b}: {value} at {place}");
                    }
                }
            }
        }
    }
}
