//! GPUs: one multiprocessor, unless it says otherwise. "Guide" is NVIDIA's "CUDA C++ Programming
//! Guide".

use crate::formula::Primitive;

mod limits;

pub use limits::{block_slots, registers_of_block, tensor_fmas_per_cycle, tensor_share, thread_fmas_per_cycle};

/// Threads of a warp of NVIDIA's (Guide, "SIMT Architecture"); other devices say theirs:
/// [`GpuTarget::warp_threads`](crate::target::GpuTarget::warp_threads).
pub const WARP_THREADS: usize = 32;
/// Bytes of a sector, the unit in which global memory is fetched (Guide, "Device Memory Accesses").
pub const SECTOR_BYTES: usize = 32;
/// Banks of shared memory, and bytes of a word of one (Guide, "Shared Memory").
pub const BANKS: usize = 32;
/// Bytes of a bank's word.
pub const BANK_BYTES: usize = 4;
/// Bytes that a thread accesses at once, at most (Guide, "Device Memory Accesses").
pub const MAX_ACCESS_BYTES: usize = 16;
/// Shared memory that each resident block takes beside its own, in bytes (Guide, "Shared Memory",
/// from compute capability 8.0 on).
pub const RESERVED_SHARED_BYTES: f64 = 1024.0;
/// Warps that registers are dealt out to at a time (NVIDIA's occupancy calculator: 256 registers a
/// warp, four warps).
pub const REGISTER_WARPS: usize = 4;
/// Registers of a thread come in multiples of this.
pub const REGISTER_STEP: usize = 8;

/// Instructions of warps that start in a cycle: one in each quarter (NVIDIA, whitepapers from
/// "Volta" on).
pub const ISSUE_PER_CYCLE: f64 = 4.0;
/// Bytes a cycle from the second-level cache (Luo et al., "Dissecting the NVIDIA Hopper
/// Architecture through Microbenchmarking", 2024: 40 to 60 on A100 and H100).
pub const L2_BYTES_PER_CYCLE: f64 = 48.0;
/// Bytes a cycle from memory: a multiprocessor's part (4.2 TB/s of an H200 at 1.98 GHz,
/// measured, are 16, 3.35 TB/s of an H100 at 1.8 GHz 14, 1.55 TB/s of an A100 10).
pub const MEMORY_BYTES_PER_CYCLE: f64 = 14.0;
/// Cycles until global memory answers (Luo et al.: 466 on A100, 479 on H100).
pub const MEMORY_LATENCY_CYCLES: f64 = 500.0;
/// Cycles until all threads of a block have come by a barrier (usual: 20 to 40).
pub const BARRIER_CYCLES: f64 = 30.0;
/// Share of the cycles by each bottleneck that comes on top of the longest: what is near one
/// another adds up in part (fitted to 3,600 kernels on an H200: `gpu_estimates`).
pub const BOUND_SHARE: f64 = 0.25;
/// Cycles of a launch in a graph, with the start and the end of its blocks (measured: the
/// shortest kernels take 1.2 microseconds on an H200).
pub const LAUNCH_CYCLES: f64 = 2400.0;

/// 32-bit registers of a multiprocessor (Guide, "Technical Specifications": every CUDA device from
/// compute capability 5.0 on).
pub const REGISTERS: usize = 64 << 10;
/// Registers of a thread for addresses, counters and what else a compiler keeps (fitted: above
/// these few of some hundred kernels of the tiled sketch spilled with NVRTC 13.0).
pub const THREAD_REGISTERS: usize = 24;
/// The same of a thread that has part in matrix instructions (fitted, with kernels of the sketches
/// for tensor cores).
pub const MMA_THREAD_REGISTERS: usize = 30;
/// Registers for each round of a copy that goes on beside the work (fitted, as before), and as many
/// again where it looks for a pixel.
pub const ASYNC_COPY_REGISTERS: usize = 3;
/// Registers for each round of a copy that is written out, where it goes to shared memory (fitted,
/// as before).
pub const COPY_REGISTERS: usize = 4;
/// The same where it stays in registers for a while, beside what it loads (fitted, as before).
pub const PREFETCH_REGISTERS: usize = 5;
/// Turns of shared memory that one instruction takes to read four 8x8 matrices of 16-bit elements
/// (512 bytes; PTX ISA, `ldmatrix`).
pub const FRAGMENT_TURNS: f64 = 4.0;
/// Instructions that one turn of a loop takes beside the work: a counter, a comparison, a branch
/// (usual).
pub const LOOP_INSTRUCTIONS: f64 = 3.0;
/// The same of one digit of a number that is taken apart: a product with a reciprocal, a shift, a
/// remainder (usual).
pub const DIGIT_INSTRUCTIONS: f64 = 4.0;
/// The same of one element that is widened from 16 bits, or rounded to them (PTX ISA, `cvt`).
pub const CONVERSION_INSTRUCTIONS: f64 = 1.0;
/// The same of one condition: a comparison that sets a predicate (usual).
pub const CONDITION_INSTRUCTIONS: f64 = 1.0;

/// Instructions of a primitive (usual: division and square root rounded as IEEE 754 says are a
/// reciprocal and its refinement).
pub fn primitive_instructions(primitive: Primitive) -> f64 {
    match primitive {
        Primitive::Div | Primitive::Sqrt => 8.0,
        Primitive::Select(_) => 2.0,
        _ => 1.0,
    }
}
