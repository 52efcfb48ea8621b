//! Tests of the experiments, in one program.
//!
//! `cargo test --workspace` runs them; plain `cargo test` does not, as the lab is not a default
//! member of the workspace. Two of them also test the product: `gpu_run` runs the command on
//! devices, and `transfer` checks that records of other workloads save trials.
#![allow(clippy::unwrap_used)]

mod compare_peers;
mod fleet_scale;
mod gpu_run;
mod gpu_sass;
#[path = "../../../workloads/tests/common/long.rs"]
#[allow(unreachable_pub)]
mod long;
mod made_up;
mod paper_figures;
mod replay;
mod transfer;

#[path = "../../../measure/tests/stub/mod.rs"]
mod stub;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static CORES: RwLock<()> = RwLock::new(());

/// Waits until no test keeps all cores busy: for tests that time kernels, within limits of time.
fn quiet_cores() -> RwLockReadGuard<'static, ()> {
    CORES.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no test times kernels: for tests that keep all cores busy for a minute.
fn all_cores() -> RwLockWriteGuard<'static, ()> {
    CORES.write().unwrap_or_else(PoisonError::into_inner)
}
