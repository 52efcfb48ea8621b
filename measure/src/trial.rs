//! One loaded kernel with operands: run, checked, timed. What the worker and the in-process measurer share.

use std::sync::Arc;
use std::time::Instant;

use autotune_ir::plan::PlanBuffer;
use autotune_ir::program::{Role, When};
use autotune_ir::{KernelPlan, Target};

use crate::allocation_cache::{AllocationCache, Packing};
use crate::buffers::{Buffers, NoMemory};
use crate::builder::Built;
use crate::fixed::{Fixed, Placed};
use crate::harness;
use crate::kernel::Kernel;
use crate::measurement::{CandidateError, RunSecs};
use crate::options::TimingOptions;
use crate::problem::{Problem, misfit};
use crate::race::{Racer, SLOW_SECS};
use crate::reference_check::Expected;
use crate::reference_kernel::{FASTER, ReferenceKernel};
use crate::team::Team;

/// Most copies of the buffers for cold timing, and most bytes of them.
const MAX_COPIES: usize = 64;
const MAX_COPIES_BYTES: usize = 1 << 30;

/// Times that a kernel is timed on a disturbed machine, at most, and the slowdown below which it is not disturbed.
const ATTEMPTS: usize = 3;
const QUIET: f64 = 1.03;

/// A kernel, its buffers and what they must hold.
pub(crate) struct Trial {
    kernel: Kernel,
    /// Position of the output in the plan.
    output: usize,
    /// What the output must be, and the error that it may have.
    expected: Expected,
    tolerance: f64,
    /// Runs go through these in turns.
    copies: Vec<Buffers>,
    /// Runs so far, but for checks, and the seconds of all, with checks.
    runs: usize,
    kernel_secs: f64,
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
    /// Loads a kernel, and packs its weights ahead of time unless a kernel that packs alike did so. The data operands are put in
    /// only after that, so that nothing of them can have been used before its time.
    ///
    /// # Safety
    ///
    /// The code of `built` runs in this process: see [`Kernel::new`].
    pub(crate) unsafe fn new(
        problem: &mut Problem,
        built: &Built,
        cold: bool,
        cache: &mut AllocationCache,
        team: &mut Team,
    ) -> Result<Self, CandidateError> {
        let no_memory = NoMemory::candidate_error;
        // SAFETY: the caller's promise.
        let kernel = unsafe { Kernel::new(&built.code, built.plan.clone()) };
        let kernel = kernel.map_err(|e| CandidateError::Build { message: e.to_string() })?;
        let plan = kernel.plan();
        let mut fixed = operands(problem, plan, team)?;
        let (output, expected) = expected_output(problem, plan)?;
        fixed.extend(packed(built, &kernel, &fixed, cache, team)?);
        let copies_wanted = copies(Buffers::bytes(plan, team.threads()).map_err(no_memory)?, &built.target, cold);
        let mut copies = vec![Buffers::around(fixed.clone(), Some(cache), plan, team.threads()).map_err(no_memory)?];
        for _ in 1..copies_wanted {
            let copy =
                |(position, fixed): &(usize, Arc<Fixed>)| Ok((*position, Arc::new(Fixed::of(fixed.elements(), team)?)));
            let fixed = fixed.iter().map(copy).collect::<Result<_, _>>().map_err(no_memory)?;
            copies.push(Buffers::around(fixed, None, plan, team.threads()).map_err(no_memory)?);
        }
        Ok(Self {
            kernel,
            output,
            expected,
            tolerance: built.tolerance,
            copies,
            runs: 0,
            kernel_secs: 0.0,
            max_rel_error: 0.0,
        })
    }

    /// Gives its memory back, for the next trial.
    pub(crate) fn give_back(self, cache: &mut AllocationCache) {
        for buffers in self.copies {
            let (memory, fixed) = buffers.into_parts();
            cache.give(memory);
            // What is kept stays.
            let own = fixed.into_iter().filter_map(|(_, fixed)| Arc::into_inner(fixed));
            own.for_each(|fixed| cache.give(fixed.into_memory()));
        }
    }

