//! A CPU: what it is, and what records of its times are kept under.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::system::System;
use super::{Isa, Rates, TargetError, class};

/// A CPU and the number of its cores that a kernel may use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CpuTarget {
    /// Processor model: vendor, family and model number, without spaces. Under virtualisation it
    /// may be another's.
    pub model: String,
    /// Instruction set.
    pub isa: Isa,
    /// What it has beyond the instruction set that code could use, sorted.
    pub features: Vec<String>,
    /// Cores of the machine.
    pub cores: usize,
    /// Threads a kernel runs on, 1 to `cores`.
    pub threads: usize,
    /// First-level data cache of one core.
    pub l1d_bytes: usize,
    /// Second-level cache of one core.
    pub l2_bytes: usize,
    /// Last-level cache, shared by the cores.
    pub l3_bytes: usize,
    /// Clock cycles from the operands of an f32 vector multiply-add, and of an addition, to its
    /// result, measured; `None` where that cannot be measured.
    pub latency_cycles: Option<[u32; 2]>,
    /// What was measured of it besides, for the analysis; no part of its key.
    #[serde(default)]
    pub rates: Rates,
}

impl CpuTarget {
    /// The CPU this process runs on. Sizes that the system does not tell are set to common ones (32
    /// KiB, 512 KiB, 8 MiB), and rates are nominal. The first call of a process measures for some
    /// milliseconds.
    pub fn detect(threads: Option<usize>) -> Result<Self, TargetError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or(cores);
        if threads == 0 || threads > cores {
            return Err(TargetError::Threads { threads, cores });
        }
        static MACHINE: OnceLock<CpuTarget> = OnceLock::new();
        Ok(Self { cores, threads, ..MACHINE.get_or_init(Self::of_one_core).clone() })
    }

    /// This machine for code that machines without AVX-512 run, too.
    pub(super) fn without_avx512(self) -> Result<Self, TargetError> {
        match self.isa {
            Isa::Avx512 => Ok(Self { isa: Isa::Avx2, features: Vec::new(), ..self }),
            Isa::Avx2 => Ok(self),
            isa => Err(TargetError::Isa(isa)),
        }
    }

    /// This machine as if it had one core.
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

    /// A fixed AVX2 machine (32 KiB, 512 KiB, 32 MiB) for tests, documentation and golden files.
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

    /// f32 lanes of one vector register.
    pub fn lanes(&self) -> usize {
        self.isa.vector_bytes() / 4
    }

    /// The key of its records: `cpu:MODEL:ISA:FEATURES:CACHES:CLASS:threads=N`, as in
    /// `cpu:AuthenticAMD-25-17:avx512:avx512bf16+avx512vnni:32K+1M+32M:fma4+add3:threads=2`. Caches
    /// are those of the first and the second level of a core and the last level; the class is
    /// [`CpuTarget::latency_cycles`].
    pub fn key(&self) -> String {
        let features = if self.features.is_empty() { "-".into() } else { self.features.join("+") };
        let caches = [self.l1d_bytes, self.l2_bytes, self.l3_bytes].map(size_text).join("+");
        let class = self.latency_cycles.map_or("?".into(), |[fma, add]| format!("fma{fma}+add{add}"));
        let Self { model, isa, threads, .. } = self;
        format!("cpu:{model}:{isa}:{features}:{caches}:{class}:threads={threads}")
    }

    /// The key of its records in earlier versions.
    pub(super) fn legacy_key(&self) -> String {
        format!("cpu:{}:{}:threads={}", self.model, self.isa, self.threads)
    }
}

/// `32K`, `1280K`, `2M`.
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
    fn what_goes_beyond_avx2_can_be_left_out() {
        let with = |isa| CpuTarget { isa, features: vec!["avx512bf16".into()], ..CpuTarget::generic_avx2(2) };
        let without = with(Isa::Avx512).without_avx512().unwrap();
        assert_eq!(without, CpuTarget::generic_avx2(2));
        assert_eq!(with(Isa::Avx2).without_avx512(), Ok(with(Isa::Avx2)));
        assert_eq!(with(Isa::Neon).without_avx512(), Err(TargetError::Isa(Isa::Neon)));
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
