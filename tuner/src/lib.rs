//! Learned-cost-model autotuner for tensor programs: for one operator on one device it measures a
//! few hundred of millions of equivalent loop nests, learns from them which are fast, and keeps the
//! best.
//!
//! Tune, and look up what was found:
//!
//! ```no_run
//! use autotune::{Query, Target, Task, Tuner, TuningDb, Workload};
//!
//! autotune::serve_if_worker(); // candidates run in a process of their own, started from this very program
//! let target = Target::detect("cpu", None)?;
//! let workload: Workload = "matmul:m=512,n=512,k=512".parse()?;
//! let db = TuningDb::open("tuning.db")?;
//! let report = Tuner::new(&target).trials(64).database(&db).tune(&[Task::single(workload.clone())])?;
//! println!("{:?} s, untuned {:?} s", report.tasks[0].best_secs, report.tasks[0].default_secs);
//!
//! let tuned = Query::new(&workload, &target).source(&db).best()?;
//! println!("{}", tuned.program()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A task's searcher proposes a batch, the measurer measures it, every result is appended to the
//! database at once, the cost model is refitted on all records of the target, and the scheduler
//! picks the task with the most to gain. On a GPU the next batch is proposed and built while the
//! last one runs. At the end the best few of each task are raced against its default.
//!
//! # Parts from outside
//!
//! | part | trait | given to | tests |
//! |---|---|---|---|
//! | searcher | [`Searcher`](search::Searcher) | [`Tuner::searcher`] | [`contract::searcher`] |
//! | cost model | [`CostModel`](autotune_cost_model::CostModel) | [`Tuner::cost_model`] | [`contract::cost_model`] |
//! | measurer | [`Measurer`](autotune_measure::Measurer) | [`Tuner::measurer`] | [`contract::measurer`] |
//!
//! The example `custom_search` brings a searcher and a cost model. Where ours suit but for a
//! number, [`TuneParams`] and the parameters of the searchers ([`search::AnnealingParams`]) have
//! it.
//!
//! # Files
//!
//! Each uses only those above it.
//!
//! | file | what it owns |
//! |---|---|
//! | `network`, `support`, `cancel`, `worker` | what is tuned; whether a target can compute and measure it; ending a run; the worker program |
//! | `params`, `settings`, `error` | policy, limits, why a run cannot go on |
//! | `time`, `report`, `observer` | what a run tells: data |
//! | `search` | searchers: propose configs |
//! | `featurizer`, `ranker`, `learner` | from configs to features, from features to scores, from results to a fitted model |
//! | `held_out` | what a model says of records that it was not fitted on |
//! | `standing`, `recorder`, `race` | where a task stands; appending to the database; the final race |
//! | `scheduler`, `task`, `planner` | which task gets the next trials; one task's state; the next batch |
//! | `session`, `bench` | the tuning loop; measuring winners again |
//! | `local`, `tuner` | this machine's device; [`Tuner`] |
//! | `on_miss` | [`tune_within`]: tuning what a program that deploys misses |
//! | `contract` | tests for parts from outside |

#[cfg(doctest)]
#[doc = include_str!("../../docs/extending.md")]
struct Extending;

mod bench;
mod cancel;
pub mod contract;
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
mod standing;
mod support;
mod task;
#[cfg(test)]
mod testing;
mod time;
mod tuner;
mod worker;

// All that a program needs to tune a workload and to deploy it, and the crates that have the rest.
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
