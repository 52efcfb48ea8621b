//! How candidates are built and timed.

use autotune_ir::Target;
use autotune_measurement::Backend;
use serde::{Deserialize, Serialize};

/// How a kernel is timed. The defaults suit kernels of 10 µs to 100 ms on CPUs.
///
/// They are as short as search allows: a search can bear noise, since the best few are raced
/// against each other in the end. What disturbs a machine lasts longer than any floor worth waiting
/// for: floors of 2, 4, 6 and 10 ms put equally many pairs of kernels that are more than 1 % apart
/// in the right order. That is what [`autotune_measurement::RunSecs::slowdown`] is for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimingOptions {
    /// Untimed runs go on for this long.
    pub warmup_secs: f64,
    /// A repeat takes at least this long: a shorter kernel runs several times in it, so that
    /// reading the clock, or the launch of the first, costs next to nothing.
    pub repeat_secs: f64,
    /// Timed repeats go on for at least this long.
    pub floor_secs: f64,
    /// Fewest repeats, unless the candidate is stopped early or takes twenty times `floor_secs`.
    pub min_repeats: usize,
    /// Most repeats.
    pub max_repeats: usize,
    /// A candidate whose fastest run, over the warm-up and three repeats, is slower than this many
    /// times the incumbent is stopped; after one repeat if it is twice as slow again, and right
    /// after the warm-up if it is four times as slow. It is not run again on a fresh output then;
    /// its last output is still compared.
    pub stop_factor: f64,
}

impl Default for TimingOptions {
    fn default() -> Self {
        Self {
            warmup_secs: 0.001,
            repeat_secs: 20e-6,
            floor_secs: 0.004,
            min_repeats: 5,
            max_repeats: 1000,
            stop_factor: 1.5,
        }
    }
}

impl TimingOptions {
    /// The defaults for a target. On GPUs the warm-up is long enough for the clock to rise, and a
    /// repeat has enough launches in a row that the device, not the launching, is timed.
    pub fn for_target(target: &Target) -> Self {
        match target {
            Target::Cpu(_) => Self::default(),
            Target::Gpu(_) => Self { warmup_secs: 0.005, repeat_secs: 0.001, floor_secs: 0.01, ..Self::default() },
        }
    }
}

/// What a measurer may spend on a candidate, and how it times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasureOptions {
    /// How kernels are timed.
    pub timing: TimingOptions,
    /// How candidates are turned into code.
    pub backend: Backend,
    /// Wall-clock limit of one compiler run.
    pub build_limit_secs: f64,
    /// Wall-clock limit in the worker, loading, checking and timing together; as much again may
    /// pass before, for a GPU to be opened. Making operands and reference counts for neither. A
    /// workload whose kernels take seconds gets more: ten runs of its fastest so far.
    pub run_limit_secs: f64,
    /// Memory a CPU's kernel may allocate beyond its buffers.
    pub memory_slack_bytes: usize,
}

impl Default for MeasureOptions {
    fn default() -> Self {
        Self {
            timing: TimingOptions::default(),
            backend: Backend::default(),
            build_limit_secs: 20.0,
            run_limit_secs: 15.0,
            memory_slack_bytes: 512 << 20,
        }
    }
}
