//! Tensors in NumPy's `.npy` files.
//!
//! Conversions between element types keep the value or fail. Only floating-point numbers are
//! rounded, to the nearest number of a smaller type.

use std::fmt::{self, Display};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;

use autotune_network::{DType, DeclaredType, Tensor};
use half::f16;
use ndarray::ArrayD;
use ndarray_npy::{ReadDataError, ReadNpyError, ReadNpyExt, ReadableElement, WritableElement};
use ndarray_npy::{WriteDataError, WriteNpyError, WriteNpyExt};
use py_literal::Value;

use crate::args::Failure;

/// Reads the tensor of a file that an option names, converted from any numeric type to `dtype`.
pub(crate) fn read(option: &str, path: &Path, dtype: DType) -> Result<Tensor, Failure> {
    let wrong = |why: String| Failure::Usage(format!("{option} {}: {why}", path.display()));
    let tensor = match dtype {
        DType::F32 => read_as(path).map(Tensor::F32),
        DType::I64 => read_as(path).map(Tensor::I64),
        DType::Bool => read_as(path).map(Tensor::Bool),
        other => Err(format!("inputs of {other} are not supported")),
    };
    tensor.map_err(wrong)
}

/// Reads the numbers of a file as one type, or says why that is impossible.
fn read_as<T: ExactNumber + Copy>(path: &Path) -> Result<ArrayD<T>, String> {
    let file = File::open(path).map(BufReader::new).map_err(|error| error.to_string())?;
    let array = ArrayD::<Exact<T>>::read_npy(file).map_err(|error| match error {
        ReadNpyError::WrongDescriptor(found) => {
            format!("elements of type {found} are not supported: save them as {}", T::NAME)
        }
        ReadNpyError::ParseData(inexact) => inexact.to_string(),
        error => format!("not an array of numbers: {error}"),
    })?;
    Ok(array.map(|Exact(number)| *number))
}

/// Writes a tensor in NumPy's format: as `stored`, the type that the network's file states, or
/// without one in its own type.
pub(crate) fn write(to: impl Write, tensor: &Tensor, stored: Option<DeclaredType>) -> Result<(), WriteNpyError> {
    match stored {
        None => match tensor {
            Tensor::F32(array) => array.write_npy(to),
            Tensor::I64(array) => array.write_npy(to),
            Tensor::Bool(array) => array.write_npy(to),
            Tensor::I8(array) => array.write_npy(to),
            Tensor::U8(array) => array.write_npy(to),
        },
        Some(DeclaredType::Of(DType::Bool)) => write_as::<bool>(to, tensor),
        Some(DeclaredType::Of(DType::I8)) => write_as::<i8>(to, tensor),
        Some(DeclaredType::Of(DType::I16)) => write_as::<i16>(to, tensor),
        Some(DeclaredType::Of(DType::I32)) => write_as::<i32>(to, tensor),
        Some(DeclaredType::Of(DType::I64)) => write_as::<i64>(to, tensor),
        Some(DeclaredType::Of(DType::U8)) => write_as::<u8>(to, tensor),
        Some(DeclaredType::U16) => write_as::<u16>(to, tensor),
        Some(DeclaredType::U32) => write_as::<u32>(to, tensor),
        Some(DeclaredType::U64) => write_as::<u64>(to, tensor),
        Some(DeclaredType::Of(DType::F16)) => write_as::<Half>(to, tensor),
        // NumPy has no bf16, and f32 contains all its values.
        Some(DeclaredType::Of(DType::F32 | DType::Tf32 | DType::Bf16)) => write_as::<f32>(to, tensor),
        Some(DeclaredType::F64) => write_as::<f64>(to, tensor),
    }
}

