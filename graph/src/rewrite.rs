//! Graphs that compute the same with fewer nodes.
//!
//! A pass walks a graph in order and makes another: of every node whatever a [`Rule`] puts in its
//! place, else the node itself on what was made of its operands. Whatever the rules, equal nodes
//! become one, what depends on constants only becomes a constant (up to a gibibyte of them), so
//! does a tensor without elements, and what no output needs is left out; inputs stay, and outputs
//! keep their names. Rules look at the old graph only, so that one rule's result is seen by others
//! in the next pass; passes end when none applies.
//!
//! Rules change results by rounding only: weights are multiplied before they are summed with, not
//! behind. Constants are merged only where that holds (`bounds`). What is infinite or not a number
//! only because a value on the way is too large or too small may become a number.
//!
//! What comes out is, per layer, a convolution with its bias as an operand or a product and the sum
//! with its bias, then the sum with a residual, then a function of every element.

use crate::error::GraphError;
use crate::graph::{Graph, Input, NodeId};
use new_graph::{Constants, Made, NewGraph};
use site::{Rewritten, Site};

pub use rule::Rule;

mod activation;
mod affine;
mod arithmetic;
mod attention;
mod blocks;
mod bounds;
mod epilogue;
mod integers;
mod kernels;
mod movement;
mod new_graph;
mod padding;
mod quantised;
mod rows;
mod rule;
mod site;
mod without_kernels;

/// Most passes with the same rules; every pass halves chains of what can be merged.
const MOST_PASSES: usize = 32;

/// For each node of a graph the node that computes its tensor in the graph that it was rewritten
/// to, up to rounding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace(Vec<Option<NodeId>>);

impl Trace {
    /// The trace of a graph that is not rewritten.
    pub fn of_itself(graph: &Graph) -> Self {
        Self(graph.nodes().map(|(id, _)| Some(id)).collect())
    }

    /// The node that computes a node's tensor; `None` if none does, as it is merged with others or
    /// not needed.
    pub fn of(&self, id: NodeId) -> Option<NodeId> {
        self.0.get(id.0 as usize).copied().flatten()
    }

    /// Returns a trace from, for each node of the first graph in order, the node of the second that
    /// computes its tensor.
    pub fn new(of: Vec<Option<NodeId>>) -> Self {
        Self(of)
    }

    fn follow(&mut self, made: &[Made]) {
        let next = |id: NodeId| Some(made[id.0 as usize]).filter(|made| *made != Made::NOTHING).map(|made| made.0);
        self.0.iter_mut().for_each(|id| *id = id.and_then(next));
    }
}

/// Rules in the order in which they are tried; those of a stage with those of all before it, until
/// none applies. Patterns come behind what brings them to one form, and before what would take them
/// apart.
const STAGES: [&[&[Rule]]; 5] = [
    &[integers::RULES],
    &[arithmetic::RULES, movement::RULES],
    &[activation::RULES, rows::RULES, attention::RULES],
    &[affine::RULES, padding::RULES, rows::POOLINGS, arithmetic::POWERS, kernels::RULES],
    &[blocks::RULES, quantised::OPENED, without_kernels::RULES, epilogue::RULES],
];

/// A graph that computes the same, in the form that tasks are cut from.
///
/// ```
/// use autotune_graph::operators::{Binary, Conv, Sliding};
/// use autotune_graph::{DType, Graph, Tensor, rewrite};
/// let mut graph = Graph::new("scaled");
/// let x = graph.input("x", DType::F32, &[1, 1, 4])?;
/// let weights = graph.constant("weights", Tensor::f32(&[2, 1, 3], vec![1.0; 6])?);
/// let scale = graph.constant("scale", Tensor::f32(&[2, 1], vec![2.0, 3.0])?);
/// let conv = graph.add("conv", Conv { window: vec![Sliding::new(3)], groups: 1 }, &[x, weights])?;
/// let y = graph.add("scaled", Binary::Mul, &[conv, scale])?;
/// graph.output("y", y);
///
/// let rewritten = rewrite(&graph)?;
/// assert_eq!(rewritten.nodes().len(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
    rewrite_traced(graph).map(|(rewritten, _)| rewritten)
}

/// The same, and which of its nodes compute the tensors of the graph's.
pub fn rewrite_traced(graph: &Graph) -> Result<(Graph, Trace), GraphError> {
    let stage = |last: usize| STAGES[..=last].iter().rev().flat_map(|stage| stage.iter().copied().flatten()).collect();
    by_stages(graph, &(0..STAGES.len()).map(stage).collect::<Vec<_>>())
}

