//! What a node of a network computes: an [`Operator`].

use std::any::Any;
use std::fmt::{self, Debug};
use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;

use autotune_ir::DType;
use autotune_workloads::{Epilogue, Operands, Reference, Workload};

use crate::error::OpError;
use crate::onnx::error::ExportError;
use crate::onnx::writer::Writer;
use crate::tensor::{Tensor, array, elements};
use crate::typed::check_has_tensors;

pub use crate::tensor::Facts;

/// An operator with its attributes. Each is a file of its own, in `operators/` or in another crate,
/// from which import, shapes, reference, steps and export are made. Shapes are outermost first;
/// images are `[n, c, ..spatial]`; axes are counted from the outermost one, from 0 on.
///
/// Two operators are equal if they are of one type and equal; their `Debug` text has all that
/// distinguishes them.
pub trait Operator: Any + Comparable + Debug + Send + Sync {
    /// The operator in a word, as messages have it: the name of its type, if it says no other.
    fn name(&self) -> &'static str {
        let path = std::any::type_name::<Self>();
        path.rsplit_once("::").map_or(path, |(_, name)| name)
    }

    /// Returns shape and element type of the output; fails for operands that it cannot have.
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError>;

    /// Computes the output, of which `shape` has no extent of 0, from operands that
    /// [`Operator::output`] took: as the spec of the workload says, if nothing else does.
    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        by_spec(self, operands, shape)
    }

    /// Returns shape and element type of the output, from those of the operands.
    fn infer(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let (shape, dtype) = self.output(operands)?;
        elements(&shape)?;
        check_has_tensors(dtype)?;
        Ok((shape, dtype))
    }

    /// Returns the output, from the operands: the reference that kernels and rewriting are held to.
    /// Functions and sums are computed in double precision and rounded once; where ONNX has the
    /// operation, the meaning is its own. Whole numbers wrap around; an integer division by zero,
    /// and a number of a `Gather` that is out of range, are errors.
    ///
    /// ```
    /// use autotune_graph::{Operator, Tensor, operators::MatMul};
    /// let x = Tensor::f32(&[1, 3], vec![1.0, 2.0, 3.0])?;
    /// let y = MatMul.evaluate(&[&x, &Tensor::f32(&[3, 1], vec![1.0; 3])?])?;
    /// assert_eq!(y, Tensor::f32(&[1, 1], vec![6.0])?);
    /// # Ok::<(), autotune_graph::OpError>(())
    /// ```
    fn evaluate(&self, operands: &[&Tensor]) -> Result<Tensor, OpError> {
        let known: Vec<Facts> = operands.iter().map(|tensor| (tensor.shape(), tensor.dtype())).collect();
        let (shape, dtype) = self.infer(&known)?;
        // Behind this, no extent of the output is 0; one of an operand may be.
        match elements(&shape)? {
            0 => Tensor::of_numbers(&shape, dtype, &[]),
            _ => self.compute(operands, &shape),
        }
    }

    /// Returns the workload that computes a node of this operator, if there is one.
    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let _ = node;
        None
    }

    /// Returns where the elements of the output are among those of the operands, if it computes
    /// none.
    fn movement(&self, node: &NodeView) -> Option<Movement> {
        let _ = node;
        None
    }

    /// Returns other operators that compute the same, for a node without a workload: nodes one
    /// behind the other, the last of which has its tensor.
    fn parts(&self, node: &NodeView) -> Option<Vec<Part>> {
        let _ = node;
        None
    }

    /// Writes a node as operators of ONNX.
    fn export(&self, to: &mut Writer) -> Result<(), ExportError> {
        Err(to.wrong("ONNX has no such operator"))
    }

    /// Returns about how many steps an evaluation takes, if that can be counted.
    fn steps(&self, operands: &[Facts], output: &[usize]) -> Option<usize> {
        let first = operands.first().map_or(&[][..], |&(shape, _)| shape);
        product(output)?.checked_add(product(first)?)
    }

    /// True if an evaluation takes about as long as reading the operands: large constants are
    /// computed anew each time.
    fn is_light(&self) -> bool {
        false
    }

    /// True if what it makes of constants is not computed until rules have seen it: they may put
    /// something better in its place than its tensor.
    fn keeps_constants(&self) -> bool {
        false
    }

    /// True if a small change of operands may change the output by more, relative to the largest
    /// elements; `of_data` is true if no operand is a constant.
    fn is_steep(&self, of_data: bool) -> bool {
        let _ = of_data;
        false
    }

    /// Returns the axis of channels of an output of some axes, if each element is a sum of products
    /// with weights.
    fn channel_of_sums(&self, rank: usize) -> Option<usize> {
        let _ = rank;
        None
    }
}

/// Comparison of operators of any type; every type that is `PartialEq` has it.
pub trait Comparable {
    /// True if the other is of the same type and equal.
    fn is_same(&self, other: &dyn Any) -> bool;
}

