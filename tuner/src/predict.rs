//! Choosing a schedule without measuring.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use autotune_cost_model::{Pretrained, features};
use autotune_ir::{Program, Target, verify};
use autotune_schedules::axes::Axes;
use autotune_schedules::portfolio::{self, Entry, is_promising};
use autotune_schedules::space::MAX_TRIED;
use autotune_schedules::{Candidate, Config, Portfolio, ScheduleSpace, UnfitError, Workload};
use ndarray::ArrayView2;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::featurizer::features_of;
use crate::params::TuneParams;

/// How a schedule is looked for without measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PredictParams {
    /// Of how many workloads, those whose shapes are the nearest, the schedules are carried over that are known to be good for them.
    pub nearest: usize,
    /// Combinations of values that are tried for each, until one is valid ([`ScheduleSpace::adapt_within`]).
    pub tries: usize,
    /// Rounds of moves; none choose among what is carried over.
    pub rounds: usize,
    /// The best from which each round moves on.
    pub beam: usize,
    /// Moves from each of them.
    pub moves: usize,
}

impl PredictParams {
    /// What a search begins with: all that ships, and moves from the best of it. Some tens of milliseconds.
    pub const THOROUGH: Self = Self { nearest: usize::MAX, tries: MAX_TRIED, rounds: 4, beam: 8, moves: 16 };
    /// What a program that deploys does on a miss: the nearest alone.
    ///
    /// Of the recorded test bed (209 workloads on a CPU with AVX-512, each with the best schedules of other shapes as those that are known,
    /// models that were trained without it, what was recorded of those alone), what is chosen of the four nearest and the default takes 1.10
    /// times the best recorded, geometric mean; of the nearest two 1.14, of the nearest one 1.19, of all 1.07. The default alone takes 1.29 on
    /// the 111 of them where it was recorded.
    pub const QUICK: Self = Self { nearest: 4, tries: 24, rounds: 0, beam: 0, moves: 0 };
}

/// How many times the best known time what the analysis chooses takes, of the nearest four and the default: [`PredictParams::QUICK`]
/// without a model, on the same test bed.
const ANALYSIS_LOSS: f32 = 1.19;

impl Default for PredictParams {
    fn default() -> Self {
        Self::THOROUGH
    }
}

/// The space of a workload, with what is [`predicted`] to be the fastest as its untuned schedule; without transfer, with what the fixed rule
/// picks.
pub(crate) fn space(workload: &Workload, target: &Target, params: &TuneParams) -> ScheduleSpace {
    let space = ScheduleSpace::new(workload, target);
    let Some(prediction) = params.prediction.filter(|_| params.transfer) else { return space };
    let untuned = first(&space, prediction);
    space.with_default(untuned)
}

