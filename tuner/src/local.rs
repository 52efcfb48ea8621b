//! Measuring on this machine.

use std::fs;
use std::sync::Arc;

use autotune_ir::{GpuApi, Target};
use autotune_measure::{Ceilings, MeasureError, MeasureOptions, TimingOptions, WorkerMeasurer};
use autotune_measurement::Backend;
use autotune_runtime::{cuda, opencl};
use autotune_workloads::Workload;

use crate::cancel::Cancel;
use crate::settings::Setup;
use crate::worker::worker_command;

/// Device of this machine for a target: a measurer, and facts that reports and records need.
pub struct LocalDevice {
    /// Measurer with a worker process, started from the program that [`worker_command`] finds.
    pub measurer: WorkerMeasurer,
    /// Measured peak rates of the device, or the reason that they could not be measured.
    pub ceilings: Result<Ceilings, MeasureError>,
    /// Name of the device, and timing options.
    pub setup: Setup,
}

impl LocalDevice {
    /// Opens the device. Fails if a workload does not fit its memory. CPU code is made by
    /// `backend`. The current measurement is interrupted when `cancel` [is due](Cancel::is_due).
    pub fn open(
        target: &Target,
        workloads: &[Workload],
        backend: Backend,
        cancel: &Cancel,
    ) -> Result<Self, MeasureError> {
        let timing = TimingOptions::for_target(target);
        // The options are plain numbers, which can always be serialised.
        let harness = serde_json::to_string(&timing).unwrap_or_default();
        let options = MeasureOptions { backend, timing, ..MeasureOptions::default() };
        let mut measurer = WorkerMeasurer::with(worker_command()?, options)?;
        let switch = cancel.clone();
        measurer.set_interrupt(Arc::new(move || switch.is_due()));

        workloads.iter().try_for_each(|workload| measurer.foresee(workload))?;
        let ceilings = measurer.ceilings(target);
        let device = device_name(target).unwrap_or_else(|| target.device().to_string());
        Ok(Self { measurer, ceilings, setup: Setup { device, harness } })
    }
}

/// Returns the name of this machine's device for a target: of a CPU as Linux reports it, of a GPU
/// as its driver does.
pub fn device_name(target: &Target) -> Option<String> {
    let Some(gpu) = target.gpu() else {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
        let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
        return Some(line.split_once(':')?.1.trim().to_string());
    };
    let devices = match gpu.api {
        GpuApi::Cuda { .. } => cuda::devices(),
        GpuApi::OpenCl => opencl::devices(),
    };
    devices.ok()?.into_iter().find(|info| info.target == *gpu).map(|info| info.title())
}
