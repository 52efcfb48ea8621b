//! CPU targets, and the keys of their records.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::system::System;
use super::{Isa, Rates, TargetError, class};

/// A CPU with the number of cores that a kernel may use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CpuTarget {
    /// Processor model: vendor, family and model number, without spaces. A virtual machine may
    /// report a different model.
    pub model: String,
    /// Instruction set that code is generated for.
    pub isa: Isa,
    /// Features beyond the instruction set that code could use, sorted.
    pub features: Vec<String>,
    /// Number of cores of the machine.
    pub cores: usize,
    /// Number of threads that run a kernel, 1 to `cores`.
    pub threads: usize,
    /// Bytes of a core's first-level data cache.
    pub l1d_bytes: usize,
    /// Bytes of a core's second-level cache.
    pub l2_bytes: usize,
    /// Bytes of the last-level cache, which the cores share.
    pub l3_bytes: usize,
    /// Measured latencies of an f32 vector multiply-add and of an addition, in cycles; `None` if
    /// they cannot be measured.
    pub latency_cycles: Option<[u32; 2]>,
    /// Measured rates for the analysis; not part of the key.
    #[serde(default)]
    pub rates: Rates,
}

impl CpuTarget {
    /// Detects the CPU of this process. Cache sizes that the system does not report default to 32
    /// KiB, 512 KiB and 8 MiB; rates are nominal. The first call in a process measures for some
    /// milliseconds.
    pub fn detect(threads: Option<usize>) -> Result<Self, TargetError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or(cores);
        if threads == 0 || threads > cores {
            return Err(TargetError::Threads { threads, cores });
        }
        // Detection measures for milliseconds, so it is done once per process.
        static MACHINE: OnceLock<CpuTarget> = OnceLock::new();
        Ok(Self { cores, threads, ..MACHINE.get_or_init(Self::of_one_core).clone() })
    }

    /// Returns this machine with code restricted to an instruction set without extensions, so that
    /// all machines with the instruction set can run it; `word` is the target's name.
    pub(super) fn restricted(self, word: &'static str, isa: Isa) -> Result<Self, TargetError> {
        match self.isa {
            own if isa.runs_on(own) => Ok(Self { isa, features: Vec::new(), ..self }),
            own => Err(TargetError::Isa { word, isa: own }),
        }
    }

    /// Detects this machine, with one core.
    fn of_one_core() -> Self {
        let System { model, features, l1d_bytes, l2_bytes, l3_bytes } = System::read();
        Self {
            model,
            isa: Isa::detect(),
            features,
            cores: 1,
            threads: 1,
            l1d_bytes: l1d_bytes.unwrap_or(32 << 10),
            l2_bytes: l2_bytes.unwrap_or(512 << 10),
            l3_bytes: l3_bytes.unwrap_or(8 << 20),
            latency_cycles: class::latency_cycles(),
            rates: Rates::NOMINAL,
        }
    }

    /// Returns a fixed AVX2 machine (caches of 32 KiB, 512 KiB, 32 MiB) for tests, documentation
    /// and golden files.
    pub fn generic_avx2(threads: usize) -> Self {
        Self {
            model: "test".into(),
            isa: Isa::Avx2,
            features: Vec::new(),
            cores: threads,
            threads,
            l1d_bytes: 32 << 10,
            l2_bytes: 512 << 10,
            l3_bytes: 32 << 20,
            latency_cycles: Some([4, 3]),
            rates: Rates::NOMINAL,
        }
    }

    /// Returns the number of f32 lanes of a vector register.
    pub fn lanes(&self) -> usize {
        self.isa.vector_bytes() / 4
    }

    /// Returns the key of the CPU's records: `cpu:MODEL:ISA:FEATURES:CACHES:CLASS:threads=N`, as in
    /// `cpu:AuthenticAMD-25-17:avx512:avx512bf16+avx512vnni:32K+1M+32M:fma4+add3:threads=2`. Caches
    /// are the first and second level of a core and the last level. The class is
    /// [`CpuTarget::latency_cycles`].
    pub fn key(&self) -> String {
        let features = if self.features.is_empty() { "-".into() } else { self.features.join("+") };
        let caches = [self.l1d_bytes, self.l2_bytes, self.l3_bytes].map(size_text).join("+");
        let class = self.latency_cycles.map_or("?".into(), |[fma, add]| format!("fma{fma}+add{add}"));
        let Self { model, isa, threads, .. } = self;
        format!("cpu:{model}:{isa}:{features}:{caches}:{class}:threads={threads}")
    }

    /// Returns the key of the CPU's records in earlier versions.
    pub(super) fn legacy_key(&self) -> String {
        format!("cpu:{}:{}:threads={}", self.model, self.isa, self.threads)
    }
}

/// Formats a size in the largest unit that divides it: `32K`, `1280K`, `2M`.
fn size_text(bytes: usize) -> String {
    let units = [(1 << 20, "M"), (1 << 10, "K")];
    let unit = units.into_iter().find(|&(unit, _)| bytes > 0 && bytes.is_multiple_of(unit));
    unit.map_or_else(|| bytes.to_string(), |(unit, word)| format!("{}{word}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_beyond_the_machine_are_refused() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert!(matches!(CpuTarget::detect(Some(cores + 1)), Err(TargetError::Threads { .. })));
        assert!(matches!(CpuTarget::detect(Some(0)), Err(TargetError::Threads { .. })));
        assert_eq!(CpuTarget::detect(None).unwrap().threads, cores);
    }

    #[test]
    fn extensions_can_be_left_out() {
        let with = |isa| CpuTarget { isa, features: vec!["avx512bf16".into()], ..CpuTarget::generic_avx2(2) };
        let plain = |isa| Ok(CpuTarget { isa, ..CpuTarget::generic_avx2(2) });
        for (own, isa) in [(Isa::Avx512, Isa::Avx512), (Isa::Avx512, Isa::Avx2), (Isa::Avx2, Isa::Avx2)] {
            assert_eq!(with(own).restricted("cpu:any", isa), plain(isa));
        }
        for (own, isa) in [(Isa::Avx2, Isa::Avx512), (Isa::Neon, Isa::Avx2)] {
            let refused = Err(TargetError::Isa { word: "cpu:any", isa: own });
            assert_eq!(with(own).restricted("cpu:any", isa), refused);
        }
    }

    #[test]
    fn detected_keys_have_seven_words() {
        let key = CpuTarget::detect(Some(1)).unwrap().key();
        let words: Vec<&str> = key.split(':').collect();
        assert_eq!(words.len(), 7, "{key}");
        assert!(words[0] == "cpu" && words[6] == "threads=1" && !key.contains(char::is_whitespace), "{key}");
        assert_eq!(key, CpuTarget::detect(Some(1)).unwrap().key());
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit_that_divides_them() {
        assert_eq!([32 << 10, 1280 << 10, 2 << 20, 1000, 0].map(size_text), ["32K", "1280K", "2M", "1000", "0"]);
    }
}
