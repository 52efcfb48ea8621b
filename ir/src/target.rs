//! Target machines of generated code: a CPU (instruction set, cores, caches) or a GPU (API,
//! limits).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;

mod class;
mod cpu;
mod error;
mod gpu;
mod isa;
mod key;
mod rates;
mod system;

pub use cpu::CpuTarget;
pub use error::TargetError;
pub use gpu::{GpuApi, GpuTarget};
pub use isa::Isa;
pub use key::{KeyParts, KeyScope};
pub use rates::Rates;

/// The machine that code is generated for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// A CPU with a number of threads.
    Cpu(CpuTarget),
    /// A GPU with its limits.
    Gpu(GpuTarget),
}

impl Target {
    /// Returns the target called `word`. `cpu` is this machine's CPU with `threads` threads (all
    /// cores if `None`); `cpu:avx2` is the same without instruction sets beyond AVX2, and
    /// `cpu:avx512` without extensions of AVX-512 F and VL. Any other word names a GPU by its
    /// stated properties, whether this machine has one or not ([`GpuTarget::stated`]).
    pub fn detect(word: &str, threads: Option<usize>) -> Result<Self, TargetError> {
        match (word, GpuTarget::stated(word)) {
            ("cpu", _) => Ok(Target::Cpu(CpuTarget::detect(threads)?)),
            ("cpu:avx2", _) => Ok(Target::Cpu(CpuTarget::detect(threads)?.restricted("cpu:avx2", Isa::Avx2)?)),
            ("cpu:avx512", _) => Ok(Target::Cpu(CpuTarget::detect(threads)?.restricted("cpu:avx512", Isa::Avx512)?)),
            (_, None) => {
                let stated = GpuTarget::stated_words().collect::<Vec<_>>().join(", ");
                Err(TargetError::Unknown { word: word.to_string(), stated })
            }
            (_, Some(_)) if threads.is_some() => Err(TargetError::GpuThreads(word.to_string())),
            (_, Some(gpu)) => Ok(Target::Gpu(gpu)),
        }
    }

    /// Returns the key of the target's records in the database. It is stable across runs and
    /// differs between machines on which kernels take different times ([`CpuTarget::key`],
    /// [`GpuTarget::key`]).
    pub fn key(&self) -> String {
        match self {
            Target::Cpu(c) => c.key(),
            Target::Gpu(g) => g.key(),
        }
    }

    /// Returns the key that earlier versions used for a CPU. It contains only model, instruction
    /// sets and number of threads, so that different machines may share it. `None` for GPUs, whose
    /// keys have not changed.
    pub fn legacy_key(&self) -> Option<String> {
        self.cpu().map(CpuTarget::legacy_key)
    }

    /// Returns this target with measured rates; GPUs are unchanged.
    pub fn with_rates(self, rates: Rates) -> Self {
        match self {
            Target::Cpu(cpu) => Target::Cpu(CpuTarget { rates, ..cpu }),
            gpu @ Target::Gpu(_) => gpu,
        }
    }

    /// Returns the CPU, if the target is one.
    pub fn cpu(&self) -> Option<&CpuTarget> {
        match self {
            Target::Cpu(c) => Some(c),
            Target::Gpu(_) => None,
        }
    }

    /// Returns the GPU, if the target is one.
    pub fn gpu(&self) -> Option<&GpuTarget> {
        match self {
            Target::Cpu(_) => None,
            Target::Gpu(g) => Some(g),
        }
    }

    /// Returns true if all operators have kernels for this type. OpenCL supports f32 only; CPUs
    /// also bf16; CUDA also f16, and from compute capability 8.0 on bf16 and tf32.
    pub fn supports(&self, dtype: DType) -> bool {
        match (self.gpu().map(|g| g.api), dtype) {
            (_, DType::F32) | (None, DType::Bf16) | (Some(GpuApi::Cuda { .. }), DType::F16) => true,
            (Some(GpuApi::Cuda { sm }), DType::Bf16 | DType::Tf32) => sm >= 80,
            _ => false,
        }
    }

