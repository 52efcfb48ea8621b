//! Models in a temporary folder, from which autotune maps their weights.
//!
//! A copy in memory would stay for as long as the session, beside the packed weights. Pages of a
//! mapped file go when memory is needed. The folder is removed as soon as the files are mapped.

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use autotune_network::onnx::Model;
use rten_onnx::onnx::{DataLocation, ModelProto, StringStringEntryProto, TensorProto};
use tempfile::TempDir;

const MODEL: &str = "model.onnx";
const WEIGHTS: &str = "weights";

/// Size in bytes from which on a tensor is in the file of weights.
const LEAST_BYTES: usize = 4096;

/// Alignment of tensors in that file.
const ALIGNMENT: u64 = 64;

/// A folder for a model that is being written.
pub(crate) struct ModelFolder {
    folder: TempDir,
    weights: File,
    /// Size of the weights so far, in bytes.
    bytes: u64,
    /// True if large tensors are not written, and are zeros when they are read.
    is_sketch: bool,
}

impl ModelFolder {
    /// Creates a folder. A sketch costs no time for large weights, and serves to find out whether a
    /// model is supported.
    pub(crate) fn create(is_sketch: bool) -> Result<Self, String> {
        let create = || {
            let folder = tempfile::Builder::new().prefix("autotune-").tempdir()?;
            let weights = File::create_new(folder.path().join(WEIGHTS))?;
            Ok(Self { folder, weights, bytes: 0, is_sketch })
        };
        create().map_err(|error: std::io::Error| format!("a temporary folder: {error}"))
    }

    /// Gives a tensor its elements: in the message, or for large ones in the file of weights.
    pub(crate) fn fill(&mut self, tensor: &mut TensorProto, elements: &[u8]) -> Result<(), String> {
        if elements.len() < LEAST_BYTES {
            inline(tensor, elements);
            return Ok(());
        }
        let first = self.bytes.next_multiple_of(ALIGNMENT);
        self.bytes = first + elements.len() as u64;
        let written = match self.is_sketch {
            true => self.weights.set_len(self.bytes),
            false => self.weights.write_all_at(elements, first),
        };
        written.map_err(|error| format!("weights in a temporary file: {error}"))?;

        let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.into()), value: Some(value) };
        tensor.external_data = vec![
            entry("location", WEIGHTS.into()),
            entry("offset", first.to_string()),
            entry("length", elements.len().to_string()),
        ];
        tensor.data_location = Some(DataLocation::EXTERNAL);
        Ok(())
    }

    /// Writes and opens the model, and removes the folder.
    pub(crate) fn open(self, model: &ModelProto) -> Result<Model<'static>, String> {
        self.open_bytes(&bytes(model)?)
    }

    /// Writes the model beside its large tensors, and returns its path. The files exist as long as
    /// this value.
    pub(crate) fn write(&self, model: &ModelProto) -> Result<PathBuf, String> {
        self.write_bytes(&bytes(model)?)
    }

    /// Returns the bytes of a model and of its large tensors, for [`unpack`](Self::unpack).
    pub(crate) fn pack(&self, model: &ModelProto) -> Result<[Vec<u8>; 2], String> {
        let weights = fs::read(self.folder.path().join(WEIGHTS));
        Ok([bytes(model)?, weights.map_err(|error| format!("weights in a temporary file: {error}"))?])
    }

    /// Opens a model from its bytes and those of its large tensors.
    pub(crate) fn unpack(model: &[u8], weights: &[u8]) -> Result<Model<'static>, String> {
        let folder = Self::create(false)?;
        let written = folder.weights.write_all_at(weights, 0);
        written.map_err(|error| format!("weights in a temporary file: {error}"))?;
        folder.open_bytes(model)
    }

    /// Writes and opens a model in bytes.
    pub(crate) fn open_bytes(self, model: &[u8]) -> Result<Model<'static>, String> {
        let path = self.write_bytes(model)?;
        let model = Model::open(&path).map_err(|error| error.to_string())?;
        model.map_tensors().map_err(|error| error.to_string())?;
        Ok(model)
    }

    fn write_bytes(&self, model: &[u8]) -> Result<PathBuf, String> {
        let path = self.folder.path().join(MODEL);
        fs::write(&path, model).map_err(|error| format!("a model in a temporary file: {error}"))?;
        Ok(path)
    }
}

fn bytes(model: &ModelProto) -> Result<Vec<u8>, String> {
    model.write_buf().map_err(|error| error.to_string())
}

/// Puts the elements of a tensor in its message.
pub(crate) fn inline(tensor: &mut TensorProto, elements: &[u8]) {
    tensor.raw_data = Some(RefCell::new(elements.to_vec()));
}
