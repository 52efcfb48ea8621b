//! Choice of a schedule without measuring.
//!
//! [`predicted`] takes tens of milliseconds and is for the beginning of a search. On a look-up miss
//! of a deployed program, [`Query`](crate::Query) uses a faster choice. Both transfer schedules
//! that were good for similar workloads, and rank them by models.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use autotune_cost_model::{Pretrained, RankingModel, features};
use autotune_ir::{DType, Program, Target};
use autotune_schedules::portfolio::{self, PortfolioEntry, ShippedSet, is_promising};
use autotune_schedules::{Candidate, Config, Portfolio, ScheduleSpace};
use autotune_workloads::Workload;
use autotune_workloads::axes::Axes;
use ndarray::Array2;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
#[cfg(feature = "rayon")]
use rayon::prelude::*;

/// Parameters of predicting a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PredictParams {
    /// Number of nearest workloads whose known good schedules are transferred.
    pub nearest: usize,
    /// Number of knob combinations tried for each transfer until one is valid
    /// ([`ScheduleSpace::adapt_within`]).
    pub tries: usize,
    /// Rounds of local search; 0 chooses among the transferred schedules only.
    pub rounds: usize,
    /// Number of best schedules from which each round moves.
    pub beam: usize,
    /// Number of moves from each of them.
    pub moves: usize,
    /// Number of schedules, of those transferred and of each round's moves, that the cheap ranking
    /// model selects to be lowered and ranked by the pretrained model. With 0, a look-up miss is
    /// answered by the cheap model alone.
    pub verified: usize,
}

impl PredictParams {
    /// Parameters for the beginning of a search: all shipped schedules, and local search from the
    /// best. Takes some tens of milliseconds.
    pub const THOROUGH: Self = Self { nearest: usize::MAX, tries: 200, rounds: 4, beam: 8, moves: 16, verified: 32 };
    /// Parameters for a look-up miss during deployment: only the nearest workloads, ranked by the
    /// cheap model.
    ///
    /// The test bed has 209 workloads on a CPU with AVX-512. For each, the known schedules are the
    /// best of other shapes, the models are trained without the workload, and only recorded
    /// schedules count. The choice among the eight nearest and the default takes 1.10 times the
    /// best recorded time (geometric mean); among the nearest four 1.11, two 1.14, one 1.19, and
    /// all 1.09. The default alone takes 1.29 on the 111 workloads where it was recorded.
    pub const QUICK: Self = Self { nearest: 8, tries: 24, rounds: 0, beam: 0, moves: 0, verified: 0 };

    /// Returns the parameters for a look-up miss of a workload with a shipped set.
    ///
    /// For bf16 and 8-bit integers, the pretrained model ranks the cheap model's first four. On 121
    /// recorded workloads, that takes 1.08 times the best recorded time instead of 1.10, and on
    /// convolutions of bf16 with 3x3 taps 1.15 times instead of 1.26.
    pub fn quick(set: ShippedSet) -> Self {
        Self { verified: if set == ShippedSet::Avx512Narrow { 4 } else { 0 }, ..Self::QUICK }
    }
}

/// Expected ratio of the time of the analytic model's choice to the best known time, on the same
/// test bed with [`PredictParams::QUICK`].
const ANALYSIS_LOSS: f32 = 1.17;

impl Default for PredictParams {
    fn default() -> Self {
        Self::THOROUGH
    }
}

/// Returns the space of a workload with the schedule [`predicted`] to be the fastest as its
/// default. With `None` the default is that of the fixed rule.
pub fn space(workload: &Workload, target: &Target, params: Option<PredictParams>) -> ScheduleSpace {
    space_within(workload, target, params, None)
}

/// Returns the same space as [`space`], but predicts with the faster parameters `hurried` if given.
/// The result is cached as the one of `params`, so that later calls return the same default
/// schedule immediately.
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

/// Returns the first of [`predicted`] by `params`, cached under the parameters `asked`. A search
/// needs it first, then the race within the network, then deployment without tuning.
fn first(space: &ScheduleSpace, asked: PredictParams, params: PredictParams) -> Candidate {
    let asked = Asked { workload: space.workload().clone(), target: space.target().clone(), params: asked };
    let known = FIRST.read().unwrap_or_else(PoisonError::into_inner).get(&asked).cloned();
    if let Some(known) = known {
        return space.candidate(&known);
    }

    // Compute without holding the lock, because it takes some tens of milliseconds.
    let first = predicted(space, 1, params).swap_remove(0);
    let mut kept = FIRST.write().unwrap_or_else(PoisonError::into_inner);
    if kept.len() >= KEPT {
        kept.clear();
    }
    kept.insert(asked, first.config().clone());
    first
}

/// Most predictions in the cache; the next one clears it.
const KEPT: usize = 8192;

