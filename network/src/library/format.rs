//! Interface of file formats for shared libraries.

use std::io::{self, Write};

use super::error::LibraryError;

/// A file format of shared libraries.
///
/// A library refers to nothing outside itself and needs no relocation: its code addresses data
/// relative to itself. A format only decides the offsets of the parts, and writes them. Object
/// files, whose parts a linker places, are made from these offsets (`relocatable`).
pub(super) trait Format {
    /// Returns the offsets of a library's parts from its first byte in memory; they do not depend
    /// on the length of the code.
    ///
    /// # Errors
    /// If the format cannot represent the names.
    fn places(&self, contents: &LibraryContents) -> Result<PartOffsets, LibraryError>;

    /// Writes the file sequentially.
    fn write(&self, contents: &LibraryContents, parts: LibraryParts<'_>, out: &mut dyn Write) -> io::Result<()>;
}

/// Kind of file that a network is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LibraryFormat {
    /// Shared library, which programs load or are linked with.
    Shared,
    /// Object file, which a linker adds to a program.
    Object,
    /// Static library: an archive of one object file.
    Archive,
}

impl LibraryFormat {
    /// Formats in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Shared, Self::Object, Self::Archive];

    /// Returns the usual ending of file names.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Shared => "so",
            Self::Object => "o",
            Self::Archive => "a",
        }
    }

    /// True if a file starts like files of this format.
    pub fn is_start(self, start: &[u8]) -> bool {
        match self {
            Self::Shared | Self::Object => start.starts_with(b"\x7fELF"),
            Self::Archive => start.starts_with(ARCHIVE_START),
        }
    }
}

/// Alignment of segments in bytes: the page size of x86-64, as pages have one access right.
pub(super) const PAGE: u64 = 4096;
/// Alignment of data and code.
pub(super) const LINE: u64 = 64;

/// First bytes of an archive.
pub(super) const ARCHIVE_START: &[u8] = b"!<arch>\n";

/// Sizes and names of a library's contents.
pub(super) struct LibraryContents<'a> {
    /// File name that programs linked with the library look for.
    pub(super) soname: &'a str,
    /// Names of the functions.
    pub(super) functions: &'a [String],
    /// Size of the read-only data in bytes.
    pub(super) rodata: usize,
    /// Size of the weights in bytes.
    pub(super) weights: usize,
}

/// Offsets of the parts that the code refers to.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartOffsets {
    pub(super) rodata: u64,
    pub(super) weights: u64,
    pub(super) text: u64,
}

/// Contents of the parts.
pub(super) struct LibraryParts<'a> {
    pub(super) rodata: &'a [u8],
    /// Packed constants as consecutive pieces.
    pub(super) weights: Box<dyn Iterator<Item = &'a [u8]> + 'a>,
    pub(super) text: &'a [u8],
    /// Functions in the order of their names.
    pub(super) functions: &'a [FunctionRange],
    /// Offsets of 32-bit displacements in the code to other parts; each counts from its end.
    pub(super) references: &'a [usize],
}

/// A function's offset in the code, and its size in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionRange {
    pub(super) first: usize,
    pub(super) bytes: usize,
}
