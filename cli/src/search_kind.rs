//! Search methods by their names on the command line, the values of `--tuner`.

use std::fmt;
use std::str::FromStr;

use autotune::search::{Annealing, Genetic, Grid, Random, Searcher};
use thiserror::Error;

/// Method of proposing configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum SearchKind {
    /// Simulated annealing over the learned cost model (`xgb`).
    #[default]
    Model,
    /// Genetic algorithm over measured times (`ga`).
    Genetic,
    /// Uniform sampling of the space (`random`).
    Random,
    /// Enumeration of the space in its order (`grid`).
    Grid,
}

impl SearchKind {
    /// Returns a new searcher.
    pub(crate) fn searcher(self) -> Box<dyn Searcher> {
        match self {
            SearchKind::Model => Box::<Annealing>::default(),
            SearchKind::Genetic => Box::<Genetic>::default(),
            SearchKind::Random => Box::new(Random),
            SearchKind::Grid => Box::<Grid>::default(),
        }
    }
}

impl fmt::Display for SearchKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SearchKind::Model => "xgb",
            SearchKind::Genetic => "ga",
            SearchKind::Random => "random",
            SearchKind::Grid => "grid",
        })
    }
}

/// Error for an unknown value of `--tuner`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown tuner '{0}': expected xgb, ga, random or grid")]
pub(crate) struct UnknownTuner(String);

impl FromStr for SearchKind {
    type Err = UnknownTuner;

    fn from_str(word: &str) -> Result<Self, UnknownTuner> {
        match word {
            "xgb" => Ok(SearchKind::Model),
            "ga" => Ok(SearchKind::Genetic),
            "random" => Ok(SearchKind::Random),
            "grid" => Ok(SearchKind::Grid),
            other => Err(UnknownTuner(other.to_string())),
        }
    }
}