/// A graph that computes with numbers what a quantised one rounds to integers: weights are
/// dequantised ahead of time, and tensors between operators are not rounded. Only the ends of their
/// ranges stay where zero is one of them, as a ReLU that a quantiser left out may have been there.
pub fn dequantised(graph: &Graph) -> Result<Graph, GraphError> {
    apply(graph, &quantised::FLOAT.iter().collect::<Vec<_>>())
}

/// The same by some rules only, all at once.
pub fn apply(graph: &Graph, rules: &[&Rule]) -> Result<Graph, GraphError> {
    by_stages(graph, &[rules.to_vec()]).map(|(rewritten, _)| rewritten)
}

/// All rules, those of [`dequantised`] last.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let in_stages = STAGES.iter().flat_map(|stage| stage.iter().copied().flatten());
    in_stages.chain(quantised::FLOAT)
}

/// Those of all rules that are of quantised tensors.
pub fn rules_of_quantised() -> impl Iterator<Item = &'static Rule> {
    [integers::RULES, quantised::OPENED, quantised::FLOAT].into_iter().flatten()
}

fn by_stages(graph: &Graph, stages: &[Vec<&Rule>]) -> Result<(Graph, Trace), GraphError> {
    let mut trace = Trace::of_itself(graph);
    // Rules see constants, and each node once.
    let mut constants = Constants::default();
    let (mut graph, _) = pass(graph, &[], &mut constants, &mut trace)?;
    for rules in stages {
        for _ in 0..MOST_PASSES {
            let (next, applied) = pass(&graph, rules, &mut constants, &mut trace)?;
            graph = next;
            if applied == 0 {
                break;
            }
        }
    }
    // What was merged or became a constant has left others without use.
    let (graph, _) = pass(&graph, &[], &mut constants, &mut trace)?;
    Ok((graph, trace))
}

/// The graph that rules make of one, and how often one applied; the trace leads to it from where it
/// led to the one.
fn pass(
    from: &Graph,
    rules: &[&Rule],
    constants: &mut Constants,
    trace: &mut Trace,
) -> Result<(Graph, usize), GraphError> {
    let uses = uses(from);
    let mut new = NewGraph::new(from, constants);
    let mut made: Vec<Made> = Vec::with_capacity(uses.len());
    let mut applied = 0;

    for (id, node) in from.nodes() {
        let replacement = match from.constant_of(id) {
            _ if node.op.is::<Input>() => new.input(node)?,
            _ if uses[id.0 as usize] == 0 => Made::NOTHING,
            Some(constant) => new.constant(&node.name, constant),
            None => {
                let mut site = Site { from, id, uses: &uses, made: &made, new: &mut new };
                let (made, by_rule) = replaced(&mut site, rules)?;
                applied += usize::from(by_rule);
                made
            }
        };
        made.push(replacement);
    }

    for output in from.outputs() {
        new.graph.output_as(&output.name, made[output.node.0 as usize].0, output.stored);
    }
    trace.follow(&made);
    Ok((new.graph, applied))
}

/// What stands for a node, and whether it is something else than the node on what was made of its
/// operands.
fn replaced(site: &mut Site, rules: &[&Rule]) -> Result<(Made, bool), GraphError> {
    let node = site.node();
    // Rules see tensors with elements only.
    let found = if node.shape.contains(&0) { site.nothing() } else { by_rules(site, rules)? };
    if let Some(found) = found {
        debug_assert_eq!((&site.shape_of(found), site.dtype_of(found)), (&node.shape, node.dtype));
        return Ok((found, true));
    }
    let operands = site.operands_of(site.id);
    Ok((site.add(node.op.clone(), &operands)?, false))
}

fn by_rules(site: &mut Site, rules: &[&Rule]) -> Rewritten {
    for rule in rules {
        let found = (rule.apply)(site)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// How often each node is an operand of one that an output needs, or is an output: 0 if none needs
/// it.
fn uses(graph: &Graph) -> Vec<usize> {
    let mut uses = vec![0; graph.nodes().len()];
    let mut count = |id: NodeId| uses[id.0 as usize] += 1;
    graph.outputs().iter().for_each(|output| count(output.node));
    for (id, node) in graph.nodes().rev() {
        if uses[id.0 as usize] > 0 {
            node.operands.iter().for_each(|operand| uses[operand.0 as usize] += 1);
        }
    }
    uses
}
