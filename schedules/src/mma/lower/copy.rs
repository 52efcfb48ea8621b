//! Copies: weights ahead of time, and chunks of both operands to shared memory.

use super::{Loops, Lowering};
use crate::lower::partial::COPY_THREADS;
use crate::lower::{assign, load, nest};
use crate::mma::gemm::Place;
use autotune_ir::affine::Affine;
use autotune_ir::program::{Expr, InBounds, LoopKind, Node, Team};

impl Lowering<'_> {
    /// `for every element: packed[column, outer, step] = weight[..]`, a thread each; zero where there is no such column. See
    /// [`crate::mma::Gemm::permuted`] for the order of the columns.
    pub(super) fn pack_weight(&mut self) -> Vec<Node> {
        let gemm = &self.mma.gemm;
        let shape = gemm.packed_shape();
        let columns = match gemm.run {
            1 => vec![("d0", shape[0])],
            run => vec![("j", shape[0] / (8 * run)), ("p", run), ("q", 4), ("c", 2)],
        };
        let others = ["d1", "d2", "d3"].into_iter().zip(shape[1..].iter().copied());
        let names: Vec<(&str, usize)> = columns.iter().copied().chain(others).collect();
        let mut loops = Vec::new();
        let blocks = shape.iter().product::<usize>().div_ceil(COPY_THREADS);
        let block = self.open_some("b", blocks, LoopKind::Block, &mut loops);
        let thread = self.open("t", COPY_THREADS, LoopKind::Thread, &mut loops);
        let body = self.unflatten(block * COPY_THREADS as i64 + thread, &names, |this, digits| {
            let (column, rest) = digits.split_at(columns.len());
            let [column, packed] = match column {
                [j, p, q, c] => gemm.permuted([j, p, q, c].map(Affine::clone)),
                digits => std::array::from_fn(|_| digits.first().cloned().unwrap_or_default()),
            };
            let (outer, step) = (rest[..rest.len() - 1].to_vec(), rest[rest.len() - 1].clone());
            let when = this.guards([(column.clone(), gemm.batch.extent * gemm.columns.extent)]);
            let given = gemm.given_weight(column, &Place { outer, step, ..Place::default() });
            let value = guarded(when, load(this.operands.weight, given));
            vec![assign(this.sources[1], [&[packed], rest].concat(), value)]
        });
        nest(loops, body)
    }

    /// Copies of what the block needs of chunk `q`, to `slot`.
    pub(super) fn copy_chunk(&mut self, q: &Affine, slot: &Affine) -> Vec<Node> {
        self.at_chunk(q, |this, place| {
            let mut nodes = this.copy_data(&place, slot);
            nodes.extend(this.copy_weight(&place, slot));
            nodes
        })
    }

    /// ```text
    /// for i in 0..rounds { unflatten (row, x) = i*threads + thread { for v in 0..vector { shared[slot, row, x*vector + v] = .. } } }
    /// ```
    fn in_rounds(
        &mut self,
        which: usize,
        [rows, row]: [usize; 2],
        body: impl FnOnce(&mut Self, Affine, Affine, Loops) -> Vec<Node>,
    ) -> Vec<Node> {
        let (vector, rounds) = (self.mma.gemm.vectors[which], self.mma.rounds()[which]);
        let mut loops = Vec::new();
        let round = self.open_some("i", rounds, LoopKind::Unrolled, &mut loops);
        let value = round * self.mma.threads() as i64 + self.thread.clone();
        let nodes = self.unflatten(value, &[("row", rows), ("x", row / vector)], |this, digits| {
            let mut lanes = Vec::new();
            let lane = this.open_some("v", vector, LoopKind::Vectorized, &mut lanes);
            body(this, digits[0].clone(), digits[1].clone() * vector as i64 + lane, lanes)
        });
        match self.mma.by {
            Team::Warp => nest(loops, nodes),
            Team::WarpGroup => vec![Node::BoxCopy { body: nest(loops, nodes) }],
        }
    }

    fn copy_data(&mut self, place: &Place, slot: &Affine) -> Vec<Node> {
        let gemm = &self.mma.gemm;
        let names = gemm.pixels();
        self.in_rounds(0, [self.mma.rows.block, self.mma.chunk], |this, row, step, lanes| {
            let mut at = place.clone();
            at.row = at.row + row.clone();
            at.step = at.step + step.clone();
            let shared = vec![slot.clone(), row, step];
            let copy = |this: &Self, at: &Place| nest(lanes, vec![this.copy(0, shared, gemm.data(at))]);
            if names.is_empty() {
                return copy(this, &at);
            }
            this.unflatten(at.row.clone(), &names, |this, pixel| copy(this, &Place { pixel, ..at }))
        })
    }

    fn copy_weight(&mut self, place: &Place, slot: &Affine) -> Vec<Node> {
        let gemm = &self.mma.gemm;
        let (columns, chunk) = (self.mma.columns.block, self.mma.chunk);
        let shape = if gemm.columns_are_rows { [columns, chunk] } else { [chunk, columns] };
        self.in_rounds(1, shape, |this, row, x, lanes| {
            let (column, step) = if gemm.columns_are_rows { (&row, &x) } else { (&x, &row) };
            let mut at = place.clone();
            at.column = at.column + column.clone();
            at.step = at.step + step.clone();
            nest(lanes, vec![this.copy(1, vec![slot.clone(), row, x], gemm.weight(&at))])
        })
    }

    /// `shared = source`, zero where the source has no such element.
    fn copy(
        &self,
        which: usize,
        shared: Vec<Affine>,
        (index, mut bounds): (Vec<Affine>, Vec<(Affine, usize)>),
    ) -> Node {
        if self.mma.gemm.steps.extent.is_multiple_of(self.mma.chunk) {
            // No step of a chunk is beyond the last.
            bounds.pop();
        }
        let value = load(self.sources[which], index);
        let when = self.guards(bounds);
        assign(self.shared[which], shared, guarded(when, value))
    }
}

/// The value where the conditions hold, elsewhere zero.
fn guarded(when: Vec<InBounds>, value: Expr) -> Expr {
    if when.is_empty() { value } else { Expr::Guarded { when, value: Box::new(value) } }
}
