//! Functions of CUDA sources: whatever takes assembly.

use super::wgmma;
use crate::gpu::used::Used;
use autotune_ir::DType;
use autotune_ir::program::{Program, Side};

/// What the kernels of a source do beyond plain C.
#[derive(Default)]
struct Needs {
    /// Copies that may be under way.
    copies: bool,
    matrices: bool,
    boxes: bool,
    sides: bool,
    /// Shapes of the instructions of warp groups.
    groups: Vec<wgmma::Shape>,
}

/// The functions that the kernels of a program call, left out where there is no CUDA compiler.
pub(super) fn of(program: &Program) -> String {
    let mut needs = Needs::default();
    for stage in &program.stages {
        let used = Used::of(&stage.body);
        needs.copies |= used.copies && !used.boxes;
        needs.matrices |= used.matrices;
        needs.boxes |= used.boxes;
        needs.sides |= Side::occurs(&stage.body);
        needs.groups.extend(wgmma::shapes(&stage.body));
    }
    // Sums and transforms are f32, and all else of a program is of one type.
    let other = program.buffers.iter().map(|buffer| buffer.dtype).find(|&dtype| dtype != DType::F32);
    text(other.unwrap_or_default(), &needs)
}

/// All functions by which CUDA kernels of [`crate::gpu::generate`] copy and multiply matrices of a type, so that each instruction can be
/// tried by itself: those of warp groups for some numbers of columns, each with the pairs of columns that lie together in a
/// lane's sums.
///
/// ```
/// use autotune_codegen::gpu;
/// use autotune_ir::DType;
///
/// let functions = gpu::device_functions(DType::F16, &[[64, 4]]);
/// assert!(["load_matrices(", "mma_f16(", "copy_box(", "group_f16_n64x4("].iter().all(|name| functions.contains(name)));
/// ```
pub fn device_functions(dtype: DType, groups: &[[usize; 2]]) -> String {
    let halves = dtype.bytes() == 2;
    text(dtype, &Needs { copies: true, matrices: true, boxes: halves, sides: halves, groups: groups.to_vec() })
}

fn text(dtype: DType, needs: &Needs) -> String {
    let mut parts = Vec::new();
    match dtype {
        DType::F16 => parts.push(include_str!("f16.cu")),
        DType::Bf16 => parts.push(include_str!("bf16.cu")),
        DType::F32 | DType::Tf32 => {}
    }
    if needs.copies {
        parts.push(include_str!("copies.cu"));
    }
    if needs.matrices {
        parts.push(include_str!("matrices.cu"));
        parts.push(match dtype {
            DType::F32 | DType::Tf32 => include_str!("mma_tf32.cu"),
            DType::F16 => include_str!("mma_f16.cu"),
            DType::Bf16 => include_str!("mma_bf16.cu"),
        });
    }
    if needs.boxes {
        parts.push(include_str!("boxes.cu"));
    }
    if !needs.groups.is_empty() {
        parts.push(include_str!("groups.cu"));
    }
    if needs.sides {
        parts.push(include_str!("sides.cu"));
    }
    if parts.is_empty() {
        return String::new();
    }
    let products: String = needs.groups.iter().map(|&shape| wgmma::group_product(dtype, shape)).collect();
    format!("#ifdef __CUDACC__\n{}{products}#endif\n", parts.concat())
}
