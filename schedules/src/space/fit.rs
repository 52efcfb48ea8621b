//! Admission of configs from elsewhere: from a config to verified loop nests.

use thiserror::Error;

use super::ScheduleSpace;
use crate::candidate::Candidate;
use crate::config::Config;
use crate::error::LowerError;
use crate::registry::lower;
use autotune_ir::{Program, ProgramError, verify};

/// First check that failed for a config, so that it must not be built for a workload on a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnfitError {
    /// The target has no kernels for the workload.
    #[error(transparent)]
    Refused(LowerError),
    /// The config breaks a rule and cannot be lowered.
    #[error("it cannot be lowered: {0}")]
    Lower(LowerError),
    /// The config can be lowered, but the schedule space does not contain it: a value is not
    /// offered, a knob has no effect, or threads would be idle.
    #[error("it is not in the schedule space of this version")]
    NotOffered,
    /// The verifier rejects the loop nests, which is a bug of the lowering or of the verifier.
    #[error("its loop nests are invalid: {0}")]
    Verify(ProgramError),
}

impl ScheduleSpace {
    /// Returns the candidate of a config that did not come from this space in this process, but
    /// from a database, a file or a command line. It checks that the space contains the config and
    /// that [`verify()`] accepts its loop nests.
    ///
    /// Verification takes a few times as long as lowering, between 10 µs and 2 ms. Measured on an
    /// AMD EPYC (family 25, model 1, two busy cores) with 300 configs each, the time relative to
    /// lowering was, as median and 90th percentile: 1.3 (0.04 ms) and 1.7 for a matrix product, 3.3
    /// (0.5 ms) and 4.5 for a convolution with peeled padding, 2.2 (1 ms) and 3.1 for Winograd, 1.6
    /// to 3.2 (0.06 ms) and 7.2 for GPUs.
    pub fn checked(&self, config: &Config) -> Result<Candidate, UnfitError> {
        self.proven(config).map(|(candidate, _)| candidate)
    }

    /// Checks a config like [`ScheduleSpace::checked`] and also returns its loop nests.
    pub fn proven(&self, config: &Config) -> Result<(Candidate, Program), UnfitError> {
        if let Some(refusal) = self.refusal() {
            return Err(UnfitError::Refused(refusal.clone()));
        }
        let Some(candidate) = self.admitted(config) else {
            let why = lower(self.workload(), self.target(), config).err();
            return Err(why.map_or(UnfitError::NotOffered, UnfitError::Lower));
        };
        let program = candidate.proven()?;
        Ok((candidate, program))
    }
}

impl Candidate {
    /// Lowers the schedule and verifies its loop nests.
    ///
    /// # Errors
    /// If it cannot be lowered, or [`verify()`] rejects the loop nests.
    pub fn proven(&self) -> Result<Program, UnfitError> {
        let program = self.lower().map_err(UnfitError::Lower)?;
        verify(&program, self.target()).map_err(UnfitError::Verify)?;
        Ok(program)
    }
}
