//! Comparing what a network computes with the reference, step by step, and with the graph that it
//! was imported as.
//!
//! Each step is compared with what the reference makes of the tensors that the steps in front of it
//! computed, as they were then: errors do not add up on the way, and what a step may differ by is
//! what its kernel alone may ([`allowed`]). Copies and conversions of layouts change no number. A
//! second walk (`imported`) has the reference make the tensors of the graph before it was
//! rewritten.

use std::borrow::Cow;

use autotune::Tuned;
use autotune_ir::DType;
use autotune_ir::layout::from_layout;
use autotune_schedules::tolerance;

use super::{Compiled, Workspace};
use crate::cut::{Strided, Value};
use crate::device::Runs;
use crate::error::{CheckError, CompileError};
use crate::plan::{Action, Doing, Operand};
use autotune_graph::EvaluateError;
use autotune_graph::Precision;
use autotune_graph::Tensor;
use autotune_graph::is_of_bytes;
use autotune_graph::operators::{Binary, Map, Prelu};
use autotune_graph::{Graph, NodeId};
use judge::{Allowed, Made, Segment, difference, largest, missing};

pub use judge::output_error;

mod imported;
mod judge;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod walks;

/// How far what a step computes is from what the reference makes of the same operands.
#[derive(Clone, Debug, PartialEq)]
pub struct StepError {
    /// The name of the first node that it computes.
    pub name: String,
    /// True if it only brings a tensor from one layout to another.
    pub is_conversion: bool,
    /// The largest difference of an element, by the largest element of the reference, or of the
    /// sums that what is fused behind them cuts off. Where small changes of the operands move the
    /// reference further, it is the part of what they allow, times the tolerance.
    pub max_rel_error: f64,
    /// The largest of these that is right.
    pub tolerance: f64,
}

impl StepError {
    /// True if the step computes what it should.
    pub fn is_right(&self) -> bool {
        self.max_rel_error <= self.tolerance
    }
}

/// What comparing a network with the reference found.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Every step of the network, on what those in front of it computed.
    pub steps: Vec<StepError>,
    /// Tensors of the graph as it was imported that the network computes, on those in front of
    /// them; all outputs are among them.
    pub imported: Vec<StepError>,
}

impl<D: Runs> Workspace<D> {
    /// Compares what an action has just written.
    fn step_error(&self, action: &Action, computed: &mut Computed) -> Result<StepError, CheckError> {
        let network = &self.network;
        let graph = &network.graph;
        let Value { node, shape, .. } = network.cut.value(action.value.0);
        let is_whole = *shape == graph.node(*node).shape;
        let wanted = match action.is_conversion {
            true => Wanted::exactly(computed.tensor(*node)?.to_numbers()),
            false => computed.wanted(*node)?,
        };
        let wanted = network.rounded(action, wanted);
        let (found, wanted, most) = self.found(action, wanted)?;
        let most = most.max(range_of_bytes(graph.node(*node).dtype));

        let allowed = match action.work {
            Doing::Kernel(kernel) if !action.is_conversion => allowed(&network.plan.kernels[kernel], graph.precision()),
            _ => Allowed::NOTHING,
        };
        let (name, is_conversion, tolerance) = (action.name.clone(), action.is_conversion, allowed.tolerance);
        let mut max_rel_error = difference(&found, &wanted, most);
        if max_rel_error > tolerance && tolerance > 0.0 {
            let known = |id| computed.known(id);
            let segment = Segment { graph, node: *node, known: &known, changes_constants: true };
            max_rel_error = tolerance * segment.share(&found, &wanted, most, allowed)?;
        }
        if is_whole && !is_conversion {
            let stored = network.plan.dtype(action.output);
            let rounded = if stored.is_word() { 0.0 } else { stored.unit_roundoff() };
            computed.put(*node, &found, Allowed { tolerance: allowed.tolerance.max(rounded), ..allowed })?;
        }
        Ok(StepError { name, is_conversion, max_rel_error, tolerance })
    }

    /// The elements that an action has written, what they should be, and what errors are relative
    /// to.
    fn found(&self, action: &Action, wanted: Wanted) -> Result<(Vec<f32>, Vec<f32>, f32), CheckError> {
        let Wanted { numbers: wanted, most } = wanted;
        let ((value, layout), network) = (action.value, &self.network);
        let Value { node, shape, within, .. } = network.cut.value(value);
        let node = network.graph.node(*node);
        let first = within.filter(|_| *shape != node.shape).map_or(0, |(_, first)| first);
        let (found, wanted) = match &action.work {
            Doing::Copy(strided) => {
                let places = written(strided);
                let found = self.result(action.output, places.iter().max().map_or(0, |last| last + 1))?;
                (at(&found, 0, &places), at(&wanted, first, &places))
            }
            Doing::Kernel(_) | Doing::Interpret(_) => {
                let found = from_layout(&self.result(action.output, shape.iter().product())?, shape, layout)
                    .map_err(|source| CompileError::Constant { name: action.name.clone(), source })?;
                let found: Vec<f32> = found.into_iter().collect();
                // A kernel may copy a part of a tensor, in one piece.
                let wanted = match wanted.get(first..first + found.len()) {
                    Some(part) if part.len() < wanted.len() => part.to_vec(),
                    _ => wanted,
                };
                (found, wanted)
            }
        };

        // What is no whole number of 64 bits, such as an infinity that was cast, is as the
        // reference has it.
        let found = match node.dtype {
            DType::I64 => found.into_iter().map(|x: f32| x as i64 as f32).collect(),
            _ => found,
        };
        Ok((found, wanted, most))
    }
}

