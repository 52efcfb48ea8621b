//! Names that nodes read and write, and the order of nodes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use rten_onnx::onnx::{GraphProto, NodeProto};

/// True if a node's operator is one of ONNX itself.
pub(super) fn is_default(node: &NodeProto) -> bool {
    matches!(node.domain.as_deref(), None | Some("" | "ai.onnx"))
}

/// Returns the nonempty names that a node reads, including those read by its nested graphs.
pub(super) fn inputs_of(node: &NodeProto) -> Vec<&str> {
    let own = node.input.iter().map(String::as_str).filter(|name| !name.is_empty());
    let graphs = node.attribute.iter().filter_map(|attribute| attribute.g.as_ref());
    let inner = graphs.flat_map(|graph| outputs_of(graph).chain(graph.node.iter().flat_map(inputs_of)));
    own.chain(inner).collect()
}

/// Returns the names of a graph's outputs.
pub(super) fn outputs_of(proto: &GraphProto) -> impl Iterator<Item = &str> {
    proto.output.iter().map(|output| output.name.as_deref().unwrap_or_default())
}

/// Puts the nodes of a graph, and of the graphs inside, after those that they read, as ONNX
/// requires and not all programs write them. Nodes that read each other in a circle keep their
/// order.
pub(super) fn sort_nodes(graph: &mut GraphProto) {
    let graphs =
        graph.node.iter_mut().flat_map(|node| &mut node.attribute).filter_map(|attribute| attribute.g.as_mut());
    graphs.for_each(sort_nodes);
    let Some(order) = order(&graph.node) else { return };
    let mut nodes: Vec<Option<NodeProto>> = graph.node.drain(..).map(Some).collect();
    graph.node.extend(order.into_iter().filter_map(|number| nodes[number].take()));
}

/// Returns the numbers of nodes in an order in which they follow those that they read, the nearest
/// to the present one; `None` if that is the present one, or there is none.
///
/// The algorithm is that of Kahn ("Topological sorting of large networks", 1962).
fn order(nodes: &[NodeProto]) -> Option<Vec<usize>> {
    let outputs =
        nodes.iter().enumerate().flat_map(|(number, node)| node.output.iter().map(move |name| (name, number)));
    let producers: HashMap<&str, usize> =
        outputs.filter(|(name, _)| !name.is_empty()).map(|(name, number)| (&**name, number)).collect();
    let reads: Vec<Vec<usize>> = nodes
        .iter()
        .map(|node| inputs_of(node).into_iter().filter_map(|name| producers.get(name).copied()).collect())
        .collect();
    if reads.iter().enumerate().all(|(number, reads)| reads.iter().all(|&read| read < number)) {
        return None;
    }

    let mut readers = vec![Vec::new(); nodes.len()];
    for (number, reads) in reads.iter().enumerate() {
        reads.iter().for_each(|&read| readers[read].push(number));
    }
    let mut missing: Vec<usize> = reads.iter().map(Vec::len).collect();
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..nodes.len()).filter(|&number| missing[number] == 0).map(Reverse).collect();

    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(number)) = ready.pop() {
        order.push(number);
        for &reader in &readers[number] {
            missing[reader] -= 1;
            if missing[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    (order.len() == nodes.len()).then_some(order)
}
