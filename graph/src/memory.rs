//! Types in which tensors lie in memory while a network runs.

use autotune_ir::DType;

/// True for the types of quantised tensors.
pub fn is_of_bytes(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::I8)
}

/// Returns the type in which tensors of an element type lie in memory while a network runs: f32 for
/// all but those of 8 bits. Integers are exact up to 2^24 there, truth values are 0 and 1.
pub fn memory_dtype(dtype: DType) -> DType {
    if is_of_bytes(dtype) { dtype } else { DType::F32 }
}
