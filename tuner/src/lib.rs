//! Autotuner for tensor programs with a learned cost model. For an operator on a device it measures
//! a few hundred of millions of equivalent loop nests, learns from them to predict which are fast,
//! and stores the best.
//!
//! Tune a workload, then look up the result:
//!
//! ```no_run
//! use autotune::{Query, Target, Task, Tuner, TuningDb, Workload};
//!
//! autotune::serve_if_worker(); // candidates run in child processes of this program
//! let target = Target::detect("cpu", None)?;
//! let workload: Workload = "matmul:m=512,n=512,k=512".parse()?;
//! let db = TuningDb::open("tuning.db")?;
//! let tasks = [Task::single(workload.clone())];
//! let report = Tuner::new(&target).trials(64).database(&db).tune(&tasks)?;
//! println!("{:?} s, untuned {:?} s", report.tasks[0].best_secs, report.tasks[0].default_secs);
//!
//! let tuned = Query::new(&workload, &target).source(&db).best()?;
//! println!("{}", tuned.program()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The searcher of a task proposes a batch of candidates and the measurer measures them. Every
//! result is appended to the database immediately, and the cost model is refitted on the target's
//! records. The scheduler then picks the task with the largest expected gain. On a GPU the next
//! batch is proposed and built while the last one runs. At the end the best few schedules of each
//! task are raced against its default.
//!
//! # Custom parts
//!
//! | part | trait | option | tests |
//! |---|---|---|---|
//! | searcher | [`Searcher`](search::Searcher) | [`Tuner::searcher`] | [`contract::searcher`] |
//! | cost model | [`CostModel`] | [`Tuner::cost_model`] | [`contract::cost_model`] |
//! | measurer | [`Measurer`] | [`Tuner::measurer`] | [`contract::measurer`] |
//!
//! The example `custom_search` has a custom searcher and cost model. Numeric parameters of the
//! built-in ones are in [`TuneParams`] and the searchers' own parameters
//! ([`search::AnnealingParams`]).
//!
//! # Files
//!
//! A file uses only files above it.
//!
//! | file | contents |
//! |---|---|
//! | `network` | workloads to tune |
//! | `support`, `cancel`, `worker` | supported workloads; cancellation; the worker program |
//! | `params`, `settings`, `error` | policy; limits; errors that end a run |
//! | `time`, `report`, `observer` | results and progress of a run, as data |
//! | `search` | searchers, which propose configs |
//! | `featurizer`, `ranker` | features of configs; scores from features |
//! | `learner`, `held_out` | training of the model; predictions for held-out records |
//! | `task_best`, `recorder`, `race` | best result of a task; storing results; the final race |
//! | `scheduler`, `task`, `planner` | choice of the next task; state of a task; the next batch |
//! | `session`, `bench` | the tuning loop; repeated measurement of the best schedules |
//! | `local`, `tuner` | this machine's device; [`Tuner`] |
//! | `on_miss` | [`tune_within`]: tuning on a look-up miss during deployment |
//! | `contract` | contract tests for custom parts |
//!
//! [`CostModel`]: autotune_cost_model::CostModel
//! [`Measurer`]: autotune_measure::Measurer

#[cfg(doctest)]
#[doc = include_str!("../../docs/extending.md")]
struct Extending;

mod bench;
mod cancel;
pub mod contract;
mod duration;
mod error;
mod featurizer;
mod held_out;
mod learner;
mod local;
mod network;
mod observer;
mod on_miss;
mod params;
mod planner;
mod race;
mod ranker;
mod recorder;
mod report;
mod scheduler;
pub mod search;
mod session;
mod settings;
mod support;
mod task;
mod task_best;
#[cfg(test)]
mod testing;
mod time;
mod tuner;
mod worker;

// Re-exports of everything that a program needs to tune and deploy a workload, and of the
// underlying crates.
pub use autotune_codegen as codegen;
pub use autotune_cost_model as cost_model;
pub use autotune_db as db;
pub use autotune_db::{Snapshot, SnapshotWriter, Source, TuningDb, open_source};
pub use autotune_deploy as deploy;
pub use autotune_deploy::{
    BuildError, Deploy, DeployError, LookupError, Origin, PredictParams, Query, TuneOnMiss, Tuned, predicted,
};
pub use autotune_ir as ir;
pub use autotune_ir::{DType, Target};
pub use autotune_measure as measure;
pub use autotune_measurement as measurement;
pub use autotune_runtime as runtime;
pub use autotune_runtime::{CudaDevice, Device, OpenClDevice, Runner, View, ViewMut};
pub use autotune_schedules as schedules;
pub use autotune_schedules::{Candidate, Config, ScheduleSpace};
pub use autotune_workloads as workloads;
pub use autotune_workloads::{Operands, Workload, max_rel_error, reference};

pub use cancel::Cancel;
pub use duration::{DurationError, parse_duration};
pub use error::TuneError;
pub use held_out::{Predicted, predict_held_out};
pub use local::{LocalDevice, device_name};
pub use network::{Network, Task};
pub use observer::{Event, Observer, Silent};
pub use on_miss::tune_within;
pub use params::{LearningParams, RaceParams, SchedulingParams, TuneParams};
pub use report::{BenchReport, CurvePoint, Disturbance, Ranking, Report, Retired, Stop, TaskReport, Timing};
pub use settings::Setup;
pub use support::{Unsupported, check_supported};
pub use time::TimeShares;
pub use tuner::Tuner;
pub use worker::{serve_if_worker, worker_command};
