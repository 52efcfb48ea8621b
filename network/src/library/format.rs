//! What a file format of shared libraries has to hold, and to tell.

use std::io::{self, Write};

use super::error::LibraryError;

/// A file format of shared libraries.
///
/// A library refers to nothing outside itself and needs no relocation: its code finds data by
/// distances. So a format only says where the parts lie, and writes them there.
pub(super) trait Format {
    /// Returns where the parts of a library lie, as offsets from its first byte in memory. They do
    /// not depend on how long the code is.
    ///
    /// # Errors
    /// If the format cannot hold the names.
    fn places(&self, contents: &Contents) -> Result<Places, LibraryError>;

    /// Writes the file, from its first byte to its last.
    fn write(&self, contents: &Contents, parts: Parts<'_>, out: &mut dyn Write) -> io::Result<()>;
}

/// What a library is to hold.
pub(super) struct Contents<'a> {
    /// The name by which programs that are linked with it look for it.
    pub(super) soname: &'a str,
    /// The names of its functions.
    pub(super) functions: &'a [String],
    /// Bytes of read-only data.
    pub(super) rodata: usize,
    /// Bytes of weights.
    pub(super) weights: usize,
}

/// Where the parts begin of which the code must know.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) rodata: u64,
    pub(super) weights: u64,
    pub(super) text: u64,
}

/// The parts themselves.
pub(super) struct Parts<'a> {
    pub(super) rodata: &'a [u8],
    /// Pieces, one behind the other.
    pub(super) weights: Box<dyn Iterator<Item = &'a [u8]> + 'a>,
    pub(super) text: &'a [u8],
    /// In the order of their names.
    pub(super) functions: &'a [Function],
}

/// A function: where it is behind the first byte of the text, and how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) first: usize,
    pub(super) bytes: usize,
}
