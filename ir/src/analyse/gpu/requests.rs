//! Statistics of the memory requests that the warps of a block issue.

use super::warp::WarpRequest;
use crate::machine::gpu::{BANK_BYTES, BANKS, SECTOR_BYTES};

/// Bytes that shared memory delivers in one transaction: one word of each bank.
pub(super) const TURN_BYTES: f64 = (BANKS * BANK_BYTES) as f64;

/// Requests of one direction (loads or stores) to one kind of memory, for one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Requests {
    /// Number of requests; a request is one instruction of one warp.
    pub count: f64,
    /// Bytes of distinct elements, summed over requests.
    pub bytes: f64,
    /// Sectors of 32 bytes of global memory, or transactions of shared memory.
    pub units: f64,
    /// Elements that a thread accesses, summed over its requests.
    pub width: f64,
    /// Transactions of shared memory that would be needed without bank conflicts.
    pub conflict_free_units: f64,
}

impl Requests {
    pub(super) fn add(&mut self, request: WarpRequest, count: f64, width: usize) {
        self.count += count;
        self.bytes += count * request.bytes;
        self.units += count * request.units;
        self.width += count * width as f64;
        self.conflict_free_units += count * (request.bytes / TURN_BYTES).ceil();
    }

    /// Returns the mean number of elements that a thread accesses per request.
    pub fn mean_width(&self) -> f64 {
        self.width / self.count
    }

    /// Returns the bytes of all requested sectors.
    pub fn sector_bytes(&self) -> f64 {
        self.units * SECTOR_BYTES as f64
    }

    /// Returns the share of the sectors' bytes that is used, in `0.0..=1.0`.
    pub fn coalescing(&self) -> f64 {
        self.bytes / self.sector_bytes()
    }

    /// Returns the degree of bank conflicts: transactions over those needed without conflicts.
    pub fn conflict_ways(&self) -> f64 {
        self.units / self.conflict_free_units
    }
}

/// Loads and stores of one kind of memory by operand (data, weight, output), for one block.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryRequests {
    /// Loads, by operand: data, weight, output.
    pub loads: [Requests; 3],
    /// Stores, by operand: data, weight, output.
    pub stores: [Requests; 3],
}

impl MemoryRequests {
    pub(super) fn all(&self) -> impl Iterator<Item = &Requests> {
        self.loads.iter().chain(&self.stores)
    }
}
