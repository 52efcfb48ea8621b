//! Recurrent layers of many time steps, part by part.

use std::sync::Arc;

use autotune_graph::onnx::{LAYER_LENGTHS, LAYER_STATES, PART_STEPS, PhaseWork, RunTensor};
use autotune_graph::operators::{Concat, Expand, Range, Slice, Transpose};
use autotune_graph::{Op, Tensor};

use crate::family::FamilyError;
use crate::phase_plan::PlannedNode;
use crate::phased::{PhasedNetwork, PhasedWorkspace, RunTensors, run_tensor, wrong};

/// Numbers of the operands that are read here; others are captured by the graphs.
pub(crate) const READ: [usize; 4] = [0, LAYER_LENGTHS, LAYER_STATES[0], LAYER_STATES[1]];

/// Runs a layer. Returns the outputs of all steps, then the last states.
pub(crate) fn run(
    planned: &PlannedNode,
    operands: Vec<Option<RunTensor>>,
    workspace: &mut PhasedWorkspace,
    tensors: &RunTensors,
) -> Result<Vec<RunTensor>, FamilyError> {
    let PhaseWork::Layer { are_reversed, images_first, hidden, .. } = &planned.node.work else {
        return Err(wrong(&planned.node, "no recurrent layer"));
    };
    let of = |op: Op, operands: &[&Tensor]| planned.computed(op, operands);
    // With `layout` = 1 the batch is the first axis.
    let in_order = |tensor: &Tensor| match images_first {
        true => of(Transpose(vec![1, 0, 2]).into(), &[tensor]),
        false => Ok(tensor.clone()),
    };
    let operand = |number: usize| operands.get(number).and_then(Option::as_ref).map(|operand| &*operand.tensor);

    let missing = || wrong(&planned.node, "the sequence is missing");
    let x = in_order(operand(0).ok_or_else(missing)?)?;
    let &[steps, images, _] = x.shape() else { return Err(missing()) };
    let lengths = operand(LAYER_LENGTHS).and_then(Tensor::as_i64);
    if lengths.is_some_and(|lengths| lengths.iter().any(|&length| length != steps as i64)) {
        return Err(wrong(&planned.node, "sequences of different lengths have at most 256 steps"));
    }

    let (mut all, mut last) = (Vec::new(), Vec::new());
    for (direction, (network, &is_reversed)) in planned.graphs.iter().zip(are_reversed).enumerate() {
        let states = LAYER_STATES.into_iter().take(network.graph.inputs.len() - 1);
        let initial = states.map(|number| match operand(number) {
            Some(given) => {
                let given = in_order(given)?;
                of(range(&given, [direction, 1]), &[&given])
            }
            None => of(Expand(vec![1, images, *hidden]).into(), &[&Tensor::scalar(0.0)]),
        });
        let sequence = Sequence { planned, network, x: &x, is_reversed };
        let (outputs, states) = sequence.run(initial.collect::<Result<_, FamilyError>>()?, workspace, tensors)?;
        all.push(outputs);
        last.push(states);
    }

    let mut results = vec![of(Concat { axis: 1 }.into(), &all.iter().collect::<Vec<_>>())?];
    for number in 0..last.first().map_or(0, Vec::len) {
        let states: Vec<&Tensor> = last.iter().map(|states| &states[number]).collect();
        results.push(in_order(&of(Concat { axis: 0 }.into(), &states)?)?);
    }
    if *images_first {
        results[0] = of(Transpose(vec![2, 0, 1, 3]).into(), &[&results[0]])?;
    }
    Ok(results.into_iter().map(run_tensor).collect())
}

/// A sequence for one direction of a layer.
struct Sequence<'a> {
    planned: &'a PlannedNode,
    /// Layer for a part.
    network: &'a PhasedNetwork,
    /// Inputs of all steps, `[steps, images, inputs]`.
    x: &'a Tensor,
    is_reversed: bool,
}

impl Sequence<'_> {
    /// Runs the layer on all parts, from initial states. Returns the outputs of all steps and the
    /// last states.
    fn run(
        &self,
        mut states: Vec<Tensor>,
        workspace: &mut PhasedWorkspace,
        tensors: &RunTensors,
    ) -> Result<(Tensor, Vec<Tensor>), FamilyError> {
        let steps = self.x.shape()[0];
        let mut firsts: Vec<usize> = (0..steps).step_by(PART_STEPS).collect();
        if self.is_reversed {
            firsts.reverse();
        }

        let mut parts = Vec::new();
        for first in firsts {
            let part = range(self.x, [first, PART_STEPS.min(steps - first)]);
            let part = self.planned.computed(part, &[self.x])?;
            let mut passed = self.network.captured(tensors);
            let given = std::iter::once(part).chain(states).map(run_tensor);
            passed.extend(self.network.graph.inputs.iter().cloned().zip(given));

            let results = self.network.run(workspace, passed)?.into_iter();
            let mut results = results.map(|result| Arc::unwrap_or_clone(result.tensor));
            parts.extend(results.next());
            states = results.collect();
        }
        if self.is_reversed {
            parts.reverse();
        }
        let outputs = self.planned.computed(Concat { axis: 0 }.into(), &parts.iter().collect::<Vec<_>>())?;
        Ok((outputs, states))
    }
}

impl PlannedNode {
    /// Computes an operation on tensors of the node.
    fn computed(&self, op: Op, operands: &[&Tensor]) -> Result<Tensor, FamilyError> {
        op.evaluate(operands).map_err(|error| wrong(&self.node, error.to_string()))
    }
}

/// Returns the operator for a range of the outermost axis, by its first index and its length.
fn range(tensor: &Tensor, [start, count]: [usize; 2]) -> Op {
    let whole = |&count: &usize| Range { start: 0, step: 1, count };
    let mut ranges: Vec<Range> = tensor.shape().iter().map(whole).collect();
    if let Some(outermost) = ranges.first_mut() {
        *outermost = Range { start, step: 1, count };
    }
    Slice(ranges).into()
}
