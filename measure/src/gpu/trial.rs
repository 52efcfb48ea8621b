//! One loaded GPU kernel with operands: run, checked, timed.

use std::sync::Arc;

use autotune_schedules::plan::PlanBuffer;
use autotune_schedules::program::{Role, When};
use autotune_schedules::{DType, KernelPlan};

use super::{Code, Device};
use crate::harness::{self, Samples};
use crate::measurement::{CandidateError, RunSecs};
use crate::options::TimingOptions;
use crate::problem::Problem;
use crate::trial::{relative_error, same_bits};

/// Words behind each buffer that must not change.
const GUARD: usize = 1024;
/// What they hold: a number that no kernel computes.
const GUARD_BITS: u32 = 0xffc0_dead;
/// Rounds of a race.
const RACE_ROUNDS: usize = 20;
/// Part of the time floor that a candidate runs in each round of a race.
const RACE_ROUND_FLOOR: f64 = 0.2;

/// One global buffer.
struct Slot {
    role: Role,
    dtype: DType,
    /// Number of elements.
    len: usize,
    /// Size in 32-bit words, which is what a device's memory is made of here.
    words: usize,
    /// What the operand holds, as words; for the output, the values that it must hold.
    values: Option<Arc<[f32]>>,
}

impl Slot {
    fn new(buffer: &PlanBuffer, values: Option<Arc<[f32]>>) -> Self {
        let (role, dtype, len) = (buffer.role, buffer.dtype, buffer.shape.iter().product::<usize>());
        let words = (len * dtype.bytes()).div_ceil(4);
        let pack = |v: Arc<[f32]>| dtype.words(&v).into_iter().map(f32::from_bits).collect();
        let is_packed = dtype.bytes() < 4 && role != Role::Output;
        Self { role, dtype, len, words, values: if is_packed { values.map(pack) } else { values } }
    }
}

/// A kernel, its global buffers in the order of the plan, and what they must hold.
pub(super) struct Trial<'d, D: Device> {
    device: &'d D,
    module: D::Module,
    plan: KernelPlan,
    slots: Vec<Slot>,
    memory: Vec<D::Memory>,
    output: usize,
    /// Largest magnitude in the reference.
    largest: f32,
    tolerance: f64,
    max_rel_error: f64,
}

impl<'d, D: Device> Trial<'d, D> {
    /// Loads a kernel, fills its buffers and runs what runs ahead of time. The data operands are put in only after that.
    pub(super) fn new(device: &'d D, problem: &mut Problem, code: &Code) -> Result<Self, CandidateError> {
        let misfit = |what: String| CandidateError::Lower { message: what };
        let mut slots = Vec::new();
        for buffer in code.plan.buffers.iter().filter(|b| b.global) {
            let values = problem.arranged(buffer.role, buffer.layout).map_err(|e| misfit(e.to_string()))?;
            let len: usize = buffer.shape.iter().product();
            if values.as_ref().is_some_and(|v| v.len() != len) {
                return Err(misfit(format!("the {:?} buffer has not the size of its tensor", buffer.role)));
            }
            slots.push(Slot::new(buffer, values));
        }
        let output = slots.iter().position(|s| s.role == Role::Output);
        let output = output.ok_or_else(|| misfit("the plan has no output".into()))?;
        let module = device.load(&code.bytes, &code.plan)?;
        let memory = slots.iter().map(|slot| device.upload(&undefined(slot.words))).collect::<Result<_, _>>()?;
        let (plan, largest, tolerance) = (code.plan.clone(), problem.largest(), code.tolerance);
        let mut trial = Self { device, module, plan, slots, memory, output, largest, tolerance, max_rel_error: 0.0 };
        trial.put(|role| matches!(role, Role::Weight | Role::Bias))?;
        trial.run(When::AheadOfTime)?;
        trial.put(|role| matches!(role, Role::Input | Role::Residual))?;
        Ok(trial)
    }

