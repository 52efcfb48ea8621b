//! Comparison of a network's results with the reference, step by step, and with the graph before
//! rewriting.
//!
//! Each step is compared with the reference evaluated on the tensors that previous steps actually
//! computed. So errors do not accumulate, and a step's permitted error is that of its kernel alone
//! ([`allowed`]). Copies and layout conversions must be exact. A second walk (`imported`) evaluates
//! the reference on the graph before rewriting.

use std::borrow::Cow;

use autotune::Tuned;
use autotune_ir::DType;
use autotune_ir::layout::from_layout;
use autotune_schedules::tolerance;

use super::{Compiled, Workspace};
use crate::cut::{MemoryValue, Strided};
use crate::device::NetworkOps;
use crate::error::{CheckError, CompileError};
use crate::plan::{Action, ActionKind, ActionOperand};
use autotune_graph::EvaluateError;
use autotune_graph::Precision;
use autotune_graph::Tensor;
use autotune_graph::is_of_bytes;
use autotune_graph::operators::{Binary, Lookup, Map, Prelu};
use autotune_graph::{Graph, NodeId};
use judge::{Allowed, JudgedNode, KnownTensors, difference, largest, missing};

pub use judge::output_error;

mod imported;
mod judge;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod walks;

/// Error of a step against the reference on the same operands.
#[derive(Clone, Debug, PartialEq)]
pub struct StepError {
    /// Name of the first node that the step computes.
    pub name: String,
    /// True if the step only converts a tensor's layout.
    pub is_conversion: bool,
    /// Largest difference of an element, relative to the largest element of the reference (or of
    /// the sums before fused functions that clamp them). If it exceeds the tolerance, it is judged
    /// again: the error over the permitted error, which also allows for the reference's movement
    /// under small changes of the operands, times the tolerance.
    pub max_rel_error: f64,
    /// Largest permitted error, relative in the same way.
    pub tolerance: f64,
}

impl StepError {
    /// True if the error is within the tolerance.
    pub fn is_within_tolerance(&self) -> bool {
        self.max_rel_error <= self.tolerance
    }
}

/// Result of a comparison with the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// Every step of the network, evaluated on the results of previous steps.
    pub steps: Vec<StepError>,
    /// Tensors of the imported graph that the network computes, including all outputs, evaluated on
    /// the results before them.
    pub imported: Vec<StepError>,
}

impl<D: NetworkOps> Workspace<D> {
    /// Compares an action's result right after it ran.
    fn step_error(&self, action: &Action, computed: &mut ComputedTensors) -> Result<StepError, CheckError> {
        let network = &self.bound.network;
        let graph = &network.graph;
        let MemoryValue { node, shape, .. } = network.cut.value(action.value.0);
        let is_whole = *shape == graph.node(*node).shape;
        // A conversion only moves elements, so it must be exact.
        let wanted = match action.is_conversion {
            true => Wanted::exactly(computed.tensor(*node)?.to_numbers()),
            false => computed.reference(*node)?,
        };
        let wanted = network.rounded(action, wanted);
        let (found, wanted, most) = self.found(action, wanted)?;
        let most = most.max(range_of_bytes(graph.node(*node).dtype));

        let allowed = match action.work {
            ActionKind::Kernel(kernel) if !action.is_conversion => {
                let Allowed { tolerance, terms } = allowed(&network.plan.kernels[kernel], graph.precision());
                Allowed { tolerance: tolerance * steepness(graph, *node), terms }
            }
            _ => Allowed::NOTHING,
        };
        let (name, is_conversion, tolerance) = (action.name.clone(), action.is_conversion, allowed.tolerance);
        let mut max_rel_error = difference(&found, &wanted, most);
        // Perturbation is expensive, so it is only tried if the simple bound fails.
        if max_rel_error > tolerance && tolerance > 0.0 {
            let known = |id| computed.known(id);
            let segment = JudgedNode { graph, node: *node, known: &known, changes_constants: true };
            max_rel_error = tolerance * segment.share(&found, &wanted, most, allowed)?;
        }
        // Later steps are evaluated on what this one computed.
        if is_whole && !is_conversion {
            let stored = network.plan.dtype(action.output);
            let rounded = if stored.is_word() { 0.0 } else { stored.unit_roundoff() };
            computed.put(*node, &found, Allowed { tolerance: allowed.tolerance.max(rounded), ..allowed })?;
        }
        Ok(StepError { name, is_conversion, max_rel_error, tolerance })
    }

    /// Returns the elements that an action wrote, the wanted ones, and the magnitude that errors
    /// are relative to.
    fn found(&self, action: &Action, wanted: Wanted) -> Result<(Vec<f32>, Vec<f32>, f32), CheckError> {
        let Wanted { numbers: wanted, most } = wanted;
        let ((value, layout), network) = (action.value, &self.bound.network);
        let MemoryValue { node, shape, within, .. } = network.cut.value(value);
        let node = network.graph.node(*node);
        let first = within.filter(|_| *shape != node.shape).map_or(0, |(_, first)| first);
        let (found, wanted) = match &action.work {
            ActionKind::Copy(strided) if !action.is_conversion => {
                let places = written(strided);
                let found = self.result(action.output, places.iter().max().map_or(0, |last| last + 1))?;
                (at(&found, 0, &places), at(&wanted, first, &places))
            }
            ActionKind::Kernel(_) | ActionKind::Copy(_) | ActionKind::Interpret(_) => {
                let found = from_layout(&self.result(action.output, shape.iter().product())?, shape, layout)
                    .map_err(|source| CompileError::Constant { name: action.name.clone(), source })?;
                let found: Vec<f32> = found.into_iter().collect();
                // A kernel may copy a contiguous part of a tensor.
                let wanted = match wanted.get(first..first + found.len()) {
                    Some(part) if part.len() < wanted.len() => part.to_vec(),
                    _ => wanted,
                };
                (found, wanted)
            }
        };

        // Values that no 64-bit integer represents, such as a cast infinity, are converted as in
        // the reference.
        let found = match node.dtype {
            DType::I64 => found.into_iter().map(|x: f32| x as i64 as f32).collect(),
            _ => found,
        };
        Ok((found, wanted, most))
    }
}

