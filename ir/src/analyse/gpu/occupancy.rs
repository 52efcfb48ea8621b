//! Occupancy of a multiprocessor, and its nominal rates.

use super::stage::StageWork;
use crate::dtype::DType;
use crate::machine::gpu as machine;
use crate::target::{GpuApi, GpuTarget};

/// Resources that limit the number of resident blocks of a multiprocessor.
pub const LIMITS: &[&str] = &["threads", "registers", "shared", "blocks"];

/// Limits and nominal rates of one multiprocessor.
#[derive(Clone, Copy, Debug)]
pub struct Multiprocessor {
    /// Number of multiprocessors of the device.
    pub count: f64,
    /// Number of threads per warp.
    pub warp_threads: f64,
    /// Multiply-adds per cycle by ordinary thread instructions.
    pub thread_fmas: f64,
    /// Multiply-adds per cycle by tensor cores; `None` if they do not support the workload's type.
    pub tensor_fmas: Option<f64>,
    /// Bytes of the second-level cache, shared by all multiprocessors.
    pub l2_bytes: f64,
    api: GpuApi,
    threads: f64,
    registers: f64,
    shared_bytes: f64,
    block_slots: f64,
}

impl Multiprocessor {
    /// Returns the limits of `gpu` and its rates for operands of type `dtype`.
    pub fn of(gpu: &GpuTarget, dtype: DType) -> Self {
        Self {
            api: gpu.api,
            count: gpu.multiprocessors.max(1) as f64,
            warp_threads: gpu.warp_threads.max(1) as f64,
            thread_fmas: machine::thread_fmas_per_cycle(gpu.api),
            tensor_fmas: machine::tensor_fmas_per_cycle(gpu.api, dtype),
            l2_bytes: gpu.l2_bytes.max(1) as f64,
            threads: gpu.threads_per_multiprocessor as f64,
            registers: gpu.registers_per_multiprocessor as f64,
            shared_bytes: gpu.shared_bytes_per_multiprocessor as f64,
            block_slots: machine::block_slots(gpu) as f64,
        }
    }

    /// Returns the cycles of one block's multiply-adds alone.
    pub(super) fn compute_cycles(&self, work: &StageWork) -> f64 {
        let by_tensor_cores = self.peak_fmas() * work.team.map_or(1.0, |by| machine::tensor_share(self.api, by));
        ((work.fmas - work.tensor_fmas) / self.thread_fmas + work.tensor_fmas / by_tensor_cores) * work.workers
    }

    /// Returns the peak multiply-adds per cycle, by tensor cores if they can be used.
    pub fn peak_fmas(&self) -> f64 {
        self.tensor_fmas.unwrap_or(self.thread_fmas)
    }

    /// Returns the number of resident blocks if each of [`LIMITS`] were the only one.
    pub fn room(&self, work: &StageWork) -> [f64; 4] {
        [
            self.threads / (work.warps * self.warp_threads),
            self.register_room(work.registers, work.warps),
            self.shared_bytes / (work.shared_bytes + machine::RESERVED_SHARED_BYTES),
            self.block_slots,
        ]
        .map(f64::floor)
    }

    /// Returns how many blocks of `warps` warps fit the register file, with `registers` registers
    /// per thread.
    pub fn register_room(&self, registers: f64, warps: f64) -> f64 {
        // Registers are allocated in multiples of a granule, to whole groups of warps.
        let up = |count: f64, step: usize| (count / step as f64).ceil() * step as f64;
        let (registers, warps) = (up(registers, machine::REGISTER_STEP), up(warps, machine::REGISTER_WARPS));
        (self.registers / (registers * (warps * self.warp_threads))).floor()
    }

    /// Returns the number of resident blocks of a stage, at least one.
    pub fn resident(&self, work: &StageWork) -> f64 {
        self.room(work).into_iter().fold(f64::INFINITY, f64::min).max(1.0)
    }

    /// Returns the occupancy, in `0.0..=1.0`: threads of `blocks` blocks of `warps` warps over the
    /// maximum.
    pub fn occupancy(&self, blocks: f64, warps: f64) -> f64 {
        blocks * warps * self.warp_threads / self.threads
    }
}
