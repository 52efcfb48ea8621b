//! A compiled kernel, loaded on a device.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use autotune_ir::plan::{Binding, PlanBuffer};
use autotune_ir::program::When;
use autotune_ir::{Artifact, Code, KernelPlan};

use crate::cpu::{Cpu, CpuModule};
use crate::device::{Bound, Device, MemoryExtent};
use crate::error::{DeviceError, KernelError, LoadError, ViewMismatch};
use crate::team::StageFn;
use crate::view::{View, ViewMut};

/// Alignment in bytes of scratch buffers and of thread-private memory; larger if the device
/// requires it.
const SCRATCH_ALIGNMENT: usize = 256;
/// Minimum alignment in bytes of memory that the caller provides for packed constants or scratch.
const LEAST_ALIGNMENT: usize = 64;
/// Bytes of padding between buffers that are used together. Their sizes are often multiples of the
/// size of a cache way, so that without padding, kernels that access several buffers in parallel
/// would use only a few cache sets.
pub const STAGGER_BYTES: usize = 320;

/// A loaded kernel. Any number of threads may run it concurrently, each with its own device and
/// scratch.
///
/// The caller provides what a kernel needs: constants once, to be packed; scratch once per thread
/// that runs it; operands in every run. [`crate::Runner`] manages the first two for simple cases.
///
/// ```no_run
/// use autotune_runtime::{Cpu, Kernel, View, ViewMut};
/// use autotune_ir::Artifact;
/// # fn run(artifact: &Artifact, x: &[f32], w: &[f32], y: &mut [f32]) -> Result<(), autotune_runtime::KernelError> {
/// let cpu = Cpu::new(2);
/// // SAFETY: the artifact was generated from a program that was verified.
/// let kernel = unsafe { Kernel::load(&cpu, artifact)? };
/// let packed = kernel.pack(&cpu, &[View::new(w, &[1, 8, 16])])?; // once, for all threads
/// let mut scratch = kernel.scratch(&cpu)?; // once in every thread
/// let operands = [View::new(x, &[1, 4, 8]), View::new(w, &[1, 8, 16])];
/// kernel.run(&cpu, &packed, &mut scratch, &operands, &mut [ViewMut::new(y, &[1, 4, 16])])?;
/// # Ok(()) }
/// ```
pub struct Kernel<D: Device = Cpu> {
    plan: KernelPlan,
    module: D::Module,
    id: u64,
    /// True for code of the assembler, which accesses memory at any address; C compilers assume
    /// that elements are aligned.
    takes_any_address: bool,
}

/// Packed constants of a kernel, computed ahead of time; all threads that run the kernel can share
/// them.
pub struct Packed<D: Device = Cpu> {
    kernel: u64,
    /// Memory of the plan's packed buffers, in order.
    memory: Vec<D::Memory>,
}

impl<D: Device> Packed<D> {
    /// Returns the memory of the plan's packed buffers, in order; it may be larger than the buffer.
    pub fn memory(&self) -> &[D::Memory] {
        &self.memory
    }
}

/// Memory that a kernel needs in addition to its operands; for one run at a time.
pub struct Scratch<D: Device = Cpu> {
    kernel: u64,
    /// Memory of the plan's scratch buffers, in order.
    memory: Vec<D::Memory>,
    /// Private memory of each of the device's host threads.
    private: Vec<D::Memory>,
}

/// A run bound to operands at fixed addresses, which can be started repeatedly.
pub struct Run<'a, D: Device = Cpu> {
    call: D::Call,
    _operands: PhantomData<(&'a Kernel<D>, &'a mut ())>,
}

impl<D: Device> Run<'_, D> {
    /// Runs the kernel. On devices other than the CPU it may return before the run has ended;
    /// [`Device::finish`] and reads wait for it.
    pub fn start(&mut self, device: &D) -> Result<(), DeviceError> {
        device.start(&self.call)
    }

    /// Returns the call, for a caller that keeps it together with the memory that it uses.
    ///
    /// # Safety
    ///
    /// See [`Device::bind`]: whenever the call is started, kernel, packed constants, scratch and
    /// operands must still exist, and nothing else may use them.
    pub unsafe fn into_call(self) -> D::Call {
        self.call
    }
}

