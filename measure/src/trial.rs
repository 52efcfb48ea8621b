//! One loaded kernel with operands: run, checked, timed. What the worker and the in-process measurer share.

use std::sync::Arc;
use std::time::Instant;

use autotune_schedules::plan::PlanBuffer;
use autotune_schedules::program::Role;
use autotune_schedules::{KernelPlan, Target, max_rel_error, tolerance};
use ndarray::{ArrayD, ArrayView1};

use crate::buffers::{Buffers, NoMemory};
use crate::builder::Built;
use crate::harness::{self, Samples};
use crate::kernel::Kernel;
use crate::measurement::{CandidateError, RunSecs};
use crate::options::TimingOptions;
use crate::problem::Problem;
use crate::team::Team;

/// Most copies of the buffers for cold timing, and most bytes of them.
const MAX_COPIES: usize = 64;
const MAX_COPIES_BYTES: usize = 1 << 30;

/// Rounds of a race.
const RACE_ROUNDS: usize = 20;

/// Part of the time floor that a candidate runs in each round of a race.
const RACE_ROUND_FLOOR: f64 = 0.2;

/// Positions in a plan, and the elements that belong there.
type Placed = Vec<(usize, Arc<[f32]>)>;

/// A kernel, its buffers and what they must hold.
pub(crate) struct Trial {
    kernel: Kernel,
    /// Position in the plan and elements of every operand.
    operands: Placed,
    /// Position of the output in the plan.
    output: usize,
    /// What the output must be, in its layout, and the error it may have.
    reference: ArrayD<f32>,
    tolerance: f64,
    /// Runs go through these in turns.
    copies: Vec<Buffers>,
    /// Runs so far.
    runs: usize,
    /// Largest deviation seen.
    max_rel_error: f64,
}

/// Bytes that a trial's buffers need.
pub(crate) fn needed_bytes(plan: &KernelPlan, target: &Target, cold: bool) -> Result<usize, NoMemory> {
    let bytes = Buffers::bytes(plan, target.threads())?;
    bytes.checked_mul(copies(bytes, target, cold)).ok_or(NoMemory { bytes: usize::MAX })
}

/// One copy, or for cold timing so many that a round through them drives each out of the last-level cache.
fn copies(bytes: usize, target: &Target, cold: bool) -> usize {
    if !cold {
        return 1;
    }
    let bytes = bytes.max(1);
    let wanted = (2 * target.last_level_cache_bytes()).div_ceil(bytes) + 1;
    wanted.min(MAX_COPIES).min(MAX_COPIES_BYTES / bytes).max(1)
}

impl Trial {
    /// Loads a kernel, fills its buffers and runs what runs ahead of time. The data operands are put in only after that,
    /// so that nothing of them can have been used before its time.
    ///
    /// # Safety
    ///
    /// The code of `built` runs in this process: see [`Kernel::load`].
    pub(crate) unsafe fn new(
        problem: &mut Problem,
        built: &Built,
        cold: bool,
        team: &mut Team,
    ) -> Result<Self, CandidateError> {
        let memory = |e: NoMemory| CandidateError::OutOfMemory { message: e.to_string() };
        // SAFETY: the caller's promise.
        let kernel = unsafe { Kernel::load(&built.library, built.plan.clone()) };
        let kernel = kernel.map_err(|e| CandidateError::Build { message: e.to_string() })?;
        let operands = physical_operands(problem, kernel.plan())?;
        let (output, reference) = physical_output(problem, kernel.plan())?;
        let bytes = Buffers::bytes(kernel.plan(), team.threads()).map_err(memory)?;
        let tolerance = tolerance(&problem.workload);
        let copies_wanted = copies(bytes, &built.target, cold);
        let copies = Vec::with_capacity(copies_wanted);
        let mut trial = Self { kernel, operands, output, reference, tolerance, copies, runs: 0, max_rel_error: 0.0 };
        for _ in 0..copies_wanted {
            let mut buffers = Buffers::new(trial.kernel.plan(), team.threads()).map_err(memory)?;
            trial.fill(&mut buffers, team);
            trial.copies.push(buffers);
        }
        Ok(trial)
    }

