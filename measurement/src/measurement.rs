//! Times of a candidate and other results of measuring it.

use serde::{Deserialize, Serialize};

use crate::error::CandidateError;
use crate::toolchain::Toolchain;

/// Run times of one candidate whose output was checked. One run executes every stage except those
/// that run ahead of time, such as packing weights.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSecs {
    /// Time by which candidates are ranked: a low quantile of the repeats, which is steadier than
    /// their median.
    pub run_secs: f64,
    /// Median of the repeats.
    pub median_secs: f64,
    /// Interquartile range of the repeats over their median.
    pub spread: f64,
    /// Number of timed repeats.
    pub repeats: usize,
    /// True if timing stopped early because the candidate was clearly slower than the incumbent.
    pub stopped_early: bool,
    /// Largest deviation from the reference over the reference's largest magnitude.
    pub max_rel_error: f64,
    /// Ratio of the machine's speed when quiet to its speed during this measurement, estimated from
    /// a reference kernel timed just before and after. The other times are already divided by it. 1
    /// in races, whose times are not corrected.
    #[serde(default = "undisturbed")]
    pub slowdown: f64,
    /// Total time of all kernel runs for this measurement: checks (except on GPUs), warm-up, timed
    /// runs, and runs of the reference kernel. Stages that run ahead of time are not included. 0 if
    /// unknown.
    #[serde(default)]
    pub kernel_secs: f64,
    /// Runs in each CUDA graph whose replays were timed. 0 if every run was launched alone: on
    /// CPUs, through OpenCL, and where CUDA could not capture a graph. Launching alone makes
    /// kernels of a few microseconds look slower than they are.
    #[serde(default)]
    pub graph_runs: usize,
}

fn undisturbed() -> f64 {
    1.0
}

impl RunSecs {
    /// Returns times that were not measured: one repeat, no slowdown and no error.
    pub fn synthetic(run_secs: f64) -> Self {
        Self {
            run_secs,
            median_secs: run_secs,
            spread: 0.0,
            repeats: 1,
            stopped_early: false,
            max_rel_error: 0.0,
            slowdown: 1.0,
            kernel_secs: 0.0,
            graph_runs: 0,
        }
    }

    /// Returns the times divided by `slowdown`: an estimate for a quiet machine. A time that was
    /// not measured below `least_secs` is not corrected to below it.
    pub fn undisturbed(self, slowdown: f64, least_secs: f64) -> Self {
        let slowdown = slowdown.min((self.run_secs / least_secs).max(1.0));
        let (run_secs, median_secs) = (self.run_secs / slowdown, self.median_secs / slowdown);
        Self { run_secs, median_secs, slowdown, ..self }
    }
}

/// Resources that a GPU kernel uses, as its compiler reports them: for each, the maximum over the
/// stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// 32-bit registers per thread.
    pub registers: usize,
    /// Bytes of spill stores and spill loads per thread.
    pub spill_bytes: usize,
    /// Bytes of stack per thread, including spilled registers.
    pub stack_bytes: usize,
    /// Bytes of shared memory per block, static and dynamic.
    pub shared_bytes: usize,
    /// True if the compiler serialised the warp-group matrix instructions, or could not reassign
    /// registers between producer and consumer warps. Such a kernel is slower than intended.
    #[serde(default)]
    pub is_serialized: bool,
}

/// The outcome of measuring one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Run times, or the reason that there are none.
    pub outcome: Result<RunSecs, CandidateError>,
    /// Compiler or assembler that made the code. `None` if unknown, and in database records, which
    /// have it in their provenance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolchain: Option<Toolchain>,
    /// GPU resources that the kernel uses; `None` if the compiler reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Wall-clock seconds spent lowering and building.
    pub build_secs: f64,
    /// Wall-clock seconds spent in the worker.
    pub measure_secs: f64,
    /// Share of the threads' CPU time that other programs and other guests of the host used during
    /// the measurement. 0 if unknown.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub taken: f64,
}

fn is_nothing(taken: &f64) -> bool {
    *taken == 0.0
}

impl Measurement {
    /// Returns a measurement with this outcome and nothing else known.
    pub fn of(outcome: Result<RunSecs, CandidateError>) -> Self {
        Self { outcome, toolchain: None, resources: None, build_secs: 0.0, measure_secs: 0.0, taken: 0.0 }
    }

    /// Returns the time by which candidates are ranked; `None` if the candidate failed.
    pub fn run_secs(&self) -> Option<f64> {
        self.outcome.as_ref().ok().map(|r| r.run_secs)
    }
}