impl<D: Device> Kernel<D> {
    /// Loads a kernel.
    ///
    /// # Safety
    ///
    /// See [`Device::load`]. After loading, all other uses are safe. Untrusted code should be
    /// measured in a worker process instead.
    pub unsafe fn load(device: &D, artifact: &Artifact) -> Result<Self, DeviceError> {
        // SAFETY: guaranteed by the caller.
        let module = unsafe { device.load(artifact) }?;
        let takes_any_address = matches!(artifact.code, Code::Machine(_));
        Ok(Self { takes_any_address, ..Self::of_module(module, artifact.plan.clone()) })
    }

    fn of_module(module: D::Module, plan: KernelPlan) -> Self {
        // Ids tell apart the packed constants and scratch of different kernels.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { plan, module, id: NEXT.fetch_add(1, Ordering::Relaxed), takes_any_address: false }
    }

    /// Returns true if operands may have addresses that are not multiples of the element size
    /// ([`View::of_bytes`]).
    pub fn takes_any_address(&self) -> bool {
        self.takes_any_address
    }

    /// Returns the interface of the kernel: its operands with their shapes and layouts.
    pub fn plan(&self) -> &KernelPlan {
        &self.plan
    }

    /// Runs the stages that run ahead of time on the kernel's constants, such as weights. All
    /// constants must be given, in the order of the plan.
    pub fn pack(&self, device: &D, constants: &[View<'_, D>]) -> Result<Arc<Packed<D>>, KernelError> {
        self.pack_in(device, constants, device.allocate(self.packed_bytes(device)?)?)
    }

    /// Packs constants into memory of the caller, of at least [`Kernel::packed_bytes`], aligned to
    /// 64 bytes. Constants of many kernels can then share pages, including huge pages, instead of
    /// each starting a new one.
    pub fn pack_in(
        &self,
        device: &D,
        constants: &[View<'_, D>],
        memory: D::Memory,
    ) -> Result<Arc<Packed<D>>, KernelError> {
        let count = self.buffers(is_constant).count();
        self.check_count("constants", constants.len(), count, is_constant)?;
        self.pack_to(device, &mut constants.iter(), memory)
    }

    /// Lets this kernel use the constants that another kernel packed, in the same memory.
    ///
    /// # Safety
    ///
    /// The stages of this kernel that run ahead of time must produce the same values from the
    /// constants ([`Program::packing`](autotune_ir::Program::packing)). Code may use packed values
    /// as indices without checking them, so other values could make it read out of bounds.
    pub unsafe fn share(&self, device: &D, packed: &Packed<D>) -> Result<Arc<Packed<D>>, KernelError> {
        let ranges = self.packed_ranges(device)?;
        let mut memory = Vec::with_capacity(ranges.len());
        for (number, range) in ranges.into_iter().enumerate() {
            let known = packed.memory.get(number).filter(|known| device.extent(known).bytes >= range.len());
            let known = known.ok_or(KernelError::OtherKernel { what: "packed constants" })?;
            // SAFETY: packed constants are only read from now on.
            memory.push(unsafe { whole(device, known) }?);
        }
        Ok(Arc::new(Packed { kernel: self.id, memory }))
    }

    /// Returns the bytes that packed constants need.
    pub fn packed_bytes(&self, device: &D) -> Result<usize, KernelError> {
        Ok(self.packed_ranges(device)?.last().map_or(0, |range| range.end))
    }

    /// Returns the byte ranges of packed buffers in their [memory](Kernel::pack_in), in the order
    /// of the plan.
    fn packed_ranges(&self, device: &D) -> Result<Vec<Range<usize>>, KernelError> {
        let alignment = device.alignment().max(LEAST_ALIGNMENT);
        let is_packed = |binding| binding == Binding::Packed;
        let buffers = self.buffers(is_packed).filter(|_| self.has_stages(When::AheadOfTime));
        in_a_row(buffers.map(|buffer| buffer.bytes()?.checked_next_multiple_of(alignment)))
    }

    pub(crate) fn pack_of<'v, 'a: 'v>(
        &self,
        device: &D,
        constants: &mut dyn Iterator<Item = &'v View<'a, D>>,
    ) -> Result<Arc<Packed<D>>, KernelError>
    where
        D: 'a,
    {
        self.pack_to(device, constants, device.allocate(self.packed_bytes(device)?)?)
    }

    fn pack_to<'v, 'a: 'v>(
        &self,
        device: &D,
        constants: &mut dyn Iterator<Item = &'v View<'a, D>>,
        whole_memory: D::Memory,
    ) -> Result<Arc<Packed<D>>, KernelError>
    where
        D: 'a,
    {
        if !self.has_stages(When::AheadOfTime) {
            return Ok(Arc::new(Packed { kernel: self.id, memory: Vec::new() }));
        }
        let memory = parts(device, whole_memory, self.packed_ranges(device)?, "packed constants")?;

        let mut packed = memory.iter();
        let mut buffers = Vec::with_capacity(self.plan.buffers.len());
        for buffer in self.plan.buffers.iter().filter(|buffer| buffer.is_global()) {
            let found = match buffer.binding {
                Binding::Constant { .. } => match constants.next() {
                    Some(view) => self.fitting(view, device, buffer, false)?,
                    None => None,
                },
                Binding::Packed => packed.next(),
                _ => None,
            };
            // Buffers that no stage ahead of time uses may have any address.
            let found = found.or(memory.first()).ok_or_else(|| DeviceError::fault("the plan has no packed buffers"))?;
            // SAFETY: constants are borrowed until this function returns, when the stages have
            // finished; nothing else uses the packed memory.
            buffers.push(unsafe { whole(device, found) }?);
        }
        let private = in_a_row(spaced(device, self.private_bytes(device)))?;
        let bytes = private.last().map_or(0, |range| range.end);
        let private = parts(device, device.allocate(bytes)?, private, "private memory")?;
        // SAFETY: the buffers match the plan, as checked above.
        let call = unsafe { self.bind_memory(device, When::AheadOfTime, Bound { buffers, private }) }?;
        device.start(&call)?;
        device.finish()?;
        Ok(Arc::new(Packed { kernel: self.id, memory }))
    }

