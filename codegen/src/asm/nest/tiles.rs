//! Products of tiles, which are leaves of their own.

use super::super::error::{AssembleError, Failure};
use super::super::tile_grid::{LINE_BYTES, TileGrid, TileNest};
use super::super::tiles::WEIGHTS;
use super::{ElementBase, LeafVariable, NestElement, NestNode, OuterLoop, Pointer, Resolver, Scoped, Steps, ValueKind};
use autotune_ir::affine::Affine;
use autotune_ir::instruction::{NestForm, TileProduct};
use autotune_ir::program::{LoopKind, Node};

/// Maximum number of operations on each sum that are computed during a product. More of them take
/// longer than products do, and their code is there twice, which fills the instruction cache.
const MOST_STEPS: usize = 20;
/// Maximum number of reduction steps of such a product. Longer ones evict the sums from the
/// first-level cache before they are used.
const MOST_PRODUCT_STEPS: usize = 18;
/// Minimum number of iterations among which prefetches are divided.
const LEAST_SHARES: usize = 2;

impl<'p> Resolver<'p> {
    /// Returns the node as a product of tiles, with its tile registers; `None` for other nodes, and
    /// for products that the instruction set cannot compute.
    pub(in super::super) fn product_of(&self, node: &'p Node) -> Result<Option<(TileProduct<'p>, TileGrid)>, Failure> {
        let product = match node {
            Node::Call { instruction, body } if self.offers.tiles && instruction.nest == NestForm::Tiles => {
                TileProduct::of(body)
            }
            _ => None,
        };
        let Some(product) = product else { return Ok(None) };
        Ok(TileGrid::of(&product, self.program)?.map(|grid| (product, grid)))
    }

    /// Resolves a product of tiles in the last of `loops`, and the statements `after` it, for the
    /// iteration before, as one leaf that computes both at once. Returns false if the statements
    /// must not, or cannot, be computed between the reduction steps.
    pub(in super::super) fn resolve_overlapped(
        &mut self,
        loops: &[OuterLoop],
        (product, grid): &(TileProduct<'p>, TileGrid),
        after: &'p [Node],
    ) -> Result<bool, Failure> {
        let product_steps = product.step_loops.iter().map(|l| l.extent).product::<usize>() * grid.products().len();
        if product_steps > MOST_PRODUCT_STEPS {
            return Ok(false);
        }
        self.clear(loops);
        after.iter().try_for_each(|node| self.node(node))?;

        let factors = [product.data.buffer, product.weights.buffer];
        let is_straight = |node: &NestNode| match node {
            NestNode::Loop { kind, .. } => matches!(kind, LoopKind::Unrolled | LoopKind::Vectorized),
            _ => true,
        };
        // The factors' pointers move during the product, and streaming stores need two versions.
        let is_separate =
            |pointer: &Pointer| !factors.contains(&pointer.buffer) && !self.program.buffer(pointer.buffer).streamed;
        let is_possible = self.nest.nodes.iter().all(is_straight) && self.pointers.iter().all(is_separate);
        let steps = self.nest.values.iter().filter(|value| !matches!(value.kind, ValueKind::Input(_))).count();
        if !is_possible || steps > MOST_STEPS {
            return Ok(false);
        }

        for pointer in &mut self.pointers {
            let step = loops.last().map_or(0, |l| pointer.base.coefficient(l.var));
            pointer.base.constant -= step;
        }
        self.tiles(product, grid.clone(), loops)?;
        self.finish();
        let tiles = self.nest.tiles.as_ref();
        Ok(tiles.is_some_and(|tiles| tiles.integers(&self.nest) <= self.integers))
    }

    /// Adds prefetches of the weights that the next iteration of an outer loop reads: an equal part
    /// in each iteration of the loops inside of that one, whose products share their weights.
    fn prefetch_weights(&mut self, loops: &[OuterLoop]) {
        let Some(tiles) = &mut self.nest.tiles else { return };
        let (number, offset) = tiles.places[WEIGHTS];
        let weights = &self.pointers[usize::from(number)];
        let moves = |l: &OuterLoop| weights.base.coefficient(l.var) != 0;
        let Some(last) = loops.iter().rposition(moves) else { return };
        let (next, inside) = (weights.base.coefficient(loops[last].var), &loops[last + 1..]);
        let iterations: usize = inside.iter().map(|l| l.extent).product();

        let (bytes, step_bytes) = (weights.of.of.bytes(), tiles.grid.weight_bytes());
        // Other weights do not follow each other. With few iterations the prefetches would take as
        // long as the loads, with many they would gain little.
        let are_adjacent = next * bytes == (tiles.steps(0) * step_bytes) as i64;
        if !are_adjacent || !(LEAST_SHARES..=2 * step_bytes / LINE_BYTES).contains(&iterations) {
            return;
        }

        let lines = step_bytes.div_ceil(LINE_BYTES * iterations);
        let mut advance = (lines * LINE_BYTES) as i64 / bytes;
        let mut step_advances = Steps::new();
        for &(var, extent) in tiles.outer_loops.iter().rev() {
            step_advances.push((var, advance));
            advance *= extent as i64;
        }
        let mut base = weights.base.clone();
        base.constant += offset + next;
        for l in inside.iter().rev() {
            base.add_scaled(&Affine::var(l.var), advance);
            advance *= l.extent as i64;
        }
        tiles.prefetch = Some((self.pointers.len() as u8, lines));
        self.pointers.push(Pointer { buffer: weights.buffer, of: weights.of, base, steps: step_advances });
    }

    /// Resolves a product of tiles: one pointer to each matrix, which advances with the serial
    /// loops.
    pub(super) fn tiles(
        &mut self,
        product: &TileProduct<'p>,
        grid: TileGrid,
        loops: &[OuterLoop],
    ) -> Result<(), Failure> {
        let mut outer_loops = Vec::new();
        for l in &product.step_loops {
            let var = self.nest.vars as u32;
            self.nest.vars += 1;
            self.scope.push(Scoped { var: l.var, binding: LeafVariable::Serial(var), coefficient: 0 });
            outer_loops.push((var, l.extent));
        }

        // The variables of unrolled loops are not in scope, so offsets are those of the first tile.
        let mut places = [(0, 0); 3];
        for (to, access) in places.iter_mut().zip([product.data, product.weights, &product.store.dst]) {
            let NestElement { place: ElementBase::Memory(pointer), constant, .. } = self.access(access)? else {
                return Err(AssembleError::register_index(self.program, access.buffer));
            };
            *to = (pointer, constant);
        }
        self.nest.tiles = Some(Box::new(TileNest { grid, outer_loops, places, prefetch: None }));
        self.prefetch_weights(loops);
        Ok(())
    }
}
