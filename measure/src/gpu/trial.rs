//! One loaded GPU kernel with operands: run, checked, timed.

use std::rc::Rc;
use std::sync::Arc;

use autotune_schedules::plan::PlanBuffer;
use autotune_schedules::program::{Role, When};
use autotune_schedules::{DType, KernelPlan};

use super::Device;
use crate::builder::Built;
use crate::harness::{self, Samples};
use crate::heats::Heats;
use crate::measurement::{CandidateError, RunSecs};
use crate::options::TimingOptions;
use crate::problem::Problem;
use crate::trial::relative_error;

/// Words behind each buffer that must not change.
const GUARD: usize = 1024;
/// What they hold: a number that no kernel computes.
const GUARD_BITS: u32 = 0xffc0_dead;
/// Most copies of the buffers for cold timing, and most bytes of them.
const MAX_COPIES: usize = 256;
const MAX_COPIES_BYTES: usize = 4 << 30;
/// Rounds of a race.
const RACE_ROUNDS: usize = 20;
/// Part of the time floor that a candidate runs in each round of a race.
const RACE_ROUND_FLOOR: f64 = 0.2;

/// A kernel on a GPU with operands, whatever the GPU's interface.
pub(crate) trait Loaded {
    /// Runs once on an output of nothing and compares.
    fn check(&mut self) -> Result<(), CandidateError>;
    /// Seconds of `runs` runs.
    fn repeat(&mut self, runs: usize) -> Result<f64, CandidateError>;
    /// Checks after timing that the last run, on top of earlier ones, was right, then, unless the kernel was given up, one on a
    /// fresh output, and that no operand and nothing behind the buffers changed.
    fn recheck(&mut self, given_up: bool) -> Result<(), CandidateError>;
    /// Seconds of all that was repeated so far.
    fn kernel_secs(&self) -> f64;
    /// Largest deviation from the reference so far.
    fn max_rel_error(&self) -> f64;
}

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
pub(super) struct Trial<D: Device> {
    device: Rc<D>,
    module: D::Module,
    plan: KernelPlan,
    slots: Vec<Slot>,
    /// Runs go through these in turns.
    copies: Vec<Vec<D::Memory>>,
    /// Runs so far, and their seconds.
    runs: usize,
    kernel_secs: f64,
    output: usize,
    /// Largest magnitude in the reference.
    largest: f32,
    tolerance: f64,
    max_rel_error: f64,
}

impl<D: Device> Trial<D> {
    /// Loads a kernel, fills its buffers and runs what runs ahead of time. The data operands are put in only after that. There
    /// are so many copies of the buffers that they have `cold_bytes`, but at least one.
    pub(super) fn new(
        device: Rc<D>,
        problem: &mut Problem,
        built: &Built,
        cold_bytes: usize,
    ) -> Result<Self, CandidateError> {
        let misfit = |what: String| CandidateError::Lower { message: what };
        let mut slots = Vec::new();
        for buffer in built.plan.buffers.iter().filter(|b| b.global) {
            let values = problem.arranged(buffer.role, buffer.layout).map_err(|e| misfit(e.to_string()))?;
            let len = buffer.elements().filter(|&len| len <= isize::MAX as usize / 8);
            let len = len.ok_or_else(|| CandidateError::OutOfMemory { message: format!("{:?}", buffer.shape) })?;
            if values.as_ref().is_some_and(|v| v.len() != len) {
                return Err(misfit(format!("the {:?} buffer has not the size of its tensor", buffer.role)));
            }
            slots.push(Slot::new(buffer, values));
        }
        let output = slots.iter().position(|s| s.role == Role::Output);
        let output = output.ok_or_else(|| misfit("the plan has no output".into()))?;
        let module = device.load(&built.code, &built.plan)?;
        let (plan, largest, tolerance) = (built.plan.clone(), problem.largest(), built.tolerance);
        let bytes = 4 * slots.iter().map(|slot| slot.words).sum::<usize>().max(1);
        let copies = (cold_bytes / bytes + 1).min(MAX_COPIES).min((MAX_COPIES_BYTES / bytes).max(1));
        let mut trial = Self {
            device,
            module,
            plan,
            slots,
            copies: Vec::with_capacity(copies),
            runs: 0,
            kernel_secs: 0.0,
            output,
            largest,
            tolerance,
            max_rel_error: 0.0,
        };
        for copy in 0..copies {
            let memory = trial.slots.iter().map(|slot| trial.device.upload(bytes_of(&undefined(slot.words))));
            let memory = memory.collect::<Result<_, _>>()?;
            trial.copies.push(memory);
            trial.put(copy, |role| matches!(role, Role::Weight | Role::Bias))?;
            trial.run(copy, When::AheadOfTime)?;
            trial.put(copy, |role| matches!(role, Role::Input | Role::Residual))?;
        }
        Ok(trial)
    }

