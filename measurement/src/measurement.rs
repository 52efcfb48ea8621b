//! Times of a candidate, and all else that measuring it yields.

use serde::{Deserialize, Serialize};

use crate::error::CandidateError;
use crate::toolchain::Toolchain;

/// Run time of one checked candidate. Times are of one run of every stage that is not ahead of
/// time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSecs {
    /// The figure candidates are ranked by: a low quantile of the repeats, which is steadier than
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
    /// Times slower than when it is quiet that the machine was while this was timed, by a kernel
    /// that was timed just before and after: the other times are those measured divided by this. 1
    /// in races, whose times are as measured.
    #[serde(default = "undisturbed")]
    pub slowdown: f64,
    /// Seconds of all the kernel runs that this took: checks (not on GPUs), warm-up, every timed
    /// run, and those of the kernel it was timed beside; what runs ahead of time is none. 0 where
    /// that is not known.
    #[serde(default)]
    pub kernel_secs: f64,
    /// Runs in each CUDA graph whose replays were timed; 0 where every run was started alone: on
    /// CPUs, through OpenCL, and where CUDA captured no graph, which makes kernels of a few
    /// microseconds look slower than they are.
    #[serde(default)]
    pub graph_runs: usize,
}

fn undisturbed() -> f64 {
    1.0
}

impl RunSecs {
    /// Times that nobody measured: one repeat, not disturbed, of a kernel without error.
    pub fn made_up(run_secs: f64) -> Self {
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

    /// The times that were to be expected had the machine not been `slowdown` times slower than
    /// usual, but not below `least_secs` if they were not measured below it.
    pub fn undisturbed(self, slowdown: f64, least_secs: f64) -> Self {
        let slowdown = slowdown.min((self.run_secs / least_secs).max(1.0));
        let (run_secs, median_secs) = (self.run_secs / slowdown, self.median_secs / slowdown);
        Self { run_secs, median_secs, slowdown, ..self }
    }
}

/// What a thread and a block of a GPU kernel take, as its compiler tells: of each the most that any
/// stage takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// 32-bit registers of a thread.
    pub registers: usize,
    /// Bytes of a thread's registers that are stored to and loaded from memory for want of
    /// registers.
    pub spill_bytes: usize,
    /// Bytes of a thread's memory on the stack, spilled registers included.
    pub stack_bytes: usize,
    /// Bytes of a block's shared memory, static and dynamic.
    pub shared_bytes: usize,
    /// True if the compiler lets matrix instructions of warp groups wait for one another, or does
    /// not hand their registers over: such a kernel is slower than it was meant to be.
    #[serde(default)]
    pub is_serialized: bool,
}

/// The outcome of measuring one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Run time, or why there is none.
    pub outcome: Result<RunSecs, CandidateError>,
    /// What made its code; `None` where that is not known, and in records, whose provenance has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toolchain: Option<Toolchain>,
    /// What the kernel takes of a GPU; `None` where no compiler tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Wall-clock seconds spent lowering and building.
    pub build_secs: f64,
    /// Wall-clock seconds spent in the worker.
    pub measure_secs: f64,
    /// Share of the threads' time that other programs and guests took meanwhile
    /// ; 0 where that is not known.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub taken: f64,
}

fn is_nothing(taken: &f64) -> bool {
    *taken == 0.0
}

impl Measurement {
    /// An outcome of which nothing else is known.
    pub fn of(outcome: Result<RunSecs, CandidateError>) -> Self {
        Self { outcome, toolchain: None, resources: None, build_secs: 0.0, measure_secs: 0.0, taken: 0.0 }
    }

    /// The ranking time of a candidate that ran.
    pub fn run_secs(&self) -> Option<f64> {
        self.outcome.as_ref().ok().map(|r| r.run_secs)
    }
}
