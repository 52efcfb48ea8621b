//! Copies of the operands' chunks to shared memory.

use super::{GpuLowering, Place};
use crate::gpu::{MAX_UNROLLED_ROUNDS, MicroKernel, Staged};
use crate::lower::nest::guarded_value;
use crate::lower::{assign, at, load, nest};
use autotune_ir::affine::{Affine, VarId};
use autotune_ir::instruction::{BOX_COPY, ThreadGroup};
use autotune_ir::program::{Digit, LoopKind, Node};

/// Names of the positions along the dimensions of an operand.
const PLACES: [&str; 10] = ["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9"];

/// Source and destination of a copy.
#[derive(Clone, Copy)]
pub(crate) enum CopyMode<'a> {
    /// From global memory to a slot of shared memory.
    Direct(&'a Affine),
    /// From global memory to registers.
    Fetch,
    /// From registers to a slot of shared memory.
    Put(&'a Affine),
}

impl GpuLowering<'_> {
    /// Copies the block's chunk of both operands.
    pub(super) fn copy(&mut self, way: CopyMode, chunk: &Place) -> Vec<Node> {
        (0..2).flat_map(|which| self.copy_operand(which, way, chunk)).collect()
    }

    /// Copies the chunk of one operand:
    ///
    /// ```text
    /// for i in 0..rounds { unflatten (x0, x1, ..) = i*threads + thread {
    ///   for v in 0..vector { shared[x] = source[chunk + x] } } }
    /// ```
    ///
    /// If the number of threads is a multiple of the last extents, `x2 * ..`, a thread's positions
    /// along these dimensions are the same in each round. A single other position is a multiple of
    /// the round, and needs no division:
    ///
    /// ```text
    ///   →  for i in 0..rounds { unflatten (y, x2, ..) = thread {
    ///        unflatten (x0, x1) = i*(threads / (x2 * ..)) + y { .. } } }
    ///   →  for i in 0..rounds { unflatten (y, x1) = thread { x0 = i*(threads / x1) + y { .. } } }
    /// ```
    pub(crate) fn copy_operand(&mut self, which: usize, way: CopyMode, chunk: &Place) -> Vec<Node> {
        let (tiling, staged) = (self.tiling, &self.tiling.staged[which]);
        let threads = tiling.threads();
        let rounds = staged.rounds(threads);
        let team = match tiling.kernel {
            MicroKernel::Registers { .. } => None,
            MicroKernel::Matrix { by, .. } => Some(by),
        };
        // Registers cannot be indexed by a loop variable, so copies through registers are unrolled.
        let unroll = rounds <= MAX_UNROLLED_ROUNDS || !matches!(way, CopyMode::Direct(_)) || team.is_some();
        let kind = if unroll { LoopKind::Unrolled } else { LoopKind::Serial };
        let mut loops = Vec::new();
        let round = self.all.open_some("i", rounds, kind, &mut loops);

        let (mut digits, mut places) = self.vector_places(staged);
        let product = |digits: &[Digit]| digits.iter().map(|digit| digit.extent).product::<usize>();
        let is_fixed = |&first: &usize| threads.is_multiple_of(product(&digits[first..]));
        // A box is copied as a whole, in the order of its elements.
        let is_box = team == Some(ThreadGroup::WarpGroup);
        let first = (1..digits.len()).find(is_fixed).filter(|_| rounds > 1 && !is_box);
        let copy = |this: &mut Self, places| this.copy_element(which, way, chunk, (&round, places));

        let node = match first.map(|first| digits.split_off(first)) {
            None => {
                let value = round.clone() * threads as i64 + &self.thread;
                Node::Unflatten { value, digits, body: copy(self, places) }
            }
            Some(mut fixed) => {
                let extent = threads / product(&fixed);
                let row = self.all.var("y", extent);
                fixed.insert(0, Digit { var: row, extent });
                let moving = round.clone() * extent as i64 + Affine::var(row);
                let body = match digits[..] {
                    [digit] if rounds * extent == digit.extent => {
                        places.iter_mut().for_each(|place| *place = place.substitute(digit.var, &moving));
                        copy(self, places)
                    }
                    _ => vec![Node::Unflatten { value: moving, digits, body: copy(self, places) }],
                };
                Node::Unflatten { value: self.thread.clone(), digits: fixed, body }
            }
        };
        let nodes = nest(loops, vec![node]);
        if is_box { vec![Node::Call { instruction: &BOX_COPY, body: nodes }] } else { nodes }
    }

    /// Returns digits that number the vectors of an operand's chunk, and the position of a vector
    /// along each dimension.
    fn vector_places(&mut self, staged: &Staged) -> (Vec<Digit>, Vec<Affine>) {
        let (mut digits, mut places) = (Vec::new(), vec![Affine::default(); staged.extents.len()]);
        for (dim, &extent) in staged.extents.iter().enumerate() {
            let step = if dim == staged.along() { staged.vector } else { 1 };
            if extent > step || dim == staged.along() {
                let digit = Digit { var: self.all.var(PLACES[dim], extent / step), extent: extent / step };
                places[dim] = Affine::var(digit.var) * step as i64;
                digits.push(digit);
            }
        }
        (digits, places)
    }

    /// Copies the `vector` elements from `places` on, with zeros for elements out of bounds.
    fn copy_element(
        &mut self,
        operand: usize,
        mode: CopyMode,
        chunk: &Place,
        (round, mut places): (&Affine, Vec<Affine>),
    ) -> Vec<Node> {
        let (roles, staged) = (&self.tiling.roles, &self.tiling.staged[operand]);
        let mut lanes = Vec::new();
        let lane = self.all.open_some("v", staged.vector, LoopKind::Vectorized, &mut lanes);
        let next = vec![round.clone(), lane.clone()];
        let pixels = roles.pixels.as_ref().filter(|_| operand == 0);

        // A vector of the matrix `columns` has the row and image of its first pixel.
        let mut values = self.point(vec![Affine::default(); roles.axes.len()], chunk);
        let contiguous = pixels.is_some_and(|pixels| pixels.contiguous);
        let first = places.clone();
        places[staged.along()].add_scaled(&lane, 1);
        let store = |this: &Self, value| match mode {
            CopyMode::Direct(slot) | CopyMode::Put(slot) => {
                assign(this.shared[operand], this.shared_index(operand, slot, &places), value)
            }
            CopyMode::Fetch => assign(this.fetched[operand], next.clone(), value),
        };
        if let CopyMode::Put(_) = mode {
            let value = load(self.fetched[operand], next.clone());
            return nest(lanes, vec![store(self, value)]);
        }

        let whole = self.whole_axis();
        let source = self.operands.sources[operand];
        let read = |this: &Self, own: &[Affine], offsets: &[Affine]| {
            let operand = if pixels.is_some() { (&roles.own.data, true) } else { (&staged.source, false) };
            let (index, bounds) = roles.element(operand, own, offsets, whole);
            guarded_value(this.all.guards(bounds), load(source, index))
        };

        if pixels.is_none() {
            let value = read(self, &values, &places);
            return nest(lanes, vec![store(self, value)]);
        }

        // Contiguous pixels are located by the first one of their vector.
        let behind = if contiguous { &first } else { &places };
        for (index, place) in staged.source.index.iter().zip(behind) {
            if let [(VarId(axis), 1)] = index.terms[..] {
                values[axis as usize].add_scaled(place, 1);
            }
        }
        let (width, in_row) = if contiguous { (staged.vector, lane) } else { (1, Affine::default()) };
        self.at_pixel(&values, (width, &in_row), true, |this, own| {
            let value = read(this, own, &[]);
            nest(lanes, vec![store(this, value)])
        })
    }

    /// Returns the reduction axis that is divided into chunks, if no chunk exceeds it.
    fn whole_axis(&self) -> Option<usize> {
        let &(axis, chunk) = self.tiling.reduce.last()?;
        let is_whole = !self.has_partial_chunk
            && self.tiling.roles.extent(axis).is_multiple_of(chunk)
            && self.tiling.all_chunks().is_multiple_of(self.tiling.split);
        is_whole.then_some(axis)
    }

    /// Returns the position of an operand's element in its chunk; `values` are relative to the
    /// block's tile.
    pub(crate) fn places(&self, which: usize, values: &[Affine]) -> Vec<Affine> {
        let source = &self.tiling.staged[which].source;
        source.index.iter().map(|index| at(&Affine { constant: 0, terms: index.terms.clone() }, values)).collect()
    }

    pub(crate) fn shared_index(&self, which: usize, slot: &Affine, places: &[Affine]) -> Vec<Affine> {
        let order = self.tiling.staged[which].order.iter();
        std::iter::once(slot.clone()).chain(order.map(|&dim| places[dim].clone())).collect()
    }
}
