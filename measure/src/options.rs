//! Options for building and timing candidates.

use autotune_ir::Target;
use autotune_measurement::Backend;
use serde::{Deserialize, Serialize};

/// Parameters of timing a kernel. The defaults suit kernels of 10 µs to 100 ms on CPUs.
///
/// Timing is as short as the search allows. A search tolerates noise, because its best few
/// candidates are raced against each other at the end. A longer floor does not help, since
/// disturbances of the machine last longer than any affordable floor: floors of 2, 4, 6 and 10 ms
/// order equally many pairs of kernels that are more than 1 % apart correctly.
/// [`autotune_measurement::RunSecs::slowdown`] corrects for disturbances instead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimingOptions {
    /// Seconds of untimed runs before timing.
    pub warmup_secs: f64,
    /// Least seconds of a repeat. A shorter kernel runs several times per repeat, so that the cost
    /// of reading the clock or of the first launch is negligible.
    pub repeat_secs: f64,
    /// Least seconds of timed repeats in total.
    pub floor_secs: f64,
    /// Fewest repeats, unless the candidate is stopped early or takes twenty times `floor_secs`.
    pub min_repeats: usize,
    /// Largest number of repeats, even if `floor_secs` is not reached.
    pub max_repeats: usize,
    /// Factor over the incumbent's time beyond which a candidate is stopped early. Its fastest run
    /// over the warm-up and three repeats counts; at twice the factor one repeat is enough, at four
    /// times the warm-up. A stopped candidate is not run again on a fresh output, but its last
    /// output is still compared.
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
    /// Returns the defaults for a target. On GPUs the warm-up is long enough for the clock rate to
    /// rise, and a repeat has enough launches in a row to time the device and not the launching.
    pub fn for_target(target: &Target) -> Self {
        match target {
            Target::Cpu(_) => Self::default(),
            Target::Gpu(_) => Self { warmup_secs: 0.005, repeat_secs: 0.001, floor_secs: 0.01, ..Self::default() },
        }
    }
}

/// Resource limits for measuring a candidate, and timing parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasureOptions {
    /// Parameters of the timing loop.
    pub timing: TimingOptions,
    /// Method by which candidates are turned into code.
    pub backend: Backend,
    /// Wall-clock limit of one compiler run, in seconds.
    pub build_limit_secs: f64,
    /// Wall-clock limit in the worker for loading, checking and timing together, in seconds.
    /// Opening a GPU beforehand may take as long again. Making operands and the reference does not
    /// count. A workload whose kernels take seconds gets more: ten runs of its fastest kernel so
    /// far.
    pub run_limit_secs: f64,
    /// Bytes that a CPU kernel may allocate beyond its buffers.
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
