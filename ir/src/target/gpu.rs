//! GPU targets: the API that kernels are written for, and the limits of the device.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::machine::gpu::{REGISTERS, WARP_THREADS};

/// Language of GPU kernels and API that launches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuApi {
    /// CUDA C for one compute capability.
    Cuda {
        /// Compute capability times ten, as in `sm_90`.
        sm: u32,
    },
    /// OpenCL C 1.2, for devices of any vendor.
    OpenCl,
}

/// Formats the API as in the name of a stated target: `cuda:sm_90`, `opencl`.
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
    /// Language of kernels and API that launches them.
    pub api: GpuApi,
    /// Model name without spaces; `any` for a stated target.
    pub model: String,
    /// Number of multiprocessors (OpenCL: compute units).
    pub multiprocessors: usize,
    /// Threads that execute an instruction together.
    pub warp_threads: usize,
    /// Maximum threads per block.
    pub threads_per_block: usize,
    /// Maximum resident threads per multiprocessor.
    pub threads_per_multiprocessor: usize,
    /// Maximum bytes of shared memory (OpenCL: local memory) per block, including dynamic memory.
    pub shared_bytes_per_block: usize,
    /// Bytes of shared memory per multiprocessor.
    pub shared_bytes_per_multiprocessor: usize,
    /// 32-bit registers per multiprocessor.
    pub registers_per_multiprocessor: usize,
    /// Maximum 32-bit registers per thread.
    pub registers_per_thread: usize,
    /// Bytes of the device's second-level cache.
    pub l2_bytes: usize,
}

/// Limits by compute capability, from the technical specifications in the CUDA C++ Programming
/// Guide, and for 10.0 and later from NVIDIA's CCCL (`cuda/__device/arch_traits.h`).
/// Multiprocessors and second-level cache are those of a common device: V100, T4, A100, RTX 3090,
/// RTX 4090, H100 SXM, B200, B300, RTX 5090.
///
/// Columns: compute capability times ten, multiprocessors, threads per multiprocessor, KiB of
/// shared memory per multiprocessor, KiB per block, MiB of second-level cache.
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
    /// Model name of a stated GPU.
    pub(super) const ANY: &str = "any";

    /// Returns the GPU stated by `word`, whether this machine has one or not. `cuda:sm_90` (70, 75,
    /// 80, 86, 89, 90, 100, 103, 120) has the limits of its compute capability. `opencl` has limits
    /// that most devices satisfy (256 threads per group, 32 KiB of local memory).
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

    /// Returns all names that [`GpuTarget::stated`] accepts.
    pub fn stated_words() -> impl Iterator<Item = String> {
        let cuda = CUDA_LIMITS.iter().map(|limits| format!("cuda:sm_{}", limits[0]));
        cuda.chain(["opencl".to_string()])
    }

    /// Returns true for a stated GPU, false for a detected one.
    pub fn is_stated(&self) -> bool {
        self.model == Self::ANY
    }

    /// Returns the key of the GPU's records in the database: API, compute capability and model.
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
