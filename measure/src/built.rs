//! Built kernel of a candidate: what a builder returns and a measurer loads.

use autotune_ir::Artifact;
use autotune_workloads::Workload;
use serde::{Deserialize, Serialize};

/// Code of a candidate, ready to be loaded on any machine of its target, unless it is a shared
/// object on disk ([`autotune_ir::Code::Library`]). [`Job`](crate::protocol::Job) is its compact
/// form for transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Built {
    /// Workload that the kernel computes.
    pub workload: Workload,
    /// Code, kernel interface and target.
    pub artifact: Artifact,
    /// Largest relative error that the output may have, from [`autotune_schedules::tolerance`].
    pub tolerance: f64,
}
