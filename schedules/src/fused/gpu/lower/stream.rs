//! Chunks of keys and values that are copied asynchronously while earlier ones are multiplied.

use super::PairLowering;
use crate::gpu::lower::copy::CopyMode;
use crate::lower::nest;
use crate::lower::nest::guarded;
use autotune_ir::affine::Affine;
use autotune_ir::program::{LoopKind, Node};

impl PairLowering<'_> {
    /// Builds the loop over chunks of keys with `slots` chunks in shared memory:
    ///
    /// ```text
    /// copy group { queries; chunk 0 to slot 0 }  ..  copy group { chunk ahead-1 to slot ahead-1 }
    /// for q in 0..Q
    ///   await copies but of ahead-1 groups;  barrier
    ///   copy group { chunk q + ahead to its slot, if there is such a chunk and it is not hidden }
    ///   unless chunk q is hidden
    ///     first_acc = 0;  first_acc += data * weight[slot];  held = softmax weights of first_acc
    ///     acc += held * weight_shared[slot]
    /// ```
    pub(super) fn streamed_chunks(&mut self, slots: usize) -> Vec<Node> {
        let count = self.fused.channel_tiles();
        let (zero, ahead) = (Affine::default(), slots.max(2) - 1);
        let mut nodes = Vec::new();
        for number in 0..ahead {
            let number = Affine::constant(number as i64);
            let mut copies = match number.constant {
                0 => self.first.copy_operand(0, CopyMode::Direct(&zero), &Vec::new()),
                _ => Vec::new(),
            };
            copies.extend(self.copy_chunk(&number, &number));
            nodes.push(Node::CopyGroup { body: copies });
        }

        let mut loops = Vec::new();
        let q = self.first.all.open("q", count, LoopKind::Serial, &mut loops);
        let next = q.clone() + ahead as i64;
        let copies = if count > ahead { self.next_copies(&next, slots, count) } else { Vec::new() };
        // Even an empty group counts, so that the number of groups in flight stays constant.
        let mut step = vec![Node::AwaitCopies { pending: ahead - 1 }, Node::Barrier, Node::CopyGroup { body: copies }];

        let first = self.place_chunk(q.clone());
        let mut products = self.first.clear();
        products.extend(self.in_slot(&q, slots, |this, slot| this.first.multiply(slot, &Vec::new())));
        // Each warp holds the weights of its own rows, so that no barrier is needed after this.
        products.extend(self.weigh());
        products.extend(self.in_slot(&q, slots, |this, slot| this.multiply_values(&first, slot)));
        step.extend(guarded(self.is_seen(&first), products));
        nodes.extend(nest(loops, step));
        nodes
    }

    /// Builds the copies of chunk `next` to its slot, if there is such a chunk and it is not
    /// hidden.
    fn next_copies(&mut self, next: &Affine, slots: usize, count: usize) -> Vec<Node> {
        let first = self.place_chunk(next.clone());
        let mut when = self.first.all.guards([(next.clone(), count)]);
        when.extend(self.is_seen(&first));
        let copies = self.in_slot(next, slots, |this, slot| this.copy_chunk(next, slot));
        guarded(when, copies)
    }

    /// Builds the copies of the keys and values of a chunk to a slot.
    fn copy_chunk(&mut self, number: &Affine, slot: &Affine) -> Vec<Node> {
        let first = self.place_chunk(number.clone());
        let mut copies = self.first.copy_operand(1, CopyMode::Direct(slot), &Vec::new());
        let place = self.place_values(&first);
        copies.extend(self.with_shared_nest(|second| second.copy_operand(1, CopyMode::Direct(slot), &place)));
        copies
    }

    /// Builds the second product of the chunk whose first key is `first`.
    fn multiply_values(&mut self, first: &Affine, slot: &Affine) -> Vec<Node> {
        let place = self.place_values(first);
        self.with_shared_nest(|second| second.multiply(slot, &place))
    }

    /// Returns the position of a chunk of values.
    fn place_values(&mut self, first: &Affine) -> Vec<(usize, Affine)> {
        let Some([channel, step]) = self.fused.pair.channel else { return Vec::new() };
        let roles = &self.fused.first.roles;
        self.second.has_partial_chunk = !roles.extent(channel).is_multiple_of(self.fused.first.tile(channel));
        vec![(step, first.clone())]
    }

    /// Calls `body` with the slot of chunk `q`: `q` modulo the number of slots.
    fn in_slot(&mut self, q: &Affine, slots: usize, body: impl FnOnce(&mut Self, &Affine) -> Vec<Node>) -> Vec<Node> {
        if slots == 1 {
            return body(self, &Affine::default());
        }
        let last = self.first.all.range(q).1 as usize;
        let (digits, values) = self.first.all.digits([("round", last / slots + 1), ("slot", slots)]);
        vec![Node::Unflatten { value: q.clone(), digits, body: body(self, &values[1]) }]
    }
}
