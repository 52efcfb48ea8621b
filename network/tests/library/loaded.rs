//! A library of a network, written to a file, loaded and called as C does.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr;

use autotune_network::{Compiled, Library, LibraryError};
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

    /// One whose bytes are changed before it is loaded.
    pub(crate) fn changed(
        network: &Compiled,
        name: &str,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Self, LibraryError> {
        let (dir, soname) = (tempfile::tempdir().unwrap(), format!("lib{name}.so"));
        let file = dir.path().join(&soname);
        let library = Library::of(network, name, &soname)?;
        let mut bytes = Vec::new();
        library.write(&mut bytes).unwrap();
        change(&mut bytes);
        std::fs::write(&file, bytes).unwrap();
        std::fs::write(dir.path().join(format!("{name}.h")), library.header()).unwrap();
        // SAFETY: it has no initialisers.
        let library = unsafe { libloading::Library::new(&file) }.unwrap();
        Ok(Self { library, name: name.into(), file, dir })
    }

    fn function<F: Copy>(&self, word: &str) -> F {
        // SAFETY: types are those of the header.
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
        // SAFETY: a text of the library, which is loaded.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_string())
    }

    /// What an error means.
    pub(crate) fn error(&self, error: c_int) -> Option<String> {
        // SAFETY: as in `function`.
        let text = unsafe { self.function::<unsafe extern "C" fn(c_int) -> *const c_char>("error")(error) };
        // SAFETY: a text of the library, which is loaded.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_string())
    }

    /// The shapes of all inputs, or of all outputs.
    pub(crate) fn shapes(&self, side: &str) -> Vec<Vec<usize>> {
        let shape = self.function::<unsafe extern "C" fn(usize) -> *const usize>(&format!("{side}_shape"));
        let shape = |tensor| {
            let rank = self.number_of(&format!("{side}_rank"), tensor);
            // SAFETY: `rank` extents are there.
            let shape = unsafe { std::slice::from_raw_parts(shape(tensor), rank) };
            assert_eq!(self.number_of(&format!("{side}_elements"), tensor), shape.iter().product::<usize>());
            shape.to_vec()
        };
        (0..self.number(&format!("{side}s"))).map(shape).collect()
    }

    pub(crate) fn init(&self, workspace: *mut c_void) -> c_int {
        // SAFETY: the workspace is null, misaligned, or as large as it must be.
        unsafe { self.function::<Init>("init")(workspace) }
    }

    pub(crate) fn run(
        &self,
        workspace: *mut c_void,
        inputs: &[*const f32],
        outputs: &[*mut f32],
        threads: Option<ParallelFor>,
    ) -> c_int {
        // SAFETY: as above; tensors are null or as large as they must be.
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

    /// A copy of the weights.
    pub(crate) fn copied_weights(&self) -> Memory {
        let memory = Memory::new(self.number("weights_bytes"));
        // SAFETY: as in `function`; these bytes are there, and in the memory.
        unsafe {
            let weights = self.function::<unsafe extern "C" fn() -> *const u8>("weights")();
            memory.start.copy_from_nonoverlapping(weights, memory.bytes);
        }
        memory
    }

    pub(crate) fn use_weights(&self, workspace: *mut c_void, weights: *const c_void) -> c_int {
        // SAFETY: both are null, misaligned, or as large as they must be.
        unsafe { self.function::<UseWeights>("use_weights")(workspace, weights) }
    }

    /// Memory for one run at a time, full of what is no number.
    pub(crate) fn workspace(&self) -> Memory {
        Memory::new(self.number("workspace_bytes"))
    }

    /// Initialises a workspace and runs on tensors.
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
        // One element before and behind each tensor shows whether it is left.
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

/// What callbacks get.
pub(crate) const CONTEXT: usize = 0x7e57;

/// Aligned memory, and some behind it that nobody may write to.
pub(crate) struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: whoever has it uses it alone.
unsafe impl Send for Memory {}

impl Memory {
    const BEHIND: usize = 256;

    fn new(bytes: usize) -> Self {
        // SAFETY: not empty; every byte is in it.
        unsafe {
            let start = alloc(Self::layout(bytes));
            start.write_bytes(0xff, bytes + Self::BEHIND);
            Self { start, bytes }
        }
    }

    /// Aligned to 64 bytes and no more.
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes + Self::BEHIND, 64).unwrap()
    }

    pub(crate) fn start(&self) -> *mut c_void {
        self.start.cast()
    }

    /// Makes all of it zeros.
    pub(crate) fn clear(&mut self) {
        // SAFETY: every byte is in it.
        unsafe { self.start.write_bytes(0, self.bytes) };
    }

    pub(crate) fn check(&self) {
        // SAFETY: in the memory.
        let behind = unsafe { std::slice::from_raw_parts(self.start.add(self.bytes), Self::BEHIND) };
        assert!(behind.iter().all(|&byte| byte == 0xff), "something was written behind the workspace");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: as it was allocated.
        unsafe { dealloc(self.start, Self::layout(self.bytes)) };
    }
}

/// A thread for each task, in no order, and then all at once again to no effect.
pub(crate) extern "C" fn on_threads(context: *mut c_void, count: usize, task: Task, argument: *mut c_void) {
    assert_eq!(context.addr(), CONTEXT);
    let argument = argument.expose_provenance();
    std::thread::scope(|scope| {
        for i in (0..count).rev() {
            scope.spawn(move || task(ptr::with_exposed_provenance_mut(argument), i));
        }
    });
    // What is no task does nothing.
    task(ptr::with_exposed_provenance_mut(argument), count);
    task(ptr::with_exposed_provenance_mut(argument), usize::MAX);
}
