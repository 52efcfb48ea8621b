//! A genetic algorithm over measured times.

use autotune_measure::Measurement;
use autotune_schedules::Config;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use crate::random::Batch;
use crate::search::{Ask, Searcher};

/// Measured configs before breeding starts; until then configs are drawn at random.
const FOUNDERS: usize = 16;
/// The fastest configs from which parents are drawn.
const POPULATION: usize = 64;
/// Probability that a child is moved in one knob.
const MUTATION: f64 = 0.4;
/// Children bred per config wanted before the rest of the batch is drawn at random.
const CHILDREN_PER_CONFIG: usize = 32;

/// Steady-state genetic algorithm: parents are drawn by rank among the fastest configs measured, a child takes each knob from
/// either parent and is sometimes moved in one knob. It knows no model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Genetic {
    /// The fastest configs and their times, fastest first.
    population: Vec<(Config, f64)>,
}

impl Searcher for Genetic {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Config> {
        let mut batch = Batch::new(ask.seen, ask.n);
        if self.population.len() >= FOUNDERS {
            for _ in 0..ask.n * CHILDREN_PER_CONFIG {
                if batch.is_full() {
                    break;
                }
                let child = ask.space.crossover(self.parent(ask.rng), self.parent(ask.rng), ask.rng);
                let mutated = ask.rng.random_bool(MUTATION);
                batch.push(if mutated { ask.space.neighbor(&child, ask.rng) } else { child });
            }
        }
        batch.fill(ask.space, ask.rng);
        batch.configs
    }

    fn tell(&mut self, results: &[(Config, Measurement)]) {
        let ran = results.iter().filter_map(|(config, m)| Some((config.clone(), m.run_secs()?)));
        self.population.extend(ran);
        self.population.sort_by(|a, b| a.1.total_cmp(&b.1));
        self.population.truncate(POPULATION);
    }
}

impl Genetic {
    /// A config of the population; the faster of two drawn evenly, so that the fastest is drawn most often.
    fn parent(&self, rng: &mut ChaCha8Rng) -> &Config {
        let n = self.population.len();
        let rank = rng.random_range(0..n).min(rng.random_range(0..n));
        &self.population[rank].0
    }
}
