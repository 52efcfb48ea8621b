//! ONNX's conformance models whose shapes depend on the data of a run.

use std::fs;
use std::path::Path;

use autotune_network::onnx::Model;
use autotune_network::{Session, Tensor};
use rten_onnx::onnx::{Dimension, ModelProto};
use rten_onnx::protobuf::{DecodeMessage, ValueReader};

use super::conformance::{Stored, data, entries, numbered};
use crate::build::{Model as BuiltModel, difference, info, tensor_of};
use crate::golden::assert_golden;
use crate::session::options;

/// Turns the constants of a model into inputs, in any shape, and returns their tensors.
fn opened(model: &mut ModelProto) -> Vec<Tensor> {
    let graph = model.graph.as_mut().unwrap();
    let constants = std::mem::take(&mut graph.initializer);
    let mut tensors = Vec::new();
    for constant in constants {
        let dims = vec![Dimension::default(); constant.dims.len()];
        let name = constant.name.clone().unwrap();
        graph.input.retain(|input| input.name.as_deref() != Some(&name));
        graph.input.push(info(&name, constant.data_type.unwrap(), dims));
        tensors.push(tensor_of(constant).unwrap());
    }
    tensors
}

/// Returns the reason that a model is refused; otherwise checks its results.
fn refusal(name: &str, model: ModelProto, inputs: &[Tensor], expected: &[Stored]) -> Option<String> {
    let model = Model::of_vec(BuiltModel(model).bytes());
    let session = model
        .map_err(|e| e.to_string())
        .and_then(|model| Session::of_model(model, options()).map_err(|error| error.to_string()));
    let session = match session {
        Ok(session) => session,
        Err(error) => return Some(error),
    };
    // The second run uses the plans of the first.
    for _ in 0..2 {
        let found = match session.run(inputs) {
            Ok(found) => found,
            Err(error) => return Some(error.to_string()),
        };
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(difference(found, &expected.tensor, expected.tolerance, 1e-5), None, "{name}");
        }
    }
    None
}

fn read(folder: &Path) -> ModelProto {
    ModelProto::decode(ValueReader::from_buf(fs::read(folder.join("model.onnx")).unwrap())).unwrap()
}

/// Models with control flow, and those whose shapes or parameters come from constants, which become
/// inputs here.
#[test]
fn conformance_models_run_in_phases() {
    let Some(data) = data() else { return };
    let (mut agree, mut text) = (0, String::new());
    for folder in entries(&data.join("node")) {
        let mut model = read(&folder);
        let graph = model.graph.as_ref().unwrap();
        let is_phased = |operator: &str| {
            ["If", "Loop", "Scan", "NonZero", "NonMaxSuppression", "Unique", "Compress"].contains(&operator)
        };
        let repeats = graph.node.iter().any(|node| node.op_type.as_deref().is_some_and(is_phased));
        if graph.initializer.is_empty() && !repeats {
            continue;
        }

        let tensors = folder.join("test_data_set_0");
        let mut inputs: Vec<Tensor> = numbered(&tensors, "input").into_iter().map(|input| input.tensor).collect();
        // Inputs that `cases.py` has fixed are files after the others no longer.
        inputs.extend(opened(&mut model));
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        match refusal(&name, model, &inputs, &numbered(&tensors, "output")) {
            None => agree += 1,
            Some(reason) => text += &format!("{name}: {reason}\n"),
        }
    }
    assert_golden("onnx_phases.txt", &format!("{agree} agree\n{text}"));
}
