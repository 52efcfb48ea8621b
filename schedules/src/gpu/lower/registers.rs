//! Multiplication of a chunk by single threads.

use super::{GpuLowering, Place};
use crate::lower::nest::Loops;
use crate::lower::{assign, load, nest};
use autotune_ir::affine::Affine;
use autotune_ir::program::{Expr, Index, LoopKind, Node};

impl GpuLowering<'_> {
    /// Multiplies a chunk, which is in `slot` of shared memory:
    ///
    /// ```text
    /// for the steps of a chunk {
    ///   data_frag, weight_frag = inputs of the thread's tile and the step
    ///   acc += data_frag * weight_frag }
    /// ```
    pub(super) fn multiply_registers(&mut self, unroll: usize, slot: &Affine, chunk: &Place) -> Vec<Node> {
        let tiling = self.tiling;
        let (loops, steps) = self.open_steps(unroll);
        let mut nodes = Vec::new();
        for which in 0..2 {
            let levels = || tiling.sums_of(which).map(|(_, level)| level);
            let (mut loops, index) = self.open_sums(levels());
            // Adjacent registers are also adjacent in shared memory.
            if let (Some(last), Some(level)) = (loops.last_mut(), levels().last())
                && level.extent > 1
            {
                last.2 = LoopKind::Vectorized;
            }
            let mut values = self.in_block(levels(), &index);
            steps.iter().for_each(|(axis, step)| values[*axis] = step.clone());
            let mut places = self.places(which, &values);
            if let Some((dim, first)) = self.data_from.as_ref().filter(|_| which == 0) {
                places[*dim].add_scaled(first, 1);
            }
            let value = load(self.shared[which], self.shared_index(which, slot, &places));
            nodes.extend(nest(loops, vec![assign(self.fragments[which], index, value)]));
        }
        nodes.extend(self.multiply_add(&steps, chunk));
        nest(loops, nodes)
    }

    /// Opens loops over the steps of a chunk, and returns the step along each axis. The innermost
    /// loops are unrolled up to `unroll` steps in all. A loop is split if only a divisor of its
    /// extent fits.
    fn open_steps(&mut self, unroll: usize) -> (Loops, Place) {
        let mut budget = unroll;
        let mut split = Vec::new();
        for &(axis, chunk) in self.tiling.reduce.iter().rev() {
            let inner = (1..=chunk.min(budget)).rev().find(|d| chunk.is_multiple_of(*d)).unwrap_or(1);
            budget = if inner == chunk { budget / inner } else { 1 };
            split.push((axis, chunk / inner, inner));
        }

        let (mut loops, mut steps) = (Vec::new(), Vec::new());
        for &(axis, outer, inner) in split.iter().rev() {
            let name = self.tiling.roles.name(axis);
            let serial = self.all.open_some(format!("{name}.1"), outer, LoopKind::Serial, &mut loops);
            let unrolled = self.all.open_some(format!("{name}.u"), inner, LoopKind::Unrolled, &mut loops);
            steps.push((axis, serial * inner as i64 + unrolled));
        }
        (loops, steps)
    }

    /// Returns `acc += data_frag * weight_frag` over the thread's tile.
    fn multiply_add(&mut self, steps: &Place, chunk: &Place) -> Vec<Node> {
        let tiling = self.tiling;
        let (loops, index) = self.open_sums(tiling.sums.iter());
        let mut values = self.in_block(tiling.sums.iter(), &index);
        steps.iter().for_each(|(axis, step)| values[*axis] = step.clone());
        let operand = |which: usize| {
            let used = tiling.sums_of(which).map(|(i, _)| index[i].clone());
            load(self.fragments[which], used.collect::<Index>())
        };
        let value = Expr::product(operand(0), operand(1));
        nest(loops, vec![self.accumulate(index, value, values, chunk)])
    }
}
