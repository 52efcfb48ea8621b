//! Devices that networks run on.

#![expect(private_interfaces, reason = "no other crate can name or implement what runs networks")]

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use autotune_ir::{GpuTarget, Target};
use autotune_runtime::{
    Cpu, CpuCall, CudaDevice, Device, DeviceError, HostMemory, Kernel, OpenClDevice, Packed, View, Waiting,
};
use copies::CopyKernels;

use crate::compiled::{BoundCalls, Compiled, Failure, InputReads, TypedMemory, interpreter};
use crate::constants::{BoundConstant, ConstantElements};
use crate::error::CompileError;
use crate::strided::{CopyEnd, Copying, Strided};
use autotune_graph::NodeId;

mod copies;

/// A device that networks run on: a team of CPU threads, a CUDA stream or an OpenCL queue.
pub trait NetworkDevice: NetworkOps {}

impl<D: NetworkOps> NetworkDevice for D {}

/// Source of calls that copy elements between tensors of a device.
pub trait StridedCopies<D: Device> {
    /// Creates a call that copies elements of `bytes` bytes.
    ///
    /// # Safety
    ///
    /// Whenever the call is started, the source of calls exists, and no other call uses the
    /// destination or writes the tensor that is read.
    unsafe fn copying(
        &self,
        device: &D,
        copy: &Strided,
        bytes: usize,
        from: CopyEnd<D>,
        to: CopyEnd<D>,
    ) -> Result<D::Call, CompileError>;
}

/// Operations that networks need from a device besides running kernels.
pub trait NetworkOps: Device {
    /// Source of devices that share memory and kernels, one device for each caller.
    type Origin: Clone + Send + Sync + StridedCopies<Self>;

    /// True if kernels can read inputs in the caller's memory.
    const READS_CALLERS_MEMORY: bool;

    /// Opens this machine's device for a target.
    fn origin(target: &Target) -> Result<Self::Origin, DeviceError>;

    /// Creates a device for one caller at a time.
    fn of(origin: &Self::Origin) -> Result<Self, DeviceError>;

    /// Creates a device that only loads kernels.
    fn to_load(origin: &Self::Origin) -> Result<Self, DeviceError> {
        Self::of(origin)
    }

    /// Changes the behaviour of waiting threads; GPUs have none.
    fn set_waiting(&self, waiting: Waiting) {
        let _ = waiting;
    }

    /// Allocates memory that is written once, in ascending order.
    fn untouched(&self, bytes: usize) -> Result<Self::Memory, DeviceError> {
        self.allocate(bytes)
    }

    /// Allocates zeroed memory.
    fn zeros(&self, bytes: usize) -> Result<Self::Memory, DeviceError> {
        let mut memory = self.allocate(bytes)?;
        let words = self.extent(&memory).bytes / size_of::<u32>();
        self.fill(&mut memory, 0..words, 0)?;
        Ok(memory)
    }

    /// Copies a constant to the device.
    fn keep(&self, elements: &ConstantElements) -> Result<Self::Memory, DeviceError> {
        self.upload(elements.bytes())
    }

    /// Packs the constants of a kernel into `memory`.
    fn pack(
        &self,
        kernel: &Kernel<Self>,
        constants: &[BoundConstant],
        memory: Self::Memory,
    ) -> Result<Arc<Packed<Self>>, CompileError> {
        let given = || constants.iter().flatten();
        let kept = given().map(|(_, elements)| self.keep(elements)).collect::<Result<Vec<_>, _>>()?;
        let views = given()
            .zip(&kept)
            .map(|((buffer, _), memory)| View::of(memory, buffer.dtype, &buffer.shape).in_layout(buffer.layout));
        Ok(kernel.pack_in(self, &views.collect::<Vec<_>>(), memory)?)
    }

    /// Creates a call that computes a node by the interpreter; `None` if the device does not
    /// support it.
    fn interpreter_call(
        &self,
        network: &Arc<Compiled<Self>>,
        node: NodeId,
        operands: Vec<TypedMemory<Self>>,
        output: TypedMemory<Self>,
        failure: &Arc<Failure>,
    ) -> Option<Self::Call> {
        let _ = (network, node, operands, output, failure);
        None
    }

    /// Records all calls of a run, if that makes runs faster. Calls may run meanwhile, on zeroed
    /// memory.
    fn recorded(&self, calls: &[Self::Call]) -> Result<Option<Self::Recording>, DeviceError> {
        // Drivers load kernels at their first launch, which cannot be recorded.
        self.start_all(calls)?;
        self.finish()?;
        Ok(self.record(&mut || self.start_all(calls)))
    }

    /// Starts calls one after the other.
    fn start_all(&self, calls: &[Self::Call]) -> Result<(), DeviceError> {
        calls.iter().try_for_each(|call| self.start(call))
    }

    /// Starts the calls of a run. Inputs that are not read in place have been copied.
    ///
    /// # Safety
    ///
    /// The inputs have the sizes of the network's inputs, and outlive the calls.
    unsafe fn run(
        &self,
        calls: &mut [Self::Call],
        reads: &mut InputReads,
        inputs: &[&[f32]],
    ) -> Result<(), DeviceError> {
        let _ = (reads, inputs);
        self.start_all(calls)
    }
}

impl NetworkOps for Cpu {
    /// Number of threads of the team.
    type Origin = usize;

    const READS_CALLERS_MEMORY: bool = true;

    fn origin(target: &Target) -> Result<usize, DeviceError> {
        Ok(target.threads())
    }

    fn of(&threads: &usize) -> Result<Self, DeviceError> {
        Ok(Self::new(threads))
    }

    fn to_load(_: &usize) -> Result<Self, DeviceError> {
        Ok(Self::new(1))
    }

