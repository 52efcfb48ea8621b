//! The trait of cost models: they learn from samples and predict which candidates are fast.

use std::error;

use ndarray::ArrayView2;
use thiserror::Error;

use crate::sample::Sample;

/// Model that predicts the quality of candidates from their features.
///
/// Only the order of predictions has a meaning: higher is better, with any sign and scale. Before
/// the first successful [`CostModel::fit`], predictions come from the model's prior or pretraining;
/// without these they are 0 for all candidates.
pub trait CostModel: Send {
    /// Replaces what earlier calls of `fit` learned by what `samples` teach. After an error the
    /// model is unchanged.
    ///
    /// An empty slice resets the model to its state before the first fit. Equal samples and equal
    /// parameters must give equal models.
    fn fit(&mut self, samples: &[Sample]) -> Result<(), ModelError>;

    /// Trains a base model on samples of earlier runs. Later calls of [`CostModel::fit`] learn the
    /// difference from it, and a reset returns to it. Returns false, without learning, if the model
    /// does not support this: callers then add these samples to those of every fit.
    fn pretrain(&mut self, _samples: &[Sample]) -> Result<bool, ModelError> {
        Ok(false)
    }

    /// Returns the score of each row. `features` has one column per feature; NaN stands for a
    /// missing value.
    ///
    /// # Panics
    ///
    /// May panic if the model is fitted and the number of columns differs from
    /// [`CostModel::feature_count`].
    fn predict(&self, features: ArrayView2<f32>) -> Vec<f32>;

    /// True if the model starts from one that was trained on many workloads, so that its
    /// predictions are useful before the first fit. False if it starts from an analytic estimate or
    /// nothing.
    fn is_pretrained(&self) -> bool {
        false
    }

    /// Returns the number of feature columns of the training samples; `None` before the first fit.
    fn feature_count(&self) -> Option<usize>;
}

/// Reason why a model could not be trained or loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ModelError {
    /// A sample's number of features differs from the first sample's.
    #[error("sample {sample} has {found} features, the first sample has {expected}")]
    FeatureCount { sample: usize, expected: usize, found: usize },
    /// The samples have no features.
    #[error("the samples have no features")]
    NoFeatures,
    /// A feature is infinite. NaN is allowed and stands for a missing value.
    #[error("feature {column} of sample {sample} is infinite")]
    InfiniteFeature { sample: usize, column: usize },
    /// A score is NaN or infinite.
    #[error("the score of sample {sample} is {score}; scores must be finite")]
    Score { sample: usize, score: f32 },
    /// A parameter is out of its range.
    #[error("the parameter {name} is {value}; it must be {range}")]
    Parameter {
        /// Name of the field of `XgbParams`.
        name: &'static str,
        value: f64,
        /// Allowed range in words, such as `1 to 16`.
        range: &'static str,
    },
    /// Training produced numbers that are not finite.
    #[error("training diverged: the scores are too large for f32 arithmetic")]
    Diverged,
    /// A call into XGBoost failed.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Booster(#[from] crate::booster::BoosterError),
    /// XGBoost returned a model that this crate cannot read.
    #[cfg(feature = "train")]
    #[error(transparent)]
    Trees(#[from] crate::trees::TreesError),
    /// The bytes to load were not written by this version of `XgbModel::save`.
    #[error("not a saved cost model: {0}")]
    Format(String),
    /// Error of a model from another crate.
    #[error(transparent)]
    Other(Box<dyn error::Error + Send + Sync>),
}
