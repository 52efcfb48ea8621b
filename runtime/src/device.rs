//! The seam between kernels and machines.

use std::ops::Range;

use autotune_ir::Artifact;

use crate::element::{Element, bytes_of, bytes_of_mut};
use crate::error::DeviceError;

/// What runs kernels, in order: a team of threads, a stream of a CUDA device, a queue of an OpenCL
/// device.
///
/// What is started on it runs in the order in which it was started; reading waits for what was
/// started before. A value belongs to one thread at a time: several threads that run kernels at
/// once each have their own, and share modules and memory.
///
/// Memory is exclusive to whoever holds a `&mut` of it, as a slice is: that is what keeps safe code
/// from races. [`crate::contract`] has the tests that every device must pass.
pub trait Device: Sized {
    /// Loaded code.
    type Module: Send + Sync;
    /// A range of bytes that kernels can use, and a hold on them. It may be dropped while what uses
    /// it still runs.
    type Memory: Send + Sync;
    /// Stages of a module on their buffers, ready to be started any number of times.
    type Call;
    /// Calls that were recorded and are started as one.
    type Recording;

    /// A name for errors: the architecture, or the driver's interface.
    fn name(&self) -> String;

    /// Threads of the host that run its kernels, each of which needs [private
    /// memory](autotune_ir::KernelPlan::local_bytes); 0 where kernels do without.
    fn host_threads(&self) -> usize {
        0
    }

    /// The number of bytes of which the address of every buffer must be a multiple, whatever its
    /// elements.
    fn alignment(&self) -> usize;

    /// Loads code.
    ///
    /// # Safety
    ///
    /// The code runs with the rights of this process. The caller vouches that it is for this
    /// machine, that loading it is harmless, and that its functions keep the contract of
    /// [`autotune_ir::plan::PlanStage`] for the artifact's plan: they touch only the plan's buffers
    /// and private memory, within their bounds, write only what the plan says is written, and
    /// disjoint tasks may run at once.
    unsafe fn load(&self, artifact: &Artifact) -> Result<Self::Module, DeviceError>;

    /// Memory of at least `bytes` bytes, which hold anything, as aligned as any kernel wants it.
    fn allocate(&self, bytes: usize) -> Result<Self::Memory, DeviceError>;

    /// Another hold on a range of a memory.
    ///
    /// # Safety
    ///
    /// Both are the same bytes: while one of them is written, by the host or a kernel, nobody may
    /// use the other.
    unsafe fn part(&self, memory: &Self::Memory, bytes: Range<usize>) -> Result<Self::Memory, DeviceError>;

    /// Size and alignment of a memory.
    fn extent(&self, memory: &Self::Memory) -> Extent;

    /// True if kernels of this device can use the memory.
    fn holds(&self, memory: &Self::Memory) -> bool;

    /// The bytes, where they are memory of the host.
    fn host_bytes<'m>(&self, memory: &'m Self::Memory) -> Option<&'m [u8]> {
        let _ = memory;
        None
    }

    /// Sets 32-bit words of a memory, counted from its start.
    fn fill(&self, memory: &mut Self::Memory, words: Range<usize>, word: u32) -> Result<(), DeviceError>;

    /// Writes from a byte of the memory on.
    fn write(&self, memory: &mut Self::Memory, first_byte: usize, content: &[u8]) -> Result<(), DeviceError>;

    /// Reads from a byte of the memory on.
    fn read(&self, memory: &Self::Memory, first_byte: usize, content: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies the first bytes of one memory to another.
    fn copy(&self, from: &Self::Memory, to: &mut Self::Memory, bytes: usize) -> Result<(), DeviceError>;

    /// Some stages of the module's plan, by position, on their memory.
    ///
    /// # Safety
    ///
    /// Whenever the call is started, alone or in a recording, until it has run: the module is
    /// loaded, and nobody else uses what it writes or writes what it reads. `memory` fits the plan
    /// in number, sizes and alignment.
    unsafe fn bind(
        &self,
        module: &Self::Module,
        stages: &[usize],
        memory: Bound<Self::Memory>,
    ) -> Result<Self::Call, DeviceError>;

    /// Starts a call; it may return before the call has run.
    fn start(&self, call: &Self::Call) -> Result<(), DeviceError>;

    /// Waits for all that was started.
    fn finish(&self) -> Result<(), DeviceError>;

    /// What `work` starts, recorded instead of started; `None` if the device cannot do that. What
    /// is recorded is used as what is [bound](Device::bind).
    fn record(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Option<Self::Recording>;

    /// Starts what was recorded.
    fn replay(&self, recording: &Self::Recording) -> Result<(), DeviceError>;

    /// Seconds that what `work` starts takes, by the best clock there is; it is done when this
    /// returns.
    fn time(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError>;

    /// Drives a memory out of all caches, so that it is read from where it lies; refused by a
    /// device that cannot be told to.
    fn evict(&self, memory: &Self::Memory) -> Result<(), DeviceError> {
        let _ = memory;
        Err(DeviceError::fault(format!("{}: memory cannot be driven out of the caches", self.name())))
    }

    /// Runs work of the host on parts of `0..tasks`, side by side where the device is threads of
    /// the host. It must neither panic nor use the device.
    fn divide(&self, tasks: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        work(0..tasks);
    }

    /// Memory with a copy of some elements.
    fn upload<T: Element>(&self, elements: &[T]) -> Result<Self::Memory, DeviceError> {
        let mut memory = self.allocate(size_of_val(elements))?;
        self.write(&mut memory, 0, bytes_of(elements))?;
        Ok(memory)
    }

    /// Copies the first elements of a memory.
    fn download<T: Element>(&self, memory: &Self::Memory, elements: &mut [T]) -> Result<(), DeviceError> {
        self.read(memory, 0, bytes_of_mut(elements))
    }
}

/// What a call uses.
#[derive(Debug)]
pub struct Bound<M> {
    /// The plan's buffers that are not private, in their order.
    pub buffers: Vec<M>,
    /// Private memory of each of the threads that [`Device::host_threads`] tells; none if the plan
    /// has none.
    pub private: Vec<M>,
}

/// Size and alignment of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its size.
    pub bytes: usize,
    /// The largest power of two of which its address is a multiple.
    pub alignment: usize,
}

/// Refuses a range that is not within a memory.
pub(crate) fn within(range: &Range<usize>, bytes: usize) -> Result<(), DeviceError> {
    if range.start <= range.end && range.end <= bytes {
        return Ok(());
    }
    Err(DeviceError::OutOfBounds { first_byte: range.start, end: range.end, bytes })
}

/// `bytes` bytes from one on.
pub(crate) fn from(first_byte: usize, bytes: usize) -> Range<usize> {
    first_byte..first_byte.saturating_add(bytes)
}

/// The bytes of some 32-bit words.
pub(crate) fn word_bytes(words: &Range<usize>) -> Range<usize> {
    words.start.saturating_mul(4)..words.end.saturating_mul(4)
}

/// The largest power of two of which an address is a multiple.
pub(crate) fn alignment_of(address: usize) -> usize {
    1 << address.trailing_zeros().min(usize::BITS - 1)
}
