//! ONNX's conformance models: those of the model zoo without their weights, and small ones with
//! inputs and outputs.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use autotune_network::onnx::{self, ImportError, ImportOptions, NodeError};
use autotune_network::{Graph, Tensor};
use rten_onnx::onnx::{DataType, TensorProto};
use rten_onnx::protobuf::{DecodeMessage, ValueReader};

use crate::build::{difference, tensor_of};
use crate::golden::assert_golden;
use crate::long::or_long;

/// Returns the folder of the conformance models, if there is one.
pub(crate) fn data() -> Option<PathBuf> {
    folder("onnx", "AUTOTUNE_ONNX_DATA")
}

/// Returns the folder that a variable names; fails if it is missing and `AUTOTUNE_REQUIRE` lists
/// `name`.
pub(crate) fn folder(name: &str, variable: &str) -> Option<PathBuf> {
    if let Some(folder) = env::var_os(variable) {
        return Some(folder.into());
    }
    let required = env::var("AUTOTUNE_REQUIRE").unwrap_or_default();
    assert!(required.split(',').all(|other| other != name), "{name} is required, but {variable} is not set");
    // The test harness captures prints of passing tests, so write to stderr directly.
    let _ = writeln!(io::stderr(), "skipped, {name} is missing: {variable} is not set");
    None
}

pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

/// An input or expected output of a model.
pub(crate) struct Stored {
    pub(crate) tensor: Tensor,
    /// Permitted relative error; types with coarser rounding are computed in f32 here.
    pub(crate) tolerance: f32,
}

fn stored(path: &Path) -> Stored {
    let proto = TensorProto::decode(ValueReader::from_buf(fs::read(path).unwrap())).unwrap();
    let tolerance = match proto.data_type.unwrap() {
        DataType::FLOAT16 => 2e-3,
        DataType::BFLOAT16 => 1e-2,
        _ => 1e-3,
    };
    Stored { tensor: tensor_of(proto).unwrap(), tolerance }
}

/// Returns the tensors of a data set, `input_0.pb` and so on.
pub(crate) fn numbered(folder: &Path, stem: &str) -> Vec<Stored> {
    let paths = (0..).map(|index| folder.join(format!("{stem}_{index}.pb"))).take_while(|path| path.exists());
    paths.map(|path| stored(&path)).collect()
}

/// Beginning of the names of models with random outputs, of which only the shapes are defined.
const RANDOM: &str = "test_bernoulli";

/// Asserts that a graph computes the expected outputs.
fn check(name: &str, graph: &Graph, inputs: &[Tensor], expected: &[Stored]) {
    let found = graph.evaluate(inputs).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(found.len(), expected.len(), "{name}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(difference(found, &expected.tensor, expected.tolerance, 1e-5), None, "{name}");
    }
}

/// Returns import options with the shapes of empty inputs: an extent of 0 counts as open.
pub(crate) fn options(model: &Path) -> ImportOptions {
    let declared = onnx::inputs(&model.join("model.onnx")).unwrap_or_default();
    // Inputs of other types than numbers make the list of all empty.
    if declared.is_empty() {
        return ImportOptions::default();
    }
    let given = declared.into_iter().zip(numbered(&model.join("test_data_set_0"), "input"));
    let given = given.filter(|(_, given)| given.tensor.shape().contains(&0));
    let shapes = given.map(|(input, given)| (input.name, given.tensor.shape().to_vec())).collect();
    ImportOptions { shapes, ..ImportOptions::default() }
}

/// Returns the reason that a model is rejected; otherwise checks its results.
fn refusal(model: &Path) -> Option<ImportError> {
    match onnx::read(&model.join("model.onnx"), &options(model)) {
        Ok(graph) => {
            let data = model.join("test_data_set_0");
            let inputs: Vec<Tensor> = numbered(&data, "input").into_iter().map(|input| input.tensor).collect();
            let mut expected = numbered(&data, "output");
            if model.file_name().is_some_and(|name| name.to_string_lossy().starts_with(RANDOM)) {
                let found = graph.evaluate(&inputs).unwrap();
                expected.iter_mut().zip(found).for_each(|(expected, found)| {
                    assert_eq!(expected.tensor.shape(), found.shape());
                    expected.tensor = found;
                });
            }
            check(&model.to_string_lossy(), &graph, &inputs, &expected);
            None
        }
        Err(e) => Some(e),
    }
}

/// All small models compute the expected outputs, except the rejected ones, which a golden file
/// lists with the reasons.
#[test]
fn conformance_models() {
    let Some(data) = data() else { return };
    let mut text = String::new();
    for set in ["node", "pytorch-converted", "pytorch-operator", "simple"] {
        let (mut agree, mut others) = (0, String::new());
        let mut operators: BTreeMap<String, usize> = BTreeMap::new();
        for model in entries(&data.join(set)) {
            match refusal(&model) {
                None => agree += 1,
                Some(ImportError::Node { operator, source: NodeError::Operator, .. }) => {
                    *operators.entry(operator).or_default() += 1;
                }
                Some(e) => others += &format!("{}: {e}\n", model.file_name().unwrap().to_string_lossy()),
            }
        }
        let operators: Vec<String> = operators.iter().map(|(name, count)| format!("{name} {count}")).collect();
        text += &format!("== {set}: {agree} agree; not supported: {}\n{others}", operators.join(", "));
    }
    assert_golden("onnx_conformance.txt", &text);
}

/// Computes three fifths of the model zoo's operations, with operators that others have too.
const LARGEST: &str = "light_vgg19";

/// Topologies of the model zoo, the largest in a long run only; all weights are constants that are
/// computed at import.
#[test]
fn model_zoo_topologies() {
    let Some(data) = data() else { return };
    let models = entries(&data.join("light"));
    let models: Vec<&PathBuf> =
        models.iter().filter(|path| path.extension().is_some_and(|end| end == "onnx")).collect();
    assert_eq!(models.len(), 9);
    let is_largest = |model: &&PathBuf| model.file_stem().is_some_and(|stem| stem == LARGEST);
    assert_eq!(models.iter().filter(|model| is_largest(model)).count(), 1);
    for model in models.into_iter().filter(|model| or_long([!is_largest(model), true])) {
        let graph = onnx::read(model, &ImportOptions::default()).unwrap();
        let inputs: Vec<Tensor> = graph.inputs().iter().map(|&id| ramp(&graph.node(id).shape)).collect();
        let name = model.file_stem().unwrap().to_string_lossy().into_owned();
        let expected = numbered(model.parent().unwrap(), &format!("{name}_output"));
        check(&name, &graph, &inputs, &expected);
    }
}

/// Returns the inputs of the models: numbers from 0 to 1.
fn ramp(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    Tensor::f32(shape, (0..count).map(|index| (index as f64 / count as f64) as f32).collect()).unwrap()
}
