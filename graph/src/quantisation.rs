//! Quantisation of a float graph to 8-bit integers: its layers, scales from statistics of its
//! tensors, and the graph with roundings.
//!
//! Statistics come from runs on example inputs, which the crate `autotune-network` makes.
//!
//! | file | content |
//! |---|---|
//! | `sites` | layers that compute with integers, tensors that they read: [`QuantisationSites`] |
//! | `statistics` | ranges and histograms of tensors: [`TensorStatistics`] |
//! | `scale` | scales of a range, methods to choose the range: [`RangeMethod`] |
//! | `weights` | integer weights with a scale for each channel |
//! | `insert` | the graph with roundings: [`QuantisationPlan`] |

mod insert;
mod scale;
mod sites;
mod statistics;
mod weights;

pub use insert::QuantisationPlan;
pub use scale::{RangeMethod, TensorScale};
pub use sites::QuantisationSites;
pub use statistics::TensorStatistics;