    /// Returns the bytes that scratch needs on this device.
    pub fn scratch_bytes(&self, device: &D) -> Result<usize, KernelError> {
        Ok(self.scratch_ranges(device)?.last().map_or(0, |range| range.end))
    }

    /// Allocates scratch for one run at a time on this device, or on another one with at most as
    /// many host threads.
    pub fn scratch(&self, device: &D) -> Result<Scratch<D>, KernelError> {
        self.scratch_in(device, device.allocate(self.scratch_bytes(device)?)?)
    }

    /// Creates scratch in memory of the caller, of at least [`Kernel::scratch_bytes`], aligned to
    /// 64 bytes.
    pub fn scratch_in(&self, device: &D, memory: D::Memory) -> Result<Scratch<D>, KernelError> {
        let mut memory = parts(device, memory, self.scratch_ranges(device)?, "scratch")?;
        // Private memory follows the scratch buffers.
        let private = memory.split_off(self.buffers(is_scratch).count());
        Ok(Scratch { kernel: self.id, memory, private })
    }

    /// Returns the byte ranges of scratch in its [memory](Kernel::scratch_in): each scratch buffer
    /// in the order of the plan, then the private memory of each host thread, if there is any.
    pub fn scratch_ranges(&self, device: &D) -> Result<Vec<Range<usize>>, KernelError> {
        let buffers = self.buffers(is_scratch).map(PlanBuffer::bytes);
        in_a_row(spaced(device, buffers.chain(self.private_bytes(device))))
    }

    /// Returns the bytes of private memory of each host thread.
    fn private_bytes(&self, device: &D) -> impl Iterator<Item = Option<usize>> {
        let threads = if self.plan.local_bytes > 0 { device.host_threads() } else { 0 };
        std::iter::repeat_n(Some(self.plan.local_bytes), threads)
    }

