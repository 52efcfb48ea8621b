//! Libraries of one network for several shapes of its inputs.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use autotune_db::EmptySource;
use autotune_ir::Target;
use autotune_network::onnx::{ImportOptions, Model};
use autotune_network::{Compiled, Family, FamilyOptions, Library, LibraryError, Tensor};

use super::file::built;
use super::loaded::{CONTEXT, Loaded, ParallelFor, on_threads};
use crate::family::{WIDTH, assert_right, model, random};

type Shapes = *const *const usize;
pub(super) type Run = unsafe extern "C" fn(
    *mut c_void,
    Shapes,
    *const *const f32,
    *const *mut f32,
    Option<ParallelFor>,
    *mut c_void,
) -> c_int;

/// Code of the error that no variant has the shapes.
const ERROR_SHAPE: c_int = 7;

/// Compiles the model of rows for lengths.
fn networks(lengths: &[usize], threads: usize) -> Vec<Arc<Compiled>> {
    networks_for(lengths, &Target::detect("cpu", Some(threads)).unwrap())
}

pub(super) fn networks_for(lengths: &[usize], target: &Target) -> Vec<Arc<Compiled>> {
    let bytes: &'static [u8] = model().bytes().leak();
    let inputs = vec![("x".to_string(), "?x?x64".parse().unwrap())];
    let (model, import) = (Model::of_bytes(bytes).unwrap(), ImportOptions::default());
    let options = FamilyOptions::of_inputs(inputs);
    let family = Family::of_model(model, import, Ok, options, Arc::new(EmptySource), target).unwrap();
    lengths.iter().map(|&length| family.network(&[vec![1, length, WIDTH]]).unwrap()).collect()
}

fn library(networks: &[Arc<Compiled>]) -> Result<Library<'_>, LibraryError> {
    Library::of_variants(&networks.iter().map(|network| &**network).collect::<Vec<_>>(), "rows", "librows.so")
}

/// Every variant computes what its network does in this process, in any order, alone and by
/// threads; a shape without variant is an error, and nothing is written.
#[test]
fn runs_choose_the_variant_by_shapes() {
    for threads in [1, 2] {
        let lengths = [9, 32, 4];
        let networks = networks(&lengths, threads);
        let loaded = Loaded::of_library(&library(&networks).unwrap());
        assert_eq!(loaded.number("variants"), 3);
        let memory = loaded.workspace();
        assert_eq!(loaded.init(memory.start()), 0);

        let run: Run = loaded.function("run");
        for (seed, length) in [4, 32, 9, 9, 4, 5, 32].into_iter().enumerate() {
            let x = random(&[1, length, WIDTH], seed as u64);
            let numbers = x.to_numbers();
            let (shape, mut y, mut shares) = ([1, length, WIDTH], vec![7.0; numbers.len()], vec![7.0; length * length]);
            let outputs = [y.as_mut_ptr(), shares.as_mut_ptr()];
            for share in [None, Some(on_threads as ParallelFor)] {
                let (shapes, inputs) = ([shape.as_ptr()], [numbers.as_ptr()]);
                let context = ptr::without_provenance_mut(CONTEXT);
                // SAFETY: the type is that of the header, and tensors have the sizes of the shapes.
                let error =
                    unsafe { run(memory.start(), shapes.as_ptr(), inputs.as_ptr(), outputs.as_ptr(), share, context) };
                assert_eq!(error, if lengths.contains(&length) { 0 } else { ERROR_SHAPE }, "{length}");
            }

            memory.check();
            if lengths.contains(&length) {
                let y = Tensor::f32(&[1, length, WIDTH], y).unwrap();
                let shares = Tensor::f32(&[1, length, length], shares).unwrap();
                assert_right(&[y, shares], &x);
            } else {
                assert!(y.iter().chain(&shares).all(|&x| x == 7.0), "an output was written");
            }
        }
    }
}

#[test]
fn shapes_of_variants_are_described() {
    let networks = networks(&[9, 32], 1);
    let loaded = Loaded::of_library(&library(&networks).unwrap());
    let variant: unsafe extern "C" fn(Shapes) -> c_int = loaded.function("variant");
    let of = |shape: [usize; 3]| {
        // SAFETY: the function reads three extents.
        unsafe { variant([shape.as_ptr()].as_ptr()) }
    };
    assert_eq!([of([1, 9, 64]), of([1, 32, 64]), of([1, 10, 64]), of([2, 9, 64])], [0, 1, -1, -1]);
    // SAFETY: null is no variant.
    assert_eq!(unsafe { [variant(ptr::null()), variant([ptr::null()].as_ptr())] }, [-1, -1]);

    let shape: unsafe extern "C" fn(usize, usize) -> *const usize = loaded.function("output_shape");
    let elements: unsafe extern "C" fn(usize, usize) -> usize = loaded.function("output_elements");
    let number = |variant, tensor| {
        // SAFETY: the function returns a number.
        unsafe { elements(variant, tensor) }
    };
    assert_eq!([number(0, 0), number(1, 0), number(0, 1), number(1, 1)], [9 * 64, 32 * 64, 81, 1024]);
    assert_eq!([number(2, 0), number(0, 2), number(usize::MAX, 0)], [0; 3]);
    // SAFETY: the shape of the second output has three extents.
    let extents = unsafe { std::slice::from_raw_parts(shape(1, 1), 3) };
    assert_eq!(extents, [1, 32, 32]);
}

/// The header is valid C, and its functions find variants by shapes.
#[test]
fn headers_take_shapes() {
    let networks = networks(&[9, 32], 1);
    let loaded = Loaded::of_library(&library(&networks).unwrap());
    let source = "#include \"rows.h\"
int main(void) {
    size_t shape[3] = {1, 32, 64};
    const size_t *const shapes[1] = {shape};
    return rows_run(NULL, shapes, NULL, NULL, NULL, NULL) != ROWS_ERROR_WORKSPACE || rows_variant(shapes) != 1
        || rows_output_elements(1, 1) != 1024 || rows_variants() != 2;
}
";
    let Some(mut program) = built(&loaded, source, &["-std=c99"]) else { return };
    assert!(program.status().unwrap().success());
    let header = std::fs::read_to_string(loaded.dir.path().join("rows.h")).unwrap();
    assert!(header.contains("variant 1:\n *   inputs[0]: f32 1 x 32 x 64, 2048 float: x"), "{header}");
}

/// Weights and kernels that variants have in common are in the library once.
#[test]
fn weights_are_in_the_library_once() {
    let networks = networks(&[24, 48, 96], 1);
    let one = library(&networks[..1]).unwrap().weight_bytes();
    let all = library(&networks).unwrap().weight_bytes();
    assert!(all < one + one / 2, "{all} bytes instead of {one}");
}

#[test]
fn variants_that_do_not_fit_are_refused() {
    let networks = networks(&[9, 32], 1);
    let refused = |networks: &[&Compiled]| Library::of_variants(networks, "rows", "rows.so").err().unwrap().to_string();
    assert!(refused(&[&networks[0], &networks[1], &networks[0]]).contains("same shapes [[1, 9, 64]]"));
    assert!(refused(&[]).contains("must have the same inputs and outputs"));
    let other = autotune_network::zoo::graph("dqn").unwrap();
    let other = Compiled::new(&other, None, &Target::detect("cpu", Some(1)).unwrap()).unwrap();
    assert!(refused(&[&networks[0], &other]).contains("must have the same inputs and outputs"));
}