    /// Bytes of its buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.copies.iter().map(Buffers::memory_bytes).sum()
    }

    /// Runs once and compares; returns the seconds of the run. The output is NaN before, and so is everything that
    /// nobody filled.
    pub(crate) fn check(&mut self, team: &mut Team) -> Result<f64, CandidateError> {
        self.copies[0].buffer_mut(self.output).fill(f32::NAN);
        let start = Instant::now();
        self.kernel.run(team, &mut self.copies[0]);
        let secs = start.elapsed().as_secs_f64();
        self.kernel_secs += secs;
        self.compare(0, team)?;
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
        let secs = start.elapsed().as_secs_f64();
        self.kernel_secs += secs;
        secs
    }

    /// Checks after timing that the last run, on top of earlier ones, was right, then, unless it is to be brief, one
    /// on a fresh output, and that no operand, nothing that was packed and nothing outside the buffers changed in all the runs.
    pub(crate) fn recheck(&mut self, briefly: bool, team: &mut Team) -> Result<(), CandidateError> {
        let last = self.runs.checked_sub(1).map_or(0, |last| last % self.copies.len());
        self.compare(last, team)?;
        if !briefly {
            self.check(team)?;
        }
        let stray_write = |message: String| Err(CandidateError::StrayWrite { message });
        for copy in &self.copies {
            let changed = copy.fixed().iter().find(|(_, fixed)| !fixed.is_intact(team));
            if !copy.guards_intact() || changed.is_some_and(|(_, fixed)| fixed.guards_changed()) {
                return stray_write("memory beside its buffers changed".into());
            }
            if let Some(&(position, _)) = changed {
                let role = self.kernel.plan().buffers[position].role;
                return stray_write(format!("the {role:?} operand changed").to_lowercase());
            }
        }
        Ok(())
    }

    /// Seconds of all runs so far.
    pub(crate) fn kernel_secs(&self) -> f64 {
        self.kernel_secs
    }

    /// Largest deviation from the reference so far.
    pub(crate) fn max_rel_error(&self) -> f64 {
        self.max_rel_error
    }

    /// Compares the output of a copy with the reference.
    fn compare(&mut self, copy: usize, team: &mut Team) -> Result<(), CandidateError> {
        let error = self.expected.error(self.copies[copy].buffer(self.output), team);
        self.max_rel_error = self.max_rel_error.max(error);
        if error <= self.tolerance {
            return Ok(());
        }
        Err(CandidateError::WrongResult { max_rel_error: error, tolerance: self.tolerance })
    }
}

/// Checks and times one kernel, by a reference kernel if there is one. On a disturbed machine, what may be faster than the incumbent is
/// timed again, and a correction alone makes nothing faster than that: who wins a duel, as fast; else slower by the root of the
/// slowdown, for kernels differ in what slows them, and of the many that seem the fastest thanks to a correction few are. Returns the
/// times, and how many times longer than the reference kernel the kernel takes, 0 if there is none or the kernel was given up.
pub(crate) fn measure(
    trial: &mut Trial,
    options: &TimingOptions,
    incumbent_secs: Option<f64>,
    team: &mut Team,
    mut reference_kernel: Option<&mut ReferenceKernel>,
) -> Result<(RunSecs, f64), CandidateError> {
    let looked_secs = reference_kernel.as_ref().map_or(0.0, |reference_kernel| reference_kernel.kernel_secs());
    let first_secs = trial.check(team)?;
    let mut slowdown = |team: &mut Team| {
        reference_kernel.as_mut().map_or(1.0, |reference_kernel| reference_kernel.slowdown(options, team))
    };
    let incumbent = incumbent_secs.unwrap_or(0.0);
    let mut before = slowdown(team);
    let mut time = |trial: &mut Trial| {
        let mut repeat = |runs| trial.repeat(runs, team);
        let estimate_secs = harness::warm_up(options, first_secs, &mut repeat);
        let samples = harness::sample(options, estimate_secs, incumbent_secs.map(|secs| secs * before), &mut repeat);
        let after = slowdown(team);
        // What counts of the repeats is their low quantile: the better of the two moments.
        let moment = (samples.run_secs(0.0), before.min(after));
        before = after;
        moment
    };
    let settles = |(run, slowdown): &(RunSecs, f64)| {
        *slowdown < QUIET || run.stopped_early || run.run_secs > slowdown * incumbent
    };
    let mut moment = time(trial);
    let mut best = moment;
    for _ in 1..ATTEMPTS {
        if settles(&moment) {
            break;
        }
        moment = time(trial);
        if moment.1 <= best.1 {
            best = moment;
        }
    }
    let mut ratio = 0.0;
    if let Some(reference_kernel) = reference_kernel.as_mut().filter(|_| !best.0.stopped_early) {
        (ratio, best.1) = reference_kernel.compare(trial, best.0.run_secs, best.1, options, team);
    }
    let (run, slowdown) = best;
    let least_secs = if ratio < FASTER { incumbent } else { incumbent * slowdown.sqrt() };
    let run = run.undisturbed(slowdown, least_secs);
    trial.recheck(run.stopped_early || first_secs >= SLOW_SECS, team)?;
    let looks_secs = reference_kernel.map_or(0.0, |reference_kernel| reference_kernel.kernel_secs()) - looked_secs;
    let run = RunSecs { max_rel_error: trial.max_rel_error, kernel_secs: trial.kernel_secs + looks_secs, ..run };
    Ok((run, ratio))
}

