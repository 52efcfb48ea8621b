//! Figures of a device's ceilings.

use autotune_ir::{DType, Rates, Target};
use autotune_workloads::Work;
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;

/// Measured peak rates of a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Rate of f32 multiply-adds on one core, in FLOP per second (two per multiply-add); on a GPU,
    /// the total divided by the number of multiprocessors.
    pub core_flops_per_sec: f64,
    /// Rate of f32 multiply-adds on all the target's threads; on a GPU, on the whole device without
    /// tensor cores.
    pub flops_per_sec: f64,
    /// Rate of multiply-adds with f16 or bf16 operands and f32 sums. On CUDA from compute
    /// capability 8.0 on, tensor cores by matrix instructions of warps, or of warp groups (9.0)
    /// where those are faster. On a CPU with instructions for it, bf16 dot products or products of
    /// tiles. Otherwise `flops_per_sec`.
    pub half_flops_per_sec: f64,
    /// Rate of multiply-adds with tf32 operands: by tensor cores where a GPU has them, otherwise
    /// `flops_per_sec`.
    pub tf32_flops_per_sec: f64,
    /// Rate of multiply-adds with 8-bit operands and 32-bit sums, if a CPU has instructions for it,
    /// of vectors or of tiles; otherwise `flops_per_sec`.
    pub byte_flops_per_sec: f64,
    /// Bytes read plus bytes written per second by a copy on the target's threads, of memory larger
    /// than any cache.
    pub bytes_per_sec: f64,
    /// Bytes read per second on the target's threads from the second-level caches, from the
    /// last-level cache and from memory. A GPU's second-level cache is its last level.
    pub read_bytes_per_sec: [f64; 3],
    /// Bytes of the second-level caches of all the target's threads together, and of the last-level
    /// cache.
    pub cache_bytes: [f64; 2],
    /// Seconds per run of a stage with almost no work on the target's threads, repeated: the cost
    /// of a fork and join, or, on a GPU, of a launch.
    pub fork_join_secs: f64,
}

impl Ceilings {
    /// Returns the better of each figure.
    pub(super) fn best_of(self, other: Self) -> Self {
        let [a, b] = [self.read_bytes_per_sec, other.read_bytes_per_sec];
        Self {
            core_flops_per_sec: self.core_flops_per_sec.max(other.core_flops_per_sec),
            flops_per_sec: self.flops_per_sec.max(other.flops_per_sec),
            half_flops_per_sec: self.half_flops_per_sec.max(other.half_flops_per_sec),
            tf32_flops_per_sec: self.tf32_flops_per_sec.max(other.tf32_flops_per_sec),
            byte_flops_per_sec: self.byte_flops_per_sec.max(other.byte_flops_per_sec),
            bytes_per_sec: self.bytes_per_sec.max(other.bytes_per_sec),
            read_bytes_per_sec: [a[0].max(b[0]), a[1].max(b[1]), a[2].max(b[2])],
            cache_bytes: self.cache_bytes,
            fork_join_secs: self.fork_join_secs.min(other.fork_join_secs),
        }
    }

    /// Returns the target with the [rates](Rates) that follow from these ceilings: cache and memory
    /// bandwidth per thread, and fork-join cost, relative to its peak. A GPU target is returned
    /// unchanged.
    pub fn rated(&self, target: &Target) -> Target {
        let Some(cpu) = target.cpu() else { return target.clone() };
        let [l2, l3, memory] = self.read_bytes_per_sec;
        let threads = cpu.threads.max(1) as f64;
        let read = [l2 / threads, l3 / threads, memory];
        target.clone().with_rates(Rates::measured(cpu.lanes(), self.core_flops_per_sec, read, self.fork_join_secs))
    }

    /// Returns the FLOP per second of multiply-adds of a type, on all the target's threads or on
    /// the whole GPU.
    pub fn dtype_flops_per_sec(&self, dtype: DType) -> f64 {
        match dtype {
            DType::Tf32 => self.tf32_flops_per_sec,
            DType::F16 | DType::Bf16 => self.half_flops_per_sec,
            DType::I8 | DType::U8 => self.byte_flops_per_sec,
            _ => self.flops_per_sec,
        }
    }

    /// Returns the roofline bound: the least seconds per run of an algorithm that runs repeatedly
    /// on operands of a type. It is the larger of two times: all operations at peak rate, and every
    /// byte moved once from the smallest cache that holds all of them.
    pub fn min_secs(&self, work: Work, dtype: DType) -> f64 {
        let Work { flops, bytes } = work;
        let level = self.cache_bytes.iter().position(|&size| bytes <= size).unwrap_or(self.cache_bytes.len());
        (flops / self.dtype_flops_per_sec(dtype)).max(bytes / self.read_bytes_per_sec[level])
    }
}

/// Returns the error for ceilings that cannot be measured.
pub(super) fn fault(cause: impl std::fmt::Display) -> MeasureError {
    MeasureError::Ceilings { message: cause.to_string() }
}
