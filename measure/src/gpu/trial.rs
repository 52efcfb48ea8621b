//! One loaded GPU kernel with operands: run, checked, timed.

use std::rc::Rc;

use autotune_ir::plan::PlanBuffer;
use autotune_ir::program::{Role, When};
use autotune_ir::{DType, KernelPlan};
use autotune_schedules::Workload;

use super::Device;
use super::checks::Checks;
use super::replays::{Replays, Timed};
use super::resident::{Resident, Tensor};
use crate::builder::Built;
use crate::harness::{self, Clock};
use crate::measurement::{CandidateError, RunSecs};
use crate::options::TimingOptions;
use crate::problem::Problem;
use crate::race::Racer;
use crate::reference_check::Expected;

/// Most copies of the buffers for cold timing, and most bytes of them.
const MAX_COPIES: usize = 256;
const MAX_COPIES_BYTES: usize = 4 << 30;

/// A device that ran nothing for so long has lowered its clock, and is warmed up for so long.
const IDLE_SECS: f64 = 0.1;
const IDLE_WARMUP_SECS: f64 = 0.05;

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
    /// Number of runs that are started as one; 0 if each is started alone.
    fn graph_runs(&self) -> usize;
    /// Seconds since the device was last timed.
    fn idle_secs(&self) -> f64;
}

/// One global buffer.
struct Slot {
    role: Role,
    dtype: DType,
    /// Number of elements, and of the 32-bit words which they take.
    len: usize,
    words: usize,
}

/// The global buffers that a run uses, in the order of the plan.
struct Buffers<D: Device> {
    memory: Vec<Rc<D::Memory>>,
    /// The operands among them.
    operands: Vec<(Role, Tensor<D>)>,
    /// What starts a run.
    calls: Vec<D::Call>,
}

/// What an output is compared with.
enum Right<D: Device> {
    /// The reference, on the device.
    Resident(Tensor<D>),
    /// Samples, on the host; and an output that agreed with them, with its error.
    Sampled(Option<(Rc<D::Memory>, f64)>),
}

/// A kernel, its global buffers in the order of the plan, and what they must hold.
pub(super) struct Trial<D: Device> {
    resident: Rc<Resident<D>>,
    workload: Workload,
    slots: Vec<Slot>,
    /// Runs go through these in turns.
    copies: Vec<Buffers<D>>,
    /// Copy of the next run, and of the last.
    next: usize,
    last: usize,
    replays: Replays<D>,
    kernel_secs: f64,
    output: usize,
    right: Right<D>,
    /// What the output must be, and the error that it may have.
    expected: Expected,
    tolerance: f64,
    max_rel_error: f64,
    /// True if the operands are known to be as they were.
    is_clean: bool,
}

impl<D: Device> Trial<D> {
    /// Loads a kernel, fills its buffers and runs what runs ahead of time, without the data operands. There are so many copies of the
    /// buffers that they have `cold_bytes`, but at least one.
    pub(super) fn new(
        resident: Rc<Resident<D>>,
        problem: &mut Problem,
        built: &Built,
        cold_bytes: usize,
    ) -> Result<Self, CandidateError> {
        let plan = &built.plan;
        let global: Vec<&PlanBuffer> = plan.buffers.iter().filter(|b| b.global).collect();
        let slots = global.iter().map(|buffer| Slot::new(buffer)).collect::<Result<Vec<_>, _>>()?;
        let output = slots.iter().position(|slot| slot.role == Role::Output);
        let output = output.ok_or_else(|| misfit("the plan has no output".into()))?;
        let layout = global[output].layout;
        let expected = problem.expected(layout)?;
        if expected.len() != slots[output].len {
            return Err(misfit("the output buffer has not the size of its tensor".into()));
        }

        let right = match resident.output(problem, &expected, layout, slots[output].dtype)? {
            Some(tensor) if tensor.checksum.is_some() => Right::Resident(tensor),
            _ => Right::Sampled(None),
        };
        let module = resident.device.load(&built.code, plan)?;
        let replays = Replays::new(Rc::clone(&resident.device));
        let mut trial = Self {
            resident,
            workload: built.workload,
            slots,
            copies: Vec::new(),
            next: 0,
            last: 0,
            replays,
            kernel_secs: 0.0,
            output,
            right,
            expected,
            tolerance: built.tolerance,
            max_rel_error: 0.0,
            is_clean: true,
        };
        trial.add_copy(problem, &module, plan, &global)?;
        let bytes = 4 * trial.slots.iter().map(|slot| slot.words).sum::<usize>().max(1);
        for _ in 0..(cold_bytes / bytes).min(MAX_COPIES - 1).min(MAX_COPIES_BYTES / bytes) {
            trial.add_copy(problem, &module, plan, &global)?;
        }
        Ok(trial)
    }