impl Racer<Team> for Trial {
    fn check(&mut self, team: &mut Team) -> Result<f64, CandidateError> {
        Trial::check(self, team)
    }

    fn repeat(&mut self, runs: usize, team: &mut Team) -> Result<f64, CandidateError> {
        Ok(Trial::repeat(self, runs, team))
    }

    fn recheck(&mut self, briefly: bool, team: &mut Team) -> Result<(), CandidateError> {
        Trial::recheck(self, briefly, team)
    }

    fn kernel_secs(&self) -> f64 {
        self.kernel_secs
    }

    fn max_rel_error(&self) -> f64 {
        self.max_rel_error
    }
}

/// Where each operand lies in the plan, and its elements.
fn operands(problem: &mut Problem, plan: &KernelPlan, team: &mut Team) -> Result<Placed, CandidateError> {
    let given = |b: &PlanBuffer| matches!(b.role, Role::Input | Role::Weight | Role::Bias | Role::Residual);
    let operands = plan.buffers.iter().enumerate().filter(|(_, b)| given(b));
    let place = |(position, buffer): (usize, &PlanBuffer)| {
        let fixed = problem.fixed(buffer.role, buffer.layout, team)?;
        let fixed = fixed.ok_or_else(|| misfit(buffer.role, "the workload has none"))?;
        check_len(buffer, fixed.elements().len())?;
        Ok((position, fixed))
    };
    operands.map(place).collect()
}

/// What the stages that run ahead of time make of the weights: known from a kernel that packs alike, or packed now. What they may
/// not read is NaN meanwhile.
fn packed(
    built: &Built,
    kernel: &Kernel,
    operands: &Placed,
    cache: &mut AllocationCache,
    team: &mut Team,
) -> Result<Placed, CandidateError> {
    let plan = kernel.plan();
    if plan.stages.iter().all(|stage| stage.when != When::AheadOfTime) {
        return Ok(Vec::new());
    }
    let no_memory = NoMemory::candidate_error;
    let packing = Packing::of(built);
    if let Some(packed) = packing.as_ref().and_then(|packing| cache.find(&built.workload, packing, plan)) {
        return Ok(packed);
    }
    let is_set_early = |(position, _): &&(usize, _)| matches!(plan.buffers[*position].role, Role::Weight | Role::Bias);
    let mut fixed: Placed = operands.iter().filter(is_set_early).cloned().collect();
    let early = fixed.len();
    for (position, buffer) in plan.buffers.iter().enumerate().filter(|(_, b)| b.global && b.role == Role::Packed) {
        let len = len(buffer).map_err(no_memory)?;
        let memory = Fixed::bytes_of(len).and_then(|bytes| cache.memory(bytes)).map_err(no_memory)?;
        fixed.push((position, Arc::new(Fixed::blank(len, memory))));
    }
    let mut buffers = Buffers::around(fixed, Some(cache), plan, team.threads()).map_err(no_memory)?;
    kernel.prepare(team, &mut buffers);
    let is_blank = |fixed: &Fixed| fixed.elements().iter().all(|x| x.to_bits() == f32::NAN.to_bits());
    let stray = !buffers.guards_intact() || buffers.fixed()[early..].iter().any(|(_, fixed)| fixed.guards_changed());
    if stray {
        return Err(CandidateError::StrayWrite { message: "memory beside its buffers changed".into() });
    }
    let (memory, fixed) = buffers.into_parts();
    cache.give(memory);
    let mut packed = Placed::new();
    for (position, fixed) in fixed.into_iter().skip(early) {
        // Those that are blank are not for what is packed ahead of time.
        match Arc::into_inner(fixed) {
            Some(fixed) if is_blank(&fixed) => cache.give(fixed.into_memory()),
            Some(mut fixed) => {
                fixed.seal(team);
                packed.push((position, Arc::new(fixed)));
            }
            None => {}
        }
    }
    if let Some(packing) = packing {
        cache.keep(&built.workload, packing, packed.clone());
    }
    Ok(packed)
}

