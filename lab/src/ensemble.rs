//! Gradient-boosted trees that know how sure they are: several, each fitted on samples drawn with
//! replacement.

use autotune_cost_model::{CostModel, ModelError, Sample, XgbModel, XgbParams};
use ndarray::ArrayView2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What becomes of what the members say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Acquisition {
    /// Their mean.
    Mean,
    /// Their mean and this multiple of their standard deviation.
    UpperConfidence(f32),
    /// By how much the candidate is expected to beat the best sample, if what it may score is a
    /// logistic distribution with that mean and standard deviation; its logarithm.
    ExpectedImprovement,
}

/// The members and how they are asked; a single one is fitted on all samples.
#[derive(Clone, Debug)]
pub struct Ensemble {
    members: Vec<XgbModel>,
    acquisition: Acquisition,
    /// Mean of the best sample.
    best: f32,
}

impl Ensemble {
    /// One model.
    pub fn single(params: XgbParams) -> Self {
        Self::new(1, params, Acquisition::Mean)
    }

    /// Several, of different seeds.
    pub fn new(members: u32, params: XgbParams, acquisition: Acquisition) -> Self {
        let member = |seed| XgbModel::new(XgbParams { seed, ..params.clone() });
        Self { members: (0..members).map(member).collect(), acquisition, best: 0.0 }
    }

    /// Mean and standard deviation of what the members say.
    fn moments(&self, features: ArrayView2<f32>) -> Vec<[f32; 2]> {
        let scores: Vec<Vec<f32>> = self.members.iter().map(|member| member.predict(features)).collect();
        let n = self.members.len() as f32;
        let moments = |row: usize| {
            let of_row = || scores.iter().map(|scores| scores[row]);
            let mean = of_row().sum::<f32>() / n;
            let variance = of_row().map(|score| (score - mean).powi(2)).sum::<f32>() / n;
            [mean, variance.sqrt()]
        };
        (0..features.nrows()).map(moments).collect()
    }
}

impl CostModel for Ensemble {
    fn fit(&mut self, samples: &[Sample]) -> Result<(), ModelError> {
        let mut members = self.members.clone();
        let draws = members.len() > 1;
        for (seed, member) in (0..).zip(&mut members) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let drawn: Vec<Sample> = match draws {
                true => samples.iter().map(|_| samples[rng.random_range(0..samples.len())].clone()).collect(),
                false => samples.to_vec(),
            };
            member.fit(&drawn)?;
        }
        self.members = members;

        let columns = samples.first().map_or(0, |sample| sample.features.len());
        let values: Vec<f32> = samples.iter().flat_map(|sample| &sample.features).copied().collect();
        let rows =
            ArrayView2::from_shape((samples.len(), columns), &values).map_err(|e| ModelError::Other(e.into()))?;
        self.best = self.moments(rows).iter().map(|[mean, _]| *mean).fold(f32::NEG_INFINITY, f32::max);
        Ok(())
    }

    fn pretrain(&mut self, samples: &[Sample]) -> Result<bool, ModelError> {
        let mut members = self.members.clone();
        for member in &mut members {
            if !member.pretrain(samples)? {
                return Ok(false);
            }
        }
        self.members = members;
        Ok(true)
    }

    fn is_pretrained(&self) -> bool {
        self.members.iter().any(CostModel::is_pretrained)
    }

    fn predict(&self, features: ArrayView2<f32>) -> Vec<f32> {
        let acquisition = if self.feature_count().is_some() { self.acquisition } else { Acquisition::Mean };
        let score = |[mean, deviation]: [f32; 2]| match acquisition {
            Acquisition::Mean => mean,
            Acquisition::UpperConfidence(weight) => mean + weight * deviation,
            Acquisition::ExpectedImprovement => log_expected_improvement(mean - self.best, deviation),
        };
        self.moments(features).into_iter().map(score).collect()
    }

    fn feature_count(&self) -> Option<usize> {
        self.members.first()?.feature_count()
    }
}

/// Logarithm of the mean of what is above 0 of a logistic distribution.
fn log_expected_improvement(mean: f32, deviation: f32) -> f32 {
    // The scale of the distribution; with none, all but the order among those that are sure would
    // be lost.
    let scale = (deviation * 3f32.sqrt() / std::f32::consts::PI).max(1e-3);
    let t = mean / scale;
    let log_softplus = if t < -15.0 { t } else { (t.max(0.0) + (-t.abs()).exp().ln_1p()).ln() };
    scale.ln() + log_softplus
}

#[cfg(test)]
mod tests {
    use super::*;
    use autotune::contract;

    #[test]
    fn ensembles_are_cost_models() {
        for acquisition in [Acquisition::Mean, Acquisition::UpperConfidence(1.0), Acquisition::ExpectedImprovement] {
            contract::cost_model(|| Ensemble::new(3, XgbParams { rounds: 5, ..XgbParams::default() }, acquisition));
        }
        contract::cost_model(|| Ensemble::single(XgbParams { rounds: 5, ..XgbParams::default() }));
    }

    #[test]
    fn more_is_expected_of_what_is_better_or_less_sure() {
        let rising = [[-100.0, 0.1], [-1.0, 0.0], [-1.0, 0.5], [0.0, 0.5], [0.0, 1.0], [5.0, 1.0]];
        let expected = rising.map(|[mean, deviation]| log_expected_improvement(mean, deviation));
        assert!(expected.is_sorted() && expected.iter().all(|value| value.is_finite()), "{expected:?}");
        // Half of the distribution is above: its mean is the scale times ln 2.
        let scale = 3f32.sqrt() / std::f32::consts::PI;
        assert!((expected[4].exp() - scale * 2f32.ln()).abs() < 1e-5);
    }
}
