//! Construction of networks, layer by layer.

use std::cell::RefCell;
use std::fmt;
use std::ops;

use autotune_ir::DType;
use autotune_workloads::{Activation, Function, PoolKind, ReduceOp};

use crate::error::{GraphError, OpError};
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::operators::{
    Binary, Concat, Gather, Map, MatMul, Pool, Range, Reduce, Reshape, Slice, Sliding, Softmax, Transpose,
};
use crate::tensor::Tensor;

mod layers;
mod weights;

pub use layers::ConvLayer;
pub use weights::{Fill, Seeded, Weights};

/// Builds a [`Graph`] from operations on tensors. The first error is reported by
/// [`Builder::finish`]; later operations have no effect.
pub struct Builder {
    state: RefCell<BuilderState>,
}

struct BuilderState {
    graph: Graph,
    weights: Box<dyn Weights>,
    failed: Option<GraphError>,
}

/// A tensor of the network under construction.
#[derive(Clone, Copy)]
pub struct Value<'b> {
    builder: &'b Builder,
    id: NodeId,
}

impl Builder {
    /// Creates a network without layers, with a source of weights.
    pub fn new(name: &str, weights: impl Weights + 'static) -> Self {
        let state = BuilderState { graph: Graph::new(name), weights: Box::new(weights), failed: None };
        Self { state: RefCell::new(state) }
    }

