//! Tensors that are the same in all runs: in memory, in a file, or computed when they are asked
//! for.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};

use autotune_ir::DType;

use crate::error::OpError;
use crate::mapped::Mapped;
use crate::op::{Facts, Movement, NodeView, Op, OperandView, Operator, check_count};
use crate::tensor::{Tensor, array, elements};
use crate::walk::Rows;

/// Bytes of a tensor from which on it is worth while not to have it in memory before it is packed.
pub(crate) const LARGE_BYTES: usize = 64 << 10;

/// Bytes that are copied at a time.
const COPIED_BYTES: usize = 4 << 20;

/// A tensor that is the same in all runs, and a hold on it.
///
/// Large weights of files stay there, and what is made of them by folding is not made before a
/// kernel packs it: so they need memory once, packed.
#[derive(Clone)]
pub struct Constant(Arc<Held>);

/// Which constant it is, without a hold on it: its number is nobody else's as long as this is
/// there.
#[derive(Clone)]
pub(crate) struct Identity(Weak<Held>);

struct Held {
    shape: Vec<usize>,
    dtype: DType,
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
    fn new(shape: Vec<usize>, dtype: DType, origin: Origin) -> Self {
        Self(Arc::new(Held { shape, dtype, origin, tensor: OnceLock::new() }))
    }

    /// Floating-point numbers that a file has in these bytes, four for each.
    pub(crate) fn in_file(shape: Vec<usize>, file: Arc<Mapped>, bytes: Range<usize>) -> Self {
        Self::new(shape, DType::F32, Origin::File(file, bytes))
    }

    /// What an operation makes of constants: if it is large, and cannot fail, not before it is
    /// asked for.
    pub(crate) fn computed(op: &Op, operands: &[&Constant]) -> Result<Self, OpError> {
        let known: Vec<Facts> = operands.iter().map(|operand| (operand.shape(), operand.dtype())).collect();
        let (shape, dtype) = op.infer(&known)?;
        if let Some(part) = operands.first().and_then(|operand| operand.part_of_file(op, (&shape, dtype))) {
            return Ok(part);
        }
        let bytes = shape.iter().product::<usize>().saturating_mul(dtype.bytes());
        // Of what is computed anew whenever it is read, nothing else is: that would take time
        // without bound.
        let is_simple =
            |operand: &&&Constant| operand.is_of_numbers() && !matches!(operand.0.origin, Origin::Computed(..));
        let is_f32 = dtype == DType::F32;
        if op.is_light() && is_f32 && bytes >= LARGE_BYTES && operands.iter().all(|operand| is_simple(&operand)) {
            let operands = operands.iter().map(|&operand| operand.clone()).collect();
            return Ok(Self::new(shape, dtype, Origin::Computed(op.clone(), operands)));
        }

        // What takes longer than reading its operands again does not need them to stay in memory.
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
        Ok(op.evaluate(&tensors.iter().map(|tensor| &**tensor).collect::<Vec<_>>())?.into())
    }

    /// Where an operation on this constant alone finds the elements of its output.
    fn moved(&self, op: &Op, output: Facts) -> Option<Movement> {
        let own = Op::from(self.clone());
        let operand = OperandView { facts: (self.shape(), self.dtype()), op: &own };
        op.movement(&NodeView { operands: vec![operand], output })
    }

    /// Returns the result of an operation that is one piece of the constant's file, if it is.
    fn part_of_file(&self, op: &Op, output: Facts) -> Option<Self> {
        let Origin::File(file, bytes) = &self.0.origin else { return None };
        let Some(Movement::Piece(first)) = self.moved(op, output).filter(|_| output.1 == DType::F32) else {
            return None;
        };
        let (shape, size) = (output.0, self.dtype().bytes());
        let first = bytes.start + first * size;
        let part = first..first + shape.iter().product::<usize>() * size;
        Some(Self::in_file(shape.to_vec(), Arc::clone(file), part))
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.0.shape
    }

    /// Type of its elements.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// True if elements are numbers of f32, or of the 8 bits of quantised ones.
    fn is_of_numbers(&self) -> bool {
        matches!(self.dtype(), DType::F32 | DType::I8 | DType::U8)
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
            (None, Origin::Computed(op, operands)) => {
                if let Some(numbers) = operands[0].moved_file(op, (self.shape(), self.dtype())) {
                    operands[0].release();
                    return Ok(Cow::Owned(Tensor::F32(array(&self.0.shape, numbers)?)));
                }
                let read = operands.iter().map(Constant::read).collect::<Result<Vec<_>, _>>()?;
                let result = op.evaluate(&read.iter().map(|tensor| &**tensor).collect::<Vec<_>>());
                operands.iter().for_each(Constant::release);
                Ok(Cow::Owned(result?))
            }
            (None, Origin::Memory) => Err(OpError::Unfit("a constant without a tensor".into())),
        }
    }

    /// Its numbers as a file has them, if they are nowhere else, on machines that have numbers as
    /// files do.
    pub fn file_bytes(&self) -> Option<&[u8]> {
        match &self.0.origin {
            Origin::File(file, bytes) if self.in_memory().is_none() && cfg!(target_endian = "little") => {
                Some(&file[bytes.clone()])
            }
            _ => None,
        }
    }

    /// Returns numbers of a file that an operation takes from it in another order, without copying
    /// them first.
    fn moved_file(&self, op: &Op, output: Facts) -> Option<Vec<f32>> {
        let numbers = self.file_bytes()?.as_chunks().0;
        let Some(Movement::Strided { from, steps }) = self.moved(op, output) else { return None };
        let steps: Vec<usize> = steps.into_iter().map(|step| usize::try_from(step).ok()).collect::<Option<_>>()?;
        Some(Rows::new(output.0, [steps]).map(|[at]| f32::from_le_bytes(numbers[from + at])))
    }

    /// Copies the bytes that a file has to memory of the same size, piece by piece: never all of it
    /// is in memory twice.
    pub fn copy_file_bytes(&self, to: &mut [u8]) {
        let Origin::File(file, range) = &self.0.origin else { return };
        for (piece, first) in to.chunks_mut(COPIED_BYTES).zip(range.clone().step_by(COPIED_BYTES)) {
            let from = first..first + piece.len();
            piece.copy_from_slice(&file[from.clone()]);
            file.release(&from);
        }
    }

    /// Gives back what reading it left in memory.
    pub fn release(&self) {
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
        let (shape, dtype) = (tensor.shape().to_vec(), tensor.dtype());
        Self(Arc::new(Held { shape, dtype, origin: Origin::Memory, tensor: tensor.into() }))
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

/// Equal if the tensors are.
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
            (None, Origin::Computed(op, operands)) => f.debug_tuple("Computed").field(op).field(operands).finish(),
            (None, _) => write!(f, "{}{:?} in a file", self.dtype(), self.shape()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::operators::{MatMul, Range, Reshape, Slice, Transpose};

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

    /// Neither what is transposed nor what a product is of.
    #[test]
    fn what_is_made_of_a_weight_does_not_keep_it_in_memory() {
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
}
