//! Check that a part of a graph is supported.

use std::collections::BTreeMap;

use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::onnx::{DeclaredInput, ImportError, ImportOptions, Model};
use autotune_network::rewrite;

use crate::graph::node_number;

/// Extents that stand for those that are not known yet: of the outermost axis, usually the number
/// of examples, and of others.
const TRIAL_EXTENTS: [usize; 2] = [1, 64];

/// Result of the check.
pub(crate) enum Verdict {
    Supported,
    /// Nodes that are not supported, at least one.
    Without(Vec<usize>),
    /// No node is at fault, or it is unknown which.
    Unsupported,
}

/// Imports a part, rewrites it and cuts it into kernels, with some extents for open ones.
pub(crate) fn verdict(part: &Model, target: &Target) -> Verdict {
    let graph = part.inputs().and_then(|inputs| {
        let shapes = trial_shapes(&inputs);
        part.graph(&ImportOptions { shapes, ..ImportOptions::default() })
    });
    let graph = match graph {
        Err(ImportError::Node { node, .. }) => {
            return node_number(&node).map_or(Verdict::Unsupported, |number| Verdict::Without(vec![number]));
        }
        Err(_) => return Verdict::Unsupported,
        Ok(graph) => graph,
    };

    let Ok(graph) = rewrite(&graph) else { return Verdict::Unsupported };
    // ONNX Runtime has kernels for what only the interpreter would compute here.
    let interpreted = Cut::for_target(&graph, target).steps.into_iter().filter_map(|step| match step.work {
        StepWork::Interpret(node) => Some(node_number(&graph.node(node).name)),
        _ => None,
    });
    match interpreted.collect::<Option<Vec<usize>>>() {
        Some(none) if none.is_empty() => Verdict::Supported,
        Some(numbers) => Verdict::Without(numbers),
        None => Verdict::Unsupported,
    }
}

/// Returns shapes for inputs; extents of one name are equal.
fn trial_shapes(inputs: &[DeclaredInput]) -> BTreeMap<String, Vec<usize>> {
    let mut named: BTreeMap<&str, usize> = BTreeMap::new();
    let mut shapes = BTreeMap::new();
    for input in inputs {
        let extents = input.extents.iter().zip(&input.names).enumerate().map(|(axis, (extent, name))| {
            let assumed = TRIAL_EXTENTS[axis.min(1)];
            extent.unwrap_or_else(|| name.as_deref().map_or(assumed, |name| *named.entry(name).or_insert(assumed)))
        });
        let shape = extents.collect();
        shapes.insert(input.name.clone(), shape);
    }
    shapes
}
