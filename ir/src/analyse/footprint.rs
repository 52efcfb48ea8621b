//! Size of the part of a buffer that a set of loops accesses, from extents and strides alone.

use smallvec::SmallVec;

use crate::affine::VarId;
use crate::machine::cpu::{LINE_BYTES, SET_PERIOD_BYTES};
use crate::program::Access;

/// Set of values of one index.
#[derive(Clone, Copy)]
struct IndexSpan {
    /// Difference between the largest and the smallest value.
    reach: i64,
    /// Greatest common divisor of the coefficients of the loops so far; 0 before the first.
    step: i64,
    /// Product of the extents of the loops whose variables occur in the index.
    combinations: f64,
    /// Address distance between neighbouring values, in elements.
    stride: i64,
}

impl IndexSpan {
    fn widen(&mut self, coefficient: i64, extent: usize) {
        self.reach += coefficient.abs() * (extent as i64 - 1);
        self.step = gcd(self.step, coefficient.abs());
        self.combinations *= extent as f64;
    }

    /// Returns the number of distinct values: exact for one loop, for nested tiles, and for sliding
    /// windows that overlap or abut; otherwise an upper bound.
    fn count(&self) -> f64 {
        if self.step == 0 { 1.0 } else { self.combinations.min((self.reach / self.step + 1) as f64) }
    }
}

/// Part of a buffer that one access covers while some of the loops around it run.
///
/// Starts as one element; [`Region::widen`] adds one loop at a time.
pub(super) struct Region<'a> {
    access: &'a Access,
    spans: SmallVec<[IndexSpan; 6]>,
    element_bytes: f64,
    /// Product of the extents of the loops whose variables occur in the access.
    combinations: f64,
}

/// Contiguous runs of elements, all of the same length.
struct MemoryRuns {
    count: f64,
    elements: f64,
    /// True if every run starts at the same offset within a block.
    aligned: bool,
    element_bytes: f64,
}

impl<'a> Region<'a> {
    /// Returns the region of one element of `element_bytes` bytes. `strides` are those of the
    /// buffer's dimensions, in elements.
    pub(super) fn new(strides: &[i64], element_bytes: usize, access: &'a Access) -> Self {
        let spans = strides.iter().map(|&stride| IndexSpan { reach: 0, step: 0, combinations: 1.0, stride }).collect();
        Self { access, spans, element_bytes: element_bytes as f64, combinations: 1.0 }
    }

    /// Adds a loop over `extent` values of `var`.
    pub(super) fn widen(&mut self, var: VarId, extent: usize) {
        if extent <= 1 {
            return;
        }
        let mut moved = false;
        for (span, index) in self.spans.iter_mut().zip(&self.access.index) {
            let coefficient = index.coefficient(var);
            if coefficient != 0 {
                span.widen(coefficient, extent);
                moved = true;
            }
        }
        if moved {
            self.combinations *= extent as f64;
        }
    }

    /// Returns the number of distinct elements.
    pub(super) fn elements(&self) -> f64 {
        self.spans.iter().map(IndexSpan::count).product::<f64>().min(self.combinations)
    }

    /// Returns the number of aligned blocks of `block_bytes` that contain an element. Exact for one
    /// run that starts at a block boundary; for runs at uneven distances, the expected value over
    /// all starting offsets.
    pub(super) fn blocks(&self, block_bytes: f64) -> f64 {
        let runs = self.runs(block_bytes);
        (runs.count * runs.blocks(block_bytes)).min(self.elements())
    }

    /// Merges dimensions into contiguous runs, innermost first, as long as the gap between
    /// neighbouring runs is smaller than a block.
    fn runs(&self, block_bytes: f64) -> MemoryRuns {
        let mut runs = MemoryRuns { count: 1.0, elements: 1.0, aligned: true, element_bytes: self.element_bytes };
        for span in self.spans.iter().rev().filter(|s| s.reach > 0) {
            let count = span.count();
            let reach = (span.reach * span.stride) as f64;
            let spacing = reach / (count - 1.0);
            // A gap smaller than a block adds no block of its own.
            if runs.count == 1.0 && (spacing - runs.elements) * self.element_bytes < block_bytes {
                runs.elements += reach;
            } else {
                runs.count *= count;
                runs.aligned &= (spacing * self.element_bytes) % block_bytes == 0.0;
            }
        }
        runs
    }

    /// Returns the number of lines that compete for one set of the first-level cache, averaged over
    /// the sets in use. Large if rows are a multiple of 4 KiB apart.
    pub(super) fn lines_per_set(&self) -> f64 {
        let runs = self.runs(LINE_BYTES);
        // Number of places, modulo the set period, in which lines begin.
        let mut places = runs.blocks(LINE_BYTES);
        let mut first_apart = false;
        // A dimension whose spacing is a multiple of the set period returns to the same sets.
        for span in self.spans.iter().rev().filter(|s| s.reach > 0) {
            let count = span.count();
            let spacing = (span.reach * span.stride) / (count as i64 - 1).max(1);
            first_apart |= (spacing as f64) >= runs.elements;
            if first_apart {
                let bytes = spacing * self.element_bytes as i64;
                places *= count.min((SET_PERIOD_BYTES / gcd(SET_PERIOD_BYTES, bytes)) as f64);
            }
        }

        let sets = SET_PERIOD_BYTES as f64 / LINE_BYTES;
        self.blocks(LINE_BYTES) / places.min(sets)
    }
}

impl MemoryRuns {
    fn blocks(&self, block_bytes: f64) -> f64 {
        let bytes = self.elements * self.element_bytes;

        // At a random offset, a run of n bytes touches (n - element) / block + 1 blocks on average.
        if self.aligned { (bytes / block_bytes).ceil() } else { (bytes - self.element_bytes) / block_bytes + 1.0 }
    }
}

fn gcd(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
