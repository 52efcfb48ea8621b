//! Device functions of CUDA sources that need inline PTX.

use super::{Cuda, copy, mma, wgmma};
use crate::gpu::dialect::Dialect;
use crate::gpu::used::Used;
use autotune_ir::DType;
use autotune_ir::instruction::BOX_COPY;
use autotune_ir::program::{Expr, Node, Program, UnaryOp, WarpRole, preorder};

/// Returns the functions that a program's kernels call.
pub(super) fn of(program: &Program) -> String {
    let stages: Vec<Used> = program.stages.iter().map(|stage| Used::of(&stage.body)).collect();
    // Operands of a matrix instruction share one type; sums and transforms are f32. So the first
    // type other than f32 is the operands'.
    let mut dtypes: Vec<DType> = Vec::new();
    for dtype in program.buffers.iter().map(|buffer| buffer.dtype).filter(|&dtype| dtype != DType::F32) {
        if !dtypes.contains(&dtype) {
            dtypes.push(dtype);
        }
    }
    let dtype = dtypes.first().copied().unwrap_or_default();

    let mut parts = Vec::new();
    // Copies are either boxes or `cp.async`, never both in a kernel.
    if stages.iter().any(|used| used.copies && !used.calls(&BOX_COPY)) {
        parts.push(include_str!("copies.cu").to_string());
    }
    for printer in Cuda::INSTRUCTIONS {
        let calls = stages.iter().flat_map(|used| &used.calls);
        let bodies: Vec<&[Node]> = calls.filter(|call| call.0 == printer.instruction).map(|call| call.1).collect();
        if !bodies.is_empty() {
            parts.push((printer.functions)(dtype, &bodies));
        }
    }
    if program.stages.iter().any(|stage| WarpRole::occurs(&stage.body)) {
        parts.push(include_str!("sides.cu").into());
    }
    let is_power = |expr: &Expr| matches!(expr, Expr::Unary(UnaryOp::Exp2, _));
    let mut nodes = program.stages.iter().flat_map(|stage| preorder(&stage.body));
    if nodes.any(|node| matches!(node, Node::Store(store) if store.value.any(&is_power))) {
        parts.push(include_str!("powers.cu").into());
    }
    text(&dtypes, &parts)
}

/// Returns all functions that CUDA kernels of [`crate::gpu::generate`] use to copy and multiply
/// matrices of a type, so that each instruction can be tested alone.
///
/// `groups` lists warp group instructions: the number of columns, and the number of column pairs
/// that are adjacent in a lane's sums.
///
/// ```
/// use autotune_codegen::gpu;
/// use autotune_ir::DType;
///
/// let functions = gpu::device_functions(DType::F16, &[[64, 4]]);
/// assert!(["load_matrices(", "mma_f16(", "copy_box(", "group_f16_n64x4("].iter().all(|name| functions.contains(name)));
/// ```
pub fn device_functions(dtype: DType, groups: &[[usize; 2]]) -> String {
    let mut parts = vec![include_str!("copies.cu").into(), mma::functions(dtype)];
    if dtype.bytes() == 2 {
        parts.push(copy::functions());
        parts.push(include_str!("sides.cu").into());
    }
    if !groups.is_empty() {
        parts.push(wgmma::functions(dtype, groups));
    }
    text(&[dtype], &parts)
}

/// Joins the functions that convert elements of the types, and the parts.
fn text(dtypes: &[DType], parts: &[String]) -> String {
    let of_type = |dtype: &DType| match dtype {
        DType::F16 => include_str!("f16.cu"),
        DType::Bf16 => include_str!("bf16.cu"),
        _ => "",
    };
    let conversions: String = dtypes.iter().map(of_type).collect();
    if conversions.is_empty() && parts.is_empty() {
        return String::new();
    }
    let shared = if parts.is_empty() { "" } else { include_str!("shared.cu") };
    format!("#ifdef __CUDACC__\n{conversions}{shared}{}#endif\n", parts.concat())
}
