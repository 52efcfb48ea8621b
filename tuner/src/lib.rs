//! Learned-cost-model autotuner for tensor programs.

mod annealing;
pub mod bench;
mod featurizer;
mod genetic;
mod grid;
mod learner;
pub mod network;
pub mod observer;
pub mod options;
mod race;
mod random;
pub mod report;
pub mod scheduler;
pub mod search;
pub mod select;
pub mod session;
pub mod task;

pub use bench::bench;
pub use network::{Network, Task};
pub use observer::{Event, Observer, Silent};
pub use options::{Cancel, Setup, TuneOptions};
pub use report::{Report, Stop, TaskReport};
pub use search::{Ask, ScoreFn, SearchKind, Searcher};
pub use session::{TuneError, tune};
pub use task::Retired;