impl<T: PartialEq + Any> Comparable for T {
    fn is_same(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>().is_some_and(|other| self == other)
    }
}

/// An operator of a node, shared by all nodes that are made of it.
#[derive(Clone)]
pub struct Op(Arc<dyn Operator>);

impl Op {
    /// Returns the operator, if it is of this type.
    ///
    /// ```
    /// use autotune_graph::{Op, operators::{MatMul, Transpose}};
    /// let op = Op::from(Transpose(vec![1, 0]));
    /// let Some(Transpose(perm)) = op.of() else { unreachable!() };
    /// assert_eq!(*perm, [1, 0]);
    /// assert!(!op.is::<MatMul>());
    /// ```
    pub fn of<T: Operator>(&self) -> Option<&T> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }

    /// True if the operator is of this type.
    pub fn is<T: Operator>(&self) -> bool {
        self.of::<T>().is_some()
    }
}

impl<T: Operator> From<T> for Op {
    fn from(operator: T) -> Self {
        Self(Arc::new(operator))
    }
}

impl Deref for Op {
    type Target = dyn Operator;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Self) -> bool {
        self.0.is_same(&*other.0)
    }
}

impl<T: Operator> PartialEq<T> for Op {
    fn eq(&self, other: &T) -> bool {
        self.0.is_same(other)
    }
}

impl Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The operator of nodes whose tensors the caller brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input;

impl Operator for Input {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 0..=0)?;
        unfit("it has its shape from elsewhere")
    }

    fn compute(&self, _: &[&Tensor], _: &[usize]) -> Result<Tensor, OpError> {
        unfit("it has its tensor from elsewhere")
    }
}

/// What the spec of an operator's workload makes of operands.
fn by_spec(operator: &(impl Operator + ?Sized), operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    let known: Vec<Facts> = operands.iter().map(|tensor| (tensor.shape(), tensor.dtype())).collect();
    let (input, dtype) = (Op::from(Input), operator.output(&known)?.1);
    let given = known.iter().map(|&facts| OperandView { facts, op: &input }).collect();
    let anchor = operator.workload(&NodeView { operands: given, output: (shape, dtype) });
    let anchor = anchor.ok_or_else(|| OpError::Unfit("nothing says what it computes of such operands".into()))?;

    let spec = anchor.workload.spec();
    let read = anchor.reads.iter().filter_map(|read| match *read {
        Read::Operand(operand) => Some(operands[operand].to_numbers()),
        Read::Behind(_) => None,
    });
    let tensors = read.zip(spec.operands()).map(|(numbers, tensor)| array(&tensor.shape, numbers));
    let given = Operands::of(spec, tensors.collect::<Result<_, _>>()?).map_err(|e| OpError::Unfit(e.to_string()))?;
    let made = Reference::with_bound(spec, &given, u64::MAX, 0).map_err(|e| OpError::Unfit(e.to_string()))?;
    let numbers: Vec<f32> = made.exact().into_iter().flatten().copied().collect();
    Tensor::of_numbers(shape, dtype, &numbers)
}

/// A node as its operator sees it.
pub struct NodeView<'a> {
    pub(crate) operands: Vec<OperandView<'a>>,
    pub(crate) output: Facts<'a>,
}

/// An operand of a node: its tensor, and what computes it.
#[derive(Clone, Copy)]
pub(crate) struct OperandView<'a> {
    pub(crate) facts: Facts<'a>,
    pub(crate) op: &'a Op,
}

impl<'a> NodeView<'a> {
    /// Returns the number of operands.
    pub fn count(&self) -> usize {
        self.operands.len()
    }

    /// Returns the shape of an operand.
    pub fn shape(&self, operand: usize) -> &'a [usize] {
        self.operands[operand].facts.0
    }

    /// Returns the element type of an operand.
    pub fn dtype(&self, operand: usize) -> DType {
        self.operands[operand].facts.1
    }

    /// Returns what computes an operand.
    pub fn op(&self, operand: usize) -> &'a Op {
        self.operands[operand].op
    }

    /// Returns shape and element type of the output.
    pub fn output(&self) -> Facts<'a> {
        self.output
    }
}

/// A workload that computes a node's tensor.
#[derive(Clone, Debug)]
pub struct Anchor {
    /// What is computed; that weights are constant, and what is fused behind it, is added to it.
    pub workload: Workload,
    /// What it reads, in the order of its spec.
    pub reads: Vec<Read>,
    /// The axis of the node's tensor along which an epilogue has scale and bias, if there is one.
    pub channel: Option<usize>,
    /// True if the epilogue may scale the tensor along that axis, and add to it.
    pub takes_sums: bool,
}

/// A tensor that a step reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The operand of a number.
    Operand(usize),
    /// The first operand of what computes it.
    Behind(usize),
}

