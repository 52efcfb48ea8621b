//! Weights that stay in their files until they are packed.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use autotune_ir::Target;
use autotune_network::onnx::{self, ImportOptions};
use autotune_network::operators::Transpose;
use autotune_network::rewrite::rewrite_traced;
use autotune_network::{Compiled, Graph, Tensor, rewrite};
use rten_onnx::onnx::{DataLocation, StringStringEntryProto, TensorProto};

use crate::build::{Model, counted, float, int, ints};

/// Returns numbers that differ from their neighbours.
fn weights(shape: &[usize]) -> Tensor {
    let count = shape.iter().product::<usize>();
    Tensor::f32(shape, (0..count).map(|at| ((at * 37 % 101) as f32 - 50.0) / 400.0).collect()).unwrap()
}

/// A convolution whose weights a normalisation scales, a product with transposed weights, and one
/// with plain ones.
fn model() -> Model {
    let channels = |values: fn(f32) -> f32| Tensor::f32(&[64], (0..64).map(|c| values(c as f32)).collect()).unwrap();
    Model::new(17)
        .input("x", &[1, 64, 4, 4])
        .constant("filters", &weights(&[64, 64, 3, 3]))
        .constant("scale", &channels(|c| 1.0 + c / 64.0))
        .constant("bias", &channels(|c| c / 32.0 - 1.0))
        .constant("mean", &channels(|c| c / 128.0))
        .constant("variance", &channels(|c| 0.5 + c / 64.0))
        .constant("transposed", &weights(&[96, 1024]))
        .constant("plain", &weights(&[96, 256]))
        .node("Conv", "x filters", "a", vec![ints("pads", &[1; 4])])
        .node("BatchNormalization", "a scale bias mean variance", "b", vec![float("epsilon", 1e-3)])
        .node("Relu", "b", "c", vec![])
        .node("Flatten", "c", "d", vec![int("axis", 1)])
        .node("Gemm", "d transposed", "e", vec![int("transB", 1)])
        .node("MatMul", "e plain", "y", vec![])
        .output("y")
}

fn read(path: &Path) -> Graph {
    let options = ImportOptions { name: Some("network".into()), ..ImportOptions::default() };
    onnx::read(path, &options).unwrap()
}

/// Moves a tensor's bytes to an external file, at some offset.
fn move_out(tensor: &mut TensorProto, folder: &Path, before: usize) {
    let mut bytes = vec![0xff; before];
    bytes.extend(tensor.raw_data.take().unwrap().into_inner());
    fs::write(folder.join("weights.bin"), bytes).unwrap();
    let entry = |key: &str, value: String| StringStringEntryProto { key: Some(key.into()), value: Some(value) };
    tensor.external_data = vec![entry("location", "weights.bin".into()), entry("offset", before.to_string())];
    tensor.data_location = Some(DataLocation::EXTERNAL);
}

/// Weights at any offset, in the model or in an external file, also after both files are removed.
#[test]
fn weights_in_files_are_those_in_memory() {
    let in_memory = model().import().unwrap();
    let rewritten = rewrite(&in_memory).unwrap();
    let x = counted(&[1, 64, 4, 4]);
    let wanted = in_memory.evaluate(std::slice::from_ref(&x)).unwrap();

    for shift in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        let mut model = model();
        model.0.producer_name = Some("x".repeat(shift + 1));
        let plain = model.graph().initializer.iter_mut().find(|tensor| tensor.name.as_deref() == Some("plain"));
        move_out(plain.unwrap(), folder.path(), shift);
        fs::write(&path, model.bytes()).unwrap();

        let imported = read(&path);
        assert_eq!(imported, in_memory);
        let (graph, trace) = rewrite_traced(&imported).unwrap();
        assert_eq!(graph, rewritten);
        fs::remove_dir_all(folder.path()).unwrap();
        for threads in [1, 2] {
            let target = Target::detect("cpu", Some(threads)).unwrap();
            let mut workspace = Compiled::new(&graph, None, &target).unwrap().workspace().unwrap();
            let found = workspace.run_tensors(std::slice::from_ref(&x)).unwrap();
            let (found, wanted) = (found[0].to_numbers(), wanted[0].to_numbers());
            let most = wanted.iter().fold(0f32, |most, x| most.max(x.abs()));
            assert!(found.iter().zip(&wanted).all(|(x, y)| (x - y).abs() < 3e-4 * most));
            let checked = workspace.check(std::slice::from_ref(&x), &imported, &trace).unwrap();
            assert!(checked.steps.len() >= 3);
            assert!(checked.steps.iter().chain(&checked.imported).all(|step| step.max_rel_error < 3e-4));
        }
    }
}

/// Constants computed on demand are not computed once for every path to them.
#[test]
fn constants_of_constants_take_no_longer_than_their_number() {
    let mut model = Model::new(17).input("x", &[256, 128]).constant("w0", &weights(&[128, 256]));
    for level in 0..40 {
        let (from, to) = (format!("w{level}"), format!("w{}", level + 1));
        let half = Tensor::scalar(0.5);
        model = model.constant(&format!("half{level}"), &half);
        model = model.node("Add", &format!("{from} {from}"), &format!("sum{level}"), vec![]);
        model = model.node("Mul", &format!("sum{level} half{level}"), &to, vec![]);
    }
    let model = model.node("Transpose", "w40", "t", vec![ints("perm", &[1, 0])]);
    let model = model.node("Add", "x t", "y", vec![]).output("y");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    fs::write(&path, model.bytes()).unwrap();

    let graph = rewrite(&read(&path)).unwrap();
    assert!(graph.nodes().all(|(_, node)| !node.op.is::<Transpose>()));
    let x = Tensor::f32(&[256, 128], vec![0.0; 256 * 128]).unwrap();
    let found = graph.evaluate(&[x]).unwrap().swap_remove(0).to_numbers();
    let w = weights(&[128, 256]).to_numbers();
    let transposed = (0..256 * 128).map(|at| w[at % 128 * 256 + at / 128]);
    assert!(found.into_iter().eq(transposed));
}

/// Raw data of a tensor in memory is its own bytes, not a position in the file.
#[test]
fn raw_bytes_of_a_message_are_its_own() {
    let mut model = Model::new(17).input("x", &[4]).constant("c", &counted(&[4]));
    model.graph().initializer[0].raw_data = Some(RefCell::new(vec![0; 15]));
    let error = model.node("Add", "x c", "y", vec![]).output("y").import().map(drop).unwrap_err().to_string();
    assert_eq!(error, "tensor 'c': 15 bytes do not match 4 elements of FLOAT");
}
