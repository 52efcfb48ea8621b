//! Errors of a serialised record.

use thiserror::Error;

/// Error of a serialised record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordError {
    /// A newer version of this library wrote the record.
    #[error("record version {found} is newer than the supported version {supported}; update the tuner to read it")]
    NewerVersion {
        /// Record version that was found.
        found: u32,
        /// Newest supported record version.
        supported: u32,
    },
    /// The text is not a record.
    #[error("not a tuning record: {0}")]
    Malformed(String),
    /// A field has a value that no measurement can produce.
    #[error("field '{field}': {reason}")]
    Invalid {
        /// Name of the field.
        field: &'static str,
        /// Reason that the value is invalid.
        reason: String,
    },
}
