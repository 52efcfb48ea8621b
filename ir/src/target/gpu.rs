//! GPUs: the interface that kernels are written for, and what a kernel may use.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::gpu::{REGISTERS, WARP_THREADS};

/// What kernels are written in and launched through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuApi {
    /// CUDA C for one compute capability.
    Cuda {
        /// Compute capability times ten, as in `sm_90`.
        sm: u32,
    },
    /// OpenCL C 1.2.
    OpenCl,
}

/// The word that states it: `cuda:sm_90`, `opencl`.
impl fmt::Display for GpuApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuApi::Cuda { sm } => write!(f, "cuda:sm_{sm}"),
            GpuApi::OpenCl => f.write_str("opencl"),
        }
    }
}

/// A GPU and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GpuTarget {
    /// How it is programmed.
    pub api: GpuApi,
    /// Model without spaces; `any` for a stated target.
    pub model: String,
    /// Multiprocessors (OpenCL: compute units).
    pub multiprocessors: usize,
    /// Threads that run in step.
    pub warp_threads: usize,
    /// Most threads of a block.
    pub threads_per_block: usize,
    /// Most threads on a multiprocessor at once.
    pub threads_per_multiprocessor: usize,
    /// Most shared memory of a block (OpenCL: local memory), dynamic memory included.
    pub shared_bytes_per_block: usize,
    /// Shared memory of a multiprocessor.
    pub shared_bytes_per_multiprocessor: usize,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_multiprocessor: usize,
    /// Most 32-bit registers of a thread.
    pub registers_per_thread: usize,
    /// Second-level cache of the device.
    pub l2_bytes: usize,
}

/// Limits by compute capability, from the table of technical specifications in the CUDA C++
/// Programming Guide, and for 10.0 and later from NVIDIA's CCCL (`cuda/__device/arch_traits.h`);
/// multiprocessors and second-level cache are those of a common device: V100, T4, A100, RTX 3090,
/// RTX 4090, H100 SXM, B200, B300, RTX 5090. Columns: capability, multiprocessors, threads and KiB
/// of shared memory of a multiprocessor, KiB of a block, MiB of cache.
const CUDA_LIMITS: [[usize; 6]; 9] = [
    [70, 80, 2048, 96, 96, 6],
    [75, 40, 1024, 64, 64, 4],
    [80, 108, 2048, 164, 163, 40],
    [86, 82, 1536, 100, 99, 6],
    [89, 128, 1536, 100, 99, 72],
    [90, 132, 2048, 228, 227, 50],
    [100, 148, 2048, 228, 227, 126],
    [103, 148, 2048, 228, 227, 126],
    [120, 170, 1536, 100, 99, 96],
];

impl GpuTarget {
    /// Model of a GPU that is stated.
    pub(super) const ANY: &str = "any";

    /// The GPU of a word, whether there is one or not: `cuda:sm_90` (70, 75, 80, 86, 89, 90, 100,
    /// 103, 120) has the limits of its compute capability, `opencl` limits that most devices keep
    /// (256 threads a group, 32 KiB of local memory).
    ///
    /// ```
    /// use autotune_ir::GpuTarget;
    /// assert_eq!(GpuTarget::stated("cuda:sm_80").unwrap().shared_bytes_per_block, 163 << 10);
    /// assert_eq!(GpuTarget::stated("opencl").unwrap().threads_per_block, 256);
    /// ```
    pub fn stated(word: &str) -> Option<Self> {
        let opencl = Self {
            api: GpuApi::OpenCl,
            model: Self::ANY.into(),
            multiprocessors: 16,
            warp_threads: WARP_THREADS,
            threads_per_block: 256,
            threads_per_multiprocessor: 1024,
            shared_bytes_per_block: 32 << 10,
            shared_bytes_per_multiprocessor: 64 << 10,
            registers_per_multiprocessor: 32 << 10,
            registers_per_thread: 128,
            l2_bytes: 1 << 20,
        };
        if word == "opencl" {
            return Some(opencl);
        }
        let sm: usize = word.strip_prefix("cuda:sm_")?.parse().ok()?;
        let [_, multiprocessors, threads, shared_kib, block_kib, l2_mib] =
            *CUDA_LIMITS.iter().find(|limits| limits[0] == sm)?;
        Some(Self {
            api: GpuApi::Cuda { sm: sm as u32 },
            multiprocessors,
            threads_per_block: 1024,
            threads_per_multiprocessor: threads,
            shared_bytes_per_block: block_kib << 10,
            shared_bytes_per_multiprocessor: shared_kib << 10,
            registers_per_multiprocessor: REGISTERS,
            registers_per_thread: 255,
            l2_bytes: l2_mib << 20,
            ..opencl
        })
    }

    /// The words of [`GpuTarget::stated`].
    pub fn stated_words() -> impl Iterator<Item = String> {
        let cuda = CUDA_LIMITS.iter().map(|limits| format!("cuda:sm_{}", limits[0]));
        cuda.chain(["opencl".to_string()])
    }

    /// True for the GPU of a word, false for one that was detected.
    pub fn is_stated(&self) -> bool {
        self.model == Self::ANY
    }

    /// The key under which the database keeps its records: interface, compute capability and model.
    pub fn key(&self) -> String {
        format!("{}:{}", self.api, self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Target, TargetError};

    #[test]
    fn every_listed_word_has_limits_and_a_key_of_its_own() {
        let mut keys: Vec<String> =
            GpuTarget::stated_words().map(|word| Target::detect(&word, None).unwrap().key()).collect();
        assert!(keys.contains(&"cuda:sm_90:any".to_string()));
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), GpuTarget::stated_words().count());
        for word in GpuTarget::stated_words() {
            let target = Target::Gpu(GpuTarget::stated(&word).unwrap());
            let json = serde_json::to_string(&target).unwrap();
            assert_eq!(serde_json::from_str::<Target>(&json).unwrap(), target);
        }
    }

    #[test]
    fn other_words_are_refused() {
        for word in ["cuda", "cuda:sm_91", "cuda:90", "cuda:sm_", "opencl:0", "gpu"] {
            let error = Target::detect(word, None).unwrap_err().to_string();
            let expected = GpuTarget::stated_words().all(|stated| error.contains(&stated));
            assert!(expected && error.starts_with(&format!("unknown target '{word}': ")), "{error}");
        }
        assert_eq!(Target::detect("opencl", Some(2)), Err(TargetError::GpuThreads("opencl".into())));
    }
}