impl<D: NetworkOps> Compiled<D> {
    /// Rounds the wanted values to the types that an action reads and writes, if the action itself
    /// rounds nothing else. Parts of a tensor may be stored with fewer bits than the reference has.
    fn rounded(&self, action: &Action, wanted: Wanted) -> Wanted {
        if matches!(action.work, ActionKind::Kernel(_)) && !action.is_conversion {
            return wanted;
        }
        let is_moved = !matches!(action.work, ActionKind::Interpret(_));
        let read = action.operands.iter().filter_map(ActionOperand::span).filter(|_| is_moved);
        let dtypes: Vec<DType> = read.chain([action.output]).map(|span| self.plan.dtype(span)).collect();
        let stored = |x: f32| dtypes.iter().fold(x, |x, dtype| dtype.stored(x));
        Wanted { numbers: wanted.numbers.into_iter().map(stored).collect(), ..wanted }
    }
}

/// Returns the magnitude that errors of 8-bit tensors are relative to, their largest integer; 0 for
/// other types.
fn range_of_bytes(dtype: DType) -> f32 {
    if is_of_bytes(dtype) { dtype.range()[1] as f32 } else { 0.0 }
}

/// Returns the permitted error of a kernel within a network: its tuning tolerance, which is for
/// operands of random signs, plus the error of a sum of as many products of one sign in any order,
/// one unit roundoff for each. Where the network rounds operands, kernel and reference may round at
/// different places, such as before or after a transposition.
fn allowed(tuned: &Tuned, precision: Precision) -> Allowed {
    let workload = tuned.workload();
    let terms = workload.spec().reduction_len();
    let rounded = match precision {
        Precision::F32 => 0.0,
        other => 2.0 * other.unit_roundoff(),
    };
    Allowed {
        tolerance: tolerance(workload, tuned.config()) + rounded + terms as f64 * DType::F32.unit_roundoff(),
        terms,
    }
}

/// Returns the largest difference between neighbours of the table in which a node looks elements
/// up: the change of a result whose index is rounded the other way. At least 1, as for other nodes.
fn steepness(graph: &Graph, node: NodeId) -> f64 {
    let node = graph.node(node);
    let table = node.operands.get(1).filter(|_| node.op.is::<Lookup>());
    let table = table.and_then(|&table| graph.constant_of(table)?.tensor().ok());
    let numbers = table.map_or_else(Vec::new, |table| table.to_numbers());
    let steps = numbers.iter().zip(numbers.iter().skip(1)).map(|(a, b)| (a - b).abs());
    steps.fold(1f32, f32::max).into()
}

/// Results of steps by node.
struct ComputedTensors<'a> {
    graph: &'a Graph,
    tensors: Vec<Option<Tensor>>,
    /// Permitted errors of the tensors.
    allowed: Vec<Allowed>,
}

/// Expected tensor of a node.
struct Wanted {
    numbers: Vec<f32>,
    /// Magnitude that errors are relative to.
    most: f32,
}

impl Wanted {
    fn exactly(numbers: Vec<f32>) -> Self {
        let most = largest(&numbers);
        Self { numbers, most }
    }
}

impl<'a> ComputedTensors<'a> {
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

    /// Evaluates the reference from known tensors up to a node, which is last in the result.
    fn made(&self, id: NodeId) -> Result<KnownTensors<'_>, EvaluateError> {
        JudgedNode { graph: self.graph, node: id, known: &|id| self.known(id), changes_constants: false }.made()
    }

    /// Returns a node's computed tensor. If no step computes it as a whole, it is evaluated from
    /// computed ones.
    fn tensor(&self, id: NodeId) -> Result<Cow<'_, Tensor>, EvaluateError> {
        match self.known(id) {
            Some(tensor) => Ok(Cow::Borrowed(tensor)),
            None => {
                let made = self.made(id)?.pop_last();
                made.map(|(_, tensor)| tensor).ok_or_else(|| missing(self.graph, id))
            }
        }
    }

    /// Evaluates the reference for a node. After a sum of products, additions and elementwise
    /// functions inherit the absolute error of the sums however small their results are, so errors
    /// are relative to the sums.
    fn reference(&self, id: NodeId) -> Result<Wanted, EvaluateError> {
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

/// Returns the element offsets that a copy writes, in the order of its extents.
fn written(strided: &Strided) -> Vec<usize> {
    let along = |places: Vec<usize>, (&extent, &write): (&usize, &usize)| {
        places.into_iter().flat_map(|place| (0..extent).map(move |i| place + i * write)).collect()
    };
    strided.extents.iter().zip(&strided.write).fold(vec![0], along)
}

/// Returns the elements at `places`, counted from `first`.
fn at(numbers: &[f32], first: usize, places: &[usize]) -> Vec<f32> {
    places.iter().map(|place| numbers[first + place]).collect()
}
