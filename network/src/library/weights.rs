//! Weights, one behind the other, each once.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

/// Each begins at a multiple of this, as kernels are fastest.
const ALIGNMENT: usize = 64;

/// What is to be in a library, by where it is.
#[derive(Default)]
pub(super) struct Weights<'a> {
    pieces: Vec<&'a [u8]>,
    /// Where they are, by their hash.
    known: HashMap<u64, Vec<(usize, &'a [u8])>>,
    bytes: usize,
}

impl<'a> Weights<'a> {
    /// Where some bytes are, behind the first weight.
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

    /// Bytes of all.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All, and zeros between them.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &'a [u8]> {
        static ZEROS: [u8; ALIGNMENT] = [0; ALIGNMENT];
        self.pieces.iter().flat_map(|piece| [*piece, &ZEROS[..piece.len().next_multiple_of(ALIGNMENT) - piece.len()]])
    }
}
