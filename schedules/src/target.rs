//! The machine that code is made for: a CPU (instruction set, cores, caches) or a GPU (interface, limits).

use std::fmt;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::workload::DType;

mod gpu;

pub use gpu::{GpuApi, GpuTarget};

/// Instruction set family of a CPU target, as far as the code generators care.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isa {
    /// x86-64 with AVX-512 F and VL.
    Avx512,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// 64-bit Arm with Advanced SIMD.
    Neon,
    /// Anything else; 128-bit vectors are assumed.
    Generic,
}

impl Isa {
    /// Width of one vector register in bytes.
    pub fn vector_bytes(self) -> usize {
        match self {
            Isa::Avx512 => 64,
            Isa::Avx2 => 32,
            Isa::Neon | Isa::Generic => 16,
        }
    }

    /// Architectural vector registers.
    pub fn vector_registers(self) -> usize {
        match self {
            Isa::Avx512 | Isa::Neon => 32,
            Isa::Avx2 | Isa::Generic => 16,
        }
    }

    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
                return Isa::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Isa::Avx2;
            }
        }
        if cfg!(target_arch = "aarch64") { Isa::Neon } else { Isa::Generic }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Neon => "neon",
            Isa::Generic => "generic",
        })
    }
}

/// A CPU and the number of its cores that a kernel may use.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CpuTarget {
    /// Processor model: vendor, family and model number, without spaces.
    pub model: String,
    /// Instruction set.
    pub isa: Isa,
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
}

/// The machine that code is made for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Target {
    /// A CPU.
    Cpu(CpuTarget),
    /// A GPU.
    Gpu(GpuTarget),
}

/// Why a target cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TargetError {
    /// The word names no target.
    #[error("unknown target '{word}': expected 'cpu', 'cuda', 'opencl' or one of {}", gpu::STATED_CUDA.join(", "))]
    Unknown {
        /// The word.
        word: String,
    },
    /// A number of threads for a GPU.
    #[error("--threads is for CPUs, not for '{0}'")]
    GpuThreads(String),
    /// More threads than cores, or none.
    #[error("--threads {threads} does not fit this machine: it has {cores} core(s)")]
    Threads {
        /// The number asked for.
        threads: usize,
        /// The number of cores there are.
        cores: usize,
    },
}

impl Target {
    /// The target called `word`: `cpu` is this machine's, for kernels of `threads` threads (all cores if `None`); a GPU is
    /// stated, whether this machine has one or not ([`GpuTarget::stated`]).
    pub fn detect(word: &str, threads: Option<usize>) -> Result<Self, TargetError> {
        match (word, GpuTarget::stated(word)) {
            ("cpu", _) => Ok(Target::Cpu(CpuTarget::detect(threads)?)),
            (_, None) => Err(TargetError::Unknown { word: word.to_string() }),
            (_, Some(_)) if threads.is_some() => Err(TargetError::GpuThreads(word.to_string())),
            (_, Some(gpu)) => Ok(Target::Gpu(gpu)),
        }
    }

    /// The key under which the database keeps this target's records: stable across runs, unique per processor model,
    /// instruction set and thread count, or per GPU model and compute capability.
    pub fn key(&self) -> String {
        match self {
            Target::Cpu(c) => format!("cpu:{}:{}:threads={}", c.model, c.isa, c.threads),
            Target::Gpu(g) => g.key(),
        }
    }

    /// The CPU, if it is one.
    pub fn cpu(&self) -> Option<&CpuTarget> {
        match self {
            Target::Cpu(c) => Some(c),
            Target::Gpu(_) => None,
        }
    }

    /// The GPU, if it is one.
    pub fn gpu(&self) -> Option<&GpuTarget> {
        match self {
            Target::Cpu(_) => None,
            Target::Gpu(g) => Some(g),
        }
    }

