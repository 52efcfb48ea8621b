//! What every measurer does around the running of kernels: building, incumbents, order.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use autotune_schedules::{Target, Workload};
use rayon::ThreadPoolBuilder;

use crate::builder::{Build, Builder, Built};
use crate::measurement::{Candidate, CandidateError, MeasureError, Measurement, RunSecs};

/// Candidates per core that are built before the first of them is run: enough to keep the cores busy, and few enough
/// that results come, and a break is heard, every few seconds.
const BUILDS_PER_CORE: usize = 4;

/// The same for candidates that are built while others run.
const BUILDS_PER_CORE_AHEAD: usize = 1;

/// Runs built kernels.
pub(crate) trait Runner {
    /// Checks and times one.
    fn time(
        &mut self,
        built: &Built,
        incumbent_secs: Option<f64>,
    ) -> Result<Result<RunSecs, CandidateError>, MeasureError>;

    /// Checks several and times them in turns; one outcome each.
    fn race(&mut self, built: &[Built]) -> Result<Vec<Result<RunSecs, CandidateError>>, MeasureError>;
}

/// Builder and incumbents around a runner.
pub(crate) struct Front<R> {
    pub(crate) builder: Builder,
    runs: Runs<R>,
}

/// A runner, and the fastest kernels so far.
struct Runs<R> {
    runner: R,
    incumbents: HashMap<(Workload, Target), f64>,
}

impl<R: Runner> Runs<R> {
    /// Measures what was built and hands it on, each with the position `index` among the candidates.
    fn run(
        &mut self,
        builds: Vec<Build>,
        index: &mut usize,
        on_result: &mut dyn FnMut(usize, Measurement) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, MeasureError> {
        for Build { outcome, toolchain, resources, build_secs } in builds {
            let measurement = match outcome {
                Ok(built) => self.run_built(&built)?,
                Err(error) => Measurement::of(Err(error)),
            };
            let measurement = Measurement { toolchain, resources, build_secs, ..measurement };
            if on_result(*index, measurement).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            *index += 1;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Measures one kernel; the fastest so far becomes the incumbent.
    fn run_built(&mut self, built: &Built) -> Result<Measurement, MeasureError> {
        let key = (built.workload, built.target.clone());
        let incumbent = self.incumbents.get(&key).copied();
        let start = Instant::now();
        let outcome = self.runner.time(built, incumbent)?;
        let measure_secs = start.elapsed().as_secs_f64();
        if let Ok(run) = &outcome
            && incumbent.is_none_or(|secs| run.run_secs < secs)
        {
            self.incumbents.insert(key, run.run_secs);
        }
        Ok(Measurement { measure_secs, ..Measurement::of(outcome) })
    }
}

impl<R: Runner> Front<R> {
    pub(crate) fn new(builder: Builder, runner: R) -> Self {
        Self { builder, runs: Runs { runner, incumbents: HashMap::new() } }
    }

    pub(crate) fn runner(&self) -> &R {
        &self.runs.runner
    }

    pub(crate) fn runner_mut(&mut self) -> &mut R {
        &mut self.runs.runner
    }

    /// Sets the time against which candidates of a workload are stopped early.
    pub(crate) fn set_incumbent(&mut self, workload: &Workload, target: &Target, run_secs: f64) {
        self.runs.incumbents.insert((*workload, target.clone()), run_secs);
    }

    /// [`crate::Measurer::measure`]. Candidates for GPUs are built while others run; on a CPU that would disturb these.
    pub(crate) fn measure(
        &mut self,
        candidates: &[Candidate],
        on_result: &mut dyn FnMut(usize, Measurement) -> ControlFlow<()>,
    ) -> Result<(), MeasureError> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut index = 0;
        if candidates.iter().any(|candidate| candidate.target.gpu().is_none()) {
            for candidates in candidates.chunks(BUILDS_PER_CORE * cores) {
                let builds = self.builder.build(candidates)?;
                if self.runs.run(builds, &mut index, on_result)?.is_break() {
                    break;
                }
            }
            return Ok(());
        }
        let Self { builder, runs } = self;
        // One core is left to what launches kernels: it must not be late.
        let threads = (cores - 1).max(1);
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let io = |e| MeasureError::Io { what: "starting threads".into(), source: std::io::Error::other(e) };
        let pool = pool.map_err(io)?;
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::sync_channel(1);
            scope.spawn(move || {
                let mut chunks = candidates.chunks(BUILDS_PER_CORE_AHEAD * threads);
                let mut build = |candidates| pool.install(|| builder.build(candidates));
                // Nobody receives any more after a break.
                while chunks.next().is_some_and(|candidates| sender.send(build(candidates)).is_ok()) {}
            });
            for builds in receiver {
                if runs.run(builds?, &mut index, on_result)?.is_break() {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Measures one kernel.
    pub(crate) fn run_built(&mut self, built: &Built) -> Result<Measurement, MeasureError> {
        self.runs.run_built(built)
    }

    /// [`crate::Measurer::race`].
    pub(crate) fn race(&mut self, candidates: &[Candidate]) -> Result<Vec<Measurement>, MeasureError> {
        let builds = self.builder.build(candidates)?;
        let kernels: Vec<Result<Built, CandidateError>> = builds.iter().map(|b| b.outcome.clone()).collect();
        let mut measurements = self.race_built(&kernels)?;
        for (measurement, build) in measurements.iter_mut().zip(builds) {
            measurement.build_secs = build.build_secs;
            measurement.toolchain = build.toolchain;
            measurement.resources = build.resources;
        }
        Ok(measurements)
    }

    /// Races those that were built. If that fails, each runs alone for a moment, and those race that survive it.
    pub(crate) fn race_built(
        &mut self,
        kernels: &[Result<Built, CandidateError>],
    ) -> Result<Vec<Measurement>, MeasureError> {
        let mut targets = kernels.iter().flatten().map(|built| &built.target);
        if targets.next().is_some_and(|first| targets.any(|other| other != first)) {
            return Err(MeasureError::MixedTargets);
        }
        match self.race_all(kernels) {
            Err(MeasureError::Worker { .. }) => {
                let mut survivors = Vec::with_capacity(kernels.len());
                for kernel in kernels {
                    survivors.push(match kernel {
                        Ok(built) => self.runs.runner.time(built, Some(0.0))?.map(|_| built.clone()),
                        Err(error) => Err(error.clone()),
                    });
                }
                self.race_all(&survivors)
            }
            result => result,
        }
    }

    fn race_all(&mut self, kernels: &[Result<Built, CandidateError>]) -> Result<Vec<Measurement>, MeasureError> {
        let racers: Vec<Built> = kernels.iter().flatten().cloned().collect();
        let start = Instant::now();
        let outcomes = if racers.is_empty() { Vec::new() } else { self.runs.runner.race(&racers)? };
        let measure_secs = start.elapsed().as_secs_f64() / racers.len().max(1) as f64;
        let mut outcomes = outcomes.into_iter();
        let measurement = |kernel: &Result<Built, CandidateError>| match kernel {
            // As many outcomes as racers.
            Ok(_) => outcomes.next().map(|outcome| Measurement { measure_secs, ..Measurement::of(outcome) }),
            Err(error) => Some(Measurement::of(Err(error.clone()))),
        };
        Ok(kernels.iter().filter_map(measurement).collect())
    }
}
