//! What every cost model does: learn from samples, predict which candidates are fast.

use std::error;

use ndarray::ArrayView2;
use thiserror::Error;

use crate::sample::Sample;

/// Predicts how good candidates are from their features.
///
/// Only the order of predictions means something: higher is better, of any sign and scale. Before
/// the first successful [`CostModel::fit`] they are what the model takes for granted, 0 for all
/// candidates if that is nothing.
pub trait CostModel: Send {
    /// Replaces what was learnt by what `samples` teach; after an error, what was learnt before is
    /// kept.
    ///
    /// No samples at all take the model back to its beginning. Equal samples and equal parameters
    /// give equal models.
    fn fit(&mut self, samples: &[Sample]) -> Result<(), ModelError>;

    /// Learns from samples of earlier runs what it takes for granted from now on: a fit learns the
    /// difference to that, and no samples at all take the model back to it. `false`, and nothing is
    /// learnt, if it makes no such difference: those samples are then to be among those of every
    /// fit.
    fn pretrain(&mut self, _samples: &[Sample]) -> Result<bool, ModelError> {
        Ok(false)
    }

    /// The score of each row: `features` has one column per feature, NaN where a value is missing.
    ///
    /// # Panics
    ///
    /// It may, if the model is fitted and the number of columns is not
    /// [`CostModel::feature_count`].
    fn predict(&self, features: ArrayView2<f32>) -> Vec<f32>;

    /// True if what it takes for granted was learnt from many workloads, not only estimated: it is
    /// believed before the first fit.
    fn is_pretrained(&self) -> bool {
        false
    }

    /// The number of feature columns of the samples learnt from, or `None` before the first fit.
    fn feature_count(&self) -> Option<usize>;
}

/// Why a model did not learn, or was not loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ModelError {
    /// A sample has more or fewer features than the first.
    #[error("sample {sample} has {found} features, the first has {expected}")]
    FeatureCount { sample: usize, expected: usize, found: usize },
    /// The samples have no features.
    #[error("the samples have no features")]
    NoFeatures,
    /// A feature is infinite. (NaN is allowed: the value is missing.)
    #[error("feature {column} of sample {sample} is infinite")]
    InfiniteFeature { sample: usize, column: usize },
    /// A score is NaN or infinite.
    #[error("the score of sample {sample} is {score}; scores must be finite")]
    Score { sample: usize, score: f32 },
    /// A parameter is out of its range.
    #[error("the parameter {name} is {value}; it must be {range}")]
    Parameter {
        /// A field of `XgbParams`.
        name: &'static str,
        value: f64,
        /// In words, such as `1 to 16`.
        range: &'static str,
    },
    /// Training ended in numbers that are not finite.
    #[error("training diverged: the scores are too large for f32 arithmetic")]
    Diverged,
    /// XGBoost refused.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Booster(#[from] crate::booster::BoosterError),
    /// XGBoost's model is not one that this crate trains.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Trees(#[from] crate::trees::TreesError),
    /// The bytes to load were not written by `XgbModel::save`, or by another version of it.
    #[error("not a saved cost model: {0}")]
    Format(String),
    /// A model that is not of this crate failed.
    #[error(transparent)]
    Other(Box<dyn error::Error + Send + Sync>),
}