    /// Runs the kernel once. `operands` are data and constants in the order of the plan, including
    /// packed constants ([`View::packed`] if their memory no longer exists). On devices other than
    /// the CPU it may return before the run has ended; [`Device::finish`] and reads wait for it.
    pub fn run<'a>(
        &'a self,
        device: &D,
        packed: &'a Packed<D>,
        scratch: &'a mut Scratch<D>,
        operands: &'a [View<'a, D>],
        outputs: &'a mut [ViewMut<'_, D>],
    ) -> Result<(), KernelError> {
        Ok(self.bind(device, packed, scratch, operands, outputs)?.start(device)?)
    }

    /// Checks the operands and binds them, without starting the run.
    pub fn bind<'a>(
        &'a self,
        device: &D,
        packed: &'a Packed<D>,
        scratch: &'a mut Scratch<D>,
        operands: &'a [View<'a, D>],
        outputs: &'a mut [ViewMut<'_, D>],
    ) -> Result<Run<'a, D>, KernelError> {
        self.check_count("operands", operands.len(), self.buffers(is_operand).count(), is_operand)?;
        self.check_count("outputs", outputs.len(), self.buffers(is_output).count(), is_output)?;
        self.check_owner(packed.kernel, "packed constants")?;
        self.check_owner(scratch.kernel, "scratch")?;

        let (mut operands, mut outputs) = (operands.iter(), outputs.iter());
        let (mut packs, mut scratches) = (packed.memory.iter(), scratch.memory.iter());
        let mut buffers = Vec::with_capacity(self.plan.buffers.len());
        for buffer in self.plan.buffers.iter().filter(|buffer| buffer.is_global()) {
            let unread = buffer.binding == Binding::Constant { read_in_runs: false };
            let found = match buffer.binding {
                Binding::Data | Binding::Constant { .. } => match operands.next() {
                    Some(view) => self.fitting(view, device, buffer, unread)?,
                    None => None,
                },
                Binding::Output => match outputs.next() {
                    Some(output) => self.fitting(output.view(), device, buffer, false)?,
                    None => None,
                },
                Binding::Packed => packs.next(),
                Binding::Scratch => scratches.next(),
                Binding::Private => None,
            };
            // An absent constant has been packed, so packed memory exists. No run reads this
            // buffer.
            let found = found
                .or(packed.memory.first())
                .ok_or_else(|| DeviceError::fault("a buffer of the plan has no memory"))?;
            // SAFETY: operands and outputs are borrowed by the run, outputs and scratch
            // exclusively; nothing writes to packed constants.
            buffers.push(unsafe { whole(device, found) }?);
        }

        // SAFETY: the run borrows scratch exclusively as long as it lives.
        let private = scratch.private.iter().map(|memory| unsafe { whole(device, memory) });
        let private = private.collect::<Result<_, _>>()?;
        // SAFETY: the buffers match the plan, as checked above.
        let call = unsafe { self.bind_memory(device, When::EveryRun, Bound { buffers, private }) }?;
        Ok(Run { call, _operands: PhantomData })
    }

    /// Binds the stages that run at time `when` to memory, without checks; the other functions use
    /// this one.
    ///
    /// # Safety
    ///
    /// See [`Device::bind`]; the kernel must outlive the call.
    pub unsafe fn bind_memory(&self, device: &D, when: When, memory: Bound<D::Memory>) -> Result<D::Call, DeviceError> {
        let stages = self.plan.stages.iter().enumerate().filter(|(_, stage)| stage.when == when);
        let stages: Vec<usize> = stages.map(|(number, _)| number).collect();
        // SAFETY: guaranteed by the caller.
        unsafe { device.bind(&self.module, &stages, memory) }
    }

    /// Returns the memory of a view if it matches the buffer of the plan.
    fn fitting<'v>(
        &self,
        view: &'v View<'_, D>,
        device: &D,
        buffer: &PlanBuffer,
        may_be_absent: bool,
    ) -> Result<Option<&'v D::Memory>, KernelError> {
        let named = |misfit: ViewMismatch| KernelError::Operand { name: buffer.name.clone(), misfit };
        // Compiled code assumes that elements are naturally aligned.
        let own = if self.takes_any_address { 1 } else { buffer.dtype.bytes() };
        view.memory(device, buffer, device.alignment().max(own), may_be_absent).map_err(named)
    }

    pub(crate) fn has_stages(&self, when: When) -> bool {
        self.plan.stages.iter().any(|stage| stage.when == when)
    }

    fn buffers(&self, is_wanted: fn(Binding) -> bool) -> impl Iterator<Item = &PlanBuffer> {
        self.plan.buffers.iter().filter(move |buffer| is_wanted(buffer.binding))
    }

    pub(crate) fn check_count(
        &self,
        what: &'static str,
        found: usize,
        wanted: usize,
        are: fn(Binding) -> bool,
    ) -> Result<(), KernelError> {
        if found == wanted {
            return Ok(());
        }
        let names: Vec<&str> = self.buffers(are).map(|buffer| &*buffer.name).collect();
        Err(KernelError::Count { what, found, wanted, names: names.join(", ") })
    }

    fn check_owner(&self, kernel: u64, what: &'static str) -> Result<(), KernelError> {
        if kernel == self.id { Ok(()) } else { Err(KernelError::OtherKernel { what }) }
    }
}

