//! Parameters of the target that the analysis uses.

use crate::target::{CpuTarget, GpuTarget, Rates, Target};

/// A core of a CPU, or a GPU's multiprocessor treated as a core.
#[derive(Clone, Copy, Debug)]
pub struct Core {
    /// Number of cores that a kernel runs on, one thread each.
    pub threads: usize,
    /// Lanes of a vector register for f32 elements.
    pub lanes: usize,
    /// Number of vector registers.
    pub vector_registers: usize,
    /// Capacity in bytes of the first-level data, second-level and third-level cache.
    pub cache_bytes: [f64; 3],
    /// Rates of the caches, of memory and of fork-join; nominal for a multiprocessor, whose own
    /// rates are in [`Kernels`](super::gpu::Kernels).
    pub rates: Rates,
}

impl Core {
    /// Returns the parameters of a target.
    pub(super) fn of(target: &Target) -> Self {
        match target {
            Target::Cpu(cpu) => Self::of_cpu(cpu),
            Target::Gpu(gpu) => Self::of_gpu(gpu),
        }
    }

    fn of_cpu(cpu: &CpuTarget) -> Self {
        Self {
            threads: cpu.threads.max(1),
            lanes: cpu.lanes(),
            vector_registers: cpu.isa.vector_registers(),
            cache_bytes: [cpu.l1d_bytes, cpu.l2_bytes, cpu.l3_bytes].map(|b| b.max(1) as f64),
            rates: cpu.rates,
        }
    }

    /// Treats a multiprocessor as a core: the registers of one of its threads, its shared memory,
    /// and the device's second-level cache.
    fn of_gpu(gpu: &GpuTarget) -> Self {
        Self {
            threads: gpu.multiprocessors.max(1),
            lanes: 1,
            vector_registers: gpu.registers_per_thread,
            cache_bytes: [gpu.shared_bytes_per_block, gpu.l2_bytes, gpu.l2_bytes].map(|b| b.max(1) as f64),
            rates: Rates::NOMINAL,
        }
    }
}
