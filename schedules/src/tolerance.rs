//! How far a kernel's output may be from the reference.

use autotune_ir::DType;
use autotune_workloads::Workload;

use crate::config::Config;
use crate::registry::find_anywhere;
use crate::sketch::EXACT_TOLERANCE;

/// Returns the [`max_rel_error`](autotune_workloads::max_rel_error) that a kernel made from `config` may have and still be
/// right: [`Sketch::tolerance`](crate::sketch::Sketch::tolerance), and more for two reasons.
///
/// An output that is rounded to 16 bits may be the neighbour of the reference's, where the sums lie on either side of the
/// middle between them: twice [`DType::unit_roundoff`]. A matrix instruction cuts off what does not fit into the f32 sum that
/// it adds to, instead of rounding: an error of up to 2^-23 of the sum, always towards zero, for each instruction of 8 steps. And it cuts off
/// what a prologue makes to `tf32`, as whatever it finds in memory: up to 2^-10 of every factor.
pub fn tolerance(workload: &Workload, config: &Config) -> f64 {
    let sums = find_anywhere(&config.sketch).map_or(EXACT_TOLERANCE, |sketch| sketch.tolerance(workload, config));
    let rounded = match workload.result_dtype() {
        dtype if dtype.is_word() => 0.0,
        rounded => 2.0 * rounded.unit_roundoff(),
    };
    let cut_off = match workload.dtype() {
        DType::F32 => 0.0,
        _ => workload.spec().reduction_len() as f64 / 8.0 * 2f64.powi(-23),
    };
    let mapped = match (workload.dtype(), workload.spec().prologue()) {
        (DType::Tf32, Some(_)) => 2f64.powi(-10),
        _ => 0.0,
    };
    sums + rounded + cut_off + mapped
}

#[cfg(test)]
mod tests {
    use autotune_workloads::{Operands, max_rel_error, reference};

    use super::*;

    #[test]
    fn tolerance_tells_one_lost_product_from_rounding() {
        let workload: Workload = "matmul:m=4,n=4,k=4096".parse().unwrap();
        let mut operands = Operands::random(workload.spec(), 9);
        let wanted = reference(&workload, &operands);
        operands[0][[0, 2, 1000]] = 0.0;
        assert!(max_rel_error(&reference(&workload, &operands), &wanted) > 5.0 * EXACT_TOLERANCE);
    }
}
