//! Libraries for CUDA devices, by NVRTC without a device. The tests of the command run them on a
//! stub of the driver.

use autotune::measure::nvrtc;
use autotune_ir::Target;
use autotune_network::operators::CumSum;
use autotune_network::{CompileError, CudaLibrary, CudaLibraryError, DType, Graph, Precision, rewrite, zoo};

/// Returns the library of a built-in network; none without NVRTC.
fn library(name: &str, word: &str, precision: Precision) -> Option<CudaLibrary> {
    let target = Target::detect(word, None).unwrap();
    if let Err(reason) = nvrtc::compiler_for(90) {
        let required = std::env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
        assert!(required.split(',').all(|tool| tool != "nvrtc"), "nvrtc is required: {reason}");
        eprintln!("skipped, nvrtc is missing: {reason}");
        return None;
    }
    let graph = rewrite(&zoo::graph(name).unwrap()).unwrap().with_precision(precision);
    Some(CudaLibrary::of(&graph, None, &target, "net", "net.so").unwrap())
}

/// Constants have the bytes of their types in the library, and its file has all of them.
#[test]
fn libraries_are_made_without_a_device() {
    let sizes = [Precision::F32, Precision::F16].map(|precision| {
        let library = library("dqn", "cuda:sm_90", precision)?;
        let mut file = Vec::new();
        library.write(&mut file).unwrap();
        assert!(file.starts_with(b"\x7fELF"));
        assert!(file.len() > library.weight_bytes() + library.code_bytes() && library.workspace_bytes() > 0);
        assert!(file.windows(7).any(|name| name == b"net_run"));
        let header = library.header();
        for words in ["int net_run(void *workspace", "inputs[0]: f32 1 x 4 x 84 x 84", "compute capability 9.0"] {
            assert!(header.contains(words), "{words}: {header}");
        }
        assert!(library.schedules().iter().any(|tuned| tuned.workload().dtype() == precision.dtype()));
        Some(library.weight_bytes())
    });
    let [Some(whole), Some(half)] = sizes else { return };
    assert!((0.49..0.51).contains(&(half as f64 / whole as f64)), "{half} of {whole}");
}

#[test]
fn what_has_no_kernel_or_is_no_cuda_device_is_refused() {
    let mut graph = Graph::new("sums");
    let x = graph.input("x", DType::F32, &[3, 5]).unwrap();
    let sums = graph.add("sums", CumSum { axis: 1, exclusive: false, reverse: false }, &[x]).unwrap();
    graph.output("sums", sums);
    let refused = |word: &str| {
        let target = Target::detect(word, None).unwrap();
        CudaLibrary::of(&graph, None, &target, "net", "net.so").map(drop).unwrap_err()
    };
    let error = refused("cuda:sm_90");
    assert!(matches!(error, CudaLibraryError::Compile(CompileError::NoKernel { .. })), "{error}");
    assert_eq!(error.to_string(), "sums: CUDA has no kernel for CumSum; use --target cpu");
    assert!(matches!(refused("cpu"), CudaLibraryError::Target(_)));
}
