//! Devices on which a worker measures.

use std::sync::Arc;

use autotune::{Cancel, LocalDevice};
use autotune_ir::Target;
use autotune_measure::{Ceilings, LoadWatch, Measurer, gpu};
use autotune_workloads::Workload;

use crate::message::DeviceWish;

/// Callback that returns true if the present measurement is no longer wanted.
pub type IsUnwanted = Arc<dyn Fn() -> bool + Send + Sync>;

/// Device that is open in the thread which measures.
pub trait WorkDevice {
    /// Returns the target, with nominal rates.
    fn target(&self) -> &Target;

    /// Returns the name of the device.
    fn name(&self) -> &str;

    /// Returns the timing options, as records store them.
    fn harness(&self) -> &str;

    /// Returns the measured peak rates, if they are known.
    fn ceilings(&self) -> Option<Ceilings>;

    /// Returns the measurer.
    fn measurer(&mut self) -> &mut dyn Measurer;

    /// Fails with the reason if a workload cannot be measured, such as for lack of memory.
    fn foresee(&self, workload: &Workload) -> Result<(), String>;

    /// Sets the seconds per run beyond which slow candidates of a workload are stopped.
    fn set_incumbent(&mut self, workload: &Workload, run_secs: f64);
}

/// Opens the devices of a machine, in the thread which measures.
pub trait OpenDevice: Send {
    /// Returns the key of the CPU with all cores of the worker.
    fn own_key(&self) -> String;

    /// Returns the keys of all devices, the CPU with all cores among them.
    fn offers(&self) -> Vec<String> {
        vec![self.own_key()]
    }

    /// Opens a device. Its measurer asks `is_unwanted` several times a second, and interrupts the
    /// measurement if the answer is true.
    ///
    /// # Errors
    /// If this machine has no device for the wish; the reason names what it has.
    fn open(&mut self, wish: &DeviceWish, is_unwanted: IsUnwanted) -> Result<Box<dyn WorkDevice>, String>;
}

/// Devices of this machine, measured in worker processes as in local tuning.
pub struct LocalDevices {
    cpu: Target,
}

impl LocalDevices {
    /// Detects this machine.
    ///
    /// # Errors
    /// If its CPU cannot be described.
    pub fn detect() -> Result<Self, String> {
        Target::detect("cpu", None).map(|cpu| Self { cpu }).map_err(|error| error.to_string())
    }

    /// Returns the target of this machine for a wish: by a word, or by a key.
    fn target(&self, wish: &DeviceWish) -> Result<Target, String> {
        let detect = |word: &str, threads| Target::detect(word, threads).map_err(|error| error.to_string());
        let stated = Target::of_key(&wish.target);
        if let Some(cpu) = stated.as_ref().and_then(Target::cpu) {
            let own = ["cpu", "cpu:avx2", "cpu:avx512"].map(|word| detect(word, Some(cpu.threads)));
            let mut own = own.into_iter().flatten();
            return own.find(|own| own.key() == wish.target).ok_or_else(|| format!("its CPU is {}", self.cpu));
        }
        // The word of a GPU's key is all but its model.
        let word = match &stated {
            Some(_) => wish.target.rsplit_once(':').map_or("", |(word, _)| word),
            None => &wish.target,
        };
        if word == "cpu" || word.starts_with("cpu:") || wish.threads.is_some() {
            return detect(word, wish.threads);
        }

        if word != "cuda" {
            detect(word, None)?;
        }
        let found = Target::Gpu(gpu::find(word).map_err(|error| error.to_string())?.target);
        match stated {
            Some(_) if found.key() != wish.target => Err(format!("its device is {found}")),
            _ => Ok(found),
        }
    }
}

impl OpenDevice for LocalDevices {
    fn own_key(&self) -> String {
        self.cpu.key()
    }

    fn offers(&self) -> Vec<String> {
        let gpus = ["cuda", "opencl"].into_iter().filter_map(|word| gpu::find(word).ok());
        [self.own_key()].into_iter().chain(gpus.map(|found| found.target.key())).collect()
    }

    fn open(&mut self, wish: &DeviceWish, is_unwanted: IsUnwanted) -> Result<Box<dyn WorkDevice>, String> {
        let target = self.target(wish)?;
        let device = LocalDevice::open(&target, &[], wish.backend, &Cancel::default());
        let mut device = device.map_err(|error| error.to_string())?;
        device.measurer.set_interrupt(is_unwanted);
        Ok(Box::new(LocalWork { target, device }))
    }
}

struct LocalWork {
    target: Target,
    device: LocalDevice,
}

impl WorkDevice for LocalWork {
    fn target(&self) -> &Target {
        &self.target
    }

    fn name(&self) -> &str {
        &self.device.setup.device
    }

    fn harness(&self) -> &str {
        &self.device.setup.harness
    }

    fn ceilings(&self) -> Option<Ceilings> {
        self.device.ceilings.as_ref().ok().copied()
    }

    fn measurer(&mut self) -> &mut dyn Measurer {
        &mut self.device.measurer
    }

    fn foresee(&self, workload: &Workload) -> Result<(), String> {
        self.device.measurer.foresee(workload).map_err(|error| error.to_string())
    }

    fn set_incumbent(&mut self, workload: &Workload, run_secs: f64) {
        self.device.measurer.set_incumbent(workload, &self.target, run_secs);
    }
}

/// Runs `action`, and returns its result and the share of the threads' time that other programs
/// took meanwhile; 0 on GPUs, and if it is unknown.
pub(crate) fn watched<T>(target: &Target, action: impl FnOnce() -> T) -> (T, f64) {
    let watch = target.cpu().map(|_| LoadWatch::start(target.threads()));
    let done = action();
    (done, watch.and_then(|watch| watch.load()).map_or(0.0, |load| load.taken))
}
