//! Statistics of a float network's tensors over examples of its inputs.

use std::collections::BTreeMap;

use autotune_graph::operators::Conv;
use autotune_graph::quantisation::{QuantisationSites, TensorStatistics};
use autotune_graph::{Graph, NodeId, Tensor};

use super::options::{QuantiseError, QuantiseOptions};
use crate::compiled::{Compiled, Workspace};

/// Statistics of all runs of a float network.
pub(super) struct NetworkStatistics {
    /// Elements of the tensors of each scale.
    pub(super) tensors: Vec<TensorStatistics>,
    /// Mean of each channel of a layer's data.
    pub(super) means: BTreeMap<NodeId, Vec<f64>>,
    /// Outputs for each example.
    pub(super) outputs: Vec<Vec<Tensor>>,
}

/// A compiled network with all tensors that statistics are about as further outputs.
struct ObservedNetwork {
    workspace: Workspace,
    own_outputs: usize,
    /// Tensors of the further outputs.
    nodes: Vec<NodeId>,
}

/// Elements of observed tensors in a run.
type Observed = BTreeMap<NodeId, Vec<f32>>;

impl ObservedNetwork {
    fn of(graph: &Graph, sites: &QuantisationSites, options: &QuantiseOptions) -> Result<Self, QuantiseError> {
        let nodes: Vec<NodeId> = sites.tensors().map(|(id, _)| id).collect();
        let mut observed = graph.clone();
        for id in &nodes {
            observed.output(format!("observed {}", id.0), *id);
        }
        let workspace = Compiled::new(&observed, options.source, options.target)?.workspace()?;
        Ok(Self { workspace, own_outputs: graph.outputs().len(), nodes })
    }

    /// Runs the network; returns its own outputs and the observed tensors.
    fn run(&mut self, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Observed), QuantiseError> {
        let mut outputs = self.workspace.run_tensors(inputs)?;
        let observed = outputs.split_off(self.own_outputs).into_iter().map(Tensor::into_numbers);
        Ok((outputs, self.nodes.iter().copied().zip(observed).collect()))
    }
}

impl NetworkStatistics {
    /// Runs the network twice on every example: for the ranges, then for the histograms.
    pub(super) fn of(
        graph: &Graph,
        sites: &QuantisationSites,
        examples: &[Vec<Tensor>],
        options: &QuantiseOptions,
    ) -> Result<Self, QuantiseError> {
        let mut network = ObservedNetwork::of(graph, sites, options)?;
        let scales: BTreeMap<NodeId, usize> = sites.tensors().collect();
        let mut tensors = vec![TensorStatistics::default(); sites.scales()];
        let (mut means, mut all_outputs) = (BTreeMap::new(), Vec::with_capacity(examples.len()));
        for (number, inputs) in examples.iter().enumerate() {
            (options.progress)("calibrating", number, 2 * examples.len());
            let (outputs, observed) = network.run(inputs)?;
            observed.iter().for_each(|(id, numbers)| tensors[scales[id]].widen(numbers));
            add_means(graph, sites, &observed, examples.len(), &mut means);
            all_outputs.push(outputs);
        }

        let infinite = scales.iter().find(|(_, scale)| !tensors[**scale].is_finite());
        if let Some((&id, _)) = infinite {
            return Err(QuantiseError::NotFinite { node: graph.node(id).name.clone() });
        }
        for (number, inputs) in examples.iter().enumerate() {
            (options.progress)("calibrating", examples.len() + number, 2 * examples.len());
            let (_, observed) = network.run(inputs)?;
            observed.iter().for_each(|(id, numbers)| tensors[scales[id]].count(numbers));
        }
        Ok(Self { tensors, means, outputs: all_outputs })
    }
}

/// Adds the mean of each channel of every layer's data to the means over all runs.
fn add_means(
    graph: &Graph,
    sites: &QuantisationSites,
    observed: &Observed,
    runs: usize,
    means: &mut BTreeMap<NodeId, Vec<f64>>,
) {
    for &layer in sites.layers() {
        let node = graph.node(layer);
        let data = node.operands[0];
        let (shape, is_conv) = (&graph.node(data).shape, node.op.is::<Conv>());
        let (Some(numbers), Some(axis)) =
            (observed.get(&data), if is_conv { Some(1) } else { shape.len().checked_sub(1) })
        else {
            continue;
        };
        let (channels, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>().max(1));
        let share = channels as f64 / (numbers.len() * runs) as f64;
        let own = means.entry(layer).or_insert_with(|| vec![0.0; channels]);
        for (number, row) in numbers.chunks(inner).enumerate() {
            own[number % channels] += row.iter().map(|&number| f64::from(number)).sum::<f64>() * share;
        }
    }
}
