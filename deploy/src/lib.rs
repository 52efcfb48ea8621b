//! Deploys tuned kernels: look-up, prediction on a miss, machine code. Needs no search, no worker
//! processes and no C++ compiler.
//!
//! | module | contents |
//! |---|---|
//! | `query` | [`Query`]: looks up schedules in a database or a snapshot |
//! | `tuned` | [`Tuned`]: the schedule of a workload, and its kernel |
//! | `deploy` | [`Deploy`]: default schedules, look-up, or tuning on a miss |
//! | [`predict`] | schedules chosen without measuring |
//!
//! ```no_run
//! use autotune_db::Snapshot;
//! use autotune_deploy::Query;
//! use autotune_ir::Target;
//! use autotune_runtime::{View, ViewMut};
//!
//! # fn run(x: &[f32], w: &[f32], y: &mut [f32]) -> Result<(), Box<dyn std::error::Error>> {
//! let (snapshot, target) = (Snapshot::open("tuning.snapshot")?, Target::detect("cpu", None)?);
//! let workload = "matmul:m=197,n=768,k=768".parse()?;
//! let tuned = Query::new(&workload, &target).source(&snapshot).best()?;
//! let operands = [View::new(x, &[1, 197, 768]), View::new(w, &[1, 768, 768])];
//! tuned.build()?.run(&operands, &mut [ViewMut::new(y, &[1, 197, 768])])?;
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `compilers` | kernels by a C compiler if there is no assembler, and by NVRTC for CUDA |
//! | `rayon` | prediction on all threads of rayon's pool |
//!
//! The library `autotune`, which tunes, enables both and re-exports this crate. GPUs are features
//! of `autotune-runtime`.

mod deploy;
pub mod predict;
mod query;
mod tuned;

pub use deploy::{Deploy, DeployError, TuneOnMiss};
pub use predict::{PredictParams, predicted};
pub use query::Query;
pub use tuned::{BuildError, LookupError, Origin, Tuned};
