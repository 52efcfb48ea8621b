//! Database of tuning records: appended when measured, looked up when schedules are deployed.
//!
//! | module | contents |
//! |---|---|
//! | [`record`] | [`TuningRecord`]: workload, target, config, measurement and provenance |
//! | [`store`] | [`TuningDb`]: open for writing or reading, append, flush |
//! | [`lookup`] | queries: best, top, claims (untrusted records), query, contains, tasks |
//! | [`snapshot`] | [`Snapshot`]: read-only file for deployment; [`SnapshotWriter`] |
//! | [`source`] | [`Source`]: look-up in a database or snapshot, with wider keys |
//! | [`log`] | export to and import from JSON Lines |
//! | [`since`] | lines of records from a position on |
//! | [`salvage`] | recovery of readable records from a damaged database |
//! | [`holder`] | [`Holder`]: process that has a database open for writing |
//! | [`task_hold`] | [`TaskHold`]: lock of the process that tunes a task |
//! | [`error`], [`warning`] | [`DbError`]; [`Warning`]: problems that do not stop the work |
//!
//! A file may use the files of the lines above its own, and those before it on its line:
//!
//! ```text
//! words    holder keys record index warning error
//! records  check line
//! files    checksum lock_file hold files flushed journal engine
//! opening  reading writer mend store task_hold
//! asking   lookup log since salvage snapshot source
//! ```
//!
//! Records are stored twice on disk: in an append-only journal, which readers can read while a
//! tuner writes, and in a storage engine. Damage in one is repaired from the other. A handle keeps
//! all records in memory as text, and decodes those of a task when needed. Readers and the writer
//! therefore share one look-up, and damage cannot occur after opening.
//!
//! ```
//! use autotune_db::{Phase, Provenance, TimeProvenance, TuningDb, TuningRecord};
//! use autotune_measurement::{Backend, Measurement, RunSecs};
//! use autotune_ir::Target;
//! use autotune_schedules::{Config, KnobValue};
//! use autotune_workloads::Workload;
//!
//! let workload: Workload = "matmul:m=64,n=64,k=64".parse()?;
//! let target = Target::detect("cpu", None)?.key();
//! let record = |rows: usize, run_secs: f64| TuningRecord {
//!     workload: workload.clone(),
//!     target: target.clone(),
//!     config: Config {
//!         sketch: "direct".into(),
//!         knobs: [("tile.m".into(), KnobValue::Tile(vec![rows]))].into(),
//!     },
//!     measurement: Measurement {
//!         outcome: Ok(RunSecs::synthetic(run_secs)),
//!         toolchain: None,
//!         resources: None,
//!         build_secs: 0.05,
//!         measure_secs: 0.02,
//!         taken: 0.0,
//!     },
//!     phase: Phase::Search,
//!     provenance: Provenance {
//!         device: "AMD EPYC".into(),
//!         backend: Some(Backend::C),
//!         compiler: "gcc 12.2".into(),
//!         flags: "-O3".into(),
//!         tuner_version: "0.1.0".into(),
//!         harness: "repeats=10".into(),
//!         lowering: autotune_schedules::LOWERING_VERSION,
//!         seed: 0,
//!         unix_secs: 1_760_000_000,
//!     },
//!     imported: false,
//! };
//!
//! let db = TuningDb::temporary()?; // or TuningDb::open("tuning.db")?
//! db.append(&record(16, 30e-6))?;
//! db.append(&record(32, 20e-6))?;
//! db.flush()?; // the records now survive a loss of power
//!
//! let fits = |config: &Config| config.sketch == "direct"; // or ScheduleSpace::contains
//! let best = db.best(&workload, &target, &fits)?.ok_or("nothing measured yet")?;
//! assert_eq!(best.record.measurement.run_secs(), Some(20e-6));
//! assert_eq!(best.standing, TimeProvenance::Searched);
//! assert!(db.contains(&workload, &target, &record(16, 1.0).config)?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]

mod check;
mod checksum;
mod engine;
pub mod error;
mod files;
mod flushed;
mod hold;
pub mod holder;
mod index;
mod journal;
mod keys;
mod line;
mod lock_file;
pub mod log;
pub mod lookup;
mod mend;
mod reading;
pub mod record;
pub mod salvage;
pub mod since;
pub mod snapshot;
pub mod source;
pub mod store;
pub mod task_hold;
pub mod warning;
mod writer;

pub use error::{DbError, RecordError, SnapshotError};
pub use holder::Holder;
pub use log::{ImportReport, OnInvalid};
pub use lookup::{Best, TaskSummary, TimeProvenance};
pub use record::{Phase, Provenance, RECORD_VERSION, TuningRecord};
pub use salvage::SalvageReport;
pub use since::DbCursor;
pub use snapshot::{Entry, KeepsTask, KeyChain, Snapshot, SnapshotWriter};
pub use source::{EmptySource, Found, Source, open_source};
pub use store::TuningDb;
pub use task_hold::TaskHold;
pub use warning::{TaskCount, TaskCounts, Warning};
