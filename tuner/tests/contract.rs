//! Contract tests applied to the built-in parts and to parts that violate them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use autotune::contract;
use autotune::search::{Annealing, AnnealingParams, Ask, CandidateBatch, Genetic, GeneticParams, Searcher};
use autotune_cost_model::{XgbModel, XgbParams};
use autotune_ir::{CpuTarget, Target};
use autotune_measure::{Batches, InProcessMeasurer, MeasureError, MeasureOptions, Measurer, OnResult, RaceResult};
use autotune_measurement::Measurement;
use autotune_schedules::{Candidate, Config};

use crate::kind::KINDS;
use crate::support::PaperDevice;

/// Returns the violation that a contract test reports.
fn breach(contract: impl FnOnce()) -> String {
    match catch_unwind(AssertUnwindSafe(contract)) {
        Ok(()) => "nothing".into(),
        Err(message) => match message.downcast::<String>() {
            Ok(text) => *text,
            Err(message) => message.downcast_ref::<&str>().unwrap().to_string(),
        },
    }
}

#[test]
fn our_searchers_keep_the_contract() {
    for kind in KINDS {
        contract::searcher(|_| kind.searcher());
    }
}

#[test]
fn searchers_with_other_parameters_keep_the_contract() {
    let tiny = AnnealingParams { chains: 3, fresh: 9, elites: 0, early_stop: 0, ..AnnealingParams::default() };
    contract::searcher(|_| Annealing::new(tiny.clone()));
    let none = AnnealingParams { chains: 0, candidates_per_config: 0, ..AnnealingParams::default() };
    contract::searcher(|_| Annealing::new(none.clone()));
    let inbred = GeneticParams { founders: 0, population: 1, mutation: 1.0, children_per_config: 2 };
    contract::searcher(|_| Genetic::new(inbred.clone()));
}

/// Batch size of the contract tests.
const BATCH: usize = 9;
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Random search with a fault.
struct Faulty {
    fault: &'static str,
    last: Option<Candidate>,
}

impl Searcher for Faulty {
    fn ask(&mut self, ask: Ask<'_>) -> Vec<Candidate> {
        let mut batch = CandidateBatch::new(ask.seen, ask.n);
        let rng = ask.rng;
        batch.fill(ask.space, rng);
        let mut candidates = batch.into_candidates();
        match self.fault {
            "greedy" => candidates.extend(candidates.first().cloned()),
            "repeats itself" => candidates[0] = self.last.take().unwrap_or_else(|| candidates[0].clone()),
            "lazy" => drop(candidates.pop()),
            "elsewhere" => candidates.iter_mut().for_each(|candidate| {
                let config = Config { sketch: "elsewhere".into(), ..candidate.config().clone() };
                *candidate = ask.space.candidate(&config);
            }),
            "by the clock" if candidates.len() == BATCH => {
                candidates.rotate_left(CALLS.fetch_add(1, Ordering::SeqCst) % BATCH);
            }
            _ => {}
        }
        self.last = candidates.first().cloned();
        candidates.truncate(ask.n + usize::from(self.fault == "greedy"));
        candidates
    }

    fn tell(&mut self, _results: &[(Candidate, Measurement)]) {}
}

#[test]
fn a_searcher_that_breaks_the_contract_is_told_where() {
    let broken = |fault| breach(|| contract::searcher(|_| Faulty { fault, last: None }));
    assert_eq!(broken("none"), "nothing");
    assert!(broken("greedy").contains("ask: 10 candidates, expected at most 9"), "{}", broken("greedy"));
    assert!(broken("lazy").contains("ask: 8 candidates of a large space, expected 9"));
    assert!(broken("repeats itself").contains("ask: seen before"), "{}", broken("repeats itself"));
    assert!(broken("elsewhere").contains("ask: not in the space"));
    assert!(broken("by the clock").contains("the same calls and random numbers give other candidates"));
}

