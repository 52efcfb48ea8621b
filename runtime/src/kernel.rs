//! A built kernel, loaded.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use autotune_ir::plan::{Binding, PlanBuffer};
use autotune_ir::program::When;
use autotune_ir::{Artifact, Code, KernelPlan};

use crate::cpu::{Cpu, CpuModule};
use crate::device::{Bound, Device, Extent};
use crate::error::{DeviceError, KernelError, LoadError, Misfit};
use crate::team::StageFn;
use crate::view::{View, ViewMut};

/// Scratch buffers, and memory that is private to a thread, begin at multiples of this, or of more
/// where a device wants it.
const SCRATCH_ALIGNMENT: usize = 256;
/// What memory of a caller's for packed constants or scratch is aligned to, at least.
const LEAST_ALIGNMENT: usize = 64;
/// Bytes between memory that is used together, beside its sizes. These are often multiples of what
/// a way of a cache holds, and kernels that go through several such buffers side by side would find
/// them all in the same few sets.
pub const STAGGER_BYTES: usize = 320;

/// Code for a plan, loaded. Any number of threads may run it at once, each on a device and with
/// scratch of its own.
///
/// What a kernel needs comes from the caller: constants once, to be packed, scratch once for every
/// thread that runs it, operands in every run. [`crate::Runner`] keeps the first two together for
/// who wants no more than to run it.
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
    /// True if it is what the assembler makes, which loads and stores at any address; a compiler
    /// takes elements to be aligned.
    takes_any_address: bool,
}

/// What a kernel made of its constants ahead of time. All who run the kernel can share it.
pub struct Packed<D: Device = Cpu> {
    kernel: u64,
    /// Of the plan's packed buffers, in their order.
    memory: Vec<D::Memory>,
}

impl<D: Device> Packed<D> {
    /// What is in the plan's packed buffers, in their order; a memory may be larger than its
    /// buffer.
    pub fn memory(&self) -> &[D::Memory] {
        &self.memory
    }
}

/// What a kernel needs beside its operands while it runs: for one run at a time.
pub struct Scratch<D: Device = Cpu> {
    kernel: u64,
    /// Of the plan's scratch buffers, in their order.
    memory: Vec<D::Memory>,
    /// One for each of the device's host threads.
    private: Vec<D::Memory>,
}

/// A run on operands that stay where they are, to be started again and again.
pub struct Run<'a, D: Device = Cpu> {
    call: D::Call,
    _operands: PhantomData<(&'a Kernel<D>, &'a mut ())>,
}

impl<D: Device> Run<'_, D> {
    /// Runs the kernel, on a device that is not the CPU perhaps later: [`Device::finish`] and
    /// reading wait for it.
    pub fn start(&mut self, device: &D) -> Result<(), DeviceError> {
        device.start(&self.call)
    }

    /// The call itself, for who keeps it beside what it uses.
    ///
    /// # Safety
    ///
    /// As [`Device::bind`]: whenever it is started, kernel, packed constants, scratch and operands
    /// are still there and in nobody else's use.
    pub unsafe fn into_call(self) -> D::Call {
        self.call
    }
}

impl<D: Device> Kernel<D> {
    /// Loads a kernel.
    ///
    /// # Safety
    ///
    /// As [`Device::load`]. Then everything else is safe. To run code that nobody vouches for,
    /// measure it in a worker process.
    pub unsafe fn load(device: &D, artifact: &Artifact) -> Result<Self, DeviceError> {
        // SAFETY: the caller's promise.
        let module = unsafe { device.load(artifact) }?;
        let takes_any_address = matches!(artifact.code, Code::Machine(_));
        Ok(Self { takes_any_address, ..Self::of_module(module, artifact.plan.clone()) })
    }

