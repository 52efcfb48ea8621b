//! Nodes that run alone, and the graphs inside.

use std::collections::{HashMap, HashSet};

use autotune_ir::DType;
use rten_onnx::onnx::{AttributeProto, GraphProto, NodeProto, ValueInfoProto};

use super::phase::GraphPath;
use crate::onnx::call::attribute;
use crate::onnx::error::NodeError;
use crate::onnx::inputs::DeclaredOutput;
use crate::onnx::layers::{directions, rounds_inputs};
use crate::onnx::nodes::{inputs_of, is_default, outputs_of};
use crate::onnx::tensor;

/// Computation of a node that runs alone.
#[derive(Clone, Debug)]
pub enum PhaseWork {
    /// The node of a graph, by the [interpreter](crate::onnx::Model::run_node).
    Node {
        /// Graph with the node.
        graph: GraphPath,
        /// Number of the node.
        node: usize,
    },
    /// One of two graphs, by the first operand.
    If {
        /// Graph for a condition that is true.
        then: NestedGraph,
        /// Graph for a condition that is false.
        otherwise: NestedGraph,
    },
    /// A graph that is repeated. Operands are the most rounds, the first condition, and the state.
    Loop(NestedGraph),
    /// A graph that is applied to each slice of some tensors. Operands are the state, then these
    /// tensors.
    Scan {
        /// Graph for each slice.
        body: NestedGraph,
        /// Axis of each sliced operand, negative from the end, and whether the last slice is first.
        inputs: Vec<(i64, bool)>,
        /// Axis of each stacked result, negative from the end, and whether the last one is first.
        outputs: Vec<(i64, bool)>,
    },
    /// A recurrent layer of many time steps, in parts of
    /// [`PART_STEPS`](crate::onnx::PART_STEPS) steps. Operands are those of the node.
    Layer {
        /// Layer of one direction for a part; inputs are its sequence and the states.
        directions: Vec<NestedGraph>,
        /// For each direction, whether the last part is first.
        are_reversed: Vec<bool>,
        /// True if the batch is the first axis of all tensors.
        images_first: bool,
        /// Extent of the states.
        hidden: usize,
        /// True if the inputs of all time steps are quantised to 8 bits, in their range.
        rounds_inputs: bool,
    },
}

/// A graph inside a node.
#[derive(Clone, Debug)]
pub struct NestedGraph {
    /// Position in the model.
    pub path: GraphPath,
    /// Names of the inputs.
    pub inputs: Vec<String>,
    /// Names of the outputs.
    pub outputs: Vec<String>,
    /// Names of the outer tensors that it reads; none for the graph of the file.
    pub captured: Vec<String>,
    /// For each output, type and shape of a stack of no results: 0 rows of the declared extents, 0
    /// where the file leaves one open.
    pub empty_stacks: Vec<(DType, Vec<usize>)>,
}

impl NestedGraph {
    /// Returns the description of a graph.
    pub(super) fn of(graph: &GraphProto, path: GraphPath) -> Self {
        let names = |infos: &[ValueInfoProto]| -> Vec<String> {
            infos.iter().map(|info| info.name.clone().unwrap_or_default()).collect()
        };
        let (inputs, outputs) = (names(&graph.input), names(&graph.output));
        // The graph of the file is inside no other.
        let captured = if path == GraphPath::default() { Vec::new() } else { captured(graph, &inputs) };
        let empty_stacks = graph.output.iter().map(empty_stack).collect();
        Self { path, inputs, outputs, captured, empty_stacks }
    }
}

/// Returns the names of the outer tensors that a graph with these inputs reads, sorted.
fn captured(graph: &GraphProto, inputs: &[String]) -> Vec<String> {
    let mut own: HashSet<&str> = inputs.iter().map(String::as_str).collect();
    own.extend(graph.initializer.iter().filter_map(|tensor| tensor.name.as_deref()));
    own.extend(graph.node.iter().flat_map(|node| node.output.iter().map(String::as_str)));

    let reads = graph.node.iter().flat_map(inputs_of).chain(outputs_of(graph));
    let captured: HashSet<&str> = reads.filter(|name| !own.contains(name)).collect();
    let mut captured: Vec<String> = captured.into_iter().map(String::from).collect();
    captured.sort_unstable();
    captured
}

