//! A CUDA device that is absent: it keeps the content of memory and the launches of calls, from
//! which a library is made.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use autotune_ir::plan::{PlanBuffer, TensorBox};
use autotune_ir::{Artifact, Code, DType, KernelPlan, Launch};
use autotune_runtime::{Bound, Device, DeviceError, LoadError, MemoryExtent};

/// Alignment of every allocation in bytes.
const ALIGNMENT: usize = 256;

/// Bytes that kernels for CUDA access at once.
const ACCESS: usize = 16;

/// An absent CUDA device. Copies of it record to the same place.
#[derive(Clone, Default)]
pub(super) struct RecordingDevice {
    recorded: Arc<Mutex<DeviceRecording>>,
}

/// Allocations, and the calls that were started.
#[derive(Default)]
pub(super) struct DeviceRecording {
    pub(super) buffers: Vec<RecordedBuffer>,
    pub(super) packing: Vec<RecordedLaunch>,
}

/// An allocation with the content that the host wrote.
pub(super) struct RecordedBuffer {
    pub(super) bytes: usize,
    pub(super) content: Vec<u8>,
}

/// A range of bytes of an allocation.
pub(super) struct RecordedMemory {
    pub(super) buffer: usize,
    pub(super) first: usize,
    bytes: usize,
}

/// Machine code, with the stages of its plan.
pub(super) struct RecordedModule {
    cubin: Arc<Vec<u8>>,
    stages: Vec<RecordedStage>,
}

#[derive(Clone)]
struct RecordedStage {
    symbol: String,
    launch: Launch,
    maps: Vec<RecordedMap>,
}

/// Parameters of a tensor map.
#[derive(Clone)]
pub(super) struct RecordedMap {
    /// Position among the arguments of the kernel.
    pub(super) argument: usize,
    /// Number of the element type in `cuda.h`.
    pub(super) dtype: usize,
    /// Columns and rows of the matrix.
    pub(super) extents: [usize; 2],
    pub(super) row_bytes: usize,
    /// Columns and rows of a box.
    pub(super) shape: [usize; 2],
}

/// Launch of a kernel with its arguments.
#[derive(Clone)]
pub(super) struct RecordedLaunch {
    pub(super) cubin: Arc<Vec<u8>>,
    pub(super) symbol: String,
    pub(super) launch: Launch,
    /// Allocation and offset of each buffer.
    pub(super) arguments: Vec<(usize, usize)>,
    pub(super) maps: Vec<RecordedMap>,
}

/// Launches of a call.
pub(super) struct RecordedCall(pub(super) Vec<RecordedLaunch>);