impl<D: Runs> Compiled<D> {
    /// Returns what an action should write, as its memory has it if the action itself rounds
    /// nothing but what it reads and writes: parts of a tensor may lie in fewer bits than the
    /// reference has.
    fn rounded(&self, action: &Action, wanted: Wanted) -> Wanted {
        if matches!(action.work, Doing::Kernel(_)) && !action.is_conversion {
            return wanted;
        }
        let is_moved = !matches!(action.work, Doing::Interpret(_));
        let read = action.operands.iter().filter_map(Operand::span).filter(|_| is_moved);
        let dtypes: Vec<DType> = read.chain([action.output]).map(|span| self.plan.dtype(span)).collect();
        let stored = |x: f32| dtypes.iter().fold(x, |x, dtype| dtype.stored(x));
        Wanted { numbers: wanted.numbers.into_iter().map(stored).collect(), ..wanted }
    }
}

/// The largest integer of 8 bits, by which errors of quantised tensors are told; 0 of other types.
fn range_of_bytes(dtype: DType) -> f32 {
    if is_of_bytes(dtype) { dtype.range()[1] as f32 } else { 0.0 }
}

/// What a kernel may be off by on tensors of a network: what it may be on operands of random signs,
/// by which it is tuned, and what a sum of as many products of one sign may be off in any order,
/// the unit roundoff for each. Where the network rounds operands, the reference may have another
/// form of them than the kernel: weights before, a tensor behind or in front of a transposition.
fn allowed(tuned: &Tuned, precision: Precision) -> Allowed {
    let workload = tuned.workload();
    let terms = workload.spec().reduction_len();
    let rounded = match precision {
        Precision::F32 => 0.0,
        other => 2.0 * other.dtype().unit_roundoff(),
    };
    Allowed {
        tolerance: tolerance(workload, tuned.config()) + rounded + terms as f64 * DType::F32.unit_roundoff(),
        terms,
    }
}

/// Tensors that steps have computed, by their nodes.
struct Computed<'a> {
    graph: &'a Graph,
    tensors: Vec<Option<Tensor>>,
    /// What those may be off by.
    allowed: Vec<Allowed>,
}

/// What a node's tensor should be.
struct Wanted {
    numbers: Vec<f32>,
    /// What errors are relative to.
    most: f32,
}

impl Wanted {
    fn exactly(numbers: Vec<f32>) -> Self {
        let most = largest(&numbers);
        Self { numbers, most }
    }
}

impl<'a> Computed<'a> {
    fn nothing(graph: &'a Graph) -> Self {
        let count = graph.nodes().len();
        Self { graph, tensors: vec![None; count], allowed: vec![Allowed::NOTHING; count] }
    }

    fn put(&mut self, id: NodeId, numbers: &[f32], allowed: Allowed) -> Result<(), EvaluateError> {
        let node = self.graph.node(id);
        let tensor = Tensor::of_numbers(&node.shape, node.dtype, numbers).map_err(|source| node.wrong(source))?;
        let at = id.0 as usize;
        (self.tensors[at], self.allowed[at]) = (Some(tensor), allowed);
        Ok(())
    }

    fn known(&self, id: NodeId) -> Option<&Tensor> {
        self.tensors[id.0 as usize].as_ref()
    }

    /// The tensors that the reference makes on the way to that of a node, which is the last, from
    /// those that are there.
    fn made(&self, id: NodeId) -> Result<Made<'_>, EvaluateError> {
        Segment { graph: self.graph, node: id, known: &|id| self.known(id), changes_constants: false }.made()
    }

    /// A node's tensor as it was computed; of a node that no step computes as a whole what the
    /// reference makes of those in front of it.
    fn tensor(&self, id: NodeId) -> Result<Cow<'_, Tensor>, EvaluateError> {
        match self.known(id) {
            Some(tensor) => Ok(Cow::Borrowed(tensor)),
            None => {
                let made = self.made(id)?.pop_last();
                made.map(|(_, tensor)| tensor).ok_or_else(|| missing(self.graph, id))
            }
        }
    }

    /// What the reference makes of the tensors in front of a node. Of sums, what is added to them
    /// and the functions that are applied to them have an error like that of the sums, however
    /// small they are: it is relative to these.
    fn wanted(&self, id: NodeId) -> Result<Wanted, EvaluateError> {
        let (mut most, mut is_of_sums, mut numbers) = (0f32, false, Vec::new());
        for (id, tensor) in self.made(id)? {
            numbers = tensor.to_numbers();
            let node = self.graph.node(id);
            let keeps = matches!(node.op.of(), Some(Binary::Add | Binary::Sub | Binary::Max | Binary::Min))
                || node.op.is::<Map>()
                || node.op.is::<Prelu>();
            let before = if is_of_sums && keeps { most } else { 0.0 };
            most = largest(&numbers).max(before);
            is_of_sums |= node.op.channel_of_sums(node.shape.len()).is_some();
        }
        Ok(Wanted { numbers, most })
    }
}

/// The elements that a copy writes, in the order of its extents.
fn written(strided: &Strided) -> Vec<usize> {
    let along = |places: Vec<usize>, (&extent, &write): (&usize, &usize)| {
        places.into_iter().flat_map(|place| (0..extent).map(move |i| place + i * write)).collect()
    };
    strided.extents.iter().zip(&strided.write).fold(vec![0], along)
}

/// Elements at places behind the first.
fn at(numbers: &[f32], first: usize, places: &[usize]) -> Vec<f32> {
    places.iter().map(|place| numbers[first + place]).collect()
}
