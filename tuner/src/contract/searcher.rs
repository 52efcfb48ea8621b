//! Contract of a [`Searcher`]: the properties that the tuner relies on.

use std::collections::HashSet;

use autotune_ir::{CpuTarget, Target};
use autotune_measurement::{CandidateError, Measurement, RunSecs};
use autotune_schedules::{Candidate, ScheduleSpace};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::search::{Ask, Searcher};

/// Workloads and targets of the tests: CPU and GPU, several algorithms, partial tiles.
const SPACES: [(&str, Option<&str>); 3] = [
    ("matmul:m=12,n=16,k=8", None),
    ("conv2d:c=8,h=9,w=9,o=16,k=3,p=1", None),
    ("conv2d:c=16,h=14,w=14,o=32,k=3,p=1,bias", Some("cuda:sm_80")),
];

/// Workload with a small space, which is soon exhausted.
const SMALL: &str = "matmul:m=1,n=1,k=1";

const BATCH: usize = 9;

/// Tests searchers made by `new`, one for each space. They must propose distinct candidates of the
/// space that were not seen, as many as requested while the space has as many, and none when all
/// were seen. The same seed must give the same candidates. This must hold whatever results, initial
/// candidates and scores they get. The quality of the proposals is not tested.
pub fn searcher<S: Searcher>(new: impl Fn(&ScheduleSpace) -> S) {
    for (text, word) in SPACES {
        let space = space(text, word);
        for scores in [PredictedScores::Any, PredictedScores::Negative, PredictedScores::Equal, PredictedScores::None] {
            let proposed = propose(&space, new(&space), scores);
            let again = propose(&space, new(&space), scores);
            assert!(proposed == again, "ask: {text}: the same calls and random numbers give other candidates");
        }
    }
    exhausts(&space(SMALL, None), &new);
}

fn space(text: &str, word: Option<&str>) -> ScheduleSpace {
    let target = match word {
        Some(word) => Target::detect(word, None),
        None => Ok(Target::Cpu(CpuTarget::generic_avx2(2))),
    };
    match (text.parse(), target) {
        (Ok(workload), Ok(target)) => ScheduleSpace::new(&workload, &target),
        (workload, target) => panic!("the contract's own space is invalid: {workload:?}, {target:?}"),
    }
}

/// Kinds of predicted scores.
#[derive(Clone, Copy, Debug)]
enum PredictedScores {
    /// Scores of both signs, some of them NaN, and no score for some candidates.
    Any,
    /// Only negative scores: scores have no fixed scale.
    Negative,
    Equal,
    /// No scores, as if no candidate could be lowered.
    None,
}

impl PredictedScores {
    fn of(self, candidates: &[Candidate]) -> Vec<Option<f32>> {
        let score = |candidate: &Candidate| {
            let hash = candidate.stable_hash();
            match self {
                PredictedScores::Any => match hash % 7 {
                    0 => None,
                    1 => Some(f32::NAN),
                    _ => Some((hash % 1000) as f32 - 500.0),
                },
                PredictedScores::Negative => Some(-1.0 - (hash % 1000) as f32),
                PredictedScores::Equal => Some(0.0),
                PredictedScores::None => None,
            }
        };
        candidates.iter().map(score).collect()
    }
}

/// Returns a made-up result of a candidate: a time or a failure.
fn measured(candidate: &Candidate) -> (Candidate, Measurement) {
    let hash = candidate.stable_hash();
    let run_secs = 1e-3 + 1e-6 * (hash % 997) as f64;
    let outcome = match hash % 5 {
        0 => Err(CandidateError::Build { message: "made up".into() }),
        _ => Ok(RunSecs::synthetic(run_secs)),
    };
    (candidate.clone(), Measurement::of(outcome))
}

/// Asks for several batches, checks them and reports their results with delay. Returns all proposed
/// candidates.
fn propose(space: &ScheduleSpace, mut searcher: impl Searcher, scores: PredictedScores) -> Vec<Candidate> {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let mut seen = HashSet::new();

    // Earlier runs may have measured candidates that this searcher never proposed.
    let earlier: Vec<Candidate> = (0..BATCH).map(|_| space.sample(&mut rng)).collect();
    seen.extend(earlier.iter().map(Candidate::stable_hash));
    searcher.tell(&earlier.iter().map(measured).collect::<Vec<_>>());
    let carried = [&earlier[..2], &[space.sample(&mut rng), space.sample(&mut rng)]].concat();
    for begun in searcher.begin_with(carried) {
        assert!(space.contains(&begun), "begin_with: not in the space: {begun}");
    }

    let mut proposed: Vec<Candidate> = Vec::new();
    let mut told = 0;
    for (round, explore) in [0.5, 0.05, 0.0, 1.0, 0.05, 0.05].into_iter().enumerate() {
        let n = if round == 3 { 1 } else { BATCH };
        let batch = ask(&mut searcher, space, scores, explore, &seen, n, &mut rng);
        assert!(batch.len() == n, "ask: {} candidates of a large space, expected {n}", batch.len());
        seen.extend(batch.iter().map(Candidate::stable_hash));

        // On a GPU a batch is requested before the results of the previous one are reported.
        let late = proposed.len();
        searcher.tell(&proposed[told..late].iter().map(measured).collect::<Vec<_>>());
        (told, proposed) = (late, [proposed, batch].concat());
    }
    proposed
}

/// Asks for one batch and checks it.
fn ask(
    searcher: &mut impl Searcher,
    space: &ScheduleSpace,
    scores: PredictedScores,
    explore: f64,
    seen: &HashSet<u64>,
    n: usize,
    rng: &mut ChaCha8Rng,
) -> Vec<Candidate> {
    let mut score = |candidates: &[Candidate]| scores.of(candidates);
    let batch = searcher.ask(Ask { space, score: &mut score, explore, seen, n, rng });

    assert!(batch.len() <= n, "ask: {} candidates, expected at most {n}", batch.len());
    let mut taken = HashSet::new();
    for candidate in &batch {
        let hash = candidate.stable_hash();
        assert!(space.contains(candidate), "ask: not in the space: {candidate}");
        assert!(!seen.contains(&hash), "ask: seen before: {candidate}");
        assert!(taken.insert(hash), "ask: twice in a batch: {candidate}");
    }
    batch
}

/// Asks until the space is exhausted.
fn exhausts<S: Searcher>(space: &ScheduleSpace, new: &impl Fn(&ScheduleSpace) -> S) {
    let (mut searcher, mut rng, mut seen) = (new(space), ChaCha8Rng::seed_from_u64(7), HashSet::new());
    let size = space.iter().count();
    loop {
        let batch = ask(&mut searcher, space, PredictedScores::Any, 0.05, &seen, 64, &mut rng);
        if batch.is_empty() {
            break;
        }
        seen.extend(batch.iter().map(Candidate::stable_hash));
        searcher.tell(&batch.iter().map(measured).collect::<Vec<_>>());
    }
    assert!(seen.len() == size, "ask: no candidates, although only {} of {size} were seen", seen.len());
}