    fn put(&mut self, copy: usize, wanted: impl Fn(Role) -> bool) -> Result<(), CandidateError> {
        for (slot, memory) in self.slots.iter().zip(&mut self.copies[copy]).filter(|(slot, _)| wanted(slot.role)) {
            if let Some(values) = &slot.values {
                self.device.write(memory, bytes_of(values))?;
            }
        }
        Ok(())
    }

    fn run(&mut self, copy: usize, when: When) -> Result<(), CandidateError> {
        for (number, stage) in self.plan.stages.iter().enumerate() {
            if stage.when == when {
                self.device.launch(&self.module, number, &mut self.copies[copy])?;
            }
        }
        Ok(())
    }

    /// Compares the output of a copy with the reference.
    fn compare(&mut self, copy: usize) -> Result<(), CandidateError> {
        let Slot { dtype, len, words, values, .. } = &self.slots[self.output];
        let mut output = vec![0.0; *words];
        self.device.read(&self.copies[copy][self.output], bytes_of_mut(&mut output))?;
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
}

impl<D: Device> Loaded for Trial<D> {
    fn check(&mut self) -> Result<(), CandidateError> {
        let nothing = undefined(self.slots[self.output].words);
        self.device.write(&mut self.copies[0][self.output], bytes_of(&nothing))?;
        self.run(0, When::EveryRun)?;
        self.compare(0)
    }

    fn repeat(&mut self, runs: usize) -> Result<f64, CandidateError> {
        let device = Rc::clone(&self.device);
        let secs = device.time(&mut || {
            (0..runs).try_for_each(|_| {
                let copy = self.runs % self.copies.len();
                self.runs += 1;
                self.run(copy, When::EveryRun)
            })
        })?;
        self.kernel_secs += secs;
        Ok(secs)
    }

    fn recheck(&mut self, given_up: bool) -> Result<(), CandidateError> {
        let last = self.runs.checked_sub(1).map_or(0, |last| last % self.copies.len());
        self.compare(last)?;
        if !given_up {
            self.check()?;
        }
        for (memory, slot) in self.copies.iter().flat_map(|copy| copy.iter().zip(&self.slots)) {
            let mut found = vec![0.0f32; slot.words + GUARD];
            self.device.read(memory, bytes_of_mut(&mut found))?;
            let (inside, behind) = found.split_at(slot.words);
            if behind.iter().any(|value| value.to_bits() != GUARD_BITS) {
                return Err(CandidateError::StrayWrite { message: "memory behind its buffers changed".into() });
            }
            let changed = slot.values.as_ref().is_some_and(|values| bytes_of(values) != bytes_of(inside));
            if slot.role != Role::Output && changed {
                let message = format!("the {:?} operand changed", slot.role).to_lowercase();
                return Err(CandidateError::StrayWrite { message });
            }
        }
        Ok(())
    }

    fn kernel_secs(&self) -> f64 {
        self.kernel_secs
    }

