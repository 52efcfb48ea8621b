//! Tensors in the caller's memory.

use std::marker::PhantomData;

use autotune_ir::DType;
use autotune_ir::plan::PlanBuffer;
use autotune_ir::program::Layout;

use crate::cpu::Cpu;
use crate::device::{Device, Extent};
use crate::error::Misfit;
use crate::host_memory::HostMemory;

/// A tensor that a kernel reads, dense and row-major in its physical shape. It lies where the
/// caller has it; nothing is copied.
///
/// What is wrong with it, a kernel says when it is given to one.
pub struct View<'a, D: Device = Cpu> {
    place: Place<'a, D::Memory>,
    dtype: DType,
    shape: &'a [usize],
    layout: Layout,
}

/// A tensor that a kernel writes: a [`View`] that nobody else uses.
pub struct ViewMut<'a, D: Device = Cpu> {
    view: View<'a, D>,
    _exclusive: PhantomData<&'a mut ()>,
}

enum Place<'a, M> {
    Lent(&'a M),
    /// Of a slice.
    Own(M),
    Absent,
}

impl<'a, D: Device> View<'a, D> {
    /// The first elements of a memory.
    pub fn of(memory: &'a D::Memory, dtype: DType, shape: &'a [usize]) -> Self {
        Self { place: Place::Lent(memory), dtype, shape, layout: Layout::Plain }
    }

    /// A constant of which runs read only what was packed of it, so that its own memory may be
    /// gone.
    pub fn packed() -> Self {
        Self { place: Place::Absent, dtype: DType::F32, shape: &[], layout: Layout::Plain }
    }

    /// The same elements with the logical tensor in another layout than the plain one; the shape is
    /// the physical one.
    pub fn in_layout(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// Its memory, if it is what `buffer` wants; `None` if it is absent and need not be there.
    pub(crate) fn memory(
        &self,
        device: &D,
        buffer: &PlanBuffer,
        wanted_alignment: usize,
        may_be_absent: bool,
    ) -> Result<Option<&D::Memory>, Misfit> {
        let memory = match &self.place {
            Place::Lent(memory) => memory,
            Place::Own(memory) => memory,
            Place::Absent if may_be_absent => return Ok(None),
            Place::Absent => return Err(Misfit::Absent),
        };
        if !device.holds(memory) {
            return Err(Misfit::Elsewhere);
        }
        if !self.dtype.lies_as(buffer.dtype) {
            return Err(Misfit::DType { found: self.dtype, wanted: buffer.dtype });
        }
        if self.layout != buffer.layout {
            return Err(Misfit::Layout { found: self.layout, wanted: buffer.layout });
        }
        if self.shape != buffer.shape {
            return Err(Misfit::Shape { found: self.shape.to_vec(), wanted: buffer.shape.clone() });
        }

        let Extent { bytes, alignment } = device.extent(memory);
        // An address that overflows is in no memory.
        let needed = buffer.bytes().unwrap_or(usize::MAX);
        let fits = match &self.place {
            Place::Own(_) => bytes == needed,
            _ => bytes >= needed,
        };
        if !fits {
            return Err(Misfit::Size { found: bytes, wanted: needed });
        }
        if alignment < wanted_alignment {
            return Err(Misfit::Alignment { found: alignment, wanted: wanted_alignment });
        }
        Ok(Some(memory))
    }
}

impl<'a> View<'a, Cpu> {
    /// A slice; one of f32 is of tf32, too.
    pub fn new(elements: &'a [f32], shape: &'a [usize]) -> Self {
        // SAFETY: the view lends the slice as long as it lives, and a kernel only reads it.
        Self::of_own(unsafe { HostMemory::of_slice(elements) }, DType::F32, shape)
    }

    /// Numbers by their bytes, as a file has them, which may begin at any address for kernels that
    /// [take any](crate::Kernel::takes_any_address).
    pub fn of_bytes(bytes: &'a [u8], dtype: DType, shape: &'a [usize]) -> Self {
        // SAFETY: as in `new`.
        Self::of_own(unsafe { HostMemory::of_slice(bytes) }, dtype, shape)
    }

    /// A slice of 16-bit numbers, [`DType::F16`] or [`DType::Bf16`], by their bits.
    pub fn of_bits(elements: &'a [u16], dtype: DType, shape: &'a [usize]) -> Self {
        // SAFETY: as in `new`.
        Self::of_own(unsafe { HostMemory::of_slice(elements) }, dtype, shape)
    }

    fn of_own(memory: HostMemory, dtype: DType, shape: &'a [usize]) -> Self {
        Self { place: Place::Own(memory), dtype, shape, layout: Layout::Plain }
    }
}

impl<'a, D: Device> ViewMut<'a, D> {
    /// The first elements of a memory.
    pub fn of(memory: &'a mut D::Memory, dtype: DType, shape: &'a [usize]) -> Self {
        Self::exclusive(View::of(memory, dtype, shape))
    }

    /// The same elements with the logical tensor in another layout than the plain one; the shape is
    /// the physical one.
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
    /// A slice; one of f32 is of tf32, too.
    pub fn new(elements: &'a mut [f32], shape: &'a [usize]) -> Self {
        // SAFETY: the view has the slice for itself as long as it lives.
        Self::exclusive(View::of_own(unsafe { HostMemory::of_slice_mut(elements) }, DType::F32, shape))
    }

    /// A slice of 16-bit numbers, [`DType::F16`] or [`DType::Bf16`], by their bits.
    pub fn of_bits(elements: &'a mut [u16], dtype: DType, shape: &'a [usize]) -> Self {
        // SAFETY: as in `new`.
        Self::exclusive(View::of_own(unsafe { HostMemory::of_slice_mut(elements) }, dtype, shape))
    }
}
