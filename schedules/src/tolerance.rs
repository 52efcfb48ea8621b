//! Allowed difference between a kernel's output and the reference.

use autotune_ir::program::{BufferId, Expr};
use autotune_ir::{DType, Spec};
use autotune_workloads::Workload;

use crate::config::Config;
use crate::registry::find_anywhere;
use crate::sketch::EXACT_TOLERANCE;

/// Returns the largest [`max_rel_error`](autotune_workloads::max_rel_error) that a correct kernel
/// of `config` may have: [`Sketch::tolerance`](crate::sketch::Sketch::tolerance), plus three
/// allowances.
///
/// - Rounding of the output: if kernel and reference lie on either side of a rounding boundary, an
///   output of 16 bits differs by twice [`DType::unit_roundoff`]. An output of 8 bits differs by
///   one, relative to the end of its range; by two if the activation rounds as well.
/// - Truncation in matrix instructions: they cut off the bits that do not fit into the f32 sum,
///   instead of rounding. Each instruction of 8 reduction steps errs by up to 2^-23 of the sum,
///   always towards zero.
/// - Truncation to `tf32`: the instruction cuts off low bits of the values that a prologue wrote,
///   up to 2^-10 of every factor.
///
/// Workloads that compute with integers alone do not round; their kernels must be exact.
pub fn tolerance(workload: &Workload, config: &Config) -> f64 {
    if computes_integers(workload.spec()) {
        return 0.0;
    }
    let sums = find_anywhere(&config.sketch).map_or(EXACT_TOLERANCE, |sketch| sketch.tolerance(workload, config));
    let steps = if workload.epilogue().activation.rounds() { 2.0 } else { 1.0 };
    let rounded = match workload.result_dtype() {
        dtype if dtype.bytes() == 1 => steps / dtype.range()[1],
        dtype => 2.0 * if dtype.is_word() { 0.0 } else { dtype.unit_roundoff() },
    };
    let cut_off = match workload.dtype() {
        dtype if dtype == DType::F32 || dtype.is_integer() => 0.0,
        _ => workload.spec().reduction_len() as f64 / 8.0 * 2f64.powi(-23),
    };
    let mapped = match (workload.dtype(), workload.spec().prologue()) {
        (DType::Tf32, Some(_)) => 2f64.powi(-10),
        _ => 0.0,
    };
    sums + rounded + cut_off + mapped
}

/// True if every equation combines integers to integers, so that all correct kernels agree exactly.
fn computes_integers(spec: &Spec) -> bool {
    let is_integer = |id: BufferId| spec.tensors[id.0 as usize].dtype.is_integer();
    let is_exact = |value: &Expr| match value {
        Expr::Gather(gather) => gather.at.iter().chain([value]).all(|of| of.is_integer(&is_integer)),
        _ => value.is_integer(&is_integer),
    };
    spec.equations.iter().all(|equation| is_exact(&equation.value))
}

#[cfg(test)]
mod tests {
    use autotune_ir::{CpuTarget, Target};
    use autotune_workloads::{Operands, max_rel_error, reference};

    use super::*;
    use crate::ScheduleSpace;

    #[test]
    fn integers_alone_are_computed_exactly() {
        let target = Target::Cpu(CpuTarget::generic_avx2(1));
        let allowed = |text: &str| {
            let workload: Workload = text.parse().unwrap();
            tolerance(&workload, &ScheduleSpace::new(&workload, &target).default_config())
        };
        assert_eq!(allowed("matmul:m=4,n=4,k=4,data=u8,weights=i8"), 0.0);
        assert_eq!(allowed("matmul:m=4,n=4,k=4,data=u8,weights=i8,out=u8,bias,act=relu"), 0.0);
        let scaled = allowed("matmul:m=4,n=4,k=4,data=u8,weights=i8,out=u8,scale");
        assert!((1.0 / 255.0..1.1 / 255.0).contains(&scaled), "{scaled}");
    }

    #[test]
    fn tolerance_tells_one_lost_product_from_rounding() {
        let workload: Workload = "matmul:m=4,n=4,k=4096".parse().unwrap();
        let mut operands = Operands::random(workload.spec(), 9);
        let wanted = reference(&workload, &operands);
        operands[0][[0, 2, 1000]] = 0.0;
        assert!(max_rel_error(&reference(&workload, &operands), &wanted) > 5.0 * EXACT_TOLERANCE);
    }
}
