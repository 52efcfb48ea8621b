//! Functions of CUDA sources: whatever takes assembly.

use super::{Cuda, copy, mma, wgmma};
use crate::gpu::dialect::Dialect;
use crate::gpu::used::Used;
use autotune_ir::DType;
use autotune_ir::instruction::BOX_COPY;
use autotune_ir::program::{Node, Program, WarpRole};

/// Two elements of 16 bits.
const PAIR: &str =
    "static __device__ __forceinline__ unsigned pair(unsigned low, unsigned high) { return low | high << 16; }\n";

/// The functions that the kernels of a program call, left out where there is no CUDA compiler.
pub(super) fn of(program: &Program) -> String {
    let stages: Vec<Used> = program.stages.iter().map(|stage| Used::of(&stage.body)).collect();
    // Sums and transforms are f32, and what is multiplied is of one type.
    let mut dtypes: Vec<DType> = Vec::new();
    for dtype in program.buffers.iter().map(|buffer| buffer.dtype).filter(|&dtype| dtype != DType::F32) {
        if !dtypes.contains(&dtype) {
            dtypes.push(dtype);
        }
    }
    let dtype = dtypes.first().copied().unwrap_or_default();

    let mut parts = Vec::new();
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
    text(&dtypes, &parts)
}

/// All functions by which CUDA kernels of [`crate::gpu::generate`] copy and multiply matrices of a
/// type, so that each instruction can be tried by itself: those of warp groups for some numbers of
/// columns, each with the pairs of columns that lie together in a lane's sums.
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

/// The parts behind what converts elements of some types.
fn text(dtypes: &[DType], parts: &[String]) -> String {
    let of_type = |dtype: &DType| match dtype {
        DType::F16 => include_str!("f16.cu"),
        DType::Bf16 => include_str!("bf16.cu"),
        _ => "",
    };
    let mut conversions: String = dtypes.iter().map(of_type).collect();
    if !conversions.is_empty() {
        conversions += PAIR;
    }
    if conversions.is_empty() && parts.is_empty() {
        return String::new();
    }
    format!("#ifdef __CUDACC__\n{conversions}{}#endif\n", parts.concat())
}
