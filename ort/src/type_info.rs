//! Descriptions of tensors: element type and shape.

use std::ffi::{CString, c_char};

use autotune_network::DeclaredType;
use autotune_network::onnx::{DeclaredInput, DeclaredOutput};
use ort_sys::{ONNXTensorElementDataType, ONNXType, OrtApi, OrtTensorTypeAndShapeInfo, OrtTypeInfo};

use crate::element::onnx_type;
use crate::handle::{Handle, elements, elements_mut, give, of, of_mut, set};
use crate::status::{ApiError, api_functions, release_functions};

/// Element type and shape of a tensor.
#[derive(Clone)]
pub(crate) struct TensorInfo {
    pub(crate) element: ONNXTensorElementDataType,
    /// Extents; -1 where any is possible.
    pub(crate) shape: Vec<i64>,
    /// Names of extents, empty for those without.
    symbols: Vec<CString>,
}

impl Handle for TensorInfo {
    type Sys = OrtTensorTypeAndShapeInfo;
}

/// Type of a value, which is always a tensor.
pub(crate) struct TypeInfo(pub(crate) TensorInfo);

impl Handle for TypeInfo {
    type Sys = OrtTypeInfo;
}

impl TensorInfo {
    pub(crate) fn new(element: ONNXTensorElementDataType, shape: Vec<i64>) -> Self {
        let symbols = vec![CString::default(); shape.len()];
        Self { element, shape, symbols }
    }

    /// Describes an input of a file.
    pub(crate) fn of_input(input: &DeclaredInput) -> Self {
        Self::declared(Some(input.declared()), &input.extents, &input.names)
    }

    /// Describes an output of a file. Without a rank in the file, it has no axes here.
    pub(crate) fn of_output(output: &DeclaredOutput) -> Self {
        Self::declared(output.stored, output.extents.as_deref().unwrap_or_default(), &output.names)
    }

    fn declared(element: Option<DeclaredType>, extents: &[Option<usize>], names: &[Option<String>]) -> Self {
        let shape = extents.iter().map(|extent| extent.and_then(|extent| i64::try_from(extent).ok()).unwrap_or(-1));
        let name = |name: &Option<String>| CString::new(name.as_deref().unwrap_or_default()).unwrap_or_default();
        Self { element: onnx_type(element), shape: shape.collect(), symbols: names.iter().map(name).collect() }
    }
}

api_functions! {
    fn CreateTensorTypeAndShapeInfo(out: *mut *mut OrtTensorTypeAndShapeInfo) {
        give(out, TensorInfo::new(ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED, Vec::new()))
    }

    fn SetTensorElementType(info: *mut OrtTensorTypeAndShapeInfo, element: ONNXTensorElementDataType) {
        of_mut::<TensorInfo>(info)?.element = element;
        Ok(())
    }

    fn SetDimensions(info: *mut OrtTensorTypeAndShapeInfo, extents: *const i64, count: usize) {
        let info: &mut TensorInfo = of_mut(info)?;
        *info = TensorInfo::new(info.element, elements(extents, count)?.to_vec());
        Ok(())
    }

    fn GetTensorElementType(info: *const OrtTensorTypeAndShapeInfo, out: *mut ONNXTensorElementDataType) {
        set(out, of::<TensorInfo>(info)?.element)
    }

    fn GetDimensionsCount(info: *const OrtTensorTypeAndShapeInfo, out: *mut usize) {
        set(out, of::<TensorInfo>(info)?.shape.len())
    }

    fn GetDimensions(info: *const OrtTensorTypeAndShapeInfo, out: *mut i64, count: usize) {
        let shape = &of::<TensorInfo>(info)?.shape;
        let count = count.min(shape.len());
        elements_mut(out, count)?.copy_from_slice(&shape[..count]);
        Ok(())
    }

    fn GetSymbolicDimensions(info: *const OrtTensorTypeAndShapeInfo, out: *mut *const c_char, count: usize) {
        let symbols = &of::<TensorInfo>(info)?.symbols;
        let places = elements_mut(out, count.min(symbols.len()))?;
        places.iter_mut().zip(symbols).for_each(|(place, symbol)| *place = symbol.as_ptr());
        Ok(())
    }

    fn GetTensorShapeElementCount(info: *const OrtTensorTypeAndShapeInfo, out: *mut usize) {
        let counts = of::<TensorInfo>(info)?.shape.iter().map(|&extent| usize::try_from(extent).ok());
        let count = counts.reduce(|a, b| a?.checked_mul(b?)).unwrap_or(Some(1));
        set(out, count.ok_or_else(|| ApiError::argument("the shape has an open extent, or is too large"))?)
    }

    fn CastTypeInfoToTensorInfo(info: *const OrtTypeInfo, out: *mut *const OrtTensorTypeAndShapeInfo) {
        set(out, (&raw const of::<TypeInfo>(info)?.0).cast())
    }

    fn GetOnnxTypeFromTypeInfo(_info: *const OrtTypeInfo, out: *mut ONNXType) {
        set(out, ONNXType::ONNX_TYPE_TENSOR)
    }
}

release_functions! { ReleaseTensorTypeAndShapeInfo(TensorInfo), ReleaseTypeInfo(TypeInfo) }

pub(crate) fn add_to(api: &mut OrtApi) {
    add_functions(api);
    add_releases(api);
}
