//! Quantisation of a float graph to 8-bit integers: its layers, scales from statistics of its
//! tensors, and the graph with roundings.
//!
//! Statistics come from runs on example inputs, which the crate `autotune-network` makes.
//!
//! | file | content |
//! |---|---|
//! | `sites` | layers that compute with integers, tensors that they read: [`QuantisationSites`] |
//! | `scale` | scales and zero points: [`TensorScale`] |
//! | `statistics` | ranges and histograms of tensors: [`TensorStatistics`] |
//! | `method` | choice of a tensor's range: [`RangeMethod`] |
//! | `weights` | integer weights with a scale for each channel |
//! | `insert` | the graph with roundings: [`QuantisationPlan`] |

mod insert;
mod method;
mod scale;
mod sites;
mod statistics;
mod weights;

pub use insert::QuantisationPlan;
pub use method::RangeMethod;
pub use scale::TensorScale;
pub use sites::QuantisationSites;
pub use statistics::TensorStatistics;