/// Cache of predictions. It is global to the process, because the callers (a search, the race
/// within its network, deployment) share no object but must get the same default schedule, even if
/// the first one used the fast parameters.
static FIRST: LazyLock<RwLock<HashMap<Asked, Config>>> = LazyLock::new(RwLock::default);

#[derive(PartialEq, Eq, Hash)]
struct Asked {
    workload: Workload,
    target: Target,
    params: PredictParams,
}

/// Returns the schedules of a space that are predicted to be the fastest without any measurement of
/// its workload, best first: at least one and at most `n`.
///
/// Candidates are the default of the fixed rule, the schedules transferred from the portfolio for
/// the target, and those that local search finds from the best of these, all
/// [promising](is_promising). The [cheap ranking model](RankingModel) selects those to be lowered,
/// and the pretrained model ranks them. If no model ships for the target, or the portfolio has
/// nothing for the operator, the result is the default. The result is deterministic.
pub fn predicted(space: &ScheduleSpace, n: usize, params: PredictParams) -> Vec<Candidate> {
    let default = space.default_candidate().clone();
    let Some(shipped) = Shipped::of(space) else { return vec![default] };

    let nearest = shipped.portfolio.nearest(&shipped.workload, params.nearest);
    let mut ranked = RankedCandidates::by(&shipped, params.verified);
    ranked.take(
        portfolio::transferred_schedules(space, nearest, params.tries).into_iter().chain([default.clone()]).collect(),
    );
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

/// Schedule chosen without measuring.
pub(crate) struct Pick {
    pub(crate) candidate: Candidate,
    /// Expected ratio of its time to the best known time. `None` if a fixed rule chose it, or the
    /// ranking model for f32 chose it for another type, for which its loss is unknown.
    pub(crate) expected_loss: Option<f32>,
}

/// Chooses the schedule for a look-up miss. Candidates are the default and the nearest of the
/// shipped schedules and of those `known` of other workloads, transferred with
/// [`PredictParams::QUICK`]. Without any of them the result is the default.
///
/// They are ranked by the cheap model, and by the pretrained one where
/// [`quick`](PredictParams::quick) says so. Without models, the analytic model ranks them, which
/// was validated for contractions on CPUs only.
pub(crate) fn pick(space: &ScheduleSpace, known: &[PortfolioEntry]) -> Pick {
    let PredictParams { nearest, tries, .. } = PredictParams::QUICK;
    let shipped = Shipped::of(space);
    let (own, f32_workload) = (space.workload(), shipped.as_ref().and_then(|shipped| shipped.f32_workload(space)));
    let distance =
        |other: &Workload| f32_workload.map_or(f32::INFINITY, |of| of.distance(other)).min(own.distance(other));
    let entries = shipped.iter().flat_map(|shipped| &shipped.portfolio.entries).chain(known);
    let entries = portfolio::nearest_to(entries, distance, nearest);
    let offered = || portfolio::offered(space, entries, tries);

    let ranked = match &shipped {
        Some(shipped) => {
            let expected_loss = f32_workload.is_none().then(|| shipped.ranking_model.expected_loss());
            let (candidates, scores) = match PredictParams::quick(shipped.set).verified {
                0 => {
                    let candidates = offered();
                    let scores = shipped.ranking_model.scores(&candidates);
                    (candidates, scores)
                }
                verified => {
                    let mut ranked = RankedCandidates::by(shipped, verified);
                    ranked.take(offered());
                    ranked.held.into_iter().unzip()
                }
            };
            Some((candidates, scores, expected_loss))
        }
        None if space.target().cpu().is_some() && !known.is_empty() && Axes::of(space.workload().spec()).is_some() => {
            let (candidates, rows) = features_of(offered());
            let scores = rows.column(features::estimate_column(space.target())).iter().map(|cost| -cost).collect();
            Some((candidates, scores, Some(ANALYSIS_LOSS)))
        }
        None => None,
    };
    let best = ranked.and_then(|(candidates, scores, expected_loss)| {
        // Ties are resolved in favour of the earlier candidate.
        let best = candidates.into_iter().zip(scores).reduce(|a, b| if b.1.total_cmp(&a.1).is_gt() { b } else { a });
        best.map(|(candidate, _)| Pick { candidate, expected_loss })
    });
    best.unwrap_or_else(|| Pick { candidate: space.default_candidate().clone(), expected_loss: None })
}

/// Transfers another workload's schedule to the workload of `own`; `None` if the result is not
/// promising.
pub(crate) fn transferred(own: &Candidate, other: &Candidate) -> Option<Candidate> {
    let space = ScheduleSpace::new(own.workload(), own.target());
    transferred_to(&space, other.config(), other.workload())
}

/// Transfers the config of another workload to a space; `None` if the result is not promising.
pub(crate) fn transferred_to(space: &ScheduleSpace, config: &Config, workload: &Workload) -> Option<Candidate> {
    space.adapt_within(config, workload, PredictParams::QUICK.tries).filter(is_promising)
}

/// Returns the time of `program` by the analytic model, relative to that of `own`, which computes
/// the same.
pub(crate) fn estimated_loss(program: &Program, own: &Program, target: &Target) -> f32 {
    // The estimate is the logarithm of cycles per operation of the workload.
    let estimate = |program| features::extract(program, target)[features::estimate_column(target)];
    (estimate(program) - estimate(own)).exp()
}

/// Shipped models and portfolio for a workload's operator on a target. They are not used where a
/// sketch's default is known to beat the model ([`ScheduleSpace::trusts_default`]).
struct Shipped {
    set: ShippedSet,
    /// The workload, with f32 tensors unless the set is for its types: CPUs convert other types
    /// when loading and storing.
    workload: Workload,
    model: Arc<Pretrained>,
    ranking_model: Arc<RankingModel>,
    portfolio: &'static Portfolio,
}

impl Shipped {
    fn of(space: &ScheduleSpace) -> Option<Self> {
        let (workload, target) = (space.workload(), space.target());
        if space.trusts_default() {
            return None;
        }
        let set = ShippedSet::of(workload, target)?;
        let (model, ranking_model) = Pretrained::shipped(set).zip(RankingModel::shipped(set))?;
        let portfolio = Portfolio::shipped(set);
        let workload = match set {
            ShippedSet::Avx512Narrow => workload.clone(),
            ShippedSet::Avx2 | ShippedSet::Avx512 => workload.with_dtype(DType::F32).ok()?,
        };
        portfolio.covers(&workload).then_some(Self { set, workload, model, ranking_model, portfolio })
    }

    /// Returns the f32 workload that stands in for the space's own, if they differ.
    fn f32_workload(&self, space: &ScheduleSpace) -> Option<&Workload> {
        Some(&self.workload).filter(|workload| *workload != space.workload())
    }
}

/// Returns the expected ratio of the time of [`predicted`] schedules to the best known time; `None`
/// if no model ships for the workload and its element type.
pub(crate) fn expected_loss(space: &ScheduleSpace) -> Option<f32> {
    let shipped = Shipped::of(space)?;
    shipped.f32_workload(space).is_none().then(|| shipped.model.expected_loss())
}

/// Candidates with the model's scores, best first.
struct RankedCandidates<'a> {
    shipped: &'a Shipped,
    /// Maximum number of candidates to lower in each [`take`](Self::take).
    verified: usize,
    /// Hashes of all candidates so far, including rejected ones.
    seen: HashSet<u64>,
    held: Vec<(Candidate, f32)>,
}

