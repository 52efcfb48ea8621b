//! Tuning records on disk: appended as they are measured, looked up when a compiler deploys.
//!
//! | module | what it holds |
//! |---|---|
//! | [`record`] | [`TuningRecord`]: workload, target, config, measurement and their circumstances; its line of JSON |
//! | [`store`] | [`TuningDb`]: append, flush, query, best, top, contains |
//! | [`log`] | export to and import from JSON Lines |
//! | [`holder`] | [`Holder`]: which process has a database open |
//! | [`error`] | [`DbError`] |
//!
//! ```
//! use autotune_db::{Phase, Provenance, TuningDb, TuningRecord};
//! use autotune_measure::{Backend, Measurement, RunSecs};
//! use autotune_schedules::{Config, Target, Value, Workload};
//!
//! let workload: Workload = "matmul:m=64,n=64,k=64".parse()?;
//! let target = Target::detect("cpu", None)?.key();
//! let record = |rows: usize, run_secs: f64| TuningRecord {
//!     workload,
//!     target: target.clone(),
//!     config: Config { sketch: "direct".into(), knobs: [("tile.m".into(), Value::Tile(vec![rows]))].into() },
//!     measurement: Measurement {
//!         outcome: Ok(RunSecs {
//!             run_secs,
//!             median_secs: run_secs,
//!             spread: 0.01,
//!             repeats: 10,
//!             stopped_early: false,
//!             slowdown: 1.0,
//!             kernel_secs: 0.0,
//!             max_rel_error: 1e-7,
//!         }),
//!         toolchain: None,
//!         resources: None,
//!         build_secs: 0.05,
//!         measure_secs: 0.02,
//!     },
//!     phase: Phase::Search,
//!     provenance: Provenance {
//!         device: "AMD EPYC".into(),
//!         backend: Some(Backend::C),
//!         compiler: "gcc 12.2".into(),
//!         flags: "-O3".into(),
//!         tuner_version: "0.1.0".into(),
//!         harness: "repeats=10".into(),
//!         seed: 0,
//!         unix_secs: 1_760_000_000,
//!     },
//! };
//!
//! let db = TuningDb::temporary()?; // or TuningDb::open("tuning.db")?
//! db.append(&record(16, 30e-6))?;
//! db.append(&record(32, 20e-6))?;
//! db.flush()?; // survives a loss of power from here on
//!
//! let best = db.best(&workload, &target)?.ok_or("nothing measured yet")?;
//! assert_eq!(best.measurement.run_secs(), Some(20e-6));
//! assert!(db.contains(&workload, &target, &record(16, 1.0).config)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]

pub mod error;
mod files;
pub mod holder;
mod index;
mod keys;
pub mod log;
pub mod record;
pub mod store;

pub use error::DbError;
pub use holder::Holder;
pub use log::ImportReport;
pub use record::{Phase, Provenance, RECORD_VERSION, RecordError, TuningRecord};
pub use store::{TaskSummary, TuningDb};
