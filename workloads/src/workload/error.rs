//! What is wrong with a workload.

use thiserror::Error;

/// Why a workload makes no sense. Names the offending field.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkloadError {
    /// The part before `:` is no known operator.
    #[error("unknown operator '{name}': expected {known}")]
    UnknownOperator {
        /// The part.
        name: String,
        /// What would have been right.
        known: String,
    },
    /// A `key=value` field whose key is not known for the operator.
    #[error("{op}: unknown field '{field}' (known: {known})")]
    UnknownField {
        /// Operator name.
        op: &'static str,
        /// The field as given.
        field: String,
        /// Every field of the operator.
        known: String,
    },
    /// A field given more than once.
    #[error("{op}: field '{field}' is given twice")]
    Duplicate {
        /// Operator name.
        op: &'static str,
        /// The field.
        field: String,
    },
    /// A required field is absent.
    #[error("{op}: field '{field}' is missing (example: {example})")]
    Missing {
        /// Operator name.
        op: &'static str,
        /// The field.
        field: &'static str,
        /// A complete workload.
        example: &'static str,
    },
    /// A field whose value cannot be read.
    #[error("{op}: field '{field}': '{value}' is not {expected}")]
    BadValue {
        /// Operator name.
        op: &'static str,
        /// The field.
        field: String,
        /// The value as given.
        value: String,
        /// What would have been right.
        expected: &'static str,
    },
    /// A field whose value is readable but does not fit the others.
    #[error("{op}: field '{field}': {reason}")]
    Unfit {
        /// Operator name.
        op: &'static str,
        /// The field.
        field: &'static str,
        /// What does not fit.
        reason: String,
    },
    /// A tensor or the amount of work is beyond what can be addressed.
    #[error("{op}: {what} overflows the supported size")]
    Overflow {
        /// Operator name.
        op: &'static str,
        /// The tensor or quantity.
        what: &'static str,
    },
    /// The same of a text, whose largest number is to blame.
    #[error("{op}: field '{field}': {value} is too much: {what} overflows the supported size")]
    TooLarge {
        /// Operator name.
        op: &'static str,
        /// The field with the largest number.
        field: String,
        /// That number.
        value: usize,
        /// The tensor or quantity.
        what: &'static str,
    },
}
