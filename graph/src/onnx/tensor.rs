//! Conversion of ONNX tensors. Floating-point types become f32, 8-bit integers keep their type, and
//! other integer types become i64.

use autotune_ir::DType;
use half::{bf16, f16};
use ndarray::ArrayD;
use rten_onnx::onnx::{DataLocation, DataType, TensorProto};

use super::file::{FileRange, ModelFile};
use super::limits::MOST_AXES;
use crate::constant::{Constant, LARGE_BYTES};
use crate::tensor::{DeclaredType, Tensor, array, elements};
use crate::text::printable;

/// Returns the element type after import; fails for unsupported types.
pub(crate) fn dtype(data_type: Option<DataType>) -> Result<DType, String> {
    match data_type.unwrap_or(DataType(0)) {
        DataType::FLOAT | DataType::FLOAT16 | DataType::BFLOAT16 | DataType::DOUBLE => Ok(DType::F32),
        DataType::INT8 | DataType::INT16 | DataType::INT32 | DataType::INT64 => Ok(DType::I64),
        DataType::UINT8 | DataType::UINT16 | DataType::UINT32 | DataType::UINT64 => Ok(DType::I64),
        DataType::BOOL => Ok(DType::Bool),
        other => Err(format!("elements of type {other} are not supported")),
    }
}

/// Returns the element type that callers of the network see, if the file declares another type than
/// `dtype`. bf16 remains f32, since NumPy lacks it.
pub(super) fn stored(data_type: DataType, dtype: DType) -> Option<DeclaredType> {
    let stored = declared(data_type).filter(|_| data_type != DataType::BFLOAT16)?;
    (stored != DeclaredType::Of(dtype)).then_some(stored)
}

/// Returns an element type of a file, if it is supported.
pub(super) fn declared(data_type: DataType) -> Option<DeclaredType> {
    Some(match data_type {
        DataType::BOOL => DeclaredType::Of(DType::Bool),
        DataType::INT8 => DeclaredType::Of(DType::I8),
        DataType::INT16 => DeclaredType::Of(DType::I16),
        DataType::INT32 => DeclaredType::Of(DType::I32),
        DataType::INT64 => DeclaredType::Of(DType::I64),
        DataType::UINT8 => DeclaredType::Of(DType::U8),
        DataType::UINT16 => DeclaredType::U16,
        DataType::UINT32 => DeclaredType::U32,
        DataType::UINT64 => DeclaredType::U64,
        DataType::FLOAT16 => DeclaredType::Of(DType::F16),
        DataType::FLOAT => DeclaredType::Of(DType::F32),
        DataType::DOUBLE => DeclaredType::F64,
        DataType::BFLOAT16 => DeclaredType::Of(DType::Bf16),
        _ => return None,
    })
}

/// Returns the type of 8-bit integers, as in quantised tensors.
pub(super) fn bytes_of(data_type: Option<DataType>) -> Option<DType> {
    match data_type {
        Some(DataType::INT8) => Some(DType::I8),
        Some(DataType::UINT8) => Some(DType::U8),
        _ => None,
    }
}

/// Converts extents; fails if one is negative or the tensor is too large.
pub(crate) fn extents(dims: &[i64]) -> Result<Vec<usize>, String> {
    if dims.len() > MOST_AXES {
        return Err(format!("{} axes; at most {MOST_AXES} are supported", dims.len()));
    }
    let extents: Option<Vec<usize>> = dims.iter().map(|&extent| usize::try_from(extent).ok()).collect();
    let extents = extents.ok_or_else(|| format!("shape {dims:?} has a negative extent"))?;
    elements(&extents).map_err(|e| e.to_string())?;
    Ok(extents)
}

/// Returns the value of a tensor with one element.
pub(crate) fn number(tensor: &Tensor) -> Option<f32> {
    match tensor {
        Tensor::F32(array) if array.len() == 1 => array.iter().next().copied(),
        Tensor::I64(array) if array.len() == 1 => array.iter().next().map(|&number| number as f32),
        Tensor::Bool(array) if array.len() == 1 => array.iter().next().map(|&truth| f32::from(truth)),
        Tensor::I8(array) if array.len() == 1 => array.iter().next().map(|&number| number.into()),
        Tensor::U8(array) if array.len() == 1 => array.iter().next().map(|&number| number.into()),
        _ => None,
    }
}

