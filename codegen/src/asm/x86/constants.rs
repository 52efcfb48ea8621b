//! Constants in memory after the code.

use rustc_hash::FxHashMap;

use super::encode::Goal;
use crate::asm::tile_grid::TileConfiguration;

/// Offsets of the constants that some code refers to.
pub(super) struct CodeConstants {
    /// Offset of the first mask's word that is not set.
    masks_end: usize,
    /// Constants of one word, sorted, each once.
    words: Vec<u32>,
    first_word: usize,
    /// Offsets of vectors and of tile configurations.
    others: FxHashMap<Goal, usize>,
}

impl CodeConstants {
    /// Appends each distinct constant that the code refers to. `goals` are the displacements in the
    /// code, each with the offset of its end and its target.
    pub(super) fn append(goals: &[(usize, Goal)], bytes: &mut Vec<u8>) -> Self {
        // A mask is a window into 32 bytes of ones followed by 32 bytes of zeros, so that one table
        // serves all of them.
        if goals.iter().any(|g| matches!(g.1, Goal::Mask(_))) {
            align(bytes);
            bytes.extend([[0xff; 32], [0; 32]].concat());
        }
        let masks_end = bytes.len().saturating_sub(32);

        let word = |&(_, goal): &(usize, Goal)| match goal {
            Goal::Constant(bits) => Some(bits),
            _ => None,
        };
        let mut words: Vec<u32> = goals.iter().filter_map(word).collect();
        words.sort_unstable();
        words.dedup();
        if !words.is_empty() {
            align(bytes);
        }
        let first_word = bytes.len();
        bytes.extend(words.iter().flat_map(|bits| bits.to_le_bytes()));
        Self { masks_end, words, first_word, others: append_others(goals, bytes) }
    }

    /// Returns the offset of a constant.
    pub(super) fn at(&self, goal: Goal) -> usize {
        match goal {
            Goal::Mask(lanes) => self.masks_end - 4 * usize::from(lanes),
            Goal::Constant(bits) => self.first_word + 4 * self.words.partition_point(|&other| other < bits),
            _ => self.others.get(&goal).copied().unwrap_or_default(),
        }
    }
}

/// Pads with `int3` to a cache line.
fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(64), 0xcc);
}

/// Appends each distinct vector of lane numbers and tile configuration to the code; returns their
/// offsets.
fn append_others(goals: &[(usize, Goal)], bytes: &mut Vec<u8>) -> FxHashMap<Goal, usize> {
    let mut places = FxHashMap::default();
    for &(_, goal) in goals {
        if places.contains_key(&goal) {
            continue;
        }

        match goal {
            Goal::Lanes { first, step, modulus, lanes } => {
                places.insert(goal, bytes.len());
                let number = |lane: u8| (first + step * u32::from(lane)) % modulus;
                bytes.extend((0..lanes).flat_map(|lane| number(lane).to_le_bytes()));
            }
            Goal::TransposedLanes { lanes } => {
                places.insert(goal, bytes.len());
                let (lanes, rows) = (u32::from(lanes), u32::from(lanes) / 4);
                let number = |lane: u32| lane % rows * 4 + lane / rows;
                bytes.extend((0..lanes).flat_map(|lane| number(lane).to_le_bytes()));
            }
            Goal::Tiles(sizes) => {
                places.insert(goal, bytes.len());
                bytes.extend(configuration_bytes(sizes));
            }
            _ => {}
        }
    }
    places
}

/// Returns the operand of `ldtilecfg`.
fn configuration_bytes(sizes: TileConfiguration) -> [u8; 64] {
    const PALETTE: u8 = 1;
    // Bytes in a row of each register are 16-bit numbers from byte 16 on, rows from byte 48 on.
    let mut bytes = [0; 64];
    bytes[0] = PALETTE;
    for (tile, [rows, row_bytes]) in sizes.0.into_iter().enumerate() {
        bytes[16 + 2 * tile] = row_bytes;
        bytes[48 + tile] = rows;
    }
    bytes
}
