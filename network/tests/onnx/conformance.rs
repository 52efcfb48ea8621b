//! The conformance models of ONNX: those of the model zoo without their weights, and small ones with inputs and outputs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use autotune_network::onnx::{self, ImportOptions};
use autotune_network::{Graph, Tensor};
use rten_onnx::onnx::TensorProto;
use rten_onnx::protobuf::{DecodeMessage, ValueReader};

use crate::build::{difference, tensor_of};

/// The folder of the models, if there is one.
fn data() -> Option<PathBuf> {
    if let Some(folder) = env::var_os("AUTOTUNE_ONNX_DATA") {
        return Some(folder.into());
    }
    let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|name| name != "onnx"), "onnx is required, but AUTOTUNE_ONNX_DATA is not set");
    // Tests that pass are silent unless they write there themselves.
    let _ = writeln!(io::stderr(), "skipped, onnx is missing: AUTOTUNE_ONNX_DATA is not set");
    None
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

fn stored(path: &Path) -> Tensor {
    tensor_of(TensorProto::decode(ValueReader::from_buf(fs::read(path).unwrap())).unwrap())
}

/// Tensors of a data set, `input_0.pb` and so on.
fn numbered(folder: &Path, stem: &str) -> Vec<Tensor> {
    let paths = (0..).map(|index| folder.join(format!("{stem}_{index}.pb"))).take_while(|path| path.exists());
    paths.map(|path| stored(&path)).collect()
}

/// Why a graph does not compute what is expected, if so.
fn mismatch(graph: &Graph, inputs: &[Tensor], expected: &[Tensor]) -> Option<String> {
    match graph.evaluate(inputs) {
        Ok(found) if found.len() == expected.len() => {
            found.iter().zip(expected).find_map(|(found, expected)| difference(found, expected, 1e-4, 1e-5))
        }
        Ok(found) => Some(format!("{} outputs, where {} are expected", found.len(), expected.len())),
        Err(e) => Some(e.to_string()),
    }
}

/// What becomes of a model: empty if it computes what is expected.
fn outcome(model: &Path) -> String {
    let graph = match onnx::read(&model.join("model.onnx"), &ImportOptions::default()) {
        Ok(graph) => graph,
        Err(e) => return format!("refused: {e}"),
    };
    let data = model.join("test_data_set_0");
    let wrong = mismatch(&graph, &numbered(&data, "input"), &numbered(&data, "output"));
    wrong.map_or(String::new(), |wrong| format!("WRONG: {wrong}"))
}

/// All models of the small sets; those that are refused, with the reason, are in a golden file.
#[test]
fn conformance_models() {
    let Some(data) = data() else { return };
    let (mut agree, mut others) = (0, String::new());
    for set in ["pytorch-converted", "pytorch-operator", "simple"] {
        for model in entries(&data.join(set)) {
            match outcome(&model) {
                outcome if outcome.is_empty() => agree += 1,
                outcome => {
                    let name = model.file_name().unwrap().to_string_lossy().into_owned();
                    others += &format!("{set}/{name}: {outcome}\n");
                }
            }
        }
    }
    assert_golden("onnx_conformance.txt", &format!("{agree} models compute what is expected\n{others}"));
}

/// Topologies of the model zoo; all weights are constants that are computed at import.
#[test]
fn model_zoo_topologies() {
    let Some(data) = data() else { return };
    let models = entries(&data.join("light"));
    let models: Vec<&PathBuf> =
        models.iter().filter(|path| path.extension().is_some_and(|end| end == "onnx")).collect();
    assert_eq!(models.len(), 9);
    for model in models {
        let graph = onnx::read(model, &ImportOptions::default()).unwrap();
        let inputs: Vec<Tensor> = graph.inputs().iter().map(|&id| ramp(&graph.node(id).shape)).collect();
        let name = model.file_stem().unwrap().to_string_lossy().into_owned();
        let expected = numbered(model.parent().unwrap(), &format!("{name}_output"));
        assert_eq!(mismatch(&graph, &inputs, &expected), None, "{name}");
    }
}

/// What the models were fed with: numbers from 0 to 1.
fn ramp(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::f32(shape, (0..count).map(|index| (index as f64 / count as f64) as f32).collect()).unwrap()
}

/// Asserts that `text` is the content of `tests/golden/{name}`; with `UPDATE_GOLDEN=1` in the environment the file is
/// written instead.
fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
        fs::write(&path, text).unwrap();
        return;
    }
    let wanted = fs::read_to_string(&path).unwrap_or_default();
    assert!(text == wanted, "{} differs (UPDATE_GOLDEN=1 rewrites it); it would be\n{text}", path.display());
}
