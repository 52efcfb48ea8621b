//! Models that users bring, with outputs of another runtime.

use autotune_ir::Target;
use autotune_network::cut::{Cut, Work};
use autotune_network::onnx::{self, ImportOptions};
use autotune_network::{Compiled, Tensor, rewrite};

use crate::build::difference;
use crate::conformance::{entries, folder, numbered};

/// They run without the interpreter, and compute what is expected.
#[test]
fn models_of_users() {
    let Some(models) = folder("onnx_models", "AUTOTUNE_ONNX_MODELS") else { return };
    let target = Target::detect("cpu", Some(1)).unwrap();
    for model in entries(&models) {
        let name = model.display();
        let graph = onnx::read(&model.join("model.onnx"), &ImportOptions::default()).unwrap();
        let graph = rewrite(&graph).unwrap();
        let is_interpreted = |work: &Work| matches!(work, Work::Interpret(_));
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