    /// Returns true if contractions have kernels for factors of this type: the types that
    /// [`Target::supports`], and integers on CPUs.
    pub fn multiplies(&self, dtype: DType) -> bool {
        self.supports(dtype) || self.cpu().is_some() && dtype.has_cpu_products()
    }

    /// Returns true if casts may convert elements from and to this type in loads and stores: the
    /// types that [`Target::supports`], and f16 and bf16 on CPUs and OpenCL.
    pub fn supports_cast(&self, dtype: DType) -> bool {
        let is_cuda = matches!(self.gpu().map(|gpu| gpu.api), Some(GpuApi::Cuda { .. }));
        self.supports(dtype) || !is_cuda && matches!(dtype, DType::F16 | DType::Bf16)
    }

    /// Returns the processor's model name, without spaces.
    pub fn device(&self) -> &str {
        match self {
            Target::Cpu(c) => &c.model,
            Target::Gpu(g) => &g.model,
        }
    }

    /// Returns the number of host threads that run a kernel: those of a CPU kernel, or the one that
    /// launches a GPU kernel.
    pub fn threads(&self) -> usize {
        self.cpu().map_or(1, |c| c.threads)
    }

    /// Returns the bytes of the last-level cache.
    pub fn last_level_cache_bytes(&self) -> usize {
        match self {
            Target::Cpu(c) => c.l3_bytes,
            Target::Gpu(g) => g.l2_bytes,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_what_makes_times_differ() {
        let cpu = CpuTarget::generic_avx2(1);
        let others = [
            CpuTarget { threads: 2, ..cpu.clone() },
            CpuTarget { model: "other".into(), ..cpu.clone() },
            CpuTarget { isa: Isa::Avx512, ..cpu.clone() },
            CpuTarget { features: vec!["amx".into()], ..cpu.clone() },
            CpuTarget { l1d_bytes: 48 << 10, ..cpu.clone() },
            CpuTarget { l2_bytes: 1280 << 10, ..cpu.clone() },
            CpuTarget { l3_bytes: 480 << 20, ..cpu.clone() },
            CpuTarget { latency_cycles: Some([5, 3]), ..cpu.clone() },
            CpuTarget { latency_cycles: None, ..cpu.clone() },
        ];
        let keys: std::collections::BTreeSet<String> =
            others.iter().chain([&cpu]).map(|cpu| Target::Cpu(cpu.clone()).key()).collect();
        assert_eq!(keys.len(), others.len() + 1, "{keys:?}");
    }

    #[test]
    fn rates_are_no_part_of_a_key_and_of_nothing_for_gpus() {
        let slow = Rates { bytes_per_kilocycle: [1; 3], fork_join_cycles: u32::MAX };
        let cpu = Target::Cpu(CpuTarget::generic_avx2(2));
        let rated = cpu.clone().with_rates(slow);
        assert_ne!(rated, cpu);
        assert_eq!((rated.key(), rated.to_string()), (cpu.key(), cpu.to_string()));
        assert_eq!(rated.legacy_key(), cpu.legacy_key());
        assert_eq!(Target::of_key(&rated.key()).unwrap().cpu().unwrap().rates, Rates::NOMINAL);
        assert_eq!(rated.with_rates(Rates::NOMINAL), cpu);
        let gpu = Target::Gpu(GpuTarget::stated("cuda:sm_90").unwrap());
        assert_eq!(gpu.clone().with_rates(slow), gpu);
    }

    #[test]
    fn the_legacy_key_is_what_databases_have() {
        let target = Target::Cpu(CpuTarget { latency_cycles: None, ..CpuTarget::generic_avx2(3) });
        assert_eq!(target.key(), "cpu:test:avx2:-:32K+512K+32M:?:threads=3");
        assert_eq!(target.legacy_key().unwrap(), "cpu:test:avx2:threads=3");
        let gpu = GpuTarget::stated("cuda:sm_90").unwrap();
        assert_eq!(Target::Gpu(gpu).legacy_key(), None);
    }
}
