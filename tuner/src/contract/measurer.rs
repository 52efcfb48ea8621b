//! Contract of a [`Measurer`]: the properties that the tuner relies on.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};

use autotune_ir::Target;
use autotune_measure::{MeasureError, Measurer};
use autotune_measurement::Measurement;
use autotune_schedules::{Candidate, Config, ScheduleSpace};
use autotune_workloads::Workload;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Small workload whose schedules have several stages.
const WORKLOAD: &str = "conv2d:n=1,c=4,h=6,w=6,o=8,k=1,bias,act=relu";

/// Positions of the candidates that cannot be lowered. They are not symmetric, so that results in
/// reverse order are noticed, and they differ in their positions within pairs.
const IMPOSSIBLE: [usize; 2] = [1, 4];

/// Tests a measurer for a target. Results may come in any order, one for each candidate, and a
/// failing candidate fails alone. Batches are requested until one is empty or a result is answered
/// with a break. A race has one result for each of its candidates, too. Times must be positive
/// numbers; their accuracy is not tested.
pub fn measurer(measurer: &mut dyn Measurer, target: &Target) {
    let candidates = candidates(target);
    all(measurer, &candidates);
    batches(measurer, &candidates);
    a_break(measurer, &candidates);
    a_race(measurer, &candidates);
}

/// Returns random candidates, and among them two of a sketch that does not exist.
fn candidates(target: &Target) -> Vec<Candidate> {
    let workload: Workload = match WORKLOAD.parse() {
        Ok(workload) => workload,
        Err(error) => panic!("the contract's own workload is invalid: {error}"),
    };
    let space = ScheduleSpace::new(&workload, target);
    let mut rng = ChaCha8Rng::seed_from_u64(17);
    let mut candidates: Vec<Candidate> = (0..5).map(|_| space.sample(&mut rng)).collect();
    let impossible = Config { sketch: "no such sketch".into(), knobs: Default::default() };
    for position in IMPOSSIBLE {
        candidates.insert(position, space.candidate(&impossible));
    }
    candidates
}

/// Checks that a measurement is plausible for the candidate at this position.
fn check(index: usize, measurement: &Measurement) {
    match &measurement.outcome {
        Ok(run) => {
            assert!(!IMPOSSIBLE.contains(&index), "a candidate of an unknown sketch ran: {run:?}");
            assert!(run.run_secs.is_finite() && run.run_secs > 0.0, "candidate {index} took no time: {run:?}");
        }
        Err(error) => assert!(IMPOSSIBLE.contains(&index), "candidate {index} failed: {error}"),
    }
}

fn done(what: &str, result: Result<(), MeasureError>) {
    if let Err(error) = result {
        panic!("{what}: {error}");
    }
}

/// Positions that have had results.
#[derive(Default)]
struct SeenPositions(Vec<usize>);

impl SeenPositions {
    /// Records a result for one of the first `candidates` candidates.
    fn see(&mut self, what: &str, index: usize, candidates: usize) {
        assert!(index < candidates, "{what}: a result for candidate {index}, which was not passed");
        assert!(!self.0.contains(&index), "{what}: a second result for candidate {index}");
        self.0.push(index);
    }
}

fn all(measurer: &mut dyn Measurer, candidates: &[Candidate]) {
    let mut seen = SeenPositions::default();
    let measured = measurer.measure(candidates, &mut |index, measurement| {
        seen.see("measure", index, candidates.len());
        check(index, &measurement);
        ControlFlow::Continue(())
    });
    done("measure", measured);
    assert_eq!(seen.0.len(), candidates.len(), "measure: expected one result per candidate");
    done("measure nothing", measurer.measure(&[], &mut |_, _| panic!("measure: a result without candidates")));
}

/// Checks that positions continue from batch to batch, and that nothing is requested after an empty
/// batch.
fn batches(measurer: &mut dyn Measurer, candidates: &[Candidate]) {
    let asked = AtomicUsize::new(0);
    let mut chunks = candidates.chunks(2);
    let mut next_batch = || {
        asked.fetch_add(1, Ordering::SeqCst);
        chunks.next().unwrap_or_default().to_vec()
    };
    let mut seen = SeenPositions::default();
    let measured = measurer.measure_batches(&mut next_batch, &mut |index, measurement| {
        let given = candidates.len().min(2 * asked.load(Ordering::SeqCst));
        seen.see("measure_batches", index, given);
        check(index, &measurement);
        ControlFlow::Continue(())
    });
    done("measure_batches", measured);
    assert_eq!(seen.0.len(), candidates.len(), "measure_batches: expected one result per candidate");
    let batches = candidates.len().div_ceil(2);
    assert_eq!(asked.load(Ordering::SeqCst), batches + 1, "measure_batches: expected requests until a batch is empty");
}

fn a_break(measurer: &mut dyn Measurer, candidates: &[Candidate]) {
    let mut seen = SeenPositions::default();
    // Only the break ends this measurement.
    let measured = measurer.measure_batches(&mut || candidates[..2].to_vec(), &mut |index, _| {
        seen.see("measure_batches until a break", index, usize::MAX);
        if seen.0.len() >= 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    done("measure_batches until a break", measured);
    assert_eq!(seen.0.len(), 3, "measure_batches: expected no result after a break");
}

fn a_race(measurer: &mut dyn Measurer, candidates: &[Candidate]) {
    let race = |measurer: &mut dyn Measurer, candidates: &[Candidate]| match measurer.race(candidates, 1.0) {
        Ok(result) => result.measurements,
        Err(error) => panic!("race: {error}"),
    };
    let raced = race(measurer, candidates);
    assert_eq!(raced.len(), candidates.len(), "race: expected one result per candidate");
    raced.iter().enumerate().for_each(|(index, measurement)| check(index, measurement));
    assert!(race(measurer, &[]).is_empty(), "race: a result without candidates");
}
