//! Two contractions for a fused GPU kernel, of which the second reads a map or softmax of the first
//! one's sums.

use std::sync::Arc;

use autotune_ir::Spec;
use autotune_ir::affine::Affine;
use autotune_ir::program::{Access, BufferId, Expr, Role};
use autotune_workloads::Workload;
use autotune_workloads::axes::{Axes, is_pair};

use super::softmax::SoftmaxEquations;
use crate::contraction::{AxisId, Contraction, Operand};
use crate::fused::pair::axes_of;
use crate::gpu::{AxisRoles, is_forward};
use crate::lower::at;
use crate::map_reduce::{axis_of, is_given};

/// Computation between the two contractions.
pub(super) enum PairMiddle {
    /// A function of each element.
    Map,
    /// A softmax of each row.
    Softmax(SoftmaxEquations),
}

/// Both contractions, and the correspondence of their axes.
pub(super) struct GpuPair {
    parts: [Arc<AxisRoles>; 2],
    /// Data operand of the first contraction.
    pub(super) data: BufferId,
    /// Weight operands of the first and the second contraction.
    pub(super) weights: [BufferId; 2],
    /// Row axes of more than one element, as axes of the first and of the second contraction, in
    /// the second's order.
    pub(super) rows: Vec<[AxisId; 2]>,
    /// Batch axes of both contractions, which are never tiled.
    pub(super) batch: Vec<[AxisId; 2]>,
    /// Channels of the intermediate: an axis of the first, and the reduction axis of the second.
    /// `None` if there is only one channel.
    pub(super) channel: Option<[AxisId; 2]>,
    /// Axis of the result that the intermediate lacks; `None` if it has one element.
    pub(super) column: Option<AxisId>,
    pub(super) between: PairMiddle,
}

impl GpuPair {
    /// Returns the workload as such a pair; `None` if it is not one. Computed once per workload.
    pub(super) fn of(workload: &Workload) -> Option<Arc<Self>> {
        Option::clone(&workload.once((), || Self::find(workload.spec()).map(Arc::new)))
    }

    pub(super) fn part(&self, number: usize) -> &Arc<AxisRoles> {
        &self.parts[number]
    }

    fn find(spec: &Arc<Spec>) -> Option<Self> {
        let tail = spec.equations.len().checked_sub(1)?;
        let (between, first, map) = match is_pair(spec) {
            true => (PairMiddle::Map, 0, 1),
            false => {
                let softmax = SoftmaxEquations::of(spec)?;
                let scores = softmax.scores;
                (PairMiddle::Softmax(softmax), scores, tail)
            }
        };
        let (first, first_weights) = part(spec, first, map)?;
        let (second, second_weights) = part(spec, tail - 1, tail)?;

        // Each dimension of the intermediate tensor must be an axis of both contractions.
        let (made, read) = (axes_of(&first.own.output)?, axes_of(&second.operands[0])?);
        let (mut rows, mut batch, mut channel) = (Vec::new(), Vec::new(), None);
        for (a, b) in made.into_iter().zip(read) {
            match (a, b) {
                (None, None) => {}
                (Some(a), Some(b)) if second.reduce.contains(&b) && first.spatial.contains(&a) => {
                    channel = Some([a, b])
                }
                (Some(a), Some(b)) if first.spatial.contains(&a) && second.spatial.contains(&b) => rows.push([a, b]),
                (Some(a), Some(b)) if first.batch.contains(&a) && second.batch.contains(&b) => batch.push([a, b]),
                _ => return None,
            }
        }
        rows.sort_by_key(|row| row[1]);

        let is_row = |axis: &AxisId| rows.iter().any(|row| row[1] == *axis);
        let columns: Vec<AxisId> = second.spatial.iter().copied().filter(|axis| !is_row(axis)).collect();
        let column = match columns[..] {
            [] => None,
            [column] => Some(column),
            _ => return None,
        };
        // Every axis must have a role in the fused kernel: row, batch, channel or column.
        let is_whole = first.spatial.len() == rows.len() + usize::from(channel.is_some())
            && [&first.batch, &second.batch].iter().all(|axes| axes.len() == batch.len())
            && second.reduce.iter().all(|&axis| second.extent(axis) == 1 || channel.is_some_and(|it| it[1] == axis));
        let data = operand(spec, spec.equations[first.own.number].loads().first()?)?;
        let weights = [first_weights, second_weights];
        let parts = [first, second].map(Arc::new);
        is_whole.then_some(Self { parts, data, weights, rows, batch, channel, column, between })
    }
}

/// Returns a contraction of a spec and the operand that holds its weights. If the weights are a map
/// of an operand that only transposes it, the contraction reads the operand directly.
fn part(spec: &Arc<Spec>, number: usize, tail: usize) -> Option<(AxisRoles, BufferId)> {
    let equation = &spec.equations[number];
    let parts = Axes::of_equation(spec, equation)?;
    let mut own = Contraction::of_equation(spec, number, tail);
    let [_, weight] = equation.loads()[..] else { return None };
    let given = given(spec, weight)?;
    own.weight = Operand { shape: spec.tensor(&given).shape.clone(), index: given.index.to_vec() };

    let is_forward = is_forward(&own.data.index) && is_forward(&own.weight.index);
    is_forward.then(|| Some((AxisRoles::of_parts(parts, own), operand(spec, &given)?))).flatten()
}

/// Returns the buffer of an operand; operands have the first buffers, in their order.
fn operand(spec: &Spec, access: &Access) -> Option<BufferId> {
    match spec.role(access.buffer) {
        Role::Operand(number) => Some(BufferId(number as u32)),
        _ => None,
    }
}

/// Returns the operand's element that an access reads, directly or through a map that only copies
/// it.
fn given(spec: &Spec, access: &Access) -> Option<Access> {
    if is_given(spec, access) {
        return Some(access.clone());
    }
    let map = spec.equations.iter().find(|map| map.output.buffer == access.buffer && !map.reduces())?;
    let Expr::Load(from) = &map.value else { return None };
    let mut values = vec![Affine::default(); map.axes.len()];
    for (index, own) in access.index.iter().zip(&map.output.index) {
        values[axis_of(own)?] = index.clone();
    }
    let index: Vec<Affine> = from.index.iter().map(|index| at(index, &values)).collect();
    is_given(spec, from).then(|| Access { buffer: from.buffer, index: index.into() })
}