    fn of_module(module: D::Module, plan: KernelPlan) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { plan, module, id: NEXT.fetch_add(1, Ordering::Relaxed), takes_any_address: false }
    }

    /// True if operands may lie at addresses that are no multiples of an element's size
    /// ([`View::of_bytes`]).
    pub fn takes_any_address(&self) -> bool {
        self.takes_any_address
    }

    /// The interface that it was loaded with: which operands it has, in which shapes and layouts.
    pub fn plan(&self) -> &KernelPlan {
        &self.plan
    }

    /// Runs what runs ahead of time on the kernel's constants, weights and the like, all of them in
    /// the order of the plan.
    pub fn pack(&self, device: &D, constants: &[View<'_, D>]) -> Result<Arc<Packed<D>>, KernelError> {
        self.pack_in(device, constants, device.allocate(self.packed_bytes(device)?)?)
    }

    /// The same into memory of the caller's, of at least [`Kernel::packed_bytes`], aligned to 64
    /// bytes: constants of many kernels then lie side by side, where each would begin a page, a
    /// huge one perhaps.
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

    /// Lets this kernel read what another one packed, in the same memory.
    ///
    /// # Safety
    ///
    /// The stages of this kernel that run ahead of time would have made the same of the constants
    /// ([`Program::packing`](autotune_ir::Program::packing)): packed values may be positions that
    /// its code loads from.
    pub unsafe fn share(&self, device: &D, packed: &Packed<D>) -> Result<Arc<Packed<D>>, KernelError> {
        let ranges = self.packed_ranges(device)?;
        let mut memory = Vec::with_capacity(ranges.len());
        for (number, range) in ranges.into_iter().enumerate() {
            let known = packed.memory.get(number).filter(|known| device.extent(known).bytes >= range.len());
            let known = known.ok_or(KernelError::OtherKernel { what: "packed constants" })?;
            // SAFETY: what is packed is only read from here on.
            memory.push(unsafe { whole(device, known) }?);
        }
        Ok(Arc::new(Packed { kernel: self.id, memory }))
    }

    /// Bytes that [`Kernel::pack`] makes of constants.
    pub fn packed_bytes(&self, device: &D) -> Result<usize, KernelError> {
        Ok(self.packed_ranges(device)?.last().map_or(0, |range| range.end))
    }

    /// Where packed buffers lie in their [memory](Kernel::pack_in), in the order of the plan.
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
            // What no stage that runs ahead of time uses may be anything.
            let found = found.or(memory.first()).ok_or_else(|| DeviceError::fault("the plan packs nothing"))?;
            // SAFETY: constants are lent till the end of this, when all has run, and what is packed
            // is nobody else's.
            buffers.push(unsafe { whole(device, found) }?);
        }
        let private = in_a_row(spaced(device, self.private_bytes(device)))?;
        let bytes = private.last().map_or(0, |range| range.end);
        let private = parts(device, device.allocate(bytes)?, private, "private memory")?;
        // SAFETY: the buffers are those of the plan, checked above.
        let call = unsafe { self.bind_memory(device, When::AheadOfTime, Bound { buffers, private }) }?;
        device.start(&call)?;
        device.finish()?;
        Ok(Arc::new(Packed { kernel: self.id, memory }))
    }

    /// Bytes that [`Kernel::scratch`] takes.
    pub fn scratch_bytes(&self, device: &D) -> Result<usize, KernelError> {
        Ok(self.scratch_ranges(device)?.last().map_or(0, |range| range.end))
    }

    /// Memory for one run of the kernel at a time on this device, or on another of no more host
    /// threads.
    pub fn scratch(&self, device: &D) -> Result<Scratch<D>, KernelError> {
        self.scratch_in(device, device.allocate(self.scratch_bytes(device)?)?)
    }

    /// The same in memory of the caller's, of at least [`Kernel::scratch_bytes`], aligned to 64
    /// bytes.
    pub fn scratch_in(&self, device: &D, memory: D::Memory) -> Result<Scratch<D>, KernelError> {
        let mut memory = parts(device, memory, self.scratch_ranges(device)?, "scratch")?;
        let private = memory.split_off(self.buffers(is_scratch).count());
        Ok(Scratch { kernel: self.id, memory, private })
    }

    /// Where scratch lies in its [memory](Kernel::scratch_in): each scratch buffer in the order of
    /// the plan, then what is private to each host thread, if anything is.
    pub fn scratch_ranges(&self, device: &D) -> Result<Vec<Range<usize>>, KernelError> {
        let buffers = self.buffers(is_scratch).map(PlanBuffer::bytes);
        in_a_row(spaced(device, buffers.chain(self.private_bytes(device))))
    }

    /// Bytes of each thread's private memory.
    fn private_bytes(&self, device: &D) -> impl Iterator<Item = Option<usize>> {
        let threads = if self.plan.local_bytes > 0 { device.host_threads() } else { 0 };
        std::iter::repeat_n(Some(self.plan.local_bytes), threads)
    }

    /// Runs the kernel once: on data and constants in the order of the plan, packed constants among
    /// them ([`View::packed`] where their memory is gone), and outputs. On a device that is not the
    /// CPU it may return before: [`Device::finish`] and reading wait.
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

    /// The same, checked now and run whenever it is started.
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
            // A constant that is absent was packed, so that there is something; no run reads it
            // there.
            let found = found.or(packed.memory.first()).ok_or_else(|| DeviceError::fault("no memory for a buffer"))?;
            // SAFETY: operands and outputs are lent to the run, outputs and scratch to it alone,
            // and nobody writes what was packed.
            buffers.push(unsafe { whole(device, found) }?);
        }

        // SAFETY: the memory is the run's own as long as it lives.
        let private = scratch.private.iter().map(|memory| unsafe { whole(device, memory) });
        let private = private.collect::<Result<_, _>>()?;
        // SAFETY: the buffers are those of the plan, checked above.
        let call = unsafe { self.bind_memory(device, When::EveryRun, Bound { buffers, private }) }?;
        Ok(Run { call, _operands: PhantomData })
    }

    /// The stages that run then on memory as it is: what all else here is made of.
    ///
    /// # Safety
    ///
    /// As [`Device::bind`]; the kernel outlives the call.
    pub unsafe fn bind_memory(&self, device: &D, when: When, memory: Bound<D::Memory>) -> Result<D::Call, DeviceError> {
        let stages = self.plan.stages.iter().enumerate().filter(|(_, stage)| stage.when == when);
        let stages: Vec<usize> = stages.map(|(number, _)| number).collect();
        // SAFETY: the caller's promise.
        unsafe { device.bind(&self.module, &stages, memory) }
    }

    /// The memory of a view, if it is what the buffer wants.
    fn fitting<'v>(
        &self,
        view: &'v View<'_, D>,
        device: &D,
        buffer: &PlanBuffer,
        may_be_absent: bool,
    ) -> Result<Option<&'v D::Memory>, KernelError> {
        let named = |misfit: Misfit| KernelError::Operand { name: buffer.name.clone(), misfit };
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
    /// Functions of this program, one per stage.
    ///
    /// # Safety
    ///
    /// As [`Kernel::load`].
    pub unsafe fn of_functions(functions: Vec<StageFn>, plan: KernelPlan) -> Result<Self, LoadError> {
        // SAFETY: the caller's promise.
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

/// The parts of a memory of the caller's, one behind the other, if it is large enough and aligned.
fn parts<D: Device>(
    device: &D,
    memory: D::Memory,
    ranges: Vec<Range<usize>>,
    what: &'static str,
) -> Result<Vec<D::Memory>, KernelError> {
    let (needed, Extent { bytes, alignment }) = (ranges.last().map_or(0, |range| range.end), device.extent(&memory));
    if bytes < needed || (alignment < LEAST_ALIGNMENT && needed > 0) {
        return Err(KernelError::Memory { what, found: bytes, needed });
    }
    // SAFETY: the memory is nobody else's, and its parts do not overlap.
    let part = |range| Ok(unsafe { device.part(&memory, range) }?);
    ranges.into_iter().map(part).collect()
}

/// Lengths with [`STAGGER_BYTES`] behind them and rounded up; `None` for one that is too large.
fn spaced<D: Device>(device: &D, parts: impl Iterator<Item = Option<usize>>) -> impl Iterator<Item = Option<usize>> {
    let alignment = device.alignment().max(SCRATCH_ALIGNMENT);
    parts.map(move |bytes| bytes?.checked_add(STAGGER_BYTES)?.checked_next_multiple_of(alignment))
}

/// Ranges of these lengths in bytes, one behind the other; a length is `None` if it is too large a
/// number.
fn in_a_row(parts: impl Iterator<Item = Option<usize>>) -> Result<Vec<Range<usize>>, KernelError> {
    let mut first = 0;
    let range = |part: Option<usize>| {
        let end = part.and_then(|bytes| bytes.checked_add(first)).ok_or(KernelError::Overflow)?;
        Ok(std::mem::replace(&mut first, end)..end)
    };
    parts.map(range).collect()
}

/// Another hold on all of a memory.
///
/// # Safety
///
/// As [`Device::part`].
unsafe fn whole<D: Device>(device: &D, memory: &D::Memory) -> Result<D::Memory, DeviceError> {
    // SAFETY: the caller's promise.
    unsafe { device.part(memory, 0..device.extent(memory).bytes) }
}
