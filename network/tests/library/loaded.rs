//! A network's library, written to a file, loaded, and called like from C.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;

use autotune_network::{Compiled, Library, LibraryError, LibraryFormat};
use tempfile::TempDir;

pub(crate) type Task = extern "C" fn(*mut c_void, usize);
pub(crate) type ParallelFor = extern "C" fn(*mut c_void, usize, Task, *mut c_void);
type Init = unsafe extern "C" fn(*mut c_void) -> c_int;
type UseWeights = unsafe extern "C" fn(*mut c_void, *const c_void) -> c_int;
type Run =
    unsafe extern "C" fn(*mut c_void, *const *const f32, *const *mut f32, Option<ParallelFor>, *mut c_void) -> c_int;

pub(crate) struct Loaded {
    library: libloading::Library,
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) dir: TempDir,
}

impl Loaded {
    pub(crate) fn of(network: &Compiled) -> Result<Self, LibraryError> {
        Self::named(network, "a_network")
    }

    pub(crate) fn named(network: &Compiled, name: &str) -> Result<Self, LibraryError> {
        Self::changed(network, name, |_| {})
    }

    /// Writes a library, changes its bytes, and loads it.
    pub(crate) fn changed(
        network: &Compiled,
        name: &str,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Self, LibraryError> {
        Ok(Self::written(&Library::of(network, name, &format!("lib{name}.so"))?, change))
    }

    /// Writes a library, and loads it.
    pub(crate) fn of_library(library: &Library) -> Self {
        Self::written(library, |_| {})
    }

    pub(crate) fn written(library: &Library, change: impl FnOnce(&mut Vec<u8>)) -> Self {
        let (dir, name) = (tempfile::tempdir().unwrap(), library.name().to_string());
        let file = dir.path().join(format!("lib{name}.so"));
        let mut bytes = Vec::new();
        library.write(LibraryFormat::Shared, &mut bytes).unwrap();
        change(&mut bytes);
        std::fs::write(&file, bytes).unwrap();
        std::fs::write(dir.path().join(format!("{name}.h")), library.header()).unwrap();
        // SAFETY: the library has no initialisers.
        let library = unsafe { libloading::Library::new(&file) }.unwrap();
        Self { library, name, file, dir }
    }

    pub(crate) fn function<F: Copy>(&self, word: &str) -> F {
        // SAFETY: the types are those of the header.
        *unsafe { self.library.get::<F>(format!("{}_{word}", self.name).as_bytes()) }.unwrap()
    }

    pub(crate) fn number(&self, word: &str) -> usize {
        // SAFETY: as in `function`.
        unsafe { self.function::<unsafe extern "C" fn() -> usize>(word)() }
    }

    pub(crate) fn number_of(&self, word: &str, tensor: usize) -> usize {
        // SAFETY: as in `function`.
        unsafe { self.function::<unsafe extern "C" fn(usize) -> usize>(word)(tensor) }
    }

    pub(crate) fn text_of(&self, word: &str, tensor: usize) -> Option<String> {
        // SAFETY: as in `function`.
        let text = unsafe { self.function::<unsafe extern "C" fn(usize) -> *const c_char>(word)(tensor) };
        // SAFETY: a text in the library, which stays loaded.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_string())
    }

    /// Returns the message of an error code.
    pub(crate) fn error(&self, error: c_int) -> Option<String> {
        // SAFETY: as in `function`.
        let text = unsafe { self.function::<unsafe extern "C" fn(c_int) -> *const c_char>("error")(error) };
        // SAFETY: a text in the library, which stays loaded.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_string())
    }

    /// Returns the shapes of all inputs or all outputs.
    pub(crate) fn shapes(&self, side: &str) -> Vec<Vec<usize>> {
        let shape = self.function::<unsafe extern "C" fn(usize) -> *const usize>(&format!("{side}_shape"));
        let shape = |tensor| {
            let rank = self.number_of(&format!("{side}_rank"), tensor);
            // SAFETY: the shape has `rank` extents.
            let shape = unsafe { std::slice::from_raw_parts(shape(tensor), rank) };
            assert_eq!(self.number_of(&format!("{side}_elements"), tensor), shape.iter().product::<usize>());
            shape.to_vec()
        };
        (0..self.number(&format!("{side}s"))).map(shape).collect()
    }

    pub(crate) fn init(&self, workspace: *mut c_void) -> c_int {
        // SAFETY: the workspace is null, misaligned, or large enough.
        unsafe { self.function::<Init>("init")(workspace) }
    }

    pub(crate) fn run(
        &self,
        workspace: *mut c_void,
        inputs: &[*const f32],
        outputs: &[*mut f32],
        threads: Option<ParallelFor>,
    ) -> c_int {
        // SAFETY: as above; tensors are null or large enough.
        unsafe {
            self.function::<Run>("run")(
                workspace,
                inputs.as_ptr(),
                outputs.as_ptr(),
                threads,
                ptr::without_provenance_mut(CONTEXT),
            )
        }
    }

    /// Returns a copy of the weights.
    pub(crate) fn copied_weights(&self) -> Memory {
        let memory = Memory::new(self.number("weights_bytes"));
        // SAFETY: as in `function`; source and destination have this many bytes.
        unsafe {
            let weights = self.function::<unsafe extern "C" fn() -> *const u8>("weights")();
            memory.start.copy_from_nonoverlapping(weights, memory.bytes);
        }
        memory
    }

    pub(crate) fn use_weights(&self, workspace: *mut c_void, weights: *const c_void) -> c_int {
        // SAFETY: both are null, misaligned, or large enough.
        unsafe { self.function::<UseWeights>("use_weights")(workspace, weights) }
    }

    /// Allocates a workspace filled with NaN.
    pub(crate) fn workspace(&self) -> Memory {
        Memory::new(self.number("workspace_bytes"))
    }

    /// Initialises a workspace, and runs the network on tensors.
    pub(crate) fn results(&self, inputs: &[Vec<f32>], threads: Option<ParallelFor>) -> Vec<Vec<f32>> {
        let workspace = self.workspace();
        assert_eq!(self.init(workspace.start()), 0);
        self.results_in(&workspace, inputs, threads)
    }

    pub(crate) fn results_in(
        &self,
        workspace: &Memory,
        inputs: &[Vec<f32>],
        threads: Option<ParallelFor>,
    ) -> Vec<Vec<f32>> {
        let from: Vec<*const f32> = inputs.iter().map(|input| input.as_ptr()).collect();
        let sizes = self.shapes("output").into_iter().map(|shape| shape.iter().product::<usize>());
        // Guard elements before and after each tensor detect writes out of bounds.
        let mut outputs: Vec<Vec<f32>> = sizes.map(|size| vec![GUARD; size + 2]).collect();
        let to: Vec<*mut f32> = outputs.iter_mut().map(|output| output[1..].as_mut_ptr()).collect();
        assert_eq!(self.run(workspace.start(), &from, &to, threads), 0);
        workspace.check();
        for output in &mut outputs {
            assert_eq!((output.remove(0), output.pop()), (GUARD, Some(GUARD)));
        }
        outputs
    }
}

const GUARD: f32 = 4711.0;

/// Context that callbacks must receive.
pub(crate) const CONTEXT: usize = 0x7e57;

/// Aligned memory, followed by guard bytes.
pub(crate) struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the memory has a single owner.
unsafe impl Send for Memory {}

impl Memory {
    const BEHIND: usize = 256;

