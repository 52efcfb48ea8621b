//! Columns of GPU programs.

use autotune_ir::analyse::gpu::{BOUNDS, Kernels, LIMITS, Requests};

use super::columns::ValueScale::{Linear, Log2};
use super::columns::{Columns, each, one};

mod compiled;

pub use compiled::{RegisterUse, estimated_registers, register_limit, set_register_use};

const OPERANDS: &[&str] = &["data", "weight", "output"];
const SHARED: &[&str] = &["data.load", "weight.load", "data.store", "weight.store"];

/// Returns cycles over those of the workload's multiply-adds alone on all multiprocessors, on
/// tensor cores if there are any.
fn slowdown(k: &Kernels, cycles: f64) -> f64 {
    cycles * 2.0 * k.multiprocessor.peak_fmas() * k.multiprocessor.count / k.flops
}

/// Returns the main stage's requests to shared memory for one of [`SHARED`].
fn shared(k: &Kernels, part: usize) -> &Requests {
    if part < 2 { &k.main.shared.loads[part] } else { &k.main.shared.stores[part - 2] }
}

/// Returns the main stage's requests to global memory for an operand: loads, or stores of the
/// output.
fn global(k: &Kernels, operand: usize) -> &Requests {
    if operand < 2 { &k.main.global.loads[operand] } else { &k.main.global.stores[operand] }
}

/// Returns the multiply-adds of a block's warps in the main stage, per one of `count` events of the
/// block.
fn fmas_per(k: &Kernels, count: f64) -> f64 {
    k.main.fmas * k.main.working_warps / count
}

fn shared_loads(k: &Kernels, what: fn(&Requests) -> f64) -> f64 {
    k.main.shared.loads.iter().map(what).sum()
}

/// Columns of a GPU program; zeros for CPU programs.
pub(super) const GPU: &[Columns<Kernels>] = &[
    // How the main stage fills the device.
    one("gpu.threads", "count", Log2, |k, _| k.main.threads),
    one("gpu.warp_use", "ratio", Linear, |k, _| k.main.threads / (k.main.warps * k.multiprocessor.warp_threads)),
    one("gpu.blocks", "count", Log2, |k, _| k.main.blocks),
    one("gpu.stages", "count", Linear, |k, _| k.stages),
    one("gpu.registers", "count", Linear, |k, _| k.main.registers),
    one("gpu.accumulators", "count", Log2, |k, _| k.main.accumulators),
    one("gpu.shared", "bytes", Log2, |k, _| k.main.shared_bytes),
    each("gpu.room.*", "blocks", LIMITS, Log2, |k, i| k.multiprocessor.room(&k.main)[i]),
    one("gpu.occupancy", "ratio", Linear, |k, _| k.multiprocessor.occupancy(k.resident(), k.main.warps)),
    one("gpu.waves", "count", Log2, |k, _| k.waves()),
    one("gpu.tail", "ratio", Linear, |k, _| k.tail()),
    // Memory accesses of its warps.
    each("gpu.coalescing.*", "ratio", OPERANDS, Linear, |k, i| global(k, i).coalescing()),
    each("gpu.sectors.*", "per_request", OPERANDS, Linear, |k, i| global(k, i).units / global(k, i).count),
    each("gpu.global_width.*", "elements", OPERANDS, Linear, |k, i| global(k, i).mean_width()),
    each("gpu.conflicts.*", "ways", SHARED, Linear, |k, i| shared(k, i).conflict_ways()),
    each("gpu.shared_width.*", "elements", SHARED, Linear, |k, i| shared(k, i).mean_width()),
    one("gpu.shared_load", "fmas_per_request", Log2, |k, _| fmas_per(k, shared_loads(k, |r| r.count))),
    one("gpu.shared_turn", "fmas_per_turn", Log2, |k, _| fmas_per(k, shared_loads(k, |r| r.units))),
    one("gpu.barrier", "fmas_per_barrier", Log2, |k, _| k.main.fmas / k.main.barriers),
    one("gpu.wait", "fmas_per_wait", Log2, |k, _| k.main.fmas / k.main.waits),
    one("gpu.prefetched", "flag", Linear, |k, _| f64::from(u8::from(k.main.prefetches > 0.0))),
    one("gpu.other", "instructions_per_fma", Linear, |k, _| k.main.other / k.main.fmas),
    one("gpu.l2", "bytes_per_flop", Linear, |k, _| k.l2_bytes / k.flops),
    // Estimates of the time.
    each("gpu.estimate.*", "per_peak", BOUNDS, Log2, |k, i| slowdown(k, k.bounds[i])),
    one("gpu.estimate.run", "per_peak", Log2, |k, _| slowdown(k, k.cycles)),
    one("gpu.estimate.sum", "per_peak", Log2, |k, _| slowdown(k, k.bounds.iter().sum())),
    one("gpu.estimate.main", "share", Linear, |k, _| k.main_cycles / k.cycles),
    // The compiler's report, as the maximum over all stages; estimates until [`set_register_use`].
    one("gpu.compiled.registers", "count", Linear, |k, _| k.main.registers),
    one("gpu.compiled.spills", "bytes", Log2, |_, _| 0.0),
    one("gpu.compiled.room", "blocks", Log2, |k, _| k.multiprocessor.room(&k.main)[1]),
    one("gpu.compiled.occupancy", "ratio", Linear, |k, _| k.multiprocessor.occupancy(k.resident(), k.main.warps)),
];

#[cfg(test)]
mod tests;
