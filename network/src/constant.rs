//! Tensors that are the same in all runs: in memory, in a file, or computed when they are asked for.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use ndarray::{ArrayView, IxDyn};

use crate::error::OpError;
use crate::mapped::Mapped;
use crate::op::Op;
use crate::strided::first_of_piece;
use crate::tensor::{Element, Tensor, array};

/// Bytes of a tensor from which on it is worth while not to have it in memory before it is packed.
pub(crate) const LARGE_BYTES: usize = 64 << 10;

/// Bytes that are copied at a time.
const COPIED_BYTES: usize = 4 << 20;

/// A tensor that is the same in all runs, and a hold on it.
///
/// Large weights of files stay there, and what is made of them by folding is not made before a kernel packs it: so they need memory once, packed.
#[derive(Clone)]
pub struct Constant(Arc<Held>);

/// Which constant it is, without a hold on it: its number is nobody else's as long as this is there.
#[derive(Clone)]
pub(crate) struct Identity(Weak<Held>);

struct Held {
    shape: Vec<usize>,
    element: Element,
    origin: Origin,
    /// Once somebody wanted it in memory.
    tensor: OnceLock<Arc<Tensor>>,
}

/// Where a tensor is from.
enum Origin {
    Memory,
    /// Single-precision numbers, little-endian, at any address.
    File(Arc<Mapped>, Range<usize>),
    /// What an operation makes of others, none of which is computed itself.
    Computed(Op, Vec<Constant>),
}

impl Constant {
    fn new(shape: Vec<usize>, element: Element, origin: Origin) -> Self {
        Self(Arc::new(Held { shape, element, origin, tensor: OnceLock::new() }))
    }

    /// Floating-point numbers that a file has in these bytes, four for each.
    pub(crate) fn in_file(shape: Vec<usize>, file: Arc<Mapped>, bytes: Range<usize>) -> Self {
        Self::new(shape, Element::F32, Origin::File(file, bytes))
    }

    /// What an operation makes of constants: if it is large, and cannot fail, not before it is asked for.
    pub(crate) fn computed(op: &Op, operands: &[&Constant]) -> Result<Self, OpError> {
        let known: Vec<_> = operands.iter().map(|operand| (operand.shape(), operand.element())).collect();
        let (shape, element) = op.infer(&known)?;
        if let Some(part) = operands.first().and_then(|operand| operand.part_of_file(op, &shape)) {
            return Ok(part);
        }
        let bytes = shape.iter().product::<usize>().saturating_mul(size_of::<f32>());
        // Of what is computed anew whenever it is read, nothing else is: that would take time without bound.
        let is_simple = |operand: &&&Constant| operand.is_f32() && !matches!(operand.0.origin, Origin::Computed(..));
        let is_light = matches!(op, Op::Binary(_) | Op::Transpose(_) | Op::Reshape(_));
        let is_f32 = element == Element::F32;
        if is_light && is_f32 && bytes >= LARGE_BYTES && operands.iter().filter(is_simple).count() == operands.len() {
            let operands = operands.iter().map(|&operand| operand.clone()).collect();
            return Ok(Self::new(shape, element, Origin::Computed(op.clone(), operands)));
        }

        // A product takes longer than reading its operands again, so these need not stay in memory.
        let tensors: Vec<Cow<Tensor>> = operands
            .iter()
            .map(|&operand| match op {
                Op::MatMul => operand.read(),
                _ => operand.tensor().map(|tensor| Cow::Borrowed(&**tensor)),
            })
            .collect::<Result<_, OpError>>()?;
        Ok(op.evaluate(&tensors.iter().map(|tensor| &**tensor).collect::<Vec<_>>())?.into())
    }

    /// Returns the result of an operation that is one piece of the constant's file, if it is.
    fn part_of_file(&self, op: &Op, shape: &[usize]) -> Option<Self> {
        let Origin::File(file, bytes) = &self.0.origin else { return None };
        let first = match op {
            Op::Reshape(_) => 0,
            Op::Slice(ranges) => first_of_piece(ranges, &self.0.shape)?,
            _ => return None,
        };
        let first = bytes.start + first * size_of::<f32>();
        let part = first..first + shape.iter().product::<usize>() * size_of::<f32>();
        Some(Self::in_file(shape.to_vec(), Arc::clone(file), part))
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// Type of its elements.
    pub fn element(&self) -> Element {
        self.0.element
    }

    fn is_f32(&self) -> bool {
        self.element() == Element::F32
    }

    /// The tensor, if it is in memory.
    pub(crate) fn in_memory(&self) -> Option<&Tensor> {
        self.0.tensor.get().map(|tensor| &**tensor)
    }

    /// The tensor, which stays in memory from here on.
    pub fn tensor(&self) -> Result<&Arc<Tensor>, OpError> {
        match self.0.tensor.get() {
            Some(tensor) => Ok(tensor),
            None => {
                let tensor = Arc::new(self.read()?.into_owned());
                Ok(self.0.tensor.get_or_init(|| tensor))
            }
        }
    }

    /// The tensor; what is not in memory is read or computed for the caller alone.
    pub fn read(&self) -> Result<Cow<'_, Tensor>, OpError> {
        match (self.0.tensor.get(), &self.0.origin) {
            (Some(tensor), _) => Ok(Cow::Borrowed(tensor)),
            (None, Origin::File(file, bytes)) => {
                let numbers = file[bytes.clone()].as_chunks().0.iter().map(|&number| f32::from_le_bytes(number));
                Ok(Cow::Owned(Tensor::F32(array(&self.0.shape, numbers.collect())?)))
            }
            (None, Origin::Computed(Op::Transpose(perm), operands)) if operands[0].file_bytes().is_some() => {
                let numbers = operands[0].transposed_file(perm)?;
                operands[0].release();
                Ok(Cow::Owned(Tensor::F32(array(&self.0.shape, numbers)?)))
            }
            (None, Origin::Computed(op, operands)) => {
                let read = operands.iter().map(Constant::read).collect::<Result<Vec<_>, _>>()?;
                let result = op.evaluate(&read.iter().map(|tensor| &**tensor).collect::<Vec<_>>());
                operands.iter().for_each(Constant::release);
                Ok(Cow::Owned(result?))
            }
            (None, Origin::Memory) => Err(OpError::Unfit("a constant without a tensor".into())),
        }
    }

