//! Check that a part of a graph is supported.

use std::collections::{BTreeMap, HashSet};

use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::onnx::{DeclaredInput, ImportError, ImportOptions, Model};
use autotune_network::{Graph, rewrite};
use autotune_workloads::Workload;

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
    let graph = match trial_graph(part) {
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

/// Imports a part, with some extents for open ones.
fn trial_graph(part: &Model) -> Result<Graph, ImportError> {
    let shapes = trial_shapes(&part.inputs()?);
    part.graph(&ImportOptions { shapes, ..ImportOptions::default() })
}

/// Records that plans of a part may use.
pub(crate) enum NeededRecords {
    /// Records of all workloads.
    All,
    /// Records of some operators, in any shape.
    Operators(HashSet<String>),
    /// Records of some operators in the shapes with these bits.
    Shapes(HashSet<(String, Vec<u32>)>),
}

impl NeededRecords {
    pub(crate) fn of(part: &Model, target: &Target) -> Self {
        let Some(graph) = trial_graph(part).ok().and_then(|graph| rewrite(&graph).ok()) else { return Self::All };
        let steps = Cut::for_target(&graph, target).steps;
        let workloads = steps.into_iter().filter_map(|step| match step.work {
            StepWork::Kernel(workload) => Some(workload),
            _ => None,
        });
        let is_open = |input: &DeclaredInput| input.extents.contains(&None);
        match part.inputs().is_ok_and(|inputs| !inputs.iter().any(is_open)) {
            true => Self::Shapes(workloads.map(|workload| operator_in_shape(&workload)).collect()),
            false => Self::Operators(workloads.map(|workload| operator_of(&workload)).collect()),
        }
    }

    /// True for a workload on the target with a key. Targets are CPUs.
    pub(crate) fn has(&self, workload: &Workload, key: &str) -> bool {
        let is_needed = match self {
            Self::All => true,
            Self::Operators(operators) => operators.contains(&operator_of(workload)),
            Self::Shapes(shapes) => shapes.contains(&operator_in_shape(workload)),
        };
        is_needed && Target::of_key(key).is_some_and(|target| target.cpu().is_some())
    }
}

fn operator_of(workload: &Workload) -> String {
    workload.operator().kind().name.to_string()
}

fn operator_in_shape(workload: &Workload) -> (String, Vec<u32>) {
    (operator_of(workload), workload.shape_vector().iter().map(|extent| extent.to_bits()).collect())
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