impl Kernel<Cpu> {
    /// Creates a kernel from functions of this program, one per stage.
    ///
    /// # Safety
    ///
    /// See [`Kernel::load`].
    pub unsafe fn of_functions(functions: Vec<StageFn>, plan: KernelPlan) -> Result<Self, LoadError> {
        // SAFETY: guaranteed by the caller.
        let module = unsafe { CpuModule::of_functions(functions, &plan) }?;
        Ok(Self::of_module(module, plan))
    }
}

pub(crate) fn is_constant(binding: Binding) -> bool {
    matches!(binding, Binding::Constant { .. })
}

fn is_operand(binding: Binding) -> bool {
    binding == Binding::Data || is_constant(binding)
}

fn is_output(binding: Binding) -> bool {
    binding == Binding::Output
}

fn is_scratch(binding: Binding) -> bool {
    binding == Binding::Scratch
}

/// Splits memory of the caller into consecutive parts; fails if it is too small or insufficiently
/// aligned.
fn parts<D: Device>(
    device: &D,
    memory: D::Memory,
    ranges: Vec<Range<usize>>,
    what: &'static str,
) -> Result<Vec<D::Memory>, KernelError> {
    let (needed, MemoryExtent { bytes, alignment }) =
        (ranges.last().map_or(0, |range| range.end), device.extent(&memory));
    if bytes < needed || (alignment < LEAST_ALIGNMENT && needed > 0) {
        return Err(KernelError::Memory { what, found: bytes, needed });
    }
    // SAFETY: the caller passed ownership of the memory, and the parts do not overlap.
    let part = |range| Ok(unsafe { device.part(&memory, range) }?);
    ranges.into_iter().map(part).collect()
}

/// Adds [`STAGGER_BYTES`] to each length and rounds it up to the alignment; `None` on overflow.
fn spaced<D: Device>(device: &D, parts: impl Iterator<Item = Option<usize>>) -> impl Iterator<Item = Option<usize>> {
    let alignment = device.alignment().max(SCRATCH_ALIGNMENT);
    parts.map(move |bytes| bytes?.checked_add(STAGGER_BYTES)?.checked_next_multiple_of(alignment))
}

/// Returns consecutive byte ranges of these lengths; a length of `None` means that it overflows.
fn in_a_row(parts: impl Iterator<Item = Option<usize>>) -> Result<Vec<Range<usize>>, KernelError> {
    let mut first = 0;
    let range = |part: Option<usize>| {
        let end = part.and_then(|bytes| bytes.checked_add(first)).ok_or(KernelError::Overflow)?;
        Ok(std::mem::replace(&mut first, end)..end)
    };
    parts.map(range).collect()
}

/// Returns another handle of a whole memory.
///
/// # Safety
///
/// See [`Device::part`].
unsafe fn whole<D: Device>(device: &D, memory: &D::Memory) -> Result<D::Memory, DeviceError> {
    // SAFETY: guaranteed by the caller.
    unsafe { device.part(memory, 0..device.extent(memory).bytes) }
}
