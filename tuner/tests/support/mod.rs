//! A device that exists only on paper: the run time of a config is a formula, so that search is
//! tested without hardware.

use autotune::PredictParams;
use autotune_measure::{Batches, MeasureError, Measurer, OnResult, RaceResult};
use autotune_measurement::{CandidateError, Measurement, RunSecs};
use autotune_schedules::config::fnv1a;
use autotune_schedules::{Candidate, Config, ScheduleSpace, Value};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Measures by formula; counts what it measured.
#[derive(Default)]
pub(crate) struct PaperDevice {
    /// Whose run times these are, as [`paper_secs`] has them.
    pub(crate) name: &'static str,
    /// Candidates measured, races not counted.
    pub(crate) measured: Vec<Candidate>,
    /// Who raced, race by race.
    pub(crate) raced: Vec<Vec<Candidate>>,
    /// Every candidate fails.
    pub(crate) broken: bool,
    /// Candidates cannot be timed in turns.
    pub(crate) races_fail: bool,
    /// Those fail for which this is true.
    pub(crate) fails: Option<fn(&Candidate) -> bool>,
    /// The next batch is asked for before the last one is measured, as GPUs do.
    pub(crate) ahead: bool,
    /// The results of a batch come last first, as those of several devices may.
    pub(crate) backwards: bool,
    /// Called before each measurement with the number of measurements so far.
    pub(crate) before: Option<Box<dyn FnMut(usize) + Send>>,
}

impl PaperDevice {
    fn outcome(&self, candidate: &Candidate) -> Measurement {
        let outcome = if self.broken || self.fails.is_some_and(|fails| fails(candidate)) {
            Err(CandidateError::Build { message: "paper tears".into() })
        } else if let Err(why) = candidate.lower() {
            Err(CandidateError::Lower { message: why.to_string() })
        } else {
            let run_secs = paper_secs(self.name, candidate);
            Ok(RunSecs { max_rel_error: 1e-7, ..RunSecs::made_up(run_secs) })
        };
        Measurement::of(outcome)
    }
}

impl Measurer for PaperDevice {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        let mut first = 0;
        let mut batch = next_batch();
        while !batch.is_empty() {
            let ahead = self.ahead.then(&mut *next_batch);
            let mut numbered: Vec<_> = batch.iter().enumerate().collect();
            if self.backwards {
                numbered.reverse();
            }
            for (number, candidate) in numbered {
                if let Some(before) = &mut self.before {
                    before(self.measured.len());
                }
                self.measured.push(candidate.clone());
                if on_result(first + number, self.outcome(candidate)).is_break() {
                    return Ok(());
                }
            }
            first += batch.len();
            batch = ahead.unwrap_or_else(&mut *next_batch);
        }
        Ok(())
    }

    fn race(&mut self, candidates: &[Candidate], _budget_secs: f64) -> Result<RaceResult, MeasureError> {
        self.raced.push(candidates.to_vec());
        let measurements = candidates.iter().map(|candidate| self.outcome(candidate)).collect();
        let failure = self.races_fail.then(|| MeasureError::Worker { message: "paper burns".into() });
        Ok(RaceResult { measurements, failure })
    }
}

/// Schedules of a workload that become the best and the worst scored ones of another, of those that
/// a walk comes by: their configs, and what they become on a miss.
#[allow(dead_code)]
pub(crate) fn best_and_worst(
    of: &ScheduleSpace,
    carried_to: &ScheduleSpace,
    score: impl Fn(&Candidate) -> f32,
) -> [(Config, Candidate); 2] {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let carried = |candidate: Candidate| {
        let carried = carried_to.adapt_within(&candidate, of.workload(), PredictParams::QUICK.tries)?;
        Some((score(&carried), candidate, carried))
    };
    let mut best = carried(of.default_candidate().clone()).unwrap();
    let mut worst = best.clone();
    for _ in 0..3000 {
        let Some(next) = carried(of.neighbor(&best.1, &mut rng)) else { continue };
        if next.0 < worst.0 {
            worst = next.clone();
        }
        if next.0 > best.0 {
            best = next;
        }
    }
    [best, worst].map(|(_, candidate, carried)| (candidate.config().clone(), carried))
}

/// The run time on the paper device of a name: 100 GFLOP/s slowed down by a factor per knob. Each
/// level of a tile has an ideal size, and larger and smaller ones cost the square of their distance
/// in octaves; words and orders cost up to a half each. Which, follows from the name.
pub(crate) fn paper_secs(device: &str, candidate: &Candidate) -> f64 {
    let slowdown: f64 = candidate.knobs().map(|(name, value)| 1.0 + cost(&format!("{device}{name}"), value)).product();
    candidate.workload().flops() / 100e9 * slowdown
}

fn cost(name: &str, value: &Value) -> f64 {
    match value {
        Value::Tile(sizes) => {
            let off = |(level, size): (usize, &usize)| {
                let ideal = 1.0 + 4.0 * unit(&format!("{name}.{level}"));
                ((*size as f64).log2() - ideal).powi(2)
            };
            0.05 * sizes.iter().enumerate().map(off).sum::<f64>()
        }
        other => 0.5 * unit(&format!("{name}={other}")),
    }
}

/// A number in `0..1` that follows from a text.
fn unit(text: &str) -> f64 {
    (fnv1a(text.as_bytes()) >> 11) as f64 / (1u64 << 53) as f64
}
