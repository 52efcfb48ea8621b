//! Comparing outputs with a workload's reference; what is compared, [`autotune_schedules::reference`] says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use autotune_ir::program::Layout;
use autotune_schedules::Reference;
use rayon::prelude::*;

use crate::team::Team;

/// Elements of an output in a unit of comparison.
const COMPARED: usize = 4096;

/// What an output in one layout must be.
#[derive(Clone)]
pub(crate) enum Expected {
    /// Every element, as it lies in memory, and the largest magnitude.
    Exact { elements: Arc<Vec<f32>>, largest: f32 },
    /// What stands for all.
    Sampled { reference: Arc<Reference>, layout: Layout, elements: usize },
}

impl Expected {
    /// Number of elements of an output.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Exact { elements, .. } => elements.len(),
            Self::Sampled { elements, .. } => *elements,
        }
    }

    /// Largest difference of an output over the largest magnitude in the reference, by all threads of a team; infinite if one of its
    /// elements is no finite number.
    pub(crate) fn error(&self, output: &[f32], team: &mut Team) -> f64 {
        // As bits: numbers that are not negative are in the same order.
        let worst = AtomicU64::new(0);
        team.divide(self.parts(), |parts| {
            let differences = parts.map(|part| self.difference(output, part));
            worst.fetch_max(differences.fold(0.0, f64::max).to_bits(), Ordering::Relaxed);
        });
        self.relative(f64::from_bits(worst.into_inner()))
    }

    /// The same, by all threads of this process.
    pub(crate) fn error_here(&self, output: &[f32]) -> f64 {
        let differences = (0..self.parts()).into_par_iter().map(|part| self.difference(output, part));
        self.relative(differences.reduce(|| 0.0, f64::max))
    }

    fn parts(&self) -> usize {
        match self {
            Self::Exact { elements, .. } => elements.len().div_ceil(COMPARED),
            Self::Sampled { reference, .. } => reference.parts(),
        }
    }

    fn difference(&self, output: &[f32], part: usize) -> f64 {
        match self {
            Self::Exact { elements, .. } if output.len() == elements.len() => {
                let part = COMPARED * part..elements.len().min(COMPARED * (part + 1));
                f64::from(largest_difference(&output[part.clone()], &elements[part]))
            }
            Self::Exact { .. } => f64::INFINITY,
            Self::Sampled { reference, layout, .. } => {
                reference.difference(output, *layout, part).unwrap_or(f64::INFINITY)
            }
        }
    }

    /// A difference over the largest magnitude.
    pub(crate) fn relative(&self, difference: f64) -> f64 {
        let largest = match self {
            Self::Exact { largest, .. } => *largest,
            Self::Sampled { reference, .. } => reference.largest(),
        };
        if difference == 0.0 { 0.0 } else { difference / f64::from(largest) }
    }
}

/// Largest difference between as many elements; infinite if one of `actual` is not a finite number.
fn largest_difference(actual: &[f32], reference: &[f32]) -> f32 {
    /// Elements that are looked at side by side.
    const LANES: usize = 16;
    let (mut worst, mut odd) = ([0.0f32; LANES], [false; LANES]);
    let mut look = |actual: &[f32], reference: &[f32]| {
        for (lane, (a, r)) in actual.iter().zip(reference).enumerate() {
            let difference = (a - r).abs();
            worst[lane] = if difference > worst[lane] { difference } else { worst[lane] };
            odd[lane] |= !difference.is_finite();
        }
    };

    let (actual, reference) = (actual.chunks_exact(LANES), reference.chunks_exact(LANES));
    look(actual.remainder(), reference.remainder());
    actual.zip(reference).for_each(|(a, r)| look(a, r));
    if odd.contains(&true) { f32::INFINITY } else { worst.into_iter().fold(0.0, f32::max) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn one_differing_element_is_found_wherever_it_is() {
        let mut rng = ChaCha8Rng::seed_from_u64(8);
        let mut team = Team::new(2);
        for len in [1, 2, 15, 16, 17, 33, 4096, 4097, 13_000] {
            let elements: Vec<f32> = (0..len).map(|_| rng.random_range(-1.0..1.0)).collect();
            let expected = Expected::Exact { elements: Arc::new(elements.clone()), largest: 2.0 };
            assert_eq!((expected.error(&elements, &mut team), expected.error_here(&elements)), (0.0, 0.0));
            for _ in 0..20 {
                let at = rng.random_range(0..len);
                let mut error_with = |value: f32| {
                    let mut changed = elements.clone();
                    changed[at] = value;
                    let errors = (expected.error(&changed, &mut team), expected.error_here(&changed));
                    assert_eq!(errors.0, errors.1);
                    errors.0
                };
                assert!((error_with(elements[at] + 3.0) - 1.5).abs() < 1e-6, "{len}: {at}");
                for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    assert_eq!(error_with(odd), f64::INFINITY, "{len}: {at}");
                }
            }
        }
        let short = Expected::Exact { elements: Arc::new(vec![1.0, 2.0]), largest: 2.0 };
        assert_eq!(short.error_here(&[1.0]), f64::INFINITY);
    }
}