    /// Another copy of the buffers, of which the first uses the operands that stay on the device.
    fn add_copy(
        &mut self,
        problem: &mut Problem,
        module: &D::Module,
        plan: &KernelPlan,
        global: &[&PlanBuffer],
    ) -> Result<(), CandidateError> {
        let resident = &*self.resident;
        let (mut memory, mut operands) = (Vec::new(), Vec::new());
        for (slot, buffer) in self.slots.iter().zip(global) {
            let Some(mut tensor) = resident.operand(problem, slot.role, buffer.layout, slot.dtype)? else {
                memory.push(resident.undefined(slot.words)?);
                continue;
            };
            if tensor.len != slot.len {
                return Err(misfit(format!("the {:?} buffer has not the size of its tensor", slot.role)));
            }
            if !self.copies.is_empty() {
                tensor = resident.copy(&tensor)?;
            }
            memory.push(Rc::clone(&tensor.memory));
            operands.push((slot.role, tensor));
        }

        self.is_clean = false;
        self.run_ahead_of_time(module, plan, &memory)?;
        let calls = stages(plan, When::EveryRun).map(|number| self.resident.device.bind(module, number, &memory));
        let calls = calls.collect::<Result<_, _>>()?;
        self.copies.push(Buffers { memory, operands, calls });
        Ok(())
    }

    /// Runs what runs ahead of time on buffers in which the data operands are no numbers yet.
    fn run_ahead_of_time(
        &self,
        module: &D::Module,
        plan: &KernelPlan,
        memory: &[Rc<D::Memory>],
    ) -> Result<(), CandidateError> {
        if stages(plan, When::AheadOfTime).next().is_none() {
            return Ok(());
        }
        let without_data = self.slots.iter().zip(memory).map(|(slot, memory)| match slot.role {
            Role::Input | Role::Residual => self.resident.undefined(slot.words),
            _ => Ok(Rc::clone(memory)),
        });
        let without_data = without_data.collect::<Result<Vec<_>, _>>()?;
        stages(plan, When::AheadOfTime).try_for_each(|number| {
            let call = self.resident.device.bind(module, number, &without_data)?;
            self.resident.device.start(&call)
        })
    }

    /// Compares the output of a copy with what is right.
    fn compare(&mut self, copy: usize) -> Result<(), CandidateError> {
        let error = self.error_of(copy)?;
        self.max_rel_error = self.max_rel_error.max(error);
        if error <= self.tolerance {
            return Ok(());
        }
        Err(CandidateError::WrongResult { max_rel_error: error, tolerance: self.tolerance })
    }

    fn error_of(&mut self, copy: usize) -> Result<f64, CandidateError> {
        let Slot { dtype, len, words, .. } = self.slots[self.output];
        let resident = &*self.resident;
        let output = &self.copies[copy].memory[self.output];
        let difference = |from: &Rc<D::Memory>| -> Result<f64, CandidateError> {
            Ok(self.expected.relative(f64::from(resident.checks.difference(output, from, dtype, len)?)))
        };
        match &self.right {
            Right::Resident(tensor) => return difference(&tensor.memory),
            // The same kernel computes the same again, or nearly so.
            Right::Sampled(Some((agreed, error))) => {
                let error = error + difference(agreed)?;
                if error <= self.tolerance {
                    return Ok(error);
                }
            }
            Right::Sampled(None) => {}
        }

        let mut content = vec![0; words];
        resident.device.read(output, 0, bytes_of_mut(&mut content))?;
        let error = self.expected.error_here(&dtype.values(&content, len));
        // Without memory for it, all outputs go the long way.
        if error <= self.tolerance
            && Checks::<D>::reach(words)
            && let Ok(agreed) = resident.device.allocate(4 * words).map(Rc::new)
        {
            resident.device.copy(output, &agreed, 4 * words)?;
            self.right = Right::Sampled(Some((agreed, error)));
        }
        Ok(error)
    }

