//! Measurer for several devices of one target at the same time.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use autotune_measurement::Measurement;
use autotune_schedules::Candidate;

use crate::error::MeasureError;
use crate::measurer::{Batches, Measurer, OnResult, RaceResult};

/// Measures candidates on several devices of one target, such as machines of the same model.
///
/// Each device takes a part of the waiting candidates: half of its share, so that the parts become
/// smaller towards the end of a batch. A device that finds no candidates waiting requests the next
/// batch while the others still measure, so that no device waits for the slowest. Results arrive in
/// the order in which they are measured.
///
/// If a device fails with a [`MeasureError`], the others measure its candidates. It is tried again
/// in the next call. It is an error only if all devices fail.
///
/// Times of different devices are compared as if they came from one. The devices must therefore be
/// alike, and must not disturb one another.
pub struct MeasurerPool {
    devices: Vec<Box<dyn Measurer + Send>>,
}

impl MeasurerPool {
    /// Returns a pool of devices of one target.
    pub fn new(devices: Vec<Box<dyn Measurer + Send>>) -> Self {
        Self { devices }
    }
}

impl Measurer for MeasurerPool {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        let mut working: Vec<&mut (dyn Measurer + Send)> = Vec::new();
        working.extend(self.devices.iter_mut().map(|device| &mut **device as _));
        let shared = PoolShared::new(next_batch);
        let mut failure = no_devices();
        while !working.is_empty() {
            let ended = measure_with(&mut working, &shared, on_result);
            if shared.is_stopped.load(Ordering::Relaxed) {
                return Ok(());
            }

            let (before, mut healthy) = (working.len(), Vec::new());
            for (device, ended) in working.into_iter().zip(ended) {
                match ended {
                    Ok(()) => healthy.push(device),
                    Err(MeasureError::Interrupted) => return Err(MeasureError::Interrupted),
                    Err(error) => failure = error,
                }
            }
            // If a device failed, the devices that had ended before measure its remaining
            // candidates.
            if healthy.len() == before || (!healthy.is_empty() && shared.lock().is_done()) {
                return Ok(());
            }
            working = healthy;
        }
        Err(failure)
    }

    /// Races all candidates on one device: the first that does not fail.
    fn race(&mut self, candidates: &[Candidate], budget_secs: f64) -> Result<RaceResult, MeasureError> {
        let mut failure = no_devices();
        for device in &mut self.devices {
            match device.race(candidates, budget_secs) {
                Err(error @ (MeasureError::Interrupted | MeasureError::MixedTargets)) => return Err(error),
                Err(error) => failure = error,
                raced => return raced,
            }
        }
        Err(failure)
    }
}

fn no_devices() -> MeasureError {
    MeasureError::Device { message: "the pool has no devices".into() }
}

/// State shared by the threads of the devices.
struct PoolShared<'b> {
    supply: Mutex<Supply<'b>>,
    /// True once `on_result` returned a break.
    is_stopped: AtomicBool,
}

/// Waiting candidates with their positions among all, and the source of further batches.
struct Supply<'b> {
    next_batch: &'b mut Batches<'b>,
    waiting: VecDeque<(usize, Candidate)>,
    /// Number of candidates received so far.
    given: usize,
    /// True once a batch was empty.
    is_over: bool,
}

impl<'b> PoolShared<'b> {
    fn new(next_batch: &'b mut Batches<'_>) -> Self {
        let supply = Supply { next_batch, waiting: VecDeque::new(), given: 0, is_over: false };
        Self { supply: Mutex::new(supply), is_stopped: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Supply<'b>> {
        self.supply.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supply<'_> {
    /// Returns part of the waiting candidates for one of `devices` devices; empty at the end.
    fn part(&mut self, devices: usize) -> Vec<(usize, Candidate)> {
        if self.waiting.is_empty() && !self.is_over {
            let batch = (self.next_batch)();
            self.is_over = batch.is_empty();
            let first = self.given;
            self.given += batch.len();
            self.waiting.extend((first..).zip(batch));
        }
        let count = self.waiting.len().div_ceil(2 * devices);
        self.waiting.drain(..count).collect()
    }

    fn is_done(&self) -> bool {
        self.is_over && self.waiting.is_empty()
    }
}

/// Lets every device measure until no candidates are left. Returns one result per device.
fn measure_with(
    devices: &mut [&mut (dyn Measurer + Send)],
    shared: &PoolShared<'_>,
    on_result: &mut OnResult<'_>,
) -> Vec<Result<(), MeasureError>> {
    let count = devices.len();
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        let start = |device| {
            let sender = sender.clone();
            scope.spawn(move || measure_on(device, count, shared, &sender))
        };
        let threads: Vec<_> = devices.iter_mut().map(|device| start(&mut **device)).collect();
        drop(sender);

        for (position, measurement) in results {
            let is_stopped = shared.is_stopped.load(Ordering::Relaxed);
            if !is_stopped && on_result(position, measurement).is_break() {
                shared.is_stopped.store(true, Ordering::Relaxed);
            }
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Lets one of `devices` devices measure its parts. Candidates left without a result are returned
/// to the supply.
fn measure_on(
    device: &mut (dyn Measurer + Send),
    devices: usize,
    shared: &PoolShared<'_>,
    results: &Sender<(usize, Measurement)>,
) -> Result<(), MeasureError> {
    // Candidates taken by this device, by its own numbering; `None` once the result has arrived.
    let taken: Mutex<Vec<Option<(usize, Candidate)>>> = Mutex::default();
    let taken = || taken.lock().unwrap_or_else(PoisonError::into_inner);
    let is_stopped = || shared.is_stopped.load(Ordering::Relaxed);

    let mut next_part = || {
        let part = if is_stopped() { Vec::new() } else { shared.lock().part(devices) };
        let candidates = part.iter().map(|(_, candidate)| candidate.clone()).collect();
        taken().extend(part.into_iter().map(Some));
        candidates
    };
    let measured = device.measure_batches(&mut next_part, &mut |index, measurement| {
        let known = taken().get_mut(index).and_then(Option::take);
        let is_over = is_stopped() || known.is_some_and(|(at, _)| results.send((at, measurement)).is_err());
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });

    if measured.is_err() {
        let mut supply = shared.lock();
        taken().drain(..).flatten().rev().for_each(|left| supply.waiting.push_front(left));
    }
    measured
}
