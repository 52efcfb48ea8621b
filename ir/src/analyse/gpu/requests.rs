//! Requests of the warps of a block to one kind of memory.

use super::warp::Request;
use crate::machine::gpu::{BANK_BYTES, BANKS, SECTOR_BYTES};

/// Bytes of one turn of shared memory.
pub(super) const TURN_BYTES: f64 = (BANKS * BANK_BYTES) as f64;

/// Requests of one kind to one kind of memory, for one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// Requests of warps.
    pub count: f64,
    /// Bytes of distinct elements, summed over requests.
    pub bytes: f64,
    /// Sectors of 32 bytes, or turns of shared memory.
    pub units: f64,
    /// Elements of a thread, summed over requests.
    pub width: f64,
    /// Turns of shared memory without bank conflicts.
    pub fewest_turns: f64,
}

impl Requests {
    pub(super) fn add(&mut self, request: Request, count: f64, width: usize) {
        self.count += count;
        self.bytes += count * request.bytes;
        self.units += count * request.units;
        self.width += count * width as f64;
        self.fewest_turns += count * (request.bytes / TURN_BYTES).ceil();
    }

    /// Elements of a thread, on average.
    pub fn mean_width(&self) -> f64 {
        self.width / self.count
    }

    /// Bytes of the sectors.
    pub fn sector_bytes(&self) -> f64 {
        self.units * SECTOR_BYTES as f64
    }

    /// Share of the bytes of the sectors that is asked for.
    pub fn coalescing(&self) -> f64 {
        self.bytes / self.sector_bytes()
    }

    /// Turns of shared memory over those that the elements take without conflict.
    pub fn conflict_ways(&self) -> f64 {
        self.units / self.fewest_turns
    }
}

/// Loads and stores of one kind of memory by operand (data, weight, output), for one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Loads.
    pub loads: [Requests; 3],
    /// Stores.
    pub stores: [Requests; 3],
}

impl Memory {
    pub(super) fn all(&self) -> impl Iterator<Item = &Requests> {
        self.loads.iter().chain(&self.stores)
    }
}
