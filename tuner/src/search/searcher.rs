//! Interface of searchers: they propose configs when asked and learn from results.

use std::collections::HashSet;

use autotune_measurement::Measurement;
use autotune_schedules::{Candidate, ScheduleSpace};
use rand_chacha::ChaCha8Rng;

/// Function that predicts scores of candidates, in order. Higher is better, with any sign and
/// scale; `None` for a candidate that cannot be lowered or is not worth measuring.
pub type ScoreFn<'a> = dyn FnMut(&[Candidate]) -> Vec<Option<f32>> + 'a;

/// Arguments of [`Searcher::ask`]: what a searcher may use for its proposals.
pub struct Ask<'a> {
    /// Space of the candidates.
    pub space: &'a ScheduleSpace,
    /// Predicted scores, unless the searcher [does not use them](Searcher::uses_scores).
    pub score: &'a mut ScoreFn<'a>,
    /// Share of the candidates that should be random, regardless of scores.
    pub explore: f64,
    /// Stable hashes of candidates that must not be proposed because they were measured or proposed
    /// before.
    pub seen: &'a HashSet<u64>,
    /// Number of candidates requested.
    pub n: usize,
    /// Random number generator, the only source of randomness.
    pub rng: &'a mut ChaCha8Rng,
}

/// Proposes candidates of one task and learns from the results. [`crate::contract::searcher`] tests
/// an implementation.
///
/// With the same sequence of calls and the same random numbers, a searcher must propose the same
/// candidates.
pub trait Searcher: Send {
    /// Receives schedules transferred from other workloads to the space, nearest first, before the
    /// first batch. Returns those that may become the task's default schedule: the ones that the
    /// searcher itself might propose.
    fn begin_with(&mut self, carried: Vec<Candidate>) -> Vec<Candidate> {
        carried
    }

    /// Returns up to `n` distinct candidates of the space that are not in `seen`; fewer only if no
    /// more were found. An empty batch ends the task.
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate>;

    /// Receives results of proposed candidates or of earlier runs.
    fn tell(&mut self, results: &[(Candidate, Measurement)]);

    /// Returns true if the searcher uses [`Ask::score`]. If no searcher of a run does, no cost
    /// model is fitted.
    fn uses_scores(&self) -> bool {
        true
    }
}

/// Function that makes the searcher of a task from the task's space.
pub(crate) type NewSearcher<'a> = dyn Fn(&ScheduleSpace) -> Box<dyn Searcher> + 'a;

impl<S: Searcher + ?Sized> Searcher for Box<S> {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate> {
        (**self).ask(ask)
    }

    fn begin_with(&mut self, carried: Vec<Candidate>) -> Vec<Candidate> {
        (**self).begin_with(carried)
    }

    fn tell(&mut self, results: &[(Candidate, Measurement)]) {
        (**self).tell(results);
    }

    fn uses_scores(&self) -> bool {
        (**self).uses_scores()
    }
}
