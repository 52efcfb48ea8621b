//! Control flow: choices, loops, and scans over slices.

use autotune_graph::onnx::{self, RunTensor};
use autotune_graph::{DType, OpError, Tensor};

use crate::family::FamilyError;
use crate::phase_plan::PlannedNode;
use crate::phased::{PhasedNetwork, PhasedWorkspace, RunTensors, run_tensor, wrong};

/// Axes of slices, negative from the end, and whether the last slice is first.
type Directed<'a> = &'a [(i64, bool)];

/// Runs the graph for the value of a condition.
pub(crate) fn choose(
    planned: &PlannedNode,
    operands: Vec<Option<RunTensor>>,
    workspace: &mut PhasedWorkspace,
    tensors: &RunTensors,
) -> Result<Vec<RunTensor>, FamilyError> {
    let condition = operands.first().and_then(Option::as_ref).and_then(is_true);
    let condition = condition.ok_or_else(|| wrong(&planned.node, "the condition is not one number"))?;
    let network = &planned.graphs[usize::from(!condition)];
    network.run(workspace, network.captured(tensors))
}

/// Runs a graph until its condition is false, or as often as the first operand says. Returns the
/// final state, then the results of all rounds, stacked.
pub(crate) fn repeat(
    planned: &PlannedNode,
    mut operands: Vec<Option<RunTensor>>,
    workspace: &mut PhasedWorkspace,
    tensors: &RunTensors,
) -> Result<Vec<RunTensor>, FamilyError> {
    let node = &planned.node;
    let state = operands.split_off(2.min(operands.len()));
    let [most, condition] = [0, 1].map(|at| operands.get(at).cloned().flatten());
    let not_boolean = || wrong(node, "the condition is not one number");
    let mut goes_on = condition.map_or(Ok(true), |condition| is_true(&condition).ok_or_else(not_boolean))?;
    let not_integer = || wrong(node, "the number of rounds is not one integer");
    let most = most.map(|most| integer(&most).ok_or_else(not_integer)).transpose()?;

    let mut rounds = BodyRounds::new(planned, state, 1, tensors)?;
    let mut round = 0;
    while goes_on && most.is_none_or(|most| round < most) {
        let number = rounds.tensor(Tensor::i64(&[], vec![round]))?;
        let condition = rounds.tensor(Tensor::of_numbers(&[], DType::Bool, &[1.0]))?;
        let results = rounds.run(vec![number, condition], Vec::new(), workspace)?;
        goes_on = results.first().and_then(is_true).ok_or_else(not_boolean)?;
        round += 1;
    }
    rounds.finish(&[])
}

/// Runs a graph on each slice of some operands. Returns the final state, then the results for all
/// slices, stacked.
pub(crate) fn scan(
    planned: &PlannedNode,
    (inputs, outputs): (Directed, Directed),
    mut operands: Vec<Option<RunTensor>>,
    workspace: &mut PhasedWorkspace,
    tensors: &RunTensors,
) -> Result<Vec<RunTensor>, FamilyError> {
    let sliced = operands.split_off(operands.len() - inputs.len());
    let mut rounds = BodyRounds::new(planned, operands, 0, tensors)?;
    let sliced = all_given(planned, sliced)?;
    let axis = |(tensor, &(axis, _)): (&RunTensor, &(i64, bool))| {
        onnx::axis(axis, tensor.tensor.shape().len())
            .map_err(|_| wrong(&planned.node, format!("there is no axis {axis} to slice")))
    };
    let axes = sliced.iter().zip(inputs).map(axis).collect::<Result<Vec<usize>, FamilyError>>()?;
    let extents: Vec<usize> = sliced.iter().zip(&axes).map(|(tensor, &axis)| tensor.tensor.shape()[axis]).collect();
    let count = extents.first().copied().unwrap_or(0);
    if extents.iter().any(|&extent| extent != count) {
        return Err(wrong(&planned.node, format!("the inputs have different numbers of slices: {extents:?}")));
    }

    for round in 0..count {
        let slice = |((tensor, &axis), &(_, is_reversed)): ((&RunTensor, &usize), &(i64, bool))| {
            let at = if is_reversed { count - 1 - round } else { round };
            Ok(RunTensor { byte_type: tensor.byte_type, ..rounds.tensor(tensor.tensor.slice_at(axis, at))? })
        };
        let slices = sliced.iter().zip(&axes).zip(inputs).map(slice).collect::<Result<Vec<_>, FamilyError>>()?;
        rounds.run(Vec::new(), slices, workspace)?;
    }
    rounds.finish(outputs)
}

