//! Choosing a schedule without measuring.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use autotune_cost_model::{DraftModel, Pretrained, features};
use autotune_ir::{DType, Program, Target};
use autotune_schedules::portfolio::{self, Entry, is_promising};
use autotune_schedules::{Candidate, Config, Portfolio, ScheduleSpace};
use autotune_workloads::Workload;
use autotune_workloads::axes::Axes;
use ndarray::Array2;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
#[cfg(feature = "rayon")]
use rayon::prelude::*;

/// How a schedule is looked for without measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PredictParams {
    /// Of how many workloads, those whose shapes are the nearest, the schedules are carried over
    /// that are known to be good for them.
    pub nearest: usize,
    /// Combinations of values that are tried for each, until one is valid
    /// ([`ScheduleSpace::adapt_within`]).
    pub tries: usize,
    /// Rounds of moves; none choose among what is carried over.
    pub rounds: usize,
    /// The best from which each round moves on.
    pub beam: usize,
    /// Moves from each of them.
    pub moves: usize,
    /// Of what is carried over, and of the moves of each round, the first by the draft: those are
    /// lowered and ranked by the model.
    pub verified: usize,
}

impl PredictParams {
    /// What a search begins with: all that ships, and moves from the best of it. Some tens of
    /// milliseconds.
    pub const THOROUGH: Self = Self { nearest: usize::MAX, tries: 200, rounds: 4, beam: 8, moves: 16, verified: 32 };
    /// What a program that deploys does on a miss: the nearest alone, by the draft alone.
    ///
    /// Of the recorded test bed (209 workloads on a CPU with AVX-512, each with the best schedules
    /// of other shapes as those that are known, models that were trained without it, what was
    /// recorded of those alone), what is chosen of the eight nearest and the default takes 1.10
    /// times the best recorded, geometric mean; of the nearest four 1.11, of two 1.14, of one 1.19,
    /// of all 1.09. The default alone takes 1.29 on the 111 of them where it was recorded.
    pub const QUICK: Self = Self { nearest: 8, tries: 24, rounds: 0, beam: 0, moves: 0, verified: 0 };
}

/// How many times the best known time what the analysis chooses takes: [`PredictParams::QUICK`]
/// without a model, on the same test bed.
const ANALYSIS_LOSS: f32 = 1.17;

impl Default for PredictParams {
    fn default() -> Self {
        Self::THOROUGH
    }
}

/// Returns the space of a workload, with the schedule that is [`predicted`] to be the fastest as
/// its untuned one; `None` leaves that to the fixed rule.
pub fn space(workload: &Workload, target: &Target, params: Option<PredictParams>) -> ScheduleSpace {
    space_within(workload, target, params, None)
}

/// Returns the space of [`space`] with a schedule that is predicted in a hurry, by other
/// parameters. It is remembered as if by `params`, so that later calls have the same untuned
/// schedule at once.
pub fn space_within(
    workload: &Workload,
    target: &Target,
    params: Option<PredictParams>,
    hurried: Option<PredictParams>,
) -> ScheduleSpace {
    let space = ScheduleSpace::new(workload, target);
    let Some(params) = params else { return space };
    let untuned = first(&space, params, hurried.unwrap_or(params));
    space.with_default(untuned)
}

/// The first of [`predicted`] by some parameters, remembered under those `asked` for: a search asks
/// for it, then the race within the network, then whoever deploys what was not tuned.
fn first(space: &ScheduleSpace, asked: PredictParams, params: PredictParams) -> Candidate {
    let asked = Asked { workload: space.workload().clone(), target: space.target().clone(), params: asked };
    let known = FIRST.read().unwrap_or_else(PoisonError::into_inner).get(&asked).cloned();
    if let Some(known) = known {
        return space.candidate(&known);
    }

    // Not under the lock: it takes some tens of milliseconds.
    let first = predicted(space, 1, params).swap_remove(0);
    let mut kept = FIRST.write().unwrap_or_else(PoisonError::into_inner);
    if kept.len() >= KEPT {
        kept.clear();
    }
    kept.insert(asked, first.config().clone());
    first
}

/// Predictions that are kept; the next one takes the place of all.
const KEPT: usize = 8192;

/// Predictions of this process, not of an object that callers hold: a search, the race within its
/// network and whoever deploys do not know one another, and must have the same untuned schedule,
/// also if the first was in a hurry.
static FIRST: LazyLock<RwLock<HashMap<Asked, Config>>> = LazyLock::new(RwLock::default);

#[derive(PartialEq, Eq, Hash)]
struct Asked {
    workload: Workload,
    target: Target,
    params: PredictParams,
}

