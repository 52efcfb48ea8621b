//! Insertion of roundings and integer weights into a float graph.

use std::collections::{BTreeMap, BTreeSet};

use autotune_ir::DType;

use super::scale::TensorScale;
use super::sites::{Demands, QuantisationSites};
use super::weights::RoundedWeights;
use crate::error::{GraphError, OpError};
use crate::graph::{Graph, GraphNode, Input, NodeId};
use crate::operators::{Binary, Conv, Dequantize, Quantize};
use crate::rewrite::apply;
use crate::tensor::Tensor;

/// Largest bias in steps of the integer sums; far enough from the end of 32 bits that corrections
/// fit, too.
const MOST_BIAS: f32 = (1 << 30) as f32;

/// Layers that compute with integers, and their scales.
#[derive(Clone, Copy)]
pub struct QuantisationPlan<'a> {
    /// Layers and tensors of the graph.
    pub sites: &'a QuantisationSites,
    /// Layers that stay in floating point.
    pub kept: &'a BTreeSet<NodeId>,
    /// Scales by the numbers of [`QuantisationSites::tensors`].
    pub scales: &'a [TensorScale],
    /// Mean of each channel of a layer's data. Where it is known, the bias is changed by the mean
    /// error that rounded weights cause.
    pub means: &'a BTreeMap<NodeId, Vec<f64>>,
}

impl QuantisationPlan<'_> {
    /// Returns the graph with `Dequantize(Quantize(x))` in place of each rounded tensor `x`, and
    /// `Dequantize` of integers in place of weights. Layers, and what reads or writes bytes between
    /// them, read rounded tensors; all others, and outputs, read exact ones.
    pub fn apply(&self, graph: &Graph) -> Result<Graph, GraphError> {
        let mut insertion = Insertion {
            plan: self,
            from: graph,
            demands: Demands::of(graph, self.kept),
            readers: single_readers(graph),
            to: Graph::new(graph.name()).with_precision(graph.precision()),
            exact: Vec::with_capacity(graph.nodes().len()),
            rounded: BTreeMap::new(),
            biases: BTreeMap::new(),
        };
        for (id, node) in graph.nodes() {
            insertion.node(id, node)?;
        }

        let Insertion { mut to, exact, .. } = insertion;
        for output in graph.outputs() {
            to.output_as(&output.name, exact[output.node.0 as usize], output.stored);
        }
        // A pass without rules drops the weights that nothing reads any more.
        apply(&to, &[])
    }
}

/// A quantised graph under construction.
struct Insertion<'a> {
    plan: &'a QuantisationPlan<'a>,
    from: &'a Graph,
    demands: Demands,
    readers: Vec<Option<NodeId>>,
    to: Graph,
    /// New node of each tensor.
    exact: Vec<NodeId>,
    /// New nodes of rounded tensors.
    rounded: BTreeMap<NodeId, NodeId>,
    /// Constant of each sum that is the bias of a product, and its place among the operands.
    biases: BTreeMap<NodeId, (usize, Tensor)>,
}

