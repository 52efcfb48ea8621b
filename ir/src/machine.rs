//! The machine table: every hardware number that is no field of a [`Target`](crate::Target), once, with its unit and where it is from.
//!
//! | number is from | marked |
//! |---|---|
//! | a vendor's manual or a published microbenchmark | by its title |
//! | what usual machines have in common | usual |
//! | what made schedules of our own rank as they were measured | fitted |
//!
//! Rates are nominal: the learned model corrects what a machine makes of them.

/// CPUs: a common out-of-order core, as of 2017 and later.
pub mod cpu {
    use crate::formula::Primitive;

    /// Vector multiply-adds that may start in a cycle (Fog, "Instruction tables": Haswell and later, Zen 2 and later).
    pub const FMAS_PER_CYCLE: f64 = 2.0;
    /// Cycles from one vector multiply-add to the next that needs its result (Fog, "Instruction tables": 4 on Skylake to Golden Cove and
    /// on Zen 3 and 4).
    pub const FMA_LATENCY_CYCLES: f64 = 4.0;
    /// Vector loads that may start in a cycle (Intel, "Optimization Reference Manual": Haswell to Ice Lake; AMD, "Software Optimization
    /// Guide": Zen 2 to 4).
    pub const LOADS_PER_CYCLE: f64 = 2.0;
    /// Instructions that may start in a cycle (usual: 4 on Skylake, 5 on Ice Lake, 6 on Zen 3 and Golden Cove).
    pub const INSTRUCTIONS_PER_CYCLE: f64 = 5.0;
    /// Cycles that a sum in memory takes longer than one in a register: a store, forwarded to a load (Fog, "Microarchitecture": 4 to 5
    /// each, and the addition's operands).
    pub const FORWARD_LATENCY_CYCLES: f64 = 9.0;
    /// Cycles lost where the loop around a register tile ends (Fog, "Microarchitecture": 15 to 20 for a branch mispredicted).
    pub const LOOP_EXIT_CYCLES: f64 = 20.0;
    /// Bytes of a vector instruction with an operand in memory (usual: VEX 5 to 9, EVEX 6 to 11).
    pub const INSTRUCTION_BYTES: f64 = 7.0;
    /// Cycles for the threads to meet at the end of a stage, where that was [not measured](crate::target::Rates) (fitted: a fork and join of
    /// some microsecond).
    pub const BARRIER_CYCLES: f64 = 3000.0;
    /// Bytes of a cache line (Intel and AMD, all of them; most of Arm's).
    pub const LINE_BYTES: f64 = 64.0;
    /// Bytes of a page of virtual memory (the same).
    pub const PAGE_BYTES: f64 = 4096.0;
    /// Addresses that are this number of bytes apart fall into the same set of a first-level cache (usual: 64 sets of lines).
    pub const SET_PERIOD_BYTES: i64 = 4096;
    /// Bytes a cycle that a core reads from its second-level cache and from the last-level cache, and all cores together from memory, where
    /// that was [not measured](crate::target::Rates) (usual: half of the widths in Intel's "Optimization Reference Manual").
    pub const READ_BYTES_PER_CYCLE: [f64; 3] = [32.0, 20.0, 10.0];
    /// The share of traffic's cycles that comes on top of those of arithmetic, which the rest overlaps with (fitted: with rates that were
    /// measured, 0.1 to 0.25 rank the schedules of both recorded test beds alike, more ranks them worse).
    pub const TRAFFIC_SHARE: f64 = 0.2;

    /// f32 operations a cycle of a core at its peak, two for each multiply-add, in vectors of `lanes` lanes.
    pub fn peak_flops_per_cycle(lanes: usize) -> f64 {
        2.0 * lanes as f64 * FMAS_PER_CYCLE
    }

    /// Cycles from one vector of a primitive to the next (Fog, "Instruction tables": division and square root of 8 lanes take 5 and 6 on
    /// Skylake to Golden Cove, a comparison with what selects by it two instructions).
    pub fn primitive_cycles(primitive: Primitive) -> f64 {
        match primitive {
            Primitive::Div => 5.0,
            Primitive::Sqrt => 6.0,
            Primitive::Select(_) => 1.0,
            _ => 0.5,
        }
    }
}

/// GPUs: one multiprocessor, unless it says otherwise. "Guide" is NVIDIA's "CUDA C++ Programming Guide".
pub mod gpu {
    use crate::dtype::DType;
    use crate::formula::Primitive;
    use crate::instruction::{MMA, ThreadGroup};
    use crate::target::{GpuApi, GpuTarget};

    /// Threads of a warp of NVIDIA's (Guide, "SIMT Architecture"); other devices say theirs: [`GpuTarget::warp_threads`].
    pub const WARP_THREADS: usize = 32;
    /// Bytes of a sector, the unit in which global memory is fetched (Guide, "Device Memory Accesses").
    pub const SECTOR_BYTES: usize = 32;
    /// Banks of shared memory, and bytes of a word of one (Guide, "Shared Memory").
    pub const BANKS: usize = 32;
    /// Bytes of a bank's word.
    pub const BANK_BYTES: usize = 4;
    /// Bytes that a thread accesses at once, at most (Guide, "Device Memory Accesses").
    pub const MAX_ACCESS_BYTES: usize = 16;
    /// Shared memory that each resident block takes beside its own, in bytes (Guide, "Shared Memory", from compute capability 8.0 on).
    pub const RESERVED_SHARED_BYTES: f64 = 1024.0;
    /// Warps that registers are dealt out to at a time (NVIDIA's occupancy calculator: 256 registers a warp, four warps).
    pub const REGISTER_WARPS: usize = 4;
    /// Registers of a thread come in multiples of this.
    pub const REGISTER_STEP: usize = 8;

