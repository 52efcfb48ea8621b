//! Tensors in files, as NumPy writes them.

use std::fs::File;
use std::io::{BufReader, BufWriter, Seek};
use std::path::Path;

use anyhow::{Context, Result};
use autotune_network::{Element, Tensor};
use ndarray::ArrayD;
use ndarray_npy::{ReadNpyError, ReadNpyExt, ReadableElement, WriteNpyExt};

use crate::args::Failure;

/// The tensor of a file as one of the element type: floating-point numbers of any size as f32, integers as i64.
pub(super) fn read(path: &Path, element: Element) -> Result<Tensor, Failure> {
    let wrong = |why: String| Failure::Usage(format!("--input {}: {why}", path.display()));
    let mut file = File::open(path).map(BufReader::new).map_err(|error| wrong(error.to_string()))?;
    let tensor = match element {
        Element::F32 => of(&mut file, |x: f32| x).or_else(|_| of(&mut file, |x: f64| x as f32)).map(Tensor::F32),
        Element::I64 => of(&mut file, |x: i64| x).or_else(|_| of(&mut file, |x: i32| x.into())).map(Tensor::I64),
        Element::Bool => of(&mut file, |x: bool| x).map(Tensor::Bool),
    };
    tensor.map_err(|error| wrong(format!("no array of {element} numbers: {error}")))
}

fn of<T: ReadableElement + Clone, U>(
    file: &mut BufReader<File>,
    convert: fn(T) -> U,
) -> Result<ArrayD<U>, ReadNpyError> {
    file.rewind()?;
    Ok(ArrayD::<T>::read_npy(file)?.mapv(convert))
}

/// Writes a tensor to a file.
pub(super) fn write(path: &Path, tensor: &Tensor) -> Result<()> {
    let file = || path.display().to_string();
    let to = File::create(path).map(BufWriter::new).with_context(file)?;
    match tensor {
        Tensor::F32(array) => array.write_npy(to),
        Tensor::I64(array) => array.write_npy(to),
        Tensor::Bool(array) => array.write_npy(to),
    }
    .with_context(file)
}
