//! Parsed target keys, and the scopes within which machines share records.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::system;
use super::{CpuTarget, GpuTarget, Isa, Rates, Target};

/// Scope of a key: the machines that share it. The number of threads of a CPU kernel is part of
/// every scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyScope {
    /// The target's own key, [`Target::key`].
    Machine,
    /// CPUs of the same model and instruction set, with any features, caches and measured class.
    /// Includes keys of earlier versions.
    Model,
    /// CPUs of the same vendor, family number and instruction set.
    Family,
    /// CPUs with the same instruction set; GPUs with the same API and compute capability.
    Isa,
}

impl KeyScope {
    /// All scopes, narrowest first.
    pub const ALL: [Self; 4] = [Self::Machine, Self::Model, Self::Family, Self::Isa];
}

impl fmt::Display for KeyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyScope::Machine => "machine",
            KeyScope::Model => "model",
            KeyScope::Family => "family",
            KeyScope::Isa => "isa",
        })
    }
}

/// A parsed target key.
///
/// ```
/// use autotune_ir::{KeyParts, KeyScope};
/// let here = KeyParts::of("cpu:AuthenticAMD-25-17:avx512:-:32K+1M+32M:fma4+add3:threads=2");
/// let there = KeyParts::of("cpu:AuthenticAMD-25-1:avx512:-:32K+512K+32M:fma4+add3:threads=2");
/// assert_eq!(here.narrowest_shared(&there), Some(KeyScope::Family));
/// assert_eq!(here.text(KeyScope::Family).unwrap(), "cpu:AuthenticAMD-25:avx512:threads=2");
/// assert_eq!(here.text(KeyScope::Isa).unwrap(), "cpu:avx512:threads=2");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct KeyParts<'a> {
    key: &'a str,
    kind: KeyKind<'a>,
}

#[derive(Clone, Copy, Debug)]
enum KeyKind<'a> {
    Cpu {
        model: &'a str,
        isa: &'a str,
        threads: &'a str,
    },
    Gpu {
        api: &'a str,
        model: &'a str,
    },
    /// Key of a newer version, shared with its own target only.
    Unknown,
}

impl<'a> KeyParts<'a> {
    /// Parses a key; accepts any text.
    pub fn of(key: &'a str) -> Self {
        let kind = Self::cpu(key).or_else(|| Self::gpu(key)).unwrap_or(KeyKind::Unknown);
        Self { key, kind }
    }

