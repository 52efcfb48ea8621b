//! Second walk: evaluates the reference on the graph before rewriting.
//!
//! The rewriting's [trace](Trace) names the tensors of the imported graph that the network
//! computes. Each is compared with the reference's and replaces it from there on, so that errors do
//! not accumulate. The rewritten graph contributes nothing but the trace. A rule that changes more
//! than rounding shows at the first tensor after it. When the sensitivity of a tensor is
//! determined, constants are not perturbed, since the rules' effect on them is under test.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap, HashSet};

use super::judge::{Allowed, JudgedNode, difference, largest};
use super::{ComputedTensors, StepError, range_of_bytes};
use autotune_graph::EvaluateError;
use autotune_graph::Tensor;
use autotune_graph::rewrite::Trace;
use autotune_graph::{Graph, Input, NodeId};

/// Permitted effect of merged constants on a tensor, in units of rounding.
const ROUNDINGS: f64 = 8.0;

/// Returns the errors of all tensors that the network computes, and of its outputs, `outputs`.
pub(super) fn errors(
    graph: &Graph,
    trace: &Trace,
    computed: &ComputedTensors,
    outputs: &[Tensor],
) -> Result<Vec<StepError>, EvaluateError> {
    let walk = ImportedWalk::new(graph, trace, computed, outputs);
    // Tensors are dropped after their last use.
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

struct ImportedWalk<'a> {
    graph: &'a Graph,
    trace: &'a Trace,
    computed: &'a ComputedTensors<'a>,
    /// Outputs of the network after its last step, by node.
    outputs: HashMap<NodeId, Vec<&'a Tensor>>,
    /// Nodes of the rewritten graph whose tensors are compared.
    compared: HashSet<NodeId>,
    is_needed: Vec<bool>,
}

impl<'a> ImportedWalk<'a> {
    fn new(graph: &'a Graph, trace: &'a Trace, computed: &'a ComputedTensors, found: &'a [Tensor]) -> Self {
        let mut outputs: HashMap<NodeId, Vec<&Tensor>> = HashMap::new();
        for (output, tensor) in graph.outputs().iter().zip(found) {
            outputs.entry(output.node).or_default().push(tensor);
        }

        let mut is_needed = vec![false; graph.nodes().len()];
        outputs.keys().for_each(|id| is_needed[id.0 as usize] = true);
        // Backwards from the outputs.
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

    /// Returns for each node the number of needed nodes that read it.
    fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.is_needed.len()];
        let needed = self.graph.nodes().filter(|(id, _)| self.is_needed[id.0 as usize]);
        needed.flat_map(|(_, node)| &node.operands).for_each(|id| uses[id.0 as usize] += 1);
        uses
    }

    /// Returns a node's tensor as the network computed it.
    fn known(&self, id: NodeId) -> Option<&'a Tensor> {
        let computed = self.trace.of(id).and_then(|made| self.computed.known(made));
        computed.or_else(|| self.outputs.get(&id).and_then(|all| all.first().copied()))
    }

    /// Returns all copies of a node's tensor that the network has.
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
            let segment = JudgedNode { graph: self.graph, node: id, known: &known, changes_constants: false };
            if segment.has_several() {
                // An intermediate overflow or underflow need not occur in the rewritten form.
                let pairs = wanted.iter_mut().zip(&found);
                pairs
                    .filter(|(wanted, found)| !wanted.is_finite() && found.is_finite())
                    .for_each(|(wanted, found)| *wanted = *found);
            }
            max_rel_error = tolerance * segment.share(&found, &wanted, most, allowed)?;
        }
        Ok(StepError { name, is_conversion: false, max_rel_error, tolerance })
    }

    /// Returns the permitted error of a node: the sum over all steps between compared tensors and
    /// the node.
    fn allowed(&self, id: NodeId) -> Allowed {
        let rewritten = self.computed.graph;
        let mut open: Vec<NodeId> = self.trace.of(id).into_iter().collect();
        let mut seen: BTreeSet<NodeId> = open.iter().copied().collect();
        // The network may round tensors in another place than the original graph would.
        let unit_roundoff = rewritten.precision().unit_roundoff();
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