    fn new(bytes: usize) -> Self {
        // SAFETY: the size is not 0, and all bytes written are allocated.
        unsafe {
            let start = alloc(Self::layout(bytes));
            start.write_bytes(0xff, bytes + Self::BEHIND);
            Self { start, bytes }
        }
    }

    /// Aligned to exactly 64 bytes.
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes + Self::BEHIND, 64).unwrap()
    }

    pub(crate) fn start(&self) -> *mut c_void {
        self.start.cast()
    }

    pub(crate) fn clear(&mut self) {
        // SAFETY: all bytes are allocated.
        unsafe { self.start.write_bytes(0, self.bytes) };
    }

    pub(crate) fn check(&self) {
        // SAFETY: the guard bytes are allocated.
        let behind = unsafe { std::slice::from_raw_parts(self.start.add(self.bytes), Self::BEHIND) };
        assert!(behind.iter().all(|&byte| byte == 0xff), "something was written behind the workspace");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: same layout as in the allocation.
        unsafe { dealloc(self.start, Self::layout(self.bytes)) };
    }
}

/// Runs each task on a thread of its own, in arbitrary order, then calls tasks out of range, which
/// must have no effect.
pub(crate) extern "C" fn on_threads(context: *mut c_void, count: usize, task: Task, argument: *mut c_void) {
    assert_eq!(context.addr(), CONTEXT);
    let argument = argument.expose_provenance();
    std::thread::scope(|scope| {
        for i in (0..count).rev() {
            scope.spawn(move || task(ptr::with_exposed_provenance_mut(argument), i));
        }
    });
    // Numbers out of range do nothing.
    task(ptr::with_exposed_provenance_mut(argument), count);
    task(ptr::with_exposed_provenance_mut(argument), usize::MAX);
}
