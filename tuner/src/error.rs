//! Errors that end a run.

use autotune_cost_model::ModelError;
use autotune_db::DbError;
use autotune_measure::MeasureError;
use autotune_schedules::{LowerError, ScheduleSpace};
use autotune_workloads::Workload;
use thiserror::Error;

use crate::support::Unsupported;

/// Error that ends a run. All earlier measurements are in the database.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum TuneError {
    /// The target has no kernels for a workload's element type.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The target has no kernels for a workload.
    #[error("{workload}: {why}")]
    Refused { workload: Box<Workload>, why: LowerError },
    /// The measuring infrastructure is broken.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The database cannot be read or written.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The cost model cannot be fitted.
    #[error("cannot fit the cost model: {0}")]
    Model(#[from] ModelError),
}

impl TuneError {
    /// Fails if the target has no kernels for the space's workload with any schedule.
    pub(crate) fn of_space(space: &ScheduleSpace) -> Result<(), Self> {
        let refused =
            |why: &LowerError| Self::Refused { workload: Box::new(space.workload().clone()), why: why.clone() };
        space.refusal().map_or(Ok(()), |why| Err(refused(why)))
    }
}
