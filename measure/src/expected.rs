//! Comparison of outputs on the host with a workload's reference, in full or by samples;
//! [`autotune_workloads::reference`] defines the samples.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use autotune_ir::program::Layout;
use autotune_workloads::Reference;
use rayon::prelude::*;

/// Function that splits a number of tasks among threads and runs work on each part:
/// [`autotune_runtime::Device::divide`].
pub(crate) type Divide<'a> = dyn Fn(usize, &(dyn Fn(Range<usize>) + Sync)) + 'a;

/// Expected output in one layout.
#[derive(Clone)]
pub(crate) struct Expected {
    reference: Arc<Reference>,
    layout: Layout,
    len: usize,
}

impl Expected {
    pub(crate) fn new(reference: Arc<Reference>, layout: Layout, len: usize) -> Self {
        Self { reference, layout, len }
    }

    /// Number of elements of an output.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the largest difference between output and reference over the largest magnitude in
    /// the reference. Infinite if an element is not finite where the reference is.
    pub(crate) fn error(&self, output: &[f32], divide: &Divide<'_>) -> f64 {
        let difference = |part| self.reference.difference(output, self.layout, part).unwrap_or(f64::INFINITY);
        // Stored as bits: bit patterns of nonnegative floats compare like the floats.
        let worst = AtomicU64::new(0);
        divide(self.reference.parts(), &|parts: Range<usize>| {
            worst.fetch_max(parts.map(difference).fold(0.0, f64::max).to_bits(), Ordering::Relaxed);
        });
        self.relative(f64::from_bits(worst.into_inner()))
    }

    /// Returns a difference over the reference's largest magnitude.
    pub(crate) fn relative(&self, difference: f64) -> f64 {
        if difference == 0.0 { 0.0 } else { difference / f64::from(self.reference.largest()) }
    }
}

/// Splits tasks among all threads of this process.
pub(crate) fn divide(tasks: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    (0..tasks).into_par_iter().for_each(|task| work(task..task + 1));
}
