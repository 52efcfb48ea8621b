//! Conversions of a tensor from one layout to another.

use autotune_ir::DType;
use autotune_ir::program::Layout;
use autotune_workloads::{Transpose, Workload};

use crate::cut::Value;
use crate::error::CompileError;

/// Seconds that a conversion takes beside moving its bytes, and bytes that it reads and writes a second, about, where it was not measured: within
/// networks, on one core and on two of an AMD EPYC (family 25, model 17), transposes of 16 channels of 100 kB to 1.8 MB were measured at 22 to
/// 45 GB/s where the second-level cache held a good part, at least 7 else.
const SECS: f64 = 3e-6;
const BYTES_PER_SEC: f64 = 20e9;

/// What a conversion computes, which is a transpose of blocks.
///
/// `[n, c, ..pixels]` → `[n, c/block, ..pixels, block]`: of `n*c/block` matrices of `block` rows and `pixels` columns; and back.
pub(crate) fn workload(value: &Value, from: Layout, to: Layout) -> Result<Workload, CompileError> {
    let none = || CompileError::Layouts { from, to };
    let [n, c, pixels @ ..] = &value.shape[..] else { return Err(none()) };
    let area: usize = pixels.iter().product();
    let transpose = match (from, to) {
        (Layout::Plain, Layout::ChannelBlocked(block)) => Transpose::matrices(n * c / block, block, area),
        (Layout::ChannelBlocked(block), Layout::Plain) => Transpose::matrices(n * c / block, area, block),
        _ => return Err(none()),
    };
    let workload = Workload::new(transpose).and_then(|workload| workload.with_dtype(value.dtype));
    workload.map_err(CompileError::Workload)
}

/// About how long a conversion of a tensor takes that was not measured.
pub(crate) fn estimated_secs(shape: &[usize], dtype: DType) -> f64 {
    let bytes = 2.0 * dtype.bytes() as f64 * shape.iter().map(|&extent| extent as f64).product::<f64>();
    SECS + bytes / BYTES_PER_SEC
}