/// Returns type and shape of a stack of no results for an output.
fn empty_stack(info: &ValueInfoProto) -> (DType, Vec<usize>) {
    let tensor = info.r#type.as_ref().and_then(|r#type| r#type.tensor_type.as_ref());
    let dtype = tensor.and_then(|tensor| tensor::dtype(tensor.elem_type).ok()).unwrap_or(DType::F32);
    let declared = DeclaredOutput::of_file(info).extents.unwrap_or_default();
    let extents = declared.into_iter().map(|extent| extent.unwrap_or(0));
    (dtype, std::iter::once(0).chain(extents).collect())
}

/// Returns the computation of a node that runs alone.
pub(super) fn work(node: &NodeProto, number: usize, path: &GraphPath, version: i64) -> Result<PhaseWork, NodeError> {
    let nested = |name: &str| {
        let found = node.attribute.iter().position(|attribute| attribute.name.as_deref() == Some(name));
        let graph = found.and_then(|found| Some((found, node.attribute[found].g.as_ref()?)));
        let (found, graph) = graph.ok_or_else(|| attribute(name, "is missing"))?;
        Ok::<_, NodeError>(NestedGraph::of(graph, path.inner(number, found)))
    };
    match node.op_type.as_deref() {
        Some("If") if is_default(node) => {
            Ok(PhaseWork::If { then: nested("then_branch")?, otherwise: nested("else_branch")? })
        }
        Some("Loop") if is_default(node) => {
            let body = nested("body")?;
            let state = node.input.len().saturating_sub(2);
            match body.inputs.len() == state + 2 && body.outputs.len() > state {
                true => Ok(PhaseWork::Loop(body)),
                false => Err(attribute("body", "has other inputs or outputs than the state of the loop")),
            }
        }
        Some("Scan") if is_default(node) && version < 9 => {
            Err(NodeError::Unfit("only Scan of version 9 and newer is supported".into()))
        }
        Some("Scan") if is_default(node) => scan(node, nested("body")?),
        _ => Ok(PhaseWork::Node { graph: path.clone(), node: number }),
    }
}

/// Returns an attribute of a node by its name.
pub(super) fn find<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|attribute| attribute.name.as_deref() == Some(name))
}

/// Returns the computation of a recurrent layer in parts.
pub(super) fn layer(
    node: &NodeProto,
    number: usize,
    hidden: usize,
    path: &GraphPath,
    layers: &HashMap<GraphPath, GraphProto>,
) -> PhaseWork {
    let directions = directions(node);
    let of = |at: usize| {
        let path = path.layer(number, at);
        layers.get(&path).map(|graph| NestedGraph::of(graph, path.clone()))
    };
    PhaseWork::Layer {
        directions: (0..directions.len()).filter_map(of).collect(),
        are_reversed: directions.iter().map(|direction| *direction == "reverse").collect(),
        images_first: find(node, "layout").and_then(|layout| layout.i).is_some_and(|layout| layout != 0),
        hidden,
        rounds_inputs: rounds_inputs(node),
    }
}

/// Returns the computation of a `Scan` of version 9 or newer.
fn scan(node: &NodeProto, body: NestedGraph) -> Result<PhaseWork, NodeError> {
    let count = find(node, "num_scan_inputs").and_then(|found| found.i).and_then(|count| usize::try_from(count).ok());
    let sliced = count.filter(|&count| (1..=node.input.len()).contains(&count));
    let sliced =
        sliced.ok_or_else(|| attribute("num_scan_inputs", "is missing or larger than the number of inputs"))?;
    let state = node.input.len() - sliced;
    if body.inputs.len() != node.input.len() || body.outputs.len() < state {
        return Err(attribute("body", "has other inputs or outputs than the node"));
    }

    let ints = |name: &str, count: usize| {
        let given: &[i64] = find(node, name).map_or(&[], |found| &found.ints);
        match given.len() == count || given.is_empty() {
            true => Ok((0..count).map(|at| given.get(at).copied().unwrap_or(0)).collect::<Vec<i64>>()),
            false => Err(attribute(name, format!("has {} numbers, expected {count}", given.len()))),
        }
    };
    let directed = |axes: &str, directions: &str, count: usize| {
        let directions = ints(directions, count)?.into_iter().map(|direction| direction != 0);
        Ok::<_, NodeError>(ints(axes, count)?.into_iter().zip(directions).collect())
    };
    let inputs = directed("scan_input_axes", "scan_input_directions", sliced)?;
    let outputs = directed("scan_output_axes", "scan_output_directions", body.outputs.len() - state)?;
    Ok(PhaseWork::Scan { body, inputs, outputs })
}
