//! Copies: weights ahead of time, and chunks of both operands on their way to shared memory.

use super::{Lowering, guarded};
use crate::contraction::AxisId;
use crate::lower::partial::COPY_THREADS;
use crate::lower::{assign, at, load, nest};
use crate::tiled::{MAX_UNROLLED_ROUNDS, reduce_first};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{BufferId, Digit, Expr, LoopKind, Node, Role};

/// How a chunk is copied.
#[derive(Clone, Copy)]
pub(super) enum Way<'a> {
    /// Into a slot of shared memory.
    Direct(&'a Affine),
    /// Into registers.
    Fetch,
    /// From there into a slot.
    Put(&'a Affine),
}

impl Lowering<'_> {
    /// `for every element: packed[reduction, rest] = weight[rest, reduction]`, a block per element but for the last
    /// dimension, along which run the threads.
    pub(super) fn pack_weight(&mut self) -> Vec<Node> {
        let original = self.tiled.contraction.weight.clone();
        let packed = self.tiled.staged[1].source.clone();
        let mut loops = Vec::new();
        let mut index = Vec::new();
        let last = packed.shape.len() - 1;
        for (dim, &extent) in packed.shape.iter().enumerate() {
            let name = format!("p{dim}");
            if dim < last {
                index.push(self.open(name, extent, LoopKind::Block, &mut loops));
            } else {
                let threads = extent.min(COPY_THREADS);
                let block = self.open(format!("{name}.b"), extent.div_ceil(threads), LoopKind::Block, &mut loops);
                let thread = self.var(format!("{name}.t"), threads);
                loops.push((thread, threads, LoopKind::Thread));
                index.push(block * threads as i64 + Affine::var(thread));
            }
        }
        // Where each dimension of the packed weights lies in the original ones.
        let order = reduce_first(&self.tiled.contraction, &original);
        let mut from = vec![Affine::default(); original.shape.len()];
        order.iter().zip(&index).for_each(|(&dim, value)| from[dim] = value.clone());
        let when = self.guards([(index[last].clone(), packed.shape[last])]);
        let weight = self.buffers.iter().position(|b| b.role == Role::Weight).map_or(0, |i| i as u32);
        let copy = assign(self.sources[1], index, load(BufferId(weight), from));
        nest(loops, guarded(when, vec![copy]))
    }

    /// Copies what the block needs of a chunk of both operands.
    pub(super) fn copy(&mut self, way: Way, base: &[(AxisId, Affine)]) -> Vec<Node> {
        (0..2).flat_map(|which| self.copy_operand(which, way, base)).collect()
    }

    /// ```text
    /// for i in 0..rounds { unflatten (x0, x1, ..) = i*threads + thread { for v in 0..vector { shared[x] = source[base + x] } } }
    /// ```
    ///
    /// Where the threads are a multiple of the last extents, `x2 * ..`, a thread's places along those are the same in each round:
    ///
    /// ```text
    ///   →  for i in 0..rounds { unflatten (y, x2, ..) = thread { unflatten (x0, x1) = i*(threads / (x2 * ..)) + y { .. } } }
    /// ```
    fn copy_operand(&mut self, which: usize, way: Way, base: &[(AxisId, Affine)]) -> Vec<Node> {
        let staged = &self.tiled.staged[which];
        let (threads, vector) = (self.tiled.threads(), staged.vector);
        let rounds = staged.rounds(threads);
        let unroll = rounds <= MAX_UNROLLED_ROUNDS || !matches!(way, Way::Direct(_));
        let kind = if unroll { LoopKind::Unrolled } else { LoopKind::Serial };
        let mut loops = Vec::new();
        let round = self.open("i".into(), rounds, kind, &mut loops);
        let last = staged.extents.len() - 1;
        let (mut digits, mut places) = (Vec::new(), Vec::new());
        for (dim, &extent) in staged.extents.iter().enumerate() {
            let step = if dim == last { vector } else { 1 };
            if extent == step && dim != last {
                places.push(Affine::default());
                continue;
            }
            let var = self.var(format!("x{dim}"), extent / step);
            digits.push(Digit { var, extent: extent / step });
            places.push(Affine::var(var) * step as i64);
        }
        let body = self.copy_element(which, way, base, (&round, places));
        let product = |digits: &[Digit]| digits.iter().map(|digit| digit.extent).product::<usize>();
        let is_fixed = |&first: &usize| threads.is_multiple_of(product(&digits[first..]));
        let fixed = (1..digits.len()).find(is_fixed).filter(|_| rounds > 1);
        let Some(fixed) = fixed.map(|first| digits.split_off(first)) else {
            let value = round * threads as i64 + self.thread.clone();
            return nest(loops, vec![Node::Unflatten { value, digits, body }]);
        };
        let extent = threads / product(&fixed);
        let row = self.var("y".into(), extent);
        let moving = Node::Unflatten { value: round * extent as i64 + Affine::var(row), digits, body };
        let digits = [vec![Digit { var: row, extent }], fixed].concat();
        nest(loops, vec![Node::Unflatten { value: self.thread.clone(), digits, body: vec![moving] }])
    }

    /// Copies the `vector` elements from `places` on.
    fn copy_element(
        &mut self,
        which: usize,
        way: Way,
        base: &[(AxisId, Affine)],
        (round, mut places): (&Affine, Vec<Affine>),
    ) -> Vec<Node> {
        let mut lanes = Vec::new();
        let lane = self.open("v".into(), self.tiled.staged[which].vector, LoopKind::Vectorized, &mut lanes);
        let place = places.last().cloned().unwrap_or_default();
        if let Some(last) = places.last_mut() {
            *last = place.clone() + lane.clone();
        }
        let next = vec![round.clone(), lane.clone()];
        let (found, value) = match (way, &self.tiled.pixels) {
            (Way::Put(_), _) => (None, load(self.prefetched[which], next.clone())),
            (_, Some(pixels)) if which == 0 => {
                let (found, value) = self.fetch_pixel(pixels, &places, (&place, &lane), base);
                (Some(found), value)
            }
            _ => (None, self.fetch(which, &places, base)),
        };
        let store = match way {
            Way::Direct(slot) | Way::Put(slot) => {
                assign(self.shared[which], self.shared_index(which, slot, &places), value)
            }
            Way::Fetch => assign(self.prefetched[which], next, value),
        };
        let body = nest(lanes, vec![store]);
        match found {
            Some(found) => found.around(body),
            None => body,
        }
    }

    pub(super) fn shared_index(&self, which: usize, slot: &Affine, places: &[Affine]) -> Vec<Affine> {
        let order = self.tiled.staged[which].order.iter();
        std::iter::once(slot.clone()).chain(order.map(|&dim| places[dim].clone())).collect()
    }

    /// The element of an operand `places` behind the first that the block needs of a chunk; zero beyond the tensor or the
    /// axis.
    fn fetch(&self, which: usize, places: &[Affine], base: &[(AxisId, Affine)]) -> Expr {
        let source = &self.tiled.staged[which].source;
        let mut values = self.block_base.clone();
        base.iter().for_each(|(axis, value)| values[*axis] = value.clone());
        let (mut index, mut bounds) = (Vec::new(), Vec::new());
        for (dim, affine) in source.index.iter().enumerate() {
            index.push(at(affine, &values) + places[dim].clone());
            // The one axis that this dimension counts, but for a batch axis, ends where the axis does; any other where the
            // tensor does.
            let own: Vec<_> = affine.terms.iter().filter(|t| !self.tiled.batch.contains(&(t.0.0 as usize))).collect();
            bounds.push(match own[..] {
                [&(VarId(axis), 1)] if affine.constant == 0 => {
                    let axis = axis as usize;
                    (values[axis].clone() + places[dim].clone(), self.extent(axis))
                }
                _ => (index[dim].clone(), source.shape[dim]),
            });
        }
        let value = load(self.sources[which], index);
        let when = self.guards(bounds);
        if when.is_empty() { value } else { Expr::Guarded { when, value: Box::new(value) } }
    }
}
