//! What GPUs of all interfaces have in common.

use autotune_ir::GpuTarget;

use crate::error::DeviceError;

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its interface and limits.
    pub target: GpuTarget,
    /// Its name as the driver tells it.
    pub name: String,
    /// The driver and its version.
    pub driver: String,
}

impl GpuInfo {
    /// Name and driver, as records tell them.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.driver)
    }
}

/// Alignment that generated code and tensor maps take for granted: they copy 16 bytes at once.
pub(crate) const ALIGNMENT: usize = 16;

/// True if the device that `found` describes is one that `wanted` means: one that is stated is any
/// of its interface and compute capability.
pub(crate) fn is_meant(wanted: &GpuTarget, found: &GpuTarget) -> bool {
    wanted.api == found.api && (wanted.is_stated() || wanted.model == found.model)
}

/// Returns the error that names a target and the devices that there are in its place.
pub(crate) fn none_meant<'a>(wanted: &GpuTarget, found: impl Iterator<Item = &'a GpuInfo>) -> DeviceError {
    let keys: Vec<String> = found.map(|info| info.target.key()).collect();
    DeviceError::Absent(format!("this machine has no {}, it has {}", wanted.key(), keys.join(", ")))
}

/// A device's name as a target's model.
pub(crate) fn model(name: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    name.trim().chars().map(word).collect()
}
