//! Packing of weights ahead of time, on a GPU.

use crate::gpu::{Packing, Tiling};
use crate::lower::nest::{NestParts, guarded_value};
use crate::lower::partial::{COPY_THREADS, DIMENSIONS};
use crate::lower::{assign, load};
use autotune_ir::affine::Affine;
use autotune_ir::program::{BufferId, Node};

/// Packs the weights, with one thread per element: `packed[..] = weight[..]`. Columns that only
/// complete a run are zero.
pub(crate) fn pack_weight(
    tiling: &Tiling,
    packing: &Packing,
    [weight, packed]: [BufferId; 2],
    all: &mut NestParts,
) -> Vec<Node> {
    let (dims, shape) = (tiling.roles.operands[1].shape.len(), &tiling.staged[1].source.shape);
    // Columns in runs are split into digits, so that their order can change.
    let columns = match packing.run {
        1 => vec![("d0", shape[0])],
        run => vec![("j", shape[0] / (8 * run)), ("p", run), ("q", 4), ("c", 2)],
    };
    let count = columns.len();
    let others = DIMENSIONS[1..].iter().copied().zip(shape[1..].iter().copied());
    let names: Vec<(&str, usize)> = columns.into_iter().chain(others).collect();

    all.each(COPY_THREADS, &names, &[], |all, digits| {
        let (column, others) = digits.split_at(count);
        let [column, to] = match column {
            [column] => [column.clone(), column.clone()],
            digits => packing.columns(digits),
        };
        let mut place = vec![Affine::default(); dims];
        let values = [&[column], others].concat();
        packing.order.iter().zip(values).for_each(|(&dim, value)| place[dim] = value);

        let (from, bounds) = tiling.roles.weight_in_memory(place);
        let value = guarded_value(all.guards(bounds), load(weight, from));
        vec![assign(packed, [&[to], others].concat(), value)]
    })
}