#[test]
fn our_cost_models_keep_the_contract() {
    for word in ["cpu", "cuda:sm_90"] {
        let target = Target::detect(word, None).unwrap();
        // The pretrained model needs the tuner's features, but the contract's rows are too short to
        // have them.
        contract::cost_model(|| XgbModel::for_target(&target));
    }
    contract::cost_model(|| XgbModel::new(XgbParams::default()));
}

fn target() -> Target {
    Target::Cpu(CpuTarget::generic_avx2(2))
}

#[test]
fn our_measurers_keep_the_contract() {
    contract::measurer(&mut PaperDevice::default(), &target());
    contract::measurer(&mut PaperDevice { ahead: true, ..PaperDevice::default() }, &target());
    contract::measurer(&mut PaperDevice { backwards: true, ..PaperDevice::default() }, &target());
    let here = Target::detect("cpu", Some(1)).unwrap();
    // SAFETY: it measures only kernels that the contract draws from a schedule space.
    let mut in_process = unsafe { InProcessMeasurer::new(MeasureOptions::default()) };
    contract::measurer(&mut in_process, &here);
}

/// Simulated device with a fault.
struct FaultyDevice(&'static str);

impl Measurer for FaultyDevice {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        let fault = self.0;
        if fault == "numbers each batch backwards" {
            return backwards(next_batch, on_result);
        }

        let mut device = PaperDevice::default();
        let mut skipped = false;
        let measured = device.measure_batches(next_batch, &mut |index, measurement| {
            if fault == "skips one" && index == 1 && !skipped {
                skipped = true;
                return std::ops::ControlFlow::Continue(());
            }
            if fault == "says it twice" && index == 1 && !skipped {
                skipped = true;
                let _ = on_result(index, measurement.clone());
            }
            let answer = on_result(if fault == "starts at one" { index + 1 } else { index }, measurement);
            if fault == "goes on" && answer.is_break() {
                on_result(index + 1, Measurement::of(Err(impossible())))
            } else {
                answer
            }
        });

        if fault == "asks again" {
            next_batch();
        }
        measured
    }

    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError> {
        let mut raced = PaperDevice::default().race(candidates, budget_secs)?;
        match self.0 {
            "loses the last racer" => drop(raced.measurements.pop()),
            "races backwards" => raced.measurements.reverse(),
            _ => {}
        }
        Ok(raced)
    }
}

/// Measures in order, but reports each batch's positions in reverse.
fn backwards(next_batch: &mut Batches<'_>, on_result: &mut OnResult<'_>) -> Result<(), MeasureError> {
    let mut first = 0;
    loop {
        let batch = next_batch();
        let mut is_over = batch.is_empty();
        PaperDevice::default().measure(&batch, &mut |index, measurement| {
            let answer = on_result(first + batch.len() - 1 - index, measurement);
            is_over |= answer.is_break();
            answer
        })?;
        first += batch.len();
        if is_over {
            return Ok(());
        }
    }
}

fn impossible() -> autotune_measurement::CandidateError {
    autotune_measurement::CandidateError::Lower { message: "impossible".into() }
}

#[test]
fn a_measurer_that_breaks_the_contract_is_told_where() {
    let broken = |fault| breach(|| contract::measurer(&mut FaultyDevice(fault), &target()));
    assert_eq!(broken("none"), "nothing");
    assert!(broken("skips one").contains("measure: expected one result per candidate"), "{}", broken("skips one"));
    assert!(broken("starts at one").contains("a candidate of an unknown sketch ran"));
    assert!(broken("says it twice").contains("measure: a second result for candidate 1"));
    assert!(broken("goes on").contains("expected no result after a break"), "{}", broken("goes on"));
    assert!(broken("asks again").contains("expected requests until a batch is empty"), "{}", broken("asks again"));
    let swapped = broken("numbers each batch backwards");
    assert!(swapped.contains("candidate 5 failed"), "{swapped}");
    assert!(broken("races backwards").contains("a candidate of an unknown sketch ran"));
    assert!(broken("loses the last racer").contains("race: expected one result per candidate"));
}