impl<'a> RankedCandidates<'a> {
    fn by(shipped: &'a Shipped, verified: usize) -> Self {
        Self { shipped, verified, seen: HashSet::new(), held: Vec::new() }
    }

    /// Adds those of the candidates that are new and promising, after a selection by the cheap
    /// model.
    fn take(&mut self, mut candidates: Vec<Candidate>) {
        candidates.retain(|candidate| self.seen.insert(candidate.stable_hash()) && is_promising(candidate));
        let (candidates, rows) = features_of(self.first(candidates));
        if candidates.is_empty() {
            return;
        }
        let scores = self.shipped.model.predict(rows.view());
        self.held.extend(candidates.into_iter().zip(scores));
        self.held.sort_by(|a, b| b.1.total_cmp(&a.1));
    }

    /// Returns the candidates that the cheap ranking model selects.
    fn first(&self, candidates: Vec<Candidate>) -> Vec<Candidate> {
        if candidates.len() <= self.verified {
            return candidates;
        }
        let drafts = self.shipped.ranking_model.scores(&candidates);
        let mut drafted: Vec<(Candidate, f32)> = candidates.into_iter().zip(drafts).collect();
        drafted.sort_by(|a, b| b.1.total_cmp(&a.1));
        drafted.into_iter().take(self.verified).map(|(candidate, _)| candidate).collect()
    }
}

/// Returns the candidates that can be lowered, and their features, one row each.
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
    fn cached_predictions_equal_new_ones() {
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

    /// Checks that later callers get the same default schedule as a run that used the fast
    /// parameters.
    #[test]
    fn quick_predictions_are_cached() {
        let target = Target::Cpu(CpuTarget { isa: Isa::Avx512, ..CpuTarget::generic_avx2(2) });
        let (workload, params) = ("matmul:m=44,n=76,k=52".parse().unwrap(), Some(PredictParams::THOROUGH));
        let quick = predicted(&ScheduleSpace::new(&workload, &target), 1, PredictParams::QUICK);
        let hurried = space_within(&workload, &target, params, Some(PredictParams::QUICK));
        assert_eq!(*hurried.default_candidate(), quick[0]);
        assert_eq!(space(&workload, &target, params).default_candidate(), hurried.default_candidate());
    }
}