    fn max_rel_error(&self) -> f64 {
        self.max_rel_error
    }
}

/// Checks and times one kernel.
pub(crate) fn measure(
    trial: &mut dyn Loaded,
    options: &TimingOptions,
    incumbent_secs: Option<f64>,
) -> Result<RunSecs, CandidateError> {
    let first_secs = first_secs(trial)?;
    let mut clock = Clock { trial, failed: None };
    let estimate_secs = harness::warm_up(options, first_secs, &mut |runs| clock.repeat(runs));
    let samples = harness::sample(options, estimate_secs, incumbent_secs, &mut |runs| clock.repeat(runs));
    clock.failed.map_or(Ok(()), Err)?;
    trial.recheck(samples.stopped_early())?;
    Ok(RunSecs { kernel_secs: trial.kernel_secs(), ..samples.run_secs(trial.max_rel_error()) })
}

/// Checks; seconds of the first run that counts. The one before it may compile or load the kernel.
fn first_secs(trial: &mut dyn Loaded) -> Result<f64, CandidateError> {
    trial.check()?;
    trial.repeat(1)
}

/// Repeats for the timing loop, which takes seconds only: after a failure time flies, so that the loop ends.
struct Clock<'t> {
    trial: &'t mut dyn Loaded,
    failed: Option<CandidateError>,
}

impl Clock<'_> {
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

/// A kernel in a race.
struct Lane {
    trial: Box<dyn Loaded>,
    /// The fastest run so far.
    estimate_secs: f64,
    samples: Samples,
}

/// Times kernels in turns, a short while each, round after round ([`Heats`]); checks each before and after.
pub(crate) fn race(trials: Vec<Box<dyn Loaded>>, options: &TimingOptions) -> Vec<Result<RunSecs, CandidateError>> {
    let round = TimingOptions { floor_secs: RACE_ROUND_FLOOR * options.floor_secs, min_repeats: 1, ..options.clone() };
    let start = |mut trial: Box<dyn Loaded>| {
        let estimate_secs = first_secs(&mut *trial)?;
        Ok(Lane { trial, estimate_secs, samples: Samples::default() })
    };
    let mut lanes: Vec<Result<Lane, CandidateError>> = trials.into_iter().map(start).collect();
    let mut heats = Heats::new(lanes.len());
    for turn in 0..RACE_ROUNDS {
        let so_far = |i: usize| lanes[i].as_ref().map_or(f64::INFINITY, |lane| lane.samples.run_secs(0.0).run_secs);
        for index in heats.round(turn, so_far) {
            let Ok(Lane { trial, estimate_secs, samples }) = &mut lanes[index] else {
                continue;
            };
            let mut clock = Clock { trial: &mut **trial, failed: None };
            // The kernel before this one left its own data in the caches.
            let fastest = harness::warm_up(&round, *estimate_secs, &mut |runs| clock.repeat(runs));
            *estimate_secs = estimate_secs.min(fastest);
            samples.append(harness::sample(&round, *estimate_secs, None, &mut |runs| clock.repeat(runs)));
            if let Some(error) = clock.failed {
                lanes[index] = Err(error);
            }
        }
    }
    let finish = |lane: Result<Lane, CandidateError>| {
        let Lane { mut trial, samples, .. } = lane?;
        trial.recheck(false)?;
        Ok(RunSecs { kernel_secs: trial.kernel_secs(), ..samples.run_secs(trial.max_rel_error()) })
    };
    lanes.into_iter().map(finish).collect()
}

/// So many words that are no numbers, nor are their halves, and the guard behind them.
fn undefined(words: usize) -> Vec<f32> {
    let mut values = vec![f32::from_bits(u32::MAX); words];
    values.resize(words + GUARD, f32::from_bits(GUARD_BITS));
    values
}

/// Elements as the device holds them.
pub(super) fn bytes_of(values: &[f32]) -> &[u8] {
    // SAFETY: numbers are bytes without padding, and those of the slice are these.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// As [`bytes_of`], to be written.
fn bytes_of_mut(values: &mut [f32]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`; any bytes are a number.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}
