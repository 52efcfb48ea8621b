//! A candidate's kernel.

use autotune_ir::Artifact;
use autotune_workloads::Workload;
use serde::{Deserialize, Serialize};

/// A candidate's code, ready to be loaded on any machine of its target, unless it is in a shared
/// object ([`autotune_ir::Code::Library`]). [`Job`](crate::protocol::Job) is the compact form to
/// send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Built {
    /// What it computes.
    pub workload: Workload,
    /// The code, its interface and the machine it is made for.
    pub artifact: Artifact,
    /// The relative error that its output may have, [`autotune_schedules::tolerance`].
    pub tolerance: f64,
}
