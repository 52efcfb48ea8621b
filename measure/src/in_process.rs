//! Measurer that runs kernels in the calling process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use autotune_ir::Target;
use autotune_measurement::Measurement;
use autotune_runtime::affinity;
use autotune_schedules::Candidate;
use autotune_workloads::{OutOfMemory, Workload};

use crate::available;
use crate::builder::KernelBuilder;
use crate::built::Built;
use crate::error::MeasureError;
use crate::front::{Front, KernelRunner};
use crate::measurer::{Batches, Measurer, OnResult, RaceResult};
use crate::options::{MeasureOptions, TimingOptions};
use crate::problem::TestProblem;
use crate::station::{self, Outcome, Station};

/// Measures candidates in this process, on this machine's CPU or GPU as their target says. It needs
/// no worker program and has no overhead for one.
///
/// There is no protection: a kernel that crashes, hangs, writes beyond its buffers or exhausts
/// memory takes the process with it. [`MeasureOptions::run_limit_secs`] and
/// [`MeasureOptions::memory_slack_bytes`] have no effect. Wrong results and writes just outside the
/// buffers are found as in [`crate::WorkerMeasurer`].
pub struct InProcessMeasurer {
    front: Front<Here>,
}

impl InProcessMeasurer {
    /// Returns a measurer of this machine.
    ///
    /// # Safety
    ///
    /// The caller accepts that generated code runs in this process with no protection against its
    /// faults.
    pub unsafe fn new(options: MeasureOptions) -> Self {
        let builder = KernelBuilder::new(options.backend, options.build_limit_secs);
        let here = Here { timing: options.timing, problems: HashMap::new(), stations: HashMap::new() };
        Self { front: Front::new(builder, here) }
    }

    /// Returns the builder of candidates.
    pub fn builder(&mut self) -> &mut KernelBuilder {
        &mut self.front.builder
    }

    /// Sets the seconds per run against which candidates of a workload are stopped early. By
    /// default that is the fastest time that this measurer has measured.
    pub fn set_incumbent(&mut self, workload: &Workload, target: &Target, run_secs: f64) {
        self.front.set_incumbent(workload, target, run_secs);
    }

    /// Measures a kernel that is already built.
    pub fn run_built(&mut self, built: &Built) -> Result<Measurement, MeasureError> {
        self.front.run_built(built)
    }

    /// Races kernels that are already built, as [`Measurer::race`] does.
    pub fn race_built(&mut self, built: &[Built], budget_secs: f64) -> Result<RaceResult, MeasureError> {
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

    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError> {
        self.front.race(candidates, budget_secs)
    }
}

/// Runner that executes kernels in this process.
struct Here {
    timing: TimingOptions,
    problems: HashMap<Workload, TestProblem>,
    /// Devices that were opened so far.
    stations: HashMap<Target, Box<dyn Station>>,
}

impl Here {
    /// Makes a workload's operands and reference unless they exist. Fails if memory is short.
    fn prepare(&mut self, workload: &Workload) -> Result<(), MeasureError> {
        let Entry::Vacant(place) = self.problems.entry(workload.clone()) else { return Ok(()) };
        let available_bytes = available::available_bytes();
        available::check_available(workload, available_bytes)?;
        let no_memory = |OutOfMemory { bytes }| {
            let workload = Box::new(workload.clone());
            MeasureError::Memory { workload, needed_bytes: bytes, available_bytes }
        };
        place.insert(TestProblem::new(workload).map_err(no_memory)?);
        Ok(())
    }

    /// Runs kernels on their device, on a CPU pinned to its first core.
    fn run(
        &mut self,
        built: &[Built],
        run: impl FnOnce(&mut dyn Station, &HashMap<Workload, TestProblem>, &TimingOptions) -> Vec<Outcome>,
    ) -> Result<Vec<Outcome>, MeasureError> {
        let Some(target) = built.first().map(|built| &built.artifact.target) else { return Ok(Vec::new()) };
        for built in built {
            self.prepare(&built.workload)?;
        }

        let Self { timing, problems, stations } = self;
        let station = match stations.entry(target.clone()) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => place.insert(station::open(target)?),
        };
        let run = || run(&mut **station, problems, timing);
        let outcomes = match target {
            Target::Cpu(_) => affinity::pinned_to_core(0, run),
            Target::Gpu(_) => run(),
        };

        // A kernel may have written to this memory, so it is made again.
        if station.is_spoilt(&outcomes) {
            stations.remove(target);
            if target.gpu().is_none() {
                problems.clear();
            }
        }
        Ok(outcomes)
    }
}

impl KernelRunner for Here {
    fn time(&mut self, built: &Built, incumbent_secs: Option<f64>) -> Result<Outcome, MeasureError> {
        let time = |station: &mut dyn Station, problems: &HashMap<_, TestProblem>, timing: &TimingOptions| {
            let problem = problems.get(&built.workload);
            // SAFETY: the caller of `InProcessMeasurer::new` accepted that generated code runs in
            // this process.
            problem.map(|problem| unsafe { station.time(problem, built, timing, incumbent_secs) }).into_iter().collect()
        };
        let outcome = self.run(std::slice::from_ref(built), time)?.pop();
        outcome.ok_or_else(|| MeasureError::Worker { message: "the workload was not prepared".into() })
    }

    fn race(&mut self, built: &[Built], budget_secs: f64) -> Result<Vec<Outcome>, MeasureError> {
        // SAFETY: as in `time`.
        self.run(built, |station, problems, timing| unsafe { station.race(problems, built, timing, budget_secs) })
    }
}
