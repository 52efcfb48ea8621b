//! Results of measuring a candidate: the types that measurers, databases and logs share. This crate
//! measures nothing itself.
//!
//! | type | contents |
//! |---|---|
//! | [`Measurement`] | the outcome, and the time that building and measuring took |
//! | [`RunSecs`] | times of a candidate that ran and gave a correct result |
//! | [`CandidateError`] | why a candidate has no time: a result, not an error of the measurer |
//! | [`Backend`], [`Toolchain`], [`Resources`] | how the code was made, and its GPU resources |
//!
//! ```
//! use autotune_measurement::{CandidateError, Measurement, RunSecs};
//!
//! let ran = Measurement::of(Ok(RunSecs::synthetic(2e-5)));
//! let failed = Measurement::of(Err(CandidateError::Timeout { limit_secs: 15.0 }));
//! assert_eq!((ran.run_secs(), failed.run_secs()), (Some(2e-5), None));
//! ```

mod error;
mod measurement;
mod toolchain;

pub use error::CandidateError;
pub use measurement::{Measurement, Resources, RunSecs};
pub use toolchain::{Backend, Toolchain, UnknownBackend};
