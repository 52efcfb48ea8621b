//! From a config of whatever origin to proven loop nests.

use thiserror::Error;

use super::ScheduleSpace;
use crate::candidate::Candidate;
use crate::config::Config;
use crate::error::LowerError;
use crate::registry::lower;
use autotune_ir::{Program, ProgramError, verify};

/// Why a config must not be built for a workload on a target: the first step that failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnfitError {
    /// The target has no kernels for the workload.
    #[error(transparent)]
    Refused(LowerError),
    /// It breaks a rule: there are no loop nests of it.
    #[error("it cannot be lowered: {0}")]
    Lower(LowerError),
    /// It has loop nests, but is not in the schedule space: a value that is not offered, a knob
    /// that nothing reads, threads that would have nothing to do.
    #[error("it is not in the schedule space of this version")]
    NotOffered,
    /// Its loop nests are wrong. This is a bug of the lowering or of the verifier.
    #[error("its loop nests are wrong: {0}")]
    Verify(ProgramError),
}

impl ScheduleSpace {
    /// The candidate of a config that did not come from this space in this process: from a
    /// database, a file, a command line. It is in the space, and [`verify()`] has proven its loop
    /// nests.
    ///
    /// The proof takes a few times as long as lowering, some ten microseconds to two milliseconds:
    /// the median of 300 configs each on an AMD EPYC (family 25, model 1, two busy cores) was 1.3
    /// times (0.04 ms) for a matrix product, 3.3 times (0.5 ms) for a convolution with peeled
    /// padding, 2.2 times (1 ms) for Winograd, 1.6 to 3.2 times (0.06 ms) for GPUs; nine in ten
    /// took up to 1.7, 4.5, 3.1 and 7.2 times.
    pub fn checked(&self, config: &Config) -> Result<Candidate, UnfitError> {
        self.proven(config).map(|(candidate, _)| candidate)
    }

    /// The same with its loop nests.
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
    /// Returns its loop nests, which [`verify()`] has proven.
    ///
    /// # Errors
    /// If it cannot be lowered, or the proof fails.
    pub fn proven(&self) -> Result<Program, UnfitError> {
        let program = self.lower().map_err(UnfitError::Lower)?;
        verify(&program, self.target()).map_err(UnfitError::Verify)?;
        Ok(program)
    }
}
