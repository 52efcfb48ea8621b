//! Access to the bytes of a model and of its external tensor files.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Cursor};
use std::ops::{Deref, Range};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rten_onnx::onnx::{ModelProto, TensorProto};
use rten_onnx::protobuf::{DecodeMessage, OwnedValues, ProtobufError, ReadValue, ValueReader};

use super::error::ImportError;
use super::{tensor, wire};
use crate::constant::Constant;
use crate::mapped::Mapped;

/// Maximum size of a file in bytes, which is the limit of a protobuf message.
const MOST_BYTES: u64 = 1 << 31;

/// Bytes of a model and the folder of its external tensors.
pub(super) struct ModelFile<'a> {
    bytes: FileBytes<'a>,
    folder: Option<PathBuf>,
    /// External files by their canonical paths.
    external_files: RefCell<HashMap<PathBuf, Arc<Mapped>>>,
    /// Tensors that were read, by the addresses of their messages.
    tensors: RefCell<HashMap<usize, Constant>>,
}

#[derive(Clone)]
enum FileBytes<'a> {
    /// Borrowed from the caller.
    Lent(&'a [u8]),
    /// In memory for as long as a reference exists.
    Kept(Arc<Vec<u8>>),
    /// Mapped for as long as a reference exists.
    Mapped(Arc<Mapped>),
}

/// A range of a file's bytes.
pub(super) struct FileRange<'a> {
    bytes: FileBytes<'a>,
    range: Range<usize>,
}

impl<'a> ModelFile<'a> {
    /// Maps the file at a path.
    pub(super) fn open(path: &Path) -> Result<Self, ImportError> {
        let mapped = File::open(path).and_then(|file| match file.metadata()?.len() {
            0..=MOST_BYTES => Mapped::of(&file).map(Some),
            _ => Ok(None),
        });
        let mapped = mapped.map_err(|source| ImportError::Io { path: path.into(), source })?;
        let mapped = mapped.ok_or_else(|| ImportError::Malformed("the file is larger than 2 GiB".into()))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).to_path_buf();
        Ok(Self { folder: Some(folder), ..Self::new(FileBytes::Mapped(mapped)) })
    }

    /// Uses bytes in memory; there are no external files.
    pub(super) fn of_bytes(bytes: &'a [u8]) -> Self {
        Self::new(FileBytes::Lent(bytes))
    }

    /// Uses bytes in memory; there are no external files.
    pub(super) fn of_vec(bytes: Vec<u8>) -> Self {
        Self::new(FileBytes::Kept(Arc::new(bytes)))
    }

    fn new(bytes: FileBytes<'a>) -> Self {
        Self { bytes, folder: None, external_files: RefCell::default(), tensors: RefCell::default() }
    }

    /// Parses the model. Raw tensor data is represented by its position only ([`ModelFile::raw`]).
    pub(super) fn parse(&self) -> Result<ModelProto, ImportError> {
        wire::check(&self.bytes)?;
        let reader = InPlace(ValueReader::from_buf(&*self.bytes));
        ModelProto::decode(reader).map_err(|e| ImportError::Malformed(e.to_string()))
    }

    /// Returns the tensor of a message, which must not move or change while this file exists. It is
    /// read once, so that all graphs of the file have the same constants.
    pub(super) fn tensor(&self, proto: &TensorProto) -> Result<Constant, String> {
        let address = std::ptr::from_ref(proto).addr();
        if let Some(known) = self.tensors.borrow().get(&address) {
            return Ok(known.clone());
        }
        let constant = tensor::read(proto, self)?;
        self.tensors.borrow_mut().insert(address, constant.clone());
        Ok(constant)
    }

    /// Returns the bytes that a position, as in the parsed model, refers to.
    pub(super) fn raw(&self, place: &[u8]) -> Option<FileRange<'a>> {
        let (numbers, _) = place.as_chunks();
        let &[first, length] = numbers else { return None };
        let [first, length] = [first, length].map(|number| usize::try_from(u64::from_le_bytes(number)).ok());
        let range = first?..first?.checked_add(length?)?;
        (range.end <= self.bytes.len()).then(|| FileRange { bytes: self.bytes.clone(), range })
    }

    /// Returns `size` bytes at `offset` of a file inside the folder, after resolving symbolic
    /// links; `None` without a folder.
    pub(super) fn part_of(&self, location: &str, offset: u64, size: u64) -> Option<io::Result<FileRange<'a>>> {
        Some(self.part_in(self.folder.as_ref()?, location, offset, size))
    }

    fn part_in(&self, folder: &Path, location: &str, offset: u64, size: u64) -> io::Result<FileRange<'a>> {
        let outside = || io::Error::other("outside the folder of the model");
        // Reject absolute paths and `..` before the file system is touched.
        if !Path::new(location).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(outside());
        }
        let folder = folder.canonicalize()?;
        let path = folder.join(location).canonicalize()?;
        // Symbolic links must not lead outside either.
        if !path.starts_with(&folder) {
            return Err(outside());
        }

        // Tensors usually share external files.
        let mut beside = self.external_files.borrow_mut();
        let mapped = match beside.get(&path) {
            Some(mapped) => Arc::clone(mapped),
            None => Arc::clone(beside.entry(path.clone()).or_insert(Mapped::of(&File::open(path)?)?)),
        };
        let length = mapped.len() as u64;
        match offset.checked_add(size) {
            Some(end) if end <= length => {
                Ok(FileRange { bytes: FileBytes::Mapped(mapped), range: offset as usize..end as usize })
            }
            _ => Err(io::Error::other(format!("{size} bytes at offset {offset} exceed the file size {length}"))),
        }
    }
}

impl FileRange<'_> {
    /// Returns the mapped file, which stays in memory, and the range in it.
    pub(super) fn mapped(&self) -> Option<(Arc<Mapped>, Range<usize>)> {
        match &self.bytes {
            FileBytes::Mapped(mapped) => Some((Arc::clone(mapped), self.range.clone())),
            FileBytes::Lent(_) | FileBytes::Kept(_) => None,
        }
    }
}

impl Deref for FileRange<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl Deref for FileBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            FileBytes::Lent(bytes) => bytes,
            FileBytes::Kept(bytes) => bytes,
            FileBytes::Mapped(mapped) => mapped,
        }
    }
}

/// A reader that replaces each `bytes` field by its position and length, so that weights are not
/// copied. The parser reads such fields only for raw tensor data.
struct InPlace<'a>(ValueReader<Cursor<&'a [u8]>>);

impl ReadValue for InPlace<'_> {
    type Types = OwnedValues;

    fn read_i32(&mut self) -> Result<i32, ProtobufError> {
        self.0.read_i32()
    }

    fn read_i64(&mut self) -> Result<i64, ProtobufError> {
        self.0.read_i64()
    }

    fn read_varint(&mut self) -> Result<u64, ProtobufError> {
        self.0.read_varint()
    }

    fn read_bytes(&mut self, len: usize) -> Result<Vec<u8>, ProtobufError> {
        // The encoding that `ModelFile::raw` expects.
        let place = [self.position(), len as u64];
        self.0.skip(len)?;
        Ok(place.iter().flat_map(|number| number.to_le_bytes()).collect())
    }

    fn read_string(&mut self, len: usize) -> Result<String, ProtobufError> {
        self.0.read_string(len)
    }

    fn skip(&mut self, len: usize) -> Result<(), ProtobufError> {
        self.0.skip(len)
    }

    fn position(&self) -> u64 {
        self.0.position()
    }
}
