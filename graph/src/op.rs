//! Interface of operators ([`Operator`]) and their place in a graph.

use std::any::{Any, TypeId};
use std::fmt::{self, Debug};
use std::hash::{DefaultHasher, Hasher};
use std::ops::{Deref, RangeInclusive};
use std::sync::{Arc, OnceLock};

use autotune_ir::DType;
use autotune_workloads::{Epilogue, Operands, Reference, Workload};

use crate::error::OpError;
use crate::onnx::error::ExportError;
use crate::onnx::writer::NodeWriter;
use crate::tensor::{Tensor, array, elements};
use crate::typed::check_has_tensors;

pub use crate::tensor::Facts;

/// An operator with its attributes. Each is in a file of its own, in `operators/` or in another
/// crate, with ONNX import and export, shape inference, reference evaluation, and workload. Shapes
/// are outermost first; images are `[n, c, ..spatial]`; axes are numbered from 0, the outermost.
///
/// Two operators are equal if they have the same type and compare equal. Their `Debug` text
/// contains everything that distinguishes them.
pub trait Operator: Any + Comparable + Debug + Send + Sync {
    /// Returns the operator's name for messages, by default the name of its type.
    fn name(&self) -> &'static str {
        let path = std::any::type_name::<Self>();
        path.rsplit_once("::").map_or(path, |(_, name)| name)
    }

    /// Returns shape and element type of the output; fails for invalid operands.
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError>;

    /// Computes the output from operands that [`Operator::output`] accepted; no extent of `shape`
    /// is 0. By default the spec of the workload is evaluated.
    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        by_spec(self, operands, shape)
    }

    /// Returns shape and element type of the output; also fails if the output is too large.
    fn infer(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        let (shape, dtype) = self.output(operands)?;
        elements(&shape)?;
        check_has_tensors(dtype)?;
        Ok((shape, dtype))
    }

    /// Evaluates the operator. This is the reference for kernels and rewriting. Functions and sums
    /// are computed in double precision and rounded once; the meaning follows ONNX. Integers wrap
    /// around; an integer division by zero and a `Gather` index out of range are errors.
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
        // From here on the output has elements; an operand may still be empty.
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

    /// Returns the positions of the output's elements among those of the operands, if the operator
    /// only moves elements.
    fn movement(&self, node: &NodeView) -> Option<Movement> {
        let _ = node;
        None
    }

    /// Returns an equivalent sequence of other operators, for a node without a workload. The last
    /// one computes the node's tensor.
    fn parts(&self, node: &NodeView) -> Option<Vec<SubNode>> {
        let _ = node;
        None
    }

    /// Writes a node as ONNX operators.
    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        Err(to.wrong("ONNX has no such operator"))
    }

    /// Returns the approximate number of steps of an evaluation, if it is known.
    fn steps(&self, operands: &[Facts], output: &[usize]) -> Option<usize> {
        let first = operands.first().map_or(&[][..], |&(shape, _)| shape);
        product(output)?.checked_add(product(first)?)
    }

    /// True if an evaluation takes about as long as reading the operands. Large constant results
    /// are then recomputed on each use.
    fn is_cheap(&self) -> bool {
        false
    }

    /// True if constant results are not folded before rewrite rules have seen the operator, since a
    /// rule may find a better form.
    fn keeps_constants(&self) -> bool {
        false
    }

    /// True if the output may change by more than the operands, relative to the largest elements.
    /// `of_data` is true if no operand is constant.
    fn amplifies_errors(&self, of_data: bool) -> bool {
        let _ = of_data;
        false
    }

    /// Returns the channel axis of an output of rank `rank`, if each element is a sum of products
    /// with weights.
    fn channel_of_sums(&self, rank: usize) -> Option<usize> {
        let _ = rank;
        None
    }
}

/// Comparison of operators of any type, implemented for all types with `PartialEq`.
pub trait Comparable {
    /// True if `other` has the same type and is equal.
    fn is_same(&self, other: &dyn Any) -> bool;
}

impl<T: PartialEq + Any> Comparable for T {
    fn is_same(&self, other: &dyn Any) -> bool {
        other.downcast_ref::<T>().is_some_and(|other| self == other)
    }
}

/// Shared handle to an operator.
#[derive(Clone)]
pub struct Op(Arc<SharedOperator>);

