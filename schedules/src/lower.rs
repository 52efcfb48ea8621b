//! Lowering (stub)
use crate::{Config, Program, Target, Workload};

/// Why a config cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// stub
    #[error("config: {0}")]
    Config(String),
}

/// The loop nests of a config.
pub fn lower(_workload: &Workload, _target: &Target, _config: &Config) -> Result<Program, LowerError> {
    unimplemented!()
}
