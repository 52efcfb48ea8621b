//! Errors of sessions.

use std::path::Path;

use autotune_db::DbError;
use autotune_graph::{OpError, printable};
use autotune_ir::TargetError;
use rayon::ThreadPoolBuildError;
use thiserror::Error;

use crate::family::{FamilyError, ShapeRange};
use crate::race::RaceError;
use crate::subject::{SubjectError, SubjectLoadError};

/// Reason that a model cannot be opened or run.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The text names neither a built-in network nor a model.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// The model is a single operator.
    #[error("'{0}' is a workload, not a network: deploy it by autotune::Query")]
    Workload(String),
    /// The network cannot be loaded.
    #[error(transparent)]
    Load(Box<SubjectLoadError>),
    /// The options name an input that the model does not have.
    #[error("no input '{}': the inputs are {inputs}", printable(name))]
    NoInput {
        /// Name in the options.
        name: String,
        /// Names of the model's inputs.
        inputs: String,
    },
    /// The precision is to be decided on examples, but the shapes are open.
    #[error("input '{}' has shape {shape}: the precision can only be decided for fixed shapes", printable(name))]
    Open {
        /// Name of the input.
        name: String,
        /// Shapes that it may have.
        shape: ShapeRange,
    },
    /// The shapes of the outputs are known only after a run.
    #[error("the shapes of the outputs depend on the data: run the session on tensors")]
    InPhases,
    /// The shapes of all tensors are known before a run.
    #[error("no shape depends on the data: the network is compared step by step instead")]
    NotPhased,
    /// A tensor cannot be converted to the type of its input.
    #[error("input '{}': {source}", printable(name))]
    Input {
        /// Name of the input.
        name: String,
        /// Cause of the failure.
        source: OpError,
    },
    /// The precision cannot be decided.
    #[error(transparent)]
    Precision(Box<RaceError>),
    /// The target is not this machine's CPU.
    #[error("sessions run on CPUs only")]
    NoCpu,
    /// The processor cannot be used.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The database cannot be read.
    #[error(transparent)]
    Db(#[from] DbError),
    /// There is no network for the shapes of the inputs, or it cannot run.
    #[error(transparent)]
    Family(#[from] FamilyError),
    /// No threads can be started.
    #[error("cannot start threads: {0}")]
    Threads(#[from] ThreadPoolBuildError),
}

impl SessionError {
    /// Adds the path of the model's file to an error of the import.
    pub fn located(self, path: &Path) -> Self {
        match self {
            Self::Family(FamilyError::Import(source)) => SubjectLoadError::Import { path: path.into(), source }.into(),
            error => error,
        }
    }
}

impl From<RaceError> for SessionError {
    fn from(error: RaceError) -> Self {
        Self::Precision(Box::new(error))
    }
}

impl From<SubjectLoadError> for SessionError {
    fn from(error: SubjectLoadError) -> Self {
        Self::Load(Box::new(error))
    }
}
