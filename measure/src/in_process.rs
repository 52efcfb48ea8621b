//! Measures kernels in the calling process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::thread;

use autotune_ir::program::Role;
use autotune_ir::{GpuTarget, Target};
use autotune_schedules::{OutOfMemory, Workload};

use crate::affinity;
use crate::allocation_cache::AllocationCache;
use crate::available;
use crate::builder::{Builder, Built};
use crate::front::{Front, Runner};
use crate::gpu::trial::Loaded;
use crate::gpu::{self, Gpu};
use crate::measurement::{Batches, Candidate, CandidateError, MeasureError, Measurement, Measurer, OnResult, RunSecs};
use crate::options::{MeasureOptions, TimingOptions};
use crate::problem::{Problem, misfit};
use crate::race::race;
use crate::reference_kernel::ReferenceKernels;
use crate::team::Team;
use crate::trial::Trial;
use crate::worker::is_harmless;

/// Measures candidates on this machine's CPU or a GPU of it, whichever their target says, in this process: no worker program is
/// needed, and no time is spent on one.
///
/// There is no protection: a kernel that crashes, hangs, writes beyond its buffers or exhausts memory takes the process
/// with it, and [`MeasureOptions::run_limit_secs`] and [`MeasureOptions::memory_slack_bytes`] have no effect. Wrong
/// results and writes just beside the buffers are found as in [`crate::WorkerMeasurer`].
pub struct InProcessMeasurer {
    front: Front<Here>,
}

impl InProcessMeasurer {
    /// A measurer of this machine.
    ///
    /// # Safety
    ///
    /// The caller accepts that generated code runs in this process with no protection against its faults.
    pub unsafe fn new(options: MeasureOptions) -> Self {
        let builder = Builder::new(options.backend, options.build_limit_secs);
        let here = Here {
            timing: options.timing,
            problems: HashMap::new(),
            reference_kernels: ReferenceKernels::default(),
            cache: AllocationCache::default(),
            gpus: HashMap::new(),
        };
        Self { front: Front::new(builder, here) }
    }

    /// The builder.
    pub fn builder(&mut self) -> &mut Builder {
        &mut self.front.builder
    }

    /// Sets the time against which candidates of a workload are stopped early. Without it, that is the fastest this
    /// measurer has measured.
    pub fn set_incumbent(&mut self, workload: &Workload, target: &Target, run_secs: f64) {
        self.front.set_incumbent(workload, target, run_secs);
    }

    /// Measures a kernel that is built already.
    pub fn run_built(&mut self, built: &Built) -> Result<Measurement, MeasureError> {
        self.front.run_built(built)
    }

    /// Races kernels that are built already; [`Measurer::race`].
    pub fn race_built(&mut self, built: &[Built], budget_secs: f64) -> Result<Vec<Measurement>, MeasureError> {
        self.front.race_built(&built.iter().cloned().map(Ok).collect::<Vec<_>>(), budget_secs)
    }
}

impl Measurer for InProcessMeasurer {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        self.front.measure_batches(next_batch, on_result)
    }

    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<Vec<Measurement>, MeasureError> {
        self.front.race(candidates, budget_secs)
    }
}

/// Runs kernels here.
struct Here {
    timing: TimingOptions,
    problems: HashMap<Workload, Problem>,
    reference_kernels: ReferenceKernels,
    cache: AllocationCache,
    /// Those that were opened.
    gpus: HashMap<GpuTarget, Box<dyn Gpu>>,
}

impl Here {
    /// The kernel on its GPU; the outer error is not the kernel's fault.
    fn load(
        &mut self,
        target: &GpuTarget,
        built: &Built,
    ) -> Result<Result<Box<dyn Loaded>, CandidateError>, MeasureError> {
        let device = match self.gpus.entry(target.clone()) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => place.insert(gpu::open(target)?),
        };
        let problem = prepared(&mut self.problems, &built.workload)?;
        Ok(device.load(problem, built, self.timing.cold))
    }

    /// Forgets all that a kernel which failed may have written to.
    fn distrust(&mut self) {
        self.problems.clear();
        self.reference_kernels = ReferenceKernels::default();
        self.cache = AllocationCache::default();
    }
}