    /// Adds an f32 input; images are `[n, c, h, w]`.
    pub fn input(&self, name: &str, shape: &[usize]) -> Value<'_> {
        self.input_of(name, DType::F32, shape)
    }

    /// Adds an input of any type.
    pub fn input_of(&self, name: &str, dtype: DType, shape: &[usize]) -> Value<'_> {
        self.add(|state| state.graph.input(name, dtype, shape))
    }

    /// Adds a node whose tensor is a constant.
    pub fn constant(&self, name: &str, tensor: Tensor) -> Value<'_> {
        self.add(|state| Ok(state.graph.constant(name, tensor)))
    }

    /// Adds a weight from the builder's [`Weights`].
    pub fn weight(&self, name: &str, shape: &[usize], fill: Fill) -> Value<'_> {
        self.add(|BuilderState { graph, weights, .. }| {
            let tensor = weights.tensor(name, shape, fill);
            // The source of weights is the caller's code, so its tensors are checked.
            let fits = |tensor: &Tensor| tensor.shape() == shape && tensor.dtype() == DType::F32;
            let tensor = tensor.and_then(|tensor| match fits(&tensor) {
                true => Ok(tensor),
                false => {
                    let found = (tensor.dtype(), tensor.shape());
                    Err(OpError::Unfit(format!("weight is {}{:?}, expected f32{shape:?}", found.0, found.1)))
                }
            });
            let failed = |source| GraphError { node: name.into(), op: "Constant", source };
            Ok(graph.constant(name, tensor.map_err(failed)?))
        })
    }

    /// Marks a tensor as an output of the network.
    pub fn output(&self, name: &str, value: Value<'_>) {
        let value = self.own(value);
        let mut state = self.state.borrow_mut();
        if state.failed.is_none() {
            state.graph.output(name, value.id);
        }
    }

    /// Returns the network, or the first error.
    pub fn finish(self) -> Result<Graph, GraphError> {
        let BuilderState { graph, failed, .. } = self.state.into_inner();
        failed.map_or(Ok(graph), Err)
    }

    /// Adds a node, unless an operation has failed before.
    fn add(&self, make: impl FnOnce(&mut BuilderState) -> Result<NodeId, GraphError>) -> Value<'_> {
        let mut state = self.state.borrow_mut();
        let id = match state.failed {
            // After an error all values are placeholders.
            Some(_) => NodeId(0),
            None => make(&mut state).unwrap_or_else(|error| {
                state.failed = Some(error);
                NodeId(0)
            }),
        };
        Value { builder: self, id }
    }

    /// Returns the value, if it belongs to this builder; else records an error.
    fn own(&self, value: Value<'_>) -> Value<'_> {
        // The id of another builder's value would name an unrelated node.
        match std::ptr::eq(self, value.builder) {
            true => Value { builder: self, id: value.id },
            false => self.failed(value.name(), "Input", OpError::Unfit("belongs to another builder".into())),
        }
    }

    fn failed(&self, node: String, op: &'static str, source: OpError) -> Value<'_> {
        self.add(|_| Err(GraphError { node, op, source }))
    }
}

impl<'b> Value<'b> {
    /// Returns the extents, outermost first; empty after an error.
    pub fn shape(self) -> Vec<usize> {
        let state = self.builder.state.borrow();
        if state.failed.is_some() { Vec::new() } else { state.graph.node(self.id).shape.clone() }
    }

    /// Adds an operation on this tensor and others. The node's name is the operation and a number.
    pub fn op(self, op: impl Into<Op>, others: &[Value<'_>]) -> Value<'b> {
        let (op, number) = (op.into(), self.builder.state.borrow().graph.nodes().len());
        self.named(&format!("{}_{number}", op.name()), op, others)
    }

    /// Adds an operation on this tensor and others, with a name.
    pub fn named(self, name: &str, op: impl Into<Op>, others: &[Value<'_>]) -> Value<'b> {
        let others = others.iter().map(|&other| self.builder.own(other).id);
        let operands: Vec<NodeId> = [self.id].into_iter().chain(others).collect();
        self.builder.add(|state| state.graph.add(name, op, &operands))
    }

    /// Applies a function to every element.
    pub fn map(self, function: Function) -> Value<'b> {
        self.op(Map(function), &[])
    }

    /// Applies an activation to every element.
    pub fn activation(self, activation: Activation) -> Value<'b> {
        self.map(Function::Activation(activation))
    }

    /// `max(x, 0)`.
    pub fn relu(self) -> Value<'b> {
        self.activation(Activation::Relu)
    }

    /// `min(max(x, lo), hi)`.
    pub fn clip(self, lo: f32, hi: f32) -> Value<'b> {
        match Activation::new("clip", &[lo, hi]) {
            Ok(clip) => self.activation(clip),
            Err(expected) => {
                let reason = format!("clip bounds are {lo} and {hi}, expected {expected}");
                self.builder.failed(self.name(), "Map", OpError::Unfit(reason))
            }
        }
    }

    /// Applies an elementwise operation to two tensors, which broadcast to each other as in NumPy.
    pub fn binary(self, op: Binary, other: Value<'_>) -> Value<'b> {
        self.op(op, &[other])
    }

    /// Multiplies matrices along the last two axes; leading axes broadcast.
    pub fn matmul(self, other: Value<'_>) -> Value<'b> {
        self.op(MatMul, &[other])
    }

    /// Pools an image with the same window along all spatial axes.
    pub fn pool(self, kind: PoolKind, window: Sliding) -> Value<'b> {
        // An invalid rank is left to the operator's own check.
        let window = vec![window; self.shape().len().saturating_sub(2)];
        self.op(Pool { window, ceil: false, kind }, &[])
    }

    /// Returns the mean of every channel of an image, `[n, c]`.
    pub fn global_average_pool(self) -> Value<'b> {
        let axes = (2..self.shape().len()).collect();
        self.op(Reduce { op: ReduceOp::Mean, axes, keep_axes: false }, &[])
    }

    /// `exp(x) / sum(exp(x))` along the last axis.
    pub fn softmax(self) -> Value<'b> {
        let axis = self.shape().len().saturating_sub(1);
        self.op(Softmax { axis, log: false }, &[])
    }

    /// Appends tensors to this one along an axis.
    pub fn concat(self, others: &[Value<'_>], axis: usize) -> Value<'b> {
        self.op(Concat { axis }, others)
    }

    /// Changes the shape; elements stay in row-major order.
    pub fn reshape(self, shape: &[usize]) -> Value<'b> {
        self.op(Reshape(shape.to_vec()), &[])
    }

    /// Merges all axes but the first: `[n, ..]` to `[n, m]`.
    pub fn flatten(self) -> Value<'b> {
        let shape = self.shape();
        // A scalar becomes a vector of one element.
        let (rows, inner) = shape.split_at(shape.len().min(1));
        self.reshape(&[rows, &[inner.iter().product()]].concat())
    }

    /// Permutes axes: axis `i` of the result is axis `perm[i]` of the tensor.
    pub fn transpose(self, perm: &[usize]) -> Value<'b> {
        self.op(Transpose(perm.to_vec()), &[])
    }

    /// Returns the elements in `range` along an axis.
    pub fn slice(self, axis: usize, range: ops::Range<usize>) -> Value<'b> {
        let of_axis = |(own, count): (usize, usize)| match own == axis {
            true => Range { start: range.start, step: 1, count: range.len() },
            false => Range { start: 0, step: 1, count },
        };
        let ranges = self.shape().into_iter().enumerate().map(of_axis).collect();
        self.op(Slice(ranges), &[])
    }

    /// Selects slices along the first axis by index.
    pub fn gather(self, numbers: Value<'_>) -> Value<'b> {
        self.op(Gather { axis: 0 }, &[numbers])
    }

    fn name(self) -> String {
        let state = self.builder.state.borrow();
        if state.failed.is_some() { String::new() } else { state.graph.node(self.id).name.clone() }
    }
}

impl<'b> ops::Add<Value<'_>> for Value<'b> {
    type Output = Value<'b>;

    fn add(self, other: Value<'_>) -> Value<'b> {
        self.binary(Binary::Add, other)
    }
}

impl<'b> ops::Mul<Value<'_>> for Value<'b> {
    type Output = Value<'b>;

    fn mul(self, other: Value<'_>) -> Value<'b> {
        self.binary(Binary::Mul, other)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        f.debug_struct("Builder").field("graph", &state.graph.name()).field("failed", &state.failed).finish()
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({})", self.name())
    }
}