/// The schedules of a space that are predicted to be the fastest before anything of its workload
/// was measured, the best first: at most `n`, and one at least.
///
/// Among the default of the fixed rule, the schedules that are carried over from the portfolio that
/// ships for the target, and what moves lead to from the best of those, all
/// [promising](is_promising): the first by their [draft](DraftModel) are lowered, and of them the
/// pretrained model chooses. Where none ships for the target, and for operators that nothing in the
/// portfolio is for, it is the default. The same every time.
pub fn predicted(space: &ScheduleSpace, n: usize, params: PredictParams) -> Vec<Candidate> {
    let default = space.default_candidate().clone();
    let Some(shipped) = Shipped::of(space) else { return vec![default] };

    let nearest = shipped.portfolio.nearest(&shipped.workload, params.nearest);
    let mut ranked = Ranked::by(&shipped, params.verified);
    ranked.take(portfolio::carried_over(space, nearest, params.tries).into_iter().chain([default.clone()]).collect());
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for _ in 0..params.rounds {
        let from: Vec<Candidate> = ranked.held.iter().take(params.beam).map(|(held, _)| held.clone()).collect();
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

/// A schedule that was chosen without measuring.
pub(crate) struct Pick {
    pub(crate) candidate: Candidate,
    /// How many times the best known time it is expected to take; `None` if a fixed rule chose it.
    pub(crate) expected_loss: Option<f32>,
}

/// What a program that deploys gets on a miss: of the schedules that ship and those that are
/// `known` of other workloads the nearest, carried over and ranked ([`PredictParams::QUICK`])
/// together with the default. Without any it is the default.
///
/// Their drafts rank them. Where no model of these ships the analysis does, for contractions on
/// CPUs, which that was tried for.
pub(crate) fn pick(space: &ScheduleSpace, known: &[Entry]) -> Pick {
    let PredictParams { nearest, tries, .. } = PredictParams::QUICK;
    let shipped = Shipped::of(space);
    let (own, stand_in) = (space.workload(), shipped.as_ref().and_then(|shipped| shipped.stand_in(space)));
    let distance = |other: &Workload| stand_in.map_or(f32::INFINITY, |of| of.distance(other)).min(own.distance(other));
    let entries = shipped.iter().flat_map(|shipped| &shipped.portfolio.entries).chain(known);
    let entries = portfolio::nearest_to(entries, distance, nearest);
    let offered = || portfolio::offered(space, entries, tries);

    let ranked = match &shipped {
        Some(Shipped { draft, .. }) => {
            let candidates = offered();
            let scores = draft.scores(&candidates);
            Some((candidates, scores, stand_in.is_none().then(|| draft.expected_loss())))
        }
        None if space.target().cpu().is_some() && !known.is_empty() && Axes::of(space.workload().spec()).is_some() => {
            let (candidates, rows) = features_of(offered());
            let scores = rows.column(features::estimate_column(space.target())).iter().map(|cost| -cost).collect();
            Some((candidates, scores, Some(ANALYSIS_LOSS)))
        }
        None => None,
    };
    let best = ranked.and_then(|(candidates, scores, expected_loss)| {
        // The earlier of equals.
        let best = candidates.into_iter().zip(scores).reduce(|a, b| if b.1.total_cmp(&a.1).is_gt() { b } else { a });
        best.map(|(candidate, _)| Pick { candidate, expected_loss })
    });
    best.unwrap_or_else(|| Pick { candidate: space.default_candidate().clone(), expected_loss: None })
}

/// Largest ratio of a workload's estimated time to that of its own choice, so that a constant is
/// packed once.
const MOST_PACKING_LOSS: f32 = 1.1;

/// Returns the schedule of a workload on a target that is transferred from another workload's.
pub(crate) fn transferred(own: &Candidate, other: &Candidate) -> Option<Candidate> {
    let space = ScheduleSpace::new(own.workload(), own.target());
    let found = space.adapt_within(other.config(), other.workload(), PredictParams::QUICK.tries);
    found.filter(is_promising)
}

/// True if by the analysis the loop nests take hardly longer than `own`, which compute the same.
pub(crate) fn is_as_good(program: &Program, own: &Program, target: &Target) -> bool {
    // The logarithm of cycles for each operation of the workload.
    let estimate = |program| features::extract(program, target)[features::estimate_column(target)];
    (estimate(program) - estimate(own)).exp() <= MOST_PACKING_LOSS
}

/// What ships for a workload's operator on a target, unless a sketch's own choice is
/// [settled](ScheduleSpace::is_settled).
struct Shipped {
    /// The workload on tensors of f32: nothing ships for other types, which CPUs convert where they
    /// load and store them.
    workload: Workload,
    model: Arc<Pretrained>,
    draft: Arc<DraftModel>,
    portfolio: &'static Portfolio,
}

impl Shipped {
    fn of(space: &ScheduleSpace) -> Option<Self> {
        let (workload, target) = (space.workload(), space.target());
        if space.is_settled() {
            return None;
        }
        let (model, draft) = Pretrained::for_target(target).zip(DraftModel::for_target(target))?;
        let portfolio = Portfolio::for_target(target)?;
        let workload = workload.with_dtype(DType::F32).ok()?;
        let is_known = portfolio.entries.iter().any(|entry| workload.distance(&entry.workload).is_finite());
        is_known.then_some(Self { workload, model, draft, portfolio })
    }

    /// The workload for which schedules ship in place of a space's own, if that is another.
    fn stand_in(&self, space: &ScheduleSpace) -> Option<&Workload> {
        Some(&self.workload).filter(|workload| *workload != space.workload())
    }
}

/// How many times the best known time what is [`predicted`] takes, where a model ships for it.
pub(crate) fn expected_loss(space: &ScheduleSpace) -> Option<f32> {
    let shipped = Shipped::of(space)?;
    shipped.stand_in(space).is_none().then(|| shipped.model.expected_loss())
}

/// Candidates and the model's scores; the best first.
struct Ranked<'a> {
    shipped: &'a Shipped,
    verified: usize,
    met: HashSet<u64>,
    held: Vec<(Candidate, f32)>,
}

impl<'a> Ranked<'a> {
    fn by(shipped: &'a Shipped, verified: usize) -> Self {
        Self { shipped, verified, met: HashSet::new(), held: Vec::new() }
    }

    /// Ranks those among the others that were not met before and are the first by their drafts.
    fn take(&mut self, mut candidates: Vec<Candidate>) {
        candidates.retain(|candidate| self.met.insert(candidate.stable_hash()) && is_promising(candidate));
        let (candidates, rows) = features_of(self.first(candidates));
        if candidates.is_empty() {
            return;
        }
        let scores = self.shipped.model.predict(rows.view());
        self.held.extend(candidates.into_iter().zip(scores));
        self.held.sort_by(|a, b| b.1.total_cmp(&a.1));
    }

    fn first(&self, candidates: Vec<Candidate>) -> Vec<Candidate> {
        if candidates.len() <= self.verified {
            return candidates;
        }
        let drafts = self.shipped.draft.scores(&candidates);
        let mut drafted: Vec<(Candidate, f32)> = candidates.into_iter().zip(drafts).collect();
        drafted.sort_by(|a, b| b.1.total_cmp(&a.1));
        drafted.into_iter().take(self.verified).map(|(candidate, _)| candidate).collect()
    }
}

/// The candidates that can be lowered, and their features, a row each.
fn features_of(candidates: Vec<Candidate>) -> (Vec<Candidate>, Array2<f32>) {
    let describe = |candidate: Candidate| features::of(&candidate).map(|row| (candidate, row));
    #[cfg(feature = "rayon")]
    let described: Vec<_> = candidates.into_par_iter().filter_map(describe).collect();
    #[cfg(not(feature = "rayon"))]
    let described: Vec<_> = candidates.into_iter().filter_map(describe).collect();

    let (candidates, rows): (Vec<_>, Vec<_>) = described.into_iter().unzip();
    let shape = (rows.len(), features::FEATURE_COUNT);
    (candidates, Array2::from_shape_fn(shape, |(row, column)| rows[row][column]))
}

#[cfg(test)]
mod tests {
    use autotune_ir::{CpuTarget, Isa};

    use super::*;

    #[test]
    fn what_is_remembered_is_what_is_predicted() {
        let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(2) });
        let quick = PredictParams { rounds: 1, beam: 2, moves: 4, ..PredictParams::QUICK };
        for text in ["matmul:m=40,n=72,k=56", "conv2d:c=24,h=12,w=12,o=32,k=3,p=1"] {
            let space = ScheduleSpace::new(&text.parse().unwrap(), &target);
            for params in [quick, PredictParams::QUICK] {
                let predicted = predicted(&space, 1, params);
                for time in ["first", "second"] {
                    assert_eq!(
                        first(&space, params, params),
                        predicted[0],
                        "{text}, {params:?}, asked for the {time} time"
                    );
                }
            }
        }
    }

    /// A run that was in a hurry and whoever asks later have the same untuned schedule.
    #[test]
    fn what_is_predicted_in_a_hurry_is_remembered() {
        let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(2) });
        let (workload, params) = ("matmul:m=44,n=76,k=52".parse().unwrap(), Some(PredictParams::THOROUGH));
        let quick = predicted(&ScheduleSpace::new(&workload, &target), 1, PredictParams::QUICK);
        let hurried = space_within(&workload, &target, params, Some(PredictParams::QUICK));
        assert_eq!(*hurried.default_candidate(), quick[0]);
        assert_eq!(space(&workload, &target, params).default_candidate(), hurried.default_candidate());
    }
}
