//! What measuring a candidate yields: the words that measurers, databases and logs share. Nothing
//! is measured here.
//!
//! | type | what it is |
//! |---|---|
//! | [`Measurement`] | the outcome, and what building and measuring took |
//! | [`RunSecs`] | times of a candidate that ran and was right |
//! | [`CandidateError`] | why a candidate has no time: data, not a fault of the measurer |
//! | [`Backend`], [`Toolchain`], [`Resources`] | what made its code, and what that takes of a GPU |
//!
//! ```
//! use autotune_measurement::{CandidateError, Measurement, RunSecs};
//!
//! let ran = Measurement::of(Ok(RunSecs::made_up(2e-5)));
//! let failed = Measurement::of(Err(CandidateError::Timeout { limit_secs: 15.0 }));
//! assert_eq!((ran.run_secs(), failed.run_secs()), (Some(2e-5), None));
//! ```

mod error;
mod measurement;
mod toolchain;

pub use error::CandidateError;
pub use measurement::{Measurement, Resources, RunSecs};
pub use toolchain::{Backend, Toolchain, UnknownBackend};