impl Insertion<'_> {
    fn node(&mut self, id: NodeId, node: &GraphNode) -> Result<(), GraphError> {
        let is_layer = self.plan.sites.layers().contains(&id);
        let made = match self.from.constant_of(id) {
            Some(constant) => self.to.constant(&node.name, constant.clone()),
            None if node.op.is::<Input>() => self.to.input(&node.name, node.dtype, &node.shape)?,
            None if is_layer && self.demands.reads(id) => self.layer(id, node)?,
            None => self.other(id, node)?,
        };
        self.exact.push(made);

        if self.demands.is_rounded(id)
            && let Some(number) = self.plan.sites.scale_of(id)
        {
            let rounded = self.round(node, made, self.plan.scales[number])?;
            self.rounded.insert(id, rounded);
        }
        Ok(())
    }

    /// Returns the new node of an operand: rounded, if the reader wants that.
    fn operand(&self, id: NodeId, is_rounded: bool) -> NodeId {
        let rounded = self.rounded.get(&id).filter(|_| is_rounded);
        rounded.copied().unwrap_or(self.exact[id.0 as usize])
    }

    fn other(&mut self, id: NodeId, node: &GraphNode) -> Result<NodeId, GraphError> {
        let is_rounded = self.demands.reads(id);
        let mut operands: Vec<NodeId> = node.operands.iter().map(|&id| self.operand(id, is_rounded)).collect();
        if let Some((place, bias)) = self.biases.remove(&id) {
            operands[place] = self.to.constant(format!("{}_bias", node.name), bias);
        }
        self.to.add(&node.name, node.op.clone(), &operands)
    }

    /// Adds a layer with integer weights and a bias in whole steps of the sums.
    fn layer(&mut self, id: NodeId, node: &GraphNode) -> Result<NodeId, GraphError> {
        let is_conv = node.op.is::<Conv>();
        let (axis, data) = (usize::from(!is_conv), node.operands[0]);
        let wrong = |source| node.wrong(source);
        let number =
            self.plan.sites.scale_of(data).ok_or_else(|| wrong(OpError::Unfit("data have no scale".into())))?;
        let step = self.plan.scales[number].scale;
        let sum = if is_conv { None } else { self.bias_behind(id) };
        let constant = |id: NodeId| {
            let found = self.from.constant_of(id).ok_or_else(|| OpError::Unfit("weights are not constant".into()));
            found.and_then(|constant| Ok(constant.read()?.into_owned())).map_err(wrong)
        };
        let bias = match sum {
            Some((sum, place)) => Some(self.from.node(sum).operands[place]),
            None => node.operands.get(2).copied(),
        };
        let bias = bias.map(constant).transpose()?;

        let weights = constant(node.operands[1])?;
        let channels = weights.shape()[axis];
        let shape = bias.as_ref().map_or_else(|| vec![channels], |bias| bias.shape().to_vec());
        let own = bias.as_ref().map_or_else(|| vec![0.0; channels], Tensor::to_numbers);
        let least: Vec<f32> = own.iter().map(|bias| bias.abs() / step / MOST_BIAS).collect();
        let weights = RoundedWeights::of(&weights, axis, &least).map_err(wrong)?;
        let shifts = self.plan.means.get(&id).map(|means| shifts(node, self.from, &weights, means));
        let has_bias = bias.is_some() || is_conv && shifts.is_some();
        let bias = in_steps(less(own, shifts), step, &weights.scales);
        let bias = Tensor::f32(&shape, bias).map_err(wrong)?;

        let mut operands = vec![self.operand(data, true), self.weights(node, weights, axis)?];
        match sum {
            Some((sum, place)) => drop(self.biases.insert(sum, (place, bias))),
            None if has_bias && is_conv => operands.push(self.to.constant(format!("{}_bias", node.name), bias)),
            None => {}
        }
        self.to.add(&node.name, node.op.clone(), &operands)
    }

    /// Returns the sum of a product and its bias, and the place of the bias among the operands.
    fn bias_behind(&self, product: NodeId) -> Option<(NodeId, usize)> {
        let (sum, node) = (self.readers[product.0 as usize]?, self.from.node(self.readers[product.0 as usize]?));
        let place = node.operands.iter().position(|&operand| operand != product)?;
        let bias = self.from.constant_of(node.operands[place])?;
        let columns = *self.from.node(product).shape.last()?;
        let is_by_column = bias.shape().last() == Some(&columns) && bias.shape().iter().product::<usize>() == columns;
        let fits = node.op == Binary::Add && bias.dtype() == DType::F32 && is_by_column;
        fits.then_some((sum, place))
    }

    fn weights(&mut self, node: &GraphNode, weights: RoundedWeights, axis: usize) -> Result<NodeId, GraphError> {
        let RoundedWeights { integers, scales, .. } = weights;
        let (name, channels, wrong) = (&node.name, [scales.len()], |source| node.wrong(source));
        let zeros = Tensor::of_numbers(&channels, DType::I8, &vec![0.0; scales.len()]).map_err(wrong)?;
        let integers = self.to.constant(format!("{name}_weights"), integers);
        let scales = self.to.constant(format!("{name}_scales"), Tensor::f32(&channels, scales).map_err(wrong)?);
        let zeros = self.to.constant(format!("{name}_zeros"), zeros);
        self.to.add(format!("{name}_weights"), Dequantize { axis }, &[integers, scales, zeros])
    }

    /// Adds `Dequantize(Quantize(x))`, which rounds a tensor to its scale; returns the new node.
    fn round(&mut self, node: &GraphNode, x: NodeId, of: TensorScale) -> Result<NodeId, GraphError> {
        let name = &node.name;
        let zero = Tensor::of_numbers(&[], DType::U8, &[of.zero.into()]).map_err(|source| node.wrong(source))?;
        let scale = self.to.constant(format!("{name}_scale"), Tensor::scalar(of.scale));
        let zero = self.to.constant(format!("{name}_zero"), zero);
        let quantize = Quantize { dtype: DType::U8, axis: 0 };
        let bytes = self.to.add(format!("{name}_quantised"), quantize, &[x, scale, zero])?;
        self.to.add(format!("{name}_rounded"), Dequantize { axis: 0 }, &[bytes, scale, zero])
    }
}

/// Returns biases minus the mean errors of the sums, if these are known.
fn less(biases: Vec<f32>, shifts: Option<Vec<f64>>) -> Vec<f32> {
    let Some(shifts) = shifts else { return biases };
    biases.into_iter().zip(shifts).map(|(bias, shift)| (f64::from(bias) - shift) as f32).collect()
}

/// Rounds biases to whole steps of the integer sums, so that files can have them as integers.
fn in_steps(biases: Vec<f32>, step: f32, scales: &[f32]) -> Vec<f32> {
    let whole = |(bias, scale): (f32, &f32)| {
        let step = step * scale;
        let rounded = (bias / step).round_ties_even() * step;
        if rounded.is_finite() { rounded } else { bias }
    };
    biases.into_iter().zip(scales).map(whole).collect()
}

/// Returns for each tensor its reader, if it has a single one that is not an output.
fn single_readers(graph: &Graph) -> Vec<Option<NodeId>> {
    let uses = graph.uses();
    let mut readers = vec![None; uses.len()];
    for (id, node) in graph.nodes() {
        for operand in node.operands.iter().filter(|operand| uses[operand.0 as usize] == 1) {
            readers[operand.0 as usize] = Some(id);
        }
    }
    readers
}

/// Returns by how much rounded weights change the mean of each channel of a layer.
fn shifts(node: &GraphNode, graph: &Graph, weights: &RoundedWeights, means: &[f64]) -> Vec<f64> {
    let shape = &graph.node(node.operands[1]).shape;
    let mut shifts = vec![0.0; weights.scales.len()];
    match node.op.of() {
        Some(&Conv { groups, .. }) => {
            let (of_group, taps) = (shape[1], shape[2..].iter().product::<usize>());
            let in_group = shape[0] / groups.max(1);
            for (at, change) in weights.changes.iter().enumerate() {
                let (out, channel) = (at / (of_group * taps), at / taps % of_group);
                shifts[out] += f64::from(*change) * means[out / in_group * of_group + channel];
            }
        }
        None => {
            for (at, change) in weights.changes.iter().enumerate() {
                let (row, column) = (at / shape[1], at % shape[1]);
                shifts[column] += f64::from(*change) * means[row];
            }
        }
    }
    shifts
}
