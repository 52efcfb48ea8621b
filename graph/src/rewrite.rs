//! Rewriting of graphs to equivalent graphs with fewer nodes.
//!
//! A pass walks a graph in topological order and builds a new one. Each node becomes the
//! replacement by the first matching [`Rule`], or a copy of itself on the rewritten operands. Apart
//! from the rules, a pass merges equal nodes (common subexpressions), folds nodes of constant
//! operands (up to 1 GiB in total), replaces empty tensors by constants, and drops nodes that no
//! output needs. Inputs remain, and outputs keep their names. Rules match the old graph only, so
//! other rules see a rule's result in the next pass; passes end when no rule applies.
//!
//! Rules change results by rounding errors only, such as when a scale moves from a sum of
//! products into the weights. Constants are merged only where that holds (see `bounds`). A value
//! that was infinite or NaN only because an intermediate result over- or underflowed may become
//! finite.
//!
//! The rewritten graph has, for each layer: a convolution with its bias as an operand, or a matrix
//! product and the addition of its bias; then the addition of a residual; then an elementwise
//! function.

use crate::error::GraphError;
use crate::graph::{Graph, Input, NodeId};
use changes::Examined;
use new_graph::{ConstantPool, NewGraph, NewNode};
use site::{RewriteSite, Rewritten};

pub(crate) use quantised::moves;
pub use rule::Rule;

mod activation;
mod affine;
mod arithmetic;
mod attention;
mod blocks;
mod bounds;
mod changes;
mod epilogue;
mod integers;
mod kernels;
mod movement;
mod new_graph;
mod padding;
mod quantised;
mod requantised;
mod rescaled;
mod rows;
mod rule;
mod site;
mod tables;
mod without_kernels;

/// Maximum number of passes with the same rules. Each pass at least halves chains of mergeable
/// nodes.
const MOST_PASSES: usize = 32;

/// For each node of the original graph, the node of the rewritten graph that computes the same
/// tensor, up to rounding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace(Vec<Option<NodeId>>);

impl Trace {
    /// Creates the identity trace of a graph.
    pub fn of_itself(graph: &Graph) -> Self {
        Self(graph.nodes().map(|(id, _)| Some(id)).collect())
    }

    /// Returns the node that computes the tensor of node `id`, or `None` if it was merged into
    /// others or dropped.
    pub fn of(&self, id: NodeId) -> Option<NodeId> {
        self.0.get(id.0 as usize).copied().flatten()
    }

    /// Creates a trace from its entries.
    pub fn new(of: Vec<Option<NodeId>>) -> Self {
        Self(of)
    }

    fn follow(&mut self, made: &[NewNode]) {
        let next = |id: NodeId| Some(made[id.0 as usize]).filter(|made| *made != NewNode::NOTHING).map(|made| made.0);
        self.0.iter_mut().for_each(|id| *id = id.and_then(next));
    }
}

/// Rules in stages, in the order in which they are tried. Stage `n` applies its rules together with
/// those of all stages before it until none matches. A pattern belongs after the rules that
/// normalise its parts and before the rules that would break it up.
const STAGES: [&[&[Rule]]; 6] = [
    &[tables::RULES, integers::RULES],
    &[requantised::RULES],
    &[arithmetic::RULES, movement::RULES],
    &[activation::RULES, rows::RULES, attention::RULES],
    &[affine::RULES, padding::RULES, rows::POOLINGS, arithmetic::POWERS, kernels::RULES],
    &[blocks::RULES, quantised::OPENED, rescaled::RULES, without_kernels::RULES, affine::PADDED, epilogue::RULES],
];

/// Number of stages, from the first, whose rules are about 8-bit integers.
const STAGES_OF_INTEGERS: usize = 2;

/// Rewrites a graph to an equivalent one in the form that kernels are selected for.
pub fn rewrite(graph: &Graph) -> Result<Graph, GraphError> {
    rewrite_traced(graph).map(|(rewritten, _)| rewritten)
}

/// Rewrites a graph like [`rewrite`] and also returns where each node's tensor is computed.
pub fn rewrite_traced(graph: &Graph) -> Result<(Graph, Trace), GraphError> {
    Rewriter::default().rewrite(graph)
}

/// Rewriting of several graphs that have constants in common. Equal constants of the results are
/// one, while it exists, so that what is made of them can be shared.
#[derive(Default)]
pub struct Rewriter {
    constants: ConstantPool,
}

impl Rewriter {
    /// Rewrites a graph as [`rewrite_traced`] does.
    pub fn rewrite(&mut self, graph: &Graph) -> Result<(Graph, Trace), GraphError> {
        let stage =
            |last: usize| STAGES[..=last].iter().rev().flat_map(|stage| stage.iter().copied().flatten()).collect();
        self.constants.for_next_graph();
        let first = if graph.is_quantised() { 0 } else { STAGES_OF_INTEGERS };
        by_stages(graph, &(first..STAGES.len()).map(stage).collect::<Vec<_>>(), &mut self.constants)
    }
}

/// Converts a quantised graph to floating point. Weights are dequantised at compile time, and
/// tensors between operators are not rounded. A tensor is still clamped to its integer range if
/// zero is an end of it, since a quantiser may have dropped a ReLU there.
pub fn dequantised(graph: &Graph) -> Result<Graph, GraphError> {
    apply(graph, &quantised::FLOAT.iter().collect::<Vec<_>>())
}

/// Rewrites a graph with the given rules only, in a single stage.
pub fn apply(graph: &Graph, rules: &[&Rule]) -> Result<Graph, GraphError> {
    by_stages(graph, &[rules.to_vec()], &mut ConstantPool::default()).map(|(rewritten, _)| rewritten)
}

