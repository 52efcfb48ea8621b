//! Cost models of the autotuner: they predict a score of a candidate from its features, trained on
//! measured candidates.
//!
//! | module | contents |
//! |---|---|
//! | [`features`] | named columns that describe a lowered schedule |
//! | [`sample`] | [`Sample`]: one measured candidate |
//! | [`score`] | [`relative_throughputs`]: scores of measured times |
//! | [`model`] | [`CostModel`]: the trait of all models |
//! | [`xgb`] | [`XgbModel`]: gradient-boosted trees, and the [`Prior`] that they start from |
//! | [`pretrained`] | [`Pretrained`]: models that ship with this crate |
//! | [`ranking`] | [`RankingModel`]: a shipped model that ranks schedules by their knobs alone |
//! | [`registers`] | [`RegisterModel`]: predicted registers and spills of GPU kernels |
//! | [`metrics`] | quality of a predicted ranking |
//! | [`contract`] | contract tests for models from other crates |
//!
//! XGBoost trains the trees (`booster`); this crate predicts with them (`trees`), with equal
//! results in much less time per call. Without the feature `train`, which is on by default, XGBoost
//! is not linked, and the shipped models still predict. This crate knows no databases and no
//! devices.
//!
//! ```
//! use autotune_cost_model::{CostModel, Sample, XgbModel, metrics, relative_throughputs};
//! use ndarray::Array2;
//!
//! // Candidates of one tuning task: two features each, and the time each took (the fourth failed).
//! let feature = |(row, column): (usize, usize)| ((row * [5, 3][column]) % [32, 7][column]) as f32;
//! let features = Array2::from_shape_fn((32, 2), feature);
//! let run_secs: Vec<Option<f64>> = (features.rows().into_iter().enumerate())
//!     .map(|(row, features)| (row != 3).then(|| 1e-3 + 1e-4 * f64::from(features[0])))
//!     .collect();
//! let scores = relative_throughputs(&run_secs);
//!
//! let samples: Vec<Sample> = (features.rows().into_iter().zip(&scores))
//!     .map(|(features, &score)| Sample { features: features.to_vec(), score, group: 0 })
//!     .collect();
//! let mut model = XgbModel::default();
//! assert_eq!(model.predict(features.view()), [0.0; 32]);
//! model.fit(&samples)?;
//!
//! // Higher is better: rank by the predictions.
//! let predicted = model.predict(features.view());
//! let best = (0..32).max_by(|&a, &b| predicted[a].total_cmp(&predicted[b]));
//! assert!(best.is_some_and(|best| scores[best] > 0.7));
//! assert!(metrics::pairwise_accuracy(&predicted, &scores).is_some_and(|accuracy| accuracy > 0.9));
//! # Ok::<(), autotune_cost_model::ModelError>(())
//! ```

pub mod contract;
pub mod features;
pub mod metrics;
pub mod model;
pub mod pretrained;
pub mod ranking;
#[cfg(feature = "train")]
pub mod registers;
pub mod sample;
pub mod score;
#[cfg(feature = "train")]
pub mod xgb;

#[cfg(feature = "train")]
mod booster;
#[cfg(feature = "train")]
mod ship;
mod trees;

#[cfg(feature = "train")]
pub use booster::BoosterError;
pub use features::RegisterUse;
pub use model::{CostModel, ModelError};
pub use pretrained::Pretrained;
pub use ranking::RankingModel;
#[cfg(feature = "train")]
pub use registers::RegisterModel;
pub use sample::Sample;
pub use score::relative_throughputs;
#[cfg(feature = "train")]
pub use trees::TreesError;
#[cfg(feature = "train")]
pub use xgb::{Objective, Prior, XgbModel, XgbParams};