/// Reads a tensor, whose data is in the message's fields, elsewhere in the file, or in an external
/// file.
pub(super) fn read(proto: &TensorProto, file: &ModelFile) -> Result<Constant, String> {
    let data_type = proto.data_type.unwrap_or(DataType(0));
    dtype(Some(data_type))?;
    let shape = extents(&proto.dims)?;
    let count = elements(&shape).map_err(|e| e.to_string())?;

    if proto.data_location == Some(DataLocation::EXTERNAL) {
        return of_part(data_type, &shape, count, &external(proto, data_type, count, file)?);
    }
    match &proto.raw_data {
        Some(place) => {
            let part = file.raw(&place.borrow()).ok_or("the data is not in the file")?;
            of_part(data_type, &shape, count, &part)
        }
        None => of_fields(proto, data_type, &shape, count).map(Constant::from),
    }
}

/// Returns the size of an element in bytes.
fn size_of(data_type: DataType) -> usize {
    match data_type {
        DataType::INT8 | DataType::UINT8 | DataType::BOOL => 1,
        DataType::INT16 | DataType::UINT16 | DataType::FLOAT16 | DataType::BFLOAT16 => 2,
        DataType::FLOAT | DataType::INT32 | DataType::UINT32 => 4,
        _ => 8,
    }
}

/// Reads raw data; large f32 tensors stay in the mapped file.
fn of_part(data_type: DataType, shape: &[usize], count: usize, part: &FileRange) -> Result<Constant, String> {
    let is_whole = count.checked_mul(size_of(data_type)) == Some(part.len());
    match part.mapped() {
        Some((file, bytes)) if is_whole && data_type == DataType::FLOAT && part.len() >= LARGE_BYTES => {
            Ok(Constant::in_file(shape.to_vec(), file, bytes))
        }
        _ => of_bytes(data_type, shape, count, part).map(Constant::from),
    }
}

fn of_bytes(data_type: DataType, shape: &[usize], count: usize, bytes: &[u8]) -> Result<Tensor, String> {
    if count.checked_mul(size_of(data_type)) != Some(bytes.len()) {
        return Err(format!("{} bytes do not match {count} elements of {data_type}", bytes.len()));
    }
    match data_type {
        DataType::FLOAT => floats(shape, numbers(bytes, f32::from_le_bytes)),
        DataType::FLOAT16 => floats(shape, numbers(bytes, |number| f16::from_le_bytes(number).to_f32())),
        DataType::BFLOAT16 => floats(shape, numbers(bytes, |number| bf16::from_le_bytes(number).to_f32())),
        DataType::DOUBLE => floats(shape, numbers(bytes, |number| f64::from_le_bytes(number) as f32)),
        DataType::INT8 => of(shape, bytes.iter().map(|byte| byte.cast_signed()).collect(), Tensor::I8),
        DataType::UINT8 => of(shape, bytes.to_vec(), Tensor::U8),
        DataType::INT16 => integers(shape, numbers(bytes, |number| i16::from_le_bytes(number).into())),
        DataType::UINT16 => integers(shape, numbers(bytes, |number| u16::from_le_bytes(number).into())),
        DataType::INT32 => integers(shape, numbers(bytes, |number| i32::from_le_bytes(number).into())),
        DataType::UINT32 => integers(shape, numbers(bytes, |number| u32::from_le_bytes(number).into())),
        DataType::INT64 => integers(shape, numbers(bytes, i64::from_le_bytes)),
        // i64 cannot represent it.
        DataType::UINT64 if bytes.chunks_exact(8).any(|number| number[7] >= 0x80) => {
            Err("an integer exceeds 63 bits".into())
        }
        DataType::UINT64 => integers(shape, numbers(bytes, |number| u64::from_le_bytes(number) as i64)),
        _ => bool_tensor(shape, bytes.iter().map(|&byte| byte != 0).collect()),
    }
}