struct SharedOperator<T: ?Sized = dyn Operator> {
    /// Type of the operator, which rules compare often.
    type_id: TypeId,
    /// Hash of the operator's text, once it was requested.
    text_hash: OnceLock<u64>,
    operator: T,
}

impl Op {
    /// Returns the operator if its type is `T`.
    pub fn of<T: Operator>(&self) -> Option<&T> {
        let any: &dyn Any = &self.0.operator;
        if self.is::<T>() { any.downcast_ref() } else { None }
    }

    /// True if the operator has type `T`.
    pub fn is<T: Operator>(&self) -> bool {
        self.0.type_id == TypeId::of::<T>()
    }

    /// Returns a hash of the operator's debug text, which contains all of its attributes.
    pub(crate) fn text_hash(&self) -> u64 {
        struct Text(DefaultHasher);
        impl fmt::Write for Text {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                self.0.write(text.as_bytes());
                Ok(())
            }
        }

        *self.0.text_hash.get_or_init(|| {
            let mut text = Text(DefaultHasher::new());
            // Writing to a hasher does not fail.
            let _ = fmt::Write::write_fmt(&mut text, format_args!("{self:?}"));
            text.0.finish()
        })
    }
}

impl<T: Operator> From<T> for Op {
    fn from(operator: T) -> Self {
        Self(Arc::new(SharedOperator { type_id: TypeId::of::<T>(), text_hash: OnceLock::new(), operator }))
    }
}

impl Deref for Op {
    type Target = dyn Operator;

    fn deref(&self) -> &Self::Target {
        &self.0.operator
    }
}

impl PartialEq for Op {
    fn eq(&self, other: &Self) -> bool {
        self.0.operator.is_same(&other.0.operator)
    }
}

impl<T: Operator> PartialEq<T> for Op {
    fn eq(&self, other: &T) -> bool {
        self.0.operator.is_same(other)
    }
}

impl Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.operator.fmt(f)
    }
}

/// Operator of graph inputs, whose tensors the caller provides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input;

impl Operator for Input {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 0..=0)?;
        unfit("an input's shape is declared by the graph")
    }

    fn compute(&self, _: &[&Tensor], _: &[usize]) -> Result<Tensor, OpError> {
        unfit("an input's tensor is passed by the caller")
    }
}

/// Evaluates the spec of an operator's workload.
fn by_spec(operator: &(impl Operator + ?Sized), operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
    let known: Vec<Facts> = operands.iter().map(|tensor| (tensor.shape(), tensor.dtype())).collect();
    // Without a graph, operands count as inputs.
    let (input, dtype) = (Op::from(Input), operator.output(&known)?.1);
    let given = known.iter().map(|&facts| OperandView { facts, op: &input }).collect();
    let anchor = operator.workload(&NodeView { operands: given, output: (shape, dtype) });
    let anchor = anchor.ok_or_else(|| OpError::Unfit("no definition of the operator for these operands".into()))?;

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

/// View of a node for its operator.
pub struct NodeView<'a> {
    pub(crate) operands: Vec<OperandView<'a>>,
    pub(crate) output: Facts<'a>,
}

/// An operand of a node: shape and type, and the operator that computes it.
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

    /// Returns the operator that computes an operand.
    pub fn op(&self, operand: usize) -> &'a Op {
        self.operands[operand].op
    }

    /// Returns shape and element type of the output.
    pub fn output(&self) -> Facts<'a> {
        self.output
    }
}

/// A workload that computes a node, as the anchor of a fused step.
#[derive(Clone, Debug)]
pub struct Anchor {
    /// Workload of the node alone; fusion adds the epilogue and marks constant weights.
    pub workload: Workload,
    /// Tensors that the workload reads, in the order of its spec.
    pub reads: Vec<Read>,
    /// Axis of the node's tensor along which an epilogue has scale and bias, if any.
    pub channel: Option<usize>,
    /// True if the epilogue may scale along the axis, and add tensors.
    pub allows_scale_and_add: bool,
}

/// A tensor that a workload reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The node's operand with this number.
    Operand(usize),
    /// The first operand of the node's operand with this number, for operands that are folded into
    /// the workload.
    Behind(usize),
}

impl Anchor {
    /// Creates an anchor that reads all operands of a node; its epilogue supports an activation at
    /// most.
    pub fn new(workload: Workload, node: &NodeView) -> Self {
        let reads = (0..node.count()).map(Read::Operand).collect();
        Self { workload, reads, channel: None, allows_scale_and_add: false }
    }

