//! Biases of layers with integer weights as 32-bit integers, the form that other runtimes expect.

use std::collections::HashMap;

use super::attribute::int;
use super::writer::{GraphWriter, unused_name};
use crate::graph::{Graph, GraphNode, NodeId};
use crate::operators::{Binary, Conv, Dequantize, MatMul};
use crate::tensor::Tensor;

/// A bias `integers * scales` of a layer.
pub(super) struct IntegerBias {
    integers: Vec<i32>,
    scales: Tensor,
}

/// Returns the biases that are whole multiples of the steps of the integer sums before them.
pub(super) fn integer_biases(graph: &Graph) -> HashMap<NodeId, IntegerBias> {
    let uses = graph.uses();
    let biases = graph.nodes().filter_map(|(_, node)| {
        let (layer, bias) = layer_and_bias(graph, node)?;
        // A constant of several layers stays as it is.
        let is_single = uses[bias.0 as usize] == 1;
        Some((bias, is_single.then(|| IntegerBias::of(graph, layer, bias))??))
    });
    biases.collect()
}

/// Matches a convolution with bias, or the sum of a product and its bias.
fn layer_and_bias<'a>(graph: &'a Graph, node: &'a GraphNode) -> Option<(&'a GraphNode, NodeId)> {
    match node.operands[..] {
        [_, _, bias] if node.op.is::<Conv>() => Some((node, bias)),
        [a, b] if node.op == Binary::Add => {
            let product = |id: NodeId| Some(graph.node(id)).filter(|node| node.op.is::<MatMul>());
            product(a).map(|product| (product, b)).or_else(|| product(b).map(|product| (product, a)))
        }
        _ => None,
    }
}

impl IntegerBias {
    /// Divides a bias by the steps of a layer's sums, if nothing is lost.
    fn of(graph: &Graph, layer: &GraphNode, bias: NodeId) -> Option<Self> {
        let scales = |operand: usize| {
            let node = graph.node(layer.operands[operand]);
            let scale = node.op.is::<Dequantize>().then(|| graph.constant_of(node.operands[1]))??;
            scale.read().ok().map(|scale| scale.to_numbers())
        };
        let ([of_data], of_weights) = (&scales(0)?[..], scales(1)?) else { return None };
        let bias = graph.constant_of(bias)?.read().ok()?;
        let numbers = bias.as_f32()?;
        let channels = *bias.shape().last()?;
        if numbers.len() != channels || ![1, channels].contains(&of_weights.len()) {
            return None;
        }

        let steps: Vec<f32> =
            (0..channels).map(|at| of_data * of_weights[if of_weights.len() == 1 { 0 } else { at }]).collect();
        let integers: Vec<i32> = numbers
            .iter()
            .zip(&steps)
            .map(|(bias, step)| (f64::from(*bias) / f64::from(*step)).round() as i32)
            .collect();
        let is_exact = |((bias, step), whole): ((&f32, &f32), &i32)| *whole as f32 * step == *bias;
        let are_exact = numbers.iter().zip(&steps).zip(&integers).all(is_exact);
        Some(Self { integers, scales: Tensor::f32(&[channels], steps).ok()? }).filter(|_| are_exact)
    }

    /// Writes the bias of a node's shape as the tensor `name`.
    pub(super) fn write(&self, file: &mut GraphWriter, node: &GraphNode, name: &str) {
        let [integers, scales] =
            ["integers", "scales"].map(|part| unused_name(&mut file.used_names, format!("{name}.{part}")));
        file.integers(&integers, &node.shape, &self.integers);
        file.constant(scales.clone(), &self.scales);
        let axis = int("axis", node.shape.len() - 1);
        file.node((None, "DequantizeLinear"), vec![integers, scales], name, vec![axis]);
    }
}
