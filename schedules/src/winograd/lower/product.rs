//! Matrix products `M[o, t, xi] = sum over c of V[xi, c, t] * U[xi, o, c]` with the register tiles
//! of the direct sketch.

use std::sync::Arc;

use crate::contraction::{Contraction, Operand};
use crate::direct::{DataMode, Direct, Group, TileLoop};
use crate::winograd::Winograd;
use autotune_ir::DType;
use autotune_ir::program::Layout;
use autotune_ir::spec::Spec;
use autotune_workloads::Workload;

/// Axes of the products: `xi, t, o, c`, the lanes of `o` and `c`, and the steps of a group. With
/// groups, the lanes of `c` are groups.
pub(super) const XI: usize = 0;
pub(super) const T: usize = 1;
pub(super) const O: usize = 2;
pub(super) const C: usize = 3;
pub(super) const O_LANE: usize = 4;
pub(super) const C_LANE: usize = 5;
pub(super) const STEP: usize = 6;

/// Returns the products' contraction with blocked channels, and groups of `steps` reduction steps
/// if there are several; `algorithm` is the rewritten spec.
fn contraction(algorithm: &Arc<Spec>, block: usize, c_lanes: usize, steps: usize) -> Contraction {
    let mut contraction = Contraction::with_unit_axes(algorithm);
    contraction.split(O, block);
    contraction.split(C, c_lanes);
    if steps > 1 {
        contraction.split_to(C_LANE, steps, "group");
    }
    contraction
}

/// Returns the plan of the products in the direct sketch.
pub(super) fn plan(workload: &Workload, winograd: &Winograd, algorithm: &Arc<Spec>) -> Direct {
    let Winograd { conv, m, block, register: [positions, channels], .. } = *winograd;
    let steps = winograd.group_steps();
    let contraction = workload.once([m, block, steps], || contraction(algorithm, block, winograd.c_lanes(), steps));

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
        // Data is the transformed input, which the lowering sets later. The layouts here only shape
        // the operands.
        data: Arc::clone(&input),
        input,
        in_layout,
        output: operand(conv.o, conv.output, out_layout),
        out_layout,
        data_mode: DataMode::Tile,
        packed_weights: true,
        dot: winograd.dot.map(|(instruction, _)| Group { axis: STEP, instruction, row: [None; 2] }),
        // The type of other copies than the weights', which are strips of data and sums.
        copied: [DType::F32, conv.transformed],
        is_split: false,
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
