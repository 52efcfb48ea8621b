//! Permitted differences between a tensor and the reference on the same operands.
//!
//! An error is first taken relative to the largest element. If it exceeds the tolerance, as for
//! sums with cancellation or rows of equal elements, it is compared with the movement of the
//! reference under small changes of its operands, elementwise. A result is right if it is exact for
//! operands near the given ones (backward error; Higham, "Accuracy and Stability of Numerical
//! Algorithms", chapter 1).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use autotune_ir::DType;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use autotune_graph::Tensor;
use autotune_graph::{EvaluateError, OpError};
use autotune_graph::{Graph, NodeId};

/// Number of random perturbations of the operands. An element's error may be [`MOST_CHANGES`] times
/// the largest movement that they cause.
const CHANGES: u64 = 8;
const MOST_CHANGES: f64 = 4.0;

/// Size of the perturbations for steep operations, in units of rounding times the square root of
/// the number of combined values.
const ROUNDINGS: f64 = 4.0;

/// Permitted error of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    /// Error relative to the largest element; 0 if nothing is rounded.
    pub(super) tolerance: f64,
    /// Number of values that are combined into one.
    pub(super) terms: usize,
}

impl Allowed {
    /// For copies, and for results of the reference itself.
    pub(super) const NOTHING: Self = Self { tolerance: 0.0, terms: 1 };
}

/// A part of a graph: a node, the known tensors before it, and a flag that says whether constants
/// are perturbed, too.
pub(super) struct JudgedNode<'k, 'f> {
    pub(super) graph: &'k Graph,
    pub(super) node: NodeId,
    pub(super) known: &'f dyn Fn(NodeId) -> Option<&'k Tensor>,
    pub(super) changes_constants: bool,
}

/// Tensors of a segment by node.
pub(super) type KnownTensors<'k> = BTreeMap<NodeId, Cow<'k, Tensor>>;

impl<'k> JudgedNode<'k, '_> {
    /// Returns the nodes between known tensors and the node, and the known nodes.
    fn parts(&self) -> [BTreeSet<NodeId>; 2] {
        let (mut open, mut inner, mut known) = (vec![self.node], BTreeSet::from([self.node]), BTreeSet::new());
        while let Some(next) = open.pop() {
            for &operand in &self.graph.node(next).operands {
                if (self.known)(operand).is_some() {
                    known.insert(operand);
                } else if inner.insert(operand) {
                    open.push(operand);
                }
            }
        }
        [inner, known]
    }

    /// True if more than one node that is not a constant computes something.
    pub(super) fn has_several(&self) -> bool {
        let [inner, _] = self.parts();
        inner.iter().filter(|&&id| self.graph.constant_of(id).is_none()).count() > 1
    }

    /// Evaluates the reference from known tensors up to the node, which is last in the result.
    pub(super) fn made(&self) -> Result<KnownTensors<'k>, EvaluateError> {
        let [inner, _] = self.parts();
        self.made_of(&inner, |id| (self.known)(id).map(Cow::Borrowed), |_, tensor| tensor)
    }

    fn made_of(
        &self,
        inner: &BTreeSet<NodeId>,
        known: impl Fn(NodeId) -> Option<Cow<'k, Tensor>>,
        mut constant: impl FnMut(NodeId, Cow<'k, Tensor>) -> Cow<'k, Tensor>,
    ) -> Result<KnownTensors<'k>, EvaluateError> {
        let mut made: KnownTensors = BTreeMap::new();
        // Ids are in topological order.
        for &id in inner {
            let node = self.graph.node(id);
            let tensor = match self.graph.constant_of(id) {
                Some(of) => of.read().map(|tensor| constant(id, tensor)),
                None => {
                    let there = |id: &NodeId| made.get(id).cloned().or_else(|| known(*id));
                    let operands = node.operands.iter().map(|id| there(id).ok_or_else(|| missing(self.graph, *id)));
                    let operands = operands.collect::<Result<Vec<_>, _>>()?;
                    node.op.evaluate(&operands.iter().map(|tensor| &**tensor).collect::<Vec<_>>()).map(Cow::Owned)
                }
            };
            made.insert(id, tensor.map_err(|source| node.wrong(source))?);
        }
        Ok(made)
    }

    /// Returns the largest ratio of an element's error to its permitted error, which is the
    /// tolerance plus the element's movement under perturbation.
    pub(super) fn share(
        &self,
        found: &[f32],
        wanted: &[f32],
        most: f32,
        allowed: Allowed,
    ) -> Result<f64, EvaluateError> {
        let moves = self.moves(wanted, allowed)?;
        let of_largest = allowed.tolerance * f64::from(most);
        let share = |((&found, &wanted), &moves): ((&f32, &f32), &f64)| {
            let error = (f64::from(found) - f64::from(wanted)).abs();
            // An element that changes between finite and not under perturbation may be anything.
            match found == wanted || found.is_nan() && wanted.is_nan() || moves == f64::INFINITY {
                true => 0.0,
                false if found.is_finite() && wanted.is_finite() => error / (of_largest + MOST_CHANGES * moves),
                false => f64::INFINITY,
            }
        };
        Ok(found.iter().zip(wanted).zip(&moves).map(share).fold(0.0, f64::max))
    }

    /// Returns the largest movement of each element under perturbation; infinite if an element is
    /// finite in one case only.
    fn moves(&self, wanted: &[f32], allowed: Allowed) -> Result<Vec<f64>, EvaluateError> {
        let [inner, known] = self.parts();
        let amplifies = inner.iter().any(|&id| amplifies_errors(self.graph, id));
        let roundings = ROUNDINGS * (allowed.terms as f64).sqrt() * DType::F32.unit_roundoff();
        // Steep operations amplify any change, so they are only perturbed by rounding errors.
        let amplitude = if amplifies { roundings } else { allowed.tolerance };

        let mut moves = vec![0f64; wanted.len()];
        for seed in 0..CHANGES {
            // Fixed seeds make the check repeatable.
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let operand = |&id: &NodeId| Some((id, changed((self.known)(id)?, amplitude, &mut rng)));
            let operands: BTreeMap<NodeId, Tensor> = known.iter().filter_map(operand).collect();
            let constant = |_: NodeId, tensor: Cow<'k, Tensor>| match self.changes_constants {
                true => Cow::Owned(changed(&tensor, roundings, &mut rng)),
                false => tensor,
            };
            let made = self.made_of(&inner, |id| operands.get(&id).cloned().map(Cow::Owned), constant)?;
            let numbers = made.get(&self.node).ok_or_else(|| missing(self.graph, self.node))?.to_numbers();

            for ((moves, &wanted), number) in moves.iter_mut().zip(wanted).zip(numbers) {
                let by = (f64::from(number) - f64::from(wanted)).abs();
                let is_same = number == wanted || number.is_nan() && wanted.is_nan();
                *moves = moves.max(if is_same {
                    0.0
                } else if by.is_nan() {
                    f64::INFINITY
                } else {
                    by
                });
            }
        }
        Ok(moves)
    }
}

