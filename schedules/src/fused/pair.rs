//! Two contractions of which the second reads the output of the first.

use std::sync::Arc;

use autotune_ir::DType;
use autotune_ir::affine::Affine;
use autotune_ir::spec::AxisId;
use autotune_workloads::Workload;
use autotune_workloads::axes::is_pair;

use crate::contraction::{Contraction, Operand};
use crate::direct::roles::Roles;
use crate::map_reduce::axis_of;

/// A spec of four equations: a contraction, a map of its sums (the intermediate tensor `mid`), a
/// contraction of `mid` with another operand, and a map of the second sums.
///
/// ```text
/// sum_1[n, c, y, x]  = Σ input[n, c, y + j, x + k] * w_1[c, j, k]
/// mid[n, c, y, x]    = max(sum_1[n, c, y, x] + b_1[c], 0)
/// sum_2[n, o, y, x]  = Σ mid[n, c, y, x] * w_2[o, c]
/// output[n, o, y, x] = sum_2[n, o, y, x]
/// ```
///
/// The second contraction reads one element of each *row* (`n`, `y`, `x`) and sums over the
/// channels of the first: a tile of rows of the result needs exactly the same rows of `mid`.
pub(crate) struct Pair {
    pub(crate) first: Roles,
    pub(crate) second: Roles,
    /// Row axes of more than one element, as axes of the first and of the second contraction, in
    /// the second's order.
    pub(crate) rows: Vec<[AxisId; 2]>,
    /// Batch axes of both contractions, which are never tiled.
    pub(crate) batch: Vec<[AxisId; 2]>,
    /// Reduction axis of the second contraction: the channels of the intermediate tensor.
    pub(crate) step: AxisId,
    /// Element type of the intermediate tensor in memory.
    pub(crate) dtype: DType,
}

/// Position of the first contraction in the spec.
const FIRST: usize = 0;
/// Position of the map of the first sums.
const MAP: usize = 1;
/// Position of the second contraction in the spec.
const SECOND: usize = 2;
/// Position of the map of the second sums.
const TAIL: usize = 3;

impl Pair {
    /// Returns the workload as a pair; `None` if it is not one. Computed once per workload.
    pub(crate) fn of(workload: &Workload) -> Option<Arc<Self>> {
        Option::clone(&workload.once((), || Self::find(workload).map(Arc::new)))
    }

    fn find(workload: &Workload) -> Option<Self> {
        let spec = workload.spec();
        if !is_pair(spec) {
            return None;
        }
        let roles = |number, tail| Roles::of(Contraction::of_equation(spec, number, tail).without_unit_axes());
        let (first, second) = (roles(FIRST, MAP)?, roles(SECOND, TAIL)?);
        let &[step] = &second.axes.steps[..] else { return None };
        let slides = second.axes.taps().any(|tap| second.extent(tap) > 1);

        // Each dimension of the intermediate tensor must be an axis of both contractions.
        let (made, read) = (&first.contraction.output, &second.contraction.data);
        let (mut rows, mut batch, mut is_fit) = (Vec::new(), Vec::new(), !slides);
        for (a, b) in axes_of(made)?.into_iter().zip(axes_of(read)?) {
            match (a, b) {
                (None, None) => {}
                (Some(a), Some(b)) if b == step => is_fit &= a == first.channel,
                (Some(a), Some(b)) if first.is_row(a) && second.is_row(b) => rows.push([a, b]),
                (Some(a), Some(b)) if first.batch.contains(&a) && second.batch.contains(&b) => batch.push([a, b]),
                _ => is_fit = false,
            }
        }
        rows.sort_by_key(|row| row[1]);
        let dtype = spec.tensor(&spec.equations[MAP].output).dtype;
        is_fit.then_some(Self { first, second, rows, batch, step, dtype })
    }

    /// Returns whether the input, the intermediate tensor and the output can have channel-blocked
    /// layouts.
    pub(super) fn blockable(&self, block: usize) -> [bool; 3] {
        let ([input, made], [read, output]) = (self.first.blockable(block), self.second.blockable(block));
        [input, made && read, output]
    }
}

/// Returns the axis of each dimension, `None` for dimensions of one element; `None` altogether if
/// an index is not a plain axis.
pub(super) fn axes_of(operand: &Operand) -> Option<Vec<Option<AxisId>>> {
    let axis = |index: &Affine| if index.as_constant() == Some(0) { Some(None) } else { axis_of(index).map(Some) };
    operand.index.iter().map(axis).collect()
}
