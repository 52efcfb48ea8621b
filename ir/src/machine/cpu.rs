//! CPUs: a common out-of-order core, as of 2017 and later.

use crate::formula::Primitive;

/// Vector multiply-adds that may start in a cycle (Fog, "Instruction tables": Haswell and later,
/// Zen 2 and later).
pub const FMAS_PER_CYCLE: f64 = 2.0;
/// Cycles from one vector multiply-add to the next that needs its result (Fog, "Instruction
/// tables": 4 on Skylake to Golden Cove and on Zen 3 and 4).
pub const FMA_LATENCY_CYCLES: f64 = 4.0;
/// Vector loads that may start in a cycle (Intel, "Optimization Reference Manual": Haswell to Ice
/// Lake; AMD, "Software Optimization Guide": Zen 2 to 4).
pub const LOADS_PER_CYCLE: f64 = 2.0;
/// Instructions that may start in a cycle (usual: 4 on Skylake, 5 on Ice Lake, 6 on Zen 3 and
/// Golden Cove).
pub const INSTRUCTIONS_PER_CYCLE: f64 = 5.0;
/// Cycles that a sum in memory takes longer than one in a register: a store, forwarded to a load
/// (Fog, "Microarchitecture": 4 to 5 each, and the addition's operands).
pub const FORWARD_LATENCY_CYCLES: f64 = 9.0;
/// Cycles lost where the loop around a register tile ends (Fog, "Microarchitecture": 15 to 20 for a
/// branch mispredicted).
pub const LOOP_EXIT_CYCLES: f64 = 20.0;
/// Bytes of a vector instruction with an operand in memory (usual: VEX 5 to 9, EVEX 6 to 11).
pub const INSTRUCTION_BYTES: f64 = 7.0;
/// Cycles for the threads to meet at the end of a stage, where that was [not
/// measured](crate::target::Rates) (fitted: a fork and join of some microsecond).
pub const BARRIER_CYCLES: f64 = 3000.0;
/// Bytes of a cache line (Intel and AMD, all of them; most of Arm's).
pub const LINE_BYTES: f64 = 64.0;
/// Bytes of a page of virtual memory (the same).
pub const PAGE_BYTES: f64 = 4096.0;
/// Addresses that are this number of bytes apart fall into the same set of a first-level cache
/// (usual: 64 sets of lines).
pub const SET_PERIOD_BYTES: i64 = 4096;
/// Bytes a cycle that a core reads from its second-level cache and from the last-level cache, and
/// all cores together from memory, where that was [not measured](crate::target::Rates) (usual: half
/// of the widths in Intel's "Optimization Reference Manual").
pub const READ_BYTES_PER_CYCLE: [f64; 3] = [32.0, 20.0, 10.0];
/// The share of traffic's cycles that comes on top of those of arithmetic, which the rest overlaps
/// with (fitted: with rates that were measured, 0.1 to 0.25 rank the schedules of both recorded
/// test beds alike, more ranks them worse).
pub const TRAFFIC_SHARE: f64 = 0.2;

/// f32 operations a cycle of a core at its peak, two for each multiply-add, in vectors of `lanes`
/// lanes.
pub fn peak_flops_per_cycle(lanes: usize) -> f64 {
    2.0 * lanes as f64 * FMAS_PER_CYCLE
}

/// Cycles from one vector of a primitive to the next (Fog, "Instruction tables": division and
/// square root of 8 lanes take 5 and 6 on Skylake to Golden Cove, a comparison with what selects by
/// it two instructions).
pub fn primitive_cycles(primitive: Primitive) -> f64 {
    match primitive {
        Primitive::Div => 5.0,
        Primitive::Sqrt => 6.0,
        Primitive::Select(_) => 1.0,
        _ => 0.5,
    }
}
