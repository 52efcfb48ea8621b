//! Users' models with expected outputs of another runtime. These and the conformance models are
//! also compared with the reference, step by step.

use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::onnx::{self, ImportOptions};
use autotune_network::rewrite::rewrite_traced;
use autotune_network::{CheckError, Compiled, Graph, StepError, Tensor, rewrite};

use super::conformance::{data, entries, folder, numbered, options};
use crate::build::difference;
use crate::long::or_long;

/// Describes the steps and tensors of a graph that differ from the reference; empty if there are
/// none.
fn alarms(graph: &Graph, inputs: &[Tensor], target: &Target) -> Result<String, CheckError> {
    let (rewritten, trace) = rewrite_traced(graph).map_err(autotune_network::CompileError::from)?;
    let mut workspace = Compiled::new(&rewritten, None, target)?.workspace()?;
    let checked = workspace.check(inputs, graph, &trace)?;
    let wrong =
        |errors: &[StepError]| errors.iter().filter(|step| !step.is_within_tolerance()).cloned().collect::<Vec<_>>();
    let wrong = [wrong(&checked.steps), wrong(&checked.imported)];
    Ok(if wrong.iter().all(Vec::is_empty) { String::new() } else { format!("{wrong:?}\n") })
}

/// Users' models raise no alarm in either comparison.
#[test]
fn models_of_users_are_right_by_both_walks() {
    let Some(models) = folder("onnx_models", "AUTOTUNE_ONNX_MODELS") else { return };
    let target = Target::detect("cpu", Some(1)).unwrap();
    let mut all = String::new();
    for model in entries(&models) {
        let graph = onnx::read(&model.join("model.onnx"), &ImportOptions::default()).unwrap();
        let inputs: Vec<Tensor> =
            numbered(&model.join("test_data_set_0"), "input").into_iter().map(|input| input.tensor).collect();
        let found = alarms(&graph, &inputs, &target).unwrap();
        if !found.is_empty() {
            all += &format!("{}: {found}", model.display());
        }
    }
    assert_eq!(all, "");
}

/// All importable conformance models raise no alarm in either comparison; every third one in an
/// ordinary run.
#[test]
fn conformance_models_are_right_by_both_walks() {
    let Some(data) = data() else { return };
    let target = Target::detect("cpu", Some(1)).unwrap();
    let (mut all, mut compared) = (String::new(), 0);
    for set in ["node", "pytorch-converted", "pytorch-operator", "simple"] {
        for model in entries(&data.join(set)).into_iter().step_by(or_long([3, 1])) {
            let Ok(graph) = onnx::read(&model.join("model.onnx"), &options(&model)) else { continue };
            let inputs: Vec<Tensor> =
                numbered(&model.join("test_data_set_0"), "input").into_iter().map(|input| input.tensor).collect();
            match alarms(&graph, &inputs, &target) {
                Ok(found) => {
                    compared += 1;
                    if !found.is_empty() {
                        all += &format!("{}: {found}", model.display());
                    }
                }
                Err(error) => all += &format!("{}: {error}\n", model.display()),
            }
        }
    }
    assert_eq!(all, "");
    assert!(compared > or_long([250, 800]), "{compared}");
}

/// Users' models run without the interpreter, and compute the expected outputs.
#[test]
fn models_of_users() {
    let Some(models) = folder("onnx_models", "AUTOTUNE_ONNX_MODELS") else { return };
    let target = Target::detect("cpu", Some(1)).unwrap();
    for model in entries(&models) {
        let name = model.display();
        let graph = onnx::read(&model.join("model.onnx"), &ImportOptions::default()).unwrap();
        let graph = rewrite(&graph).unwrap();
        let is_interpreted = |work: &StepWork| matches!(work, StepWork::Interpret(_));
        assert!(!Cut::of(&graph).steps.iter().any(|step| is_interpreted(&step.work)), "{name}");

        let data = model.join("test_data_set_0");
        let inputs: Vec<Tensor> = numbered(&data, "input").into_iter().map(|input| input.tensor).collect();
        let mut workspace = Compiled::new(&graph, None, &target).unwrap().workspace().unwrap();
        let (found, expected) = (workspace.run_tensors(&inputs).unwrap(), numbered(&data, "output"));
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(difference(found, &expected.tensor, expected.tolerance, 1e-5), None, "{name}");
        }
    }
}
