//! The bytes of a model, and of the files beside it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Cursor};
use std::ops::{Deref, Range};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rten_onnx::onnx::ModelProto;
use rten_onnx::protobuf::{DecodeMessage, OwnedValues, ProtobufError, ReadValue, ValueReader};

use super::error::ImportError;
use super::wire;
use crate::mapped::Mapped;

/// Bytes of a file, at most: those of a message.
const MOST_BYTES: u64 = 1 << 31;

/// A model's bytes, and where tensors are that it has in other files.
pub(super) struct ModelFile<'a> {
    bytes: Bytes<'a>,
    folder: Option<&'a Path>,
    /// Files of tensors by their paths.
    beside: RefCell<HashMap<PathBuf, Arc<Mapped>>>,
}

#[derive(Clone)]
enum Bytes<'a> {
    /// For a while.
    Lent(&'a [u8]),
    /// As long as somebody holds them.
    Mapped(Arc<Mapped>),
}

/// A range of the bytes of a file.
pub(super) struct Part<'a> {
    bytes: Bytes<'a>,
    range: Range<usize>,
}

impl<'a> ModelFile<'a> {
    /// The file of a path.
    pub(super) fn open(path: &'a Path) -> Result<Self, ImportError> {
        let mapped = File::open(path).and_then(|file| match file.metadata()?.len() {
            0..=MOST_BYTES => Mapped::of(&file).map(Some),
            _ => Ok(None),
        });
        let mapped = mapped.map_err(|source| ImportError::Io { path: path.into(), source })?;
        let mapped = mapped.ok_or_else(|| ImportError::Malformed("the file has more than 2 GiB".into()))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        Ok(Self { folder: Some(folder.unwrap_or(Path::new("."))), ..Self::new(Bytes::Mapped(mapped)) })
    }

    /// Bytes, which have no folder.
    pub(super) fn of_bytes(bytes: &'a [u8]) -> Self {
        Self::new(Bytes::Lent(bytes))
    }

    fn new(bytes: Bytes<'a>) -> Self {
        Self { bytes, folder: None, beside: RefCell::default() }
    }

    /// The model; of the [raw bytes](ModelFile::raw) of tensors it has only where they are.
    pub(super) fn parse(&self) -> Result<ModelProto, ImportError> {
        wire::check(&self.bytes)?;
        let reader = InPlace(ValueReader::from_buf(&*self.bytes));
        ModelProto::decode(reader).map_err(|e| ImportError::Malformed(e.to_string()))
    }

    /// Bytes of the model that a field of a message is in the place of.
    pub(super) fn raw(&self, place: &[u8]) -> Option<Part<'a>> {
        let (numbers, _) = place.as_chunks();
        let &[first, length] = numbers else { return None };
        let [first, length] = [first, length].map(|number| usize::try_from(u64::from_le_bytes(number)).ok());
        let range = first?..first?.checked_add(length?)?;
        (range.end <= self.bytes.len()).then(|| Part { bytes: self.bytes.clone(), range })
    }

    /// `size` bytes from `offset` on of a file that is in the folder, links followed; `None` if
    /// there is no folder.
    pub(super) fn part_of(&self, location: &str, offset: u64, size: u64) -> Option<io::Result<Part<'a>>> {
        Some(self.part_in(self.folder?, location, offset, size))
    }

    fn part_in(&self, folder: &Path, location: &str, offset: u64, size: u64) -> io::Result<Part<'a>> {
        let outside = || io::Error::other("not in the folder of the model");
        if !Path::new(location).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(outside());
        }
        let folder = folder.canonicalize()?;
        let path = folder.join(location).canonicalize()?;
        if !path.starts_with(&folder) {
            return Err(outside());
        }

        let mut beside = self.beside.borrow_mut();
        let mapped = match beside.get(&path) {
            Some(mapped) => Arc::clone(mapped),
            None => Arc::clone(beside.entry(path.clone()).or_insert(Mapped::of(&File::open(path)?)?)),
        };
        let length = mapped.len() as u64;
        match offset.checked_add(size) {
            Some(end) if end <= length => {
                Ok(Part { bytes: Bytes::Mapped(mapped), range: offset as usize..end as usize })
            }
            _ => Err(io::Error::other(format!("{size} bytes from byte {offset} on of {length}"))),
        }
    }
}

impl Part<'_> {
    /// The file, if it stays in memory, and which of its bytes they are.
    pub(super) fn mapped(&self) -> Option<(Arc<Mapped>, Range<usize>)> {
        match &self.bytes {
            Bytes::Mapped(mapped) => Some((Arc::clone(mapped), self.range.clone())),
            Bytes::Lent(_) => None,
        }
    }
}

impl Deref for Part<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Lent(bytes) => bytes,
            Bytes::Mapped(mapped) => mapped,
        }
    }
}

/// Values of messages. In the place of bytes it gives the number of the first and how many there
/// are: weights are not copied. All fields of bytes that the parser reads are raw data of tensors.
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
