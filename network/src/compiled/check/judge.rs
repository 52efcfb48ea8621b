//! How far a tensor may be from what the reference makes of the same operands.
//!
//! An error is first relative to the largest element. Where that is exceeded, as of sums that
//! cancel and of rows that are all the same, it is compared with how far the reference itself moves
//! when its operands are changed a little, element by element: what a step computes is right if it
//! is right for operands that are next to those that it was given (backward error; Higham,
//! "Accuracy and Stability of Numerical Algorithms", chapter 1).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use autotune_ir::DType;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use autotune_graph::Tensor;
use autotune_graph::{EvaluateError, OpError};
use autotune_graph::{Graph, NodeId};

/// How often operands are changed at random, and how many times the largest difference that this
/// makes of an element its error may be.
const CHANGES: u64 = 8;
const MOST_CHANGES: f64 = 4.0;

/// How many units of rounding, times the root of the number of values that are combined, operands
/// of what is steep are changed by.
const ROUNDINGS: f64 = 4.0;

/// What a kernel may be off by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    /// Part of the largest element; 0 if nothing is rounded.
    pub(super) tolerance: f64,
    /// Values that are combined to one.
    pub(super) terms: usize,
}

impl Allowed {
    /// Of what is copied, or computed by the reference itself.
    pub(super) const NOTHING: Self = Self { tolerance: 0.0, terms: 1 };
}

/// A node, what of the tensors in front of it is known, and whether constants are changed like
/// these.
pub(super) struct Segment<'k, 'f> {
    pub(super) graph: &'k Graph,
    pub(super) node: NodeId,
    pub(super) known: &'f dyn Fn(NodeId) -> Option<&'k Tensor>,
    pub(super) changes_constants: bool,
}

/// Tensors of a segment by their nodes.
pub(super) type Made<'k> = BTreeMap<NodeId, Cow<'k, Tensor>>;

impl<'k> Segment<'k, '_> {
    /// Nodes on the way from known tensors, and the known ones.
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

    /// True if more than one node computes something, others than constants.
    pub(super) fn has_several(&self) -> bool {
        let [inner, _] = self.parts();
        inner.iter().filter(|&&id| self.graph.constant_of(id).is_none()).count() > 1
    }

    /// The tensors that the reference makes on the way to that of the node, which is the last, from
    /// those that are known.
    pub(super) fn made(&self) -> Result<Made<'k>, EvaluateError> {
        let [inner, _] = self.parts();
        self.made_of(&inner, |id| (self.known)(id).map(Cow::Borrowed), |_, tensor| tensor)
    }

    fn made_of(
        &self,
        inner: &BTreeSet<NodeId>,
        known: impl Fn(NodeId) -> Option<Cow<'k, Tensor>>,
        mut constant: impl FnMut(NodeId, Cow<'k, Tensor>) -> Cow<'k, Tensor>,
    ) -> Result<Made<'k>, EvaluateError> {
        let mut made: Made = BTreeMap::new();
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

    /// By how much of its tolerance a tensor is off, at most, of each element by the largest and by
    /// how far that moves.
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
            match found == wanted || found.is_nan() && wanted.is_nan() || moves == f64::INFINITY {
                true => 0.0,
                false if found.is_finite() && wanted.is_finite() => error / (of_largest + MOST_CHANGES * moves),
                false => f64::INFINITY,
            }
        };
        Ok(found.iter().zip(wanted).zip(&moves).map(share).fold(0.0, f64::max))
    }

    /// The largest difference that changes of the operands make of each element; infinite where one
    /// is finite in one case only.
    fn moves(&self, wanted: &[f32], allowed: Allowed) -> Result<Vec<f64>, EvaluateError> {
        let [inner, known] = self.parts();
        let is_steep = inner.iter().any(|&id| is_steep(self.graph, id));
        let roundings = ROUNDINGS * (allowed.terms as f64).sqrt() * DType::F32.unit_roundoff();
        let amplitude = if is_steep { roundings } else { allowed.tolerance };

        let mut moves = vec![0f64; wanted.len()];
        for seed in 0..CHANGES {
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

/// A tensor of whose numbers each is changed by up to a part of itself.
fn changed(tensor: &Tensor, part: f64, rng: &mut ChaCha8Rng) -> Tensor {
    match tensor {
        Tensor::F32(numbers) => {
            Tensor::F32(numbers.mapv(|x| (f64::from(x) * (1.0 + part * rng.random_range(-1.0..=1.0))) as f32))
        }
        whole => whole.clone(),
    }
}

/// True for what may make a small change of its operands larger than they are relative to their
/// largest.
fn is_steep(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    node.op.is_steep(node.operands.iter().all(|&id| graph.constant_of(id).is_none()))
}

/// That a tensor is not there which a node is computed of.
pub(super) fn missing(graph: &Graph, id: NodeId) -> EvaluateError {
    graph.node(id).wrong(OpError::Unfit("it stands behind who reads it".into())).into()
}

/// The largest finite magnitude.
pub(super) fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().filter(|x| x.is_finite()).fold(0f32, |most, x| most.max(x.abs()))
}

/// Returns the largest difference of tensors' elements, by the largest of each wanted tensor.
pub fn output_error(found: &[Tensor], wanted: &[Tensor]) -> f64 {
    let error = |(found, wanted): (&Tensor, &Tensor)| {
        let (found, wanted) = (found.to_numbers(), wanted.to_numbers());
        difference(&found, &wanted, largest(&wanted))
    };
    found.iter().zip(wanted).map(error).fold(0.0, f64::max)
}

/// The largest difference of two tensors' elements, by `most`; infinite where either is no number
/// alone.
pub(super) fn difference(found: &[f32], wanted: &[f32], most: f32) -> f64 {
    let most = f64::from(most.max(f32::MIN_POSITIVE));
    let error = |(&x, &y): (&f32, &f32)| match x == y || x.is_nan() && y.is_nan() {
        true => 0.0,
        false if x.is_finite() && y.is_finite() => (f64::from(x) - f64::from(y)).abs() / most,
        false => f64::INFINITY,
    };
    found.iter().zip(wanted).map(error).fold(0.0, f64::max)
}
