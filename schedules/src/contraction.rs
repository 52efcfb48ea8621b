//! The one description that every operator is lowered from: named axes, an affine access per
//! operand, padding and epilogue.
//!
//! `output[spatial axes] = act(sum over reduce axes of data[..] * weight[..] + bias + residual)`.

use std::sync::Arc;

use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{Access, AxisInfo, AxisOf, Iteration, Layout};
use autotune_ir::spec::{Equation, Spec};
use autotune_workloads::Workload;
use autotune_workloads::axes::Axes;

/// An axis of the contraction, by its position in [`Contraction::axes`]. In [`Affine`]s of an
/// operand, `VarId(axis)` stands for the axis.
pub type AxisId = usize;

/// How one operand is accessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Physical shape, outermost first.
    pub shape: Vec<usize>,
    /// Index per physical dimension, affine in the axes.
    pub index: Vec<Affine>,
}

impl Operand {
    /// Row-major stride of `axis` in elements.
    pub fn stride(&self, axis: AxisId) -> i64 {
        stride(&self.index, &self.shape, axis)
    }

    /// The first dimension that `axis` indexes.
    pub fn dim_of(&self, axis: AxisId) -> Option<usize> {
        self.index.iter().position(|i| i.uses(VarId(axis as u32)))
    }

    /// Puts a value in the place of an axis.
    pub fn substitute(&mut self, axis: AxisId, replacement: &Affine) {
        let id = VarId(axis as u32);
        for index in self.index.iter_mut().filter(|index| index.uses(id)) {
            *index = index.substitute(id, replacement);
        }
    }

    /// True if the element read depends on `axis`.
    pub fn uses(&self, axis: AxisId) -> bool {
        self.dim_of(axis).is_some()
    }
}

/// Row-major stride of `axis` in elements, of a tensor of a shape by its index.
pub(crate) fn stride(index: &[Affine], shape: &[usize], axis: AxisId) -> i64 {
    let (mut total, mut of_dim) = (0, 1);
    for (index, &extent) in index.iter().zip(shape).rev() {
        total += index.coefficient(VarId(axis as u32)) * of_dim;
        of_dim *= extent as i64;
    }
    total
}

/// An equation as an affine contraction.
#[derive(Clone, Debug)]
pub struct Contraction {
    /// What it is of.
    pub spec: Arc<Spec>,
    /// Position of its equation.
    pub number: usize,
    /// Position of the equation that is a map of its sums.
    pub tail: usize,
    /// Iteration space.
    pub axes: Vec<AxisInfo>,
    /// The data operand; indices beyond its shape read zero (padding).
    pub data: Operand,
    /// The weight operand.
    pub weight: Operand,
    /// The result (and the residual).
    pub output: Operand,
    /// Index into the bias.
    pub bias: Affine,
    /// True if the weight operand is known ahead of time.
    pub weight_is_constant: bool,
}

fn var(axis: AxisId) -> Affine {
    Affine::var(VarId(axis as u32))
}

impl Contraction {
    /// The main equation of a workload's spec with every operand in its plain layout, and axes of
    /// extent 1 as the constant 0; `None` if it is no sum of products of two tensors, or not all
    /// there is but for a prologue and a map of the sums.
    pub fn of(workload: &Workload) -> Option<Self> {
        let spec = workload.spec();
        let axes = Axes::of(spec).filter(|_| !spec.is_chain());
        axes.map(|_| Self::with_unit_axes(spec).without_unit_axes())
    }

    /// The same of a spec that is one, with every axis in the accesses.
    pub fn with_unit_axes(spec: &Arc<Spec>) -> Self {
        Self::of_equation(spec, spec.main, spec.equations.len() - 1)
    }

    /// The equation at position `number`, which multiplies two tensors, and a map of its sums, with
    /// every axis in the accesses.
    pub fn of_equation(spec: &Arc<Spec>, number: usize, tail: usize) -> Self {
        let own = &spec.equations[number];
        let operand =
            |access: &Access| Operand { shape: spec.tensor(access).shape.clone(), index: access.index.to_vec() };
        let [data, weight] = own.loads()[..] else { unreachable!("a contraction multiplies two tensors") };
        let bias = spec.equations[tail].loads().into_iter().find(|access| access.index.len() == 1);
        Self {
            axes: own.axes.iter().enumerate().map(|(id, axis)| AxisInfo::whole(id, axis)).collect(),
            data: operand(data),
            weight: operand(weight),
            output: operand(&own.output),
            bias: bias.map_or_else(Affine::default, |access| access.index[0].clone()),
            weight_is_constant: spec.tensor(weight).is_constant(),
            spec: Arc::clone(spec),
            number,
            tail,
        }
    }

    /// Its equation.
    pub fn equation(&self) -> &Equation {
        &self.spec.equations[self.number]
    }

    /// The map that makes its data, if there is one.
    pub fn prologue(&self) -> Option<&Equation> {
        self.spec.prologue().filter(|_| self.number == self.spec.main)
    }

    /// The iteration of its equation at a point of its axes.
    pub fn iteration(&self, point: Vec<Affine>) -> Option<Iteration> {
        if self.number == self.spec.main {
            return self.spec.iteration(point);
        }

        // The axes of a program are those of the main equation; a point of another one is by its
        // own.
        let mut own = vec![Affine::default(); self.equation().axes.len()];
        for (axis, value) in self.axes.iter().zip(&point) {
            if let AxisOf::Part { axis, step } = axis.of {
                own[axis].add_scaled(value, step as i64);
            }
        }
        Some(Iteration { equation: self.number, point: own })
    }

