//! Ensembles of gradient-boosted trees that estimate their uncertainty: each member is fitted on a
//! bootstrap sample (drawn with replacement).

use autotune_cost_model::{CostModel, ModelError, Sample, XgbModel, XgbParams};
use ndarray::ArrayView2;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Acquisition function: combines the members' predictions into one score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Acquisition {
    /// Mean of the predictions.
    Mean,
    /// Mean plus this multiple of the standard deviation (upper confidence bound).
    UpperConfidence(f32),
    /// Logarithm of the expected improvement over the best sample. The score is assumed to follow a
    /// logistic distribution with the members' mean and standard deviation.
    ExpectedImprovement,
}

/// Ensemble of models with an acquisition function. A single member is fitted on all samples.
#[derive(Clone, Debug)]
pub struct Ensemble {
    members: Vec<XgbModel>,
    acquisition: Acquisition,
    /// Largest mean prediction over the samples of the last fit.
    best: f32,
}

impl Ensemble {
    /// Returns an ensemble of one model.
    pub fn single(params: XgbParams) -> Self {
        Self::new(1, params, Acquisition::Mean)
    }

    /// Returns an ensemble of several models with different seeds.
    pub fn new(members: u32, params: XgbParams, acquisition: Acquisition) -> Self {
        let member = |seed| XgbModel::new(XgbParams { seed, ..params.clone() });
        Self { members: (0..members).map(member).collect(), acquisition, best: 0.0 }
    }

    /// Returns the mean and the standard deviation of the members' predictions for each row.
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
        // Before the first fit there is no best sample to improve on.
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

/// Returns the logarithm of E[max(X, 0)] for a logistic distribution X with the given mean and
/// standard deviation.
fn log_expected_improvement(mean: f32, deviation: f32) -> f32 {
    // Scale of the distribution. The lower bound keeps the order of candidates on which all members
    // agree.
    let scale = (deviation * 3f32.sqrt() / std::f32::consts::PI).max(1e-3);
    let t = mean / scale;
    // ln(softplus(t)) is t itself for very negative t, where the direct formula underflows.
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
        // At mean 0, the expectation is the scale times ln 2.
        let scale = 3f32.sqrt() / std::f32::consts::PI;
        assert!((expected[4].exp() - scale * 2f32.ln()).abs() < 1e-5);
    }
}