    /// True if there are kernels for elements of a type. CPUs and OpenCL have f32 only; CUDA has f16, too, and from compute
    /// capability 8.0 on bf16 and tf32.
    pub fn supports(&self, dtype: DType) -> bool {
        match (self.gpu().map(|g| g.api), dtype) {
            (_, DType::F32) | (Some(GpuApi::Cuda { .. }), DType::F16) => true,
            (Some(GpuApi::Cuda { sm }), DType::Bf16 | DType::Tf32) => sm >= 80,
            (None | Some(GpuApi::OpenCl), DType::F16 | DType::Bf16 | DType::Tf32) => false,
        }
    }

    /// Model of the processor, without spaces.
    pub fn device(&self) -> &str {
        match self {
            Target::Cpu(c) => &c.model,
            Target::Gpu(g) => &g.model,
        }
    }

    /// Host threads that run a kernel: those of a CPU's kernel, the one that launches a GPU's.
    pub fn threads(&self) -> usize {
        self.cpu().map_or(1, |c| c.threads)
    }

    /// The cache behind which there is only memory.
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

impl CpuTarget {
    /// The CPU this process runs on. Sizes that the system does not tell are set to common ones
    /// (32 KiB, 512 KiB, 8 MiB).
    pub fn detect(threads: Option<usize>) -> Result<Self, TargetError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or(cores);
        if threads == 0 || threads > cores {
            return Err(TargetError::Threads { threads, cores });
        }
        let cache = |index| cache_bytes(Path::new("/sys/devices/system/cpu/cpu0/cache"), index);
        Ok(Self {
            model: cpu_model(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            isa: Isa::detect(),
            cores,
            threads,
            l1d_bytes: cache(0).unwrap_or(32 << 10),
            l2_bytes: cache(2).unwrap_or(512 << 10),
            l3_bytes: cache(3).unwrap_or(8 << 20),
        })
    }

    /// A fixed AVX2 machine (32 KiB, 512 KiB, 32 MiB) for tests, documentation and golden files.
    pub fn generic_avx2(threads: usize) -> Self {
        Self {
            model: "test".into(),
            isa: Isa::Avx2,
            cores: threads,
            threads,
            l1d_bytes: 32 << 10,
            l2_bytes: 512 << 10,
            l3_bytes: 32 << 20,
        }
    }

    /// f32 lanes of one vector register.
    pub fn lanes(&self) -> usize {
        self.isa.vector_bytes() / 4
    }
}

/// `vendor-family-model` of the first processor in the text of `/proc/cpuinfo`, or the architecture's name.
fn cpu_model(cpuinfo: &str) -> String {
    let field = |name: &str| {
        cpuinfo
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim().replace([' ', ':', '/'], "_"))
    };
    let words: Vec<String> =
        ["vendor_id", "cpu family", "model", "CPU implementer", "CPU part"].iter().filter_map(|n| field(n)).collect();
    if words.is_empty() { std::env::consts::ARCH.to_string() } else { words.join("-") }
}

/// Size of the cache described in `dir/index{index}` (0 is the first level's data cache on Linux).
fn cache_bytes(dir: &Path, index: usize) -> Option<usize> {
    let text = fs::read_to_string(dir.join(format!("index{index}/size"))).ok()?;
    let text = text.trim();
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
    fn model_comes_from_cpuinfo() {
        let text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD\n";
        assert_eq!(cpu_model(text), "AuthenticAMD-25-17");
        assert_eq!(cpu_model(""), std::env::consts::ARCH);
    }

    #[test]
    fn threads_beyond_the_machine_are_refused() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert!(matches!(CpuTarget::detect(Some(cores + 1)), Err(TargetError::Threads { .. })));
        assert!(matches!(CpuTarget::detect(Some(0)), Err(TargetError::Threads { .. })));
        assert_eq!(CpuTarget::detect(None).unwrap().threads, cores);
    }

    #[test]
    fn keys_differ_by_threads() {
        let key = |threads| Target::Cpu(CpuTarget::generic_avx2(threads)).key();
        assert_eq!(key(1), "cpu:test:avx2:threads=1");
        assert_ne!(key(1), key(2));
    }
}
