//! Element types of tensors in memory during a run.

use autotune_ir::DType;

/// True for the types of quantised tensors.
pub fn is_of_bytes(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::I8)
}

/// Returns the type in memory of tensors with an element type: f32 for all except the 8-bit types.
/// Integers are exact up to 2^24 there; booleans are 0 and 1.
pub fn memory_dtype(dtype: DType) -> DType {
    if is_of_bytes(dtype) { dtype } else { DType::F32 }
}