impl Anchor {
    /// A workload on all operands of a node, whose epilogue is an activation at most.
    pub fn new(workload: Workload, node: &NodeView) -> Self {
        let reads = (0..node.count()).map(Read::Operand).collect();
        Self { workload, reads, channel: None, takes_sums: false }
    }

    /// The same with an epilogue that has a value for each step along an axis: its scale, its bias
    /// and sums with others.
    pub fn with_sums(self, channel: Option<usize>) -> Self {
        Self { channel, takes_sums: true, ..self }
    }

    /// The same with the last operand as the bias of the epilogue, if there are three.
    pub fn with_bias(self) -> Self {
        let epilogue = Epilogue { bias: self.reads.len() == 3, ..self.workload.epilogue() };
        Self { workload: self.workload.with_epilogue(epilogue), ..self }
    }
}

/// Where the elements of an output are among those of the operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Movement {
    /// In one piece in the first operand, from the element of this number on.
    Piece(usize),
    /// In the first operand: element `i, j, ..` of the output is that at
    /// `from + i * steps[0] + j * steps[1] ..`.
    Strided {
        /// The first.
        from: usize,
        /// Distances of neighbours along each axis of the output.
        steps: Vec<isize>,
    },
    /// In all operands, one behind the other along this axis.
    Parts(usize),
}

/// One of the nodes that compute the same as another.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it computes.
    pub op: Op,
    /// Of what: numbers of the other node's operands, and behind them of parts.
    pub operands: Vec<usize>,
}

impl Part {
    /// A node of an operator.
    pub fn new(op: impl Into<Op>, operands: Vec<usize>) -> Self {
        Self { op: op.into(), operands }
    }
}

/// Returns the shapes of operands of one element type, if they are as many as an operator has.
pub fn shapes_of<'a>(
    operands: &[Facts<'a>],
    counts: RangeInclusive<usize>,
    dtype: DType,
) -> Result<Vec<&'a [usize]>, OpError> {
    check_count(operands, counts)?;
    (0..operands.len()).try_for_each(|operand| check_dtype(operands, operand, dtype))?;
    Ok(operands.iter().map(|&(shape, _)| shape).collect())
}

/// Fails unless operands are as many as an operator has.
pub fn check_count(operands: &[Facts], counts: RangeInclusive<usize>) -> Result<(), OpError> {
    match counts.contains(&operands.len()) {
        true => Ok(()),
        false => Err(OpError::Count { found: operands.len(), wanted: counts }),
    }
}

/// Fails unless an operand is of an element type.
pub fn check_dtype(operands: &[Facts], operand: usize, wanted: DType) -> Result<(), OpError> {
    match operands[operand].1 {
        found if found == wanted => Ok(()),
        found => Err(OpError::DType { operand, found, wanted: wanted.word() }),
    }
}

/// Fails unless all operands from one on are of one element type.
pub fn check_alike(operands: &[Facts], first: usize) -> Result<(), OpError> {
    let wrong = (first..operands.len()).find(|&operand| operands[operand].1 != operands[first].1);
    let wanted = "the type of the others";
    wrong.map_or(Ok(()), |operand| Err(OpError::DType { operand, found: operands[operand].1, wanted }))
}

/// Returns an axis that a shape has.
pub fn axis_of(axis: usize, shape: &[usize]) -> Result<usize, OpError> {
    if axis < shape.len() { Ok(axis) } else { unfit(format!("axis {axis} of a tensor of shape {shape:?}")) }
}

/// Fails: attributes or shapes do not fit each other.
pub fn unfit<T>(reason: impl Into<String>) -> Result<T, OpError> {
    Err(OpError::Unfit(reason.into()))
}

/// Returns the number of elements of a shape, if that is a number.
pub(crate) fn product(extents: &[usize]) -> Option<usize> {
    extents.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent))
}

/// The shape that two shapes are broadcast to, as in NumPy: axes are matched from the last on, an
/// extent of 1 fits all.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, OpError> {
    let rank = a.len().max(b.len());
    let extent = |shape: &[usize], axis: usize| match (axis + shape.len()).checked_sub(rank) {
        Some(own) => shape[own],
        None => 1,
    };
    let merged = (0..rank).map(|axis| match (extent(a, axis), extent(b, axis)) {
        (a, b) if a == b => Some(a),
        (1, other) | (other, 1) => Some(other),
        _ => None,
    });
    let merged: Option<Vec<usize>> = merged.collect();
    merged.ok_or_else(|| OpError::Unfit(format!("shapes {a:?} and {b:?} cannot be broadcast to each other")))
}

/// `shape`, if `other` is broadcast to it.
pub(crate) fn fixed(shape: &[usize], other: &[usize]) -> Result<Vec<usize>, OpError> {
    match broadcast(shape, other) {
        Ok(merged) if merged == shape => Ok(merged),
        _ => unfit(format!("shape {other:?} cannot be broadcast to {shape:?}")),
    }
}
