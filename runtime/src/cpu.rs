//! The CPU as a device: a team of threads of this process.

use std::any::Any;
use std::cell::RefCell;
use std::convert::Infallible;
use std::ffi::{c_char, c_long};
use std::ops::Range;
use std::path::Path;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::time::Instant;

use autotune_ir::{Artifact, Code, KernelPlan, MachineCode};
use libloading::Library;
use smallvec::SmallVec;

use crate::cache;
use crate::device::{Bound, Device, MemoryExtent, word_bytes};
use crate::element::bytes_of;
use crate::error::{DeviceError, LoadError};
use crate::executable::Executable;
use crate::host_memory::HostMemory;
use crate::team::{StageFn, Stages, Team, TeamWork, Waiting};
use crate::tiles;

/// Size in bytes from which all threads together touch the pages of new memory, and the size of the
/// parts that they take.
const SHARED_BYTES: usize = 32 << 20;
const PART_BYTES: usize = 2 << 20;

/// CPU threads that run kernels together: the calling thread and helpers.
pub struct Cpu {
    team: RefCell<Team>,
}

impl Cpu {
    /// Creates a device with `threads` threads including the caller, as [`Team::new`].
    pub fn new(threads: usize) -> Self {
        Self::of(Team::new(threads))
    }

    /// Creates a device whose helpers are pinned to cores, as [`Team::pinned`].
    pub fn pinned(threads: usize) -> Self {
        Self::of(Team::pinned(threads))
    }

    fn of(team: Team) -> Self {
        Self { team: RefCell::new(team) }
    }

    /// Returns the number of threads, including the caller.
    pub fn threads(&self) -> usize {
        self.team.borrow().threads()
    }

    /// Changes the behaviour of waiting helpers, as [`Team::set_waiting`].
    pub fn set_waiting(&self, waiting: Waiting) {
        self.team.borrow_mut().set_waiting(waiting);
    }

    /// Returns the behaviour of waiting helpers.
    pub fn waiting(&self) -> Waiting {
        self.team.borrow().waiting()
    }

    /// Runs calls one after the other. The threads are started only once for all of them.
    pub fn start_all(&self, calls: &[CpuCall]) -> Result<(), DeviceError> {
        let mut team = self.team.borrow_mut();
        if let Some(call) = calls.iter().find(|call| call.private.len() < team.threads()) {
            let (found, threads) = (call.private.len(), team.threads());
            return Err(DeviceError::fault(format!("private memory exists for {found} of {threads} threads")));
        }
        // SAFETY: the caller of `load` guaranteed the code, and the caller of `bind` the memory.
        unsafe { team.run(calls) };
        Ok(())
    }
}

/// Functions of a loaded kernel.
pub struct CpuModule {
    /// Function of each stage, with its number of tasks.
    stages: Vec<(StageFn, usize)>,
    /// True unless the buffer is private, by position in the plan.
    are_global: SmallVec<[bool; 16]>,
    needs_private: bool,
    /// Owner of the functions' code, kept alive.
    _code: Option<LoadedCode>,
}

/// Owner of a kernel's code; only its destructor is used.
#[expect(dead_code, reason = "functions of the kernel point into them")]
enum LoadedCode {
    Library(Library),
    Memory(Executable),
}

/// Stages bound to their arguments.
pub struct CpuCall {
    stages: SmallVec<[(StageFn, usize); 4]>,
    /// Address of each buffer of the plan; null for private ones.
    buffers: SmallVec<[*mut f32; 16]>,
    /// Private memory of each thread.
    private: SmallVec<[*mut c_char; 8]>,
    /// Owner of the memory that the pointers refer to, kept alive.
    _resources: CallResources,
}

// SAFETY: the pointers are dereferenced only when a call is started, and the caller of `bind`
// guaranteed that they are valid then.
unsafe impl Send for CpuCall {}
// SAFETY: as above.
unsafe impl Sync for CpuCall {}

/// Owner of the memory that a call uses; only its destructor is used.
#[expect(dead_code, reason = "a call points into it")]
enum CallResources {
    Memory(Bound<HostMemory>),
    Work(Arc<dyn Any + Send + Sync>),
}

impl CpuCall {
    /// Creates a call that runs host work as `tasks` tasks, which may run concurrently. `work` must
    /// not panic.
    pub fn of_work<F: Fn(Range<usize>) + Send + Sync + 'static>(cpu: &Cpu, tasks: usize, work: F) -> Self {
        unsafe extern "C" fn part<F: Fn(Range<usize>)>(
            work: *const *mut f32,
            _local: *mut c_char,
            begin: c_long,
            end: c_long,
        ) {
            // SAFETY: the first pointer is to an `F` (see below) that lives as long as the call and
            // may be called by several threads.
            let work = unsafe { &*(*work).cast::<F>() };
            work(begin as usize..end as usize);
        }
        let work = Arc::new(work);
        let buffers = SmallVec::from_slice(&[Arc::as_ptr(&work).cast_mut().cast()]);
        let private = SmallVec::from_elem(ptr::null_mut(), cpu.threads());
        let stages = SmallVec::from_slice(&[(part::<F> as StageFn, tasks)]);
        Self { stages, buffers, private, _resources: CallResources::Work(work) }
    }

    /// Replaces the address of a buffer, given by its position in the kernel's plan, and returns
    /// the old address; `None` if there is no such buffer.
    ///
    /// # Safety
    ///
    /// Whenever the call is started, `start` must be the address of memory with the buffer's size,
    /// for which the requirements of [`Device::bind`] are satisfied.
    pub unsafe fn exchange(&mut self, buffer: usize, start: *mut f32) -> Option<*mut f32> {
        self.buffers.get_mut(buffer).map(|pointer| std::mem::replace(pointer, start))
    }
}