    /// Checks that no operand and nothing behind the buffers changed.
    fn check_operands(&mut self) -> Result<(), CandidateError> {
        let stray = |message: String| Err(CandidateError::StrayWrite { message });
        for Buffers { memory, operands, .. } in &self.copies {
            for (role, tensor) in operands {
                if self.resident.has_changed(tensor)? {
                    return stray(format!("the {role:?} operand or memory behind it changed").to_lowercase());
                }
            }
            for (slot, memory) in self.slots.iter().zip(memory) {
                if self.resident.is_guard_broken(memory, slot.words)? {
                    return stray("memory behind its buffers changed".into());
                }
            }
        }
        if let Right::Resident(tensor) = &self.right
            && self.resident.has_changed(tensor)?
        {
            return stray("memory that is not its own changed".into());
        }
        self.is_clean = true;
        Ok(())
    }
}

impl<D: Device> Drop for Trial<D> {
    /// Others get operands that this kernel may have written to only if it is known that it has not.
    fn drop(&mut self) {
        if !self.is_clean {
            self.resident.forget(&self.workload);
        }
    }
}

impl Slot {
    fn new(buffer: &PlanBuffer) -> Result<Self, CandidateError> {
        let len = buffer.elements().filter(|&len| len <= isize::MAX as usize / 8);
        let len = len.ok_or_else(|| CandidateError::OutOfMemory { message: format!("{:?}", buffer.shape) })?;
        let words = (len * buffer.dtype.bytes()).div_ceil(4);
        Ok(Self { role: buffer.role, dtype: buffer.dtype, len, words })
    }
}

/// Numbers of the stages of a plan that run then.
fn stages(plan: &KernelPlan, when: When) -> impl Iterator<Item = usize> {
    plan.stages.iter().enumerate().filter(move |(_, stage)| stage.when == when).map(|(number, _)| number)
}

fn misfit(message: String) -> CandidateError {
    CandidateError::Lower { message }
}

impl<D: Device> Loaded for Trial<D> {
    fn check(&mut self) -> Result<(), CandidateError> {
        self.is_clean = false;
        let Buffers { memory, calls, .. } = &self.copies[0];
        let device = &self.resident.device;
        device.fill(&memory[self.output], self.slots[self.output].words, u32::MAX)?;
        calls.iter().try_for_each(|call| device.start(call))?;
        self.compare(0)
    }

    fn repeat(&mut self, runs: usize) -> Result<f64, CandidateError> {
        self.is_clean = false;
        let Self { resident, copies, next, last, .. } = self;
        let mut run = || {
            (*last, *next) = (*next, (*next + 1) % copies.len());
            copies[*last].calls.iter().try_for_each(|call| resident.device.start(call))
        };
        let timed = self.replays.time(runs, copies.len(), &mut run)?;
        self.resident.is_busy();
        self.kernel_secs += timed.secs;
        let Timed { runs: timed_runs, secs } = timed;
        Ok(secs * runs as f64 / timed_runs.max(1) as f64)
    }

    fn recheck(&mut self, briefly: bool) -> Result<(), CandidateError> {
        self.compare(self.last)?;
        if !briefly {
            self.check()?;
        }
        self.check_operands()
    }

    fn kernel_secs(&self) -> f64 {
        self.kernel_secs
    }

    fn max_rel_error(&self) -> f64 {
        self.max_rel_error
    }

    fn graph_runs(&self) -> usize {
        self.replays.graph_runs()
    }

    fn idle_secs(&self) -> f64 {
        self.resident.idle_secs()
    }
}

/// Checks and times one kernel.
pub(crate) fn measure(
    trial: &mut dyn Loaded,
    options: &TimingOptions,
    incumbent_secs: Option<f64>,
) -> Result<RunSecs, CandidateError> {
    let mut options = options.clone();
    if trial.idle_secs() > IDLE_SECS {
        options.warmup_secs = options.warmup_secs.max(IDLE_WARMUP_SECS);
    }
    let first_secs = first_secs(trial)?;
    let mut clock = Clock::new(|runs| trial.repeat(runs));
    let estimate_secs = harness::warm_up(&options, first_secs, &mut |runs| clock.repeat(runs));
    let samples = harness::sample(&options, estimate_secs, incumbent_secs, &mut |runs| clock.repeat(runs));
    clock.outcome()?;
    trial.recheck(samples.stopped_early())?;
    let run = samples.run_secs(trial.max_rel_error());
    Ok(RunSecs { kernel_secs: trial.kernel_secs(), graph_runs: trial.graph_runs(), ..run })
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

    fn graph_runs(&self) -> usize {
        (**self).graph_runs()
    }
}

/// Words as bytes, to be written.
fn bytes_of_mut(words: &mut [u32]) -> &mut [u8] {
    // SAFETY: numbers are bytes without padding, and those of the slice are these; any bytes are a number.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}