/// Returns all rules, including those of [`dequantised`] at the end.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let in_stages = STAGES.iter().flat_map(|stage| stage.iter().copied().flatten());
    in_stages.chain(quantised::FLOAT)
}

/// Returns the rules for quantised tensors.
pub fn rules_of_quantised() -> impl Iterator<Item = &'static Rule> {
    let in_order =
        [tables::RULES, integers::RULES, requantised::RULES, quantised::OPENED, rescaled::RULES, quantised::FLOAT];
    in_order.into_iter().flatten()
}

fn by_stages(graph: &Graph, stages: &[Vec<&Rule>], constants: &mut ConstantPool) -> Result<(Graph, Trace), GraphError> {
    let mut trace = Trace::of_itself(graph);
    // A pass without rules folds constants and merges equal nodes, which the rules rely on.
    let mut graph = pass(Examined::nothing(graph), Rules::default(), constants, &mut trace)?.0;
    let mut tried = 0;
    for rules in stages {
        // The rules of earlier stages come last. They need not be tried again far from changes.
        let mut untried = rules.len() - tried;
        for _ in 0..MOST_PASSES {
            let (next, applied) = pass(graph, Rules { all: rules, untried }, constants, &mut trace)?;
            (graph, untried) = (next, 0);
            if applied == 0 {
                break;
            }
        }
        tried = rules.len();
    }
    // Merging and folding may have left unused nodes.
    if graph.has_unused() {
        graph = pass(graph, Rules::default(), constants, &mut trace)?.0;
    }
    Ok((graph.graph.into_owned(), trace))
}

/// Rules of a pass, in the order in which they are tried.
#[derive(Clone, Copy, Default)]
struct Rules<'a> {
    all: &'a [&'a Rule],
    /// Number of rules, from the first, that have not been tried on the graph.
    untried: usize,
}

/// Runs one pass. Returns the new graph and the number of rule applications, and extends the trace
/// to the new graph.
fn pass(
    from: Examined,
    rules: Rules,
    constants: &mut ConstantPool,
    trace: &mut Trace,
) -> Result<(Examined<'static>, usize), GraphError> {
    let uses = from.graph.live_uses();
    let changes = from.changes(&uses);
    let tried = |id| if changes.are_near(id) { rules.all } else { &rules.all[..rules.untried] };
    let first = match from.is_of_pass() && !rules.all.is_empty() {
        true => first_replaced(&from.graph, &uses, tried, constants)?,
        false => Some(NodeId(0)),
    };
    let Some(first) = first else { return Ok((from.unchanged(uses), 0)) };

    let from = &from.graph;
    let mut new = NewGraph::new(from, constants);
    let mut made: Vec<NewNode> = Vec::with_capacity(uses.len());
    let mut is_replaced = vec![false; uses.len()];
    let mut applied = 0;

    for (id, node) in from.nodes() {
        let replacement = match from.constant_of(id) {
            // Unread inputs stay, so that the network's interface does not change.
            _ if node.op.is::<Input>() => new.input(node)?,
            _ if uses[id.0 as usize] == 0 => NewNode::NOTHING,
            Some(constant) => new.copy_constant(from.shared(id), constant),
            None => {
                let tried = if id < first { &[] } else { tried(id) };
                let mut site = RewriteSite { from, id, uses: &uses, made: &made, new: &mut new };
                let (made, by_rule) = replaced(&mut site, tried)?;
                applied += usize::from(by_rule);
                is_replaced[id.0 as usize] = by_rule;
                made
            }
        };
        made.push(replacement);
    }

    for output in from.outputs() {
        new.graph.output_as(&output.name, made[output.node.0 as usize].0, output.stored);
    }
    trace.follow(&made);
    Ok((Examined::after(from, new.graph, &made, &is_replaced, &uses), applied))
}

/// Returns the first node that is replaced or might be, in a graph that a pass has made.
/// If there is none, another pass would only copy the graph.
fn first_replaced<'a>(
    from: &Graph,
    uses: &[usize],
    rules_of: impl Fn(NodeId) -> &'a [&'a Rule],
    constants: &mut ConstantPool,
) -> Result<Option<NodeId>, GraphError> {
    let made: Vec<NewNode> = from.nodes().map(|(id, _)| NewNode(id)).collect();
    // Nodes that rules add here are not used.
    let mut new = NewGraph::for_trial(from, constants);
    for (id, node) in from.nodes() {
        let is_kept = uses[id.0 as usize] == 0 || node.op.is::<Input>() || from.constant_of(id).is_some();
        if is_kept {
            continue;
        }
        let mut site = RewriteSite { from, id, uses, made: &made, new: &mut new };
        let found = replacement(&mut site, rules_of(id))?;
        if found.is_some() || new.has_missed_folding() {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Returns the replacement of a node, and true if a rule or an empty tensor made it.
fn replaced(site: &mut RewriteSite, rules: &[&Rule]) -> Result<(NewNode, bool), GraphError> {
    let node = site.node();
    if let Some(found) = replacement(site, rules)? {
        debug_assert_eq!((&site.shape_of(found), site.dtype_of(found)), (&node.shape, node.dtype));
        return Ok((found, true));
    }
    let operands = site.operands_of(site.id);
    Ok((site.new.copy(site.from.shared(site.id), &operands)?, false))
}

/// Returns the replacement by the first rule that matches, or by a constant if the tensor is empty.
fn replacement(site: &mut RewriteSite, rules: &[&Rule]) -> Rewritten {
    // Rules may assume nonempty tensors.
    if site.node().shape.contains(&0) {
        return Ok(site.nothing());
    }
    for rule in rules {
        let found = (rule.apply)(site)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
