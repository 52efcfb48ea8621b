//! Libraries of networks with other element types than f32.

use std::ffi::{c_int, c_void};

use autotune_ir::DType;
use autotune_runtime::{HostMemory, bytes_of};

use super::{Library, LibraryFormat};
use crate::compiled::{decode, encode};
use crate::testing::{compiled_as, moves, numbers};

type Run =
    unsafe extern "C" fn(*mut c_void, *const *const c_void, *const *mut c_void, *const c_void, *const c_void) -> c_int;

/// Libraries and workspaces copy the same elements of every size.
#[test]
fn elements_of_every_type_are_moved_by_libraries() {
    let graph = moves();
    for dtype in DType::ALL {
        let network = compiled_as(&graph, dtype).unwrap();
        let library = Library::of(&network, "moves", "moves.so").unwrap();
        let header = library.header();
        let (is_float, of_void) = (header.contains("row-major and of float"), header.contains("const void *const *"));
        assert_eq!((is_float, of_void), (dtype.is_word(), !dtype.is_word()), "{header}");

        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("moves.so");
        library.write(LibraryFormat::Shared, &mut std::fs::File::create(&file).unwrap()).unwrap();
        let mut workspace = HostMemory::new(library.workspace_bytes()).unwrap();
        // SAFETY: the library has no initialisers.
        let loaded = unsafe { libloading::Library::new(&file) }.unwrap();
        let numbers = numbers(30 * 11 * 7);
        let mut x = vec![0; numbers.len() * dtype.bytes()];
        encode(dtype, &numbers, &mut x);

        let mut wanted = network.workspace().unwrap().outputs();
        let mut found: Vec<Vec<u8>> = wanted.iter().map(|output| vec![0; output.len() * dtype.bytes()]).collect();
        let to: Vec<*mut c_void> = found.iter_mut().map(|output| output.as_mut_ptr().cast()).collect();
        let start: *mut c_void = workspace.elements_mut::<u8>().as_mut_ptr().cast();
        // SAFETY: the types are those of the header, and tensors have the sizes that it states.
        unsafe {
            let init = loaded.get::<unsafe extern "C" fn(*mut c_void) -> c_int>(b"moves_init").unwrap();
            let run = loaded.get::<Run>(b"moves_run").unwrap();
            assert_eq!(init(start), 0);
            assert_eq!(run(start, &x.as_ptr().cast(), to.as_ptr(), std::ptr::null(), std::ptr::null()), 0);
        }

        let mut outputs: Vec<&mut [f32]> = wanted.iter_mut().map(Vec::as_mut_slice).collect();
        network.workspace().unwrap().run(&[&numbers], &mut outputs).unwrap();
        for (found, wanted) in found.iter().zip(&wanted) {
            let mut numbers = vec![0.0; wanted.len()];
            decode(dtype, found, &mut numbers);
            assert_eq!(bytes_of(&numbers), bytes_of(wanted), "{dtype}");
        }
    }
}