    fn fill(&self, buffers: &mut Buffers, team: &mut Team) {
        let put = |buffers: &mut Buffers, wanted: fn(Role) -> bool| {
            for (position, values) in &self.operands {
                if wanted(self.kernel.plan().buffers[*position].role) {
                    buffers.buffer_mut(*position).copy_from_slice(values);
                }
            }
        };
        put(buffers, |role| matches!(role, Role::Weight | Role::Bias));
        self.kernel.prepare(team, buffers);
        put(buffers, |role| matches!(role, Role::Input | Role::Residual));
    }

    /// Runs once and compares; returns the seconds of the run. The output is NaN before, and so is everything that
    /// nobody filled.
    pub(crate) fn check(&mut self, team: &mut Team) -> Result<f64, CandidateError> {
        self.copies[0].buffer_mut(self.output).fill(f32::NAN);
        let secs = self.run_first_copy(team);
        self.compare()?;
        Ok(secs)
    }

    /// Runs `runs` times and returns the seconds of all.
    pub(crate) fn repeat(&mut self, runs: usize, team: &mut Team) -> f64 {
        let start = Instant::now();
        for _ in 0..runs {
            let copy = self.runs % self.copies.len();
            self.kernel.run(team, &mut self.copies[copy]);
            self.runs += 1;
        }
        start.elapsed().as_secs_f64()
    }

    /// Checks after timing that a run on top of earlier ones is right, then one on a fresh output, and that no operand
    /// and nothing outside the buffers changed in all the runs.
    pub(crate) fn recheck(&mut self, team: &mut Team) -> Result<(), CandidateError> {
        self.run_first_copy(team);
        self.compare()?;
        self.check(team)?;
        let plan = self.kernel.plan();
        for copy in &self.copies {
            if !copy.guards_intact() {
                return Err(CandidateError::StrayWrite { message: "memory beside its buffers changed".into() });
            }
            for (position, values) in &self.operands {
                let same = copy.buffer(*position).iter().zip(&**values).all(|(a, b)| a.to_bits() == b.to_bits());
                if !same {
                    let message = format!("the {:?} operand changed", plan.buffers[*position].role).to_lowercase();
                    return Err(CandidateError::StrayWrite { message });
                }
            }
        }
        Ok(())
    }

    fn run_first_copy(&mut self, team: &mut Team) -> f64 {
        let start = Instant::now();
        self.kernel.run(team, &mut self.copies[0]);
        start.elapsed().as_secs_f64()
    }

    /// Compares the first copy's output with the reference.
    fn compare(&mut self) -> Result<(), CandidateError> {
        let output = ArrayD::from_shape_vec(self.reference.shape(), self.copies[0].buffer(self.output).to_vec());
        let error = output.map_or(f64::INFINITY, |output| max_rel_error(&output, &self.reference));
        self.max_rel_error = self.max_rel_error.max(error);
        if error <= self.tolerance {
            return Ok(());
        }
        Err(CandidateError::WrongResult { max_rel_error: error, tolerance: self.tolerance })
    }

    fn run_secs(&self, samples: &Samples) -> RunSecs {
        let summary = samples.summary();
        RunSecs {
            run_secs: summary.low_secs,
            median_secs: summary.median_secs,
            spread: summary.spread,
            repeats: summary.repeats,
            stopped_early: summary.stopped_early,
            max_rel_error: self.max_rel_error,
        }
    }
}

