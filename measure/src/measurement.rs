//! What measuring a candidate yields.

use std::ops::ControlFlow;

use autotune_runtime::DeviceError;
use autotune_schedules::Candidate;
use autotune_workloads::Workload;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::options::Backend;

/// Run time of one checked candidate. Times are of one run of every stage that is not ahead of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSecs {
    /// The figure candidates are ranked by: a low quantile of the repeats, which is steadier than their median.
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
    /// Times slower than when it is quiet that the machine was while this was timed, by a kernel that was timed just before and
    /// after: the other times are those measured divided by this. 1 in races, whose times are as measured.
    #[serde(default = "undisturbed")]
    pub slowdown: f64,
    /// Seconds of all the kernel runs that this took: checks (not on GPUs), warm-up, every timed run, and those of the kernel it
    /// was timed beside; what runs ahead of time is none. 0 where that is not known.
    #[serde(default)]
    pub kernel_secs: f64,
    /// Runs in each CUDA graph whose replays were timed; 0 where every run was started alone: on CPUs, through OpenCL, and where CUDA
    /// captured no graph, which makes kernels of a few microseconds look slower than they are.
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

    /// The times that were to be expected had the machine not been `slowdown` times slower than usual, but not below
    /// `least_secs` if they were not measured below it.
    pub(crate) fn undisturbed(self, slowdown: f64, least_secs: f64) -> Self {
        let slowdown = slowdown.min((self.run_secs / least_secs).max(1.0));
        let (run_secs, median_secs) = (self.run_secs / slowdown, self.median_secs / slowdown);
        Self { run_secs, median_secs, slowdown, ..self }
    }
}

/// Why a candidate has no run time. A failed candidate is data.
#[derive(Clone, Debug, PartialEq, Error, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CandidateError {
    /// The config cannot be lowered for this workload and target.
    #[error("cannot be lowered: {message}")]
    Lower {
        /// Why.
        message: String,
    },
    /// The compiler refused the generated code, or the assembler cannot express it and there is no compiler.
    #[error("build failed: {message}")]
    Build {
        /// Their own words.
        message: String,
    },
    /// Building took too long.
    #[error("build timed out after {limit_secs} s")]
    BuildTimeout {
        /// The limit.
        limit_secs: f64,
    },
    /// The output differs from the reference.
    #[error("wrong result: relative error {max_rel_error:.3e} exceeds {tolerance:.1e}")]
    WrongResult {
        /// Largest deviation over the reference's largest magnitude (infinite if not a number).
        #[serde(with = "infinite_as_null")]
        max_rel_error: f64,
        /// What is allowed.
        tolerance: f64,
    },
    /// The worker died while running it.
    #[error("crashed: {message}")]
    Crash {
        /// Signal or exit status.
        message: String,
    },
    /// It ran too long; its process group was killed.
    #[error("timed out after {limit_secs} s")]
    Timeout {
        /// The limit.
        limit_secs: f64,
    },
    /// It wrote where it must not: outside its buffers or into an operand.
    #[error("stray write: {message}")]
    StrayWrite {
        /// Which memory was changed.
        message: String,
    },
    /// It needed more memory than allowed.
    #[error("out of memory: {message}")]
    OutOfMemory {
        /// What was asked for.
        message: String,
    },
}

impl From<DeviceError> for CandidateError {
    fn from(error: DeviceError) -> Self {
        let message = error.to_string();
        match error {
            DeviceError::Load(_) => Self::Build { message },
            DeviceError::OutOfMemory { .. } => Self::OutOfMemory { message },
            DeviceError::Absent(_) | DeviceError::OutOfBounds { .. } | DeviceError::Fault { .. } => {
                Self::Crash { message }
            }
        }
    }
}

impl CandidateError {
    /// The word for this kind of failure, the `kind` of its JSON form.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Lower { .. } => "lower",
            Self::Build { .. } => "build",
            Self::BuildTimeout { .. } => "build_timeout",
            Self::WrongResult { .. } => "wrong_result",
            Self::Crash { .. } => "crash",
            Self::Timeout { .. } => "timeout",
            Self::StrayWrite { .. } => "stray_write",
            Self::OutOfMemory { .. } => "out_of_memory",
        }
    }
}

/// What made a candidate's code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Toolchain {
    /// The kind of it, of a CPU's.
    pub backend: Option<Backend>,
    /// Assembler or compiler and its version.
    pub compiler: String,
    /// Its flags.
    pub flags: String,
}

/// What a thread and a block of a GPU kernel take, as its compiler tells: of each the most that any stage takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// 32-bit registers of a thread.
    pub registers: usize,
    /// Bytes of a thread's registers that are stored to and loaded from memory for want of registers.
    pub spill_bytes: usize,
    /// Bytes of a thread's memory on the stack, spilled registers included.
    pub stack_bytes: usize,
    /// Bytes of a block's shared memory, static and dynamic.
    pub shared_bytes: usize,
    /// True if the compiler lets matrix instructions of warp groups wait for one another, or does not hand their registers over: such a
    /// kernel is slower than it was meant to be.
    #[serde(default)]
    pub is_serialized: bool,
}

