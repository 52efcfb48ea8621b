//! CPU figures: a typical out-of-order core from 2017 on.

use crate::formula::Primitive;

/// Vector multiply-adds issued per cycle (Fog, "Instruction tables": Haswell and later, Zen 2 and
/// later).
pub const FMAS_PER_CYCLE: f64 = 2.0;
/// Latency of a vector multiply-add in cycles (Fog, "Instruction tables": 4 on Skylake to Golden
/// Cove and on Zen 3 and 4).
pub const FMA_LATENCY_CYCLES: f64 = 4.0;
/// Vector loads issued per cycle (Intel, "Optimization Reference Manual": Haswell to Ice Lake; AMD,
/// "Software Optimization Guide": Zen 2 to 4).
pub const LOADS_PER_CYCLE: f64 = 2.0;
/// Instructions issued per cycle (usual: 4 on Skylake, 5 on Ice Lake, 6 on Zen 3 and Golden Cove).
pub const INSTRUCTIONS_PER_CYCLE: f64 = 5.0;
/// Cycles per tile product (Intel, "Optimization Reference Manual", chapter on Intel AMX).
pub const TILE_CYCLES: f64 = 16.0;
/// Latency of a tile product in cycles (the same source).
pub const TILE_LATENCY_CYCLES: f64 = 52.0;
/// Extra latency in cycles of a sum in memory compared with a register: a store that is forwarded
/// to a load (Fog, "Microarchitecture": 4 to 5 each, and the operands of the addition).
pub const FORWARD_LATENCY_CYCLES: f64 = 9.0;
/// Cycles lost at the end of the loop around a register tile (Fog, "Microarchitecture": 15 to 20
/// for a mispredicted branch).
pub const LOOP_EXIT_CYCLES: f64 = 20.0;
/// Bytes of a vector instruction with a memory operand (usual: VEX 5 to 9, EVEX 6 to 11).
pub const INSTRUCTION_BYTES: f64 = 7.0;
/// Cycles of the barrier at the end of a stage, if they were [not measured](crate::target::Rates)
/// (fitted: about a microsecond for fork and join).
pub const BARRIER_CYCLES: f64 = 3000.0;
/// Bytes of a cache line (all of Intel and AMD, most of Arm).
pub const LINE_BYTES: f64 = 64.0;
/// Bytes of a page of virtual memory (all of Intel and AMD, most of Arm).
pub const PAGE_BYTES: f64 = 4096.0;
/// Address distance in bytes at which lines fall into the same set of the first-level cache (usual:
/// 64 sets).
pub const SET_PERIOD_BYTES: i64 = 4096;
/// Bytes per cycle that a core reads from its second-level cache and from the last-level cache, and
/// that all cores together read from memory, if they were [not measured](crate::target::Rates)
/// (usual: half of the widths in Intel's "Optimization Reference Manual").
pub const READ_BYTES_PER_CYCLE: [f64; 3] = [32.0, 20.0, 10.0];
/// Share of the traffic's cycles that arithmetic does not hide (fitted: with measured rates, 0.1 to
/// 0.25 rank the schedules of both recorded test beds equally well, more ranks them worse).
pub const TRAFFIC_SHARE: f64 = 0.2;

/// Returns the peak of a core in f32 operations per cycle, two for each multiply-add, with vectors
/// of `lanes` lanes.
pub fn peak_flops_per_cycle(lanes: usize) -> f64 {
    2.0 * lanes as f64 * FMAS_PER_CYCLE
}

/// Returns the cycles per vector of a primitive, by throughput (Fog, "Instruction tables": division
/// and square root of 8 lanes take 5 and 6 on Skylake to Golden Cove; comparison and blend are two
/// instructions).
pub fn primitive_cycles(primitive: Primitive) -> f64 {
    match primitive {
        Primitive::Div => 5.0,
        Primitive::Sqrt => 6.0,
        Primitive::Select(_) => 1.0,
        _ => 0.5,
    }
}
