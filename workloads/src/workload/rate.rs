//! Work of a workload, and rates of kernels.

use std::fmt;

/// Minimum work of an algorithm for a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: f64,
    /// Bytes of operands read and output written.
    pub bytes: f64,
}

/// Rate of a kernel, printed as `85.3 GFLOP/s` or `19.5 GB/s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Floating-point operations per second, for a workload that multiplies tensors with each
    /// other.
    Operations(f64),
    /// Bytes of operands read and output written per second, for others, whose time is that of
    /// memory traffic.
    Bytes(f64),
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (giga, unit) = match self {
            Rate::Operations(per_sec) => (per_sec / 1e9, "GFLOP/s"),
            Rate::Bytes(per_sec) => (per_sec / 1e9, "GB/s"),
        };
        let digits = if giga < 10.0 { 3 } else { 1 };
        write!(f, "{giga:.digits$} {unit}")
    }
}
