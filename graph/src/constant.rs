//! Tensors that are the same in all runs: in memory, in a file, or computed on demand.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use autotune_ir::DType;

use crate::error::OpError;
use crate::mapped::Mapped;
use crate::op::{Facts, Movement, NodeView, Op, OperandView, Operator, check_count};
use crate::tensor::{Tensor, array, elements};
use crate::walk::TensorRows;

/// Minimum size in bytes of a tensor that is not loaded before it is packed.
pub(crate) const LARGE_BYTES: usize = 64 << 10;

/// Number of bytes that are copied at once.
const COPIED_BYTES: usize = 4 << 20;

/// Maximum number of results that a constant knows. More would make the time of folding quadratic
/// in the number of nodes.
const MOST_DERIVED: usize = 64;

/// Maximum number of operations in a row that are applied whenever a constant is read, such as
/// Cast, Sub and Mul of weights in 8 bits. Longer chains would take unbounded time.
const MOST_STEPS: usize = 8;

/// Maximum number of operations in a row whose sources are kept. Longer chains would be dropped
/// with a deep stack.
const MOST_KEPT: usize = 32;

/// Shared handle to a tensor that is the same in all runs.
///
/// Large weights remain in their files, and constants folded from them are not computed before a
/// kernel packs them. So they occupy memory once, in packed form.
#[derive(Clone)]
pub struct Constant(Arc<ConstantInner>);

/// Weak handle to a constant; its address is not reused while this handle exists. Handles are equal
/// if they belong to one constant.
#[derive(Clone)]
pub struct Identity(Weak<ConstantInner>);

/// Result of an operation on a constant and others, while it exists.
struct Derived {
    op: Op,
    others: Vec<Identity>,
    result: Identity,
}

struct ConstantInner {
    shape: Vec<usize>,
    dtype: DType,
    origin: ConstantOrigin,
    /// Tensor in memory, once it was requested.
    tensor: OnceLock<Arc<Tensor>>,
    /// Existing results of operations with this constant as the first operand.
    derived: Mutex<Vec<Derived>>,
    /// Constants that this one was made of, if they need little memory: while they exist, the
    /// operation is recognised again.
    _sources: Vec<Constant>,
    /// Number of operations in a row whose sources are kept.
    kept: usize,
}

/// Source of a tensor.
enum ConstantOrigin {
    Memory,
    /// Little-endian f32 numbers in a range of the file, at any alignment.
    File(Arc<Mapped>, Range<usize>),
    /// Result of an operation on other constants, after at most [`MOST_STEPS`] operations in a row.
    Computed(Op, Vec<Constant>),
}

impl Constant {
    fn new(shape: Vec<usize>, dtype: DType, origin: ConstantOrigin, sources: Vec<Self>) -> Self {
        Self::with_tensor((shape, dtype), origin, OnceLock::new(), sources)
    }

    fn of_tensor(tensor: Arc<Tensor>, sources: Vec<Self>) -> Self {
        let facts = (tensor.shape().to_vec(), tensor.dtype());
        Self::with_tensor(facts, ConstantOrigin::Memory, tensor.into(), sources)
    }

    fn with_tensor(
        (shape, dtype): (Vec<usize>, DType),
        origin: ConstantOrigin,
        tensor: OnceLock<Arc<Tensor>>,
        mut sources: Vec<Self>,
    ) -> Self {
        let kept = sources.iter().map(|source| 1 + source.0.kept).max().unwrap_or_default();
        if kept > MOST_KEPT {
            sources.clear();
        }
        let kept = if sources.is_empty() { 0 } else { kept };
        Self(Arc::new(ConstantInner {
            shape,
            dtype,
            origin,
            tensor,
            derived: Mutex::default(),
            _sources: sources,
            kept,
        }))
    }

    /// Creates a constant of f32 numbers in a range of a file.
    pub(crate) fn in_file(shape: Vec<usize>, file: Arc<Mapped>, bytes: Range<usize>) -> Self {
        Self::new(shape, DType::F32, ConstantOrigin::File(file, bytes), Vec::new())
    }