    /// Its numbers as a file has them, if they are nowhere else, on machines that have numbers as files do.
    pub(crate) fn file_bytes(&self) -> Option<&[u8]> {
        match &self.0.origin {
            Origin::File(file, bytes) if self.in_memory().is_none() && cfg!(target_endian = "little") => {
                Some(&file[bytes.clone()])
            }
            _ => None,
        }
    }

    /// Returns the numbers of a file with its axes in another order, without copying them first.
    fn transposed_file(&self, perm: &[usize]) -> Result<Vec<f32>, OpError> {
        let bytes = self.file_bytes().unwrap_or_default().as_chunks().0;
        let numbers = ArrayView::from_shape(IxDyn(&self.0.shape), bytes);
        let numbers = numbers.map_err(|error| OpError::Unfit(error.to_string()))?;
        Ok(numbers.permuted_axes(IxDyn(perm)).iter().map(|&number| f32::from_le_bytes(number)).collect())
    }

    /// Copies the bytes that a file has to memory of the same size, piece by piece: never all of it is in memory twice.
    pub(crate) fn copy_file_bytes(&self, to: &mut [u8]) {
        let Origin::File(file, range) = &self.0.origin else { return };
        for (piece, first) in to.chunks_mut(COPIED_BYTES).zip(range.clone().step_by(COPIED_BYTES)) {
            let from = first..first + piece.len();
            piece.copy_from_slice(&file[from.clone()]);
            file.release(&from);
        }
    }

    /// Gives back what reading it left in memory.
    pub(crate) fn release(&self) {
        if let Origin::File(file, bytes) = &self.0.origin {
            file.release(bytes);
        }
    }

    /// Which it is.
    pub(crate) fn identity(&self) -> Identity {
        Identity(Arc::downgrade(&self.0))
    }

    /// A number that no other constant has.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }
}

impl Identity {
    /// The constant, if anybody still holds it.
    pub(crate) fn constant(&self) -> Option<Constant> {
        self.0.upgrade().map(Constant)
    }
}

impl From<Arc<Tensor>> for Constant {
    fn from(tensor: Arc<Tensor>) -> Self {
        let (shape, element) = (tensor.shape().to_vec(), tensor.element());
        Self(Arc::new(Held { shape, element, origin: Origin::Memory, tensor: tensor.into() }))
    }
}

impl From<Tensor> for Constant {
    fn from(tensor: Tensor) -> Self {
        Arc::new(tensor).into()
    }
}

/// Equal if the tensors are.
impl PartialEq for Constant {
    fn eq(&self, other: &Self) -> bool {
        let is_alike = (self.shape(), self.element()) == (other.shape(), other.element());
        Arc::ptr_eq(&self.0, &other.0) || is_alike && self.read().ok() == other.read().ok()
    }
}

impl fmt::Debug for Constant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.tensor.get(), &self.0.origin) {
            (Some(tensor), _) => tensor.fmt(f),
            (None, Origin::Computed(op, operands)) => f.debug_tuple("Computed").field(op).field(operands).finish(),
            (None, _) => write!(f, "{}{:?} in a file", self.element(), self.shape()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::op::Range as Slice;

    /// Numbers in a file, at an address that is no multiple of their size.
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
            Op::Slice((0..3).map(|axis| Slice { start: start[axis], step: 1, count: count[axis] }).collect())
        };
        for (op, is_in_file) in [
            (Op::Reshape(vec![12, 5]), true),
            (slice([1, 0, 0], [2, 4, 5]), true),
            (slice([2, 1, 0], [1, 2, 5]), true),
            (slice([0, 1, 0], [3, 2, 5]), false),
        ] {
            let wanted = op.evaluate(&[&whole.read().unwrap()]).unwrap();
            let part = Constant::computed(&op, &[&whole]).unwrap();
            assert_eq!((part.file_bytes().is_some(), &*part.read().unwrap()), (is_in_file, &wanted), "{op:?}");
        }
    }

    /// Neither what is transposed nor what a product is of.
    #[test]
    fn what_is_made_of_a_weight_does_not_keep_it_in_memory() {
        let weight = in_file(&[1, 300, 100]);
        let matrix = Constant::computed(&Op::Reshape(vec![300, 100]), &[&weight]).unwrap();
        let transposed = Constant::computed(&Op::Transpose(vec![1, 0]), &[&matrix]).unwrap();
        let x = Constant::from(Tensor::f32(&[1, 100], vec![1.0; 100]).unwrap());
        let product = Constant::computed(&Op::MatMul, &[&x, &transposed]).unwrap();
        assert_eq!(product.shape(), [1, 300]);
        assert!([&weight, &matrix, &transposed].iter().all(|constant| constant.in_memory().is_none()));

        let wanted = Op::Transpose(vec![1, 0]).evaluate(&[&matrix.read().unwrap()]).unwrap();
        assert_eq!(*transposed.read().unwrap(), wanted);
    }
}
