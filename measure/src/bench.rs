//! Kernel that stays loaded, for interleaved timing with other programs on the machine.

use std::time::Instant;

use autotune_measurement::CandidateError;
use autotune_workloads::OutOfMemory;

use crate::built::Built;
use crate::error::MeasureError;
use crate::harness::runs_per_repeat;
use crate::loaded::LoadedKernel;
use crate::options::TimingOptions;
use crate::problem::TestProblem;
use crate::station::{self, Station};

/// Least number of repeats in a turn.
const MIN_REPEATS: usize = 3;

/// Built kernel in this process with operands and a device, its output checked.
///
/// ```no_run
/// use autotune_measure::{Bench, KernelBuilder, MeasureOptions};
/// use autotune_runtime::pin_to_core;
/// use autotune_schedules::Candidate;
/// # fn compare(candidates: &[Candidate]) -> Result<(), Box<dyn std::error::Error>> {
/// let mut builder = KernelBuilder::new(MeasureOptions::default().backend, 20.0);
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
    kernel: Box<dyn LoadedKernel>,
    /// Keeps the device open as long as the kernel.
    _station: Box<dyn Station>,
    timing: TimingOptions,
}

impl Bench {
    /// Loads a kernel, runs its ahead-of-time stages, runs it once on random operands and compares
    /// the output with the reference. The calling thread takes part in every run of a CPU kernel:
    /// pin it to the first core.
    ///
    /// # Safety
    ///
    /// The code runs in this process without protection: see [`autotune_runtime::Kernel::load`].
    pub unsafe fn new(built: &Built) -> Result<Self, CandidateError> {
        let target = &built.artifact.target;
        let problem = TestProblem::new(&built.workload).map_err(no_memory)?;
        let station = station::open(target).map_err(no_device)?;
        // SAFETY: the caller guarantees that the code is fit to run.
        let mut kernel = unsafe { station.load(&problem, built) }?;
        kernel.check()?;
        Ok(Self { kernel, _station: station, timing: TimingOptions::for_target(target) })
    }

    /// Runs the kernel for at least `floor_secs` with warm caches. Returns the seconds per run of
    /// each repeat, at least three, by the device's clock on a GPU. A first run, which does not
    /// count, refills the caches. No thread is busy between turns.
    pub fn turn(&mut self, floor_secs: f64) -> Result<Vec<f64>, CandidateError> {
        self.kernel.repeat(1)?;
        let run_secs = self.kernel.repeat(1)?;
        let runs = runs_per_repeat(&self.timing, run_secs);
        let (start, mut repeats) = (Instant::now(), Vec::new());
        while repeats.len() < MIN_REPEATS || start.elapsed().as_secs_f64() < floor_secs {
            repeats.push(self.kernel.repeat(runs)? / runs as f64);
        }
        Ok(repeats)
    }

    /// Checks the output again, and that no run changed anything but the output.
    pub fn recheck(&mut self) -> Result<(), CandidateError> {
        self.kernel.recheck(false)
    }

    /// Returns the number of runs in the graph that the turns replayed:
    /// [`autotune_measurement::RunSecs::graph_runs`].
    pub fn graph_runs(&self) -> usize {
        self.kernel.graph_runs()
    }

    /// Returns the largest deviation from the reference so far, over the reference's largest
    /// magnitude.
    pub fn max_rel_error(&self) -> f64 {
        self.kernel.max_rel_error()
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
    use crate::{KernelBuilder, MeasureOptions};
    use autotune_ir::Target;
    use autotune_schedules::{Candidate, ScheduleSpace};
    use autotune_workloads::Workload;

    #[test]
    fn a_bench_runs_turn_after_turn_and_stays_right() {
        let mut builder = KernelBuilder::new(MeasureOptions::default().backend, 20.0);
        let target = Target::detect("cpu", None).unwrap();
        for text in ["matmul:m=5,n=7,k=9,bias", "conv2d:c=3,h=9,w=9,o=5,k=3,p=1,add,act=relu"] {
            let workload: Workload = text.parse().unwrap();
            let config = ScheduleSpace::new(&workload, &target).default_config();
            let build = builder.build(&[Candidate::new(&workload, &target, config)]).unwrap().remove(0);
            // SAFETY: the kernel was made by the code generator from the default config.
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