    /// Returns the result of an operation on constants: the existing one, if the operation was
    /// applied to them before. A large one that cannot fail is computed on demand.
    pub(crate) fn computed(op: &Op, operands: &[&Constant]) -> Result<Self, OpError> {
        let Some((first, others)) = operands.split_first() else { return Self::newly_computed(op, operands) };
        let others: Vec<Identity> = others.iter().map(|other| other.identity()).collect();
        if let Some(known) = first.derived(op, &others) {
            return Ok(known);
        }

        let result = Self::newly_computed(op, operands)?;
        let mut derived = first.0.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if derived.len() >= MOST_DERIVED {
            derived.retain(|derived| derived.result.exists());
        }
        if derived.len() < MOST_DERIVED {
            derived.push(Derived { op: op.clone(), others, result: result.identity() });
        }
        Ok(result)
    }

    /// Returns the existing result of an operation on this constant and others.
    fn derived(&self, op: &Op, others: &[Identity]) -> Option<Self> {
        let derived = self.0.derived.lock().unwrap_or_else(PoisonError::into_inner);
        let found = derived.iter().find(|derived| derived.others == others && derived.op == *op);
        found?.result.constant()
    }

    fn newly_computed(op: &Op, operands: &[&Constant]) -> Result<Self, OpError> {
        let known: Vec<Facts> = operands.iter().map(|operand| (operand.shape(), operand.dtype())).collect();
        let (shape, dtype) = op.infer(&known)?;
        // A part of a file needs no memory at all.
        if let Some(part) = operands.first().and_then(|operand| operand.part_of_file(op, (&shape, dtype))) {
            return Ok(part);
        }
        let bytes = shape.iter().product::<usize>().saturating_mul(dtype.bytes());
        let is_simple = |operand: &&Constant| operand.is_of_numbers() && operand.steps() < MOST_STEPS;
        let is_f32 = dtype == DType::F32;
        if op.is_cheap() && is_f32 && bytes >= LARGE_BYTES && operands.iter().all(is_simple) {
            let operands = operands.iter().map(|&operand| operand.clone()).collect();
            return Ok(Self::new(shape, dtype, ConstantOrigin::Computed(op.clone(), operands), Vec::new()));
        }

        // An operation that takes longer than reading its operands need not keep them in memory.
        let steps = op.steps(&known, &shape).unwrap_or(usize::MAX);
        let is_long =
            steps > elements(&shape)?.saturating_add(known.first().map_or(0, |&(first, _)| first.iter().product()));
        let tensors: Vec<Cow<Tensor>> = operands
            .iter()
            .map(|&operand| match is_long {
                true => operand.read(),
                false => operand.tensor().map(|tensor| Cow::Borrowed(&**tensor)),
            })
            .collect::<Result<_, OpError>>()?;
        let tensor = Arc::new(op.evaluate(&tensors.iter().map(|tensor| &**tensor).collect::<Vec<_>>())?);
        let is_small =
            |operand: &&Constant| operand.shape().iter().product::<usize>() * operand.dtype().bytes() < LARGE_BYTES;
        let sources = match operands.iter().all(is_small) {
            true => operands.iter().map(|&operand| operand.clone()).collect(),
            false => Vec::new(),
        };
        Ok(Self::of_tensor(tensor, sources))
    }

    /// Returns the movement of an operation on this constant alone.
    fn moved(&self, op: &Op, output: Facts) -> Option<Movement> {
        let own = Op::from(self.clone());
        let operand = OperandView { facts: (self.shape(), self.dtype()), op: &own };
        op.movement(&NodeView { operands: vec![operand], output })
    }

