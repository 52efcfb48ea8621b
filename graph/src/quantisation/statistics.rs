//! Ranges and histograms of a tensor's elements over several runs.

use super::scale::TensorScale;

/// Number of equal parts of a tensor's range.
const BINS: usize = 2048;

/// Number of integers that the elements are mapped to.
const LEVELS: usize = 256;

/// Probability in place of 0, where a logarithm would be infinite.
const LEAST_SHARE: f64 = 1e-9;

/// Elements of a tensor over several runs, in two passes: the range with 0 ([`widen`](Self::widen)
/// of every run), then how many elements are in each part of it ([`count`](Self::count) of every
/// run).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TensorStatistics {
    range: [f32; 2],
    bins: Vec<u64>,
}

impl TensorStatistics {
    /// Extends the range to some elements. Numbers that are not finite make it infinite or are
    /// ignored, so callers check for them ([`is_finite`](Self::is_finite)).
    pub fn widen(&mut self, numbers: &[f32]) {
        let [least, most] = &mut self.range;
        for &number in numbers {
            // A NaN would compare as neither, and must not get lost.
            let number = if number.is_nan() { f32::INFINITY } else { number };
            *least = least.min(number);
            *most = most.max(number);
        }
    }

    /// Counts some elements, each within the range.
    pub fn count(&mut self, numbers: &[f32]) {
        let [least, _] = self.range;
        self.bins.resize(BINS, 0);
        let per_number = 1.0 / self.width();
        for &number in numbers {
            let bin = ((number - least) * per_number) as usize;
            self.bins[bin.min(BINS - 1)] += 1;
        }
    }

    /// Returns the least and the largest element, or 0 if that is beyond.
    pub fn range(&self) -> [f32; 2] {
        self.range
    }

    /// False if an element was infinite or not a number.
    pub fn is_finite(&self) -> bool {
        self.range.iter().all(|end| end.is_finite())
    }

    /// Returns the extent of a bin; positive unless all elements are 0.
    fn width(&self) -> f32 {
        let [least, most] = self.range.map(|end| end / BINS as f32);
        most - least
    }

    /// Returns the middle of a bin; 0 for the bin that contains it, since most elements there are
    /// exactly 0 after a ReLU.
    fn middle(&self, bin: usize) -> f32 {
        let from = self.range[0] + bin as f32 * self.width();
        let to = from + self.width();
        if from <= 0.0 && 0.0 < to { 0.0 } else { from + self.width() / 2.0 }
    }

    /// Returns the range without a share of the elements, half of them at each end.
    pub(super) fn without(&self, share: f64) -> [f32; 2] {
        let most = (self.bins.iter().sum::<u64>() as f64 * share / 2.0) as u64;
        let cut = |bins: &mut dyn Iterator<Item = &u64>| {
            let mut outside = 0;
            bins.take_while(|count| {
                outside += **count;
                outside <= most
            })
            .count() as f32
        };
        let (below, above) = (cut(&mut self.bins.iter()), cut(&mut self.bins.iter().rev()));
        [self.range[0] + below * self.width(), self.range[1] - above * self.width()]
    }

    /// Returns the sum of the squared errors of all elements in a scale.
    pub(super) fn squared_error(&self, scale: TensorScale) -> f64 {
        let error = |(bin, &count): (usize, &u64)| {
            let number = self.middle(bin);
            count as f64 * f64::from(scale.rounded(number) - number).powi(2)
        };
        self.bins.iter().enumerate().map(error).sum()
    }

    /// Returns the Kullback-Leibler divergence of the distribution that saturates at the ends of a
    /// range and the same in as many levels as there are integers.
    pub(super) fn divergence(&self, range: [f32; 2]) -> f64 {
        let inside: Vec<usize> =
            (0..self.bins.len()).filter(|&bin| (range[0]..=range[1]).contains(&self.middle(bin))).collect();
        let (Some(&first), Some(&last)) = (inside.first(), inside.last()) else { return f64::INFINITY };
        let counts = &self.bins[first..=last];

        // Elements outside saturate, which the levels do not know of.
        let mut saturated: Vec<f64> = counts.iter().map(|&count| count as f64).collect();
        let ends = [&self.bins[..first], &self.bins[last + 1..]].map(|bins| bins.iter().sum::<u64>() as f64);
        saturated[0] += ends[0];
        saturated[last - first] += ends[1];
        divergence(&saturated, &in_levels(counts))
    }
}

/// Returns the counts after the counts of each level are spread evenly over its nonempty bins.
fn in_levels(counts: &[u64]) -> Vec<f64> {
    let level = |bin: usize| bin * LEVELS / counts.len().max(LEVELS);
    let mut levels = [(0.0, 0.0); LEVELS];
    for (bin, &count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (sum, bins) = &mut levels[level(bin)];
        *sum += count as f64;
        *bins += 1.0;
    }
    let spread =
        |(bin, &count): (usize, &u64)| if count > 0 { levels[level(bin)].0 / levels[level(bin)].1 } else { 0.0 };
    counts.iter().enumerate().map(spread).collect()
}

fn divergence(exact: &[f64], rounded: &[f64]) -> f64 {
    let totals = [exact, rounded].map(|counts| counts.iter().sum::<f64>().max(1.0));
    let term = |(exact, rounded): (&f64, &f64)| {
        let (exact, rounded) = (exact / totals[0], rounded / totals[1]);
        if exact > 0.0 { exact * (exact / rounded.max(LEAST_SHARE)).ln() } else { 0.0 }
    };
    exact.iter().zip(rounded).map(term).sum()
}
