//! Division of an output into lines of channels.

use autotune_ir::program::Access;
use autotune_ir::spec::{AxisId, Spec, TensorSource, TensorSpec};
use autotune_ir::{Affine, VarId};

use super::line::{Point, box_of, points, step, unravel};
use crate::axes::Axes;

/// An output as lines of channels: the points of an equation's axes, and of one more axis with a
/// single element, which stands for missing axes.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    /// Extents of the axes that number the lines; 1 for other axes.
    pub(super) extents: Vec<usize>,
    /// Axis of the channels, and its extent.
    pub(super) channel: (AxisId, usize),
    /// Axis along the elements of a line, and its extent.
    pub(super) width: (AxisId, usize),
    /// Axis along which products are added up; `None` if the output is more than a function of each
    /// sum of products.
    pub(super) vector: Option<AxisId>,
    /// Index of a point's element.
    pub(super) index: Vec<Affine>,
    /// Shape of the output.
    pub(super) shape: Vec<usize>,
}

impl Lines {
    pub(super) fn of(spec: &Spec) -> Self {
        Self::of_products(spec).unwrap_or_else(|| {
            let shape = output(spec).shape.clone();
            let index = (0..shape.len()).map(|axis| Affine::var(VarId(axis as u32))).collect();
            let mut extents = [&shape[..], &[1]].concat();
            let (none, last) = (shape.len(), shape.len().saturating_sub(1));
            let width = (last, std::mem::replace(&mut extents[last], 1));
            Self { extents, channel: (none, 1), width, vector: None, index, shape }
        })
    }

    /// Lines of an output made of sums of products.
    ///
    /// They go along the last axis that only one operand has, if that is the data. If it is the
    /// weights, the axis numbers the channels, and a line is one element.
    fn of_products(spec: &Spec) -> Option<Self> {
        let axes = Axes::of(spec).filter(|_| is_pointwise(spec))?;
        let main = spec.main();
        let [data, weight] = main.loads()[..] else { return None };
        let operands = [(&axes.rows, data, weight), (&axes.columns, weight, data)];
        let is_vector = |axis: &AxisId| {
            let along = operands.iter().find(|(own, ..)| own.contains(axis));
            along.is_some_and(|(_, along, other)| {
                step(&along.index, *axis).all(|step| step >= 0) && stays_inside(spec, other)
            })
        };
        let vector = (0..main.axes.len()).rfind(is_vector)?;

        let widest = axes.columns.iter().copied().max_by_key(|&axis| main.axes[axis].extent);
        let (channel, width) = match axes.rows.contains(&vector) {
            true => (widest, Some(vector)),
            false => (Some(vector), None),
        };
        let extents = box_of(main, |id, axis| !axis.reduce && ![channel, width].contains(&Some(id)));
        let [channel, width] =
            [channel, width].map(|axis| axis.map_or((main.axes.len(), 1), |axis| (axis, main.axes[axis].extent)));
        let (index, shape) = (main.output.index.to_vec(), output(spec).shape.clone());
        Some(Self { extents, channel, width, vector: Some(vector), index, shape })
    }

    /// Returns the first point of a line.
    pub(super) fn point(&self, line: usize) -> Point {
        unravel(line, &self.extents)
    }
}

/// Returns the tensor that a spec computes.
pub(super) fn output(spec: &Spec) -> &TensorSpec {
    spec.tensor(&spec.equations[spec.equations.len() - 1].output)
}

/// True if the last equation maps each sum of the main equation to one output element, and only a
/// prologue is computed before.
fn is_pointwise(spec: &Spec) -> bool {
    let [before @ .., main, tail] = &spec.equations[..] else { return false };
    let is_at_hand = |load: &&Access| **load == main.output || spec.tensor(load).source != TensorSource::Computed;
    let shape = &spec.tensor(&main.output).shape;
    spec.main == before.len()
        && (before.is_empty() || spec.prologue().is_some())
        && main.axes.starts_with(&tail.axes)
        && main.axes.iter().filter(|axis| !axis.reduce).eq(&tail.axes)
        && (&tail.output.index, &output(spec).shape) == (&main.output.index, shape)
        && tail.loads().iter().all(is_at_hand)
        && stays_inside(spec, &main.output)
        && points(&box_of(tail, |_, _| true)) == points(shape)
}

/// True if an access of the main equation never exceeds its tensor.
fn stays_inside(spec: &Spec, access: &Access) -> bool {
    let mut dims = access.index.iter().zip(&spec.tensor(access).shape);
    dims.all(|(index, &extent)| !spec.main().is_beyond(index, extent))
}
