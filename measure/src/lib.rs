//! Building and timing candidates.
pub mod measurement;
pub mod summary;

pub use measurement::{Candidate, CandidateError, MeasureError, Measurement, Measurer, RunSecs};
pub use summary::failure_summary;
