//! Interface of a loaded kernel for the timing code.

use autotune_measurement::CandidateError;

/// Kernel with its operands on any device.
pub(crate) trait LoadedKernel {
    /// Clears the output, runs the kernel once and compares. Returns the seconds of a run.
    fn check(&mut self) -> Result<f64, CandidateError>;
    /// Runs the kernel `runs` times and returns the total seconds.
    fn repeat(&mut self, runs: usize) -> Result<f64, CandidateError>;
    /// Checks after timing. Compares the output that the last timed run left and, unless `briefly`,
    /// that of one more run on a fresh output. Then checks that no run changed an operand, a packed
    /// constant or memory outside the buffers.
    fn recheck(&mut self, briefly: bool) -> Result<(), CandidateError>;
    /// Total seconds of all runs so far.
    fn kernel_secs(&self) -> f64;
    /// Largest deviation from the reference so far, over the reference's largest magnitude.
    fn max_rel_error(&self) -> f64;
    /// Runs in each timed CUDA graph, see [`autotune_measurement::RunSecs::graph_runs`].
    fn graph_runs(&self) -> usize;
    /// Bytes of the kernel's buffers.
    fn bytes(&self) -> usize;
    /// Seconds since the device was last timed; 0 for a device whose clock rate does not drop when
    /// idle.
    fn idle_secs(&self) -> f64;
}
