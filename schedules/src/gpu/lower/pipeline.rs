//! Loops over the chunks of the reduction, for each pipeline of [`crate::gpu`].

use super::copy::CopyMode;
use super::{GpuLowering, Place};
use crate::contraction::AxisId;
use crate::gpu::Pipeline;
use crate::lower::nest;
use crate::lower::nest::{Loops, guarded};
use autotune_ir::affine::Affine;
use autotune_ir::program::{LoopKind, Mbarrier, Node, WarpRole};

impl GpuLowering<'_> {
    /// Returns the loops over all chunks of the block's part, for threads that both copy and
    /// multiply.
    pub(crate) fn chunks(&mut self) -> Vec<Node> {
        match self.tiling.pipeline {
            Pipeline::Asynchronous => self.asynchronous(),
            _ => self.axis_by_axis(0, &mut Vec::new()),
        }
    }

    /// Returns serial loops over the chunks of each reduction axis from position `depth` on; the
    /// last one may be pipelined.
    fn axis_by_axis(&mut self, depth: usize, chunk: &mut Place) -> Vec<Node> {
        let tiling = self.tiling;
        let Some(&(axis, size)) = tiling.reduce.get(depth) else { return self.one_chunk(chunk) };
        let is_last = depth + 1 == tiling.reduce.len();
        // A split divides only the chunks of the innermost axis.
        let (count, first) = match is_last {
            true => (tiling.chunks(), self.part.clone() * (tiling.chunks() * size) as i64),
            false => (tiling.roles.extent(axis).div_ceil(size), Affine::default()),
        };
        if is_last && tiling.pipeline == Pipeline::Fetched {
            chunk.push((axis, first.clone()));
            let nodes = self.fetched_chunks(count, (first, size as i64), chunk);
            chunk.pop();
            return nodes;
        }

        let mut loops = Vec::new();
        let name = format!("{}.0", tiling.roles.name(axis));
        let q = self.all.open_some(name, count, LoopKind::Serial, &mut loops);
        chunk.push((axis, q * size as i64 + first));
        let body = self.axis_by_axis(depth + 1, chunk);
        chunk.pop();
        nest(loops, body)
    }

    /// Returns the nodes of a chunk without pipelining: `copy; barrier; multiply; barrier`.
    fn one_chunk(&mut self, chunk: &Place) -> Vec<Node> {
        let zero = Affine::default();
        let mut nodes = self.copy(CopyMode::Direct(&zero), chunk);
        nodes.push(Node::Barrier);
        nodes.extend(self.multiply(&zero, chunk));
        // Without another chunk, no copy overwrites shared memory.
        if self.tiling.chunks() > 1 || self.repeats_chunks() {
            nodes.push(Node::Barrier);
        }
        nodes
    }

    /// Returns the loop over the chunks of the last axis, from `first` on. The next chunk is in
    /// flight in registers. Each iteration has two chunks, so that their slots are constants.
    fn fetched_chunks(&mut self, count: usize, (first, size): (Affine, i64), chunk: &mut Place) -> Vec<Node> {
        let slot = |n: usize| Affine::constant(n as i64 % 2);
        let mut nodes = self.copy(CopyMode::Direct(&slot(0)), chunk);
        nodes.push(Node::Barrier);
        // The last chunk is multiplied after the loop, since no copy runs next to it.
        let pairs = (count - 1) / 2;
        if pairs > 0 {
            let mut loops = Vec::new();
            let name = format!("{}.0", self.tiling.roles.name(self.tiling.reduce[chunk.len() - 1].0));
            let pair = self.all.open_some(name, pairs, LoopKind::Serial, &mut loops);
            let here = pair * (2 * size) + first.clone();
            let there = here.clone() + size;
            let mut body = self.step([here, there.clone()], 0, chunk);
            body.extend(self.step([there.clone(), there + size], 1, chunk));
            nodes.extend(nest(loops, body));
        }

        let at = |q: usize| first.clone() + q as i64 * size;
        if count.is_multiple_of(2) {
            nodes.extend(self.step([at(count - 2), at(count - 1)], 0, chunk));
        }
        set(chunk, at(count - 1));
        nodes.extend(self.multiply(&slot(count - 1), chunk));
        // The next iteration of an outer loop begins with a copy to the first slot.
        if self.repeats_chunks() && !count.is_multiple_of(2) {
            nodes.push(Node::Barrier);
        }
        nodes
    }

    /// Multiplies the chunk at `here`, in slot `slot`, while the chunk at `next` is loaded.
    fn step(&mut self, [here, next]: [Affine; 2], slot: i64, chunk: &mut Place) -> Vec<Node> {
        set(chunk, next);
        // The multiplication hides the latency of the loads. The other slot is free when it ends.
        let mut nodes = self.copy(CopyMode::Fetch, chunk);
        set(chunk, here);
        nodes.extend(self.multiply(&Affine::constant(slot), chunk));
        nodes.extend(self.copy(CopyMode::Put(&Affine::constant(1 - slot)), chunk));
        nodes.push(Node::Barrier);
        nodes
    }

    /// True if loops around the innermost reduction axis repeat the loop over its chunks.
    fn repeats_chunks(&self) -> bool {
        self.tiling.chunk_counts().rev().skip(1).any(|count| count > 1)
    }

    /// Returns the loop over chunks, with asynchronous copies of the next chunks in flight.
    fn asynchronous(&mut self) -> Vec<Node> {
        let (ahead, chunks) = (self.tiling.ahead(), self.tiling.chunks());
        let mut first = Vec::new();
        // The prologue starts the copies of the first chunks.
        let s = self.all.open("s", ahead, LoopKind::Unrolled, &mut first);
        let copies = self.copy_chunk(&s, &s);
        let mut nodes = nest(first, vec![Node::CopyGroup { body: copies }]);

        let mut loops = Vec::new();
        let q = self.open_chunks(chunks, &mut loops);
        let next = q.clone() + ahead as i64;
        let when = self.all.guards([(next.clone(), chunks)]);
        // The condition is inside of the splits into digits, which several copies then share.
        let body = self.in_slot(next.clone(), |this, slot| {
            this.at_chunk(&next, |this, chunk| guarded(when, this.copy(CopyMode::Direct(slot), chunk)))
        });
        let body = if chunks > ahead { body } else { Vec::new() };
        // Even an empty group counts, so that the number of groups in flight stays constant.
        let mut step = vec![Node::AwaitCopies { pending: ahead - 1 }, Node::Barrier, Node::CopyGroup { body }];
        step.extend(self.multiply_chunk(&q, q.clone()));
        nodes.extend(nest(loops, step));
        nodes
    }

    /// Opens the loops over all chunks of the block's part and returns the number of a chunk. The
    /// inner one is unrolled, so that slots and positions in a kernel are constants.
    fn open_chunks(&mut self, chunks: usize, loops: &mut Loops) -> Affine {
        let unrolled = self.tiling.unrolled_chunks();
        // Instructions of warp groups are awaited at the end of the loop, even of one iteration.
        let round = self.all.open("q", chunks / unrolled, LoopKind::Serial, loops);
        round * unrolled as i64 + self.all.open_some("u", unrolled, LoopKind::Unrolled, loops)
    }

    /// Returns a producer that copies, and consumers that multiply.
    pub(super) fn roles(&mut self) -> Vec<Node> {
        let producer = self.for_each_tile(Self::produce);
        let consumers = self.for_each_tile(|this, first| this.tile(|this| this.consume(first)));
        let role = |role, body| Node::Specialised { role, body };
        vec![role(WarpRole::Producer, producer), role(WarpRole::Consumers, consumers)]
    }

    /// Calls `body` for each tile of the block, with the number of the tile's first chunk.
    fn for_each_tile(&mut self, body: impl FnOnce(&mut Self, Affine) -> Vec<Node>) -> Vec<Node> {
        let Some((loops, value, digits)) = self.tile_loops.clone() else { return body(self, Affine::default()) };
        let turn = Affine::var(loops[0].0);
        let body = body(self, turn * self.tiling.chunks() as i64);
        nest(loops, vec![Node::Unflatten { value, digits, body }])
    }

    /// Returns the producer's loop: it waits for an empty slot and copies a chunk to it.
    fn produce(&mut self, first: Affine) -> Vec<Node> {
        let mut loops = Vec::new();
        let q = self.all.open("q", self.tiling.chunks(), LoopKind::Serial, &mut loops);
        let copies = self.in_slot(first + &q, |this, slot| this.copy_chunk(&q, slot));
        let wait = Node::Mbarrier(Mbarrier::WaitEmpty { pending: self.tiling.slots - 1 });
        nest(loops, vec![wait, Node::CopyGroup { body: copies }])
    }

    /// Returns the consumers' loop: they wait for a chunk, multiply it, and release the slot
    /// before.
    fn consume(&mut self, first: Affine) -> Vec<Node> {
        let mut loops = Vec::new();
        let q = self.all.open("q", self.tiling.chunks(), LoopKind::Serial, &mut loops);
        let mut step = vec![Node::Mbarrier(Mbarrier::WaitFull)];
        step.extend(self.multiply_chunk(&q, first + &q));
        step.push(Node::Mbarrier(Mbarrier::ArriveEmpty { pending: 1 }));
        let mut nodes = nest(loops, step);
        // The next tile's chunks need all slots, also the one of the last chunk.
        if self.tile_loops.is_some() {
            nodes.push(Node::Mbarrier(Mbarrier::ArriveEmpty { pending: 0 }));
        }
        nodes
    }

    /// Copies chunk `q` of the block's part to `slot`.
    fn copy_chunk(&mut self, q: &Affine, slot: &Affine) -> Vec<Node> {
        self.at_chunk(q, |this, chunk| this.copy(CopyMode::Direct(slot), chunk))
    }

    /// Multiplies chunk `q` of the block's part. It is number `of_all` of the chunks that the block
    /// copies, which determines its slot.
    fn multiply_chunk(&mut self, q: &Affine, of_all: Affine) -> Vec<Node> {
        self.in_slot(of_all, |this, slot| this.at_chunk(q, |this, chunk| this.multiply(slot, chunk)))
    }

    /// Calls `body` with the slot of chunk `q`: `q` modulo the number of slots.
    fn in_slot(&mut self, q: Affine, body: impl FnOnce(&mut Self, &Affine) -> Vec<Node>) -> Vec<Node> {
        let (slots, last) = (self.tiling.slots, self.all.range(&q).1 as usize);
        let (digits, values) = self.all.digits([("round", last / slots + 1), ("slot", slots)]);
        vec![Node::Unflatten { value: q, digits, body: body(self, &values[1]) }]
    }

    /// Calls `body` with the position of chunk `q` of the block's part.
    fn at_chunk(&mut self, q: &Affine, body: impl FnOnce(&mut Self, &Place) -> Vec<Node>) -> Vec<Node> {
        let tiling = self.tiling;
        let value = self.part.clone() * tiling.chunks() as i64 + q;
        let counted = tiling.chunk_order().into_iter();
        let is_used = |&(tile, count): &(&(AxisId, usize), usize)| count > 1 || Some(tile) == tiling.reduce.last();
        let used: Vec<_> = counted.filter(is_used).collect();
        let place = |(&(&(axis, size), _), value): (&(&(AxisId, usize), usize), Affine)| (axis, value * size as i64);

        let chunk = |values: Vec<Affine>| used.iter().zip(values).map(place).collect();
        if used.len() == 1 {
            return body(self, &chunk(vec![value]));
        }
        let (digits, values) =
            self.all.digits(used.iter().map(|&(&(axis, _), count)| (tiling.roles.name(axis), count)));
        vec![Node::Unflatten { value, digits, body: body(self, &chunk(values)) }]
    }
}

/// Sets the position along the axis that is pipelined.
fn set(chunk: &mut Place, value: Affine) {
    if let Some(last) = chunk.last_mut() {
        last.1 = value;
    }
}
