//! The matrix products, `M[o, t, xi] = sum over c of V[xi, c, t] * U[xi, o, c]`, in the direct sketch's register tiles.

use super::*;
use crate::contraction::{Contraction, Operand};
use crate::direct::{DataMode, TileLoop};
use autotune_ir::DType;
use autotune_ir::affine::VarId;
use autotune_ir::program::Layout;
use autotune_ir::spec::Spec;

/// Axes of the products, `xi, t, o, c`, and the lanes of `o` and `c`.
pub(super) const XI: usize = 0;
const T: usize = 1;
pub(super) const O: usize = 2;
pub(super) const C: usize = 3;
pub(super) const O_LANE: usize = 4;
pub(super) const C_LANE: usize = 5;

/// The products' axes, `algorithm` being that of tiles of so many outputs.
fn contraction(algorithm: &Arc<Spec>, block: usize, c_lanes: usize) -> Contraction {
    let mut contraction = Contraction::with_unit_axes(algorithm);
    contraction.split(O, block);
    contraction.split(C, c_lanes);
    contraction
}

/// The products as the direct sketch has them.
pub(super) fn plan(workload: &Workload, winograd: &Winograd, algorithm: &Arc<Spec>) -> Direct {
    let Winograd { conv, m, block, register: [positions, channels], .. } = *winograd;
    let contraction = workload.once([m, block], || contraction(algorithm, block, winograd.c_lanes()));
    let operand = |channels: usize, [h, w]: [usize; 2], layout: Layout| {
        let shape = match layout {
            Layout::Plain => vec![conv.n, channels, h, w],
            Layout::ChannelBlocked(block) => vec![conv.n, channels / block, h, w, block],
        };
        Arc::new(Operand { shape, index: Vec::new() })
    };
    let [in_layout, out_layout] = winograd.layouts();
    let input = operand(conv.c, conv.input, in_layout);
    let tile_loop = |axis, tile| TileLoop { axis, tile };
    Direct {
        contraction,
        data: Arc::clone(&input),
        input,
        in_layout,
        output: operand(conv.o, conv.output, out_layout),
        out_layout,
        data_mode: DataMode::Tile,
        packed_weights: true,
        dot: None,
        copied: DType::F32,
        vector: O_LANE,
        batch: Vec::new(),
        cache: Vec::new(),
        parallel: 0,
        inner: vec![tile_loop(XI, 1), tile_loop(O, channels), tile_loop(T, positions)],
        reduce: vec![C, C_LANE],
        unroll: winograd.unroll,
        prefetch: winograd.prefetch,
    }
}

impl Lowering<'_> {
    /// The products of a block of tiles and the `size` channel blocks from `chunk` on.
    pub(super) fn multiply(&mut self, blocks: &Blocks, chunk: &Affine, size: usize) -> Vec<Node> {
        let Winograd { tiles: [rows, columns], .. } = *self.winograd;
        let ([all_rows, all_columns], [height, width]) = (self.winograd.grid(), blocks.tiles());
        // Tiles of an image are counted block by block: all blocks of a row of blocks before the next.
        let above = blocks.image.clone() * all_rows as i64 + &(blocks.number[0].clone() * rows as i64);
        let first = above * all_columns as i64 + &(blocks.number[1].clone() * (height * columns) as i64);

        let mut region = self.product.whole_region();
        (region[T].base, region[T].extent) = (first, height * width);
        (region[O].base, region[O].extent) = (chunk.clone(), size);

        let axes = |axes: [usize; 4]| axes.map(|axis| Affine::var(VarId(axis as u32))).to_vec();
        let origin: Vec<Affine> = region.iter().map(|span| span.base.clone()).collect();
        let place = |buffer, lead, index| Place { buffer, lead, index, origin: Some(origin.clone()) };
        self.product.data = place(self.inputs, self.input_block(blocks), axes([XI, C, T, C_LANE]));
        self.product.sums = place(self.products, Vec::new(), axes([O, T, XI, O_LANE]));
        self.product.register_nest(&mut region)
    }
}
