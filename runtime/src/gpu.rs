//! Code shared by the GPU APIs.

use autotune_ir::GpuTarget;

use crate::error::DeviceError;

/// A GPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// API and limits of the device.
    pub target: GpuTarget,
    /// Name reported by the driver.
    pub name: String,
    /// Name and version of the driver.
    pub driver: String,
}

impl GpuInfo {
    /// Returns name and driver, as stored in records.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.driver)
    }
}

/// Alignment in bytes that generated code and tensor maps assume, since they copy 16 bytes at once.
pub(crate) const ALIGNMENT: usize = 16;

/// Returns true if the device `found` matches `wanted`. A stated target matches any device of its
/// API and compute capability.
pub(crate) fn matches(wanted: &GpuTarget, found: &GpuTarget) -> bool {
    wanted.api == found.api && (wanted.is_stated() || wanted.model == found.model)
}

/// Returns the error that names the missing target and the devices that exist instead.
pub(crate) fn no_matching_device<'a>(wanted: &GpuTarget, found: impl Iterator<Item = &'a GpuInfo>) -> DeviceError {
    let keys: Vec<String> = found.map(|info| info.target.key()).collect();
    DeviceError::Absent(format!("this machine has no {}, it has {}", wanted.key(), keys.join(", ")))
}

/// Converts a device's name to a target's model name.
pub(crate) fn model(name: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    name.trim().chars().map(word).collect()
}
