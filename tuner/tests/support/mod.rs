//! Simulated device: the run time of a config is a formula, so that searches can be tested without
//! hardware.

use autotune::PredictParams;
use autotune_measure::{Batches, MeasureError, Measurer, OnResult, RaceResult};
use autotune_measurement::{CandidateError, Measurement, RunSecs};
use autotune_schedules::config::fnv1a;
use autotune_schedules::{Candidate, Config, KnobValue, ScheduleSpace};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Measures by formula and records what it measured.
#[derive(Default)]
pub(crate) struct PaperDevice {
    /// Name of the simulated device, which selects the formula of [`paper_secs`].
    pub(crate) name: &'static str,
    /// Candidates measured, without races.
    pub(crate) measured: Vec<Candidate>,
    /// Candidates of each race.
    pub(crate) raced: Vec<Vec<Candidate>>,
    /// True if every candidate fails.
    pub(crate) broken: bool,
    /// True if races cannot be interleaved.
    pub(crate) races_fail: bool,
    /// Predicate of candidates that fail.
    pub(crate) fails: Option<fn(&Candidate) -> bool>,
    /// True to request the next batch before the last one is measured, as for GPUs.
    pub(crate) ahead: bool,
    /// True to report the results of a batch in reverse, as several devices may.
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
            Ok(RunSecs { max_rel_error: 1e-7, ..RunSecs::synthetic(run_secs) })
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

/// Finds, by a random walk, the schedules of a workload that score best and worst when transferred
/// to another one. Returns their configs and the transferred candidates.
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

/// Returns the run time on the simulated device `device`: that at 100 GFLOP/s times a slowdown
/// factor per knob. Each level of a tile has an ideal size, and another size costs the square of
/// the distance in octaves. Choices and orders cost up to one half each. The ideal sizes and costs
/// follow from the name.
pub(crate) fn paper_secs(device: &str, candidate: &Candidate) -> f64 {
    let slowdown: f64 = candidate.knobs().map(|(name, value)| 1.0 + cost(&format!("{device}{name}"), value)).product();
    candidate.workload().flops() / 100e9 * slowdown
}

fn cost(name: &str, value: &KnobValue) -> f64 {
    match value {
        KnobValue::Tile(sizes) => {
            let off = |(level, size): (usize, &usize)| {
                let ideal = 1.0 + 4.0 * unit(&format!("{name}.{level}"));
                ((*size as f64).log2() - ideal).powi(2)
            };
            0.05 * sizes.iter().enumerate().map(off).sum::<f64>()
        }
        other => 0.5 * unit(&format!("{name}={other}")),
    }
}

/// Returns a pseudo-random number in `0..1` that follows from a text.
fn unit(text: &str) -> f64 {
    (fnv1a(text.as_bytes()) >> 11) as f64 / (1u64 << 53) as f64
}