impl RecordingDevice {
    /// Returns the result of a function of everything recorded.
    pub(super) fn recorded<T>(&self, of: impl FnOnce(&mut DeviceRecording) -> T) -> T {
        of(&mut self.recorded.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RecordedMap {
    /// Returns the map for a box of a kernel's plan; `None` if there is none.
    fn of(plan: &KernelPlan, of: &TensorBox) -> Option<Self> {
        let PlanBuffer { shape, dtype, .. } = plan.buffers.get(of.buffer)?;
        let &[.., rows, columns] = &shape[..] else { return None };
        let number = match dtype {
            DType::F16 => 6,
            DType::F32 | DType::Tf32 => 7,
            DType::Bf16 => 9,
            _ => return None,
        };
        Some(Self {
            argument: plan.buffers[..of.buffer].iter().filter(|buffer| buffer.is_global()).count(),
            dtype: number,
            extents: [columns, rows],
            row_bytes: columns * dtype.bytes(),
            shape: [of.shape[1], of.shape[0]],
        })
    }
}

/// Returns the error of what only a present device does.
fn absent() -> DeviceError {
    DeviceError::fault("a library is made without a device, on which nothing runs")
}

impl Device for RecordingDevice {
    type Module = RecordedModule;
    type Memory = RecordedMemory;
    type Call = RecordedCall;
    type Recording = Infallible;

    fn name(&self) -> String {
        "CUDA".into()
    }

    fn alignment(&self) -> usize {
        ACCESS
    }

    unsafe fn load(&self, artifact: &Artifact) -> Result<RecordedModule, DeviceError> {
        let Code::Cubin(cubin) = &artifact.code else { return Err(LoadError::Kind { device: self.name() }.into()) };
        let plan = &artifact.plan;
        let refused = |what: &str| DeviceError::Load(LoadError::Refused(what.into()));
        let stages = plan.stages.iter().map(|stage| {
            let launch = stage.launch.ok_or_else(|| refused("a stage is not for a GPU"))?;
            let maps: Option<Vec<_>> = stage.boxes.iter().map(|of| RecordedMap::of(plan, of)).collect();
            let maps = maps.ok_or_else(|| refused("a tensor map does not fit its buffer"))?;
            Ok(RecordedStage { symbol: stage.symbol.clone(), launch, maps })
        });
        let stages = stages.collect::<Result<_, DeviceError>>()?;
        Ok(RecordedModule { cubin: Arc::new(cubin.clone()), stages })
    }

    fn allocate(&self, bytes: usize) -> Result<RecordedMemory, DeviceError> {
        let bytes = bytes.max(1);
        let buffer = self.recorded(|recorded| {
            recorded.buffers.push(RecordedBuffer { bytes, content: Vec::new() });
            recorded.buffers.len() - 1
        });
        Ok(RecordedMemory { buffer, first: 0, bytes })
    }

    unsafe fn part(&self, memory: &RecordedMemory, bytes: Range<usize>) -> Result<RecordedMemory, DeviceError> {
        if bytes.start > bytes.end || bytes.end > memory.bytes {
            return Err(DeviceError::OutOfBounds { first_byte: bytes.start, end: bytes.end, bytes: memory.bytes });
        }
        Ok(RecordedMemory { buffer: memory.buffer, first: memory.first + bytes.start, bytes: bytes.len() })
    }

    fn extent(&self, memory: &RecordedMemory) -> MemoryExtent {
        MemoryExtent { bytes: memory.bytes, alignment: 1 << (memory.first | ALIGNMENT).trailing_zeros() }
    }

    fn holds(&self, _: &RecordedMemory) -> bool {
        true
    }

    /// Sets words to zero only, which the library does with the memory of runs.
    fn fill(&self, _: &mut RecordedMemory, _: Range<usize>, word: u32) -> Result<(), DeviceError> {
        if word == 0 { Ok(()) } else { Err(absent()) }
    }

    fn write(&self, memory: &mut RecordedMemory, first_byte: usize, content: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: the part is only checked for its bounds.
        let part = unsafe { self.part(memory, first_byte..first_byte.saturating_add(content.len())) }?;
        self.recorded(|recorded| {
            let own = &mut recorded.buffers[part.buffer].content;
            own.resize(own.len().max(part.first + content.len()), 0);
            own[part.first..][..content.len()].copy_from_slice(content);
        });
        Ok(())
    }

    fn read(&self, _: &RecordedMemory, _: usize, _: &mut [u8]) -> Result<(), DeviceError> {
        Err(absent())
    }

    fn copy(&self, _: &RecordedMemory, _: &mut RecordedMemory, _: usize) -> Result<(), DeviceError> {
        Err(absent())
    }

    unsafe fn bind(
        &self,
        module: &RecordedModule,
        stages: &[usize],
        memory: Bound<RecordedMemory>,
    ) -> Result<RecordedCall, DeviceError> {
        let arguments: Vec<(usize, usize)> =
            memory.buffers.iter().map(|memory| (memory.buffer, memory.first)).collect();
        let launch = |&number: &usize| {
            let stage = module.stages.get(number).cloned();
            let RecordedStage { symbol, launch, maps } =
                stage.ok_or_else(|| DeviceError::fault(format!("the kernel has no stage {number}")))?;
            Ok(RecordedLaunch { cubin: Arc::clone(&module.cubin), symbol, launch, arguments: arguments.clone(), maps })
        };
        Ok(RecordedCall(stages.iter().map(launch).collect::<Result<_, DeviceError>>()?))
    }

    /// Records the call, as one that packs constants: nothing else is started.
    fn start(&self, call: &RecordedCall) -> Result<(), DeviceError> {
        self.recorded(|recorded| recorded.packing.extend_from_slice(&call.0));
        Ok(())
    }

    fn finish(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn record(&self, _: &mut dyn FnMut() -> Result<(), DeviceError>) -> Option<Infallible> {
        None
    }

    fn replay(&self, recording: &Infallible) -> Result<(), DeviceError> {
        match *recording {}
    }

    fn time(&self, _: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        Err(absent())
    }
}
