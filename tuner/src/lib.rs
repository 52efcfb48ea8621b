//! Learned-cost-model autotuner for tensor programs: searchers, the tuning loop, networks and reports.
//!
//! | module | what it owns |
//! |---|---|
//! | [`dtype_check`] | whether a target computes with an element type |
//! | [`network`] | [`Task`]: a workload and how often it runs; [`Network`]: ResNet-18 |
//! | [`search`] | the trait [`Searcher`] and its kinds: annealing over the model, genetic, random, grid |
//! | [`select`] | picking a diverse batch of promising configs |
//! | [`scheduler`] | which task gets the next trials, and when none gains any more |
//! | [`session`] | [`tune`]: the tuning loop |
//! | [`bench`](mod@bench) | [`bench()`]: winners measured again |
//! | [`options`] | [`TuneOptions`], [`Cancel`] |
//! | [`observer`] | [`Observer`]: following a run |
//! | [`report`] | [`Report`]: what came out, as data |
//! | [`task`] | why a task got no more trials |
//! | [`worker`] | [`serve_if_worker`]: programs that are their own measuring worker |
//!
//! A task's searcher proposes a batch, the measurer measures it, every result is appended to the database at once, the cost
//! model is refitted on all records of the target, and the scheduler picks the task with the most to gain. On a GPU the next batch is
//! proposed and built while the last one runs. At the end the best few of each task are raced against its default.
//!
//! ```no_run
//! autotune::serve_if_worker(); // candidates run in a process of their own, started from this very program
//! use autotune::{Silent, Task, TuneOptions, tune};
//! use autotune_db::TuningDb;
//! use autotune_measure::{WorkerMeasurer, MeasureOptions};
//! use autotune_ir::Target;
//!
//! let target = Target::detect("cpu", None)?;
//! let tasks = [Task::single("matmul:m=512,n=512,k=512".parse()?)];
//! let options = TuneOptions { trials: Some(64), ..TuneOptions::default() };
//! let mut measurer = WorkerMeasurer::with(autotune::worker_command()?, MeasureOptions::default())?;
//! let db = TuningDb::open("tuning.db")?;
//! let report = tune(&tasks, &target, &options, &mut measurer, &db, &mut Silent)?;
//! println!("{:?}", report.tasks[0].best_secs);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod annealing;
pub mod bench;
mod coverage;
pub mod dtype_check;
mod featurizer;
mod genetic;
mod grid;
mod learner;
pub mod network;
pub mod observer;
pub mod options;
mod planner;
mod race;
mod random;
mod ranker;
mod recorder;
pub mod report;
pub mod scheduler;
pub mod search;
pub mod select;
pub mod session;
mod standing;
pub mod task;
pub mod worker;

pub use bench::bench;
pub use dtype_check::{UnsupportedDType, check_dtypes};
pub use network::{Network, Task};
pub use observer::{Event, Observer, Silent};
pub use options::{Cancel, Setup, TuneOptions};
pub use report::{BenchReport, Report, Stop, TaskReport};
pub use search::{Ask, ScoreFn, SearchKind, Searcher};
pub use session::{TuneError, tune};
pub use task::Retired;
pub use worker::{serve_if_worker, worker_command};
