//! Conformance models on an OpenCL device (PoCL for example): those that CPUs compute by kernels
//! alone compute the same there, a sample of them in an ordinary run.

use std::collections::{BTreeMap, HashSet};
use std::env;
use std::path::{Path, PathBuf};

use autotune::LookupError;
use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::{CompileError, Compiled, Graph, Tensor, dequantised, onnx, rewrite};
use autotune_runtime::OpenClDevice;

use super::conformance::{data, entries, numbered, options};
use crate::build::difference;
use crate::golden::assert_golden_lines;
use crate::long::or_long;
use crate::on_devices::target;

/// Distance between the models of a sample.
const STEP: usize = 45;

/// Returns the network of a model if CPUs compute it by kernels alone.
fn of_kernels(model: &Path) -> Option<Graph> {
    let graph = onnx::read(&model.join("model.onnx"), &options(model)).ok()?;
    let graph = rewrite(&dequantised(&graph).ok()?).unwrap();
    let is_kernel = |work: &StepWork| !matches!(work, StepWork::Interpret(_));
    Cut::of(&graph).steps.iter().all(|step| is_kernel(&step.work)).then_some(graph)
}

/// Runs a network on stored inputs; returns the reason that the device refuses it, or `wrong` and
/// the first wrong element.
fn refusal(model: &Path, graph: &Graph, inputs: &[Tensor], target: &Target) -> Option<String> {
    let folder = model.join("test_data_set_0");
    let compiled = Compiled::<OpenClDevice>::on_device(graph, None, target);
    let mut workspace = match compiled.and_then(|network| network.workspace()) {
        Ok(workspace) => workspace,
        Err(CompileError::Lookup(LookupError::Unfit { .. })) => return Some("types without kernels".into()),
        Err(reason) => return Some(reason.to_string()),
    };

    let (found, wanted) = (workspace.run_tensors(inputs).unwrap(), graph.evaluate(inputs).unwrap());
    let mut outputs = found.iter().zip(&wanted).zip(numbered(&folder, "output"));
    let wrong = outputs.find_map(|((found, wanted), own)| difference(found, wanted, own.tolerance, 1e-5));
    wrong.map(|difference| format!("wrong: {difference}"))
}

/// Returns the stored inputs of a model; none if integers exceed 2^24, to which f32 is exact.
fn inputs(model: &Path) -> Option<Vec<Tensor>> {
    let inputs: Vec<Tensor> =
        numbered(&model.join("test_data_set_0"), "input").into_iter().map(|input| input.tensor).collect();
    let is_exact = |tensor: &Tensor| tensor.as_i64().is_none_or(|all| all.iter().all(|x| x.unsigned_abs() <= 1 << 24));
    inputs.iter().all(is_exact).then_some(inputs)
}

/// Models that the device refuses are listed in a golden file, which is written from all models.
#[test]
fn conformance_models_run_on_devices() {
    let (Some(data), Some(target)) = (data(), target()) else { return };
    let models = ["node", "pytorch-converted", "pytorch-operator", "simple"].map(|set| entries(&data.join(set)));
    let step = if env::var_os("UPDATE_GOLDEN").is_some() { 1 } else { or_long([STEP, 1]) };
    let models: Vec<PathBuf> = models.into_iter().flatten().step_by(step).collect();
    let name = |model: &Path| model.file_name().unwrap().to_string_lossy().into_owned();

    let graphs: Vec<(&PathBuf, Graph, Vec<Tensor>)> =
        models.iter().filter_map(|model| Some((model, of_kernels(model)?, inputs(model)?))).collect();
    assert!(graphs.len() > 10, "{} models", graphs.len());
    let refused = graphs.iter().filter_map(|(model, graph, inputs)| {
        let reason = refusal(model, graph, inputs, &target)?;
        Some((name(model), format!("{}: {reason}\n", name(model))))
    });
    let refused: BTreeMap<String, String> = refused.collect();
    let wrong: Vec<&String> = refused.values().filter(|line| line.contains(": wrong: ")).collect();
    assert!(wrong.is_empty(), "{wrong:?}");

    // A sample is compared with its own lines.
    let sampled: HashSet<String> = models.iter().map(|model| name(model)).collect();
    let is_sampled = |line: &str| sampled.contains(line.split(':').next().unwrap_or_default());
    assert_golden_lines("onnx_devices.txt", &refused.into_values().collect::<String>(), is_sampled);
}
