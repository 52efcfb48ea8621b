//! What a cost model learns from.

use serde::{Deserialize, Serialize};

/// One measured candidate.
///
/// Scores compare candidates of the same group only, so their scale may differ from group to group.
/// A failed candidate is a sample too: give it the lowest score of its group, as
/// [`crate::relative_throughputs`] does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// One value per feature column; NaN stands for a value that is missing.
    pub features: Vec<f32>,
    /// How good the candidate is: higher is better, any sign, finite.
    pub score: f32,
    /// The tuning task (workload and target) the candidate belongs to. Any number will do.
    pub group: u32,
}
