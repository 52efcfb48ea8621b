//! Figures of what a device can do at best.

use autotune_ir::{DType, Rates, Target};
use autotune_workloads::Work;
use serde::{Deserialize, Serialize};

use crate::error::MeasureError;

/// Measured ceilings of a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// f32 multiply-adds on one core, two FLOP each, per second; on a GPU, a multiprocessor's share
    /// of all.
    pub core_flops_per_sec: f64,
    /// The same on the target's threads; on a GPU, on all of it, without tensor cores.
    pub flops_per_sec: f64,
    /// The same with f16 or bf16 operands and f32 sums: tensor cores, by the matrix instructions of
    /// warps (CUDA from compute capability 8.0 on) or, where those are faster, of warp groups
    /// (9.0); on a CPU with bf16 operands, if an instruction multiplies them; else `flops_per_sec`.
    pub half_flops_per_sec: f64,
    /// The same with tf32 operands.
    pub tf32_flops_per_sec: f64,
    /// The same with operands of bytes and sums of 32 bits, if an instruction of a CPU multiplies
    /// them; else `flops_per_sec`.
    pub byte_flops_per_sec: f64,
    /// Bytes read plus bytes written per second by a copy in memory, larger than any cache, on the
    /// target's threads.
    pub bytes_per_sec: f64,
    /// Bytes read per second from the second-level caches, from the last-level cache and from
    /// memory, on the target's threads. A GPU's second-level cache is its last.
    pub read_bytes_per_sec: [f64; 3],
    /// Sizes of the second-level caches of the target's threads together and of the last-level
    /// cache.
    pub cache_bytes: [f64; 2],
    /// Seconds that a stage of next to no work takes on the target's threads, run after run: what a
    /// fork and join costs; on a GPU, a launch.
    pub fork_join_secs: f64,
}

impl Ceilings {
    /// Of each figure the better one.
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

    /// A target with the [rates](Rates) that these ceilings are for its peak, of which its threads
    /// share the caches and memory evenly. A GPU is what it was.
    pub fn rated(&self, target: &Target) -> Target {
        let Some(cpu) = target.cpu() else { return target.clone() };
        let [l2, l3, memory] = self.read_bytes_per_sec;
        let threads = cpu.threads.max(1) as f64;
        let read = [l2 / threads, l3 / threads, memory];
        target.clone().with_rates(Rates::measured(cpu.lanes(), self.core_flops_per_sec, read, self.fork_join_secs))
    }

    /// Multiply-adds of a type, two FLOP each, per second on the target's threads or on all of the
    /// GPU.
    pub fn dtype_flops_per_sec(&self, dtype: DType) -> f64 {
        match dtype {
            DType::Tf32 => self.tf32_flops_per_sec,
            DType::F16 | DType::Bf16 => self.half_flops_per_sec,
            DType::I8 | DType::U8 => self.byte_flops_per_sec,
            _ => self.flops_per_sec,
        }
    }

    /// The least seconds in which an algorithm can be run over and over on operands of a type: all
    /// operations at full speed, or every byte moved once, from the cache that all of them fit,
    /// whichever takes longer.
    pub fn min_secs(&self, work: Work, dtype: DType) -> f64 {
        let Work { flops, bytes } = work;
        let level = self.cache_bytes.iter().position(|&size| bytes <= size).unwrap_or(self.cache_bytes.len());
        (flops / self.dtype_flops_per_sec(dtype)).max(bytes / self.read_bytes_per_sec[level])
    }
}

/// The error of ceilings that cannot be measured.
pub(super) fn fault(cause: impl std::fmt::Display) -> MeasureError {
    MeasureError::Ceilings { message: cause.to_string() }
}
