//! The form in which every contraction is lowered: named axes, one affine access per operand,
//! padding and epilogue.
//!
//! `output[..] = act(Σ data[..] * weight[..] + bias + residual)`, with the sum over reduction axes.

use std::sync::Arc;

use autotune_ir::affine::{Affine, VarId};
use autotune_ir::program::{Access, AxisInfo, AxisOf, Iteration, Layout};
use autotune_ir::spec::{Equation, Spec};
use autotune_workloads::Workload;
use autotune_workloads::axes::Axes;

/// Position of an axis in [`Contraction::axes`]. In an operand's [`Affine`] indices, `VarId(axis)`
/// stands for the axis.
pub type AxisId = usize;

/// Access to one operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Physical shape, outermost first.
    pub shape: Vec<usize>,
    /// Index of each physical dimension, affine in the axes.
    pub index: Vec<Affine>,
}

impl Operand {
    /// Returns the row-major stride of `axis` in elements.
    pub fn stride(&self, axis: AxisId) -> i64 {
        stride(&self.index, &self.shape, axis)
    }

    /// Returns the first dimension whose index depends on `axis`.
    pub fn dim_of(&self, axis: AxisId) -> Option<usize> {
        self.index.iter().position(|i| i.uses(VarId(axis as u32)))
    }

    /// Replaces `axis` in all indices by an affine value.
    pub fn substitute(&mut self, axis: AxisId, replacement: &Affine) {
        let id = VarId(axis as u32);
        for index in self.index.iter_mut().filter(|index| index.uses(id)) {
            *index = index.substitute(id, replacement);
        }
    }

    /// True if the accessed element depends on `axis`.
    pub fn uses(&self, axis: AxisId) -> bool {
        self.dim_of(axis).is_some()
    }
}

/// Returns the row-major stride of `axis`, in elements, of an access by `index` to a tensor of
/// `shape`.
pub(crate) fn stride(index: &[Affine], shape: &[usize], axis: AxisId) -> i64 {
    let (mut total, mut of_dim) = (0, 1);
    for (index, &extent) in index.iter().zip(shape).rev() {
        total += index.coefficient(VarId(axis as u32)) * of_dim;
        of_dim *= extent as i64;
    }
    total
}

/// An equation of a spec as an affine contraction.
#[derive(Clone, Debug)]
pub struct Contraction {
    /// Spec that the equation belongs to.
    pub spec: Arc<Spec>,
    /// Position of the equation in the spec.
    pub number: usize,
    /// Position of the equation that maps the sums to the output (epilogue).
    pub tail: usize,
    /// Axes of the iteration space.
    pub axes: Vec<AxisInfo>,
    /// Access to the data operand; elements outside its shape read as zero (padding).
    pub data: Operand,
    /// Access to the weight operand.
    pub weight: Operand,
    /// Access to the output, and to the residual, which has the same layout.
    pub output: Operand,
    /// Index of the bias element.
    pub bias: Affine,
    /// True if the weight operand is known ahead of time, so that it can be packed once.
    pub weight_is_constant: bool,
}

pub(crate) fn var(axis: AxisId) -> Affine {
    Affine::var(VarId(axis as u32))
}

impl Contraction {
    /// Returns the main equation of a workload's spec, with every operand in its plain layout and
    /// axes of extent 1 replaced by the constant 0. `None` if the equation is not a sum of products
    /// of two tensors, or if the spec has other equations than a prologue and a map of the sums.
    pub fn of(workload: &Workload) -> Option<Self> {
        let spec = workload.spec();
        let axes = Axes::of(spec).filter(|_| !spec.is_chain());
        axes.map(|_| Self::with_unit_axes(spec).without_unit_axes())
    }

    /// Returns the main equation of a spec that is a contraction, with all axes in the accesses.
    pub fn with_unit_axes(spec: &Arc<Spec>) -> Self {
        Self::of_equation(spec, spec.main, spec.equations.len() - 1)
    }

