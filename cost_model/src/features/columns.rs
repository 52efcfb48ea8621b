//! Type of the column tables, and the table of whole programs.

use std::sync::Arc;

use autotune_ir::analyse::{Analysis, BOUNDS, Core, Totals};
use autotune_ir::machine::cpu::peak_flops_per_cycle;
use autotune_ir::program::Role;
use autotune_ir::spec::Spec;

use super::window::WindowFeatures;

/// Compression of a value. All but `Linear` put `log2_` in front of the column's unit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueScale {
    /// The value as it is.
    Linear,
    /// `log2(1 + x)`, for sizes and counts.
    Log2,
    /// `log2(x)`, for ratios that are never 0.
    Ratio,
    /// `log2(1 + |x|)` with the sign of `x`.
    SignedLog2,
}

/// A family of columns, one per part; `value` computes a column from the part's position.
pub(super) struct Columns<T: ?Sized> {
    /// Name of the family, in which the part replaces `*`.
    name: &'static str,
    unit: &'static str,
    parts: &'static [&'static str],
    scale: ValueScale,
    value: fn(&T, usize) -> f64,
}

const SINGLE: &[&str] = &[""];

/// Returns a family of a single column.
pub(super) const fn one<T>(
    name: &'static str,
    unit: &'static str,
    scale: ValueScale,
    value: fn(&T, usize) -> f64,
) -> Columns<T> {
    Columns { name, unit, parts: SINGLE, scale, value }
}

/// Returns a family with one column per part.
pub(super) const fn each<T>(
    name: &'static str,
    unit: &'static str,
    parts: &'static [&'static str],
    scale: ValueScale,
    value: fn(&T, usize) -> f64,
) -> Columns<T> {
    Columns { name, unit, parts, scale, value }
}

impl<T> Columns<T> {
    pub(super) fn names(&self) -> impl Iterator<Item = String> + '_ {
        let log = if self.scale == ValueScale::Linear { "" } else { "log2_" };
        self.parts.iter().map(move |part| format!("{}.{log}{}", self.name.replace('*', part), self.unit))
    }

    fn value(&self, of: &T, part: usize) -> f32 {
        let x = (self.value)(of, part);
        let x = match self.scale {
            ValueScale::Linear => x,
            ValueScale::Log2 => (1.0 + x.max(0.0)).log2(),
            ValueScale::Ratio => x.log2(),
            ValueScale::SignedLog2 => (1.0 + x.abs()).log2().copysign(x),
        };
        if x.is_finite() { x as f32 } else { 0.0 }
    }
}

/// Returns the number of columns of a table.
pub(super) const fn width<T>(table: &[Columns<T>]) -> usize {
    let (mut i, mut sum) = (0, 0);
    while i < table.len() {
        sum += table[i].parts.len();
        i += 1;
    }
    sum
}

/// Returns the position of the first column of the family called `name`. Evaluated as a constant,
/// an unknown name is a compile-time error.
pub(super) const fn position<T>(table: &[Columns<T>], name: &str) -> usize {
    let (mut i, mut sum) = (0, 0);
    while !is_equal(table[i].name, name) {
        sum += table[i].parts.len();
        i += 1;
    }
    sum
}

/// Compares strings in constants, where `==` is not available.
const fn is_equal(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Writes the values of a table to the front of `row`, zeros for `None`; returns the rest of the
/// row.
pub(super) fn write<'r, T>(table: &[Columns<T>], of: Option<&T>, row: &'r mut [f32]) -> &'r mut [f32] {
    let (mine, rest) = row.split_at_mut(width(table));
    let values = table.iter().flat_map(|family| (0..family.parts.len()).map(move |part| (family, part)));
    for (slot, (family, part)) in mine.iter_mut().zip(values) {
        *slot = of.map_or(0.0, |of| family.value(of, part));
    }
    rest
}

/// Data that the columns of a whole program are computed from.
pub(super) struct Whole {
    pub(super) spec: Arc<Spec>,
    pub(super) window: WindowFeatures,
    pub(super) analysis: Analysis,
    pub(super) elements: ElementCounts,
}

/// Number of elements of each operand and of the output.
#[derive(Clone, Copy)]
pub(super) struct ElementCounts {
    pub(super) data: f64,
    pub(super) weight: f64,
    pub(super) output: f64,
}

impl ElementCounts {
    pub(super) fn of(spec: &Spec) -> Self {
        let count = |role| spec.find(role).map_or(0.0, |tensor| tensor.shape.iter().map(|&d| d as f64).product());
        Self { data: count(Role::Operand(0)), weight: count(Role::Operand(1)), output: count(Role::Output) }
    }
}

impl Whole {
    fn totals(&self) -> &Totals {
        &self.analysis.totals
    }

    fn core(&self) -> &Core {
        &self.analysis.core
    }

    fn flops(&self) -> f64 {
        self.analysis.flops
    }

    /// Returns cycles per operation over those that multiply-adds take at the peak of a core.
    fn per_peak(&self, cycles_per_flop: f64) -> f64 {
        cycles_per_flop * peak_flops_per_cycle(self.core().lanes)
    }

    fn element_bytes(&self) -> f64 {
        self.spec.multiplied_dtype().bytes() as f64
    }
}

