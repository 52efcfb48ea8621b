//! Recurrent layers of many time steps, part by part.

use std::sync::Arc;

use autotune_graph::onnx::{LAYER_LENGTHS, LAYER_STATES, PART_STEPS, PhaseWork, RunTensor};
use autotune_graph::operators::{Concat, Expand, Range, Slice, Transpose};
use autotune_graph::{Op, OpError, Tensor};

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
    let PhaseWork::Layer { are_reversed, images_first, hidden, rounds_inputs, .. } = &planned.node.work else {
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
    let mut x = in_order(operand(0).ok_or_else(missing)?)?;
    if *rounds_inputs {
        x = rounded_in_its_range(&x).map_err(|error| wrong(&planned.node, error.to_string()))?;
    }
    let &[steps, images, _] = x.shape() else { return Err(missing()) };
    let batches = planned.batches(operand(LAYER_LENGTHS), steps, images)?;

    let (mut all, mut last) = (Vec::new(), Vec::new());
    for (direction, (network, &is_reversed)) in planned.graphs.iter().zip(are_reversed).enumerate() {
        let initial =
            LAYER_STATES.into_iter().take(network.graph.inputs.len() - 1).map(|number| match operand(number) {
                Some(given) => planned.part(&in_order(given)?, 0, [direction, 1]),
                None => of(Expand(vec![1, images, *hidden]).into(), &[&Tensor::scalar(0.0)]),
            });
        let layer = LayerDirection { planned, network, is_reversed };
        let (outputs, states) = layer.run(&x, initial.collect::<Result<_, _>>()?, &batches, workspace, tensors)?;
        all.push(outputs);
        last.push(states);
    }

    let mut results = vec![planned.joined(1, &all)?];
    for number in 0..last.first().map_or(0, Vec::len) {
        let states: Vec<Tensor> = last.iter().map(|states| states[number].clone()).collect();
        results.push(in_order(&planned.joined(0, &states)?)?);
    }
    if *images_first {
        results[0] = of(Transpose(vec![2, 0, 1, 3]).into(), &[&results[0]])?;
    }
    Ok(results.into_iter().map(run_tensor).collect())
}

/// Images in a row whose sequences have equal lengths.
struct EqualSequences {
    /// First image, and number of images.
    images: [usize; 2],
    /// Length of the sequences.
    steps: usize,
}

/// A layer in one direction.
struct LayerDirection<'a> {
    planned: &'a PlannedNode,
    /// Layer for a part.
    network: &'a PhasedNetwork,
    is_reversed: bool,
}

impl LayerDirection<'_> {
    /// Runs the layer on inputs `[steps, images, inputs]` from initial states `[1, images,
    /// hidden]`. Returns the outputs of all steps, `[steps, 1, images, hidden]`, and the last
    /// states.
    fn run(
        &self,
        x: &Tensor,
        initial: Vec<Tensor>,
        batches: &[EqualSequences],
        workspace: &mut PhasedWorkspace,
        tensors: &RunTensors,
    ) -> Result<(Tensor, Vec<Tensor>), FamilyError> {
        let planned = self.planned;
        let (mut outputs, mut states) = (Vec::new(), vec![Vec::new(); initial.len()]);
        for EqualSequences { images, steps } in batches {
            let initial = initial.iter().map(|state| planned.part(state, 1, *images));
            let x = planned.part(x, 1, *images)?;
            let (own, last) = self.run_batch(&x, *steps, initial.collect::<Result<_, _>>()?, workspace, tensors)?;
            outputs.push(own);
            states.iter_mut().zip(last).for_each(|(states, last)| states.push(last));
        }
        let states = states.iter().map(|states| planned.joined(1, states)).collect::<Result<_, _>>()?;
        Ok((planned.joined(2, &outputs)?, states))
    }

    /// Runs the layer on the first steps of sequences. Outputs of the other steps are zeros.
    fn run_batch(
        &self,
        x: &Tensor,
        steps: usize,
        mut states: Vec<Tensor>,
        workspace: &mut PhasedWorkspace,
        tensors: &RunTensors,
    ) -> Result<(Tensor, Vec<Tensor>), FamilyError> {
        let mut of_parts = parts(steps);
        if self.is_reversed {
            of_parts.reverse();
        }

        let mut outputs = Vec::new();
        for part in of_parts {
            let mut passed = self.network.captured(tensors);
            let given = std::iter::once(self.planned.part(x, 0, part)?).chain(states).map(run_tensor);
            passed.extend(self.network.graph.inputs.iter().cloned().zip(given));

            let results = self.network.run(workspace, passed)?.into_iter();
            let mut results = results.map(|result| Arc::unwrap_or_clone(result.tensor));
            outputs.extend(results.next());
            states = results.collect();
        }
        if self.is_reversed {
            outputs.reverse();
        }

        let &[all, images, _] = x.shape() else { return Err(wrong(&self.planned.node, "three axes expected")) };
        if steps < all {
            let hidden = states.first().and_then(|state| state.shape().last()).copied().unwrap_or(0);
            let zeros = Expand(vec![all - steps, 1, images, hidden]);
            outputs.push(self.planned.computed(zeros.into(), &[&Tensor::scalar(0.0)])?);
        }
        Ok((self.planned.joined(0, &outputs)?, states))
    }
}