    /// Instructions of warps that start in a cycle: one in each quarter (NVIDIA, whitepapers from "Volta" on).
    pub const ISSUE_PER_CYCLE: f64 = 4.0;
    /// Bytes a cycle from the second-level cache (Luo et al., "Dissecting the NVIDIA Hopper Architecture through Microbenchmarking",
    /// 2024: 40 to 60 on A100 and H100).
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

    /// 32-bit registers of a multiprocessor (Guide, "Technical Specifications": every CUDA device from compute capability 5.0 on).
    pub const REGISTERS: usize = 64 << 10;
    /// Registers of a thread for addresses, counters and what else a compiler keeps (fitted: above these few of some hundred kernels of
    /// the tiled sketch spilled with NVRTC 13.0).
    pub const THREAD_REGISTERS: usize = 24;
    /// The same of a thread that has part in matrix instructions (fitted, with kernels of the sketches for tensor cores).
    pub const MMA_THREAD_REGISTERS: usize = 30;
    /// Registers for each round of a copy that goes on beside the work (fitted, as before), and as many again where it looks for a pixel.
    pub const ASYNC_COPY_REGISTERS: usize = 3;
    /// Registers for each round of a copy that is written out, where it goes to shared memory (fitted, as before).
    pub const COPY_REGISTERS: usize = 4;
    /// The same where it stays in registers for a while, beside what it loads (fitted, as before).
    pub const PREFETCH_REGISTERS: usize = 5;
    /// Turns of shared memory that one instruction takes to read four 8x8 matrices of 16-bit elements (512 bytes; PTX ISA, `ldmatrix`).
    pub const FRAGMENT_TURNS: f64 = 4.0;
    /// Instructions that one turn of a loop takes beside the work: a counter, a comparison, a branch (usual).
    pub const LOOP_INSTRUCTIONS: f64 = 3.0;
    /// The same of one digit of a number that is taken apart: a product with a reciprocal, a shift, a remainder (usual).
    pub const DIGIT_INSTRUCTIONS: f64 = 4.0;
    /// The same of one element that is widened from 16 bits, or rounded to them (PTX ISA, `cvt`).
    pub const CONVERSION_INSTRUCTIONS: f64 = 1.0;
    /// The same of one condition: a comparison that sets a predicate (usual).
    pub const CONDITION_INSTRUCTIONS: f64 = 1.0;

    /// Instructions of a primitive (usual: division and square root rounded as IEEE 754 says are a reciprocal and its refinement).
    pub fn primitive_instructions(primitive: Primitive) -> f64 {
        match primitive {
            Primitive::Div | Primitive::Sqrt => 8.0,
            Primitive::Select(_) => 2.0,
            _ => 1.0,
        }
    }

    /// Most blocks on a multiprocessor at once (Guide, "Technical Specifications per Compute Capability"; elsewhere two warps each fill
    /// it).
    pub fn block_slots(gpu: &GpuTarget) -> usize {
        match gpu.api {
            GpuApi::Cuda { sm: 75 | 86 } => 16,
            GpuApi::Cuda { sm: 89 | 120 } => 24,
            GpuApi::Cuda { .. } => 32,
            GpuApi::OpenCl => gpu.threads_per_multiprocessor / (2 * gpu.warp_threads.max(1)),
        }
    }

    /// The most registers that each thread of a block of `threads` threads can have.
    pub fn registers_of_block(gpu: &GpuTarget, threads: usize) -> usize {
        let dealt = threads.next_multiple_of(REGISTER_WARPS * gpu.warp_threads.max(1)).max(1);
        gpu.registers_per_thread.min(gpu.registers_per_multiprocessor / dealt / REGISTER_STEP * REGISTER_STEP)
    }

    /// Multiply-adds of f32 a cycle (Guide, "Arithmetic Instructions").
    pub fn thread_fmas_per_cycle(api: GpuApi) -> f64 {
        match api {
            GpuApi::Cuda { sm: 70 | 75 | 80 } => 64.0,
            _ => 128.0,
        }
    }

    /// Multiply-adds a cycle of tensor cores, dense, with sums in f32; `None` where there are none for a type (NVIDIA, whitepapers "A100"
    /// and "H100"; "GA102", "AD102" and "RTX Blackwell" for the others, professional devices).
    pub fn tensor_fmas_per_cycle(api: GpuApi, dtype: DType) -> Option<f64> {
        let halves = match api {
            GpuApi::Cuda { sm: 90..120 } => 2048.0,
            GpuApi::Cuda { sm: 80 } => 1024.0,
            GpuApi::Cuda { sm: 81.. } => 512.0,
            _ => return None,
        };
        MMA.steps(dtype).map(|steps| halves * steps as f64 / 16.0)
    }

    /// The share of them that kernels by the instructions of a team reach: on compute capability
    /// 9.0 those of warps do not keep tensor cores busy (Luo et al.: 62 % of the peak on H100 by
    /// themselves; fitted: 40 % with what kernels do beside them).
    pub fn tensor_share(api: GpuApi, by: ThreadGroup) -> f64 {
        match (api, by) {
            (GpuApi::Cuda { sm: 90..120 }, ThreadGroup::Warp) => 0.4,
            _ => 1.0,
        }
    }
}