use ValueScale::{Linear, Log2, Ratio};

/// Columns of the whole program.
pub(super) const WHOLE: &[Columns<Whole>] = &[
    // The workload.
    one("workload.work", "flop", Log2, |w, _| w.flops()),
    one("workload.reduction", "steps", Log2, |w, _| w.spec.reduction_len() as f64),
    one("workload.data", "bytes", Log2, |w, _| w.element_bytes() * w.elements.data),
    one("workload.weight", "bytes", Log2, |w, _| w.element_bytes() * w.elements.weight),
    one("workload.output", "bytes", Log2, |w, _| w.element_bytes() * w.elements.output),
    one("workload.intensity", "flop_per_byte", Log2, |w, _| w.flops() / w.spec.min_bytes()),
    each("workload.*", "count", &["taps", "stride", "dilation", "batch"], Log2, |w, i| w.window.counts()[i]),
    one("workload.is_matmul", "flag", Linear, |w, _| f64::from(u8::from(!w.window.slides))),
    // The target.
    one("target.threads", "count", Log2, |w, _| w.core().threads as f64),
    one("target.lanes", "count", Log2, |w, _| w.core().lanes as f64),
    one("target.vector_registers", "count", Log2, |w, _| w.core().vector_registers as f64),
    each("target.*", "bytes", &["l1", "l2", "l3"], Log2, |w, i| w.core().cache_bytes[i]),
    each("target.*_reads", "bytes_per_cycle", &["l2", "l3", "memory"], Log2, |w, i| {
        w.core().rates.read_bytes_per_cycle()[i]
    }),
    one("target.fork_join", "cycles", Log2, |w, _| f64::from(w.core().rates.fork_join_cycles)),
    // How the work divides.
    one("parallel.tasks", "count", Log2, |w, _| w.totals().division.tasks),
    one("parallel.tasks_per_thread", "count", Log2, |w, _| w.totals().division.tasks / w.core().threads as f64),
    one("parallel.imbalance", "ratio", Linear, |w, _| w.analysis.imbalance()),
    one("parallel.longest_task", "ratio", Linear, |w, _| w.totals().division.longest_task),
    one("parallel.work_per_task", "flop", Log2, |w, _| w.flops() / w.totals().division.tasks.max(1.0)),
    one("parallel.stages", "count", Linear, |w, _| w.totals().stages),
    // Sums over all leaves.
    one("total.trees", "count", Log2, |w, _| w.totals().trees),
    one("total.leaves", "count", Log2, |w, _| w.totals().leaves),
    one("total.mac_leaves", "count", Log2, |w, _| w.totals().mac_leaves),
    one("total.code", "bytes", Log2, |w, _| w.totals().code_bytes),
    one("total.fmas", "per_direct_fma", Linear, |w, _| 2.0 * w.totals().fmas / w.flops()),
    one("total.lane_use", "ratio", Linear, |w, _| {
        w.totals().fmas / (w.totals().fma_instructions * w.core().lanes as f64)
    }),
    one("total.partial_vectors", "share", Linear, |w, _| w.totals().partial_fmas / w.totals().fmas),
    one("total.dominant_leaf", "share", Linear, |w, _| {
        w.analysis.dominant.as_ref().map_or(0.0, |d| d.trips / w.totals().fmas)
    }),
    one("total.global_copies", "bytes_per_flop", Linear, |w, _| w.totals().global_copy_bytes / w.flops()),
    one("total.local_copies", "bytes_per_flop", Linear, |w, _| w.totals().local_copy_bytes / w.flops()),
    one("total.copies", "instructions_per_flop", Linear, |w, _| w.totals().copy_instructions / w.flops()),
    one("total.reloads", "per_output", Linear, |w, _| w.totals().reloaded_elements / w.elements.output),
    one("total.stores", "per_output", Linear, |w, _| w.totals().stored_elements / w.elements.output),
    one("total.prefetches", "per_fma", Linear, |w, _| w.totals().prefetches / w.totals().fmas),
    one("total.packed", "per_l2", Log2, |w, _| w.totals().packed_bytes / w.core().cache_bytes[1]),
    one("total.local", "per_l1", Log2, |w, _| w.totals().local_bytes / w.core().cache_bytes[0]),
    one("total.overhead", "share", Linear, |w, _| {
        w.totals().other_cycles / (w.totals().other_cycles + w.totals().mac_cycles)
    }),
    // Estimates of the time.
    each("estimate.*", "per_peak", BOUNDS, Linear, |w, by| w.per_peak(w.analysis.cycles_per_flop(by))),
    one("estimate.cold", "per_peak", Linear, |w, _| w.per_peak(w.analysis.cold_cycles_per_flop())),
    one("estimate.roofline", "per_peak", Linear, |w, _| {
        let cycles_per_flop = (0..4).map(|by| w.analysis.cycles_per_flop(by)).fold(0.0, f64::max);
        w.per_peak(cycles_per_flop * w.analysis.imbalance())
    }),
    one("estimate.sum", "per_peak", Ratio, |w, _| w.per_peak(w.analysis.thread_cycles_per_flop())),
    one("estimate.wall", "per_peak", Linear, |w, _| w.per_peak(w.totals().division.wall_cycles / w.flops())),
];
