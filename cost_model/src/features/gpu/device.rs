//! What a GPU does at once: resident blocks, and nominal rates of a multiprocessor.

use autotune_ir::{DType, GpuApi, GpuTarget};

use super::stage::StageWork;

/// Shared memory of a multiprocessor that each resident block takes beside its own.
const SHARED_BYTES_RESERVED: f64 = 1024.0;
/// Registers are dealt out to four warps at a time, eight for each thread.
const REGISTER_STEP: f64 = 8.0;
const WARPS_STEP: f64 = 4.0;
/// Threads of a multiprocessor for each block that it takes at most.
const THREADS_PER_BLOCK_SLOT: f64 = 64.0;

/// What limits the blocks on a multiprocessor.
pub(super) const LIMITS: &[&str] = &["threads", "registers", "shared", "blocks"];

/// Nominal rates and limits of one multiprocessor. Rates are per cycle; they make good features out of counts, and the
/// learned model corrects them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device {
    pub(super) multiprocessors: f64,
    pub(super) warp_threads: usize,
    /// Multiply-adds of threads, and of tensor cores for the workload's type.
    pub(super) fmas: f64,
    pub(super) tensor_fmas: Option<f64>,
    /// Bytes from the second-level cache.
    pub(super) l2_bytes: f64,
    /// Bytes from memory.
    pub(super) memory_bytes: f64,
    /// Size of the second-level cache.
    pub(super) cache_bytes: f64,
    threads: f64,
    registers: f64,
    shared_bytes: f64,
}

/// Instructions of warps that a multiprocessor starts in a cycle.
pub(super) const ISSUE: f64 = 4.0;
/// Cycles until global memory answers, and until all threads of a block have come by a barrier.
pub(super) const MEMORY_LATENCY: f64 = 500.0;
pub(super) const BARRIER_LATENCY: f64 = 30.0;
/// Cycles of a launch.
pub(super) const LAUNCH_CYCLES: f64 = 4000.0;

impl Device {
    pub(super) fn of(gpu: &GpuTarget, dtype: DType) -> Self {
        let fmas = match gpu.api {
            GpuApi::Cuda { sm: 70 | 75 | 80 } => 64.0,
            _ => 128.0,
        };
        let shared_bytes = gpu.shared_bytes_per_multiprocessor as f64;
        Self {
            multiprocessors: gpu.multiprocessors.max(1) as f64,
            warp_threads: gpu.warp_threads.max(1),
            fmas,
            tensor_fmas: tensor_fmas(gpu.api, dtype),
            l2_bytes: 48.0,
            memory_bytes: 12.0,
            cache_bytes: gpu.l2_bytes.max(1) as f64,
            threads: gpu.threads_per_multiprocessor as f64,
            registers: gpu.registers_per_multiprocessor as f64,
            shared_bytes,
        }
    }

    /// Multiply-adds at best.
    pub(super) fn peak_fmas(&self) -> f64 {
        self.tensor_fmas.unwrap_or(self.fmas)
    }

    /// Blocks of a stage that a multiprocessor has room for, were there only one of [`LIMITS`].
    pub(super) fn room(&self, work: &StageWork) -> [f64; 4] {
        [
            self.threads / (work.warps * self.warp_threads as f64),
            self.register_room(work.registers, work.warps),
            self.shared_bytes / (work.shared_bytes + SHARED_BYTES_RESERVED),
            self.threads / THREADS_PER_BLOCK_SLOT,
        ]
        .map(f64::floor)
    }

    /// Blocks of so many warps that a multiprocessor has so many registers a thread for.
    pub(super) fn register_room(&self, registers: f64, warps: f64) -> f64 {
        let registers = (registers / REGISTER_STEP).ceil() * REGISTER_STEP;
        (self.registers / (registers * self.dealt_threads(warps))).floor()
    }

    /// The most registers of a thread of a block of so many warps that there is room for.
    pub(super) fn registers_of_block(&self, warps: f64) -> f64 {
        (self.registers / self.dealt_threads(warps) / REGISTER_STEP).floor() * REGISTER_STEP
    }

    /// Threads that registers are dealt out to for so many warps.
    fn dealt_threads(&self, warps: f64) -> f64 {
        (warps / WARPS_STEP).ceil() * WARPS_STEP * self.warp_threads as f64
    }

    /// Blocks of a stage on a multiprocessor at once, at least one.
    pub(super) fn resident(&self, work: &StageWork) -> f64 {
        self.room(work).into_iter().fold(f64::INFINITY, f64::min).max(1.0)
    }

    /// Share of the warps that a multiprocessor has room for.
    pub(super) fn occupancy(&self, work: &StageWork) -> f64 {
        self.occupancy_of(self.resident(work), work.warps)
    }

    /// The same for so many blocks of so many warps.
    pub(super) fn occupancy_of(&self, blocks: f64, warps: f64) -> f64 {
        blocks * warps * self.warp_threads as f64 / self.threads
    }
}

/// Multiply-adds of the tensor cores of a multiprocessor in a cycle, dense, with sums in f32: nominal, as the other rates.
fn tensor_fmas(api: GpuApi, dtype: DType) -> Option<f64> {
    let halves = match api {
        GpuApi::Cuda { sm: 90.. } => 2048.0,
        GpuApi::Cuda { sm: 80 } => 1024.0,
        GpuApi::Cuda { sm: 81..90 } => 512.0,
        _ => return None,
    };
    match dtype {
        DType::F32 => None,
        DType::Tf32 => Some(halves / 2.0),
        DType::F16 | DType::Bf16 => Some(halves),
    }
}