    /// Returns the result of an operation as a part of the file, if it is contiguous there.
    fn part_of_file(&self, op: &Op, output: Facts) -> Option<Self> {
        let ConstantOrigin::File(file, bytes) = &self.0.origin else { return None };
        let Some(Movement::Piece(first)) = self.moved(op, output).filter(|_| output.1 == DType::F32) else {
            return None;
        };
        let (shape, size) = (output.0, self.dtype().bytes());
        let first = bytes.start + first * size;
        let part = first..first + shape.iter().product::<usize>() * size;
        let origin = ConstantOrigin::File(Arc::clone(file), part);
        Some(Self::new(shape.to_vec(), DType::F32, origin, vec![self.clone()]))
    }

    /// Returns the extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Returns the number of operations in a row that compute the tensor when it is read.
    fn steps(&self) -> usize {
        match &self.0.origin {
            ConstantOrigin::Computed(_, operands) if self.in_memory().is_none() => {
                1 + operands.iter().map(Self::steps).max().unwrap_or_default()
            }
            _ => 0,
        }
    }

    /// True for f32 and the 8-bit types of quantised tensors.
    fn is_of_numbers(&self) -> bool {
        matches!(self.dtype(), DType::F32 | DType::I8 | DType::U8)
    }

    /// Returns the tensor, if it is in memory.
    pub(crate) fn in_memory(&self) -> Option<&Tensor> {
        self.0.tensor.get().map(|tensor| &**tensor)
    }

    /// Returns the tensor, and keeps it in memory.
    pub fn tensor(&self) -> Result<&Arc<Tensor>, OpError> {
        match self.0.tensor.get() {
            Some(tensor) => Ok(tensor),
            None => {
                let tensor = Arc::new(self.read()?.into_owned());
                Ok(self.0.tensor.get_or_init(|| tensor))
            }
        }
    }

    /// Returns the tensor; if it is not in memory, it is read or computed for the caller only.
    pub fn read(&self) -> Result<Cow<'_, Tensor>, OpError> {
        match (self.0.tensor.get(), &self.0.origin) {
            (Some(tensor), _) => Ok(Cow::Borrowed(tensor)),
            (None, ConstantOrigin::File(file, bytes)) => {
                let numbers = file[bytes.clone()].as_chunks().0.iter().map(|&number| f32::from_le_bytes(number));
                Ok(Cow::Owned(Tensor::F32(array(&self.0.shape, numbers.collect())?)))
            }
            (None, ConstantOrigin::Computed(op, operands)) => {
                // Strided movements read the file directly.
                if let Some(numbers) = operands[0].moved_file(op, (self.shape(), self.dtype())) {
                    operands[0].release();
                    return Ok(Cow::Owned(Tensor::F32(array(&self.0.shape, numbers)?)));
                }
                let read = operands.iter().map(Constant::read).collect::<Result<Vec<_>, _>>()?;
                let result = op.evaluate(&read.iter().map(|tensor| &**tensor).collect::<Vec<_>>());
                operands.iter().for_each(Constant::release);
                Ok(Cow::Owned(result?))
            }
            (None, ConstantOrigin::Memory) => Err(OpError::Unfit("a constant without a tensor".into())),
        }
    }

    /// Returns the numbers as bytes of the file, if they are in no other place, on little-endian
    /// machines.
    pub fn file_bytes(&self) -> Option<&[u8]> {
        match &self.0.origin {
            ConstantOrigin::File(file, bytes) if self.in_memory().is_none() && cfg!(target_endian = "little") => {
                Some(&file[bytes.clone()])
            }
            _ => None,
        }
    }

    /// Reads numbers of a file in the order of a strided movement, without copying them first.
    fn moved_file(&self, op: &Op, output: Facts) -> Option<Vec<f32>> {
        let numbers = self.file_bytes()?.as_chunks().0;
        let Some(Movement::Strided { from, steps }) = self.moved(op, output) else { return None };
        let steps: Vec<usize> = steps.into_iter().map(|step| usize::try_from(step).ok()).collect::<Option<_>>()?;
        Some(TensorRows::new(output.0, [steps]).map(|[at]| f32::from_le_bytes(numbers[from + at])))
    }

    /// Copies the bytes of the file to memory of the same size, piece by piece, so that they are
    /// never in memory twice as a whole.
    pub fn copy_file_bytes(&self, to: &mut [u8]) {
        let ConstantOrigin::File(file, range) = &self.0.origin else { return };
        for (piece, first) in to.chunks_mut(COPIED_BYTES).zip(range.clone().step_by(COPIED_BYTES)) {
            let from = first..first + piece.len();
            piece.copy_from_slice(&file[from.clone()]);
            file.release(&from);
        }
    }

    /// Releases the pages of the file that reading has brought into memory.
    pub fn release(&self) {
        if let ConstantOrigin::File(file, bytes) = &self.0.origin {
            file.release(bytes);
        }
    }

    /// Returns a weak handle, by which the constant can be recognised.
    pub fn identity(&self) -> Identity {
        Identity(Arc::downgrade(&self.0))
    }

    /// Returns an address that is unique among existing constants.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Identity {
    /// Returns the constant, if it still exists.
    pub(crate) fn constant(&self) -> Option<Constant> {
        self.0.upgrade().map(Constant)
    }

    /// True if the constant still exists.
    pub fn exists(&self) -> bool {
        self.0.strong_count() > 0
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

impl Eq for Identity {}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "constant at {:p}", self.0.as_ptr())
    }
}

