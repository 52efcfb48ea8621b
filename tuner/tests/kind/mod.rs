//! Built-in searchers by name.

use autotune::search::{Annealing, Genetic, Grid, Random, Searcher};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Annealing,
    Genetic,
    Random,
    Grid,
}

pub(crate) const KINDS: [Kind; 4] = [Kind::Annealing, Kind::Genetic, Kind::Random, Kind::Grid];

impl Kind {
    pub(crate) fn searcher(self) -> Box<dyn Searcher> {
        match self {
            Kind::Annealing => Box::<Annealing>::default(),
            Kind::Genetic => Box::<Genetic>::default(),
            Kind::Random => Box::new(Random),
            Kind::Grid => Box::<Grid>::default(),
        }
    }
}
