//! Choosing a schedule without measuring.

use std::collections::HashSet;
use std::sync::Arc;

use autotune_cost_model::Pretrained;
use autotune_ir::Target;
use autotune_schedules::axes::Axes;
use autotune_schedules::{Candidate, Portfolio, ScheduleSpace, Workload};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::featurizer::features_of;
use crate::params::TuneParams;

/// How a schedule is looked for without measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictParams {
    /// Rounds of moves; none choose among what is carried over from other workloads, which takes a few milliseconds.
    pub rounds: usize,
    /// The best from which each round moves on.
    pub beam: usize,
    /// Moves from each of them.
    pub moves: usize,
}

impl Default for PredictParams {
    fn default() -> Self {
        Self { rounds: 4, beam: 8, moves: 16 }
    }
}

/// The space of a workload, with what is [`predicted`] to be the fastest as its untuned schedule; without transfer, with what the fixed rule
/// picks.
pub(crate) fn space(workload: &Workload, target: &Target, params: &TuneParams) -> ScheduleSpace {
    let space = ScheduleSpace::new(workload, target);
    let Some(prediction) = params.prediction.filter(|_| params.transfer) else { return space };
    let untuned = predicted(&space, 1, prediction).swap_remove(0);
    space.with_default(untuned)
}

/// How many times the best known time what is [`predicted`] takes, where a model ships for the target.
pub(crate) fn expected_loss(target: &Target) -> Option<f32> {
    Some(shipped(target)?.0.expected_loss())
}

/// The model and the portfolio that ship for a target.
fn shipped(target: &Target) -> Option<(Arc<Pretrained>, &'static Portfolio)> {
    Pretrained::for_target(target).zip(Portfolio::for_target(target))
}

/// The schedules of a space that are predicted to be the fastest before anything of its workload was measured, the best first: at most
/// `n`, and one at least.
///
/// Among the default of the fixed rule, the schedules that are carried over from the portfolio that ships for the target, and what moves lead
/// to from the best of those, the pretrained model chooses. Where none ships for the target it is the default. The same every time.
pub fn predicted(space: &ScheduleSpace, n: usize, params: PredictParams) -> Vec<Candidate> {
    let default = space.default_candidate().clone();
    // The model has seen contractions only.
    let known = shipped(space.target()).filter(|_| Axes::of(space.workload().spec()).is_some());
    let Some((model, portfolio)) = known else { return vec![default] };

    let mut ranked = Ranked { model: &model, met: HashSet::new(), held: Vec::new() };
    ranked.take(portfolio.candidates(space).into_iter().chain([default.clone()]).collect());
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for _ in 0..params.rounds {
        let from: Vec<Candidate> =
            ranked.held.iter().take(params.beam).map(|(candidate, _)| candidate.clone()).collect();
        let moved = from.iter().flat_map(|candidate| std::iter::repeat_n(candidate, params.moves));
        let moved: Vec<Candidate> = moved.map(|candidate| space.neighbor(candidate, &mut rng)).collect();
        ranked.take(moved);
    }

    let mut best: Vec<Candidate> = ranked.held.into_iter().take(n.max(1)).map(|(candidate, _)| candidate).collect();
    if best.is_empty() {
        best.push(default);
    }
    best
}

/// Candidates with their scores, best first.
struct Ranked<'a> {
    model: &'a Pretrained,
    met: HashSet<u64>,
    held: Vec<(Candidate, f32)>,
}

impl Ranked<'_> {
    fn take(&mut self, mut candidates: Vec<Candidate>) {
        candidates.retain(|candidate| self.met.insert(candidate.stable_hash()));
        let (candidates, rows) = features_of(candidates);
        let scores = self.model.predict(rows.view());
        self.held.extend(candidates.into_iter().zip(scores));
        self.held.sort_by(|a, b| b.1.total_cmp(&a.1));
    }
}
