//! Multiplication of a chunk by matrix instructions.

use super::{GpuLowering, Place};
use crate::contraction::divide;
use crate::lower::{load, nest};
use autotune_ir::affine::Affine;
use autotune_ir::instruction::ThreadGroup;
use autotune_ir::program::{Expr, LoopKind, Node};

impl GpuLowering<'_> {
    /// Returns `mma { acc += data_shared[slot] * weight_shared[slot] }` in the form of
    /// [`autotune_ir::instruction::Fragments`].
    pub(super) fn multiply_matrix(
        &mut self,
        by: ThreadGroup,
        [rows, columns]: [usize; 2],
        run: usize,
        slot: &Affine,
        chunk: &Place,
    ) -> Vec<Node> {
        let (tiling, steps) = (self.tiling, self.tiling.instruction_steps());
        let Some(&(axis, size)) = tiling.reduce.last() else { return Vec::new() };
        let column_axis = tiling.spatial[1].0;
        let mut loops = Vec::new();
        let shape =
            [("s", size / steps), ("i", rows), ("j", columns / run), ("h", 2), ("p", run), ("c", 2), ("k", steps)];
        let [s, i, j, h, p, c, k] =
            shape.map(|(name, extent)| self.all.open(name, extent, LoopKind::Unrolled, &mut loops));

        let pair = p.clone() * 2 + c.clone();
        let index = vec![i, j.clone(), h, pair];
        let mut values = self.in_block(tiling.sums.iter(), &index);
        values[axis] = s * steps as i64 + k;
        // Data that stays for all chunks has one slot.
        let (only, has_slots) = (Affine::default(), self.all.buffers[self.shared[0].0 as usize].shape[0] > 1);
        let data_slot = if has_slots { slot } else { &only };
        let data = load(self.shared[0], self.shared_index(0, data_slot, &self.places(0, &values)));

        // Packed weights have runs of a lane's columns in another order than the result.
        let mut packed = values.clone();
        let lane = divide(&self.thread_base[column_axis], run);
        packed[column_axis] = lane + j * (8 * run as i64) + p * 8 + c;
        let weight = load(self.shared[1], self.shared_index(1, slot, &self.places(1, &packed)));

        let store = self.accumulate(index, Expr::product(data, weight), values, chunk);
        vec![Node::Call { instruction: by.instruction(), body: nest(loops, vec![store]) }]
    }
}