/// Returns first step and number of steps of the parts of a sequence. Parts that are not full have
/// powers of two, so that sequences of all lengths need few networks.
fn parts(steps: usize) -> Vec<[usize; 2]> {
    let (mut parts, mut first) = (Vec::new(), 0);
    let mut most = PART_STEPS;
    while first < steps {
        match first + most <= steps {
            true => {
                parts.push([first, most]);
                first += most;
            }
            false => most /= 2,
        }
    }
    parts
}

/// Quantises numbers to 8 bits, in their range and 0, and back, as `DynamicQuantizeLinear` and
/// `DequantizeLinear` do.
fn rounded_in_its_range(x: &Tensor) -> Result<Tensor, OpError> {
    let numbers = x.to_numbers();
    let widened = |[least, most]: [f32; 2], &number: &f32| [least.min(number), most.max(number)];
    let [least, most] = numbers.iter().fold([0.0; 2], widened);
    let scale = if most > least { (most - least) / 255.0 } else { 1.0 };
    let zero = (-least / scale).round_ties_even();
    let integer = |number: f32| ((number / scale).round_ties_even() + zero).clamp(0.0, 255.0);
    // A NaN becomes 0.
    let rounded = |&number: &f32| (if number.is_nan() { 0.0 } else { integer(number) } - zero) * scale;
    Tensor::f32(x.shape(), numbers.iter().map(rounded).collect())
}

impl PlannedNode {
    /// Returns the images in batches of sequences of one length.
    fn batches(
        &self,
        lengths: Option<&Tensor>,
        steps: usize,
        images: usize,
    ) -> Result<Vec<EqualSequences>, FamilyError> {
        let Some(lengths) = lengths else { return Ok(vec![EqualSequences { images: [0, images], steps }]) };
        let given = lengths.as_i64().into_iter().flatten();
        let lengths: Vec<usize> = given.filter_map(|&length| usize::try_from(length).ok()).collect();
        if lengths.len() != images || lengths.iter().any(|&length| length > steps) {
            let reason = format!("expected lengths of {images} sequences, each from 0 to {steps}");
            return Err(wrong(&self.node, reason));
        }

        let mut batches: Vec<EqualSequences> = Vec::new();
        for (image, &steps) in lengths.iter().enumerate() {
            match batches.last_mut() {
                Some(batch) if batch.steps == steps => batch.images[1] += 1,
                _ => batches.push(EqualSequences { images: [image, 1], steps }),
            }
        }
        Ok(batches)
    }

    /// Computes an operation on tensors of the node.
    fn computed(&self, op: Op, operands: &[&Tensor]) -> Result<Tensor, FamilyError> {
        op.evaluate(operands).map_err(|error| wrong(&self.node, error.to_string()))
    }

    /// Returns a range of one axis, by its first index and its length.
    fn part(&self, tensor: &Tensor, axis: usize, [start, count]: [usize; 2]) -> Result<Tensor, FamilyError> {
        if tensor.shape().get(axis) == Some(&count) {
            return Ok(tensor.clone());
        }
        let mut ranges = Range::all(tensor.shape());
        if let Some(range) = ranges.get_mut(axis) {
            *range = Range { start, step: 1, count };
        }
        self.computed(Slice(ranges).into(), &[tensor])
    }

    /// Joins tensors along an axis.
    fn joined(&self, axis: usize, parts: &[Tensor]) -> Result<Tensor, FamilyError> {
        match parts {
            [only] => Ok(only.clone()),
            _ => self.computed(Concat { axis }.into(), &parts.iter().collect::<Vec<_>>()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_steps_in_order() {
        for steps in 0..200 {
            let parts = parts(steps);
            let mut next = 0;
            for &[first, count] in &parts {
                assert!(first == next && count.is_power_of_two(), "{parts:?}");
                next += count;
            }
            assert_eq!(next, steps);
        }
        assert_eq!(parts(75), [[0, 32], [32, 32], [64, 8], [72, 2], [74, 1]]);
    }
}
