//! The second walk: the reference makes the tensors of the graph that a network was rewritten from.
//!
//! Where the network computes a tensor of that graph, by the [trace](Trace) of its rewriting, it is
//! compared, and takes the place of the reference's behind it: errors do not add up. Nothing is
//! asked of the rewritten graph but which of its nodes stands for which; a rule that changes more
//! than rounding shows at the first tensor behind it. Constants are not changed when it is asked
//! how far a tensor moves: what a rule makes of them is what is compared.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::judge::{Allowed, Segment, difference, largest};
use super::{Computed, StepError, range_of_bytes};
use autotune_graph::EvaluateError;
use autotune_graph::Tensor;
use autotune_graph::rewrite::Trace;
use autotune_graph::{Graph, Input, NodeId};

/// Units of rounding that merging constants may change a tensor by.
const ROUNDINGS: f64 = 8.0;

/// Errors of all tensors of a graph that were computed, and of the outputs, which are these.
pub(super) fn errors(
    graph: &Graph,
    trace: &Trace,
    computed: &Computed,
    outputs: &[Tensor],
) -> Result<Vec<StepError>, EvaluateError> {
    let walk = Walk::new(graph, trace, computed, outputs);
    let mut uses = walk.uses();
    let (mut tensors, mut errors): (Vec<Option<Cow<Tensor>>>, _) = (vec![None; uses.len()], Vec::new());

    for (id, node) in graph.nodes().filter(|(id, _)| walk.is_needed[id.0 as usize]) {
        let made = match graph.constant_of(id) {
            Some(constant) => Some(constant.read().map_err(|source| node.wrong(source))?),
            None if node.op.is::<Input>() => walk.known(id).map(Cow::Borrowed),
            None => {
                let operands = node.operands.iter().filter_map(|id| tensors[id.0 as usize].as_deref());
                let made = node.op.evaluate(&operands.collect::<Vec<_>>()).map_err(|source| node.wrong(source))?;
                for found in walk.found(id) {
                    errors.push(walk.error(id, found, &made)?);
                }
                Some(walk.known(id).map_or(Cow::Owned(made), Cow::Borrowed))
            }
        };
        tensors[id.0 as usize] = made;

        for operand in &node.operands {
            let operand = operand.0 as usize;
            uses[operand] -= 1;
            if uses[operand] == 0 {
                tensors[operand] = None;
            }
        }
    }
    Ok(errors)
}

struct Walk<'a> {
    graph: &'a Graph,
    trace: &'a Trace,
    computed: &'a Computed<'a>,
    /// Outputs of the network as they are behind its last step, by the nodes of the graph.
    outputs: HashMap<NodeId, Vec<&'a Tensor>>,
    /// Nodes of the rewritten graph whose tensors are compared.
    compared: HashSet<NodeId>,
    is_needed: Vec<bool>,
}

impl<'a> Walk<'a> {
    fn new(graph: &'a Graph, trace: &'a Trace, computed: &'a Computed, found: &'a [Tensor]) -> Self {
        let mut outputs: HashMap<NodeId, Vec<&Tensor>> = HashMap::new();
        for (output, tensor) in graph.outputs().iter().zip(found) {
            outputs.entry(output.node).or_default().push(tensor);
        }

        let mut is_needed = vec![false; graph.nodes().len()];
        outputs.keys().for_each(|id| is_needed[id.0 as usize] = true);
        for (id, node) in graph.nodes().rev().filter(|(_, node)| !node.op.is::<Input>()) {
            if is_needed[id.0 as usize] {
                node.operands.iter().for_each(|operand| is_needed[operand.0 as usize] = true);
            }
        }
        let mut walk = Self { graph, trace, computed, outputs, compared: HashSet::new(), is_needed };
        let known = graph.nodes().filter(|(id, _)| walk.is_needed[id.0 as usize] && walk.known(*id).is_some());
        walk.compared = known.filter_map(|(id, _)| trace.of(id)).collect();
        walk
    }

    /// How often the tensor of each node is read by one that is needed.
    fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.is_needed.len()];
        let needed = self.graph.nodes().filter(|(id, _)| self.is_needed[id.0 as usize]);
        needed.flat_map(|(_, node)| &node.operands).for_each(|id| uses[id.0 as usize] += 1);
        uses
    }

    /// A node's tensor as the network computed it.
    fn known(&self, id: NodeId) -> Option<&'a Tensor> {
        let computed = self.trace.of(id).and_then(|made| self.computed.known(made));
        computed.or_else(|| self.outputs.get(&id).and_then(|all| all.first().copied()))
    }

    /// All that the network has of a node's tensor.
    fn found(&self, id: NodeId) -> impl Iterator<Item = &'a Tensor> {
        let computed = self.trace.of(id).and_then(|made| self.computed.known(made));
        computed.into_iter().chain(self.outputs.get(&id).into_iter().flatten().copied())
    }

    fn error(&self, id: NodeId, found: &Tensor, wanted: &Tensor) -> Result<StepError, EvaluateError> {
        let (name, allowed) = (self.graph.node(id).name.clone(), self.allowed(id));
        let (found, mut wanted, tolerance) = (found.to_numbers(), wanted.to_numbers(), allowed.tolerance);
        let most = largest(&wanted).max(range_of_bytes(self.graph.node(id).dtype));
        let mut max_rel_error = difference(&found, &wanted, most);
        if max_rel_error > tolerance {
            let known = |id| self.known(id);
            let segment = Segment { graph: self.graph, node: id, known: &known, changes_constants: false };
            if segment.has_several() {
                // What is too large or too small on the way need not be so in another form.
                let pairs = wanted.iter_mut().zip(&found);
                pairs
                    .filter(|(wanted, found)| !wanted.is_finite() && found.is_finite())
                    .for_each(|(wanted, found)| *wanted = *found);
            }
            max_rel_error = tolerance * segment.share(&found, &wanted, most, allowed)?;
        }
        Ok(StepError { name, is_conversion: false, max_rel_error, tolerance })
    }

    /// What the network may be off by at a node: all that is computed on the way to it, from
    /// tensors that were compared, may be.
    fn allowed(&self, id: NodeId) -> Allowed {
        let rewritten = self.computed.graph;
        let mut open: Vec<NodeId> = self.trace.of(id).into_iter().collect();
        let mut seen: BTreeSet<NodeId> = open.iter().copied().collect();
        // Tensors that the network rounds may stand behind one that it makes in another way.
        let unit_roundoff = rewritten.precision().dtype().unit_roundoff();
        let mut all = Allowed { tolerance: ROUNDINGS * unit_roundoff, terms: 1 };
        while let Some(next) = open.pop() {
            let Allowed { tolerance, terms } = self.computed.allowed[next.0 as usize];
            all = Allowed { tolerance: all.tolerance + tolerance, terms: all.terms.max(terms) };
            let operands = rewritten.node(next).operands.iter().filter(|id| !self.compared.contains(id));
            open.extend(operands.copied().filter(|id| seen.insert(*id)));
        }
        all
    }
}
