//! Building and timing candidates.
pub mod measurement;

pub use measurement::{Candidate, CandidateError, MeasureError, Measurement, Measurer, RunSecs};
