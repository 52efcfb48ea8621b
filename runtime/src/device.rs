//! The interface between kernels and the devices that run them.

use std::ops::Range;

use autotune_ir::Artifact;

use crate::element::{Element, bytes_of, bytes_of_mut};
use crate::error::DeviceError;

/// A queue that runs kernels in order: a team of CPU threads, a stream of a CUDA device, or a queue
/// of an OpenCL device.
///
/// Work runs in the order in which it is started; reads wait for work that was started before. A
/// device value belongs to one thread at a time. Threads that run kernels concurrently have one
/// each, and share modules and memory.
///
/// Memory is exclusive to the holder of a `&mut`, like a slice, which prevents races in safe code.
/// [`crate::contract`] contains the tests that every device must pass.
pub trait Device: Sized {
    /// Loaded code of a kernel.
    type Module: Send + Sync;
    /// A range of bytes that kernels can use, with shared ownership. It may be dropped while work
    /// that uses it is still running.
    type Memory: Send + Sync;
    /// Stages of a module bound to their buffers, which can be started any number of times.
    type Call;
    /// Recorded calls that are started together.
    type Recording;

    /// Returns a name for error messages: the architecture, or the driver's API.
    fn name(&self) -> String;

    /// Returns the number of host threads that run kernels, each of which needs [private
    /// memory](autotune_ir::KernelPlan::local_bytes); 0 on devices that need none.
    fn host_threads(&self) -> usize {
        0
    }

    /// Returns the alignment in bytes that every buffer's address must have, for any element type.
    fn alignment(&self) -> usize;

    /// Returns the bytes of memory that are free; `None` if the device does not report it.
    fn free_bytes(&self) -> Result<Option<usize>, DeviceError> {
        Ok(None)
    }

    /// Loads the code of a kernel.
    ///
    /// # Safety
    ///
    /// The code runs with the rights of this process. The caller guarantees that it is for this
    /// machine, that loading it is harmless, and that its functions satisfy
    /// [`autotune_ir::plan::PlanStage`] for the artifact's plan: they access only the plan's
    /// buffers and private memory, within their bounds; they write only buffers that the plan
    /// declares as written; and disjoint tasks may run concurrently.
    unsafe fn load(&self, artifact: &Artifact) -> Result<Self::Module, DeviceError>;

    /// Allocates at least `bytes` bytes with any content, aligned sufficiently for any kernel.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, DeviceError>;

    /// Returns another handle of a range of `memory`.
    ///
    /// # Safety
    ///
    /// Both handles alias the same bytes: while one is written, by the host or a kernel, nothing
    /// may use the other.
    unsafe fn part(&self, memory: &Self::Memory, bytes: Range<usize>) -> Result<Self::Memory, DeviceError>;

    /// Returns size and alignment of a memory.
    fn extent(&self, memory: &Self::Memory) -> MemoryExtent;

    /// Returns true if kernels on this device can use the memory.
    fn holds(&self, memory: &Self::Memory) -> bool;

    /// Returns the bytes if they are in host memory.
    fn host_bytes<'m>(&self, memory: &'m Self::Memory) -> Option<&'m [u8]> {
        let _ = memory;
        None
    }

    /// Sets 32-bit words of a memory to `word`; the range counts words from its start.
    fn fill(&self, memory: &mut Self::Memory, words: Range<usize>, word: u32) -> Result<(), DeviceError>;

    /// Writes `content` to the memory, starting at `first_byte`.
    fn write(&self, memory: &mut Self::Memory, first_byte: usize, content: &[u8]) -> Result<(), DeviceError>;

    /// Reads `content` from the memory, starting at `first_byte`.
    fn read(&self, memory: &Self::Memory, first_byte: usize, content: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies the first `bytes` bytes of one memory to another.
    fn copy(&self, from: &Self::Memory, to: &mut Self::Memory, bytes: usize) -> Result<(), DeviceError>;

    /// Binds stages of the module's plan, given by their positions, to memory.
    ///
    /// # Safety
    ///
    /// From each start of the call, alone or in a recording, until it has run, the module must be
    /// loaded. Nothing else may use memory that the call writes, or write memory that it reads.
    /// `memory` must match the plan in number, sizes and alignment.
    unsafe fn bind(
        &self,
        module: &Self::Module,
        stages: &[usize],
        memory: Bound<Self::Memory>,
    ) -> Result<Self::Call, DeviceError>;

    /// Starts a call; may return before it has run.
    fn start(&self, call: &Self::Call) -> Result<(), DeviceError>;

    /// Waits until all started work is finished.
    fn finish(&self) -> Result<(), DeviceError>;

    /// Records the calls that `work` starts instead of starting them; `None` if the device cannot
    /// record. The requirements of [`Device::bind`] apply to recorded calls.
    fn record(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Option<Self::Recording>;

    /// Starts all calls of a recording, in order.
    fn replay(&self, recording: &Self::Recording) -> Result<(), DeviceError>;

    /// Returns the seconds that the calls started by `work` take, by the device's most precise
    /// clock. The work is finished on return.
    fn time(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError>;

    /// Evicts a memory from all caches, so that the next access reads it from its home memory; an
    /// error on devices without this ability.
    fn evict(&self, memory: &Self::Memory) -> Result<(), DeviceError> {
        let _ = memory;
        Err(DeviceError::fault(format!("{}: this device cannot evict memory from its caches", self.name())))
    }

    /// Runs host work on parts of `0..tasks`, concurrently if the device consists of host threads.
    /// `work` must neither panic nor use the device.
    fn divide(&self, tasks: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        work(0..tasks);
    }

    /// Allocates memory with a copy of `elements`.
    fn upload<T: Element>(&self, elements: &[T]) -> Result<Self::Memory, DeviceError> {
        let mut memory = self.allocate(size_of_val(elements))?;
        self.write(&mut memory, 0, bytes_of(elements))?;
        Ok(memory)
    }

    /// Copies the first elements of a memory to `elements`.
    fn download<T: Element>(&self, memory: &Self::Memory, elements: &mut [T]) -> Result<(), DeviceError> {
        self.read(memory, 0, bytes_of_mut(elements))
    }
}

/// Memory that a call uses.
#[derive(Debug)]
pub struct Bound<M> {
    /// Buffers of the plan that are not private, in order.
    pub buffers: Vec<M>,
    /// Private memory of each of the [`Device::host_threads`]; empty if the plan has none.
    pub private: Vec<M>,
}

/// Size and alignment of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryExtent {
    /// Size of the memory in bytes.
    pub bytes: usize,
    /// Largest power of two that divides the address.
    pub alignment: usize,
}

/// Checks that a range is within a memory of `bytes` bytes.
pub(crate) fn within(range: &Range<usize>, bytes: usize) -> Result<(), DeviceError> {
    if range.start <= range.end && range.end <= bytes {
        return Ok(());
    }
    Err(DeviceError::OutOfBounds { first_byte: range.start, end: range.end, bytes })
}

/// Returns the range of `bytes` bytes from `first_byte` on.
pub(crate) fn from(first_byte: usize, bytes: usize) -> Range<usize> {
    first_byte..first_byte.saturating_add(bytes)
}

/// Returns the byte range of 32-bit words.
pub(crate) fn word_bytes(words: &Range<usize>) -> Range<usize> {
    words.start.saturating_mul(4)..words.end.saturating_mul(4)
}

/// Returns the largest power of two that divides an address.
pub(crate) fn alignment_of(address: usize) -> usize {
    1 << address.trailing_zeros().min(usize::BITS - 1)
}
