//! The space in its own order.

use autotune_measure::Measurement;
use autotune_schedules::Config;

use crate::random::Batch;
use crate::search::{Ask, Searcher};

/// Walks the space in its fixed order. Configs already measured are stepped over, so a resumed walk goes on where it ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grid {
    /// Configs of the space walked so far.
    walked: usize,
}

impl Searcher for Grid {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Config> {
        let mut batch = Batch::new(ask.seen, ask.n);
        for config in ask.space.iter().skip(self.walked) {
            if batch.is_full() {
                break;
            }
            batch.push(config);
            self.walked += 1;
        }
        batch.configs
    }

    fn tell(&mut self, _results: &[(Config, Measurement)]) {}
}
