//! Loops over the chunks of the reduction, with one or two chunks in shared memory at a time.

use super::Lowering;
use super::copy::Way;
use crate::contraction::AxisId;
use crate::lower::nest;
use autotune_ir::affine::Affine;
use autotune_ir::program::{LoopKind, Node};

impl Lowering<'_> {
    /// Serial loops over the chunks of all reduction axes but the last, which is pipelined.
    pub(super) fn chunks(&mut self, rest: &[(AxisId, usize)], base: &mut Vec<(AxisId, Affine)>) -> Vec<Node> {
        match rest {
            [] => self.one_stage(base),
            [(axis, chunk)] if self.tiled.stages == 2 => self.two_stages(*axis, *chunk, base),
            [(axis, chunk), rest @ ..] => {
                let mut loops = Vec::new();
                let (count, first) = match rest {
                    [] => (self.tiled.chunks(), self.split_base.clone()),
                    _ => (self.extent(*axis).div_ceil(*chunk), Affine::default()),
                };
                let q = self.open(format!("{}.0", self.name(*axis)), count, LoopKind::Serial, &mut loops);
                base.push((*axis, q * *chunk as i64 + first));
                let body = self.chunks(rest, base);
                base.pop();
                nest(loops, body)
            }
        }
    }

    /// `copy; barrier; multiply; barrier`.
    fn one_stage(&mut self, base: &[(AxisId, Affine)]) -> Vec<Node> {
        let zero = Affine::default();
        let mut nodes = self.copy(Way::Direct(&zero), base);
        nodes.push(Node::Barrier);
        nodes.extend(self.multiply(&zero, base));
        if self.tiled.chunks() > 1 || self.repeats_chunks() {
            nodes.push(Node::Barrier);
        }
        nodes
    }

    /// The loop over the chunks of an axis with two chunks in shared memory; see [`crate::tiled`]. The loop runs over pairs
    /// of chunks, so that the slot of each is a constant.
    fn two_stages(&mut self, axis: AxisId, chunk: usize, base: &mut Vec<(AxisId, Affine)>) -> Vec<Node> {
        let count = self.tiled.chunks();
        let chunk = chunk as i64;
        let first = self.split_base.clone();
        let slot = |n: usize| Affine::constant(n as i64 % 2);
        base.push((axis, first.clone()));
        let mut nodes = self.copy(Way::Direct(&slot(0)), base);
        nodes.push(Node::Barrier);
        let pairs = (count - 1) / 2;
        if pairs > 0 {
            let mut loops = Vec::new();
            let pair = self.open(format!("{}.0", self.name(axis)), pairs, LoopKind::Serial, &mut loops);
            let here = pair * (2 * chunk) + first.clone();
            let there = here.clone() + chunk;
            let mut body = self.step(axis, [here, there.clone()], 0, base);
            body.extend(self.step(axis, [there.clone(), there + chunk], 1, base));
            nodes.extend(nest(loops, body));
        }
        if count.is_multiple_of(2) {
            let at = |q: usize| first.clone() + q as i64 * chunk;
            nodes.extend(self.step(axis, [at(count - 2), at(count - 1)], 0, base));
        }
        set(base, first + (count as i64 - 1) * chunk);
        nodes.extend(self.multiply(&slot(count - 1), base));
        base.pop();
        // The next round begins with a copy to the first slot.
        if self.repeats_chunks() && !count.is_multiple_of(2) {
            nodes.push(Node::Barrier);
        }
        nodes
    }

    /// True if there are loops around the one over chunks of the innermost reduction axis.
    fn repeats_chunks(&self) -> bool {
        self.tiled.reduce.iter().rev().skip(1).any(|&(axis, chunk)| chunk < self.extent(axis))
    }

    /// Multiplies the chunk at `here`, in slot `slot`, while the one at `next` is loaded.
    fn step(&mut self, axis: AxisId, [here, next]: [Affine; 2], slot: i64, base: &mut [(AxisId, Affine)]) -> Vec<Node> {
        debug_assert_eq!(base.last().map(|b| b.0), Some(axis));
        set(base, next);
        let mut nodes = self.copy(Way::Fetch, base);
        set(base, here);
        nodes.extend(self.multiply(&Affine::constant(slot), base));
        nodes.extend(self.copy(Way::Put(&Affine::constant(1 - slot)), base));
        nodes.push(Node::Barrier);
        nodes
    }
}

/// The base of the axis that is being pipelined.
fn set(base: &mut [(AxisId, Affine)], value: Affine) {
    if let Some(last) = base.last_mut() {
        last.1 = value;
    }
}
