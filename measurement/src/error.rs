//! Reasons for which a candidate has no run time.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Reason for which a candidate has no run time. A failed candidate is a result, not an error of
/// the measurer.
#[derive(Clone, Debug, PartialEq, Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CandidateError {
    /// The config cannot be lowered for this workload and target.
    #[error("cannot be lowered: {message}")]
    Lower {
        /// Reason given by the lowering.
        message: String,
    },
    /// The compiler refused the generated code, or the assembler cannot express it and there is no
    /// compiler.
    #[error("build failed: {message}")]
    Build {
        /// Message of the compiler or assembler.
        message: String,
    },
    /// Building took longer than the limit.
    #[error("build timed out after {limit_secs} s")]
    BuildTimeout {
        /// Wall-clock limit in seconds.
        limit_secs: f64,
    },
    /// The output differs from the reference by more than the tolerance.
    #[error("wrong result: relative error {max_rel_error:.3e} exceeds {tolerance:.1e}")]
    WrongResult {
        /// Largest deviation over the reference's largest magnitude. Infinite if an element is not
        /// finite where the reference is.
        #[serde(with = "infinite_as_null")]
        max_rel_error: f64,
        /// Largest relative error allowed.
        tolerance: f64,
    },
    /// The worker process died while it ran the kernel.
    #[error("crashed: {message}")]
    Crash {
        /// Signal or exit status.
        message: String,
    },
    /// The kernel ran too long, and its process group was killed.
    #[error("timed out after {limit_secs} s")]
    Timeout {
        /// Wall-clock limit in seconds.
        limit_secs: f64,
    },
    /// The kernel wrote to memory that it must not change: outside its buffers or into an operand.
    #[error("stray write: {message}")]
    StrayWrite {
        /// Memory that was changed.
        message: String,
    },
    /// The kernel needed more memory than allowed.
    #[error("out of memory: {message}")]
    OutOfMemory {
        /// Size and purpose of the failed allocation.
        message: String,
    },
}

impl CandidateError {
    /// Returns the name of this kind of failure: the `kind` field of its JSON form.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Lower { .. } => "lower",
            Self::Build { .. } => "build",
            Self::BuildTimeout { .. } => "build_timeout",
            Self::WrongResult { .. } => "wrong_result",
            Self::Crash { .. } => "crash",
            Self::Timeout { .. } => "timeout",
            Self::StrayWrite { .. } => "stray_write",
            Self::OutOfMemory { .. } => "out_of_memory",
        }
    }
}

#[cfg(feature = "device")]
impl From<autotune_runtime::DeviceError> for CandidateError {
    fn from(error: autotune_runtime::DeviceError) -> Self {
        use autotune_runtime::DeviceError;
        let message = error.to_string();
        match error {
            DeviceError::Load(_) => Self::Build { message },
            DeviceError::OutOfMemory { .. } => Self::OutOfMemory { message },
            DeviceError::Absent(_) | DeviceError::OutOfBounds { .. } | DeviceError::Fault { .. } => {
                Self::Crash { message }
            }
        }
    }
}

/// Writes an infinite number as null, because JSON has no infinity.
mod infinite_as_null {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, s: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { s.serialize_some(value) } else { s.serialize_none() }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(d)?.unwrap_or(f64::INFINITY))
    }
}