    /// Parses `cpu:MODEL:ISA[:...]:threads=N`.
    fn cpu(key: &'a str) -> Option<KeyKind<'a>> {
        let (model, rest) = key.strip_prefix("cpu:")?.split_once(':')?;
        let (isa, _) = rest.split_once(':')?;
        let (_, threads) = rest.rsplit_once(':')?;
        threads.starts_with("threads=").then_some(KeyKind::Cpu { model, isa, threads })
    }

    /// Parses `cuda:sm_N:MODEL` or `opencl:MODEL`.
    fn gpu(key: &'a str) -> Option<KeyKind<'a>> {
        let api_bytes = match key.strip_prefix("cuda:") {
            Some(rest) => "cuda:".len() + rest.find(':')?,
            None => key.strip_prefix("opencl:").map(|_| "opencl".len())?,
        };
        let (api, model) = key.split_at_checked(api_bytes)?;
        Some(KeyKind::Gpu { api, model: model.strip_prefix(':')? })
    }

    /// Returns the parts of the key that all targets in the scope share; `None` if the scope does
    /// not exist for this kind of target.
    pub fn words(&self, reach: KeyScope) -> Option<[&'a str; 4]> {
        match (reach, self.kind) {
            (KeyScope::Machine, _) => Some([self.key, "", "", ""]),
            (KeyScope::Model, KeyKind::Cpu { model, isa, threads }) => Some(["cpu", model, isa, threads]),
            (KeyScope::Family, KeyKind::Cpu { model, isa, threads }) => {
                // The last part of a model is its model number within the family.
                let family = model.rsplit_once('-').map_or(model, |(family, _)| family);
                Some(["cpu", family, isa, threads])
            }
            (KeyScope::Isa, KeyKind::Cpu { isa, threads, .. }) => Some(["cpu", isa, threads, ""]),
            (KeyScope::Isa, KeyKind::Gpu { api, .. }) => Some([api, "", "", ""]),
            (KeyScope::Model | KeyScope::Family, KeyKind::Gpu { .. }) | (_, KeyKind::Unknown) => None,
        }
    }

    /// Returns the key of a scope as text.
    pub fn text(&self, reach: KeyScope) -> Option<String> {
        let words = self.words(reach)?;
        Some(words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(":"))
    }

    /// Returns true if both targets have the same key in this scope.
    pub fn shares(&self, other: &KeyParts<'_>, reach: KeyScope) -> bool {
        self.words(reach).is_some_and(|words| other.words(reach) == Some(words))
    }

    /// Returns the narrowest scope in which both targets have the same key.
    pub fn narrowest_shared(&self, other: &KeyParts<'_>) -> Option<KeyScope> {
        KeyScope::ALL.into_iter().find(|reach| self.shares(other, *reach))
    }

    /// Returns true if a record found in this scope counts as the target's own: it has the target's
    /// own key, or the target is a stated GPU, which stands for all of its kind.
    pub fn owns(&self, reach: KeyScope) -> bool {
        reach == KeyScope::Machine || matches!(self.kind, KeyKind::Gpu { model: GpuTarget::ANY, .. })
    }
}

impl Target {
    /// Reconstructs the target of a [key](Target::key) as far as possible. A CPU gets as many cores
    /// as threads and nominal rates, and common cache sizes if the key is one of [earlier
    /// versions](Target::legacy_key). A GPU gets the limits of its compute capability. `None` if
    /// the text is not a key.
    pub fn of_key(key: &str) -> Option<Self> {
        match KeyParts::of(key).kind {
            KeyKind::Cpu { .. } => CpuTarget::of_key(key).map(Target::Cpu),
            KeyKind::Gpu { api, model } => {
                Some(Target::Gpu(GpuTarget { model: model.to_string(), ..GpuTarget::stated(api)? }))
            }
            KeyKind::Unknown => None,
        }
    }
}

impl CpuTarget {
    fn of_key(key: &str) -> Option<Self> {
        let words: Vec<&str> = key.split(':').collect();
        let (model, isa, threads, rest) = match words[..] {
            ["cpu", model, isa, threads] => (model, isa, threads, None),
            ["cpu", model, isa, features, caches, class, threads] => {
                (model, isa, threads, Some((features, caches, class)))
            }
            _ => return None,
        };
        let threads: usize = threads.strip_prefix("threads=")?.parse().ok().filter(|&threads| threads > 0)?;
        let isas = [Isa::Avx512, Isa::Avx2, Isa::Neon, Isa::Generic];
        let isa = isas.into_iter().find(|known| known.to_string() == isa)?;
        // Keys of earlier versions lack these parts.
        let (features, caches, class) = rest.unwrap_or(("-", "32K+512K+8M", "?"));

        let bytes: Vec<usize> = caches.split('+').map(system::bytes).collect::<Option<_>>()?;
        let [l1d_bytes, l2_bytes, l3_bytes] = bytes[..] else { return None };
        let features = features.split('+').filter(|word| *word != "-").map(str::to_string).collect();
        let latency_cycles = match class {
            "?" => None,
            class => {
                let (fma, add) = class.strip_prefix("fma")?.split_once("+add")?;
                Some([fma.parse().ok()?, add.parse().ok()?])
            }
        };
        let model = model.to_string();
        let (cores, rates) = (threads, Rates::NOMINAL);
        Some(Self { model, isa, features, cores, threads, l1d_bytes, l2_bytes, l3_bytes, latency_cycles, rates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "cpu:AuthenticAMD-25-17:avx512:avx512bf16+avx512vnni:32K+1M+32M:fma4+add3:threads=2";

    #[test]
    fn scopes_widen_from_the_machine_to_its_instruction_set_and_keep_the_threads() {
        for (other, reach) in [
            (HERE, Some(KeyScope::Machine)),
            ("cpu:AuthenticAMD-25-17:avx512:-:32K+512K+32M:?:threads=2", Some(KeyScope::Model)),
            ("cpu:AuthenticAMD-25-17:avx512:threads=2", Some(KeyScope::Model)),
            ("cpu:AuthenticAMD-25-1:avx512:-:32K+1M+32M:fma4+add3:threads=2", Some(KeyScope::Family)),
            ("cpu:GenuineIntel-6-143:avx512:amx:48K+2M+105M:fma4+add4:threads=2", Some(KeyScope::Isa)),
            ("cpu:AuthenticAMD-25-17:avx2:-:32K+1M+32M:fma4+add3:threads=2", None),
            ("cpu:AuthenticAMD-25-17:avx512:avx512bf16+avx512vnni:32K+1M+32M:fma4+add3:threads=1", None),
            ("cuda:sm_90:NVIDIA_H100", None),
            ("cpu:", None),
            ("", None),
        ] {
            assert_eq!(KeyParts::of(HERE).narrowest_shared(&KeyParts::of(other)), reach, "{other}");
            assert_eq!(KeyParts::of(other).narrowest_shared(&KeyParts::of(HERE)), reach, "{other}");
        }
    }

    #[test]
    fn gpus_share_interface_and_compute_capability() {
        let [h100, stated, a100, opencl] =
            ["cuda:sm_90:NVIDIA_H100", "cuda:sm_90:any", "cuda:sm_80:A100", "opencl:pocl:x"].map(KeyParts::of);
        assert_eq!(h100.narrowest_shared(&stated), Some(KeyScope::Isa));
        assert_eq!(h100.narrowest_shared(&a100), None);
        assert_eq!(h100.narrowest_shared(&opencl), None);
        assert_eq!(opencl.text(KeyScope::Isa).unwrap(), "opencl");
        assert!(stated.owns(KeyScope::Isa) && !h100.owns(KeyScope::Isa) && h100.owns(KeyScope::Machine));
        assert!(!KeyParts::of(HERE).owns(KeyScope::Model));
    }

    #[test]
    fn unknown_keys_share_only_their_own_scope() {
        for key in ["tpu:v5", "cpu:x", "cuda:sm_90", "cpu:a:avx2:threads", ""] {
            let parts = KeyParts::of(key);
            assert_eq!(parts.narrowest_shared(&parts), Some(KeyScope::Machine), "{key}");
            assert!(KeyScope::ALL[1..].iter().all(|reach| parts.words(*reach).is_none()), "{key}");
            assert_eq!(Target::of_key(key), None, "{key}");
        }
    }

    #[test]
    fn a_target_is_read_back_from_its_key() {
        let cpu = CpuTarget::generic_avx2(3);
        for cpu in [
            cpu.clone(),
            CpuTarget { latency_cycles: None, features: vec!["amx".into(), "bf16".into()], ..cpu.clone() },
            CpuTarget { isa: Isa::Neon, l2_bytes: 1280 << 10, l3_bytes: 1001, ..cpu.clone() },
        ] {
            assert_eq!(Target::of_key(&cpu.key()), Some(Target::Cpu(cpu)));
        }
        for word in GpuTarget::stated_words() {
            let target = Target::Gpu(GpuTarget::stated(&word).unwrap());
            assert_eq!(Target::of_key(&target.key()), Some(target));
        }
        let legacy = Target::of_key("cpu:test:avx2:threads=3").unwrap();
        assert_eq!(legacy.legacy_key().unwrap(), "cpu:test:avx2:threads=3");
        for bad in ["cpu:m:avx2:threads=0", "cpu:m:sse:threads=1", "cpu:m:avx2:-:32K:?:threads=1", "cuda:sm_13:x"] {
            assert_eq!(Target::of_key(bad), None, "{bad}");
        }
    }
}
