//! Scales of 8-bit tensors, and methods that choose the range of a tensor.

use std::fmt;

use super::statistics::TensorStatistics;

/// Largest unsigned 8-bit integer.
const MOST: f32 = 255.0;

/// Smallest scale, whose reciprocal is far from overflow.
const LEAST_SCALE: f32 = 1e-30;

/// Share of the elements that the percentile leaves outside of the range, half at each end.
const OUTSIDE: f64 = 1e-4;

/// Number of ranges that are compared: multiples of the largest range, in equal steps.
const CANDIDATES: usize = 64;

/// Scale and zero point of an unsigned 8-bit tensor: its numbers are `(q - zero) * scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TensorScale {
    /// Difference of two neighbouring numbers.
    pub scale: f32,
    /// Integer that stands for 0.
    pub zero: u8,
}

impl TensorScale {
    /// Returns the scale whose numbers span a range, which is extended to include 0.
    pub fn of_range([least, most]: [f32; 2]) -> Self {
        let (least, most) = (least.min(0.0), most.max(0.0));
        if least == most {
            return Self { scale: 1.0, zero: 0 };
        }
        // Each end is divided first, since their difference may overflow.
        let scale = (most / MOST - least / MOST).max(LEAST_SCALE);
        Self { scale, zero: (-least / scale).round().clamp(0.0, MOST) as u8 }
    }

    /// Returns the number that stands for another one.
    pub(super) fn rounded(self, number: f32) -> f32 {
        let zero = f32::from(self.zero);
        (((number / self.scale).round_ties_even() + zero).clamp(0.0, MOST) - zero) * self.scale
    }
}

/// Method that chooses the range of a tensor from its statistics; elements beyond it saturate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeMethod {
    /// Range from the least to the largest element.
    MinMax,
    /// Range of 99.99 % of the elements.
    Percentile,
    /// Range whose distribution loses the least information (Kullback-Leibler divergence).
    Entropy,
    /// Range with the least mean squared error of the elements.
    SquaredError,
}

impl RangeMethod {
    /// Every method, in the order of the enumeration.
    pub const ALL: [Self; 4] = [Self::MinMax, Self::Percentile, Self::Entropy, Self::SquaredError];

    /// Returns the method's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::MinMax => "min-max",
            Self::Percentile => "percentile",
            Self::Entropy => "entropy",
            Self::SquaredError => "mse",
        }
    }

    /// Chooses the scale of a tensor.
    pub fn scale(self, statistics: &TensorStatistics) -> TensorScale {
        let whole = statistics.range();
        let range = match self {
            Self::MinMax => whole,
            Self::Percentile => statistics.without(OUTSIDE),
            Self::Entropy => cheapest(whole, |range| statistics.divergence(range)),
            Self::SquaredError => cheapest(whole, |range| statistics.squared_error(TensorScale::of_range(range))),
        };
        TensorScale::of_range(range)
    }
}

impl fmt::Display for RangeMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Returns the range with the least cost among parts of the whole range, down to an eighth of it.
fn cheapest([least, most]: [f32; 2], cost: impl Fn([f32; 2]) -> f64) -> [f32; 2] {
    let part = |number: usize| {
        let share = number as f32 / CANDIDATES as f32;
        [least * share, most * share]
    };
    // From the whole range on, so that it wins where all cost the same.
    let ranges = (CANDIDATES / 8..=CANDIDATES).rev().map(part);
    let costs = ranges.map(|range| (cost(range), range));
    costs.min_by(|(a, _), (b, _)| a.total_cmp(b)).map_or([least, most], |(_, range)| range)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn statistics(numbers: &[f32]) -> TensorStatistics {
        let mut statistics = TensorStatistics::default();
        statistics.widen(numbers);
        statistics.count(numbers);
        statistics
    }

    proptest! {
        #[test]
        fn zero_is_exact_and_numbers_in_range_err_by_half_a_step(
            ends in [-1e30f32..1e30, -1e30f32..1e30], share in 0f32..1.0
        ) {
            let [least, most] = [ends[0].min(ends[1]), ends[0].max(ends[1])];
            let scale = TensorScale::of_range([least, most]);
            prop_assert!(scale.scale.is_finite() && scale.scale > 0.0);
            prop_assert_eq!(scale.rounded(0.0), 0.0);
            let number = least.min(0.0) * (1.0 - share) + most.max(0.0) * share;
            // The zero point is rounded, so that an end may be half a step outside.
            prop_assert!((scale.rounded(number) - number).abs() <= 1.001 * scale.scale);
        }

        #[test]
        fn every_method_stays_within_the_range(numbers in prop::collection::vec(-100f32..100.0, 1..200)) {
            let statistics = statistics(&numbers);
            let whole = TensorScale::of_range(statistics.range()).scale;
            for method in RangeMethod::ALL {
                let scale = method.scale(&statistics);
                prop_assert!(scale.scale > 0.0 && scale.scale <= whole * 1.0001, "{method}: {scale:?}");
            }
        }
    }

    #[test]
    fn outliers_are_cut_off_by_all_methods_but_one() {
        let mut numbers: Vec<f32> = (0..1_000_000).map(|number| (number % 1000) as f32 / 1000.0).collect();
        numbers.push(4.0);
        let statistics = statistics(&numbers);
        let most = |method: RangeMethod| method.scale(&statistics).scale * MOST;
        assert!((most(RangeMethod::MinMax) - 4.0).abs() < 1e-5);
        for method in [RangeMethod::Percentile, RangeMethod::Entropy, RangeMethod::SquaredError] {
            assert!(most(method) < 3.5, "{method}: {}", most(method));
        }
        assert!(most(RangeMethod::Percentile) < 1.1);
    }

    #[test]
    fn a_tensor_of_zeros_and_the_smallest_numbers_have_a_scale() {
        assert_eq!(TensorScale::of_range([0.0, 0.0]), TensorScale { scale: 1.0, zero: 0 });
        assert_eq!(TensorScale::of_range([0.0, f32::MIN_POSITIVE]).scale, LEAST_SCALE);
        assert_eq!(TensorScale::of_range([-1.0, 0.0]).zero, 255);
        assert!(TensorScale::of_range([f32::MIN, f32::MAX]).scale.is_finite());
    }
}
