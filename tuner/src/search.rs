//! What searchers have in common: they propose configs when asked and learn when told.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use autotune_measure::Measurement;
use autotune_schedules::{Config, ScheduleSpace};
use rand_chacha::ChaCha8Rng;
use thiserror::Error;

use crate::annealing::Annealing;
use crate::genetic::Genetic;
use crate::grid::Grid;
use crate::random::Random;

/// Predicted scores of configs, one for each and in order: higher is better, any sign and scale; `None` for a config that
/// cannot be lowered or is not worth measuring.
pub type ScoreFn<'a> = dyn FnMut(&[Config]) -> Vec<Option<f32>> + 'a;

/// What a searcher may use to propose configs.
pub struct Ask<'a> {
    /// Where configs come from.
    pub space: &'a ScheduleSpace,
    /// Predictions.
    pub score: &'a mut ScoreFn<'a>,
    /// Share of the configs to be drawn at random, whatever the predictions say.
    pub explore: f64,
    /// Stable hashes of the configs that must not be proposed: those already measured.
    pub seen: &'a HashSet<u64>,
    /// How many configs are wanted.
    pub n: usize,
    /// Where chance comes from.
    pub rng: &'a mut ChaCha8Rng,
}

/// Proposes configs to measure and learns from the results.
///
/// Given the same sequence of calls and the same random numbers, a searcher proposes the same configs.
pub trait Searcher: Send {
    /// Up to `n` distinct configs of the space that are not in `seen`; fewer only where no more were found.
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Config>;

    /// Results, of configs proposed or of earlier runs.
    fn tell(&mut self, results: &[(Config, Measurement)]);
}

/// How configs are proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SearchKind {
    /// Simulated annealing over the learned cost model (`xgb`).
    #[default]
    Model,
    /// Genetic algorithm over measured times (`ga`).
    Genetic,
    /// Uniform sampling (`random`).
    Random,
    /// The space in its own order (`grid`).
    Grid,
}

impl SearchKind {
    /// A fresh searcher.
    pub fn searcher(self) -> Box<dyn Searcher> {
        match self {
            SearchKind::Model => Box::new(Annealing::default()),
            SearchKind::Genetic => Box::new(Genetic::default()),
            SearchKind::Random => Box::new(Random),
            SearchKind::Grid => Box::new(Grid::default()),
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

/// No searcher of that name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown tuner '{0}': expected xgb, ga, random or grid")]
pub struct UnknownTuner(pub String);

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