    /// Every axis of extent 1 taken as the constant 0 in the accesses (the axis itself stays).
    pub fn without_unit_axes(mut self) -> Self {
        for id in 0..self.axes.len() {
            if self.axes[id].extent == 1 {
                self.substitute(id, &Affine::default());
            }
        }
        self
    }

    fn substitute(&mut self, axis: AxisId, replacement: &Affine) {
        for operand in [&mut self.data, &mut self.weight, &mut self.output] {
            operand.substitute(axis, replacement);
        }
        self.bias = self.bias.substitute(VarId(axis as u32), replacement);
    }

    /// The axis called `name`.
    pub fn axis(&self, name: &str) -> Option<AxisId> {
        self.axes.iter().position(|a| a.name == name)
    }

    /// Splits a channel axis (extent a multiple of `block`) into itself, now counting blocks, and a
    /// new innermost axis of extent `block`, whose id is returned: `for o in 0..64` →
    /// `for o in 0..4 { for oi in 0..16 }`.
    pub fn split(&mut self, axis: AxisId, block: usize) -> AxisId {
        let name = lane_name(self.axes[axis].name).unwrap_or(self.axes[axis].name);
        self.split_to(axis, block, name).0
    }

    /// The same with a name for the new axis; says what replaces the old one in accesses. The last
    /// block of a reduction axis may go beyond its end, where operands read zero.
    pub fn split_to(&mut self, axis: AxisId, block: usize, name: &'static str) -> (AxisId, Affine) {
        let inner = self.axes.len();
        let info = &mut self.axes[axis];
        info.extent = info.extent.div_ceil(block);
        let mut lanes = AxisInfo { name, extent: block, ..info.clone() };
        if let AxisOf::Part { axis, step } = info.of {
            info.of = AxisOf::Part { axis, step: step * block };
            lanes.of = AxisOf::Part { axis, step };
        }
        let blocks = if info.extent == 1 { Affine::default() } else { var(axis) * block as i64 };
        self.axes.push(lanes);
        let replacement = blocks + var(inner);
        self.substitute(axis, &replacement);
        (inner, replacement)
    }

    /// Lowest and highest value of an index over the whole iteration space.
    fn range(&self, index: &Affine) -> (i64, i64) {
        index.range(|axis| self.axes[axis.0 as usize].extent)
    }

    /// Lowest and highest value of `data.index[dim]` over the whole iteration space.
    pub fn data_range(&self, dim: usize) -> (i64, i64) {
        self.range(&self.data.index[dim])
    }

    /// True if some index of a dimension lies outside of its `extent`.
    fn is_beyond(&self, index: &Affine, extent: usize) -> bool {
        let (low, high) = self.range(index);
        low < 0 || high >= extent as i64
    }

    /// True if some tap lies in the padding of dimension `dim` of the data operand.
    pub fn pads(&self, dim: usize) -> bool {
        self.is_beyond(&self.data.index[dim], self.data.shape[dim])
    }

    /// The axes of those dimensions of the weights that are read beyond the tensor, where they
    /// count as zero.
    pub fn axes_beyond_weights(&self) -> Vec<AxisId> {
        let dims = self.weight.index.iter().zip(&self.weight.shape);
        let beyond = dims.filter(|&(index, &extent)| self.is_beyond(index, extent));
        beyond.flat_map(|(index, _)| index.terms.iter().map(|term| term.0.0 as usize)).collect()
    }

    /// True if some tap lies in the padding.
    pub fn is_padded(&self) -> bool {
        (0..self.data.shape.len()).any(|dim| self.pads(dim))
    }
}

/// Name of the axis over the lanes of a block of channel axis `name`; none for other axes.
pub fn lane_name(name: &str) -> Option<&'static str> {
    match name {
        "o" => Some("oi"),
        "g" => Some("gi"),
        "c" => Some("ci"),
        _ => None,
    }
}

/// The operand of logical `[n, c, h, w]` seen as `[n, c/block, h, w, block]`, whose last block may
/// not be whole. `lane` is the axis that runs over the block.
pub fn blocked(operand: &Operand, lane: AxisId, block: usize) -> Operand {
    let mut blocked = operand.clone();
    blocked.shape[1] = blocked.shape[1].div_ceil(block);
    blocked.shape.push(block);
    let channel = blocked.index[1].clone() + var(lane) * -1;
    debug_assert!(channel.constant % block as i64 == 0 && channel.terms.iter().all(|t| t.1 % block as i64 == 0));
    blocked.index[1] = divide(&channel, block);
    blocked.index.push(var(lane));
    blocked
}

/// `affine / divisor` where every coefficient and the constant are multiples of it.
pub fn divide(affine: &Affine, divisor: usize) -> Affine {
    let divisor = divisor as i64;
    debug_assert!(affine.constant % divisor == 0 && affine.terms.iter().all(|t| t.1 % divisor == 0));
    Affine { constant: affine.constant / divisor, terms: affine.terms.iter().map(|&(v, c)| (v, c / divisor)).collect() }
}

/// The operand in `layout`, whose block (if any) runs over `lane`.
pub fn with_layout(operand: &Operand, layout: Layout, lane: Option<AxisId>) -> Operand {
    match (layout, lane) {
        (Layout::ChannelBlocked(block), Some(lane)) => blocked(operand, lane, block),
        _ => operand.clone(),
    }
}
