//! What timing knows of a kernel.

use autotune_measurement::CandidateError;

/// A kernel with operands, whatever its device.
pub(crate) trait Loaded {
    /// Runs once on an output of nothing and compares; seconds of a run.
    fn check(&mut self) -> Result<f64, CandidateError>;
    /// Seconds of `runs` runs.
    fn repeat(&mut self, runs: usize) -> Result<f64, CandidateError>;
    /// Checks after timing that the last run, on top of earlier ones, was right, then, unless it is
    /// to be brief, one on a fresh output, and that no operand, nothing that was packed and nothing
    /// beside the buffers changed in all the runs.
    fn recheck(&mut self, briefly: bool) -> Result<(), CandidateError>;
    /// Seconds of all runs so far.
    fn kernel_secs(&self) -> f64;
    /// Largest deviation from the reference so far, over the reference's largest magnitude.
    fn max_rel_error(&self) -> f64;
    /// [`autotune_measurement::RunSecs::graph_runs`].
    fn graph_runs(&self) -> usize;
    /// Bytes of its buffers.
    fn bytes(&self) -> usize;
    /// Seconds since the device was last timed; 0 for one whose clock does not fall meanwhile.
    fn idle_secs(&self) -> f64;
}
