//! Tensors in the caller's memory, as arguments of kernels.

use std::marker::PhantomData;

use autotune_ir::DType;
use autotune_ir::plan::PlanBuffer;
use autotune_ir::program::Layout;

use crate::cpu::Cpu;
use crate::device::{Device, MemoryExtent};
use crate::error::ViewMismatch;
use crate::host_memory::HostMemory;

/// A tensor that a kernel reads, dense and row-major in its physical shape. It stays in the
/// caller's memory; nothing is copied.
///
/// The kernel checks it when it is passed.
pub struct View<'a, D: Device = Cpu> {
    place: ViewMemory<'a, D::Memory>,
    dtype: DType,
    shape: &'a [usize],
    layout: Layout,
}

/// A tensor that a kernel writes: a [`View`] with exclusive access.
pub struct ViewMut<'a, D: Device = Cpu> {
    view: View<'a, D>,
    _exclusive: PhantomData<&'a mut ()>,
}

enum ViewMemory<'a, M> {
    Lent(&'a M),
    /// Wraps the memory of a slice, whose length must match the shape exactly.
    Own(M),
    Absent,
}

impl<'a, D: Device> View<'a, D> {
    /// Views the first elements of a memory.
    pub fn of(memory: &'a D::Memory, dtype: DType, shape: &'a [usize]) -> Self {
        Self { place: ViewMemory::Lent(memory), dtype, shape, layout: Layout::Plain }
    }

    /// Stands for a constant that runs read only in packed form, so that its own memory may no
    /// longer exist.
    pub fn packed() -> Self {
        Self { place: ViewMemory::Absent, dtype: DType::F32, shape: &[], layout: Layout::Plain }
    }

    /// Declares the layout of the logical tensor; the shape stays the physical one.
    pub fn in_layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// Returns the memory if it matches `buffer`; `None` if it is absent and may be.
    pub(crate) fn memory(
        &self,
        device: &D,
        buffer: &PlanBuffer,
        wanted_alignment: usize,
        may_be_absent: bool,
    ) -> Result<Option<&D::Memory>, ViewMismatch> {
        let memory = match &self.place {
            ViewMemory::Lent(memory) => memory,
            ViewMemory::Own(memory) => memory,
            ViewMemory::Absent if may_be_absent => return Ok(None),
            ViewMemory::Absent => return Err(ViewMismatch::Absent),
        };
        if !device.holds(memory) {
            return Err(ViewMismatch::Elsewhere);
        }
        if !self.dtype.has_same_bits_as(buffer.dtype) {
            return Err(ViewMismatch::DType { found: self.dtype, wanted: buffer.dtype });
        }
        if self.layout != buffer.layout {
            return Err(ViewMismatch::Layout { found: self.layout, wanted: buffer.layout });
        }
        if self.shape != buffer.shape {
            return Err(ViewMismatch::Shape { found: self.shape.to_vec(), wanted: buffer.shape.clone() });
        }

        let MemoryExtent { bytes, alignment } = device.extent(memory);
        // A size that overflows exceeds every memory.
        let needed = buffer.bytes().unwrap_or(usize::MAX);
        let fits = match &self.place {
            // A slice of another length is most likely the wrong slice.
            ViewMemory::Own(_) => bytes == needed,
            _ => bytes >= needed,
        };
        if !fits {
            return Err(ViewMismatch::Size { found: bytes, wanted: needed });
        }
        if alignment < wanted_alignment {
            return Err(ViewMismatch::Alignment { found: alignment, wanted: wanted_alignment });
        }
        Ok(Some(memory))
    }
}

impl<'a> View<'a, Cpu> {
    /// Views a slice of f32; also valid for tf32.
    pub fn new(elements: &'a [f32], shape: &'a [usize]) -> Self {
        // SAFETY: the view borrows the slice as long as it lives, and kernels only read it.
        Self::of_own(unsafe { HostMemory::of_slice(elements) }, DType::F32, shape)
    }

    /// Views elements by their bytes, such as those of a file. They may begin at any address if the
    /// kernel [accepts that](crate::Kernel::takes_any_address).
    pub fn of_bytes(bytes: &'a [u8], dtype: DType, shape: &'a [usize]) -> Self {
        // SAFETY: as in `new`.
        Self::of_own(unsafe { HostMemory::of_slice(bytes) }, dtype, shape)
    }

    /// Views a slice of 16-bit floating-point numbers, [`DType::F16`] or [`DType::Bf16`], by their
    /// bits.
    pub fn of_bits(elements: &'a [u16], dtype: DType, shape: &'a [usize]) -> Self {
        // SAFETY: as in `new`.
        Self::of_own(unsafe { HostMemory::of_slice(elements) }, dtype, shape)
    }

    fn of_own(memory: HostMemory, dtype: DType, shape: &'a [usize]) -> Self {
        Self { place: ViewMemory::Own(memory), dtype, shape, layout: Layout::Plain }
    }
}

impl<'a, D: Device> ViewMut<'a, D> {
    /// Views the first elements of a memory for writing.
    pub fn of(memory: &'a mut D::Memory, dtype: DType, shape: &'a [usize]) -> Self {
        Self::exclusive(View::of(memory, dtype, shape))
    }

    /// Declares the layout of the logical tensor; the shape stays the physical one.
    pub fn in_layout(self, layout: Layout) -> Self {
        Self::exclusive(self.view.in_layout(layout))
    }

    pub(crate) fn view(&self) -> &View<'a, D> {
        &self.view
    }

    fn exclusive(view: View<'a, D>) -> Self {
        Self { view, _exclusive: PhantomData }
    }
}

impl<'a> ViewMut<'a, Cpu> {
    /// Views a slice of f32 for writing; also valid for tf32.
    pub fn new(elements: &'a mut [f32], shape: &'a [usize]) -> Self {
        // SAFETY: the view borrows the slice exclusively as long as it lives.
        Self::exclusive(View::of_own(unsafe { HostMemory::of_slice_mut(elements) }, DType::F32, shape))
    }

    /// Views a slice of 16-bit floating-point numbers, [`DType::F16`] or [`DType::Bf16`], for
    /// writing their bits.
    pub fn of_bits(elements: &'a mut [u16], dtype: DType, shape: &'a [usize]) -> Self {
        // SAFETY: as in `new`.
        Self::exclusive(View::of_own(unsafe { HostMemory::of_slice_mut(elements) }, dtype, shape))
    }
}
