//! Values of ONNX Runtime: descriptions in graphs, and tensors in runs.

use std::ffi::{c_char, c_void};
use std::{ptr, slice};

use ort_autotune::element;
use ort_sys::{ONNXTensorElementDataType, OrtTensorTypeAndShapeInfo, OrtTypeInfo, OrtValue, OrtValueInfo};
use rten_onnx::onnx::Dimension;

use crate::exact::ValueFacts;
use crate::host::{Host, ask, text};

/// Maximum number of axes of a tensor.
const MOST_AXES: usize = 16;

/// A value by its name.
#[derive(Clone)]
pub(crate) struct HostValue {
    pub(crate) info: *const OrtValueInfo,
    pub(crate) name: String,
    /// Element type; `None` for values that are no tensors.
    element: Option<ONNXTensorElementDataType>,
    pub(crate) is_constant: bool,
    /// True if the value belongs to a graph around that of the node.
    pub(crate) is_outer: bool,
}

impl HostValue {
    /// Reads a value; `None` for an absent one.
    ///
    /// # Safety
    ///
    /// The value is null or belongs to a graph of ONNX Runtime.
    pub(crate) unsafe fn of(host: Host, info: *const OrtValueInfo) -> Result<Option<Self>, String> {
        if info.is_null() {
            return Ok(None);
        }
        let (mut name, mut is_constant, mut is_outer) = (ptr::null(), false, false);
        let mut element = ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
        // SAFETY: as for this function.
        unsafe {
            ask!(host, GetValueInfoName(info, &mut name))?;
            let name = text(name);
            if name.is_empty() {
                return Ok(None);
            }
            ask!(host, ValueInfo_IsConstantInitializer(info, &mut is_constant))?;
            ask!(host, ValueInfo_IsFromOuterScope(info, &mut is_outer))?;
            let of_tensor = tensor_info(host, info)?;
            if let Some(of_tensor) = of_tensor {
                ask!(host, GetTensorElementType(of_tensor, &mut element))?;
            }
            Ok(Some(Self { info, name, element: of_tensor.map(|_| element), is_constant, is_outer }))
        }
    }

    /// Returns the value as the rules of [`crate::exact`] see it.
    pub(crate) fn facts(&self) -> ValueFacts<'_> {
        ValueFacts { name: &self.name, element: self.element, is_constant: self.is_constant }
    }
}

/// Returns the description of a value that is a tensor.
///
/// # Safety
///
/// The value belongs to a graph of ONNX Runtime.
pub(crate) unsafe fn tensor_info(
    host: Host,
    info: *const OrtValueInfo,
) -> Result<Option<*const OrtTensorTypeAndShapeInfo>, String> {
    let (mut of_value, mut of_tensor): (*const OrtTypeInfo, *const OrtTensorTypeAndShapeInfo) =
        (ptr::null(), ptr::null());
    // SAFETY: as for this function.
    unsafe {
        ask!(host, GetValueInfoTypeInfo(info, &mut of_value))?;
        if !of_value.is_null() {
            ask!(host, CastTypeInfoToTensorInfo(of_value, &mut of_tensor))?;
        }
    }
    Ok((!of_tensor.is_null()).then_some(of_tensor))
}

/// Element type, shape and memory of a tensor.
pub(crate) struct TensorView {
    pub(crate) element: ONNXTensorElementDataType,
    pub(crate) shape: Vec<i64>,
    data: *mut u8,
}

impl TensorView {
    /// Returns the extents of the tensor.
    pub(crate) fn extents(&self) -> Vec<usize> {
        self.shape.iter().map(|&extent| extent as usize).collect()
    }

    /// Returns the memory of all elements.
    ///
    /// # Safety
    ///
    /// The tensor exists and is not written during `'a`.
    pub(crate) unsafe fn bytes<'a>(&self) -> Result<&'a [u8], String> {
        Ok(match self.size()? {
            0 => &[],
            // SAFETY: as for this function; the tensor has these bytes.
            size => unsafe { slice::from_raw_parts(self.data, size) },
        })
    }

    /// Returns the memory of all elements, to write it.
    ///
    /// # Safety
    ///
    /// The tensor exists and nothing else uses it during `'a`.
    pub(crate) unsafe fn bytes_mut<'a>(&self) -> Result<&'a mut [u8], String> {
        Ok(match self.size()? {
            0 => &mut [],
            // SAFETY: as for this function; the tensor has these bytes.
            size => unsafe { slice::from_raw_parts_mut(self.data, size) },
        })
    }

    /// Returns the size of all elements in bytes.
    fn size(&self) -> Result<usize, String> {
        let size = element::size(self.element).map_err(|error| error.to_string())?;
        Ok(size * self.extents().into_iter().product::<usize>())
    }
}

/// Returns the description and the memory of a tensor.
///
/// # Safety
///
/// The tensor comes from ONNX Runtime.
pub(crate) unsafe fn view(host: Host, value: *const OrtValue) -> Result<TensorView, String> {
    let (mut info, mut data): (*mut OrtTensorTypeAndShapeInfo, *mut c_void) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: as for this function; the description is released once.
    unsafe {
        ask!(host, GetTensorTypeAndShape(value, &mut info))?;
        let known = described(host, info);
        host.function(|api| (&raw const (*api).ReleaseTensorTypeAndShapeInfo).read())(info);
        let (element, dimensions) = known?;
        ask!(host, GetTensorMutableData(value.cast_mut(), &mut data))?;
        let extents = dimensions.unwrap_or_default().into_iter().map(|dimension| dimension.dim_value.unwrap_or(0));
        Ok(TensorView { element, shape: extents.collect(), data: data.cast() })
    }
}

/// Returns an element type, and the dimensions unless the rank is unknown.
///
/// # Safety
///
/// The description comes from ONNX Runtime.
pub(crate) unsafe fn described(
    host: Host,
    info: *const OrtTensorTypeAndShapeInfo,
) -> Result<(ONNXTensorElementDataType, Option<Vec<Dimension>>), String> {
    let mut element = ONNXTensorElementDataType::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    let mut rank = 0;
    // SAFETY: as for this function; a later table has the function for that.
    unsafe {
        ask!(host, GetTensorElementType(info, &mut element))?;
        if host.is_later() && !(host.function(|api| (&raw const (*api).TensorTypeAndShape_HasShape).read()))(info) {
            return Ok((element, None));
        }
        ask!(host, GetDimensionsCount(info, &mut rank))?;
        if rank > MOST_AXES {
            return Err(format!("{rank} axes; at most {MOST_AXES} are supported"));
        }

        let (mut extents, mut names) = (vec![0; rank], vec![ptr::null(); rank]);
        if rank > 0 {
            ask!(host, GetDimensions(info, extents.as_mut_ptr(), rank))?;
            ask!(host, GetSymbolicDimensions(info, names.as_mut_ptr(), rank))?;
        }
        let dimension = |(extent, name): (i64, *const c_char)| Dimension {
            dim_value: (extent >= 0).then_some(extent),
            dim_param: Some(text(name)).filter(|name| extent < 0 && !name.is_empty()),
        };
        Ok((element, Some(extents.into_iter().zip(names).map(dimension).collect())))
    }
}
