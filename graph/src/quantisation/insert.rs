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
            uses: graph.uses(),
            to: Graph::new(graph.name()).with_precision(graph.precision()),
            exact: Vec::with_capacity(graph.nodes().len()),
            rounded: BTreeMap::new(),
            shifts: BTreeMap::new(),
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
    uses: Vec<usize>,
    to: Graph,
    /// New node of each tensor.
    exact: Vec<NodeId>,
    /// New nodes of rounded tensors.
    rounded: BTreeMap<NodeId, NodeId>,
    /// Mean errors of products by column, to be subtracted from the bias that follows.
    shifts: BTreeMap<NodeId, Vec<f64>>,
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
        if let Some((place, bias)) = self.corrected_bias(node) {
            operands[place] = self.to.constant(&node.name, bias.map_err(|source| node.wrong(source))?);
        }
        self.to.add(&node.name, node.op.clone(), &operands)
    }

    /// Returns the bias that is added to a product with a mean error, corrected, and its place
    /// among the operands.
    fn corrected_bias(&self, node: &GraphNode) -> Option<(usize, Result<Tensor, OpError>)> {
        let [a, b] = node.operands[..] else { return None };
        let (product, place, bias) = match (self.shifts.contains_key(&a), self.shifts.contains_key(&b)) {
            (true, false) => (a, 1, b),
            (false, true) => (b, 0, a),
            _ => return None,
        };
        let bias = self.from.constant_of(bias).filter(|_| node.op == Binary::Add)?;
        let shifts = &self.shifts[&product];
        let is_by_column = bias.shape().last() == Some(&shifts.len()) && bias.dtype() == DType::F32;
        if !is_by_column || bias.shape().iter().product::<usize>() != shifts.len() || self.uses[product.0 as usize] > 1
        {
            return None;
        }
        let corrected = bias.read().and_then(|own| Tensor::f32(bias.shape(), less(own.to_numbers(), shifts)));
        Some((place, corrected))
    }

    /// Adds a layer with integer weights.
    fn layer(&mut self, id: NodeId, node: &GraphNode) -> Result<NodeId, GraphError> {
        let is_conv = node.op.is::<Conv>();
        let axis = usize::from(!is_conv);
        let wrong = |source| node.wrong(source);
        let constant = |id: NodeId| {
            let found = self.from.constant_of(id).ok_or_else(|| OpError::Unfit("weights are not constant".into()));
            found.and_then(|constant| Ok(constant.read()?.into_owned())).map_err(wrong)
        };
        let weights = RoundedWeights::of(&constant(node.operands[1])?, axis).map_err(wrong)?;
        let mut bias = node.operands.get(2).map(|&bias| constant(bias)).transpose()?;
        let shifts = self.plan.means.get(&id).map(|means| shifts(node, self.from, &weights, means));

        let mut operands = vec![self.operand(node.operands[0], true), self.weights(node, weights, axis)?];
        if let Some(shifts) = shifts {
            if is_conv {
                let own = bias.map_or_else(|| vec![0.0; shifts.len()], |bias| bias.to_numbers());
                bias = Some(Tensor::f32(&[shifts.len()], less(own, &shifts)).map_err(wrong)?);
            } else {
                self.shifts.insert(id, shifts);
            }
        }
        operands.extend(bias.map(|bias| self.to.constant(format!("{}_bias", node.name), bias)));
        self.to.add(&node.name, node.op.clone(), &operands)
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

    /// Adds `Dequantize(Quantize(x))`.
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

fn less(numbers: Vec<f32>, shifts: &[f64]) -> Vec<f32> {
    numbers.into_iter().zip(shifts).map(|(number, shift)| (f64::from(number) - shift) as f32).collect()
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
