//! A candidate's kernel.

use autotune_ir::Artifact;
use autotune_workloads::Workload;

/// A candidate's code, ready to be loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct Built {
    /// What it computes.
    pub workload: Workload,
    /// The code, its interface and the machine it is made for.
    pub artifact: Artifact,
    /// The relative error that its output may have, [`autotune_schedules::tolerance`].
    pub tolerance: f64,
}
