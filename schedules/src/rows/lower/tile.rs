//! Transposing copies by tiles through shared memory.

use super::{RowsLowering, Values};
use crate::lower::nest::{Loops, StageBuilder, guarded, guarded_value};
use crate::lower::{assign, load};
use crate::rows::turned::{ContiguousAxes, tile_shape};
use autotune_ir::affine::Affine;
use autotune_ir::program::{Access, BufferId, Expr, InBounds, LoopKind, Node, Role, Scope, Store, StoreMode};

impl RowsLowering<'_> {
    /// Opens the loops over tiles and threads. Returns them and the body of a thread.
    pub(super) fn tiles(&mut self, turned: ContiguousAxes, edge: usize) -> (Loops, Vec<Node>) {
        let plan = self.plan;
        let mut loops = Loops::new();
        let mut start = Values::new();
        for (axis, blocks) in turned.blocks(&plan.chain, edge).into_iter().enumerate() {
            let name = format!("{}.b", plan.chain.row_axes()[axis].name);
            let block = self.all.open_some(name, blocks, LoopKind::Block, &mut loops);
            start.push(block * if turned.is_tiled(axis) { edge as i64 } else { 1 });
        }
        if loops.is_empty() {
            self.all.open("b", 1, LoopKind::Block, &mut loops);
        }

        let rows = plan.block_rows / edge;
        self.y = self.all.open_some("y", rows, LoopKind::Thread, &mut loops);
        self.x = self.all.open("x", edge, LoopKind::Thread, &mut loops);

        let tile = self.allocate("tile", Role::Packed, Scope::Shared, tile_shape(edge).to_vec());
        // The store below must see the elements that other threads have loaded.
        let mut body = self.rounds(edge, |lowering, row| lowering.fill(turned, tile, &start, row));
        body.push(Node::Barrier);
        body.extend(self.rounds(edge, |lowering, row| lowering.empty(turned, tile, &start, row)));
        (loops, body)
    }

    /// Runs `body` for each row of the tile in which the thread has an element.
    fn rounds(&mut self, edge: usize, body: impl FnOnce(&mut Self, Affine) -> Vec<Node>) -> Vec<Node> {
        let rows = self.plan.block_rows / edge;
        self.repeat("k", edge / rows, LoopKind::Unrolled, |lowering, round| {
            let row = round * rows as i64 + &lowering.y;
            body(lowering, row)
        })
    }

    /// Returns `tile[row, x] = operand[..]`, zero out of bounds.
    fn fill(&mut self, turned: ContiguousAxes, tile: BufferId, start: &Values, row: Affine) -> Vec<Node> {
        let mut values = start.clone();
        values[turned.stored].add_scaled(&row, 1);
        values[turned.read].add_scaled(&self.x, 1);
        let Expr::Load(access) = &self.equation().value else { return Vec::new() };
        let element = self.operand(access, &values);
        let value = guarded_value(self.within(turned, &values), Expr::Load(element));
        vec![assign(tile, vec![row, self.x.clone()], value)]
    }

    /// Returns `output[..] = tile[x, row]` for elements in bounds.
    fn empty(&mut self, turned: ContiguousAxes, tile: BufferId, start: &Values, row: Affine) -> Vec<Node> {
        let mut values = start.clone();
        values[turned.read].add_scaled(&row, 1);
        values[turned.stored].add_scaled(&self.x, 1);
        let register = self.register("turned", Role::Packed);
        let dst = Access { buffer: register, index: self.of_lane().into() };
        let value = load(tile, vec![self.x.clone(), row]);
        let iteration = Some(self.iteration(&values));
        let read = Node::Store(Store { dst, mode: StoreMode::Assign, value, iteration });
        let stored = self.stored(load(register, self.of_lane()), &values, None);
        [vec![read], guarded(self.within(turned, &values), vec![stored])].concat()
    }

    /// Returns the bounds of the element.
    fn within(&self, turned: ContiguousAxes, values: &Values) -> Vec<InBounds> {
        let axes = self.plan.chain.row_axes();
        self.all.guards([turned.read, turned.stored].map(|axis| (values[axis].clone(), axes[axis].extent)))
    }
}
