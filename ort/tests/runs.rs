//! Runs of sessions, compared with the reference.

use std::fs;

use ort::session::builder::GraphOptimizationLevel;
use ort::session::{OutputSelector, RunOptions, Session};
use ort::value::{Tensor, TensorElementType, ValueType};
use rten_onnx::onnx::DataType;

use crate::build::{self, Model};
use crate::model::{builder, embedding, layer, session};

fn rows(count: usize) -> Vec<f32> {
    (0..count * 32).map(|number| ((number * 11) % 23) as f32 / 10.0 - 1.0).collect()
}

/// Returns the reference outputs of [`layer`].
fn reference(count: usize) -> (Vec<f32>, Vec<i64>) {
    let mut model = layer();
    model.graph().input[0] = build::info("x", DataType::FLOAT, [count, 32].map(dimension).to_vec());
    let outputs = model.run(&[build::f32s(&[count, 32], &rows(count))]);
    (outputs[0].to_numbers(), outputs[1].as_i64().unwrap().iter().copied().collect())
}

fn dimension(extent: usize) -> rten_onnx::onnx::Dimension {
    rten_onnx::onnx::Dimension { dim_value: Some(extent as i64), dim_param: None }
}

fn check(session: &mut Session, count: usize) {
    let x = Tensor::from_array(([count, 32], rows(count))).unwrap();
    let outputs = session.run(ort::inputs!["x" => x]).unwrap();
    let (y, largest) = reference(count);
    let (shape, found) = outputs["y"].try_extract_tensor::<f32>().unwrap();
    assert_eq!(**shape, [count as i64, 24]);
    assert!(found.iter().zip(&y).all(|(found, wanted)| (found - wanted).abs() < 1e-4), "{found:?}\n{y:?}");
    let (shape, found) = outputs["largest"].try_extract_tensor::<i64>().unwrap();
    assert_eq!((&**shape, found), (&[count as i64][..], &*largest));
}

#[test]
fn any_shape_runs_from_memory_and_from_a_file() {
    let mut from_memory = session(&layer());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layer.onnx");
    fs::write(&path, layer().bytes()).unwrap();
    let mut from_file = builder().commit_from_file(&path).unwrap();
    for count in [1, 5, 64, 5, 2] {
        check(&mut from_memory, count);
        check(&mut from_file, count);
    }
}

#[test]
fn inputs_and_outputs_are_described() {
    let session = session(&layer());
    let [x] = session.inputs() else { panic!("{:?}", session.inputs()) };
    assert_eq!(x.name(), "x");
    let ValueType::Tensor { ty, shape, dimension_symbols } = x.dtype() else { panic!("{x:?}") };
    assert_eq!((*ty, &**shape), (TensorElementType::Float32, &[-1, 32][..]));
    assert_eq!(dimension_symbols.iter().map(|symbol| &**symbol).collect::<Vec<_>>(), ["rows", ""]);
    let types: Vec<_> = session.outputs().iter().map(|output| output.dtype().tensor_type()).collect();
    assert_eq!(types, [Some(TensorElementType::Float32), Some(TensorElementType::Int64)]);
}

#[test]
fn elements_of_other_types_convert() {
    let mask = || Tensor::from_array(([3], vec![true, false, true])).unwrap();
    let wanted = [8.0, 9.0, 10.0, 11.0, 0.0, 0.0, 0.0, 0.0, 76.0, 77.0, 78.0, 79.0];
    let mut of_i64 = session(&embedding(DataType::INT64));
    let ids = Tensor::from_array(([3], vec![2i64, 7, 19])).unwrap();
    let outputs = of_i64.run(ort::inputs!["mask" => mask(), "ids" => ids]).unwrap();
    assert_eq!(outputs[0].try_extract_tensor::<f64>().unwrap().1, wanted);

    let mut of_i32 = session(&embedding(DataType::INT32));
    let ids = Tensor::from_array(([3], vec![2i32, 7, 19])).unwrap();
    let outputs = of_i32.run(ort::inputs!["ids" => ids, "mask" => mask()]).unwrap();
    assert_eq!(outputs[0].try_extract_tensor::<f64>().unwrap().1, wanted);
}

