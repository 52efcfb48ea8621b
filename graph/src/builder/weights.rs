//! Sources of a network's weights.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::OpError;
use crate::tensor::{Tensor, elements};

/// Number of elements from one stream of random numbers. Streams let several threads fill large
/// tensors.
const CHUNK: usize = 1 << 16;

/// Distribution of an untrained weight's elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    /// Mean of the elements.
    pub mean: f32,
    /// Standard deviation of the elements.
    pub deviation: f32,
}

impl Fill {
    /// Creates a distribution with mean zero.
    pub fn deviation(deviation: f32) -> Self {
        Self { mean: 0.0, deviation }
    }

    /// Creates the distribution for sums of this many products, such that the mean square of the
    /// outputs is `gain` times that of the inputs. A gain of 2 is that of K. He et al., "Delving
    /// Deep into Rectifiers" (2015), equation 10, for layers followed by a ReLU, which halves it.
    pub fn of_sums(products: usize, gain: f32) -> Self {
        Self::deviation((gain / products.max(1) as f32).sqrt())
    }
}

/// Source of the weights of a [`Builder`](super::Builder).
pub trait Weights {
    /// Returns the tensor of a name, with this shape and type [`DType::F32`](crate::DType::F32).
    fn tensor(&mut self, name: &str, shape: &[usize], fill: Fill) -> Result<Arc<Tensor>, OpError>;
}

/// Trained weights by name.
impl Weights for HashMap<String, Arc<Tensor>> {
    fn tensor(&mut self, name: &str, _: &[usize], _: Fill) -> Result<Arc<Tensor>, OpError> {
        self.get(name).cloned().ok_or_else(|| OpError::Unfit("no weight with this name".into()))
    }
}

/// Uniformly distributed random weights from ChaCha8. A weight depends on the seed and its name
/// only, not on other weights or the number of threads.
#[derive(Clone, Copy, Debug)]
pub struct Seeded {
    /// Seed of all weights.
    pub seed: u64,
}

impl Weights for Seeded {
    fn tensor(&mut self, name: &str, shape: &[usize], fill: Fill) -> Result<Arc<Tensor>, OpError> {
        let mut values = vec![0.0; elements(shape)?];
        let key = xxh3_64_with_seed(name.as_bytes(), self.seed);
        let chunks = values.len().div_ceil(CHUNK);
        let queue = Mutex::new(values.chunks_mut(CHUNK).enumerate());
        let work = || {
            let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            while let Some((stream, chunk)) = next() {
                draw(chunk, fill, key, stream as u64);
            }
        };

        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(chunks);
        thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        Tensor::f32(shape, values).map(Arc::new)
    }
}

/// Fills a chunk from one of a key's random streams.
fn draw(chunk: &mut [f32], fill: Fill, key: u64, stream: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(key);
    random.set_stream(stream);
    // The uniform distribution on `mean ± w` has standard deviation `w / sqrt(3)`.
    let width = fill.deviation * 3f32.sqrt();
    let scale = 2.0 * width / (1u32 << 24) as f32;
    for value in chunk {
        *value = fill.mean - width + (random.next_u32() >> 8) as f32 * scale;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(seed: u64, name: &str, shape: &[usize], fill: Fill) -> Vec<f32> {
        let tensor = Seeded { seed }.tensor(name, shape, fill).unwrap();
        tensor.as_f32().unwrap().iter().copied().collect()
    }

    #[test]
    fn seeded_weights_depend_on_seed_and_name_only() {
        let fill = Fill::deviation(0.5);
        let large = values(1, "a", &[3, CHUNK], fill);
        assert_eq!(large, values(1, "a", &[3 * CHUNK], fill));
        assert_eq!(large[..7], values(1, "a", &[7], fill));
        assert_ne!(large[..7], values(2, "a", &[7], fill));
        assert_ne!(large[..7], values(1, "b", &[7], fill));
        assert_ne!(large[..7], large[CHUNK..CHUNK + 7]);
    }

    #[test]
    fn seeded_weights_have_their_mean_and_deviation() {
        let values = values(3, "w", &[1 << 18], Fill { mean: 2.0, deviation: 0.25 });
        let mean = |of: &dyn Fn(f64) -> f64| values.iter().map(|&x| of(x.into())).sum::<f64>() / values.len() as f64;
        let first = mean(&|x| x);
        let second = mean(&|x| (x - first).powi(2)).sqrt();
        assert!((first - 2.0).abs() < 0.003 && (second - 0.25).abs() < 0.003, "{first} {second}");
    }
}