/// Reads data from typed fields. Small types share the field of 32-bit integers.
fn of_fields(proto: &TensorProto, data_type: DataType, shape: &[usize], count: usize) -> Result<Tensor, String> {
    let narrow = || proto.int32_data.iter().copied();
    let found = match data_type {
        DataType::FLOAT => proto.float_data.len(),
        DataType::DOUBLE => proto.double_data.len(),
        DataType::INT64 => proto.int64_data.len(),
        DataType::UINT32 | DataType::UINT64 if count > 0 => {
            return Err(format!("elements of {data_type} are supported as raw data only"));
        }
        _ => proto.int32_data.len(),
    };
    if found != count {
        return Err(format!("{found} elements, but the shape has {count}"));
    }

    match data_type {
        DataType::FLOAT => floats(shape, proto.float_data.clone()),
        DataType::DOUBLE => floats(shape, proto.double_data.iter().map(|&number| number as f32).collect()),
        // These fields hold 16-bit floats by their bits.
        DataType::FLOAT16 => floats(shape, narrow().map(|bits| f16::from_bits(bits as u16).to_f32()).collect()),
        DataType::BFLOAT16 => floats(shape, narrow().map(|bits| bf16::from_bits(bits as u16).to_f32()).collect()),
        DataType::INT64 => integers(shape, proto.int64_data.clone()),
        DataType::BOOL => bool_tensor(shape, narrow().map(|number| number != 0).collect()),
        DataType::INT8 => of(shape, narrow().map(|number| number as i8).collect(), Tensor::I8),
        DataType::UINT8 => of(shape, narrow().map(|number| number as u8).collect(), Tensor::U8),
        _ => integers(shape, narrow().map(i64::from).collect()),
    }
}

fn numbers<T, const SIZE: usize>(bytes: &[u8], number: impl Fn([u8; SIZE]) -> T) -> Vec<T> {
    bytes.as_chunks::<SIZE>().0.iter().map(|&bytes| number(bytes)).collect()
}

fn of<T>(shape: &[usize], values: Vec<T>, tensor: fn(ArrayD<T>) -> Tensor) -> Result<Tensor, String> {
    array(shape, values).map(tensor).map_err(|e| e.to_string())
}

fn floats(shape: &[usize], values: Vec<f32>) -> Result<Tensor, String> {
    of(shape, values, Tensor::F32)
}

fn integers(shape: &[usize], values: Vec<i64>) -> Result<Tensor, String> {
    of(shape, values, Tensor::I64)
}

fn bool_tensor(shape: &[usize], values: Vec<bool>) -> Result<Tensor, String> {
    of(shape, values, Tensor::Bool)
}

/// Returns the data in an external file.
fn external<'a>(
    proto: &TensorProto,
    data_type: DataType,
    count: usize,
    file: &ModelFile<'a>,
) -> Result<FileRange<'a>, String> {
    let entry = |key: &str| {
        let entry = proto.external_data.iter().find(|entry| entry.key.as_deref() == Some(key));
        entry.and_then(|entry| entry.value.as_deref())
    };
    let number = |key: &str| match entry(key).map(str::parse::<u64>) {
        Some(Err(_)) => Err(format!("the {key} of the external data is not a number")),
        Some(Ok(number)) => Ok(Some(number)),
        None => Ok(None),
    };

    let location = entry("location").ok_or("the location of the external data is missing")?;
    let offset = number("offset")?.unwrap_or(0);
    let size = count.checked_mul(size_of(data_type)).ok_or("the data is too large")? as u64;
    // The length is redundant, so a mismatch means a corrupt file.
    if number("length")?.is_some_and(|length| length != size) {
        return Err(format!("the length of the external data is not the {size} bytes of the shape"));
    }
    let wrong = |e: std::io::Error| format!("external data in '{}': {e}", printable(location));
    let part = file.part_of(location, offset, size);
    part.ok_or("external data cannot be read from a model in memory")?.map_err(wrong)
}