fn write_as<T: ExactNumber + WritableElement>(to: impl Write, tensor: &Tensor) -> Result<(), WriteNpyError> {
    let numbers: Result<Vec<T>, Inexact> = match tensor {
        Tensor::F32(array) => array.iter().map(|&x| T::kept(Number::Real(x.into()))).collect(),
        Tensor::I64(array) => array.iter().map(|&x| T::kept(Number::Whole(x.into()))).collect(),
        Tensor::Bool(array) => array.iter().map(|&x| T::kept(Number::Whole(x.into()))).collect(),
        Tensor::I8(array) => array.iter().map(|&x| T::kept(Number::Whole(x.into()))).collect(),
        Tensor::U8(array) => array.iter().map(|&x| T::kept(Number::Whole(x.into()))).collect(),
    };
    let numbers = numbers.map_err(|inexact| WriteNpyError::FormatData(inexact.into()))?;
    let array = ArrayD::from_shape_vec(tensor.shape(), numbers);
    let array = array.map_err(|error| WriteNpyError::FormatData(error.into()))?;
    array.write_npy(to)
}

/// A number read from or written to a file.
#[derive(Clone, Copy)]
enum Number {
    Whole(i128),
    Real(f64),
}

/// Error for a number that a type cannot represent.
#[derive(Debug, thiserror::Error)]
#[error("{number} is not {wanted}")]
struct Inexact {
    number: String,
    wanted: &'static str,
}

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Real(number) => number.fmt(f),
        }
    }
}

/// Types to which numbers convert if the value is representable.
trait ExactNumber: Sized {
    const NAME: &'static str;

    fn of_whole(number: i128) -> Option<Self>;

    fn of_real(number: f64) -> Option<Self>;

    fn kept(number: Number) -> Result<Self, Inexact> {
        let kept = match number {
            Number::Whole(number) => Self::of_whole(number),
            Number::Real(number) => Self::of_real(number),
        };
        kept.ok_or_else(|| Inexact { number: number.to_string(), wanted: Self::NAME })
    }
}

/// Returns a floating-point number as an integer, if it is one.
fn whole(number: f64) -> Option<i128> {
    // The bound makes the cast exact; no integer type of a file is larger.
    const MOST: f64 = (1u128 << 100) as f64;
    (number.fract() == 0.0 && number.abs() < MOST).then_some(number as i128)
}

macro_rules! kept_by_integers {
    ($($type:ident: $name:literal),*) => {$(
        impl ExactNumber for $type {
            const NAME: &'static str = $name;

            fn of_whole(number: i128) -> Option<Self> {
                Self::try_from(number).ok()
            }

            fn of_real(number: f64) -> Option<Self> {
                Self::of_whole(whole(number)?)
            }
        }
    )*};
}
kept_by_integers!(
    i8: "int8", i16: "int16", i32: "int32", i64: "int64", u8: "uint8", u16: "uint16", u32: "uint32", u64: "uint64"
);

impl ExactNumber for bool {
    const NAME: &'static str = "bool";

    fn of_whole(number: i128) -> Option<Self> {
        [(0, false), (1, true)].into_iter().find(|(known, _)| *known == number).map(|(_, truth)| truth)
    }

    fn of_real(number: f64) -> Option<Self> {
        Self::of_whole(whole(number)?)
    }
}

impl ExactNumber for f32 {
    const NAME: &'static str = "float32";

    fn of_whole(number: i128) -> Option<Self> {
        Some(number as f32).filter(|&nearest| nearest as i128 == number)
    }

    /// Rounds to the nearest number; a finite number that overflows is refused.
    fn of_real(number: f64) -> Option<Self> {
        Some(number as f32).filter(|nearest| nearest.is_finite() || !number.is_finite())
    }
}

impl ExactNumber for f64 {
    const NAME: &'static str = "float64";

    fn of_whole(number: i128) -> Option<Self> {
        Some(number as f64).filter(|&nearest| nearest as i128 == number)
    }

    fn of_real(number: f64) -> Option<Self> {
        Some(number)
    }
}

/// A half-precision number as an element of a file.
struct Half(f16);

impl ExactNumber for Half {
    const NAME: &'static str = "float16";

    fn of_whole(number: i128) -> Option<Self> {
        Self::of_real(number as f64).filter(|nearest| whole(nearest.0.to_f64()) == Some(number))
    }

