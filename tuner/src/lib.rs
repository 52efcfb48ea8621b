//! Learned-cost-model autotuner for tensor programs.

mod annealing;
mod genetic;
mod grid;
pub mod network;
mod random;
pub mod scheduler;
pub mod search;
pub mod select;

pub use network::{Network, Task};
pub use search::{Ask, ScoreFn, SearchKind, Searcher};
