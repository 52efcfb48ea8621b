//! Errors are statuses with one line, and sessions go on after them.

use ort::ep;
use ort::session::RunOptions;
use ort::value::Tensor;

use crate::build::Model;
use crate::model::{builder, layer, session};

fn line(error: impl ToString) -> String {
    let text = error.to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

#[test]
fn files_that_are_no_models_are_refused() {
    let missing = line(builder().commit_from_file("none.onnx").unwrap_err());
    assert!(missing.contains("none.onnx"), "{missing}");
    assert!(builder().commit_from_memory(b"no model").is_err());
    let unknown = Model::new(17).input("x", &[4]).node("Mystery", "x", "y", vec![]).output("y");
    let refused = line(builder().commit_from_memory(&unknown.bytes()).unwrap_err());
    assert!(refused.contains("Mystery"), "{refused}");
}

#[test]
fn inputs_that_do_not_fit_are_refused_and_others_still_run() {
    let mut session = session(&layer());
    let mut refused = |name: &'static str, value: ort::value::DynValue| {
        line(session.run(ort::inputs![name => value]).map(drop).unwrap_err())
    };
    let numbers = || Tensor::from_array(([1, 32], vec![0.5f32; 32])).unwrap().into_dyn();
    let unknown = refused("z", numbers());
    assert!(unknown.contains("no input 'z': the inputs are x"), "{unknown}");
    let of_another_type = refused("x", Tensor::from_array(([1, 32], vec![1i64; 32])).unwrap().into_dyn());
    assert!(of_another_type.contains("INT64, expected") && of_another_type.contains("FLOAT"), "{of_another_type}");
    let shape = refused("x", Tensor::from_array(([1, 31], vec![0.5f32; 31])).unwrap().into_dyn());
    assert!(shape.contains("extent 31 of axis 1 is not 32"), "{shape}");
    assert!(session.run(ort::inputs!["x" => numbers()]).is_ok());
}

#[test]
fn options_that_mean_nothing_here_are_refused() {
    let entry = |key: &str, value: &str| {
        let entry = builder().with_config_entry(key, value).unwrap();
        { entry }.commit_from_memory(&layer().bytes()).map(drop).unwrap_err()
    };
    let precision = line(entry("autotune.precision", "f64"));
    assert!(precision.contains("autotune.precision") && precision.contains("f64"), "{precision}");
    let db = line(entry("autotune.db", "/nowhere/at/all"));
    assert!(db.contains("autotune.db") && db.contains("/nowhere"), "{db}");

    let unknown = line(entry("autotune.precission", "f32"));
    assert!(
        unknown.contains("unknown option autotune.precission") && unknown.contains("autotune.max_error"),
        "{unknown}"
    );

    // A provider is refused, and the session computes on the CPU.
    let cuda = builder().with_execution_providers([ep::CUDA::default().build()]);
    assert!(cuda.unwrap().commit_from_memory(&layer().bytes()).is_ok());
}

#[test]
fn runs_that_are_to_terminate_do_not_start() {
    let mut session = session(&layer());
    let options = RunOptions::new().unwrap();
    let run = |session: &mut ort::session::Session| {
        let x = Tensor::from_array(([1, 32], vec![0.5f32; 32])).unwrap();
        session.run_with_options(ort::inputs!["x" => x], &options).map(drop)
    };
    options.terminate().unwrap();
    let ended = line(run(&mut session).unwrap_err());
    assert!(ended.contains("terminate"), "{ended}");
    options.unterminate().unwrap();
    assert!(run(&mut session).is_ok());
}
