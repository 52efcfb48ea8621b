//! Checks of the caller's tensors.

use autotune_graph::{Graph, NodeId};

use super::Compiled;
use crate::device::NetworkOps;
use crate::error::RunError;

impl<D: NetworkOps> Compiled<D> {
    /// Fails unless the caller's tensors have the sizes of the inputs and outputs.
    pub(super) fn check_sizes(&self, inputs: &[&[f32]], outputs: &[&mut [f32]]) -> Result<(), RunError> {
        let graph = &self.graph;
        count("inputs", inputs.len(), self.plan.inputs.len())?;
        count("outputs", outputs.len(), self.plan.outputs.len())?;
        for (input, &node) in inputs.iter().zip(graph.inputs()) {
            size(graph, node, &graph.node(node).name, input.len())?;
        }
        for (output, given) in graph.outputs().iter().zip(outputs) {
            size(graph, output.node, &output.name, given.len())?;
        }
        Ok(())
    }
}

fn count(what: &'static str, found: usize, wanted: usize) -> Result<(), RunError> {
    if found == wanted { Ok(()) } else { Err(RunError::Count { what, found, wanted }) }
}

fn size(graph: &Graph, node: NodeId, name: &str, found: usize) -> Result<(), RunError> {
    let shape = &graph.node(node).shape;
    match shape.iter().product() {
        wanted if wanted == found => Ok(()),
        wanted => Err(RunError::Size { name: name.into(), found, wanted, shape: shape.clone() }),
    }
}
