//! Common part of all measurers: building, incumbents and order of results.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use autotune_ir::Target;
use autotune_measurement::{CandidateError, Measurement};
use autotune_schedules::Candidate;
use autotune_workloads::Workload;
use rayon::ThreadPoolBuilder;

use crate::builder::{Build, KernelBuilder};
use crate::built::Built;
use crate::error::MeasureError;
use crate::measurer::{Batches, OnResult, RaceResult};
use crate::process::timed;
use crate::station::Outcome;

/// CPU candidates per core that are built before the first of them runs: enough to keep the cores
/// busy, and few enough that results arrive, and a break takes effect, every few seconds.
const BUILDS_PER_CORE: usize = 4;

/// GPU candidates per building core that are being built or wait to run while others run. Enough
/// that a slow compilation leaves no core idle, and few enough that the proposing model knows all
/// but the latest results.
const BUILDS_PER_CORE_AHEAD: usize = 2;

/// Interface of a measurer's part that runs built kernels.
pub(crate) trait KernelRunner {
    /// Checks and times one kernel.
    fn time(&mut self, built: &Built, incumbent_secs: Option<f64>) -> Result<Outcome, MeasureError>;

    /// Checks several kernels and times them interleaved, in rounds of `budget_secs` together.
    /// Returns one outcome per kernel.
    fn race(&mut self, built: &[Built], budget_secs: f64) -> Result<Vec<Outcome>, MeasureError>;
}

/// Builder and incumbents around a runner.
pub(crate) struct Front<R> {
    pub(crate) builder: KernelBuilder,
    runs: ReferenceRuns<R>,
}

/// Runner with the times of the fastest kernels so far, in seconds per run.
struct ReferenceRuns<R> {
    runner: R,
    incumbents: HashMap<(Workload, Target), f64>,
}

impl<R: KernelRunner> ReferenceRuns<R> {
    /// Measures a built candidate; a failed build is a failed measurement.
    fn run(&mut self, build: Build) -> Result<Measurement, MeasureError> {
        let Build { outcome, toolchain, resources, build_secs } = build;
        let measurement = match outcome {
            Ok(built) => self.run_built(&built)?,
            Err(error) => Measurement::of(Err(error)),
        };
        Ok(Measurement { toolchain, resources, build_secs, ..measurement })
    }