    /// Returns the equation at position `number`, which multiplies two tensors, with the map at
    /// position `tail` as its epilogue. Accesses keep all axes.
    pub fn of_equation(spec: &Arc<Spec>, number: usize, tail: usize) -> Self {
        let own = &spec.equations[number];
        let operand =
            |access: &Access| Operand { shape: spec.tensor(access).shape.clone(), index: access.index.to_vec() };
        let [data, weight] = own.loads()[..] else { unreachable!("a contraction multiplies two tensors") };
        // All one-dimensional operands of the tail (bias, scale) have the same index, the channel,
        // except tables, which are not indexed by axes.
        let is_of_channels = |access: &&Access| access.index.len() == 1 && access.index[0].as_constant().is_none();
        let bias = spec.equations[tail].loads().into_iter().find(is_of_channels);
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

    /// Returns the contraction's equation.
    pub fn equation(&self) -> &Equation {
        &self.spec.equations[self.number]
    }

    /// Returns the map that computes the data operand from the workload's input, if there is one.
    pub fn prologue(&self) -> Option<&Equation> {
        self.spec.prologue().filter(|_| self.number == self.spec.main)
    }

    /// Returns the iteration of the equation at a point of [`Contraction::axes`].
    pub fn iteration(&self, point: Vec<Affine>) -> Option<Iteration> {
        if self.number == self.spec.main {
            return self.spec.iteration(point);
        }

        // Iterations name a point in the equation's own axes, which `axes` may have split.
        let mut own = vec![Affine::default(); self.equation().axes.len()];
        for (axis, value) in self.axes.iter().zip(&point) {
            if let AxisOf::Part { axis, step } = axis.of {
                own[axis].add_scaled(value, step as i64);
            }
        }
        Some(Iteration { equation: self.number, point: own })
    }

    /// Replaces every axis of extent 1 by the constant 0 in the accesses; the axis itself stays.
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

    /// Returns the axis called `name`.
    pub fn axis(&self, name: &str) -> Option<AxisId> {
        self.axes.iter().position(|a| a.name == name)
    }

    /// Splits a channel axis (extent a multiple of `block`) into blocks, which keep the axis id,
    /// and a new innermost axis of extent `block`, whose id is returned: `for o in 0..64` →
    /// `for o in 0..4 { for oi in 0..16 }`.
    pub fn split(&mut self, axis: AxisId, block: usize) -> AxisId {
        let name = lane_name(self.axes[axis].name).unwrap_or(self.axes[axis].name);
        self.split_to(axis, block, name).0
    }

    /// Splits an axis like [`Contraction::split`], with a name for the new axis. Also returns the
    /// value that replaces the old axis in accesses. The last block of a reduction axis may extend
    /// past its end, where operands read as zero.
    pub fn split_to(&mut self, axis: AxisId, block: usize, name: &'static str) -> (AxisId, Affine) {
        let inner = self.axes.len();
        let info = &mut self.axes[axis];
        info.extent = info.extent.div_ceil(block);
        let mut lanes = AxisInfo { name, extent: block, ..info.clone() };
        // Both new axes count in steps of the equation's axis: a block is `block` of them.
        if let AxisOf::Part { axis, step } = info.of {
            info.of = AxisOf::Part { axis, step: step * block };
            lanes.of = AxisOf::Part { axis, step };
        }
        // A single block needs no term: its axis is always 0.
        let blocks = if info.extent == 1 { Affine::default() } else { var(axis) * block as i64 };
        self.axes.push(lanes);
        let replacement = blocks + var(inner);
        self.substitute(axis, &replacement);
        (inner, replacement)
    }

    /// Returns the lowest and highest value of an index over the whole iteration space.
    fn range(&self, index: &Affine) -> (i64, i64) {
        index.range(|axis| self.axes[axis.0 as usize].extent)
    }

    /// Returns the lowest and highest value of `data.index[dim]` over the whole iteration space.
    pub fn data_range(&self, dim: usize) -> (i64, i64) {
        self.range(&self.data.index[dim])
    }

    /// True if an index reaches outside `0..extent` somewhere in the iteration space.
    fn is_beyond(&self, index: &Affine, extent: usize) -> bool {
        let (low, high) = self.range(index);
        low < 0 || high >= extent as i64
    }

    /// True if some access reads padding in dimension `dim` of the data operand.
    pub fn pads(&self, dim: usize) -> bool {
        self.is_beyond(&self.data.index[dim], self.data.shape[dim])
    }

    /// Returns the axes that index those weight dimensions which are read past their end, where
    /// weights count as zero.
    pub fn axes_beyond_weights(&self) -> Vec<AxisId> {
        let dims = self.weight.index.iter().zip(&self.weight.shape);
        let beyond = dims.filter(|&(index, &extent)| self.is_beyond(index, extent));
        beyond.flat_map(|(index, _)| index.terms.iter().map(|term| term.0.0 as usize)).collect()
    }

    /// True if some access reads padding in any dimension of the data operand.
    pub fn is_padded(&self) -> bool {
        (0..self.data.shape.len()).any(|dim| self.pads(dim))
    }
}

/// Returns the name of the axis over the channels of one block of channel axis `name`; `None` for
/// other axes.
pub fn lane_name(name: &str) -> Option<&'static str> {
    match name {
        "o" => Some("oi"),
        "g" => Some("gi"),
        "c" => Some("ci"),
        _ => None,
    }
}

/// Converts an operand with logical shape `[n, c, h, w]` to `[n, c/block, h, w, block]`, where the
/// last block may be partly filled. `lane` is the axis that runs over the block.
pub fn blocked(operand: &Operand, lane: &Affine, block: usize) -> Operand {
    let mut blocked = operand.clone();
    blocked.shape[1] = blocked.shape[1].div_ceil(block);
    blocked.shape.push(block);
    let channel = blocked.index[1].clone() + lane.clone() * -1;
    debug_assert!(channel.constant % block as i64 == 0 && channel.terms.iter().all(|t| t.1 % block as i64 == 0));
    blocked.index[1] = divide(&channel, block);
    blocked.index.push(lane.clone());
    blocked
}

/// Returns `affine / divisor`; all coefficients and the constant must be multiples of it.
pub fn divide(affine: &Affine, divisor: usize) -> Affine {
    let divisor = divisor as i64;
    debug_assert!(affine.constant % divisor == 0 && affine.terms.iter().all(|t| t.1 % divisor == 0));
    Affine { constant: affine.constant / divisor, terms: affine.terms.iter().map(|&(v, c)| (v, c / divisor)).collect() }
}

/// Returns the operand in `layout`, whose channel block, if it has one, runs over `lane`.
pub fn with_layout(operand: &Operand, layout: Layout, lane: Option<AxisId>) -> Operand {
    match (layout, lane) {
        (Layout::ChannelBlocked(block), Some(lane)) => blocked(operand, &var(lane), block),
        _ => operand.clone(),
    }
}
