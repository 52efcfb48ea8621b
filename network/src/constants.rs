//! A network's constants in the layouts of its kernels.

use std::borrow::Cow;

use autotune_ir::DType;
use autotune_ir::layout::to_layout;
use autotune_ir::plan::PlanBuffer;
use autotune_ir::program::Layout;
use autotune_runtime::{Device, DeviceError, HostMemory, Kernel, View, bytes_of};

use crate::compiled::border::encode;
use crate::error::CompileError;
use crate::plan::{ActionOperand, given};
use autotune_graph::Constant;
use autotune_graph::Tensor;
use autotune_graph::{Graph, NodeId};

/// Size in bytes from which a copied constant has huge pages; smaller ones would leave much of them
/// unused.
const LARGE_COPY: usize = 4 << 20;

/// Elements of a constant in a layout.
pub(crate) enum ConstantElements<'a> {
    /// f32 numbers in a file, at any alignment.
    File(&'a Constant, &'a [u8]),
    /// f32 numbers in memory.
    Numbers(Cow<'a, [f32]>),
    /// Elements of another type: memory that starts with them, and their size in bytes.
    Elements(HostMemory, usize),
}

/// Constant operand of a kernel in the layout of its buffer; `None` for other operands.
pub(crate) type BoundConstant<'a> = Option<(&'a PlanBuffer, ConstantElements<'a>)>;

impl ConstantElements<'_> {
    /// Returns the elements as an operand of a CPU kernel.
    pub(crate) fn view<'v>(&'v self, buffer: &'v PlanBuffer) -> View<'v> {
        match self {
            Self::File(_, bytes) => View::of_bytes(bytes, DType::F32, &buffer.shape),
            Self::Numbers(numbers) => View::new(numbers, &buffer.shape),
            Self::Elements(memory, _) => View::of(memory, buffer.dtype, &buffer.shape),
        }
        .in_layout(buffer.layout)
    }

    /// Returns the elements as bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::File(_, bytes) => bytes,
            Self::Numbers(numbers) => bytes_of(numbers),
            Self::Elements(memory, bytes) => &memory.elements()[..*bytes],
        }
    }

    /// Copies the elements to new memory.
    pub(crate) fn copy(&self) -> Result<HostMemory, DeviceError> {
        let bytes = self.bytes();
        let mut memory = match bytes.len() {
            ..LARGE_COPY => HostMemory::in_small_pages(bytes.len())?,
            _ => HostMemory::untouched(bytes.len())?,
        };
        let to = &mut memory.elements_mut()[..bytes.len()];
        match self {
            Self::File(constant, _) => constant.copy_file_bytes(to),
            Self::Numbers(_) | Self::Elements(..) => to.copy_from_slice(bytes),
        }
        Ok(memory)
    }
}

/// Returns the constants among a kernel's operands, in the layouts of its buffers.
pub(crate) fn constants<'a, D: Device>(
    graph: &'a Graph,
    kernel: &'a Kernel<D>,
    operands: &[ActionOperand],
) -> Result<Vec<BoundConstant<'a>>, CompileError> {
    let given_to = |(operand, buffer): (&ActionOperand, &'a PlanBuffer)| match operand {
        ActionOperand::Constant(node) => {
            let elements = constant_in_layout(graph, *node, (buffer.layout, buffer.dtype), kernel.takes_any_address())?;
            Ok(Some((buffer, elements)))
        }
        ActionOperand::Span(_) => Ok(None),
    };
    operands.iter().zip(given(kernel.plan())).map(given_to).collect()
}

/// Returns the elements of a constant in a layout and type. A part of a file is used directly if
/// the layout matches and alignment does not matter.
pub(crate) fn constant_in_layout(
    graph: &Graph,
    id: NodeId,
    (layout, dtype): (Layout, DType),
    takes_any_address: bool,
) -> Result<ConstantElements<'_>, CompileError> {
    let Some(constant) = graph.constant_of(id) else { return Ok(ConstantElements::Numbers(Cow::Borrowed(&[]))) };
    // Reading from the mapped file saves a copy of the weights in memory.
    if layout == Layout::Plain
        && dtype.has_same_bits_as(DType::F32)
        && takes_any_address
        && let Some(bytes) = constant.file_bytes()
    {
        return Ok(ConstantElements::File(constant, bytes));
    }

    let node = graph.node(id);
    let tensor = constant.read().map_err(|source| node.wrong(source))?;
    // The elements are read once, so the file's pages need not stay in memory.
    constant.release();
    if layout == Layout::Plain
        && let Some(bytes) = bytes_of_integers(&tensor, dtype)
    {
        let mut memory = HostMemory::untouched(bytes.len())?;
        memory.elements_mut()[..bytes.len()].copy_from_slice(&bytes);
        return Ok(ConstantElements::Elements(memory, bytes.len()));
    }
    let numbers = match (tensor, layout) {
        (Cow::Borrowed(Tensor::F32(array)), Layout::Plain) if array.is_standard_layout() => {
            Cow::Borrowed(array.as_slice().unwrap_or_default())
        }
        (Cow::Owned(tensor), Layout::Plain) => Cow::Owned(tensor.into_numbers()),
        (Cow::Borrowed(tensor), Layout::Plain) => Cow::Owned(tensor.to_numbers()),
        (tensor, blocked) => {
            let array = tensor.as_f32().ok_or(CompileError::Layouts { from: Layout::Plain, to: blocked })?;
            let constant = |source| CompileError::Constant { name: node.name.clone(), source };
            Cow::Owned(to_layout(array, blocked).map_err(constant)?)
        }
    };
    if dtype.has_same_bits_as(DType::F32) {
        return Ok(ConstantElements::Numbers(numbers));
    }
    let bytes = numbers.len().checked_mul(dtype.bytes()).ok_or(CompileError::TooLarge)?;
    let mut memory = HostMemory::untouched(bytes)?;
    encode(dtype, &numbers, &mut memory.elements_mut()[..bytes]);
    Ok(ConstantElements::Elements(memory, bytes))
}

/// Returns the elements of a tensor of 8-bit integers, if they are stored as they are.
fn bytes_of_integers(tensor: &Tensor, dtype: DType) -> Option<Vec<u8>> {
    match (tensor, dtype) {
        (Tensor::I8(array), DType::I8) => Some(array.iter().map(|&element| element as u8).collect()),
        (Tensor::U8(array), DType::U8) => Some(array.iter().copied().collect()),
        _ => None,
    }
}

/// Releases the file pages that reading constants has brought into memory.
pub(crate) fn release(graph: &Graph, operands: &[ActionOperand]) {
    for operand in operands {
        if let ActionOperand::Constant(node) = operand
            && let Some(constant) = graph.constant_of(*node)
        {
            constant.release();
        }
    }
}
