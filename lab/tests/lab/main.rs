//! Tests of the experiments, in one program.
//!
//! `cargo test` leaves them out, since the lab is no default member of the workspace; `.ci/run` runs
//! them. What they find in the product itself: `gpu_run` drives the command on devices, and `transfer`
//! asks that records of other workloads save trials.
#![allow(clippy::unwrap_used)]

mod compare_peers;
mod gpu_run;
mod made_up;
mod paper_figures;
mod replay;
mod transfer;

#[path = "../../../measure/tests/stub/mod.rs"]
mod stub;
