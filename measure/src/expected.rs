//! Comparing outputs on the host with samples of a workload's reference; what is compared,
//! [`autotune_workloads::reference`] says.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use autotune_ir::program::Layout;
use autotune_workloads::Reference;
use rayon::prelude::*;

/// Runs work on parts of a number of tasks, side by side: [`autotune_runtime::Device::divide`].
pub(crate) type Divide<'a> = dyn Fn(usize, &(dyn Fn(Range<usize>) + Sync)) + 'a;

/// What outputs in one layout must be.
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

    /// Largest difference of an output over the largest magnitude in the reference; infinite if one
    /// of its elements is no finite number where the reference has one.
    pub(crate) fn error(&self, output: &[f32], divide: &Divide<'_>) -> f64 {
        let difference = |part| self.reference.difference(output, self.layout, part).unwrap_or(f64::INFINITY);
        // As bits: numbers that are not negative are in the same order.
        let worst = AtomicU64::new(0);
        divide(self.reference.parts(), &|parts: Range<usize>| {
            worst.fetch_max(parts.map(difference).fold(0.0, f64::max).to_bits(), Ordering::Relaxed);
        });
        self.relative(f64::from_bits(worst.into_inner()))
    }

    /// A difference over the largest magnitude.
    pub(crate) fn relative(&self, difference: f64) -> f64 {
        if difference == 0.0 { 0.0 } else { difference / f64::from(self.reference.largest()) }
    }
}

/// Runs work on each task, by all threads of this process.
pub(crate) fn divide(tasks: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    (0..tasks).into_par_iter().for_each(|task| work(task..task + 1));
}
