//! One loaded GPU kernel with operands: run, checked, timed.

use std::rc::Rc;
use std::sync::Arc;

use autotune_schedules::plan::PlanBuffer;
use autotune_schedules::program::{Layout, Role, When};
use autotune_schedules::{DType, KernelPlan};

use super::Device;
use crate::builder::Built;
use crate::harness::{self, Clock};
use crate::measurement::{CandidateError, RunSecs};
use crate::options::TimingOptions;
use crate::problem::Problem;
use crate::race::Racer;
use crate::reference_check::Expected;

/// Words behind each buffer that must not change.
const GUARD: usize = 1024;
/// What they hold: a number that no kernel computes.
const GUARD_BITS: u32 = 0xffc0_dead;
/// Most copies of the buffers for cold timing, and most bytes of them.
const MAX_COPIES: usize = 256;
const MAX_COPIES_BYTES: usize = 4 << 30;

/// A kernel on a GPU with operands, whatever the GPU's interface.
pub(crate) trait Loaded {
    /// Runs once on an output of nothing and compares.
    fn check(&mut self) -> Result<(), CandidateError>;
    /// Seconds of `runs` runs.
    fn repeat(&mut self, runs: usize) -> Result<f64, CandidateError>;
    /// Checks after timing that the last run, on top of earlier ones, was right, then, unless it is to be brief, one on a
    /// fresh output, and that no operand and nothing behind the buffers changed.
    fn recheck(&mut self, briefly: bool) -> Result<(), CandidateError>;
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
    /// What the operand holds, as words.
    values: Option<Arc<Vec<f32>>>,
}

impl Slot {
    fn new(buffer: &PlanBuffer, values: Option<Arc<Vec<f32>>>) -> Self {
        let (role, dtype, len) = (buffer.role, buffer.dtype, buffer.shape.iter().product::<usize>());
        let words = (len * dtype.bytes()).div_ceil(4);
        let pack = |v: Arc<Vec<f32>>| Arc::new(dtype.words(&v).into_iter().map(f32::from_bits).collect());
        Self { role, dtype, len, words, values: if dtype.bytes() < 4 { values.map(pack) } else { values } }
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
    /// What the output must be, and the error that it may have.
    expected: Expected,
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
            let values = problem.arranged(buffer.role, buffer.layout)?;
            let len = buffer.elements().filter(|&len| len <= isize::MAX as usize / 8);
            let len = len.ok_or_else(|| CandidateError::OutOfMemory { message: format!("{:?}", buffer.shape) })?;
            if values.as_ref().is_some_and(|v| v.len() != len) {
                return Err(misfit(format!("the {:?} buffer has not the size of its tensor", buffer.role)));
            }
            slots.push(Slot::new(buffer, values));
        }
        let output = slots.iter().position(|s| s.role == Role::Output);
        let output = output.ok_or_else(|| misfit("the plan has no output".into()))?;
        let layout = built.plan.buffers.iter().find(|b| b.role == Role::Output).map_or(Layout::Plain, |b| b.layout);
        let expected = problem.expected(layout)?;
        if expected.len() != slots[output].len {
            return Err(misfit("the output buffer has not the size of its tensor".into()));
        }
        let module = device.load(&built.code, &built.plan)?;
        let (plan, tolerance) = (built.plan.clone(), built.tolerance);
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
            expected,
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
        let Slot { dtype, len, words, .. } = &self.slots[self.output];
        let mut output = vec![0.0; *words];
        self.device.read(&self.copies[copy][self.output], bytes_of_mut(&mut output))?;
        if dtype.bytes() < 4 {
            let words: Vec<u32> = output.iter().map(|word| word.to_bits()).collect();
            output = dtype.values(&words, *len);
        }
        let error = self.expected.error_here(&output);
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

    fn recheck(&mut self, briefly: bool) -> Result<(), CandidateError> {
        let last = self.runs.checked_sub(1).map_or(0, |last| last % self.copies.len());
        self.compare(last)?;
        if !briefly {
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
            if changed {
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
    let mut clock = Clock::new(|runs| trial.repeat(runs));
    let estimate_secs = harness::warm_up(options, first_secs, &mut |runs| clock.repeat(runs));
    let samples = harness::sample(options, estimate_secs, incumbent_secs, &mut |runs| clock.repeat(runs));
    clock.outcome()?;
    trial.recheck(samples.stopped_early())?;
    Ok(RunSecs { kernel_secs: trial.kernel_secs(), ..samples.run_secs(trial.max_rel_error()) })
}

/// Checks; seconds of the first run that counts. The one before it may compile or load the kernel.
fn first_secs(trial: &mut dyn Loaded) -> Result<f64, CandidateError> {
    trial.check()?;
    trial.repeat(1)
}

impl Racer<()> for Box<dyn Loaded> {
    fn check(&mut self, (): &mut ()) -> Result<f64, CandidateError> {
        first_secs(&mut **self)
    }

    fn repeat(&mut self, runs: usize, (): &mut ()) -> Result<f64, CandidateError> {
        (**self).repeat(runs)
    }

    fn recheck(&mut self, briefly: bool, (): &mut ()) -> Result<(), CandidateError> {
        (**self).recheck(briefly)
    }

    fn kernel_secs(&self) -> f64 {
        (**self).kernel_secs()
    }

    fn max_rel_error(&self) -> f64 {
        (**self).max_rel_error()
    }
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
