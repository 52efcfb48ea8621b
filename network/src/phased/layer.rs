//! Recurrent layers of many time steps, part by part.

use std::sync::Arc;

use autotune_graph::onnx::{PART_STEPS, PhaseWork, RunTensor};
use autotune_graph::operators::{Concat, Range, Slice, Transpose};
use autotune_graph::{DType, Op, Tensor};

use super::plan::PlannedNode;
use super::{PhasedWorkspace, RunTensors, run_tensor, wrong};
use crate::family::FamilyError;

/// Inputs of a layer: lengths of the sequences, and initial states.
const LENGTHS: usize = 4;
const STATES: [usize; 2] = [5, 6];

/// Numbers of the operands that are read here; others are captured by the graphs.
pub(super) const READ: [usize; 4] = [0, LENGTHS, STATES[0], STATES[1]];

/// Runs a layer. Returns the outputs of all steps, then the last states.
pub(super) fn run(
    planned: &PlannedNode,
    operands: Vec<Option<RunTensor>>,
    workspace: &mut PhasedWorkspace,
    tensors: &RunTensors,
) -> Result<Vec<RunTensor>, FamilyError> {
    let PhaseWork::Layer { are_reversed, images_first, hidden, .. } = &planned.node.work else {
        return Err(wrong(&planned.node, "no recurrent layer"));
    };
    let operand = |number: usize| operands.get(number).and_then(Option::as_ref).map(|operand| &*operand.tensor);
    let missing = || wrong(&planned.node, "the sequence is missing");
    let of = |op: Op, operands: &[&Tensor]| op.evaluate(operands).map_err(|e| wrong(&planned.node, e.to_string()));
    let swapped = |tensor: &Tensor| of(Transpose(vec![1, 0, 2]).into(), &[tensor]);

    let mut x = operand(0).ok_or_else(missing)?.clone();
    if *images_first {
        x = swapped(&x)?;
    }
    let &[steps, images, _] = x.shape() else { return Err(missing()) };
    let lengths = operand(LENGTHS).and_then(Tensor::as_i64);
    if lengths.is_some_and(|lengths| lengths.iter().any(|&length| length != steps as i64)) {
        return Err(wrong(&planned.node, "sequences of different lengths are not supported"));
    }

    let (mut all, mut last) = (Vec::new(), Vec::new());
    for (direction, (network, &is_reversed)) in planned.graphs.iter().zip(are_reversed).enumerate() {
        let initial = STATES.into_iter().take(network.graph.inputs.len() - 1).map(|number| match operand(number) {
            Some(given) => {
                let given = if *images_first { swapped(given)? } else { given.clone() };
                of(range(&given, [direction, 1]), &[&given])
            }
            None => zeros(planned, [images, *hidden]),
        });
        let mut state = initial.collect::<Result<Vec<Tensor>, FamilyError>>()?;
        let mut firsts: Vec<usize> = (0..steps).step_by(PART_STEPS).collect();
        if is_reversed {
            firsts.reverse();
        }

        let mut parts = Vec::new();
        for first in firsts {
            let part = of(range(&x, [first, PART_STEPS.min(steps - first)]), &[&x])?;
            let mut passed = network.captured(tensors);
            let given = std::iter::once(part).chain(state).map(run_tensor);
            passed.extend(network.graph.inputs.iter().cloned().zip(given));
            let mut results = network.run(workspace, passed)?.into_iter().map(|r| Arc::unwrap_or_clone(r.tensor));
            parts.extend(results.next());
            state = results.collect();
        }
        if is_reversed {
            parts.reverse();
        }
        all.push(of(Concat { axis: 0 }.into(), &parts.iter().collect::<Vec<_>>())?);
        last.push(state);
    }

    let mut results = vec![of(Concat { axis: 1 }.into(), &all.iter().collect::<Vec<_>>())?];
    for number in 0..last[0].len() {
        let states: Vec<&Tensor> = last.iter().map(|state| &state[number]).collect();
        results.push(of(Concat { axis: 0 }.into(), &states)?);
    }
    if *images_first {
        results[0] = of(Transpose(vec![2, 0, 1, 3]).into(), &[&results[0]])?;
        for state in &mut results[1..] {
            *state = swapped(state)?;
        }
    }
    Ok(results.into_iter().map(run_tensor).collect())
}

/// Returns an initial state of zeros, `[1, images, hidden]`.
fn zeros(planned: &PlannedNode, [images, hidden]: [usize; 2]) -> Result<Tensor, FamilyError> {
    let tensor = Tensor::of_numbers(&[1, images, hidden], DType::F32, &vec![0.0; images * hidden]);
    tensor.map_err(|error| wrong(&planned.node, error.to_string()))
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
