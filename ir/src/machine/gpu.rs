//! GPU figures, per multiprocessor unless stated otherwise. "Guide" is NVIDIA's "CUDA C++
//! Programming Guide".

use crate::formula::Primitive;

mod limits;

pub use limits::{block_slots, registers_of_block, tensor_fmas_per_cycle, tensor_share, thread_fmas_per_cycle};

/// Threads per warp of NVIDIA devices (Guide, "SIMT Architecture"); other devices have
/// [`GpuTarget::warp_threads`](crate::target::GpuTarget::warp_threads).
pub const WARP_THREADS: usize = 32;
/// Bytes of a sector, the unit in which global memory is fetched (Guide, "Device Memory Accesses").
pub const SECTOR_BYTES: usize = 32;
/// Banks of shared memory (Guide, "Shared Memory").
pub const BANKS: usize = 32;
/// Bytes per word of a bank (Guide, "Shared Memory").
pub const BANK_BYTES: usize = 4;
/// Maximum bytes of one access by a thread (Guide, "Device Memory Accesses").
pub const MAX_ACCESS_BYTES: usize = 16;
/// Bytes of shared memory that the system reserves for each resident block (Guide, "Shared Memory",
/// from compute capability 8.0 on).
pub const RESERVED_SHARED_BYTES: f64 = 1024.0;
/// Granularity in warps of register allocation (NVIDIA's occupancy calculator: 256 registers per
/// warp, four warps).
pub const REGISTER_WARPS: usize = 4;
/// Granularity of the number of registers per thread.
pub const REGISTER_STEP: usize = 8;

/// Warp instructions issued per cycle: one by each of four schedulers (NVIDIA, whitepapers from
/// "Volta" on).
pub const ISSUE_PER_CYCLE: f64 = 4.0;
/// Bytes per cycle from the second-level cache (Luo et al., "Dissecting the NVIDIA Hopper
/// Architecture through Microbenchmarking", 2024: 40 to 60 on A100 and H100).
pub const L2_BYTES_PER_CYCLE: f64 = 48.0;
/// Bytes per cycle from memory, as a multiprocessor's share (4.2 TB/s of an H200 at 1.98 GHz,
/// measured, are 16; 3.35 TB/s of an H100 at 1.8 GHz are 14; 1.55 TB/s of an A100 are 10).
pub const MEMORY_BYTES_PER_CYCLE: f64 = 14.0;
/// Latency of global memory in cycles (Luo et al.: 466 on A100, 479 on H100).
pub const MEMORY_LATENCY_CYCLES: f64 = 500.0;
/// Cycles of a barrier among the threads of a block (usual: 20 to 40).
pub const BARRIER_CYCLES: f64 = 30.0;
/// Share of the shorter bottlenecks' cycles that adds to the longest one, since they overlap only
/// in part (fitted to 3,600 kernels on an H200: `gpu_estimates`).
pub const BOUND_SHARE: f64 = 0.25;
/// Cycles of a launch within a graph, including the start and end of its blocks (measured: the
/// shortest kernels take 1.2 microseconds on an H200).
pub const LAUNCH_CYCLES: f64 = 2400.0;

/// Number of 32-bit registers (Guide, "Technical Specifications": every CUDA device from compute
/// capability 5.0 on).
pub const REGISTERS: usize = 64 << 10;
/// Registers per thread for addresses, counters and other temporaries (fitted: with this number,
/// few of several hundred kernels of the tiled sketch spilled with NVRTC 13.0).
pub const THREAD_REGISTERS: usize = 24;
/// Registers per thread for the same in kernels with matrix instructions (fitted, with kernels of
/// the sketches for tensor cores).
pub const MMA_THREAD_REGISTERS: usize = 30;
/// Registers for each unrolled asynchronous copy: a pointer, and the outcomes of its conditions.
pub const ASYNC_COPY_REGISTERS: usize = 3;
/// Registers for each unrolled copy to shared memory through registers (fitted, as before).
pub const COPY_REGISTERS: usize = 4;
/// Registers for each unrolled prefetch to registers, besides the loaded value (fitted, as before).
pub const PREFETCH_REGISTERS: usize = 5;
/// Shared-memory transactions of one instruction that reads four 8x8 matrices of 16-bit elements
/// (512 bytes; PTX ISA, `ldmatrix`).
pub const FRAGMENT_TURNS: f64 = 4.0;
/// Instructions of one loop iteration besides its body: increment, comparison, branch (usual).
pub const LOOP_INSTRUCTIONS: f64 = 3.0;
/// Instructions to compute one digit of an index: a product with a reciprocal, a shift, a remainder
/// (usual).
pub const DIGIT_INSTRUCTIONS: f64 = 4.0;
/// Issue slots of a power of 2: an instruction of the special-function unit, whose quarter rate
/// overlaps with other instructions of other warps (Guide, "Arithmetic Instructions").
pub const POWER_INSTRUCTIONS: f64 = 2.0;
/// Instructions to convert one element from or to a narrower type (PTX ISA, `cvt`).
pub const CONVERSION_INSTRUCTIONS: f64 = 1.0;
/// Instructions of one condition: a comparison that sets a predicate (usual).
pub const CONDITION_INSTRUCTIONS: f64 = 1.0;

/// Returns the instructions of a primitive (usual: IEEE 754 division and square root are a
/// reciprocal and its refinement).
pub fn primitive_instructions(primitive: Primitive) -> f64 {
    match primitive {
        Primitive::Div | Primitive::Sqrt => 8.0,
        Primitive::Select(_) => 2.0,
        _ => 1.0,
    }
}