    /// Measures one kernel and updates the incumbent.
    fn run_built(&mut self, built: &Built) -> Result<Measurement, MeasureError> {
        let key = (built.workload.clone(), built.artifact.target.clone());
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

impl<R: KernelRunner> Front<R> {
    pub(crate) fn new(builder: KernelBuilder, runner: R) -> Self {
        Self { builder, runs: ReferenceRuns { runner, incumbents: HashMap::new() } }
    }

    pub(crate) fn runner(&self) -> &R {
        &self.runs.runner
    }

    pub(crate) fn runner_mut(&mut self) -> &mut R {
        &mut self.runs.runner
    }

    /// Sets the seconds per run against which candidates of a workload are stopped early.
    pub(crate) fn set_incumbent(&mut self, workload: &Workload, target: &Target, run_secs: f64) {
        self.runs.incumbents.insert((workload.clone(), target.clone()), run_secs);
    }

    /// Measures batches of candidates, see [`crate::Measurer::measure_batches`].
    pub(crate) fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut batch = next_batch();
        if !batch.is_empty() && batch.iter().all(|candidate| candidate.target().gpu().is_some()) {
            // Leave one core to the thread that launches kernels, which must not be delayed.
            return self.build_ahead((cores - 1).max(1), batch, next_batch, on_result);
        }
        let mut index = 0..;
        while !batch.is_empty() {
            for candidates in batch.chunks(BUILDS_PER_CORE * cores) {
                for build in self.builder.build(candidates)? {
                    let measurement = self.runs.run(build)?;
                    if index.next().is_some_and(|index| on_result(index, measurement).is_break()) {
                        return Ok(());
                    }
                }
            }
            batch = next_batch();
        }
        Ok(())
    }

    /// Measures GPU candidates while `threads` threads build the next ones and the next batch is
    /// proposed.
    fn build_ahead(
        &mut self,
        threads: usize,
        mut batch: Vec<Candidate>,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        let Self { builder, runs } = self;
        let (builder, is_over) = (&*builder, &AtomicBool::new(false));
        let io = |e| MeasureError::Io { what: "cannot start threads".into(), source: std::io::Error::other(e) };
        let pool = ThreadPoolBuilder::new().num_threads(threads).build().map_err(io)?;

        thread::scope(|scope| {
            // The channel carries one receiver per build. Builds finish in any order but run in the
            // order of the candidates.
            let (sender, receiver) = mpsc::sync_channel(BUILDS_PER_CORE_AHEAD * threads);
            scope.spawn(move || {
                pool.in_place_scope(|builds| {
                    while !batch.is_empty() {
                        for candidate in std::mem::take(&mut batch) {
                            let (built, build) = mpsc::sync_channel(1);
                            // After a break nothing receives any more.
                            if sender.send(build).is_err() {
                                return;
                            }
                            builds.spawn(move |_| {
                                if !is_over.load(Ordering::Relaxed) {
                                    let _ = built.send(builder.build_for_gpu(&candidate));
                                }
                            });
                        }
                        batch = next_batch();
                    }
                });
            });

            let run = |(index, build): (usize, mpsc::Receiver<_>)| {
                let lost = |_| MeasureError::Worker { message: "a build ended without a result".into() };
                let measurement = runs.run(build.recv().map_err(lost)??)?;
                Ok(on_result(index, measurement).is_break())
            };

            let ended = receiver.into_iter().enumerate().map(run).find(|ended| !matches!(ended, Ok(false)));
            is_over.store(true, Ordering::Relaxed);
            ended.unwrap_or(Ok(true)).map(|_| ())
        })
    }

    /// Measures one built kernel.
    pub(crate) fn run_built(&mut self, built: &Built) -> Result<Measurement, MeasureError> {
        self.runs.run_built(built)
    }

    /// Races candidates, see [`crate::Measurer::race`].
    pub(crate) fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError> {
        let builds = self.builder.build(candidates)?;
        let kernels: Vec<Result<Built, CandidateError>> = builds.iter().map(|b| b.outcome.clone()).collect();
        let mut result = self.race_built(&kernels, budget_secs)?;
        for (measurement, build) in result.measurements.iter_mut().zip(builds) {
            measurement.build_secs = build.build_secs;
            measurement.toolchain = build.toolchain;
            measurement.resources = build.resources;
        }
        Ok(result)
    }

    /// Races the candidates that were built. If the race fails as a whole, each kernel is timed
    /// alone, and those that succeed race again. If that fails too, the result has the times from
    /// timing alone, and the reason.
    pub(crate) fn race_built(
        &mut self,
        kernels: &[Result<Built, CandidateError>],
        budget_secs: f64,
    ) -> Result<RaceResult, MeasureError> {
        let mut targets = kernels.iter().flatten().map(|built| &built.artifact.target);
        if targets.next().is_some_and(|first| targets.any(|other| other != first)) {
            return Err(MeasureError::MixedTargets);
        }
        match self.race_all(kernels, budget_secs) {
            Err(MeasureError::Worker { .. }) => {}
            result => return result.map(RaceResult::interleaved),
        }

        let mut alone = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            alone.push(match kernel {
                Ok(built) => {
                    let (outcome, measure_secs) = timed(|| self.runs.runner.time(built, None));
                    Measurement { measure_secs, ..Measurement::of(outcome?) }
                }
                Err(error) => Measurement::of(Err(error.clone())),
            });
        }
        let survivor = |(kernel, alone): (&Result<Built, CandidateError>, &Measurement)| match &alone.outcome {
            Ok(_) => kernel.clone(),
            Err(error) => Err(error.clone()),
        };
        let survivors: Vec<_> = kernels.iter().zip(&alone).map(survivor).collect();
        match self.race_all(&survivors, budget_secs) {
            Err(failure @ MeasureError::Worker { .. }) => {
                Ok(RaceResult { measurements: alone, failure: Some(failure) })
            }
            result => result.map(RaceResult::interleaved),
        }
    }

    fn race_all(
        &mut self,
        kernels: &[Result<Built, CandidateError>],
        budget_secs: f64,
    ) -> Result<Vec<Measurement>, MeasureError> {
        let racers: Vec<Built> = kernels.iter().flatten().cloned().collect();
        let start = Instant::now();
        let outcomes = if racers.is_empty() { Vec::new() } else { self.runs.runner.race(&racers, budget_secs)? };
        let measure_secs = start.elapsed().as_secs_f64() / racers.len().max(1) as f64;
        let mut outcomes = outcomes.into_iter();
        let measurement = |kernel: &Result<Built, CandidateError>| match kernel {
            // There are as many outcomes as racers.
            Ok(_) => outcomes.next().map(|outcome| Measurement { measure_secs, ..Measurement::of(outcome) }),
            Err(error) => Some(Measurement::of(Err(error.clone()))),
        };
        Ok(kernels.iter().filter_map(measurement).collect())
    }
}
