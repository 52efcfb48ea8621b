//! Libraries with code for several instruction sets. Making them takes a processor with AVX-512.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use autotune_ir::Target;
use autotune_network::operators::Gather;
use autotune_network::{Compiled, DType, Graph, Library, LibraryError, Tensor, rewrite, zoo};

use super::file::built;
use super::loaded::{Loaded, Memory, ParallelFor, on_threads};
use super::variants::{Run, networks_for};
use crate::common::graphs::brought;
use crate::common::{numbers, rng};
use crate::family::{WIDTH, assert_right, random};

/// Codes of errors.
const ERROR_WORKSPACE: c_int = 1;
const ERROR_PROCESSOR: c_int = 2;
const ERROR_SET: c_int = 8;

/// Returns targets with AVX2 and with AVX-512; none if this machine lacks one.
fn targets(threads: usize) -> Option<[Target; 2]> {
    let detect = |word: &str| {
        let mut target = Target::detect(word, None);
        if let Ok(Target::Cpu(cpu)) = &mut target {
            cpu.threads = threads;
        }
        target.map_err(|error| eprintln!("skipped: {error}")).ok()
    };
    Some([detect("cpu:avx2")?, detect("cpu:avx512")?])
}

/// Compiles a graph for both targets.
fn networks(graph: &Graph, threads: usize) -> Option<[Arc<Compiled>; 2]> {
    Some(targets(threads)?.map(|target| Compiled::new(graph, None, &target).unwrap()))
}

fn library<'a>(networks: &'a [Arc<Compiled>]) -> Result<Library<'a>, LibraryError> {
    Library::of_sets(&networks.iter().map(|network| vec![&**network]).collect::<Vec<_>>(), "both", "libboth.so")
}

fn dqn() -> Graph {
    rewrite(&zoo::graph("dqn").unwrap()).unwrap()
}

fn inputs_of(graph: &Graph) -> Vec<Vec<f32>> {
    brought(graph, &mut rng(1)).iter().map(|tensor| tensor.to_numbers()).collect()
}

/// Returns what a network computes in this process.
fn wanted(network: &Arc<Compiled>, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
    let mut workspace = network.workspace().unwrap();
    let mut wanted = workspace.outputs();
    let mut outputs: Vec<&mut [f32]> = wanted.iter_mut().map(Vec::as_mut_slice).collect();
    workspace.run(&inputs.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut outputs).unwrap();
    wanted
}

fn init_for(library: &Loaded, workspace: *mut c_void, set: usize) -> c_int {
    let init: unsafe extern "C" fn(*mut c_void, usize) -> c_int = library.function("init_for");
    // SAFETY: the workspace is null, misaligned, or large enough.
    unsafe { init(workspace, set) }
}

fn used_set(library: &Loaded, workspace: *mut c_void) -> c_int {
    let used: unsafe extern "C" fn(*const c_void) -> c_int = library.function("used_set");
    // SAFETY: as above.
    unsafe { used(workspace) }
}

/// The widest set runs unless another is asked for, and each computes what its network does.
#[test]
fn the_processor_decides_which_code_runs() {
    let graph = dqn();
    for threads in [1, 2] {
        let Some(networks) = networks(&graph, threads) else { return };
        let library = Loaded::of_library(&library(&networks).unwrap());
        assert_eq!(library.number("instruction_sets"), 2);
        let words = [0, 1, 2, usize::MAX].map(|set| library.text_of("instruction_set", set));
        assert!(words[0].as_ref().unwrap().contains("AVX-512"), "{words:?}");
        assert!(words[1].as_ref().unwrap().contains("AVX2") && words[2..] == [None, None], "{words:?}");

        let (memory, inputs) = (library.workspace(), inputs_of(&graph));
        assert_eq!([used_set(&library, ptr::null_mut()), used_set(&library, memory.start())], [-1; 2]);
        let run = |memory: &Memory| {
            let alone = library.results_in(memory, &inputs, None);
            assert_eq!(library.results_in(memory, &inputs, Some(on_threads as ParallelFor)), alone);
            alone
        };
        assert_eq!((library.init(memory.start()), used_set(&library, memory.start())), (0, 0));
        assert_eq!(run(&memory), wanted(&networks[1], &inputs));
        for (set, network) in [(1, &networks[0]), (0, &networks[1])] {
            assert_eq!(init_for(&library, memory.start(), set), 0);
            assert_eq!(used_set(&library, memory.start()), set as c_int);
            assert_eq!(run(&memory), wanted(network, &inputs), "set {set}");
        }

        let refused = |workspace, set| init_for(&library, workspace, set);
        assert_eq!([refused(memory.start(), 2), refused(memory.start(), usize::MAX)], [ERROR_SET; 2]);
        assert_eq!(refused(ptr::null_mut(), 0), ERROR_WORKSPACE);
    }
}

