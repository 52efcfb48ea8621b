//! The AutoTVM paper's second model (Chen et al., "Learning to Optimize Tensor Programs", NeurIPS
//! 2018, section 3.1 and figure 3d): a recurrent network that reads a loop nest from the outermost
//! loop to the innermost statement.
//!
//! Each loop's context (extent, kind, bytes touched, reuse of the operands) is embedded; a gated
//! recurrent unit (Cho et al., 2014) goes from loop to loop; the state after each is scattered over
//! some slots by a softmax, and a linear layer makes the score of the slots' sums. The paper's unit
//! goes up the tree of all statements; here it goes down the chain of loops around the one that
//! runs most often, as [`features`] has them, and all that is said there of the rest of the program
//! is embedded as one last step. Trained on pairs (logistic loss of the difference of two scores)
//! by Adam (Kingma & Ba, 2015), on the calling thread.

mod network;
mod tape;

#[cfg(doc)]
use autotune_cost_model::features;
use autotune_cost_model::{CostModel, ModelError, Prior, Sample};
use ndarray::{Array2, ArrayView1, ArrayView2, Axis};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use network::Network;
use tape::Tape;

/// Rows of a group that are compared with each other, and how many such parts make up a step of the
/// training.
const PART: usize = 32;
const PARTS: usize = 4;
/// Rows that are predicted at once.
const ROWS: usize = 256;

/// How a [`Gru`] learns.
#[derive(Clone, Debug)]
pub struct GruParams {
    /// Times that all samples are seen; more where there are few, so that there are
    /// [`GruParams::least_steps`].
    pub epochs: usize,
    /// Steps of the training, at least.
    pub least_steps: usize,
    /// Length of the first step; they become shorter, down to none.
    pub rate: f32,
    /// Chooses where the training starts, and its order.
    pub seed: u64,
    /// What is taken for granted: the network learns the difference.
    pub prior: Option<Prior>,
}

impl Default for GruParams {
    fn default() -> Self {
        Self { epochs: 8, least_steps: 60, rate: 3e-3, seed: 0, prior: None }
    }
}

/// A recurrent network that ranks loop nests: see the [module](self).
#[derive(Clone, Debug)]
pub struct Gru {
    params: GruParams,
    fitted: Option<Network>,
}

impl Gru {
    /// One that has learnt nothing yet.
    pub fn new(params: GruParams) -> Self {
        Self { params, fitted: None }
    }

    /// What is taken for granted of a row.
    fn prior(&self, row: ArrayView1<f32>) -> f32 {
        let of =
            |prior: Prior| row.get(prior.column).filter(|value| value.is_finite()).map(|value| -prior.weight * value);
        self.params.prior.and_then(of).unwrap_or(0.0)
    }

    fn train(&self, samples: &[Sample], rows: ArrayView2<f32>) -> Network {
        let mut rng = ChaCha8Rng::seed_from_u64(self.params.seed);
        let mut network = Network::new(rows, &mut rng);
        let priors: Vec<f32> = rows.rows().into_iter().map(|row| self.prior(row)).collect();
        let of_epoch = parts(samples, &mut rng).len().div_ceil(PARTS);
        let epochs = self.params.epochs.max(self.params.least_steps.div_ceil(of_epoch));

        let mut adam = Adam::new(&network.weights);
        for epoch in 0..epochs {
            for (step, parts) in parts(samples, &mut rng).chunks(PARTS).enumerate() {
                let positions = parts.concat();
                let mut tape = Tape::default();
                let (weights, scores) = network.scores(&mut tape, rows.select(Axis(0), &positions).view());
                let total: Vec<f32> =
                    positions.iter().zip(tape.value(scores)).map(|(&at, score)| score + priors[at]).collect();
                let gradients = tape.gradients(scores, pair_gradients(samples, parts, &total), &weights);

                let done = (epoch * of_epoch + step) as f32 / (epochs * of_epoch) as f32;
                adam.step(&mut network.weights, &gradients, self.params.rate * (1.0 - done));
            }
        }
        network
    }
}

/// Positions of the samples, in parts of one group each, in an order that is drawn.
fn parts(samples: &[Sample], rng: &mut ChaCha8Rng) -> Vec<Vec<usize>> {
    let mut positions: Vec<usize> = (0..samples.len()).collect();
    positions.shuffle(rng);
    positions.sort_by_key(|&at| samples[at].group);
    let of_group = positions.chunk_by(|&a, &b| samples[a].group == samples[b].group);
    let mut parts: Vec<Vec<usize>> = of_group.flat_map(|group| group.chunks(PART).map(<[usize]>::to_vec)).collect();
    parts.shuffle(rng);
    parts
}