/// The first of [`predicted`], remembered: a search asks for it, then the race within the network, then whoever deploys what was not tuned.
fn first(space: &ScheduleSpace, params: PredictParams) -> Candidate {
    let asked = Asked { workload: space.workload().clone(), target: space.target().clone(), params };
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
const KEPT: usize = 512;

/// What was asked for in this process.
static FIRST: LazyLock<RwLock<HashMap<Asked, Config>>> = LazyLock::new(RwLock::default);

#[derive(PartialEq, Eq, Hash)]
struct Asked {
    workload: Workload,
    target: Target,
    params: PredictParams,
}

/// The schedules of a space that are predicted to be the fastest before anything of its workload was measured, the best first: at most
/// `n`, and one at least.
///
/// Among the default of the fixed rule, the schedules that are carried over from the portfolio that ships for the target, and what moves lead
/// to from the best of those, the pretrained model chooses, of those that are [promising](is_promising). Where none ships for the target, and for
/// workloads that are no contractions, it is the default. The same every time.
pub fn predicted(space: &ScheduleSpace, n: usize, params: PredictParams) -> Vec<Candidate> {
    let default = space.default_candidate().clone();
    let Some(shipped) = Shipped::of(space.workload(), space.target()) else { return vec![default] };

    let nearest = shipped.portfolio.nearest(space.workload(), params.nearest);
    let mut ranked = Ranked::by(Judge::Model(shipped.model));
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

/// A schedule that was chosen without measuring, its loop nests proven.
pub(crate) struct Pick {
    pub(crate) candidate: Candidate,
    pub(crate) program: Program,
    /// How many times the best known time it is expected to take; `None` if a fixed rule, or the analysis, chose it.
    pub(crate) expected_loss: Option<f32>,
}

/// What a program that deploys gets on a miss: of the schedules that ship and those that are `known` of other workloads the nearest, carried
/// over and ranked ([`PredictParams::QUICK`]) together with the default. Without any it is the default.
///
/// The pretrained model ranks; where none ships for a CPU the analysis does, which that was tried for.
pub(crate) fn pick(space: &ScheduleSpace, known: &[Entry]) -> Result<Pick, UnfitError> {
    let target = space.target();
    let shipped = Shipped::of(space.workload(), target);
    let portfolio = shipped.as_ref().map(|shipped| shipped.portfolio);
    let analysis = || target.cpu().is_some() && !known.is_empty() && is_known(space.workload());
    let judge = match shipped {
        Some(shipped) => Some(Judge::Model(shipped.model)),
        None => analysis().then_some(Judge::Analysis(target)),
    };
    let Some(judge) = judge else {
        let (candidate, program) = space.proven(&space.default_config())?;
        return Ok(Pick { candidate, program, expected_loss: None });
    };

    let PredictParams { nearest, tries, .. } = PredictParams::QUICK;
    let entries = portfolio.iter().flat_map(|portfolio| &portfolio.entries).chain(known);
    let mut candidates = portfolio::offered(space, portfolio::nearest(entries, space.workload(), nearest), tries);

    // Whatever is wrong is a bug; the next best is served all the same.
    let (mut wrong, expected_loss) = (UnfitError::NotOffered, Some(judge.expected_loss()));
    while let Some((number, program)) = best_of(&candidates, &judge) {
        let candidate = candidates.remove(number);
        match verify(&program, target) {
            Ok(()) => return Ok(Pick { candidate, program, expected_loss }),
            Err(error) => wrong = UnfitError::Verify(error),
        }
    }
    Err(wrong)
}

/// The number of the candidate that is ranked first, the earlier of equals, with its loop nests; `None` if none can be lowered.
///
/// Loop nests that are outdone are given up at once, so that the next are made in their memory: several together are more than a core's
/// caches hold. Uses rayon's current thread pool.
fn best_of(candidates: &[Candidate], judge: &Judge) -> Option<(usize, Program)> {
    let scored = |(number, candidate): (usize, &Candidate)| {
        let program = candidate.lower().ok()?;
        let row = features::extract(&program, candidate.target());
        let score = *judge.scores(ArrayView2::from_shape((1, row.len()), &row).ok()?).first()?;
        Some((score, number, program))
    };
    let better = |a: (f32, usize, Program), b: (f32, usize, Program)| if b.0.total_cmp(&a.0).is_gt() { b } else { a };
    let scored = candidates.par_iter().enumerate().with_max_len(1).filter_map(scored);
    scored.reduce_with(better).map(|(_, number, program)| (number, program))
}

/// True for contractions: models have seen no other workloads.
fn is_known(workload: &Workload) -> bool {
    Axes::of(workload.spec()).is_some()
}

/// What ships for a workload on a target.
struct Shipped {
    model: Arc<Pretrained>,
    portfolio: &'static Portfolio,
}

impl Shipped {
    fn of(workload: &Workload, target: &Target) -> Option<Self> {
        let (model, portfolio) = Pretrained::for_target(target).zip(Portfolio::for_target(target))?;
        is_known(workload).then_some(Self { model, portfolio })
    }
}

/// How many times the best known time what is [`predicted`] takes, where a model ships for it.
pub(crate) fn expected_loss(workload: &Workload, target: &Target) -> Option<f32> {
    Some(Shipped::of(workload, target)?.model.expected_loss())
}

/// What ranks schedules before anything of their workload was measured.
enum Judge<'a> {
    /// The model that ships for the target.
    Model(Arc<Pretrained>),
    /// The analysis, for a target.
    Analysis(&'a Target),
}

impl Judge<'_> {
    fn scores(&self, rows: ArrayView2<f32>) -> Vec<f32> {
        match self {
            Judge::Model(model) => model.predict(rows),
            Judge::Analysis(target) => {
                rows.column(features::estimate_column(target)).iter().map(|cost| -cost).collect()
            }
        }
    }

    /// How many times the best known time what it chooses takes.
    fn expected_loss(&self) -> f32 {
        match self {
            Judge::Model(model) => model.expected_loss(),
            Judge::Analysis(_) => ANALYSIS_LOSS,
        }
    }
}

/// Candidates and their scores; the best first.
struct Ranked<'a> {
    judge: Judge<'a>,
    met: HashSet<u64>,
    held: Vec<(Candidate, f32)>,
}

impl<'a> Ranked<'a> {
    fn by(judge: Judge<'a>) -> Self {
        Self { judge, met: HashSet::new(), held: Vec::new() }
    }

    /// Ranks those among the others that were not met before.
    fn take(&mut self, mut candidates: Vec<Candidate>) {
        candidates.retain(|candidate| self.met.insert(candidate.stable_hash()) && is_promising(candidate));
        let (candidates, rows) = features_of(candidates);
        if candidates.is_empty() {
            return;
        }
        let scores = self.judge.scores(rows.view());
        self.held.extend(candidates.into_iter().zip(scores));
        self.held.sort_by(|a, b| b.1.total_cmp(&a.1));
    }
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
                    assert_eq!(first(&space, params), predicted[0], "{text}, {params:?}, asked for the {time} time");
                }
            }
        }
    }
}