impl Hash for Identity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

impl From<Arc<Tensor>> for Constant {
    fn from(tensor: Arc<Tensor>) -> Self {
        Self::of_tensor(tensor, Vec::new())
    }
}

impl From<Tensor> for Constant {
    fn from(tensor: Tensor) -> Self {
        Arc::new(tensor).into()
    }
}

impl Operator for Constant {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        check_count(operands, 0..=0)?;
        Ok((self.shape().to_vec(), self.dtype()))
    }

    fn compute(&self, _: &[&Tensor], _: &[usize]) -> Result<Tensor, OpError> {
        Ok(self.read()?.into_owned())
    }
}

/// Compares tensors, not identities.
impl PartialEq for Constant {
    fn eq(&self, other: &Self) -> bool {
        let is_alike = (self.shape(), self.dtype()) == (other.shape(), other.dtype());
        Arc::ptr_eq(&self.0, &other.0) || is_alike && self.read().ok() == other.read().ok()
    }
}

impl fmt::Debug for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.tensor.get(), &self.0.origin) {
            (Some(tensor), _) => tensor.fmt(f),
            (None, ConstantOrigin::Computed(op, operands)) => {
                f.debug_tuple("Computed").field(op).field(operands).finish()
            }
            (None, _) => write!(f, "{}{:?} in a file", self.dtype(), self.shape()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use ndarray::ArrayD;

    use super::*;
    use crate::operators::{Binary, Cast, MatMul, Range, Reshape, Slice, Transpose};

    /// Numbers in a file at an unaligned offset.
    fn in_file(shape: &[usize]) -> Constant {
        let mut file = tempfile::tempfile().unwrap();
        let count: usize = shape.iter().product();
        file.write_all(b"x").unwrap();
        (0..count).for_each(|number| file.write_all(&(number as f32).to_le_bytes()).unwrap());
        Constant::in_file(shape.to_vec(), Mapped::of(&file).unwrap(), 1..1 + 4 * count)
    }

    #[test]
    fn parts_of_files_in_one_piece_stay_there() {
        let whole = in_file(&[3, 4, 5]);
        let slice = |start: [usize; 3], count: [usize; 3]| {
            Op::from(Slice((0..3).map(|axis| Range { start: start[axis], step: 1, count: count[axis] }).collect()))
        };
        for (op, is_in_file) in [
            (Reshape(vec![12, 5]).into(), true),
            (slice([1, 0, 0], [2, 4, 5]), true),
            (slice([2, 1, 0], [1, 2, 5]), true),
            (slice([0, 1, 0], [3, 2, 5]), false),
        ] {
            let wanted = op.evaluate(&[&whole.read().unwrap()]).unwrap();
            let part = Constant::computed(&op, &[&whole]).unwrap();
            assert_eq!((part.file_bytes().is_some(), &*part.read().unwrap()), (is_in_file, &wanted), "{op:?}");
        }
    }

    /// A weight is not kept in memory by its transposition or by products with it.
    #[test]
    fn derived_constants_do_not_keep_their_weight_in_memory() {
        let weight = in_file(&[1, 300, 100]);
        let matrix = Constant::computed(&Reshape(vec![300, 100]).into(), &[&weight]).unwrap();
        let transposed = Constant::computed(&Transpose(vec![1, 0]).into(), &[&matrix]).unwrap();
        let x = Constant::from(Tensor::f32(&[1, 100], vec![1.0; 100]).unwrap());
        let product = Constant::computed(&MatMul.into(), &[&x, &transposed]).unwrap();
        assert_eq!(product.shape(), [1, 300]);
        assert!([&weight, &matrix, &transposed].iter().all(|constant| constant.in_memory().is_none()));

        let wanted = Transpose(vec![1, 0]).evaluate(&[&matrix.read().unwrap()]).unwrap();
        assert_eq!(*transposed.read().unwrap(), wanted);
    }

    #[test]
    fn small_results_of_small_results_are_recognised_again() {
        let zero = Constant::from(Tensor::of_numbers(&[2], DType::I8, &[3.0, -1.0]).unwrap());
        let made = || {
            let cast = Constant::computed(&Cast(DType::F32).into(), &[&zero]).unwrap();
            Constant::computed(&Reshape(vec![2, 1]).into(), &[&cast]).unwrap()
        };
        let first = made();
        assert_eq!(first.identity(), made().identity());

        // Long chains are dropped without much stack.
        let mut last = first;
        for _ in 0..200_000 {
            last = Constant::computed(&Binary::Add.into(), &[&last, &last]).unwrap();
        }
        drop(last);
    }

    #[test]
    fn parts_of_parts_are_recognised_again() {
        let whole = in_file(&[2, 256, 128]);
        let made = || {
            let [rows, columns] = [256, 128].map(|count| Range { start: 0, step: 1, count });
            let half = Slice(vec![Range { start: 1, step: 1, count: 1 }, rows, columns]);
            let half = Constant::computed(&half.into(), &[&whole]).unwrap();
            let matrix = Constant::computed(&Reshape(vec![256, 128]).into(), &[&half]).unwrap();
            Constant::computed(&Transpose(vec![1, 0]).into(), &[&matrix]).unwrap()
        };
        let first = made();
        assert_eq!(first.identity(), made().identity());
    }

    /// Weights in 8 bits that a file converts need no other memory, and are recognised again.
    #[test]
    fn steps_from_integers_to_numbers_are_computed_on_demand() {
        let integers = Constant::from(Tensor::I8(ArrayD::from_elem(vec![256, 128], -3)));
        let [zero, scale] = [1.0, 0.5].map(|number| Constant::from(Tensor::f32(&[128], vec![number; 128]).unwrap()));
        let made = || {
            let cast = Constant::computed(&Cast(DType::F32).into(), &[&integers]).unwrap();
            let centred = Constant::computed(&Binary::Sub.into(), &[&cast, &zero]).unwrap();
            Constant::computed(&Binary::Mul.into(), &[&centred, &scale]).unwrap()
        };
        let weights = made();
        assert!(weights.in_memory().is_none());
        assert_eq!((weights.steps(), weights.identity()), (3, made().identity()));
        assert!(weights.read().unwrap().as_f32().unwrap().iter().all(|&weight| weight == -2.0));

        // Longer chains are computed once.
        let again = |constant: &Constant| Constant::computed(&Binary::Mul.into(), &[constant, &scale]).unwrap();
        let longest = (weights.steps()..MOST_STEPS).fold(weights, |weights, _| again(&weights));
        assert_eq!((longest.steps(), again(&longest).steps()), (MOST_STEPS, 0));
    }
}
