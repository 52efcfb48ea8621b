//! A softmax that goes on from chunk to chunk of keys.

use super::GpuFused;
use crate::contraction::AxisId;
use crate::fused::gpu::KEPT;
use crate::fused::gpu::softmax::Softmax;
use crate::gpu::Level;
use crate::lower::nest::Nest;
use autotune_ir::program::{Access, BufferId, Role, Scope};
use autotune_ir::spec::Spec;

/// What a thread knows of each of its rows, all but `total` the same in all threads of a row.
pub(super) struct Online {
    pub(super) softmax: Softmax,
    /// By tensor: where what is known lies.
    pub(super) tables: Vec<Option<BufferId>>,
    /// The largest score so far, that before the chunk, and what sums up to then are multiplied by.
    pub(super) largest: BufferId,
    pub(super) before: BufferId,
    pub(super) rescale: BufferId,
    /// The sum of the thread's weights, and one over that of all.
    pub(super) total: BufferId,
    pub(super) scale: BufferId,
    /// Scores of the thread, minus infinity beyond the keys.
    pub(super) masked: BufferId,
    /// One score, one weight, and what is read beside the scores.
    pub(super) score: BufferId,
    pub(super) weight: BufferId,
    pub(super) read: Vec<BufferId>,
    /// What each thread of a row has found, `[row, thread]`.
    pub(super) parts: Option<BufferId>,
}

impl Online {
    pub(super) fn new(softmax: Softmax, fused: &GpuFused, tables: Vec<Option<BufferId>>, all: &mut Nest) -> Self {
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
        let sums = fused.first.sums.iter().map(|level| level.extent).collect();
        let masked = value("masked", Scope::Register, sums);
        let [score, weight] = ["score", "score_weight"].map(|name| value(name, Scope::Register, Vec::new()));
        let read = 0..others(spec, &softmax).len();
        let read = read.map(|number| value(&format!("mask_{number}"), Scope::Register, Vec::new())).collect();
        let parts = (fused.row_threads() > 1).then(|| value("parts", Scope::Shared, fused.parts_shape()));
        Self { softmax, tables, largest, before, rescale, total, scale, masked, score, weight, read, parts }
    }

    pub(super) fn buffers(&self) -> impl Iterator<Item = BufferId> {
        let own =
            [self.largest, self.before, self.rescale, self.total, self.scale, self.masked, self.score, self.weight];
        self.parts.into_iter().chain(own).chain(self.read.iter().copied())
    }
}

/// The sums of a thread along rows.
pub(super) fn rows(fused: &GpuFused) -> impl Iterator<Item = &Level> {
    let is_row = |axis: AxisId| fused.pair.rows.iter().any(|row| row[0] == axis);
    fused.first.sums.iter().filter(move |level| is_row(level.axis))
}

/// What is read beside the scores: a mask, positions.
pub(super) fn others(spec: &Spec, softmax: &Softmax) -> Vec<Access> {
    let mut others: Vec<Access> = Vec::new();
    for access in spec.equations[softmax.largest].loads() {
        if *access != spec.equations[softmax.scores].output && !others.contains(access) {
            others.push(access.clone());
        }
    }
    others
}
