//! Methods that choose the range of a tensor from its statistics.

use std::fmt;

use super::scale::TensorScale;
use super::statistics::TensorStatistics;

/// Share of the elements that the percentile leaves outside of the range, half at each end.
const OUTSIDE: f64 = 1e-4;

/// Number of ranges that are compared: multiples of the largest range, in equal steps.
const CANDIDATES: usize = 64;

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
        let most = |method: RangeMethod| method.scale(&statistics).scale * 255.0;
        assert!((most(RangeMethod::MinMax) - 4.0).abs() < 1e-5);
        for method in [RangeMethod::Percentile, RangeMethod::Entropy, RangeMethod::SquaredError] {
            assert!(most(method) < 3.5, "{method}: {}", most(method));
        }
        assert!(most(RangeMethod::Percentile) < 1.1);
    }
}
