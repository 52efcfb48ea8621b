//! Entry point of both walks: over the steps of a network, and over the graph before rewriting.

use std::sync::Arc;

use super::judge::Allowed;
use super::{Checked, ComputedTensors, Workspace, imported};
use crate::device::NetworkOps;
use crate::error::CheckError;
use autotune_graph::EvaluateError;
use autotune_graph::Tensor;
use autotune_graph::rewrite::Trace;
use autotune_graph::{Graph, Output};

impl<D: NetworkOps> Workspace<D> {
    /// Runs the network on tensors, and compares every step with the reference; then compares with
    /// the reference on the graph that it was [rewritten](crate::rewrite::rewrite_traced) from. All
    /// tensors are in memory meanwhile.
    pub fn check(&mut self, inputs: &[Tensor], imported: &Graph, trace: &Trace) -> Result<Checked, CheckError> {
        let network = Arc::clone(&self.bound.network);
        let (graph, plan) = (&network.graph, &network.plan);
        graph.check_inputs(inputs)?;
        let mut computed = ComputedTensors::nothing(graph);
        for ((tensor, &id), &span) in inputs.iter().zip(graph.inputs()).zip(&plan.inputs) {
            let numbers = tensor.to_numbers();
            self.write(span, &numbers)?;
            // The inputs are compared as the network stores them, in its precision.
            computed.put(id, &self.result(span, numbers.len())?, Allowed::NOTHING)?;
        }

        let mut steps = Vec::new();
        for (number, action) in plan.actions.iter().enumerate() {
            self.start(number..number + 1)?;
            steps.push(self.step_error(action, &mut computed)?);
        }

        let output = |(output, &span): (&Output, _)| {
            let node = graph.node(output.node);
            let numbers = self.result(span, node.shape.iter().product())?;
            let tensor = Tensor::of_numbers(&node.shape, node.dtype, &numbers);
            Ok(tensor.map_err(|source| EvaluateError::from(node.wrong(source)))?)
        };
        let outputs = graph.outputs().iter().zip(&plan.outputs).map(output);
        let outputs = outputs.collect::<Result<Vec<_>, CheckError>>()?;
        Ok(Checked { steps, imported: imported::errors(imported, trace, &computed, &outputs)? })
    }
}
