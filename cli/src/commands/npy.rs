//! Tensors in files, as NumPy writes them.

use std::fs::File;
use std::io::{BufReader, Seek, Write};
use std::path::Path;

use autotune_network::{Element, Tensor};
use ndarray::ArrayD;
use ndarray_npy::{ReadNpyError, ReadNpyExt, ReadableElement, WriteNpyError, WriteNpyExt};

use crate::args::Failure;

/// The tensor of a file as one of the element type: floating-point numbers of 32 and 64 bits as f32, integers of as many as i64.
pub(super) fn read(path: &Path, element: Element) -> Result<Tensor, Failure> {
    let wrong = |why: String| Failure::Usage(format!("--input {}: {why}", path.display()));
    let mut file = File::open(path).map(BufReader::new).map_err(|error| wrong(error.to_string()))?;
    let tensor = match element {
        Element::F32 => either(&mut file, |x: f32| x, |x: f64| x as f32).map(Tensor::F32),
        Element::I64 => either(&mut file, |x: i64| x, |x: i32| x.into()).map(Tensor::I64),
        Element::Bool => of(&mut file, |x: bool| x).map(Tensor::Bool),
    };
    let types = match element {
        Element::F32 => "float32 or float64",
        Element::I64 => "int64 or int32",
        Element::Bool => "bool",
    };
    tensor.map_err(|error| match error {
        ReadNpyError::WrongDescriptor(found) => wrong(format!("numbers of type {found}; save them as {types}")),
        error => wrong(format!("no array of {types}: {error}")),
    })
}

/// The numbers of one type, or where the file has others of another.
fn either<T: ReadableElement + Clone, U: ReadableElement + Clone, V>(
    file: &mut BufReader<File>,
    first: fn(T) -> V,
    second: fn(U) -> V,
) -> Result<ArrayD<V>, ReadNpyError> {
    match of(file, first) {
        Err(ReadNpyError::WrongDescriptor(_)) => of(file, second),
        read => read,
    }
}

fn of<T: ReadableElement + Clone, U>(
    file: &mut BufReader<File>,
    convert: fn(T) -> U,
) -> Result<ArrayD<U>, ReadNpyError> {
    file.rewind()?;
    Ok(ArrayD::<T>::read_npy(file)?.mapv(convert))
}

/// Writes a tensor as NumPy does.
pub(super) fn write(to: impl Write, tensor: &Tensor) -> Result<(), WriteNpyError> {
    match tensor {
        Tensor::F32(array) => array.write_npy(to),
        Tensor::I64(array) => array.write_npy(to),
        Tensor::Bool(array) => array.write_npy(to),
    }
}
