//! Products of tiles, which are leaves of their own.

use super::super::error::{AssembleError, Failure};
use super::super::tile_grid::{TileGrid, TileNest};
use super::{ElementBase, LeafVariable, NestElement, Resolver, Scoped};
use autotune_ir::instruction::{NestForm, TileProduct};
use autotune_ir::program::Node;

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

    /// Resolves a product of tiles: one pointer to each matrix, which advances with the serial
    /// loops.
    pub(super) fn tiles(&mut self, product: &TileProduct<'p>, grid: TileGrid) -> Result<(), Failure> {
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
        self.nest.tiles = Some(Box::new(TileNest { grid, outer_loops, places }));
        Ok(())
    }
}