    fn put(&mut self, wanted: impl Fn(Role) -> bool) -> Result<(), CandidateError> {
        for (slot, memory) in self.slots.iter().zip(&mut self.memory).filter(|(slot, _)| wanted(slot.role)) {
            if let Some(values) = &slot.values {
                self.device.write(memory, values)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, when: When) -> Result<(), CandidateError> {
        for (number, stage) in self.plan.stages.iter().enumerate() {
            if stage.when == when {
                self.device.launch(&self.module, number, &mut self.memory)?;
            }
        }
        Ok(())
    }

    /// Seconds of `runs` runs.
    fn repeat(&mut self, runs: usize) -> Result<f64, CandidateError> {
        let device = self.device;
        device.time(&mut || (0..runs).try_for_each(|_| self.run(When::EveryRun)))
    }

    /// Runs once on an output of nothing and compares; the seconds of the run.
    fn check(&mut self) -> Result<f64, CandidateError> {
        self.device.write(&mut self.memory[self.output], &undefined(self.slots[self.output].words))?;
        let secs = self.repeat(1)?;
        self.compare()?;
        Ok(secs)
    }

    fn compare(&mut self) -> Result<(), CandidateError> {
        let Slot { dtype, len, words, values, .. } = &self.slots[self.output];
        let mut output = vec![0.0; *words];
        self.device.read(&self.memory[self.output], &mut output)?;
        if dtype.bytes() < 4 {
            let words: Vec<u32> = output.iter().map(|word| word.to_bits()).collect();
            output = dtype.values(&words, *len);
        }
        let error = values.as_ref().map_or(f64::INFINITY, |wanted| relative_error(&output, wanted, self.largest));
        self.max_rel_error = self.max_rel_error.max(error);
        if error <= self.tolerance {
            return Ok(());
        }
        Err(CandidateError::WrongResult { max_rel_error: error, tolerance: self.tolerance })
    }

    /// Checks after timing that a run on top of earlier ones is right, then one on a fresh output, and that no operand and
    /// nothing behind the buffers changed.
    fn recheck(&mut self) -> Result<(), CandidateError> {
        self.repeat(1)?;
        self.compare()?;
        self.check()?;
        for (slot, memory) in self.slots.iter().zip(&self.memory) {
            let mut found = vec![0.0f32; slot.words + GUARD];
            self.device.read(memory, &mut found)?;
            let (inside, behind) = found.split_at(slot.words);
            if behind.iter().any(|value| value.to_bits() != GUARD_BITS) {
                return Err(CandidateError::StrayWrite { message: "memory behind its buffers changed".into() });
            }
            let changed = slot.values.as_ref().is_some_and(|values| !same_bits(values, inside));
            if slot.role != Role::Output && changed {
                let message = format!("the {:?} operand changed", slot.role).to_lowercase();
                return Err(CandidateError::StrayWrite { message });
            }
        }
        Ok(())
    }

    /// Checks and times.
    pub(super) fn measure(
        &mut self,
        options: &TimingOptions,
        incumbent_secs: Option<f64>,
    ) -> Result<RunSecs, CandidateError> {
        let first_secs = self.check()?;
        let mut clock = Clock { trial: self, failed: None };
        let estimate_secs = harness::warm_up(options, first_secs, &mut |runs| clock.repeat(runs));
        let samples = harness::sample(options, estimate_secs, incumbent_secs, &mut |runs| clock.repeat(runs));
        clock.failed.map_or(Ok(()), Err)?;
        self.recheck()?;
        Ok(samples.run_secs(self.max_rel_error))
    }
}

/// Repeats for the timing loop, which takes seconds only: after a failure time flies, so that the loop ends.
struct Clock<'t, 'd, D: Device> {
    trial: &'t mut Trial<'d, D>,
    failed: Option<CandidateError>,
}

impl<D: Device> Clock<'_, '_, D> {
    fn repeat(&mut self, runs: usize) -> f64 {
        if self.failed.is_none() {
            match self.trial.repeat(runs) {
                Ok(secs) => return secs,
                Err(error) => self.failed = Some(error),
            }
        }
        1e9
    }
}

/// Times kernels in turns, a short while each, round after round, each round starting with another; checks each before and
/// after.
pub(super) fn race<'d, D: Device>(
    trials: Vec<Result<Trial<'d, D>, CandidateError>>,
    options: &TimingOptions,
) -> Vec<Result<RunSecs, CandidateError>> {
    let round = TimingOptions { floor_secs: RACE_ROUND_FLOOR * options.floor_secs, min_repeats: 1, ..options.clone() };
    let start = |trial: Result<Trial<'d, D>, CandidateError>| {
        let mut trial = trial?;
        let first_secs = trial.check()?;
        Ok((trial, first_secs, Samples::default()))
    };
    let mut lanes: Vec<Result<_, CandidateError>> = trials.into_iter().map(start).collect();
    for turn in 0..RACE_ROUNDS {
        for offset in 0..lanes.len() {
            let index = (turn + offset) % lanes.len();
            let Ok((trial, estimate_secs, samples)) = &mut lanes[index] else {
                continue;
            };
            let mut clock = Clock { trial, failed: None };
            // The kernel before this one left its own data in the caches.
            let fastest = harness::warm_up(&round, *estimate_secs, &mut |runs| clock.repeat(runs));
            *estimate_secs = estimate_secs.min(fastest);
            samples.append(harness::sample(&round, *estimate_secs, None, &mut |runs| clock.repeat(runs)));
            if let Some(error) = clock.failed {
                lanes[index] = Err(error);
            }
        }
    }
    let finish = |lane: Result<(Trial<'d, D>, f64, Samples), CandidateError>| {
        let (mut trial, _, samples) = lane?;
        trial.recheck()?;
        Ok(samples.run_secs(trial.max_rel_error))
    };
    lanes.into_iter().map(finish).collect()
}

/// So many words that are no numbers, nor are their halves, and the guard behind them.
fn undefined(words: usize) -> Vec<f32> {
    let mut values = vec![f32::from_bits(u32::MAX); words];
    values.resize(words + GUARD, f32::from_bits(GUARD_BITS));
    values
}
