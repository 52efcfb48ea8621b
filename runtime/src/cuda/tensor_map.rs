//! Tensor maps, which describe matrices to the copy engine of CUDA devices.

use std::ffi::c_void;

use autotune_ir::plan::{PlanBuffer, TensorBox};
use autotune_ir::{DType, KernelPlan};
use cudarc::driver::{DeviceRepr, sys};

use super::driver::guarded;

/// Tensor map, passed to kernels by value. The alignment is that of the headers since CUDA 13,
/// which earlier versions permit.
#[repr(C, align(128))]
pub(super) struct TensorMap(sys::CUtensorMap);

// SAFETY: plain data that is passed to kernels unchanged.
unsafe impl DeviceRepr for TensorMap {}

/// Parameters of a tensor map, except for the address.
#[derive(Clone, Debug)]
pub(super) struct MapPlan {
    /// Position among the buffers that are passed to the kernel.
    pub(super) buffer: usize,
    dtype: sys::CUtensorMapDataType,
    /// Columns and rows of the matrix.
    extents: [u64; 2],
    row_bytes: u64,
    /// Columns and rows of a box.
    shape: [u32; 2],
}

impl MapPlan {
    /// Returns the parameters of the map for a box of the plan; the error says why there is none.
    pub(super) fn new(plan: &KernelPlan, of: &TensorBox) -> Result<Self, String> {
        let Some(PlanBuffer { shape, dtype, .. }) = plan.buffers.get(of.buffer) else {
            return Err("the buffer of a tensor map does not exist".into());
        };
        let &[.., rows, columns] = &shape[..] else {
            return Err("a tensor map needs a buffer of at least 2 dimensions".into());
        };
        let kind = match dtype {
            DType::F16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            DType::Bf16 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            DType::F32 | DType::Tf32 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            other => return Err(format!("a tensor map does not support elements of type {}", other.word())),
        };
        Ok(Self {
            buffer: plan.buffers[..of.buffer].iter().filter(|b| b.is_global()).count(),
            dtype: kind,
            extents: [columns as u64, rows as u64],
            row_bytes: (columns * dtype.bytes()) as u64,
            shape: [of.shape[1] as u32, of.shape[0] as u32],
        })
    }

    /// Creates the map for a matrix at `address`.
    pub(super) fn encode(&self, address: sys::CUdeviceptr) -> Result<TensorMap, String> {
        let mut map = TensorMap(sys::CUtensorMap { opaque: [0; 16] });
        let steps = [1u32; 2];
        // SAFETY: every array has two elements, one per dimension (one less for the strides); the
        // map is only written.
        let mut encode = || unsafe {
            sys::cuTensorMapEncodeTiled(
                &mut map.0,
                self.dtype,
                2,
                address as *mut c_void,
                self.extents.as_ptr(),
                &self.row_bytes,
                self.shape.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        };
        guarded(|| encode().result()).map_err(|fault| format!("cannot create a tensor map: {fault}"))?;
        Ok(map)
    }
}