/// Returns a tensor with each number perturbed by up to a fraction of itself.
fn changed(tensor: &Tensor, part: f64, rng: &mut ChaCha8Rng) -> Tensor {
    match tensor {
        Tensor::F32(numbers) => {
            Tensor::F32(numbers.mapv(|x| (f64::from(x) * (1.0 + part * rng.random_range(-1.0..=1.0))) as f32))
        }
        whole => whole.clone(),
    }
}

/// True for an operation that may amplify changes of its operands, relative to their largest
/// elements.
fn amplifies_errors(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    node.op.amplifies_errors(node.operands.iter().all(|&id| graph.constant_of(id).is_none()))
}

/// Returns an error: a node is evaluated before its operand.
pub(super) fn missing(graph: &Graph, id: NodeId) -> EvaluateError {
    graph.node(id).wrong(OpError::Unfit("the node is evaluated after its reader".into())).into()
}

/// Returns the largest finite magnitude.
pub(super) fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().filter(|x| x.is_finite()).fold(0f32, |most, x| most.max(x.abs()))
}

/// Returns the largest elementwise difference, relative to the largest element of each wanted
/// tensor.
pub fn output_error(found: &[Tensor], wanted: &[Tensor]) -> f64 {
    let error = |(found, wanted): (&Tensor, &Tensor)| {
        let (found, wanted) = (found.to_numbers(), wanted.to_numbers());
        difference(&found, &wanted, largest(&wanted))
    };
    found.iter().zip(wanted).map(error).fold(0.0, f64::max)
}

/// Returns the largest elementwise difference of two tensors divided by `most`; infinite if exactly
/// one of two elements is not finite.
pub(super) fn difference(found: &[f32], wanted: &[f32], most: f32) -> f64 {
    let most = f64::from(most.max(f32::MIN_POSITIVE));
    let error = |(&x, &y): (&f32, &f32)| match x == y || x.is_nan() && y.is_nan() {
        true => 0.0,
        false if x.is_finite() && y.is_finite() => (f64::from(x) - f64::from(y)).abs() / most,
        false => f64::INFINITY,
    };
    found.iter().zip(wanted).map(error).fold(0.0, f64::max)
}
