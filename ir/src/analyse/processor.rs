//! What is used of the target.

use crate::target::{CpuTarget, GpuTarget, Rates, Target};

/// A core of the target: of a CPU, or a multiprocessor as one.
#[derive(Clone, Copy, Debug)]
pub struct Core {
    /// Cores that a kernel runs on, a thread each.
    pub threads: usize,
    /// f32 lanes of a vector register.
    pub lanes: usize,
    /// Vector registers.
    pub vector_registers: usize,
    /// First-level data, second-level and third-level cache.
    pub cache_bytes: [f64; 3],
    /// Rates of the caches, of memory and of the threads' meeting; nominal ones for a
    /// multiprocessor, whose own are its kernels'.
    pub rates: Rates,
}

impl Core {
    /// A core of a target.
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

    /// A multiprocessor as a core: the registers of one of its threads, its shared memory, and the
    /// cache of all of them.
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
