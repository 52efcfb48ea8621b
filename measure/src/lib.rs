//! Builds candidates, checks their outputs and times them on this machine.
//!
//! | module | contents |
//! |---|---|
//! | [`measurer`], [`error`](mod@error) | the trait [`Measurer`]; [`MeasureError`] |
//! | [`summary`] | summary of why candidates failed |
//! | [`options`] | limits and timing |
//! | [`builder`], [`compiler`], [`nvrtc`] | parallel builds: assembler, C compiler, NVRTC |
//! | [`gpu`] | finding GPUs |
//! | [`in_worker`] | [`WorkerMeasurer`]: measures in a worker process that may crash |
//! | [`in_process`] | [`InProcessMeasurer`]: measures in this process, without protection |
//! | `measurer_pool` | [`MeasurerPool`]: measures on several devices at once |
//! | [`worker`], [`location`], [`protocol`] | the worker's main loop, its program, its messages |
//! | [`bench`](mod@bench) | [`Bench`]: kernels that stay loaded, for interleaved timing |
//! | [`scratch`] | temporary folders, and the removal of stale ones |
//! | [`ceilings`] | measured peak rates of a device of this machine |
//!
//! Kernels run through `autotune-runtime`: the files from `fixed` to `station` are generic over its
//! devices. A file may use the files of the lines above its own and those before it on its line:
//!
//! ```text
//! words     options error measurer summary built loaded
//! system    interrupt process memory scratch location cache_folder load
//! compilers compiler nvrtc gpu
//! operands  expected problem available
//! memory    guarded checks fixed allocation_cache resident
//! trials    replays trial
//! timing    harness reference_kernel timing reference_kernels race
//! devices   ceilings station bench
//! worker    protocol host worker
//! building  compile_workers libraries builder
//! measurers front in_process in_worker measurer_pool
//! ```
//!
//! A candidate is lowered, and assembled or compiled. A worker process loads it, runs it once on
//! random operands and compares the output with the reference. Then the kernel is warmed up and
//! timed until a time floor is reached, or until it is clearly slower than the fastest so far. Then
//! its output is checked again. On a CPU the best kernel so far is timed just before and after,
//! which tells how much slower the machine is than when it is quiet.
//!
//! ```no_run
//! use std::ops::ControlFlow;
//! use autotune_measure::{WorkerMeasurer, MeasureOptions, Measurer};
//! use autotune_schedules::Candidate;
//!
//! # fn measure(candidates: &[Candidate]) -> Result<(), autotune_measure::MeasureError> {
//! let mut measurer = WorkerMeasurer::new(MeasureOptions::default())?;
//! measurer.measure(candidates, &mut |index, measurement| {
//!     match measurement.outcome {
//!         Ok(run) => println!("{index}: {:.3} ms", run.run_secs * 1e3),
//!         Err(error) => println!("{index}: {error}"),
//!     }
//!     ControlFlow::Continue(())
//! })?;
//! # Ok(()) }
//! ```
//!
//! The crate needs a Unix-like system; pinning and the memory limit need Linux.
#![warn(missing_docs)]

mod allocation_cache;
mod available;
pub mod bench;
pub mod builder;
mod built;
mod cache_folder;
pub mod ceilings;
mod checks;
mod compile_workers;
pub mod compiler;
pub mod error;
mod expected;
mod fixed;
mod front;
pub mod gpu;
mod guarded;
mod harness;
mod host;
pub mod in_process;
pub mod in_worker;
mod interrupt;
mod libraries;
pub mod load;
mod loaded;
pub mod location;
pub mod measurer;
mod measurer_pool;
mod memory;
pub mod nvrtc;
pub mod options;
mod problem;
mod process;
pub mod protocol;
mod race;
mod reference_kernel;
mod reference_kernels;
mod replays;
mod resident;
pub mod scratch;
mod station;
pub mod summary;
mod timing;
mod trial;
pub mod worker;

pub use bench::Bench;
pub use builder::{Build, KernelBuilder};
pub use built::Built;
pub use ceilings::Ceilings;
pub use compiler::Compiler;
pub use error::MeasureError;
pub use in_process::InProcessMeasurer;
pub use in_worker::WorkerMeasurer;
pub use load::{Load, LoadWatch};
pub use location::WorkerCommand;
pub use measurer::{Batches, Measurer, OnResult, RaceResult};
pub use measurer_pool::MeasurerPool;
pub use options::{MeasureOptions, TimingOptions};
pub use summary::failure_summary;
