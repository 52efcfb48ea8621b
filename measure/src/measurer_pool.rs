//! Measures on several devices of one target at the same time.

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
/// Each device takes a part of the candidates that wait: half of its share, so that the parts
/// become smaller towards the end of a batch. The device that finds none waiting asks for the next
/// batch, while the others still measure: no device waits for the slowest one. Results come in the
/// order in which they are known.
///
/// Candidates of a device that fails ([`MeasureError`]) are measured by the others. It is asked
/// again in the next call. Only if every device fails is it an error.
///
/// Times of different devices are compared as if they were of one: the devices must be alike, and
/// none of them may be disturbed by another.
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
        let shared = Shared::new(next_batch);
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
            // What a device left that failed is taken over by those that had ended before.
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

/// What the threads of the devices share.
struct Shared<'b> {
    supply: Mutex<Supply<'b>>,
    /// True once a result was answered with a break.
    is_stopped: AtomicBool,
}

/// Candidates by their positions among all, and where the next ones come from.
struct Supply<'b> {
    next_batch: &'b mut Batches<'b>,
    waiting: VecDeque<(usize, Candidate)>,
    /// Candidates so far.
    given: usize,
    /// True once a batch was empty.
    is_over: bool,
}

impl<'b> Shared<'b> {
    fn new(next_batch: &'b mut Batches<'_>) -> Self {
        let supply = Supply { next_batch, waiting: VecDeque::new(), given: 0, is_over: false };
        Self { supply: Mutex::new(supply), is_stopped: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, Supply<'b>> {
        self.supply.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Supply<'_> {
    /// Returns a part of what waits, for one of so many devices; nothing at the end.
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

/// Has every device measure until nothing is left; how it ended for each of them.
fn measure_with(
    devices: &mut [&mut (dyn Measurer + Send)],
    shared: &Shared<'_>,
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

/// Has a device, one of so many, measure its parts. What it leaves without a result, it gives back.
fn measure_on(
    device: &mut (dyn Measurer + Send),
    devices: usize,
    shared: &Shared<'_>,
    results: &Sender<(usize, Measurement)>,
) -> Result<(), MeasureError> {
    // Parts that it was given, by the positions that it knows; `None` has its result.
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
