//! Training samples of cost models.

use serde::{Deserialize, Serialize};

/// One measured candidate.
///
/// Scores are comparable within a group only, so that each group may have its own scale. A failed
/// candidate is a sample, too, with the lowest score of its group, as
/// [`crate::relative_throughputs`] gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// One value per feature column; NaN is a missing value.
    pub features: Vec<f32>,
    /// Quality of the candidate: higher is better, any sign, finite.
    pub score: f32,
    /// Number of the tuning task (workload and target) that the candidate belongs to.
    pub group: u32,
}