    /// Permits an epilogue with a scale, a bias and additions, with one value for each position
    /// along an axis.
    pub fn with_sums(self, channel: Option<usize>) -> Self {
        Self { channel, allows_scale_and_add: true, ..self }
    }

    /// Makes the last of three operands the bias of the epilogue.
    pub fn with_bias(self) -> Self {
        let epilogue = Epilogue { bias: self.reads.len() == 3, ..self.workload.epilogue() };
        Self { workload: self.workload.with_epilogue(epilogue), ..self }
    }
}

/// Positions of an output's elements among those of the operands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Movement {
    /// A contiguous part of the first operand, from the element with this number on.
    Piece(usize),
    /// Strided positions in the first operand: element `i, j, ..` of the output is the one at
    /// `from + i * steps[0] + j * steps[1] + ..`.
    Strided {
        /// Number of the first element.
        from: usize,
        /// Distances between neighbours along each axis of the output, in elements.
        steps: Vec<isize>,
    },
    /// Concatenation of all operands along this axis.
    Parts(usize),
}

/// A node of an operator's decomposition.
#[derive(Clone, Debug)]
pub struct SubNode {
    /// Operator of the node.
    pub op: Op,
    /// Operands, by number: first the decomposed node's operands, then the results of earlier
    /// parts.
    pub operands: Vec<usize>,
}

impl SubNode {
    /// Creates a node with an operator.
    pub fn new(op: impl Into<Op>, operands: Vec<usize>) -> Self {
        Self { op: op.into(), operands }
    }
}

/// Returns the shapes of operands; fails unless their number and element types are as expected.
pub fn shapes_of<'a>(
    operands: &[Facts<'a>],
    counts: RangeInclusive<usize>,
    dtype: DType,
) -> Result<Vec<&'a [usize]>, OpError> {
    check_count(operands, counts)?;
    (0..operands.len()).try_for_each(|operand| check_dtype(operands, operand, dtype))?;
    Ok(operands.iter().map(|&(shape, _)| shape).collect())
}

/// Fails unless the number of operands is in range.
pub fn check_count(operands: &[Facts], counts: RangeInclusive<usize>) -> Result<(), OpError> {
    match counts.contains(&operands.len()) {
        true => Ok(()),
        false => Err(OpError::Count { found: operands.len(), wanted: counts }),
    }
}

/// Fails unless an operand has an element type.
pub fn check_dtype(operands: &[Facts], operand: usize, wanted: DType) -> Result<(), OpError> {
    match operands[operand].1 {
        found if found == wanted => Ok(()),
        found => Err(OpError::DType { operand, found, wanted: wanted.word() }),
    }
}

/// Fails unless all operands from `first` on have the same element type.
pub fn check_alike(operands: &[Facts], first: usize) -> Result<(), OpError> {
    let wrong = (first..operands.len()).find(|&operand| operands[operand].1 != operands[first].1);
    let wanted = "the type of the other operands";
    wrong.map_or(Ok(()), |operand| Err(OpError::DType { operand, found: operands[operand].1, wanted }))
}

/// Returns an axis; fails if it is out of range.
pub fn axis_of(axis: usize, shape: &[usize]) -> Result<usize, OpError> {
    if axis < shape.len() { Ok(axis) } else { unfit(format!("axis {axis} is out of range for shape {shape:?}")) }
}

/// Fails because attributes or shapes do not fit each other.
pub fn unfit<T>(reason: impl Into<String>) -> Result<T, OpError> {
    Err(OpError::Unfit(reason.into()))
}

/// Returns the number of elements of a shape; `None` on overflow.
pub(crate) fn product(extents: &[usize]) -> Option<usize> {
    extents.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent))
}

/// Returns the shape that two shapes broadcast to, as in NumPy: axes are aligned at the last one,
/// and an extent of 1 fits any other.
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

/// Returns `shape`, if `other` broadcasts to it.
pub(crate) fn fixed(shape: &[usize], other: &[usize]) -> Result<Vec<usize>, OpError> {
    match broadcast(shape, other) {
        Ok(merged) if merged == shape => Ok(merged),
        _ => unfit(format!("shape {other:?} cannot be broadcast to {shape:?}")),
    }
}
