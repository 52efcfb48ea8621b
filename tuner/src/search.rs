//! Searchers, which propose configs: the trait [`Searcher`] and the built-in ones.
//!
//! A custom searcher implements the trait; [`CandidateBatch`] makes a batch distinct and fills it
//! up.

mod annealing;
mod batch;
mod coverage;
mod genetic;
mod grid;
mod random;
mod searcher;
mod select;

pub use annealing::{Annealing, AnnealingParams};
pub use batch::CandidateBatch;
pub use coverage::CoverageParams;
pub use genetic::{Genetic, GeneticParams};
pub use grid::Grid;
pub use random::Random;
pub(crate) use searcher::NewSearcher;
pub use searcher::{Ask, ScoreFn, Searcher};
pub use select::select_diverse;