/// Where the output lies in the plan, and what it must be.
fn expected_output(problem: &mut Problem, plan: &KernelPlan) -> Result<(usize, Expected), CandidateError> {
    let position = plan.buffers.iter().position(|b| b.role == Role::Output);
    let position = position.ok_or_else(|| misfit(Role::Output, "there is none"))?;
    let buffer = &plan.buffers[position];
    let expected = problem.expected(buffer.layout)?;
    check_len(buffer, expected.len())?;
    Ok((position, expected))
}

/// Number of elements of a buffer.
fn len(buffer: &PlanBuffer) -> Result<usize, NoMemory> {
    buffer.elements().ok_or(NoMemory { bytes: usize::MAX })
}

/// Fails unless so many elements belong into a buffer of the plan.
fn check_len(buffer: &PlanBuffer, elements: usize) -> Result<(), CandidateError> {
    if buffer.global && len(buffer) == Ok(elements) {
        return Ok(());
    }
    Err(misfit(buffer.role, &format!("{elements} elements do not fit shape {:?}", buffer.shape)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backend, Builder, Candidate};
    use autotune_schedules::ScheduleSpace;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn kernels_that_pack_alike_share_what_one_of_them_packed() {
        let target = Target::detect("cpu", Some(2)).unwrap();
        let mut team = Team::new(2);
        for (seed, text) in
            ["conv2d:c=256,h=5,w=4,o=256,k=3,p=1,bias", "matmul:m=5,n=1450,k=1500,bias"].iter().enumerate()
        {
            let workload = text.parse().unwrap();
            let space = ScheduleSpace::new(&workload, &target);
            let mut rng = ChaCha8Rng::seed_from_u64(seed as u64);
            let candidates: Vec<Candidate> = (0..16)
                .map(|_| Candidate { workload, target: target.clone(), config: space.sample(&mut rng) })
                .collect();
            let (mut problem, mut cache) = (Problem::new(&workload).unwrap(), AllocationCache::default());
            let (mut packers, mut distinct) = (0, 0);
            for build in Builder::new(Backend::Assembler, 20.0).build(&candidates).unwrap() {
                let built = build.outcome.unwrap();
                // SAFETY: the code generator's kernels are fit to run.
                let load = |problem: &mut Problem, cache: &mut AllocationCache, team: &mut Team| unsafe {
                    Trial::new(problem, &built, false, cache, team).unwrap()
                };
                let mut trial = load(&mut problem, &mut cache, &mut team);
                trial.check(&mut team).unwrap();
                trial.recheck(false, &mut team).unwrap();
                let alone = load(&mut Problem::new(&workload).unwrap(), &mut AllocationCache::default(), &mut team);
                let (fixed, own) = (trial.copies[0].fixed(), alone.copies[0].fixed());
                assert_eq!(fixed.len(), own.len());
                for ((position, shared), (own_position, own)) in fixed.iter().zip(own) {
                    let bits = |fixed: &Fixed| fixed.elements().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert!(position == own_position && bits(shared) == bits(own), "{text}: buffer {position}");
                }
                packers += usize::from(Packing::of(&built).is_some());
                distinct = cache.len();
                trial.give_back(&mut cache);
            }
            assert!(distinct < packers, "{text}: {distinct} of {packers}");
        }
    }
}