impl Stages for CpuCall {
    fn stages(&self) -> impl Iterator<Item = TeamWork<'_>> {
        let work = |&(function, tasks)| TeamWork { function, buffers: &self.buffers, locals: &self.private, tasks };
        self.stages.iter().map(work)
    }
}

impl CpuModule {
    /// Creates a module of functions of this program, one per stage.
    ///
    /// # Safety
    ///
    /// The functions must satisfy the requirements of [`Device::load`] for the plan.
    pub unsafe fn of_functions(functions: Vec<StageFn>, plan: &KernelPlan) -> Result<Self, LoadError> {
        request_tiles(plan)?;
        Self::of(functions, None, plan)
    }

    fn of(functions: Vec<StageFn>, code: Option<LoadedCode>, plan: &KernelPlan) -> Result<Self, LoadError> {
        let (entries, stages) = (functions.len(), plan.stages.len());
        if entries != stages {
            return Err(LoadError::Entries { entries, code_bytes: 0, stages });
        }
        Ok(Self {
            stages: functions.into_iter().zip(plan.stages.iter().map(|stage| stage.tasks)).collect(),
            are_global: plan.buffers.iter().map(|buffer| buffer.is_global()).collect(),
            needs_private: plan.local_bytes > 0,
            _code: code,
        })
    }

    /// Loads the functions from a shared object.
    ///
    /// # Safety
    ///
    /// See [`Device::load`].
    unsafe fn of_library(path: &Path, plan: &KernelPlan) -> Result<Self, LoadError> {
        // SAFETY: the caller guarantees that the library's initialisers are harmless.
        let library = unsafe { Library::new(path) }.map_err(|source| LoadError::Open { path: path.into(), source })?;
        let mut functions = Vec::with_capacity(plan.stages.len());
        for stage in &plan.stages {
            // SAFETY: the caller guarantees the type; the pointer is used only while the library is
            // loaded.
            let function = unsafe { library.get::<StageFn>(stage.symbol.as_bytes()) };
            let missing = |_| LoadError::Symbol { path: path.into(), symbol: stage.symbol.clone() };
            functions.push(*function.map_err(missing)?);
        }
        Self::of(functions, Some(LoadedCode::Library(library)), plan)
    }

    /// Copies machine code to memory that is executable and not writable.
    ///
    /// # Safety
    ///
    /// See [`Device::load`].
    unsafe fn of_machine_code(code: &MachineCode, plan: &KernelPlan) -> Result<Self, LoadError> {
        if !cfg!(target_arch = "x86_64") {
            return Err(LoadError::Kind { device: std::env::consts::ARCH.into() });
        }
        let (entries, code_bytes, stages) = (code.entries.len(), code.code_bytes, plan.stages.len());
        let cut_off = code_bytes > code.bytes.len();
        if cut_off || entries != stages || code.entries.iter().any(|&entry| entry >= code_bytes) {
            return Err(LoadError::Entries { entries, code_bytes, stages });
        }

        request_tiles(plan)?;
        let executable = Executable::new(code).map_err(LoadError::NoMemory)?;
        let function = |&entry: &usize| {
            let address = executable.at(entry)?;
            // SAFETY: the caller guarantees that a function of this type begins there; the pointer
            // is used only while the memory is mapped.
            Some(unsafe { std::mem::transmute::<*const u8, StageFn>(address) })
        };
        let functions: Option<Vec<StageFn>> = code.entries.iter().map(function).collect();
        let functions = functions.ok_or(LoadError::Entries { entries, code_bytes, stages })?;
        Self::of(functions, Some(LoadedCode::Memory(executable)), plan)
    }
}

/// Asks for tile registers if a kernel uses them. Compiled C never does.
fn request_tiles(plan: &KernelPlan) -> Result<(), LoadError> {
    if plan.uses_tiles { tiles::request().map_err(LoadError::Tiles) } else { Ok(()) }
}

impl Device for Cpu {
    type Module = CpuModule;
    type Memory = HostMemory;
    type Call = CpuCall;
    type Recording = Infallible;

    fn name(&self) -> String {
        std::env::consts::ARCH.into()
    }

    fn host_threads(&self) -> usize {
        self.threads()
    }

