//! Errors of texts and sizes of workloads.

use thiserror::Error;

/// The reason why a workload is invalid. Names the offending field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkloadError {
    /// The part before `:` is not a known operator.
    #[error("unknown operator '{name}': expected {known}")]
    UnknownOperator {
        /// Name that is not known.
        name: String,
        /// List of the known operators.
        known: String,
    },
    /// A field is unknown for the operator.
    #[error("{op}: unknown field '{field}' (known: {known})")]
    UnknownField {
        /// Name of the operator.
        op: &'static str,
        /// The field as given.
        field: String,
        /// All fields of the operator.
        known: String,
    },
    /// A field is given more than once.
    #[error("{op}: field '{field}' is given twice")]
    Duplicate {
        /// Name of the operator.
        op: &'static str,
        /// Name of the field.
        field: String,
    },
    /// A required field is absent.
    #[error("{op}: field '{field}' is missing (example: {example})")]
    Missing {
        /// Name of the operator.
        op: &'static str,
        /// Name of the field.
        field: &'static str,
        /// A complete workload as an example.
        example: &'static str,
    },
    /// A field has a value that cannot be read.
    #[error("{op}: field '{field}': '{value}' is not {expected}")]
    BadValue {
        /// Name of the operator.
        op: &'static str,
        /// Name of the field.
        field: String,
        /// The value as given.
        value: String,
        /// Description of valid values.
        expected: &'static str,
    },
    /// A field has a value that does not fit the others.
    #[error("{op}: field '{field}': {reason}")]
    Unfit {
        /// Name of the operator.
        op: &'static str,
        /// Name of the field.
        field: &'static str,
        /// The reason, as a sentence part.
        reason: String,
    },
    /// A tensor or the amount of work exceeds the supported size.
    #[error("{op}: {what} exceeds the supported size")]
    Overflow {
        /// Name of the operator.
        op: &'static str,
        /// The tensor or quantity that overflows.
        what: &'static str,
    },
    /// A tensor or the amount of work exceeds the supported size, because of a number in a text.
    #[error("{op}: field '{field}': {value} is too large: {what} exceeds the supported size")]
    TooLarge {
        /// Name of the operator.
        op: &'static str,
        /// The field with the largest number.
        field: String,
        /// The largest number in the text.
        value: usize,
        /// The tensor or quantity that overflows.
        what: &'static str,
    },
}