/// The check for AVX-512 is patched to fail: the comparison has a bit that its operand lacks.
#[test]
fn a_processor_without_avx512_runs_the_code_for_avx2() {
    let graph = dqn();
    let Some(networks) = networks(&graph, 1) else { return };
    let library = Loaded::written(&library(&networks).unwrap(), |bytes| {
        // `mov r10d, AVX2 | AVX512F | AVX512VL`, in `init` and `init_for`.
        let instruction = [&[0x41, 0xba][..], &0x8001_0020u32.to_le_bytes()].concat();
        let places: Vec<usize> = (0..bytes.len() - 8).filter(|&at| bytes[at..].starts_with(&instruction)).collect();
        assert_eq!(places.len(), 2);
        places.into_iter().for_each(|at| bytes[at + 2] |= 1);
    });

    let (memory, inputs) = (library.workspace(), inputs_of(&graph));
    assert_eq!((library.init(memory.start()), used_set(&library, memory.start())), (0, 1));
    assert_eq!(library.results_in(&memory, &inputs, None), wanted(&networks[0], &inputs));
    assert_eq!(init_for(&library, library.workspace().start(), 0), ERROR_PROCESSOR);
    assert_eq!(init_for(&library, memory.start(), 1), 0);
}

/// Runs find the variant of their shapes in the code of their instruction set.
#[test]
fn every_set_has_all_variants() {
    let lengths = [9, 32];
    let Some(targets) = targets(2) else { return };
    let networks = targets.map(|target| networks_for(&lengths, &target));
    let sets: Vec<Vec<&Compiled>> =
        networks.iter().map(|networks| networks.iter().map(|network| &**network).collect()).collect();
    let loaded = Loaded::of_library(&Library::of_sets(&sets, "both", "libboth.so").unwrap());
    assert_eq!((loaded.number("variants"), loaded.number("instruction_sets")), (2, 2));

    let (memory, run): (Memory, Run) = (loaded.workspace(), loaded.function("run"));
    for (set, length) in [(0, 9), (1, 9), (1, 32), (0, 32)] {
        assert_eq!(init_for(&loaded, memory.start(), set), 0);
        let x = random(&[1, length, WIDTH], length as u64);
        let (numbers, shape) = (x.to_numbers(), [1, length, WIDTH]);
        let (mut y, mut shares) = (vec![7.0; numbers.len()], vec![7.0; length * length]);
        let (shapes, inputs) = ([shape.as_ptr()], [numbers.as_ptr()]);
        let outputs = [y.as_mut_ptr(), shares.as_mut_ptr()];
        // SAFETY: the type is that of the header, and tensors have the sizes of the shapes.
        let error =
            unsafe { run(memory.start(), shapes.as_ptr(), inputs.as_ptr(), outputs.as_ptr(), None, ptr::null_mut()) };
        assert_eq!(error, 0);
        memory.check();
        let shares = Tensor::f32(&[1, length, length], shares).unwrap();
        assert_right(&[Tensor::f32(&[1, length, WIDTH], y).unwrap(), shares], &x);
    }
}

/// A table that both kinds of code read in one layout is in the library once.
#[test]
fn equal_weights_are_in_the_library_once() {
    let mut graph = Graph::new("rows");
    let table = graph.constant("table", numbers(&mut rng(1), &[500, 32]));
    let rows = graph.input("rows", DType::I64, &[9]).unwrap();
    let found = graph.add("found", Gather { axis: 0 }, &[table, rows]).unwrap();
    graph.output("found", found);
    let Some(networks) = networks(&graph, 1) else { return };
    let bytes = |networks: &[Arc<Compiled>]| library(networks).unwrap().weight_bytes();
    assert!(bytes(&networks[..1]) >= 500 * 32 * 4);
    assert_eq!(bytes(&networks), bytes(&networks[..1]));
}

#[test]
fn headers_describe_the_sets() {
    let Some(networks) = networks(&dqn(), 1) else { return };
    let library = library(&networks).unwrap();
    assert!(
        library.instruction_set().contains("AVX-512 F and VL, or x86-64 with AVX2"),
        "{}",
        library.instruction_set()
    );
    let loaded = Loaded::of_library(&library);
    let source = "#include \"both.h\"
int main(void) {
    return both_instruction_sets() != 2 || both_instruction_set(1) == NULL || both_instruction_set(2) != NULL
        || both_init_for(NULL, 1) != BOTH_ERROR_WORKSPACE || both_used_set(NULL) != -1;
}
";
    for words in [&["-std=c99"][..], &["-x", "c++", "-std=c++11"]] {
        let Some(mut program) = built(&loaded, source, words) else { return };
        assert!(program.status().unwrap().success(), "{words:?}");
    }
}

#[test]
fn sets_that_do_not_fit_are_refused() {
    let Some([avx2, avx512]) = networks(&dqn(), 1) else { return };
    let refused = |networks: &[Arc<Compiled>]| library(networks).err().unwrap().to_string();
    let same = refused(&[Arc::clone(&avx2), Arc::clone(&avx512), Arc::clone(&avx2)]);
    assert!(same.contains("needs the same instructions, x86-64 with AVX2"), "{same}");
    let [other, _] = networks(&rewrite(&zoo::graph("lstm").unwrap()).unwrap(), 1).unwrap();
    assert!(refused(&[other, avx512]).contains("must have the same inputs and outputs"));
    assert!(refused(&[]).contains("must have the same inputs and outputs"));
}
