//! Compatibility of compiled models with a machine and a version of autotune, which ONNX Runtime
//! asks about before it loads them.

use autotune_ir::Target;
use ort_sys::OrtCompiledModelCompatibility;

use crate::context::FORMAT;

/// Describes the target and version that compile a model; ONNX Runtime stores it in the model.
pub(crate) fn described(target: &Target) -> String {
    format!("autotune {FORMAT} {} {}", env!("CARGO_PKG_VERSION"), target.key())
}

/// Returns how a compiled model with such a description runs on this machine.
pub(crate) fn compatibility(description: &str) -> OrtCompiledModelCompatibility {
    let words: Vec<&str> = description.split(' ').collect();
    let ["autotune", format, version, key] = words[..] else {
        return OrtCompiledModelCompatibility::EP_NOT_APPLICABLE;
    };
    if format.parse() != Ok(FORMAT) {
        return OrtCompiledModelCompatibility::EP_UNSUPPORTED;
    }
    // The number of threads is known only when a session begins.
    let told = Target::of_key(key).map(|told| told.threads());
    let own = told.and_then(|threads| Target::detect("cpu", Some(threads)).ok());
    match own.is_some_and(|own| own.key() == key) && version == env!("CARGO_PKG_VERSION") {
        true => OrtCompiledModelCompatibility::EP_SUPPORTED_OPTIMAL,
        false => OrtCompiledModelCompatibility::EP_SUPPORTED_PREFER_RECOMPILATION,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_ir::CpuTarget;

    use super::OrtCompiledModelCompatibility::*;
    use super::*;

    #[test]
    fn models_of_other_machines_and_versions_are_told_apart() {
        let own = described(&Target::detect("cpu", Some(1)).unwrap());
        assert_eq!(compatibility(&own), EP_SUPPORTED_OPTIMAL);
        let foreign = described(&Target::Cpu(CpuTarget::generic_avx2(2)));
        assert_eq!(compatibility(&foreign), EP_SUPPORTED_PREFER_RECOMPILATION);
        let version = format!(" {} ", env!("CARGO_PKG_VERSION"));
        assert_eq!(compatibility(&own.replace(&version, " 0.0.1 ")), EP_SUPPORTED_PREFER_RECOMPILATION);
        assert_eq!(compatibility(&own.replace("autotune 1 ", "autotune 2 ")), EP_UNSUPPORTED);
        for other in ["", "autotune", "tensorrt 1 2 3", "autotune 1 0.2.0 cpu:a b"] {
            assert_eq!(compatibility(other), EP_NOT_APPLICABLE, "{other}");
        }
    }
}