    /// Rounds to the nearest number; numbers beyond the largest become infinite, as in
    /// half-precision arithmetic.
    fn of_real(number: f64) -> Option<Self> {
        Some(Self(f16::from_f64(number)))
    }
}

impl WritableElement for Half {
    fn type_descriptor() -> Value {
        Value::String("<f2".into())
    }

    fn write<W: Write>(&self, mut writer: W) -> Result<(), WriteDataError> {
        Ok(writer.write_all(&self.0.to_le_bytes())?)
    }

    fn write_slice<W: Write>(slice: &[Self], mut writer: W) -> Result<(), WriteDataError> {
        slice.iter().try_for_each(|number| number.write(&mut writer))
    }
}

/// An element of a file of any numeric type, converted to a type that keeps its value.
struct Exact<T>(T);

impl<T: ExactNumber> ReadableElement for Exact<T> {
    fn read_to_end_exact_vec<R: Read>(mut reader: R, kind: &Value, len: usize) -> Result<Vec<Self>, ReadDataError> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes)?;
        let unknown = || ReadDataError::WrongDescriptor(kind.clone());
        let Value::String(word) = kind else { return Err(unknown()) };
        let (order, word) = word.split_at_checked(1).ok_or_else(unknown)?;
        // `<` is little-endian, `|` marks single bytes and `=` the native order, little-endian
        // here.
        let order = if order == ">" { ByteOrder::Big } else { ByteOrder::Little };

        let (whole, real) = (Number::Whole, Number::Real);
        match word {
            "b1" | "u1" => elements(&bytes, len, order, |number| whole(u8::from_le_bytes(number).into())),
            "u2" => elements(&bytes, len, order, |number| whole(u16::from_le_bytes(number).into())),
            "u4" => elements(&bytes, len, order, |number| whole(u32::from_le_bytes(number).into())),
            "u8" => elements(&bytes, len, order, |number| whole(u64::from_le_bytes(number).into())),
            "i1" => elements(&bytes, len, order, |number| whole(i8::from_le_bytes(number).into())),
            "i2" => elements(&bytes, len, order, |number| whole(i16::from_le_bytes(number).into())),
            "i4" => elements(&bytes, len, order, |number| whole(i32::from_le_bytes(number).into())),
            "i8" => elements(&bytes, len, order, |number| whole(i64::from_le_bytes(number).into())),
            "f2" => elements(&bytes, len, order, |number| real(f16::from_le_bytes(number).to_f64())),
            "f4" => elements(&bytes, len, order, |number| real(f32::from_le_bytes(number).into())),
            "f8" => elements(&bytes, len, order, |number| real(f64::from_le_bytes(number))),
            _ => Err(unknown()),
        }
    }
}

/// Byte order of a number.
#[derive(Clone, Copy, PartialEq)]
enum ByteOrder {
    Little,
    Big,
}

/// Converts bytes to `len` numbers of `SIZE` bytes each. Fails if there are more or fewer bytes.
fn elements<T: ExactNumber, const SIZE: usize>(
    bytes: &[u8],
    len: usize,
    order: ByteOrder,
    number: impl Fn([u8; SIZE]) -> Number,
) -> Result<Vec<Exact<T>>, ReadDataError> {
    match len.checked_mul(SIZE) {
        Some(wanted) if wanted == bytes.len() => {}
        Some(wanted) if wanted < bytes.len() => return Err(ReadDataError::ExtraBytes(bytes.len() - wanted)),
        _ => return Err(ReadDataError::MissingData),
    }
    let of = |bytes: &[u8; SIZE]| {
        let mut bytes = *bytes;
        if order == ByteOrder::Big {
            bytes.reverse();
        }
        T::kept(number(bytes)).map(Exact)
    };
    let elements: Result<Vec<_>, Inexact> = bytes.as_chunks().0.iter().map(of).collect();
    elements.map_err(|inexact| ReadDataError::ParseData(inexact.into()))
}