/// A workload's problem, made when it is first needed and there is memory for it.
fn prepared<'a>(
    problems: &'a mut HashMap<Workload, Problem>,
    workload: &Workload,
) -> Result<&'a mut Problem, MeasureError> {
    match problems.entry(*workload) {
        Entry::Occupied(known) => Ok(known.into_mut()),
        Entry::Vacant(place) => {
            let available_bytes = available::available_bytes();
            available::foresee(workload, available_bytes)?;
            let no_memory = |OutOfMemory { bytes }| {
                let workload = Box::new(*workload);
                MeasureError::Memory { workload, needed_bytes: bytes, available_bytes }
            };
            Ok(place.insert(Problem::new(workload).map_err(no_memory)?))
        }
    }
}

/// Runs `f` in a thread of its own that is pinned to the first core, with a team; the caller's thread stays free.
fn pinned<T: Send>(threads: usize, f: impl FnOnce(&mut Team) -> T + Send) -> Result<T, MeasureError> {
    affinity::allowed_cores();
    let run = move || {
        affinity::pin_to_core(0);
        f(&mut Team::new(threads))
    };
    let panicked = |_| MeasureError::Worker { message: "the measuring thread panicked".into() };
    thread::scope(|scope| scope.spawn(run).join()).map_err(panicked)
}

impl Runner for Here {
    fn time(
        &mut self,
        built: &Built,
        incumbent_secs: Option<f64>,
    ) -> Result<Result<RunSecs, CandidateError>, MeasureError> {
        if let Some(target) = built.target.gpu() {
            let loaded = self.load(target, built)?;
            return Ok(loaded.and_then(|mut trial| gpu::trial::measure(&mut *trial, &self.timing, incumbent_secs)));
        }
        let Self { timing, problems, reference_kernels, cache, .. } = self;
        let problem = prepared(problems, &built.workload)?;
        let outcome = pinned(built.target.threads(), |team| {
            // SAFETY: whoever made the measurer accepted that.
            let trial = unsafe { Trial::new(problem, built, timing.cold, cache, team) }?;
            let (outcome, spare) = reference_kernels.measure(&built.workload, trial, timing, incumbent_secs, team);
            spare.into_iter().for_each(|trial| trial.give_back(cache));
            outcome
        })?;
        if !is_harmless(&outcome) {
            self.distrust();
        }
        Ok(outcome)
    }

    fn race(
        &mut self,
        built: &[Built],
        budget_secs: f64,
    ) -> Result<Vec<Result<RunSecs, CandidateError>>, MeasureError> {
        let timing = self.timing.clone();
        if let Some(target) = built.first().and_then(|b| b.target.gpu()) {
            let trials = built.iter().map(|b| self.load(target, b)).collect::<Result<_, _>>()?;
            return Ok(race(trials, &timing, budget_secs, &mut ()));
        }
        let threads = built.first().map_or(1, |b| b.target.threads());
        for b in built {
            prepared(&mut self.problems, &b.workload)?;
        }
        let Self { problems, cache, .. } = self;
        let outcomes = pinned(threads, |team| {
            let mut load = |b: &Built| {
                let problem =
                    problems.get_mut(&b.workload).ok_or_else(|| misfit(Role::Input, "there is no problem"))?;
                // SAFETY: as in `time`.
                unsafe { Trial::new(problem, b, timing.cold, cache, team) }
            };
            let trials = built.iter().map(&mut load).collect();
            race(trials, &timing, budget_secs, team)
        })?;
        if !outcomes.iter().all(is_harmless) {
            self.distrust();
        }
        Ok(outcomes)
    }
}
