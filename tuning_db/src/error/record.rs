//! What can be wrong with a written record.

use thiserror::Error;

/// Why a written record cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// It was written by a newer version of this library.
    #[error("record version {found} is newer than the supported version {supported}; update the tuner to read it")]
    NewerVersion {
        /// Version found.
        found: u32,
        /// Newest version that can be read.
        supported: u32,
    },
    /// It is not a record.
    #[error("not a tuning record: {0}")]
    Malformed(String),
    /// A field holds what no measurement can yield.
    #[error("field '{field}': {reason}")]
    Invalid {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}
