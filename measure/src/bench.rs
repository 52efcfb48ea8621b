//! A kernel that stays loaded, to be timed in turns with whatever else is timed on the machine.

use std::time::Instant;

use autotune_schedules::OutOfMemory;

use crate::allocation_cache::AllocationCache;
use crate::builder::Built;
use crate::gpu::trial::Loaded;
use crate::gpu::{self, Gpu};
use crate::harness::runs_per_repeat;
use crate::measurement::{CandidateError, MeasureError};
use crate::options::TimingOptions;
use crate::problem::Problem;
use crate::team::Team;
use crate::trial::Trial;

/// Repeats of a turn, at least.
const MIN_REPEATS: usize = 3;

/// A built kernel in this process with operands and a team, its output checked.
///
/// ```no_run
/// use autotune_measure::{Bench, Builder, Candidate, MeasureOptions, pin_to_core};
/// # fn compare(candidates: &[Candidate]) -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = Builder::new(MeasureOptions::default().backend, 20.0);
/// pin_to_core(0);
/// for build in builder.build(candidates)? {
///     // SAFETY: the candidates are known to run.
///     let mut bench = unsafe { Bench::new(&build.outcome?)? };
///     println!("{:?}", bench.turn(0.02)?);
///     bench.recheck()?;
/// }
/// # Ok(()) }
/// ```
pub struct Bench {
    place: Place,
    timing: TimingOptions,
}

enum Place {
    Cpu {
        trial: Box<Trial>,
        team: Team,
    },
    Gpu {
        trial: Box<dyn Loaded>,
        /// Open as long as the trial.
        _device: Box<dyn Gpu>,
    },
}

impl Bench {
    /// Loads a kernel, runs what runs ahead of time, runs it once on random operands and compares the output with the
    /// reference. The calling thread takes part in every run of a CPU's kernel: pin it to the first core.
    ///
    /// # Safety
    ///
    /// The code runs in this process without protection: see [`crate::Kernel::new`].
    pub unsafe fn new(built: &Built) -> Result<Self, CandidateError> {
        let timing = TimingOptions::for_target(&built.target);
        let mut problem = Problem::new(&built.workload).map_err(no_memory)?;
        let place = match built.target.gpu() {
            Some(target) => {
                let device = gpu::open(target).map_err(no_device)?;
                let mut trial = device.load(&mut problem, built, false)?;
                trial.check()?;
                Place::Gpu { trial, _device: device }
            }
            None => {
                let mut team = Team::new(built.target.threads());
                // SAFETY: the caller's promise.
                let mut trial =
                    unsafe { Trial::new(&mut problem, built, false, &mut AllocationCache::default(), &mut team) }?;
                trial.check(&mut team)?;
                Place::Cpu { trial: Box::new(trial), team }
            }
        };
        Ok(Self { place, timing })
    }

    /// Runs for at least `floor_secs` with warm caches; seconds a run of each repeat, at least three, by the device's clock on a
    /// GPU. What the runs before did to the caches is undone by a first run that does not count. Between turns no thread is busy.
    pub fn turn(&mut self, floor_secs: f64) -> Result<Vec<f64>, CandidateError> {
        self.repeat(1)?;
        let run_secs = self.repeat(1)?;
        let runs = runs_per_repeat(&self.timing, run_secs);
        let (start, mut repeats) = (Instant::now(), Vec::new());
        while repeats.len() < MIN_REPEATS || start.elapsed().as_secs_f64() < floor_secs {
            repeats.push(self.repeat(runs)? / runs as f64);
        }
        Ok(repeats)
    }

    fn repeat(&mut self, runs: usize) -> Result<f64, CandidateError> {
        match &mut self.place {
            Place::Cpu { trial, team } => Ok(trial.repeat(runs, team)),
            Place::Gpu { trial, .. } => trial.repeat(runs),
        }
    }

    /// Checks the output again, and that nothing but the output changed in all the runs.
    pub fn recheck(&mut self) -> Result<(), CandidateError> {
        match &mut self.place {
            Place::Cpu { trial, team } => trial.recheck(false, team),
            Place::Gpu { trial, .. } => trial.recheck(false),
        }
    }

    /// How many runs the graph holds whose replays the turns so far were: [`crate::RunSecs::graph_runs`].
    pub fn graph_runs(&self) -> usize {
        match &self.place {
            Place::Cpu { .. } => 0,
            Place::Gpu { trial, .. } => trial.graph_runs(),
        }
    }

    /// Largest deviation from the reference so far, over the reference's largest magnitude.
    pub fn max_rel_error(&self) -> f64 {
        match &self.place {
            Place::Cpu { trial, .. } => trial.max_rel_error(),
            Place::Gpu { trial, .. } => trial.max_rel_error(),
        }
    }
}

fn no_memory(error: OutOfMemory) -> CandidateError {
    CandidateError::OutOfMemory { message: error.to_string() }
}

fn no_device(error: MeasureError) -> CandidateError {
    CandidateError::Crash { message: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Candidate, MeasureOptions};
    use autotune_ir::Target;
    use autotune_schedules::{ScheduleSpace, Workload};

    #[test]
    fn a_bench_runs_turn_after_turn_and_stays_right() {
        let mut builder = Builder::new(MeasureOptions::default().backend, 20.0);
        let target = Target::detect("cpu", None).unwrap();
        for text in ["matmul:m=5,n=7,k=9,bias", "conv2d:c=3,h=9,w=9,o=5,k=3,p=1,add,act=relu"] {
            let workload: Workload = text.parse().unwrap();
            let config = ScheduleSpace::new(&workload, &target).default_config();
            let build = builder.build(&[Candidate { workload, target: target.clone(), config }]).unwrap().remove(0);
            // SAFETY: the default config's kernel is made by the code generator.
            let mut bench = unsafe { Bench::new(&build.outcome.unwrap()) }.unwrap();
            for floor_secs in [0.0, 0.001] {
                let repeats = bench.turn(floor_secs).unwrap();
                assert!(repeats.len() >= MIN_REPEATS);
                assert!(repeats.iter().all(|secs| *secs > 0.0 && secs.is_finite()));
                bench.recheck().unwrap();
            }
            assert!(bench.max_rel_error() < 1e-5, "{text}: {}", bench.max_rel_error());
        }
    }
}