/// Without optimisation, runs use the reference implementation.
#[test]
fn runs_without_optimisation_are_right() {
    let unoptimised = builder().with_optimization_level(GraphOptimizationLevel::Disable).unwrap();
    let mut session = { unoptimised }.commit_from_memory(&layer().bytes()).unwrap();
    check(&mut session, 3);
    check(&mut session, 4);
}

#[test]
fn outputs_are_selected_and_preallocated() {
    let mut session = session(&layer());
    let x = || Tensor::from_array(([2, 32], rows(2))).unwrap();
    let only = RunOptions::new().unwrap().with_outputs(OutputSelector::no_default().with("largest"));
    let outputs = session.run_with_options(ort::inputs!["x" => x()], &only).unwrap();
    assert_eq!((outputs.len(), outputs["largest"].try_extract_tensor::<i64>().unwrap().1), (1, &*reference(2).1));
    drop(outputs);

    let own = Tensor::from_array(([2, 24], vec![f32::NAN; 48])).unwrap();
    let into = RunOptions::new().unwrap().with_outputs(OutputSelector::default().preallocate("y", own));
    let outputs = session.run_with_options(ort::inputs!["x" => x()], &into).unwrap();
    assert!(outputs["y"].try_extract_tensor::<f32>().unwrap().1.iter().all(|number| number.is_finite()));
}

/// A run that writes its result over its input, as recurrent states are.
#[test]
fn an_output_may_be_an_input() {
    let doubled = Model::new(17).input("x", &[4]).node("Add", "x x", "y", vec![]).output("y");
    let mut session = session(&doubled);
    let mut state = Tensor::<f32>::new(session.allocator(), [4usize]).unwrap();
    state.try_extract_tensor_mut::<f32>().unwrap().1.copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
    let mut binding = session.create_binding().unwrap();
    binding.bind_input("x", &state).unwrap();
    binding.bind_output("y", state).unwrap();
    for factor in [2.0, 4.0, 8.0] {
        let outputs = session.run_binding(&binding).unwrap();
        let found = outputs["y"].try_extract_tensor::<f32>().unwrap().1;
        assert_eq!(found, [factor, 2.0 * factor, 3.0 * factor, 4.0 * factor]);
    }
}

#[test]
fn bindings_keep_tensors_for_several_runs() {
    let mut session = session(&layer());
    let mut binding = session.create_binding().unwrap();
    let x = Tensor::from_array(([2, 32], rows(2))).unwrap();
    binding.bind_input("x", &x).unwrap();
    binding.bind_output_to_device("y", session.allocator().memory_info()).unwrap();
    for _ in 0..2 {
        let outputs = session.run_binding(&binding).unwrap();
        let found = outputs["y"].try_extract_tensor::<f32>().unwrap().1;
        assert!(found.iter().zip(&reference(2).0).all(|(found, wanted)| (found - wanted).abs() < 1e-4));
    }
}

#[test]
fn metadata_are_those_of_the_file() {
    let session = session(&layer());
    let metadata = session.metadata().unwrap();
    assert_eq!(metadata.producer().as_deref(), Some("tests"));
    let mut keys = metadata.custom_keys().unwrap();
    keys.sort();
    assert_eq!(keys, ["empty", "labels"]);
    assert_eq!(metadata.custom("labels").as_deref(), Some("a,b"));
    assert_eq!(metadata.custom("none"), None);
}

#[test]
fn options_fix_extents_and_the_precision() {
    let fixed = builder().with_dimension_override("rows", 4).unwrap();
    let mut session = { fixed }.commit_from_memory(&layer().bytes()).unwrap();
    check(&mut session, 4);
    let x = Tensor::from_array(([5, 32], rows(5))).unwrap();
    assert!(session.run(ort::inputs!["x" => x]).unwrap_err().to_string().contains("axis 0 is not 4"));

    let bf16 = builder().with_config_entry("autotune.precision", "bf16").unwrap();
    let mut session = { bf16 }.commit_from_memory(&layer().bytes()).unwrap();
    let x = Tensor::from_array(([4, 32], rows(4))).unwrap();
    let outputs = session.run(ort::inputs!["x" => x]).unwrap();
    let (found, wanted) = (outputs["y"].try_extract_tensor::<f32>().unwrap().1, reference(4).0);
    let error = found.iter().zip(&wanted).map(|(found, wanted)| (found - wanted).abs()).fold(0.0, f32::max);
    assert!((1e-6..0.3).contains(&error), "{error}");
}