/// Checks and times one kernel.
pub(crate) fn measure(
    trial: &mut Trial,
    options: &TimingOptions,
    incumbent_secs: Option<f64>,
    team: &mut Team,
) -> Result<RunSecs, CandidateError> {
    let first_secs = trial.check(team)?;
    let mut repeat = |runs| trial.repeat(runs, team);
    let estimate_secs = harness::warm_up(options, first_secs, &mut repeat);
    let samples = harness::sample(options, estimate_secs, incumbent_secs, &mut repeat);
    trial.recheck(team)?;
    Ok(trial.run_secs(&samples))
}

/// Times kernels in turns, a short while each, round after round, each round starting with another; checks each
/// before and after.
pub(crate) fn race(
    trials: &mut [Trial],
    options: &TimingOptions,
    team: &mut Team,
) -> Vec<Result<RunSecs, CandidateError>> {
    let round = TimingOptions { floor_secs: RACE_ROUND_FLOOR * options.floor_secs, min_repeats: 1, ..options.clone() };
    let mut lanes: Vec<Result<(f64, Samples), CandidateError>> = Vec::with_capacity(trials.len());
    for trial in trials.iter_mut() {
        lanes.push(trial.check(team).map(|first_secs| {
            let estimate_secs = harness::warm_up(options, first_secs, &mut |runs| trial.repeat(runs, team));
            (estimate_secs, Samples::default())
        }));
    }
    for turn in 0..RACE_ROUNDS {
        for offset in 0..trials.len() {
            let index = (turn + offset) % trials.len();
            let trial = &mut trials[index];
            if let Ok((estimate_secs, samples)) = &mut lanes[index] {
                let mut repeat = |runs| trial.repeat(runs, team);
                // The kernel before this one left its own data in the caches.
                repeat(harness::runs_per_repeat(*estimate_secs));
                samples.append(harness::sample(&round, *estimate_secs, None, &mut repeat));
            }
        }
    }
    let finish = |(trial, lane): (&mut Trial, Result<(f64, Samples), CandidateError>)| {
        let (_, samples) = lane?;
        trial.recheck(team)?;
        Ok(trial.run_secs(&samples))
    };
    trials.iter_mut().zip(lanes).map(finish).collect()
}

/// Where each operand lies in the plan, and its elements there.
fn physical_operands(problem: &mut Problem, plan: &KernelPlan) -> Result<Placed, CandidateError> {
    let given = |b: &PlanBuffer| matches!(b.role, Role::Input | Role::Weight | Role::Bias | Role::Residual);
    let operands = plan.buffers.iter().enumerate().filter(|(_, b)| given(b));
    operands.map(|(position, buffer)| Ok((position, elements(problem, buffer)?))).collect()
}

/// Where the output lies in the plan, and what it must be, as a row of elements.
fn physical_output(problem: &mut Problem, plan: &KernelPlan) -> Result<(usize, ArrayD<f32>), CandidateError> {
    let position = plan.buffers.iter().position(|b| b.role == Role::Output);
    let position = position.ok_or_else(|| misfit(Role::Output, "there is none"))?;
    let reference = elements(problem, &plan.buffers[position])?;
    Ok((position, ArrayView1::from(&*reference).into_dyn().to_owned()))
}

/// The elements that belong into a buffer of the plan.
fn elements(problem: &mut Problem, buffer: &PlanBuffer) -> Result<Arc<[f32]>, CandidateError> {
    let elements = problem.arranged(buffer.role, buffer.layout).map_err(|e| misfit(buffer.role, &e.to_string()))?;
    let elements = elements.ok_or_else(|| misfit(buffer.role, "the workload has none"))?;
    let len = buffer.shape.iter().try_fold(1usize, |product, &d| product.checked_mul(d));
    if !buffer.global || len != Some(elements.len()) {
        let what = format!("{} elements do not fit shape {:?}", elements.len(), buffer.shape);
        return Err(misfit(buffer.role, &what));
    }
    Ok(elements)
}

/// A plan that is not one of the workload: what lowering made cannot be run.
fn misfit(role: Role, what: &str) -> CandidateError {
    CandidateError::Lower { message: format!("the plan's {role:?} buffer: {what}").to_lowercase() }
}