    fn set_waiting(&self, waiting: Waiting) {
        Self::set_waiting(self, waiting);
    }

    fn untouched(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        HostMemory::untouched(bytes)
    }

    /// Allocates memory without clearing it: nothing runs before its inputs are written.
    fn zeros(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        self.allocate(bytes)
    }

    fn keep(&self, elements: &ConstantElements) -> Result<HostMemory, DeviceError> {
        elements.copy()
    }

    fn pack(
        &self,
        kernel: &Kernel,
        constants: &[BoundConstant],
        memory: HostMemory,
    ) -> Result<Arc<Packed>, CompileError> {
        let views: Vec<View> = constants.iter().flatten().map(|(buffer, elements)| elements.view(buffer)).collect();
        Ok(kernel.pack_in(self, &views, memory)?)
    }

    fn interpreter_call(
        &self,
        network: &Arc<Compiled>,
        node: NodeId,
        operands: Vec<TypedMemory>,
        output: TypedMemory,
        failure: &Arc<Failure>,
    ) -> Option<CpuCall> {
        let work = interpreter(network, node, operands, output, failure);
        Some(CpuCall::of_work(self, 1, move |_| work()))
    }

    /// Returns none: a team starts all calls at once anyway.
    fn recorded(&self, _: &[CpuCall]) -> Result<Option<Self::Recording>, DeviceError> {
        Ok(None)
    }

    fn start_all(&self, calls: &[CpuCall]) -> Result<(), DeviceError> {
        Cpu::start_all(self, calls)
    }

    unsafe fn run(&self, calls: &mut [CpuCall], reads: &mut InputReads, inputs: &[&[f32]]) -> Result<(), DeviceError> {
        let mut bound = BoundCalls::new(calls, reads);
        // SAFETY: guaranteed by the caller.
        unsafe { bound.bind(inputs) };
        Cpu::start_all(self, bound.calls())
    }
}

/// Teams of any number of threads copy alike.
impl StridedCopies<Cpu> for usize {
    unsafe fn copying(
        &self,
        device: &Cpu,
        copy: &Strided,
        bytes: usize,
        from: CopyEnd,
        to: CopyEnd,
    ) -> Result<CpuCall, CompileError> {
        // SAFETY: guaranteed by the caller.
        let whole = |end: CopyEnd| unsafe {
            device.part(&end.memory, end.first.saturating_mul(bytes)..device.extent(&end.memory).bytes)
        };
        // SAFETY: as above.
        let copying = unsafe { Copying::new(copy, bytes, whole(from)?, whole(to)?) };
        let copying = copying.ok_or_else(beyond)?;
        Ok(CpuCall::of_work(device, copying.tasks(), move |tasks: Range<usize>| copying.run(tasks)))
    }
}

/// GPU that networks share, with kernels that are not of a workload.
pub struct GpuOrigin<D: Device> {
    target: GpuTarget,
    device: Mutex<D>,
    /// Kernels that copy elements, once a network needs them.
    copies: Mutex<Option<Arc<CopyKernels<D>>>>,
}

impl<D: Device> GpuOrigin<D> {
    /// Opens the device of a target.
    pub(crate) fn open(
        target: &Target,
        open: impl FnOnce(&GpuTarget) -> Result<D, DeviceError>,
    ) -> Result<Arc<Self>, DeviceError> {
        let absent = || DeviceError::Absent(format!("{target} is not a GPU"));
        let target = target.gpu().ok_or_else(absent)?.clone();
        let device = Mutex::new(open(&target)?);
        Ok(Arc::new(Self { target, device, copies: Mutex::new(None) }))
    }

    /// Creates another queue of the device.
    pub(crate) fn queue(&self, of: impl FnOnce(&D) -> Result<D, DeviceError>) -> Result<D, DeviceError> {
        of(&self.device.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<D: Device> StridedCopies<D> for Arc<GpuOrigin<D>> {
    unsafe fn copying(
        &self,
        device: &D,
        copy: &Strided,
        bytes: usize,
        from: CopyEnd<D>,
        to: CopyEnd<D>,
    ) -> Result<D::Call, CompileError> {
        let loops = copy.loops_within(from.elements(device, bytes), to.elements(device, bytes)).ok_or_else(beyond)?;
        let from = CopyEnd { first: from.first + copy.from, ..from };
        let kernels = {
            let mut known = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
            match &*known {
                Some(known) => Arc::clone(known),
                None => Arc::clone(known.insert(Arc::new(CopyKernels::new(device, &self.target)?))),
            }
        };
        // SAFETY: guaranteed by the caller, and the loops were checked.
        unsafe { kernels.bind(device, &loops, bytes, from, to) }
    }
}

/// Returns the error of a copy that exceeds its tensors.
fn beyond() -> DeviceError {
    DeviceError::fault("a copy exceeds its tensors")
}

impl NetworkOps for CudaDevice {
    type Origin = Arc<GpuOrigin<Self>>;

    const READS_CALLERS_MEMORY: bool = false;

    fn origin(target: &Target) -> Result<Self::Origin, DeviceError> {
        GpuOrigin::open(target, Self::open)
    }

    fn of(origin: &Self::Origin) -> Result<Self, DeviceError> {
        origin.queue(Self::new_stream)
    }
}

impl NetworkOps for OpenClDevice {
    type Origin = Arc<GpuOrigin<Self>>;

    const READS_CALLERS_MEMORY: bool = false;

    fn origin(target: &Target) -> Result<Self::Origin, DeviceError> {
        GpuOrigin::open(target, Self::open)
    }

    fn of(origin: &Self::Origin) -> Result<Self, DeviceError> {
        origin.queue(Self::new_queue)
    }
}
