//! Memory requests of one warp, computed by simulating the addresses of its threads.

use crate::affine::{Affine, VarId};
use crate::machine::gpu::{BANK_BYTES, BANKS, SECTOR_BYTES, WARP_THREADS};
use crate::program::{Digit, GpuGrid};
use crate::vector::Vector;

/// One value per thread of a warp.
type Lanes = [i64; WARP_THREADS];

/// State of the first warp of a block in the middle of the grid, in the middle of every loop.
pub(super) struct Warp {
    /// Value of each variable that is equal for all threads, indexed by [`VarId`].
    uniform: Vec<i64>,
    /// Variables whose value differs between threads.
    varying: Vec<(VarId, Lanes)>,
    /// Bit mask of the threads that exist and are active.
    active: u32,
}

/// State of the warp before [`Warp::bind`].
pub(super) struct BindUndo {
    varying: usize,
    active: u32,
}

/// Memory that one request accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct WarpRequest {
    /// Bytes of distinct elements of global memory, or of distinct words of shared memory.
    pub(super) bytes: f64,
    /// Sectors of global memory, or transactions of shared memory: as many as distinct words in the
    /// busiest bank.
    pub(super) units: f64,
}

impl Warp {
    pub(super) fn new(grid: &GpuGrid, vars: usize) -> Self {
        let mut warp = Self { uniform: vec![0; vars], varying: Vec::with_capacity(8), active: 0 };
        grid.blocks.iter().for_each(|l| warp.enter(l.var, l.extent));

        let mut threads = 1;
        for l in grid.threads.iter().rev() {
            let extent = l.extent.max(1);
            warp.varying.push((l.var, std::array::from_fn(|lane| (lane / threads % extent) as i64)));
            threads = threads.saturating_mul(extent);
        }

        // A block smaller than a warp leaves lanes inactive.
        warp.active = u32::MAX >> WARP_THREADS.saturating_sub(threads);
        warp
    }

    /// Sets the variable of a loop to its middle value.
    pub(super) fn enter(&mut self, var: VarId, extent: usize) {
        self.set(var, (extent.max(1) - 1) as i64 / 2);
    }

    /// Sets a variable to `value` for all threads.
    pub(super) fn set(&mut self, var: VarId, value: i64) {
        if let Some(uniform) = self.uniform.get_mut(var.0 as usize) {
            *uniform = value;
        }
    }

    /// Binds the digits of a value for each thread, until [`Warp::unbind`]; deactivates threads
    /// whose value is out of range.
    pub(super) fn bind(&mut self, value: &Affine, digits: &[Digit]) -> BindUndo {
        let bound = BindUndo { varying: self.varying.len(), active: self.active };
        let mut rest = self.lanes(value);
        for digit in digits.iter().rev() {
            let extent = digit.extent.max(1) as i64;
            let mut values = [0; WARP_THREADS];
            for (value, rest) in values.iter_mut().zip(&mut rest) {
                (*value, *rest) = (rest.rem_euclid(extent), rest.div_euclid(extent));
            }
            self.varying.push((digit.var, values));
        }

        // A remainder beyond the most significant digit means that the value is out of range.
        for (lane, rest) in rest.iter().enumerate() {
            self.active &= !(u32::from(*rest != 0) << lane);
        }
        bound
    }

    pub(super) fn unbind(&mut self, bound: BindUndo) {
        self.varying.truncate(bound.varying);
        self.active = bound.active;
    }

    /// Returns the value of an affine expression for each thread.
    fn lanes(&self, affine: &Affine) -> Lanes {
        let mut values = [affine.constant; WARP_THREADS];
        for &(var, c) in &affine.terms {
            match self.varying.iter().find(|(varying, _)| *varying == var) {
                Some((_, lanes)) => values.iter_mut().zip(lanes).for_each(|(value, lane)| *value += c * lane),
                None => {
                    let offset = c * self.uniform.get(var.0 as usize).copied().unwrap_or(0);
                    values.iter_mut().for_each(|value| *value += offset);
                }
            }
        }
        values
    }

    fn active_lanes<'l>(&self, lanes: &'l Lanes) -> impl Iterator<Item = i64> + use<'l> {
        let active = self.active;
        lanes.iter().enumerate().filter(move |(lane, _)| (active >> lane) & 1 == 1).map(|(_, &value)| value)
    }

    /// Returns the request for `width` elements of `bytes` bytes per thread, from `offset` on, in
    /// global memory.
    pub(super) fn global(&self, offset: &Affine, bytes: usize, width: usize) -> WarpRequest {
        // Lanes that access the same element or sector share one transfer.
        let (elements, sectors) = (&mut Distinct::default(), &mut Distinct::default());
        for first in self.active_lanes(&self.lanes(offset)) {
            for at in first..first + width as i64 {
                elements.push(at);
                sectors.push(at.div_euclid((SECTOR_BYTES / bytes) as i64));
            }
        }
        WarpRequest { bytes: (elements.sorted().len() * bytes) as f64, units: sectors.sorted().len() as f64 }
    }

    /// Returns the request for `width` elements of `bytes` bytes per thread, from `offset` on, in
    /// shared memory.
    pub(super) fn shared(&self, offset: &Affine, bytes: usize, width: usize) -> WarpRequest {
        let words = &mut Distinct::default();
        for first in self.active_lanes(&self.lanes(offset)) {
            (first..first + width as i64).for_each(|at| words.push(at.div_euclid((BANK_BYTES / bytes) as i64)));
        }
        // Lanes that access the same word share one read of its bank.
        let words = words.sorted();
        let mut turns = [0u8; BANKS];
        words.iter().for_each(|at| turns[at.rem_euclid(BANKS as i64) as usize] += 1);
        // Banks work in parallel, so the busiest one determines the time.
        let busiest = turns.into_iter().max().unwrap_or(0);
        WarpRequest { bytes: (words.len() * BANK_BYTES) as f64, units: f64::from(busiest) }
    }
}

/// Fixed-capacity set of numbers.
struct Distinct {
    values: [i64; WARP_THREADS * Vector::MAX_LANES],
    len: usize,
}

impl Default for Distinct {
    fn default() -> Self {
        Self { values: [0; WARP_THREADS * Vector::MAX_LANES], len: 0 }
    }
}

impl Distinct {
    /// Adds a number, unless it equals the one added last.
    fn push(&mut self, value: i64) {
        if self.len < self.values.len() && (self.len == 0 || self.values[self.len - 1] != value) {
            self.values[self.len] = value;
            self.len += 1;
        }
    }

    /// Sorts the numbers, removes duplicates and returns the rest.
    fn sorted(&mut self) -> &[i64] {
        let values = &mut self.values[..self.len];
        // Addresses mostly increase with the lane number, so sorting is rare.
        if !values.is_sorted_by(|a, b| a < b) {
            values.sort_unstable();
            let mut kept = 1;
            for i in 1..values.len() {
                if values[i] != values[kept - 1] {
                    values[kept] = values[i];
                    kept += 1;
                }
            }
            self.len = kept;
        }
        &self.values[..self.len]
    }
}
