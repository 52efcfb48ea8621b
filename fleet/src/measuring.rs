//! Thread of a worker that measures: it opens devices, and carries out one job after another.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use autotune_ir::Target;
use autotune_measure::MeasureError;
use autotune_measurement::{CandidateError, Measurement};
use autotune_schedules::{Candidate, ScheduleSpace};
use autotune_workloads::Workload;

use crate::desk::{Desk, DeskJob, DeviceFigures, FleetJob};
use crate::message::{DeviceWish, LeaseId, OpenedDevice, Racer, Refusal, WishBatch, WorkerMessage};
use crate::work_device::{OpenDevice, WorkDevice, watched};

/// Workload of the reference kernel: small enough to be timed with every batch, large enough that a
/// launch is a small part of it.
const REFERENCE: &str = "matmul:m=128,n=128,k=128";

/// Number of times that the reference kernel is timed when a device is opened; the fastest counts.
const FIRST_LOOKS: usize = 3;

/// Carries out jobs until the worker stops.
pub(crate) fn measure_jobs(desk: &Arc<Desk>, opener: &mut dyn OpenDevice) {
    desk.set_offers(opener.offers());
    let mut bench = FleetBench { desk, opener, devices: HashMap::new() };
    while let Some(DeskJob { tuner, device, job }) = desk.next() {
        let last = match (job, device) {
            (FleetJob::Open(wish), _) => bench.open(&wish),
            (FleetJob::Measure(batch), Some(wish)) => bench.measure(tuner, &wish, &batch),
            (FleetJob::Race { lease, racers, budget_secs }, Some(wish)) => {
                bench.race(lease, &wish, &racers, budget_secs)
            }
            (_, None) => refused(Refusal::Invalid, "wishes before a device was opened".into()),
        };
        let is_end = matches!(last, WorkerMessage::Refused { .. });
        desk.finish(tuner, last);
        if is_end {
            desk.leave(tuner);
        }
    }
}

fn refused(refusal: Refusal, reason: String) -> WorkerMessage {
    WorkerMessage::Refused { refusal, reason }
}

/// Devices of the worker.
struct FleetBench<'a> {
    desk: &'a Arc<Desk>,
    opener: &'a mut dyn OpenDevice,
    devices: HashMap<DeviceWish, OpenWork>,
}

/// Open device, with the space of the last workload.
struct OpenWork {
    device: Box<dyn WorkDevice>,
    space: Option<ScheduleSpace>,
    reference: Option<Candidate>,
    /// Time of the reference kernel when the device was opened, and last.
    first_secs: Option<f64>,
    last_secs: Option<f64>,
}

