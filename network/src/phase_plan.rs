//! Plan of a phase: kernels or the interpreter, and the nodes after it.

use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use autotune_graph::onnx::{ModelPhase, NestedGraph, PhaseNode, PhaseWork, RunTensor, TensorFacts};
use autotune_graph::{DType, Graph, GraphNode, NodeId, Tensor};
use autotune_runtime::Cpu;

use crate::choose::SCARCE_PACKING_LOSS;
use crate::compiled::Compiled;
use crate::error::RunError;
use crate::family::{FamilyError, compiled_in};
use crate::phased::{PhasedNetwork, PlanMaker, RunTensors};
use crate::switched::SwitchedWorkspace;

/// Largest number of steps of an evaluation that the interpreter takes sooner than a compilation
/// would. The choice depends on shapes only, so that equal runs have equal results.
const MOST_INTERPRETED: usize = 1 << 13;

/// Identity of a plan among those of a model.
#[derive(Clone)]
pub(crate) struct PlanKey {
    number: u64,
    exists: Weak<()>,
}

/// Work of a phase, for tensors of some shapes.
pub(crate) struct PhasePlan {
    pub(crate) key: PlanKey,
    /// Handle that exists as long as the plan.
    _existence: Arc<()>,
    /// Tensors that exist when the phase begins.
    pub(crate) start: BTreeMap<String, TensorFacts>,
    work: PlannedWork,
    /// Names of the inputs.
    inputs: Vec<String>,
    /// Names of the outputs, and their types in the file if these have 8 bits.
    outputs: Vec<(String, Option<DType>)>,
    /// Nodes that run after it.
    pub(crate) nodes: Vec<PlannedNode>,
    /// Names of tensors that nodes and later phases read.
    pub(crate) reads: HashSet<String>,
    /// True if all outputs of the network exist afterwards.
    pub(crate) is_last: bool,
}

/// A node that runs alone, with the networks of its graphs: one for a loop, two for an `If`, one
/// for each direction of a recurrent layer.
pub(crate) struct PlannedNode {
    pub(crate) node: PhaseNode,
    pub(crate) graphs: Vec<Arc<PhasedNetwork>>,
}

/// Computation of a phase's graph.
enum PlannedWork {
    /// Evaluation by the interpreter, of few steps.
    Interpreted(Graph),
    Compiled(Arc<Compiled>),
}

impl PlanKey {
    /// Returns a number that increases from plan to plan.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// True if the plan is in memory.
    fn exists(&self) -> bool {
        self.exists.strong_count() > 0
    }
}

impl PartialEq for PlanKey {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for PlanKey {}

impl Hash for PlanKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl PhasePlan {
    /// Plans a phase of a network.
    pub(crate) fn of(
        phase: ModelPhase,
        start: BTreeMap<String, TensorFacts>,
        network: &PhasedNetwork,
        maker: &mut PlanMaker,
    ) -> Result<Self, FamilyError> {
        let ModelPhase { graph, byte_types, nodes, reads, is_last } = phase;
        let inputs = graph.inputs().iter().map(|&input| graph.node(input).name.clone()).collect();
        let outputs = graph.outputs().iter().map(|output| {
            let byte_type = byte_types.get(&output.name).copied();
            (output.name.clone(), byte_type)
        });
        let outputs = outputs.collect();

        let work = match network.origin.is_reference || is_interpreted(&graph) {
            true => PlannedWork::Interpreted(graph),
            false => {
                let origin = &network.origin;
                let graph = (maker.prepare)(graph)?;
                let (graph, _) = maker.rewriter.rewrite(&graph)?;
                PlannedWork::Compiled(compiled_in(
                    &origin.store,
                    &graph,
                    &*origin.source,
                    &origin.target,
                    SCARCE_PACKING_LOSS,
                )?)
            }
        };
        maker.made += 1;
        let planned = |node: PhaseNode| {
            let graphs: Vec<&NestedGraph> = match &node.work {
                PhaseWork::Node { .. } => Vec::new(),
                PhaseWork::If { then, otherwise } => vec![then, otherwise],
                PhaseWork::Loop(body) | PhaseWork::Scan { body, .. } => vec![body],
                PhaseWork::Layer { directions, .. } => directions.iter().collect(),
            };
            let graphs = graphs.into_iter().map(|graph| network.nested(graph, &node.constants)).collect();
            PlannedNode { node, graphs }
        };
        let nodes = nodes.into_iter().map(planned).collect();
        let existence = Arc::new(());
        let key = PlanKey { number: maker.made, exists: Arc::downgrade(&existence) };
        Ok(Self { key, _existence: existence, start, work, inputs, outputs, nodes, reads, is_last })
    }

    /// True if a run begins with this phase.
    pub(crate) fn begins_with(&self, tensors: &RunTensors) -> bool {
        let is_alike =
            |(name, facts): (&String, &TensorFacts)| tensors.get(name).is_some_and(|tensor| facts.are_of(tensor));
        tensors.len() == self.start.len() && self.start.iter().all(is_alike)
    }

    /// Returns the compiled network, and those of the graphs inside nodes.
    pub(crate) fn compiled(&self) -> Vec<Arc<Compiled>> {
        let own = match &self.work {
            PlannedWork::Compiled(network) => Some(Arc::clone(network)),
            PlannedWork::Interpreted(_) => None,
        };
        let inner = self.nodes.iter().flat_map(|node| &node.graphs).flat_map(|graph| graph.compiled());
        own.into_iter().chain(inner).collect()
    }

    /// Computes the outputs from the tensors of a run.
    pub(crate) fn compute(
        &self,
        workspace: &mut SwitchedWorkspace<PlanKey, Cpu>,
        tensors: &RunTensors,
    ) -> Result<Vec<(String, RunTensor)>, FamilyError> {
        let found: Vec<&Tensor> = self.inputs.iter().filter_map(|name| Some(&*tensors.get(name)?.tensor)).collect();
        let (found_inputs, wanted) = (found.len(), self.inputs.len());
        if found_inputs != wanted {
            return Err(RunError::Count { what: "inputs", found: found_inputs, wanted }.into());
        }
        let results = match &self.work {
            PlannedWork::Interpreted(graph) => graph.evaluate_each(&found, |_, _| ())?,
            PlannedWork::Compiled(network) => {
                let find = || Ok::<_, FamilyError>(Arc::clone(network));
                workspace.of(&self.key, find, PlanKey::exists)?.run_tensors(&found)?
            }
        };
        let named = self.outputs.iter().zip(results);
        Ok(named
            .map(|((name, byte_type), tensor)| {
                (name.clone(), RunTensor { tensor: Arc::new(tensor), byte_type: *byte_type })
            })
            .collect())
    }
}

/// True if the interpreter computes a graph.
fn is_interpreted(graph: &Graph) -> bool {
    let steps = |(id, node): (NodeId, &GraphNode)| {
        if graph.is_given(id) {
            return Some(0);
        }
        let operand = |&id: &NodeId| (&*graph.node(id).shape, graph.node(id).dtype);
        node.op.steps(&node.operands.iter().map(operand).collect::<Vec<_>>(), &node.shape)
    };
    let total = graph.nodes().map(steps).try_fold(0usize, |total, steps| total.checked_add(steps?));
    total.is_some_and(|total| total <= MOST_INTERPRETED)
}
