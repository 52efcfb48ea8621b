//! Multiplication of a chunk by matrix instructions.

use super::{GpuLowering, Place};
use crate::contraction::divide;
use crate::lower::{load, nest};
use autotune_ir::affine::Affine;
use autotune_ir::instruction::ThreadGroup;
use autotune_ir::program::{Expr, LoopKind, Node, Scope};

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
        let shape = [("s", size / steps), ("i", rows), ("j", columns / run), ("h", 2), ("p", run), ("c", 2)];
        let [s, i, j, h, p, c] =
            shape.map(|(name, extent)| self.all.open(name, extent, LoopKind::Unrolled, &mut loops));

        let pair = p.clone() * 2 + c.clone();
        let index = vec![i.clone(), j.clone(), h.clone(), pair];
        let mut values = self.in_block(tiling.sums.iter(), &index);
        let is_held = self.all.buffers[self.shared[0].0 as usize].scope == Scope::Warp;
        let data = match is_held {
            true => {
                let digits = [("u", steps / 8), ("l", 4), ("e", 2)];
                let [u, l, e] =
                    digits.map(|(name, extent)| self.all.open(name, extent, LoopKind::Unrolled, &mut loops));
                values[axis] = s.clone() * steps as i64 + u.clone() * 8 + l.clone() * 2 + &e;
                let [warp, row, _] = self.lanes();
                vec![warp, i, s * (steps / 8) as i64 + u, h, row, l, e]
            }
            false => {
                let k = self.all.open("k", steps, LoopKind::Unrolled, &mut loops);
                values[axis] = s * steps as i64 + k;
                // Data that stays for all chunks has one slot.
                let has_slots = self.all.buffers[self.shared[0].0 as usize].shape[0] > 1;
                let slot = if has_slots { slot.clone() } else { Affine::default() };
                self.shared_index(0, &slot, &self.places(0, &values))
            }
        };
        let data = load(self.shared[0], data);

        // Packed weights have runs of a lane's columns in another order than the result.
        let mut packed = values.clone();
        let lane = divide(&self.thread_base[column_axis], run);
        packed[column_axis] = lane + j * (8 * run as i64) + p * 8 + c;
        let weight = load(self.shared[1], self.shared_index(1, slot, &self.places(1, &packed)));

        let store = self.accumulate(index, Expr::product(data, weight), values, chunk);
        vec![Node::Call { instruction: by.instruction(), body: nest(loops, vec![store]) }]
    }

    /// Returns the numbers of the warp, and of the lane's row and pair of columns, of a tiling
    /// whose warps are along the rows.
    pub(crate) fn lanes(&self) -> [Affine; 3] {
        let [rows, pairs] = [0, 1].map(|axis| &self.thread_base[self.tiling.spatial[axis].0]);
        let row = Affine { constant: 0, terms: rows.terms.iter().copied().filter(|term| term.1 == 1).collect() };
        let mut warp = rows.clone();
        warp.add_scaled(&row, -1);
        let step = warp.terms.first().map_or(1, |term| term.1);
        [divide(&warp, step as usize), row, divide(pairs, 2)]
    }
}
