//! How much there is to do for a workload, and how fast it is done.

use std::fmt;

/// What an algorithm has to do at least for a workload: floating-point operations, two per
/// multiply-add, and bytes of operands read and output written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Operations.
    pub flops: f64,
    /// Bytes.
    pub bytes: f64,
}

/// How fast something runs, shown as `85.3 GFLOP/s` or `19.5 GB/s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Operations a second, of a workload that multiplies tensors with each other.
    Operations(f64),
    /// Bytes of operands read and output written a second, of others: they are done when these are
    /// moved.
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
