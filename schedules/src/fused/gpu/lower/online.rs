//! State of a softmax that is computed chunk by chunk of keys.

use super::GpuFused;
use crate::contraction::AxisId;
use crate::fused::gpu::KEPT;
use crate::fused::gpu::softmax::SoftmaxEquations;
use crate::gpu::{MicroKernel, TileLevel};
use crate::lower::nest::NestParts;
use autotune_ir::program::{Access, BufferId, Role, Scope};
use autotune_ir::spec::Spec;

/// Buffers of a thread's rows. All but `total` have equal values in all threads of a row.
pub(super) struct Online {
    pub(super) softmax: SoftmaxEquations,
    /// Buffers of known tables, by tensor.
    pub(super) tables: Vec<Option<BufferId>>,
    /// Largest score so far.
    pub(super) largest: BufferId,
    /// Largest score before the current chunk.
    pub(super) before: BufferId,
    /// Factor that rescales earlier sums to the new largest score.
    pub(super) rescale: BufferId,
    /// Sum of the thread's own weights.
    pub(super) total: BufferId,
    /// Reciprocal of the sum of all weights of the row.
    pub(super) scale: BufferId,
    /// Largest score times the factor of exponents of 2, if weights are such powers.
    pub(super) scaled: Option<BufferId>,
    /// Smallest value of the largest score. Not minus infinity: in a fully masked row, whose scores
    /// are all minus infinity, the exponents `score - largest` are then minus infinity instead of
    /// NaN.
    pub(super) least: f32,
    pub(super) score: BufferId,
    pub(super) weight: BufferId,
    /// One element of each other tensor that masking reads.
    pub(super) read: Vec<BufferId>,
    /// Values that the threads of a row exchange, as `[row, thread]`.
    pub(super) parts: Option<BufferId>,
}

impl Online {
    pub(super) fn new(
        softmax: SoftmaxEquations,
        fused: &GpuFused,
        tables: Vec<Option<BufferId>>,
        all: &mut NestParts,
    ) -> Self {
        let spec = &fused.first.roles.own.spec;
        let mut value = |name: &str, scope, shape: Vec<usize>| {
            let id = all.buffer(name, Role::Packed, scope, shape);
            all.buffers[id.0 as usize].dtype = KEPT;
            id
        };
        let rows = rows(fused).map(|level| level.extent).collect::<Vec<_>>();
        let mut of_rows = |name: &str| value(name, Scope::Register, rows.clone());
        let [largest, before, rescale, total, scale] =
            ["largest", "before", "rescale", "total", "total_scale"].map(&mut of_rows);

        let others = others(spec, &softmax);
        let is_power = matches!(fused.first.kernel, MicroKernel::Matrix { .. });
        let is_scaled = is_power && others.is_empty();
        let scaled = is_scaled.then(|| value("scaled", Scope::Register, rows.clone()));
        let [score, weight] = ["score", "score_weight"].map(|name| value(name, Scope::Register, Vec::new()));
        let read =
            (0..others.len()).map(|number| value(&format!("mask_{number}"), Scope::Register, Vec::new())).collect();
        let parts = (fused.row_threads() > 1).then(|| value("parts", Scope::Shared, fused.parts_shape()));
        // The product with the factor must be finite as well.
        let least = if is_scaled { 0.5 * f32::MIN / softmax.factor_of_two().max(1.0) } else { f32::MIN };
        Self { softmax, tables, largest, before, rescale, total, scale, scaled, least, score, weight, read, parts }
    }

    pub(super) fn buffers(&self) -> impl Iterator<Item = BufferId> {
        let own = [self.largest, self.before, self.rescale, self.total, self.scale, self.score, self.weight];
        self.parts.into_iter().chain(own).chain(self.scaled).chain(self.read.iter().copied())
    }
}

/// Returns the levels of a thread's accumulators that are rows.
pub(super) fn rows(fused: &GpuFused) -> impl Iterator<Item = &TileLevel> {
    let is_row = |axis: AxisId| fused.pair.rows.iter().any(|row| row[0] == axis);
    fused.first.sums.iter().filter(move |level| is_row(level.axis))
}

/// Returns the accesses that masking needs besides the scores, such as a mask or positions; none
/// for a causal mask alone, which compares numbers of keys and queries instead.
pub(super) fn others(spec: &Spec, softmax: &SoftmaxEquations) -> Vec<Access> {
    let mut others: Vec<Access> = Vec::new();
    if softmax.later.is_some() {
        return others;
    }
    for access in spec.equations[softmax.largest].loads() {
        if *access != spec.equations[softmax.scores].output && !others.contains(access) {
            others.push(access.clone());
        }
    }
    others
}
