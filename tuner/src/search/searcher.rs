//! What searchers have in common: they propose configs when asked and learn when told.

use std::collections::HashSet;

use autotune_measurement::Measurement;
use autotune_schedules::{Candidate, ScheduleSpace};
use rand_chacha::ChaCha8Rng;

/// Predicted scores of candidates, one for each and in order: higher is better, any sign and scale;
/// `None` for one that cannot be lowered or is not worth measuring.
pub type ScoreFn<'a> = dyn FnMut(&[Candidate]) -> Vec<Option<f32>> + 'a;

/// What a searcher may use to propose candidates.
pub struct Ask<'a> {
    /// Where candidates come from.
    pub space: &'a ScheduleSpace,
    /// Predictions; of no use to a searcher that [does without](Searcher::uses_scores).
    pub score: &'a mut ScoreFn<'a>,
    /// Share of the candidates to be drawn at random, whatever the predictions say.
    pub explore: f64,
    /// Stable hashes of the candidates that must not be proposed: those already measured.
    pub seen: &'a HashSet<u64>,
    /// How many candidates are wanted.
    pub n: usize,
    /// Where chance comes from.
    pub rng: &'a mut ChaCha8Rng,
}

/// Proposes candidates of one task and learns from the results. [`crate::contract::searcher`] tests
/// it.
///
/// Given the same sequence of calls and the same random numbers, a searcher proposes the same
/// candidates.
pub trait Searcher: Send {
    /// Schedules of other workloads, the nearest first, carried over to the space: where to begin,
    /// before the first batch. Returns what the task may have as its default schedule: those of
    /// them that the searcher itself might propose.
    fn begin_with(&mut self, carried: Vec<Candidate>) -> Vec<Candidate> {
        carried
    }

    /// Up to `n` distinct candidates of the space that are not in `seen`; fewer only where no more
    /// were found. None at all end the task.
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate>;

    /// Results, of candidates proposed or of earlier runs.
    fn tell(&mut self, results: &[(Candidate, Measurement)]);

    /// Whether it uses [`Ask::score`]. In a run of which no searcher does, no cost model is fitted.
    fn uses_scores(&self) -> bool {
        true
    }
}

/// Makes the searcher of a task, from the task's space.
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
