//! Devices that sleep instead of running kernels.

use std::thread;
use std::time::Duration;

use autotune_fleet::DeviceWish;
use autotune_fleet::work_device::{IsUnwanted, OpenDevice, WorkDevice};
use autotune_ir::{CpuTarget, Target};
use autotune_measure::{Batches, Ceilings, MeasureError, Measurer, OnResult, RaceResult};
use autotune_measurement::{Measurement, RunSecs};
use autotune_schedules::Candidate;
use autotune_workloads::Workload;

/// Workload of the trials. Workers lower each schedule, and this one's are lowered fast, because
/// all workers share the cores of one machine here.
pub(crate) const WORKLOAD: &str = "matmul:m=64,n=64,k=64";

pub(crate) fn target() -> Target {
    Target::Cpu(CpuTarget::generic_avx2(1))
}

/// Device on which a trial is a pause.
pub(crate) struct SleepingDevice {
    /// Times of a trial and of the reference kernel.
    pub(crate) pauses: [Duration; 2],
    pub(crate) target: Target,
}

impl OpenDevice for SleepingDevice {
    fn own_key(&self) -> String {
        self.target.key()
    }

    fn open(&mut self, _wish: &DeviceWish, is_unwanted: IsUnwanted) -> Result<Box<dyn WorkDevice>, String> {
        let measurer = SleepingMeasurer { pauses: self.pauses, is_unwanted };
        Ok(Box::new(SleepingWork { target: self.target.clone(), measurer }))
    }
}

struct SleepingWork {
    target: Target,
    measurer: SleepingMeasurer,
}

impl WorkDevice for SleepingWork {
    fn target(&self) -> &Target {
        &self.target
    }

    fn name(&self) -> &str {
        "pause"
    }

    fn harness(&self) -> &str {
        "{}"
    }

    fn ceilings(&self) -> Option<Ceilings> {
        None
    }

    fn measurer(&mut self) -> &mut dyn Measurer {
        &mut self.measurer
    }

    fn foresee(&self, _workload: &Workload) -> Result<(), String> {
        Ok(())
    }

    fn set_incumbent(&mut self, _workload: &Workload, _run_secs: f64) {}
}

pub(crate) struct SleepingMeasurer {
    /// Times of a trial and of the reference kernel.
    pub(crate) pauses: [Duration; 2],
    pub(crate) is_unwanted: IsUnwanted,
}

impl Measurer for SleepingMeasurer {
    fn measure_batches(
        &mut self,
        next_batch: &mut Batches<'_>,
        on_result: &mut OnResult<'_>,
    ) -> Result<(), MeasureError> {
        let workload: Workload =
            WORKLOAD.parse().map_err(|error| MeasureError::Device { message: format!("{error}") })?;
        let batches = std::iter::repeat_with(next_batch).take_while(|batch| !batch.is_empty());
        for (index, candidate) in batches.flatten().enumerate() {
            if (self.is_unwanted)() {
                return Err(MeasureError::Interrupted);
            }
            let pause = self.pauses[usize::from(*candidate.workload() != workload)];
            thread::sleep(pause);
            let measured = Measurement::of(Ok(RunSecs::synthetic(1e-4)));
            let measurement = Measurement { measure_secs: pause.as_secs_f64(), ..measured };
            if on_result(index, measurement).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn race(&mut self, candidates: &[Candidate], _budget_secs: f64) -> Result<RaceResult, MeasureError> {
        let measured = || Measurement::of(Ok(RunSecs::synthetic(1e-4)));
        Ok(RaceResult::interleaved(candidates.iter().map(|_| measured()).collect()))
    }
}