/// BodyRounds of a graph that has a state.
struct BodyRounds<'p> {
    planned: &'p PlannedNode,
    /// Outer tensors that the graph reads.
    captured: RunTensors,
    state: Vec<RunTensor>,
    /// Number of results before the state.
    leading: usize,
    /// Further results of all rounds, by output.
    stacks: Vec<Vec<RunTensor>>,
}

impl<'p> BodyRounds<'p> {
    fn new(
        planned: &'p PlannedNode,
        state: Vec<Option<RunTensor>>,
        leading: usize,
        tensors: &RunTensors,
    ) -> Result<Self, FamilyError> {
        let (state, body) = (all_given(planned, state)?, &planned.graphs[0]);
        let stacks = body.graph.outputs.len().saturating_sub(leading + state.len());
        let captured = body.captured(tensors);
        Ok(Self { planned, captured, state, leading, stacks: vec![Vec::new(); stacks] })
    }

    /// Runs the graph on tensors before and after the state; returns the results before it.
    fn run(
        &mut self,
        before: Vec<RunTensor>,
        after: Vec<RunTensor>,
        workspace: &mut PhasedWorkspace,
    ) -> Result<Vec<RunTensor>, FamilyError> {
        let body = &self.planned.graphs[0];
        let count = self.state.len();
        let state = std::mem::take(&mut self.state);
        let mut passed = self.captured.clone();
        passed.extend(body.graph.inputs.iter().cloned().zip(before.into_iter().chain(state).chain(after)));

        let mut results = body.run(workspace, passed)?.into_iter();
        let leading = results.by_ref().take(self.leading).collect();
        self.state = results.by_ref().take(count).collect();
        self.stacks.iter_mut().zip(results).for_each(|(stack, result)| stack.push(result));
        Ok(leading)
    }

    /// Returns the state, then the stacks along their axes, by default the outermost.
    fn finish(self, directed: Directed) -> Result<Vec<RunTensor>, FamilyError> {
        let first = self.leading + self.state.len();
        let mut results = self.state.clone();
        for (number, stack) in self.stacks.iter().enumerate() {
            let (axis, is_reversed) = directed.get(number).copied().unwrap_or_default();
            let mut parts: Vec<&Tensor> = stack.iter().map(|result| &*result.tensor).collect();
            if is_reversed {
                parts.reverse();
            }
            let Some(part) = parts.first() else {
                let (dtype, shape) = &self.planned.graphs[0].graph.empty_stacks[first + number];
                results.push(self.tensor(Tensor::of_numbers(shape, *dtype, &[]))?);
                continue;
            };
            let no_axis = |_| wrong(&self.planned.node, format!("there is no axis {axis} to stack along"));
            let axis = onnx::axis(axis, part.shape().len() + 1).map_err(no_axis)?;
            let byte_type = stack[0].byte_type;
            results.push(RunTensor { byte_type, ..self.tensor(Tensor::stacked(axis, &parts))? });
        }
        Ok(results)
    }

    fn tensor(&self, tensor: Result<Tensor, OpError>) -> Result<RunTensor, FamilyError> {
        tensor.map(run_tensor).map_err(|error| wrong(&self.planned.node, error.to_string()))
    }
}

impl PhasedNetwork {
    /// Returns the outer tensors that the graph reads.
    pub(crate) fn captured(&self, tensors: &RunTensors) -> RunTensors {
        let captured = self.graph.captured.iter().filter(|name| !self.constants.contains_key(*name));
        captured.filter_map(|name| Some((name.clone(), tensors.get(name)?.clone()))).collect()
    }
}

fn all_given(planned: &PlannedNode, operands: Vec<Option<RunTensor>>) -> Result<Vec<RunTensor>, FamilyError> {
    let all = operands.into_iter().collect::<Option<Vec<RunTensor>>>();
    all.ok_or_else(|| wrong(&planned.node, "an input is missing"))
}

fn is_true(tensor: &RunTensor) -> Option<bool> {
    let numbers = tensor.tensor.to_numbers();
    (numbers.len() == 1).then(|| numbers[0] != 0.0)
}

fn integer(tensor: &RunTensor) -> Option<i64> {
    let integers = tensor.tensor.as_i64()?;
    integers.iter().next().copied().filter(|_| integers.len() == 1)
}
