//! Values: tensors in memory of this library or of the caller.

use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::slice;
use std::sync::Arc;

use ort_sys::{
    ONNXTensorElementDataType, ONNXType, OrtAllocator, OrtApi, OrtMemoryInfo, OrtTensorTypeAndShapeInfo, OrtTypeInfo,
    OrtValue,
};

use crate::element;
use crate::handle::{Handle, elements, give, of, set};
use crate::memory;
use crate::status::{ApiError, api_functions, release_functions};
use crate::type_info::{TensorInfo, TypeInfo};

/// A tensor. Copies share its memory, as in ONNX Runtime.
#[derive(Clone)]
pub(crate) struct TensorValue(Arc<TensorMemory>);

impl Handle for TensorValue {
    type Sys = OrtValue;
}

/// Description and memory of a tensor.
struct TensorMemory {
    info: TensorInfo,
    data: *mut u8,
    bytes: usize,
    /// Memory of this library, in words so that it suits all element types.
    _own: Vec<u64>,
}

// SAFETY: the API lets its callers use a value in several threads; they do not write it meanwhile.
unsafe impl Send for TensorMemory {}
// SAFETY: as above.
unsafe impl Sync for TensorMemory {}

/// Returns the shape of a tensor as extents.
pub(crate) fn extents(shape: &[i64]) -> Result<Vec<usize>, ApiError> {
    let wrong = |_| ApiError::argument(format!("shape {shape:?} has a negative extent"));
    shape.iter().map(|&extent| usize::try_from(extent)).collect::<Result<_, _>>().map_err(wrong)
}

fn bytes(element: ONNXTensorElementDataType, shape: &[i64]) -> Result<usize, ApiError> {
    let count = extents(shape)?.into_iter().try_fold(element::size(element)?, usize::checked_mul);
    count.ok_or_else(|| ApiError::argument(format!("shape {shape:?} is too large")))
}

impl TensorValue {
    /// Creates a tensor of zeros.
    pub(crate) fn zeros(element: ONNXTensorElementDataType, shape: Vec<i64>) -> Result<Self, ApiError> {
        let bytes = bytes(element, &shape)?;
        let mut own = vec![0u64; bytes.div_ceil(size_of::<u64>()).max(1)];
        let data = own.as_mut_ptr().cast();
        Ok(Self(Arc::new(TensorMemory { info: TensorInfo::new(element, shape), data, bytes, _own: own })))
    }

    pub(crate) fn info(&self) -> &TensorInfo {
        &self.0.info
    }

    /// Returns the memory of all elements.
    ///
    /// # Safety
    ///
    /// Nothing writes the tensor during the borrow.
    unsafe fn memory(&self) -> &[u8] {
        // SAFETY: the memory has these bytes, and lives as long as the value.
        unsafe { slice::from_raw_parts(self.0.data, self.0.bytes) }
    }

    /// Returns the memory of all elements, to write it.
    ///
    /// # Safety
    ///
    /// Nothing else uses the tensor during the borrow.
    #[expect(clippy::mut_from_ref, reason = "values are handles, which the caller uses in turns")]
    unsafe fn memory_mut(&self) -> &mut [u8] {
        // SAFETY: the memory has these bytes, and lives as long as the value.
        unsafe { slice::from_raw_parts_mut(self.0.data, self.0.bytes) }
    }

    /// Returns the elements as numbers, without a copy for aligned f32.
    ///
    /// # Safety
    ///
    /// Nothing writes the tensor during the borrow.
    pub(crate) unsafe fn numbers(&self) -> Result<Cow<'_, [f32]>, ApiError> {
        // SAFETY: as for this function.
        Ok(element::numbers(self.0.info.element, unsafe { self.memory() })?)
    }

    /// Returns the elements, to write them, if they are aligned f32.
    ///
    /// # Safety
    ///
    /// Nothing else uses the tensor during the borrow.
    #[expect(clippy::mut_from_ref, reason = "values are handles, which the caller uses in turns")]
    pub(crate) unsafe fn numbers_mut(&self) -> Option<&mut [f32]> {
        // SAFETY: as for this function.
        element::numbers_mut(self.0.info.element, unsafe { self.memory_mut() })
    }

    /// Writes numbers as elements.
    ///
    /// # Safety
    ///
    /// Nothing else uses the tensor meanwhile.
    pub(crate) unsafe fn write(&self, numbers: &[f32]) -> Result<(), ApiError> {
        // SAFETY: as for this function.
        Ok(element::write(self.0.info.element, numbers, unsafe { self.memory_mut() })?)
    }
}

api_functions! {
    fn CreateTensorAsOrtValue(
        _allocator: *mut OrtAllocator,
        shape: *const i64,
        rank: usize,
        element: ONNXTensorElementDataType,
        out: *mut *mut OrtValue,
    ) {
        give(out, TensorValue::zeros(element, elements(shape, rank)?.to_vec())?)
    }

    fn CreateTensorWithDataAsOrtValue(
        _info: *const OrtMemoryInfo,
        data: *mut c_void,
        size: usize,
        shape: *const i64,
        rank: usize,
        element: ONNXTensorElementDataType,
        out: *mut *mut OrtValue,
    ) {
        let shape = elements(shape, rank)?;
        let bytes = bytes(element, shape)?;
        if size < bytes || (data.is_null() && bytes > 0) {
            return Err(ApiError::argument(format!("{size} bytes, but shape {shape:?} needs {bytes}")));
        }
        let data = if bytes == 0 { std::ptr::dangling_mut::<u64>().cast() } else { data.cast() };
        let info = TensorInfo::new(element, shape.to_vec());
        give(out, TensorValue(Arc::new(TensorMemory { info, data, bytes, _own: Vec::new() })))
    }

    fn IsTensor(_value: *const OrtValue, out: *mut c_int) { set(out, 1) }

    fn HasValue(_value: *const OrtValue, out: *mut c_int) { set(out, 1) }

    fn GetValueType(_value: *const OrtValue, out: *mut ONNXType) { set(out, ONNXType::ONNX_TYPE_TENSOR) }

    fn GetTensorMutableData(value: *mut OrtValue, out: *mut *mut c_void) {
        set(out, of::<TensorValue>(value)?.0.data.cast())
    }

    fn GetTensorData(value: *const OrtValue, out: *mut *const c_void) {
        set(out, of::<TensorValue>(value)?.0.data.cast_const().cast())
    }

    fn GetTensorSizeInBytes(value: *const OrtValue, out: *mut usize) {
        set(out, of::<TensorValue>(value)?.0.bytes)
    }

    fn GetTensorTypeAndShape(value: *const OrtValue, out: *mut *mut OrtTensorTypeAndShapeInfo) {
        give(out, of::<TensorValue>(value)?.info().clone())
    }

    fn GetTypeInfo(value: *const OrtValue, out: *mut *mut OrtTypeInfo) {
        give(out, TypeInfo(of::<TensorValue>(value)?.info().clone()))
    }

    fn GetTensorElementTypeAndShapeDataReference(
        value: *const OrtValue,
        element: *mut ONNXTensorElementDataType,
        shape: *mut *const i64,
        rank: *mut usize,
    ) {
        let info = of::<TensorValue>(value)?.info();
        set(element, info.element)?;
        set(shape, info.shape.as_ptr())?;
        set(rank, info.shape.len())
    }

    fn GetTensorMemoryInfo(_value: *const OrtValue, out: *mut *const OrtMemoryInfo) { set(out, memory::cpu()) }
}

release_functions! { ReleaseValue(TensorValue) }

pub(crate) fn add_to(api: &mut OrtApi) {
    add_functions(api);
    add_releases(api);
}
