//! CPU model, features and caches as reported by Linux.

use std::fs;
use std::path::Path;

/// Properties read from the system; mostly unknown on other systems.
pub(super) struct System {
    /// Vendor, family and model number, or the name of the architecture.
    pub(super) model: String,
    /// Detected features among [`FEATURES`], sorted.
    pub(super) features: Vec<String>,
    /// Bytes of the first core's first-level data cache.
    pub(super) l1d_bytes: Option<usize>,
    /// Bytes of the first core's second-level cache.
    pub(super) l2_bytes: Option<usize>,
    /// Bytes of the first core's third-level cache.
    pub(super) l3_bytes: Option<usize>,
}

/// Features useful for matrix kernels beyond the instruction sets of the code generators: Linux's
/// flags, all of which are needed, and the name in target keys.
const FEATURES: [(&[&str], &str); 11] = [
    (&["amx_tile", "amx_bf16", "amx_int8"], "amx"),
    (&["asimdhp"], "asimdhp"),
    (&["avx512_bf16"], "avx512bf16"),
    (&["avx512_fp16"], "avx512fp16"),
    (&["avx512_vnni"], "avx512vnni"),
    (&["avx_vnni"], "avxvnni"),
    (&["bf16"], "bf16"),
    (&["i8mm"], "i8mm"),
    (&["sme"], "sme"),
    (&["sve"], "sve"),
    (&["sve2"], "sve2"),
];

impl System {
    /// Reads the properties of this machine.
    pub(super) fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let caches = Path::new("/sys/devices/system/cpu/cpu0/cache");
        let cache = |level| cache_bytes(caches, level);
        Self {
            model: model(&cpuinfo),
            features: features(&cpuinfo),
            l1d_bytes: cache(1),
            l2_bytes: cache(2),
            l3_bytes: cache(3),
        }
    }
}

/// Returns a field of the first processor in the text of `/proc/cpuinfo`.
fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// Returns `vendor-family-model`, or the architecture's name.
fn model(cpuinfo: &str) -> String {
    let names = ["vendor_id", "cpu family", "model", "CPU implementer", "CPU part"];
    let words: Vec<String> =
        names.iter().filter_map(|name| Some(field(cpuinfo, name)?.replace([' ', ':', '/'], "_"))).collect();
    if words.is_empty() { std::env::consts::ARCH.to_string() } else { words.join("-") }
}

fn features(cpuinfo: &str) -> Vec<String> {
    // The field is named `flags` on x86 and `Features` on Arm.
    let flags = field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features")).unwrap_or_default();
    let has = |flag: &&str| flags.split_whitespace().any(|known| known == *flag);
    let found = FEATURES.into_iter().filter(|(needed, _)| needed.iter().all(has));
    let mut features: Vec<String> = found.map(|(_, word)| word.to_string()).collect();
    features.sort_unstable();
    features
}

/// Returns the size of the data or unified cache of a level, among those described in `dir`.
fn cache_bytes(dir: &Path, level: usize) -> Option<usize> {
    let read = |index: &Path, name: &str| Some(fs::read_to_string(index.join(name)).ok()?.trim().to_string());
    let is_it = |index: &Path| {
        read(index, "level").is_some_and(|text| text == level.to_string())
            && read(index, "type").is_some_and(|kind| kind == "Data" || kind == "Unified")
    };
    let mut indices: Vec<_> = fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // Directory entries have no defined order.
    indices.sort_unstable();
    indices.iter().filter(|index| is_it(index)).find_map(|index| bytes(&read(index, "size")?))
}

/// Parses `32K`, `2M` or a number of bytes.
pub(super) fn bytes(text: &str) -> Option<usize> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let scale = match unit {
        "K" => 1 << 10,
        "M" => 1 << 20,
        "" => 1,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_and_features_come_from_cpuinfo() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD\n\
                    flags\t\t: fpu avx512_vnni avx2 avx512_bf16x\n";
        assert_eq!(model(text), "AuthenticAMD-25-17");
        assert_eq!(features(text), ["avx512vnni"]);
        assert_eq!(features("Features\t: fp asimd asimdhp sve2\n"), ["asimdhp", "sve2"]);
        assert_eq!(model(""), std::env::consts::ARCH);
        assert_eq!(features(""), [""; 0]);
    }

    #[test]
    fn tiles_are_of_use_only_with_both_products() {
        assert_eq!(features("flags : amx_bf16 avx512_vnni amx_tile amx_int8\n"), ["amx", "avx512vnni"]);
        for flags in ["amx_tile", "amx_tile amx_bf16", "amx_tile amx_int8", "amx_bf16 amx_int8"] {
            assert_eq!(features(&format!("flags : {flags}\n")), [""; 0], "{flags}");
        }
    }

    #[test]
    fn caches_are_told_apart_by_level_and_type_not_by_number() {
        let dir = tempfile::tempdir().unwrap();
        let caches =
            [("1", "Instruction", "64K"), ("1", "Data", "48K"), ("3", "Unified", "480M"), ("2", "Unified", "2048K")];
        for (number, (level, kind, size)) in caches.into_iter().enumerate() {
            let index = dir.path().join(format!("index{number}"));
            fs::create_dir(&index).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(index.join(name), format!("{text}\n")).unwrap();
            }
        }
        let found = [1, 2, 3, 4].map(|level| cache_bytes(dir.path(), level));
        assert_eq!(found, [Some(48 << 10), Some(2 << 20), Some(480 << 20), None]);
        assert_eq!(cache_bytes(&dir.path().join("none"), 1), None);
    }
}