/// The gradient of the mean over the pairs of each part of `log(1 + exp(worse - better))`.
fn pair_gradients(samples: &[Sample], parts: &[Vec<usize>], scores: &[f32]) -> Array2<f32> {
    let mut gradients = Array2::zeros((scores.len(), 1));
    let mut start = 0;
    for part in parts {
        let of = |i: usize| samples[part[i]].score;
        let pairs = (0..part.len()).flat_map(|a| (0..part.len()).map(move |b| (a, b)));
        let pairs: Vec<(usize, usize)> = pairs.filter(|&(a, b)| of(a) > of(b)).collect();
        for &(better, worse) in &pairs {
            let (better, worse) = (start + better, start + worse);
            let share = 1.0 / (1.0 + (scores[better] - scores[worse]).exp()) / pairs.len() as f32;
            gradients[[better, 0]] -= share;
            gradients[[worse, 0]] += share;
        }
        start += part.len();
    }
    gradients
}

impl CostModel for Gru {
    fn fit(&mut self, samples: &[Sample]) -> Result<(), ModelError> {
        let columns = samples.first().map_or(0, |sample| sample.features.len());
        let other = samples.iter().enumerate().find(|(_, it)| it.features.len() != columns);
        if let Some((sample, found)) = other {
            return Err(ModelError::FeatureCount { sample, expected: columns, found: found.features.len() });
        }
        let values: Vec<f32> = samples.iter().flat_map(|sample| &sample.features).copied().collect();
        let rows =
            ArrayView2::from_shape((samples.len(), columns), &values).map_err(|e| ModelError::Other(e.into()))?;

        let fitted = (!samples.is_empty()).then(|| self.train(samples, rows));
        if fitted.iter().flat_map(|network| &network.weights).flatten().any(|weight| !weight.is_finite()) {
            return Err(ModelError::Diverged);
        }
        self.fitted = fitted;
        Ok(())
    }

    fn predict(&self, features: ArrayView2<f32>) -> Vec<f32> {
        let mut scores: Vec<f32> = features.rows().into_iter().map(|row| self.prior(row)).collect();
        if let Some(network) = &self.fitted {
            for (rows, scores) in features.axis_chunks_iter(Axis(0), ROWS).zip(scores.chunks_mut(ROWS)) {
                let mut tape = Tape::default();
                let (_, learnt) = network.scores(&mut tape, rows);
                scores.iter_mut().zip(tape.value(learnt)).for_each(|(score, learnt)| *score += learnt);
            }
        }
        scores
    }

    fn feature_count(&self) -> Option<usize> {
        self.fitted.as_ref().map(|network| network.columns())
    }
}

/// Steps of lengths that follow the means of the gradients and of their squares.
struct Adam {
    moments: Vec<[Array2<f32>; 2]>,
    steps: i32,
}

impl Adam {
    const KEEP: [f32; 2] = [0.9, 0.999];

    fn new(weights: &[Array2<f32>]) -> Self {
        let zeros = |weight: &Array2<f32>| [Array2::zeros(weight.dim()), Array2::zeros(weight.dim())];
        Self { moments: weights.iter().map(zeros).collect(), steps: 0 }
    }

    fn step(&mut self, weights: &mut [Array2<f32>], gradients: &[Array2<f32>], rate: f32) {
        self.steps += 1;
        let [first, second] = Self::KEEP;
        let unbiased = Self::KEEP.map(|keep| 1.0 - keep.powi(self.steps));
        for ((weight, gradient), [mean, square]) in weights.iter_mut().zip(gradients).zip(&mut self.moments) {
            *mean = &*mean * first + gradient * (1.0 - first);
            *square = &*square * second + &(gradient * gradient) * (1.0 - second);
            let change =
                |(&mean, &square): (&f32, &f32)| rate * (mean / unbiased[0]) / ((square / unbiased[1]).sqrt() + 1e-8);
            weight.iter_mut().zip(mean.iter().zip(&*square)).for_each(|(weight, of)| *weight -= change(of));
        }
    }
}

#[cfg(test)]
mod tests;
