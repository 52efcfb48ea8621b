//! Nodes of networks without kernels, which the interpreter computes.

use std::path::{Path, PathBuf};

use autotune_network::cut::{Cut, StepWork};
use autotune_network::onnx::{self, ImportOptions};
use autotune_network::rewrite;

use super::conformance::{data, entries, options};
use crate::golden::assert_golden;

/// Returns the operators of a model that the interpreter computes; none if the model is rejected.
fn interpreted(path: &Path, options: &ImportOptions) -> Option<Vec<&'static str>> {
    let graph = rewrite(&onnx::read(path, options).ok()?).unwrap();
    let steps = Cut::of(&graph).steps.into_iter();
    let nodes = steps.filter_map(|step| if let StepWork::Interpret(id) = step.work { Some(id) } else { None });
    Some(nodes.map(|id| graph.node(id).op.name()).collect())
}

#[test]
fn every_node_of_the_model_zoo_has_a_kernel() {
    let Some(data) = data() else { return };
    let is_model = |path: &PathBuf| path.extension().is_some_and(|end| end == "onnx");
    let models: Vec<_> = entries(&data.join("light")).into_iter().filter(is_model).collect();
    assert_eq!(models.len(), 9);
    for model in models {
        assert_eq!(interpreted(&model, &ImportOptions::default()), Some(Vec::new()), "{}", model.display());
    }
}

/// Small models with such nodes are listed in a golden file.
#[test]
fn the_nodes_of_small_models_that_have_no_kernel_are_known() {
    let Some(data) = data() else { return };
    let mut text = String::new();
    for set in ["node", "pytorch-converted", "pytorch-operator", "simple"] {
        let models = entries(&data.join(set)).into_iter();
        let of = |model: PathBuf| Some((interpreted(&model.join("model.onnx"), &options(&model))?, model));
        let found: Vec<_> = models.filter_map(of).collect();
        let others = found.iter().filter(|(operations, _)| !operations.is_empty());
        text += &format!("== {set}: {} of {} have kernels only\n", found.len() - others.clone().count(), found.len());
        for (operations, model) in others {
            text += &format!("{}: {}\n", model.file_name().unwrap().to_string_lossy(), operations.join(", "));
        }
    }
    assert_golden("onnx_interpreted.txt", &text);
}
