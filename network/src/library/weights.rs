//! Deduplicated weights in the order of their placement.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

/// Alignment in bytes, for the speed of kernels.
const ALIGNMENT: usize = 64;

/// Weights of a library.
#[derive(Default)]
pub(super) struct LibraryWeights<'a> {
    pieces: Vec<&'a [u8]>,
    /// Offsets of known pieces by hash.
    known: HashMap<u64, Vec<(usize, &'a [u8])>>,
    bytes: usize,
}

impl<'a> LibraryWeights<'a> {
    /// Returns the offset of a piece from the first weight; adds the piece unless an equal one
    /// exists.
    pub(super) fn place(&mut self, piece: &'a [u8]) -> usize {
        let known = self.known.entry(xxh3_64(piece)).or_default();
        if let Some(&(first, _)) = known.iter().find(|(_, other)| *other == piece) {
            return first;
        }
        let first = self.bytes;
        known.push((first, piece));
        self.pieces.push(piece);
        self.bytes = (first + piece.len()).next_multiple_of(ALIGNMENT);
        first
    }

    /// Returns the total size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns all pieces, with zero padding between them.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        static ZEROS: [u8; ALIGNMENT] = [0; ALIGNMENT];
        self.pieces.iter().flat_map(|piece| [*piece, &ZEROS[..piece.len().next_multiple_of(ALIGNMENT) - piece.len()]])
    }
}