impl FleetBench<'_> {
    fn open(&mut self, wish: &DeviceWish) -> WorkerMessage {
        if !self.devices.contains_key(wish) {
            let wanted = self.desk.wanted_devices();
            self.devices.retain(|wish, _| wanted.contains(wish));
            let desk = Arc::clone(self.desk);
            match self.opener.open(wish, Arc::new(move || desk.is_aborted())) {
                Ok(device) => {
                    let reference = reference(device.target());
                    self.devices.insert(
                        wish.clone(),
                        OpenWork { device, space: None, reference, first_secs: None, last_secs: None },
                    );
                }
                Err(reason) => return refused(Refusal::NoDevice, reason),
            }
        }
        let Some(open) = self.devices.get_mut(wish) else {
            return refused(Refusal::NoDevice, "it is closed".into());
        };

        let looks = (0..FIRST_LOOKS).filter_map(|_| open.reference_secs());
        let reference_secs = looks.min_by(f64::total_cmp);
        open.first_secs = open.first_secs.or(reference_secs);
        open.last_secs = reference_secs.or(open.last_secs);
        let opened = WorkerMessage::Opened(Box::new(OpenedDevice {
            target: open.device.target().clone(),
            device: open.device.name().into(),
            harness: open.device.harness().into(),
            ceilings: open.device.ceilings(),
            reference_secs,
        }));
        self.tell_figures();
        opened
    }

    /// Tells the desk the open devices and the times of their reference kernels.
    fn tell_figures(&self) {
        let figures = |(wish, open): (&DeviceWish, &OpenWork)| DeviceFigures {
            key: open.device.target().key(),
            backend: wish.backend,
            reference_secs: open.last_secs,
            first_secs: open.first_secs,
        };
        let mut devices: Vec<DeviceFigures> = self.devices.iter().map(figures).collect();
        // Tuners may have asked for one device in different words.
        devices.sort_by_key(DeviceFigures::name);
        devices.dedup_by_key(|device| device.name());
        self.desk.set_devices(devices);
    }

    /// Measures a batch, and sends each result as soon as it is known.
    fn measure(&mut self, tuner: u64, wish: &DeviceWish, batch: &WishBatch) -> WorkerMessage {
        let lease = batch.lease;
        let returned = |fault: Option<String>| WorkerMessage::Returned { lease, fault };
        let Some(open) = self.devices.get_mut(wish) else { return returned(Some("its device is closed".into())) };
        let space = match open.space(&batch.workload) {
            Ok(space) => space,
            Err(reason) => return returned(Some(reason)),
        };

        let tell = |wish: u64, measurement: Measurement| {
            self.desk.tell(tuner, WorkerMessage::Measured { lease, wish, measurement: Box::new(measurement) });
        };
        let (mut candidates, mut numbers) = (Vec::new(), Vec::new());
        for wish in &batch.wishes {
            match space.checked(&wish.config) {
                Ok(candidate) => {
                    candidates.push(candidate);
                    numbers.push(wish.number);
                }
                Err(error) => {
                    tell(wish.number, Measurement::of(Err(CandidateError::Lower { message: error.to_string() })));
                }
            }
        }

        if let Some(secs) = batch.incumbent_secs.filter(|secs| secs.is_finite() && *secs > 0.0) {
            open.device.set_incumbent(space.workload(), secs);
        }
        let mut answered = 0;
        let measured = open.device.measurer().measure(&candidates, &mut |index, measurement| {
            answered += 1;
            numbers.get(index).into_iter().for_each(|number| tell(*number, measurement.clone()));
            if self.desk.is_aborted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match measured {
            Ok(()) if answered == candidates.len() => {
                let reference_secs = open.reference_secs();
                open.last_secs = reference_secs.or(open.last_secs);
                self.desk.set_drift(reference_secs.zip(open.first_secs).map(|(now, first)| now / first));
                self.tell_figures();
                WorkerMessage::Finished { lease, reference_secs }
            }
            Ok(()) | Err(MeasureError::Interrupted) => returned(None),
            Err(error) => returned(Some(error.to_string())),
        }
    }

    fn race(&mut self, lease: LeaseId, wish: &DeviceWish, racers: &[Racer], budget_secs: f64) -> WorkerMessage {
        let returned = |fault: Option<String>| WorkerMessage::Returned { lease, fault };
        let Some(open) = self.devices.get_mut(wish) else { return returned(Some("its device is closed".into())) };
        let mut entries = Vec::new();
        for racer in racers {
            match open.space(&racer.workload) {
                Ok(space) => entries.push(space.checked(&racer.config).map_err(|error| error.to_string())),
                Err(reason) => return returned(Some(reason)),
            }
        }

        let fit: Vec<Candidate> = entries.iter().flatten().cloned().collect();
        let target = open.device.target().clone();
        let (raced, taken) = watched(&target, || open.device.measurer().race(&fit, budget_secs));
        let raced = match raced {
            Ok(raced) => raced,
            Err(MeasureError::Interrupted) => return returned(None),
            Err(error) => return returned(Some(error.to_string())),
        };
        let mut results = raced.measurements.into_iter();
        let result = |entry: Result<Candidate, String>| match entry {
            Ok(_) => results.next().map(|measurement| Measurement { taken, ..measurement }),
            Err(message) => Some(Measurement::of(Err(CandidateError::Lower { message }))),
        };
        let measurements = entries.into_iter().filter_map(result).collect();
        WorkerMessage::Raced { lease, measurements, failure: raced.failure.map(|error| error.to_string()) }
    }
}

impl OpenWork {
    /// Returns the space of a workload, or the reason that it cannot be measured here.
    fn space(&mut self, workload: &str) -> Result<ScheduleSpace, String> {
        if let Some(space) = self.space.as_ref().filter(|space| space.workload().to_string() == workload) {
            return Ok(space.clone());
        }
        let workload: Workload = workload.parse().map_err(|error| format!("{error}"))?;
        self.device.foresee(&workload)?;
        let space = ScheduleSpace::new(&workload, self.device.target());
        self.space = Some(space.clone());
        Ok(space)
    }

    /// Times the reference kernel, without the correction for disturbances.
    fn reference_secs(&mut self) -> Option<f64> {
        let mut secs = None;
        let reference = self.reference.clone()?;
        let measured = self.device.measurer().measure(&[reference], &mut |_, measurement| {
            secs = measurement.outcome.ok().map(|run| run.run_secs * run.slowdown);
            ControlFlow::Continue(())
        });
        measured.ok().and(secs)
    }
}

/// Returns the reference kernel for a target: the default schedule of a fixed workload.
fn reference(target: &Target) -> Option<Candidate> {
    let workload: Workload = REFERENCE.parse().ok()?;
    Some(ScheduleSpace::new(&workload, target).default_candidate().clone())
}