/// The outcome of measuring one candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Run time, or why there is none.
    pub outcome: Result<RunSecs, CandidateError>,
    /// What made its code; `None` where that is not known. No part of the written form: records tell it in their
    /// provenance.
    #[serde(skip)]
    pub toolchain: Option<Toolchain>,
    /// What the kernel takes of a GPU; `None` where no compiler tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Resources>,
    /// Wall-clock seconds spent lowering and building.
    pub build_secs: f64,
    /// Wall-clock seconds spent in the worker.
    pub measure_secs: f64,
    /// Share of the threads' time that other programs and guests took meanwhile
    /// ([`crate::Load::taken`]); 0 where that is not known.
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

/// What a race yields.
#[derive(Debug)]
pub struct RaceResult {
    /// One for each candidate, in order.
    pub measurements: Vec<Measurement>,
    /// Why the candidates were timed one by one, which makes their times no better than those of a
    /// search; `None` if they were timed in turns.
    pub failure: Option<MeasureError>,
}

impl RaceResult {
    /// Measurements of candidates that were timed in turns.
    pub fn in_turns(measurements: Vec<Measurement>) -> Self {
        Self { measurements, failure: None }
    }
}

/// Broken infrastructure: nothing can be said about the candidates.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// No C compiler on this machine.
    #[error("no C compiler found: tried {tried}; install gcc or clang, or set CC to one")]
    NoCompiler {
        /// Names that were looked for.
        tried: String,
    },
    /// No program that could serve as the worker.
    #[error(
        "no measuring worker found: there is no `autotune` beside {near}; build it (`cargo build -p autotune-cli`), set \
         AUTOTUNE_WORKER to its path, or let this program serve (`autotune::serve_if_worker`)"
    )]
    NoWorker {
        /// The folder that was looked into first.
        near: String,
    },
    /// The worker program cannot be started.
    #[error("cannot start the measuring worker '{program}': {source}")]
    Spawn {
        /// Its path.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// The worker keeps failing without running a candidate.
    #[error("the measuring worker fails: {message}")]
    Worker {
        /// What it said.
        message: String,
    },
    /// Candidates of several targets in one race, or for a CPU behind some for GPUs.
    #[error("candidates of several targets in one race or in one run of batches")]
    MixedTargets,
    /// No GPU, or one that does not do what it is told any more.
    #[error("{message}")]
    Device {
        /// What it says.
        message: String,
    },
    /// The machine's ceilings cannot be measured.
    #[error("cannot measure the machine's ceilings: {message}")]
    Ceilings {
        /// Why.
        message: String,
    },
    /// A workload takes more memory than there is.
    #[error("{workload}: needs {}, {} available", human_bytes(*needed_bytes), human_bytes(*available_bytes))]
    Memory {
        /// Which.
        workload: Box<Workload>,
        /// For operands, reference and buffers, at least (`usize::MAX` if there is no such number).
        needed_bytes: usize,
        /// What the system, control groups and limits leave.
        available_bytes: usize,
    },
    /// The caller wanted no more: [`crate::WorkerMeasurer::set_interrupt`].
    #[error("interrupted")]
    Interrupted,
    /// A file could not be written or read.
    #[error("{what}: {source}")]
    Io {
        /// The file and the action.
        what: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Bytes for people, in a unit in which they are at least 1.
pub(crate) fn human_bytes(bytes: usize) -> String {
    match bytes {
        usize::MAX => "more memory than can be counted".into(),
        1_000_000_000.. => format!("{:.1} GB", bytes as f64 / 1e9),
        1_000_000.. => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.0} kB", bytes as f64 / 1e3),
    }
}

/// Gives the next candidates to be measured; none is the end.
pub type Batches<'a> = dyn FnMut() -> Vec<Candidate> + Send + 'a;

/// Takes a measurement and the position of its candidate; [`ControlFlow::Break`] ends the measuring.
pub type OnResult<'a> = dyn FnMut(usize, Measurement) -> ControlFlow<()> + 'a;

/// Measures candidates on one device.
///
/// A failed candidate is a result; an error means that the infrastructure is broken and says nothing about candidates.
pub trait Measurer {
    /// Measures batches of candidates for one target until `next_batch` gives an empty one. Each measurement goes to `on_result`,
    /// in this thread, as soon as it is there, with the candidate's position among all of them, in order. After a break the
    /// candidates behind are not measured.
    ///
    /// On a CPU the next batch is asked for once the last one is measured. On a GPU it is asked for, in another thread, once all
    /// of the last one are being built, and built while the device runs: the results of the latest candidates are not there yet.
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError>;

    /// Measures one batch; [`Measurer::measure_batches`].
    fn measure(&mut self, candidates: &[Candidate], on_result: &mut OnResult<'_>) -> Result<(), MeasureError> {
        let mut batch = candidates.to_vec();
        self.measure_batches(&mut || std::mem::take(&mut batch), on_result)
    }

    /// Measures a few candidates in turns, many short rounds of each, so that whatever disturbs the machine disturbs
    /// all of them: for comparisons that must be fair. One measurement per candidate, in order; one that fails, or takes too long,
    /// fails alone. Where candidates cannot be timed in turns, since the process that does it dies
    /// again and again, each is timed by itself, and the result says so. The candidates must be of
    /// one target. The rounds take `budget_secs` together at most, but each candidate has one, and
    /// three where they do not take long; building, loading and checking come on top.
    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError>;
}

/// JSON has no infinity: it is written as null.
mod infinite_as_null {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(value: &f64, s: S) -> Result<S::Ok, S::Error> {
        if value.is_finite() { s.serialize_some(value) } else { s.serialize_none() }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
        Ok(Option::<f64>::deserialize(d)?.unwrap_or(f64::INFINITY))
    }
}