    /// Returns 1: generated code accesses vectors at any address, but is fastest if they do not
    /// cross cache lines.
    fn alignment(&self) -> usize {
        1
    }

    unsafe fn load(&self, artifact: &Artifact) -> Result<CpuModule, DeviceError> {
        let plan = &artifact.plan;
        Ok(match &artifact.code {
            // SAFETY: the caller guarantees the code.
            Code::Library(path) => unsafe { CpuModule::of_library(path, plan) }?,
            // SAFETY: as above.
            Code::Machine(code) => unsafe { CpuModule::of_machine_code(code, plan) }?,
            Code::Cubin(_) | Code::OpenCl(_) => return Err(LoadError::Kind { device: self.name() }.into()),
        })
    }

    fn allocate(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        if bytes < SHARED_BYTES {
            return HostMemory::new(bytes);
        }
        // All threads share the page faults of large memory.
        let memory = HostMemory::untouched(bytes)?;
        let parts = memory.extent().bytes.div_ceil(PART_BYTES);
        // SAFETY: no other owner of the memory exists yet, and each thread touches separate parts.
        self.divide(parts, &|parts| unsafe { memory.touch(parts.start * PART_BYTES..parts.end * PART_BYTES) });
        Ok(memory)
    }

    unsafe fn part(&self, memory: &HostMemory, bytes: Range<usize>) -> Result<HostMemory, DeviceError> {
        // SAFETY: guaranteed by the caller.
        unsafe { memory.part(bytes) }
    }

    fn extent(&self, memory: &HostMemory) -> MemoryExtent {
        memory.extent()
    }

    fn holds(&self, _: &HostMemory) -> bool {
        true
    }

    fn host_bytes<'m>(&self, memory: &'m HostMemory) -> Option<&'m [u8]> {
        Some(memory.elements())
    }

    fn fill(&self, memory: &mut HostMemory, words: Range<usize>, word: u32) -> Result<(), DeviceError> {
        let bytes = memory.bytes_mut(word_bytes(&words))?;
        // SAFETY: any four bytes are a valid `u32`.
        let (before, aligned, _) = unsafe { bytes.align_to_mut::<u32>() };
        // Parts of a memory may begin at any byte, where words are not aligned.
        match before {
            [] => aligned.fill(word),
            _ => bytes.chunks_exact_mut(4).for_each(|four| four.copy_from_slice(bytes_of(&[word]))),
        }
        Ok(())
    }

    fn write(&self, memory: &mut HostMemory, first_byte: usize, content: &[u8]) -> Result<(), DeviceError> {
        memory.bytes_mut(crate::device::from(first_byte, content.len()))?.copy_from_slice(content);
        Ok(())
    }

    fn read(&self, memory: &HostMemory, first_byte: usize, content: &mut [u8]) -> Result<(), DeviceError> {
        content.copy_from_slice(memory.bytes(first_byte, content.len())?);
        Ok(())
    }

    fn copy(&self, from: &HostMemory, to: &mut HostMemory, bytes: usize) -> Result<(), DeviceError> {
        self.write(to, 0, from.bytes(0, bytes)?)
    }

    unsafe fn bind(
        &self,
        module: &CpuModule,
        stages: &[usize],
        memory: Bound<HostMemory>,
    ) -> Result<CpuCall, DeviceError> {
        let mut global = memory.buffers.iter();
        let pointer = |&is_global: &bool| match is_global {
            true => global.next().map(|memory| memory.start().cast()),
            false => Some(ptr::null_mut()),
        };
        let too_few = || DeviceError::fault("too few buffers for the kernel");
        let buffers = module.are_global.iter().map(pointer).collect::<Option<_>>().ok_or_else(too_few)?;

        let mut private: SmallVec<_> = memory.private.iter().map(|memory| memory.start().cast()).collect();
        // Calls have one pointer per thread, even if the functions do not use it.
        if !module.needs_private {
            private.resize(self.threads(), ptr::null_mut());
        }
        let stage = |&number: &usize| module.stages.get(number).copied();
        let stages = stages.iter().map(stage).collect::<Option<_>>();
        let stages = stages.ok_or_else(|| DeviceError::fault("the kernel has no such stage"))?;
        Ok(CpuCall { stages, buffers, private, _resources: CallResources::Memory(memory) })
    }

    fn start(&self, call: &CpuCall) -> Result<(), DeviceError> {
        self.start_all(slice::from_ref(call))
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

    fn time(&self, work: &mut dyn FnMut() -> Result<(), DeviceError>) -> Result<f64, DeviceError> {
        let start = Instant::now();
        work()?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn evict(&self, memory: &HostMemory) -> Result<(), DeviceError> {
        match cache::evict(memory.elements()) {
            true => Ok(()),
            false => Err(DeviceError::fault(format!("{}: no instruction evicts memory from the caches", self.name()))),
        }
    }

    fn divide(&self, tasks: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        self.team.borrow_mut().divide(tasks, work);
    }
}
