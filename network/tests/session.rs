//! Sessions: models that run on tensors of any shape.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use autotune_db::EmptySource;
use autotune_graph::operators::Map;
use autotune_ir::Target;
use autotune_network::{
    DType, FamilyError, Graph, Precision, Session, SessionError, SessionOptions, SessionPrecision, Tensor,
    output_error, zoo,
};
use autotune_workloads::{Activation, Function};
use tempfile::TempDir;

use crate::family::{WIDTH, assert_right, model, random};

/// Returns options without the user's database.
pub(crate) fn options() -> SessionOptions {
    SessionOptions {
        target: Some(Target::detect("cpu", Some(1)).unwrap()),
        source: Some(Arc::new(EmptySource)),
        ..SessionOptions::default()
    }
}

fn with_shape(shape: &str) -> SessionOptions {
    SessionOptions { shapes: [("x".to_string(), shape.parse().unwrap())].into(), ..options() }
}

/// Writes the model of the families' tests to a file.
fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.onnx");
    fs::write(&path, model().bytes()).unwrap();
    (folder, path)
}

fn refused(options: SessionOptions) -> SessionError {
    let (_folder, path) = file();
    Session::of_file(&path, options).map(drop).unwrap_err()
}

#[test]
fn a_session_runs_any_shape_on_several_threads() {
    let (_folder, path) = file();
    let session = Session::open(path.to_str().unwrap(), options()).unwrap();
    let outputs: Vec<&str> = session.outputs().iter().map(|output| &*output.name).collect();
    assert_eq!((session.name(), &outputs[..]), ("rows", &["y", "shares"][..]));
    assert_eq!(session.inputs()[0].extents, [None, None, Some(WIDTH)]);
    assert_eq!(session.shapes().map(ToString::to_string).collect::<Vec<_>>(), [format!("?x?x{WIDTH}")]);
    thread::scope(|scope| {
        for worker in 0..3 {
            let session = &session;
            scope.spawn(move || {
                for length in [1, 9, 4, 33] {
                    let x = random(&[1 + worker, length, WIDTH], length as u64);
                    assert_right(&session.run(std::slice::from_ref(&x)).unwrap(), &x);
                }
            });
        }
    });
}

#[test]
fn a_run_writes_the_memory_of_the_caller() {
    let (_folder, path) = file();
    let session = Session::of_file(&path, options()).unwrap();
    let x = random(&[2, 5, WIDTH], 1);
    let mut run = session.prepare(&[x.shape().to_vec()]).unwrap();
    let outputs = run.outputs().unwrap();
    assert_eq!((&*outputs[0].name, &*outputs[0].shape), ("y", &[2, 5, WIDTH][..]));
    let mut numbers: Vec<Vec<f32>> =
        outputs.iter().map(|output| vec![f32::NAN; output.shape.iter().product()]).collect();
    let mut targets: Vec<&mut [f32]> = numbers.iter_mut().map(Vec::as_mut_slice).collect();
    run.run(&[&x.to_numbers()], &mut targets).unwrap();
    let short = run.run(&[&[0.0]], &mut targets).unwrap_err();
    assert!(short.to_string().contains("'x' has 1 elements"), "{short}");
    let found = outputs.iter().zip(numbers).map(|(output, numbers)| Tensor::f32(&output.shape, numbers).unwrap());
    assert_right(&found.collect::<Vec<_>>(), &x);
}

#[test]
fn shapes_outside_are_refused_and_others_still_run() {
    let (_folder, path) = file();
    let session = Session::of_file(&path, with_shape("1x1..8x64")).unwrap();
    let error = session.run(&[random(&[1, 9, WIDTH], 0)]).unwrap_err();
    assert!(matches!(error, SessionError::Family(FamilyError::Outside { .. })), "{error}");
    assert_eq!(error.to_string(), "input 'x': extent 9 of axis 1 is not 1..8");
    assert!(session.run(&[]).is_err());
    let x = random(&[1, 8, WIDTH], 0);
    assert_right(&session.run(std::slice::from_ref(&x)).unwrap(), &x);
}

#[test]
fn errors_of_a_fixed_shape_appear_when_the_model_is_opened() {
    let error = refused(with_shape("1x4x63"));
    assert!(matches!(error, SessionError::Load(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("rows.onnx") && text.contains("'x'"), "{text}");
}

#[test]
fn options_that_do_not_fit_the_model_are_refused() {
    let names = |options| refused(options).to_string();
    let wrong = SessionOptions { shapes: [("z".to_string(), "1".parse().unwrap())].into(), ..options() };
    assert_eq!(names(wrong), "no input 'z': the inputs are x");
    let wrong = SessionOptions { values: [("z".to_string(), Tensor::scalar(1.0))].into(), ..options() };
    assert_eq!(names(wrong), "no input 'z': the inputs are x");
    let gpu = Target::detect("cuda:sm_90", None).unwrap();
    assert!(matches!(refused(SessionOptions { target: Some(gpu), ..options() }), SessionError::NoCpu));
    let open = SessionPrecision::Fastest { max_error: 0.1, examples: [].into() };
    let open = refused(SessionOptions { precision: open, ..options() });
    assert_eq!(open.to_string(), "input 'x' has shape ?x?x64: the precision can only be decided for fixed shapes");

    let of = |subject: &str| Session::open(subject, options()).map(drop).unwrap_err();
    assert!(matches!(of("matmul:m=4,n=4,k=4"), SessionError::Workload(_)));
    assert!(matches!(of("resnet19"), SessionError::Subject(_)));
    assert!(of("none.onnx").to_string().starts_with("none.onnx: "), "{}", of("none.onnx"));
}

/// The precision that is chosen stays within the error; with error 0 only f32 does.
#[test]
fn the_precision_is_decided_on_examples() {
    let (_folder, path) = file();
    let x = random(&[1, 16, WIDTH], 3);
    let exact = SessionPrecision::Fastest { max_error: 0.0, examples: [("x".to_string(), x.clone())].into() };
    let session = Session::of_file(&path, SessionOptions { precision: exact, ..with_shape("1x16x64") }).unwrap();
    assert_right(&session.run(std::slice::from_ref(&x)).unwrap(), &x);
    assert!(session.run(&[random(&[1, 15, WIDTH], 3)]).is_err());

    let bf16 = SessionOptions { precision: SessionPrecision::In(Precision::Bf16), ..options() };
    let rounded = Session::of_file(&path, bf16).unwrap().run(std::slice::from_ref(&x)).unwrap();
    assert_ne!(rounded, session.run(&[x]).unwrap());
}

#[test]
fn graphs_have_fixed_shapes() {
    let mut graph = Graph::new("small");
    let x = graph.input("x", DType::F32, &[1, 3, 8, 8]).unwrap();
    let y = graph.add("y", Map(Function::Activation(Activation::Relu)), &[x]).unwrap();
    graph.output("y", y);
    let session = Session::of_graph(&graph, options()).unwrap();
    let x = random(&[1, 3, 8, 8], 1);
    assert_eq!(session.run(std::slice::from_ref(&x)).unwrap(), graph.evaluate(&[x]).unwrap());
    assert!(session.run(&[random(&[1, 3, 8, 9], 1)]).is_err());
    let other = Session::of_graph(&graph, with_shape("1x3x8x9")).map(drop).unwrap_err();
    assert_eq!(other.to_string(), "input 'x': extent 8 of axis 3 is not 9");
    assert!(zoo::NAMES.contains(&"dqn") && Session::open("dqn", options()).is_ok());
}

/// A session makes the networks of another one from their plans, without its source; the fastest
/// precision is not measured again.
#[test]
fn a_session_makes_the_networks_of_another_one() {
    let (_folder, path) = file();
    let x = random(&[1, 16, WIDTH], 5);
    let max_error = 0.05;
    for precision in [SessionPrecision::default(), SessionPrecision::Fastest { max_error, examples: [].into() }] {
        let options = SessionOptions { precision, ..with_shape("1x16x64") };
        let own = Session::of_file(&path, options.clone()).unwrap();
        let pinned = own.pinned();
        assert_eq!(pinned.len(), 1);
        pinned[0].check(&options.target.clone().unwrap()).unwrap();

        let again = Session::of_file(&path, SessionOptions { pinned: pinned.clone(), ..options.clone() }).unwrap();
        assert_eq!(again.pinned(), pinned);
        let run = |session: &Session| session.run(std::slice::from_ref(&x)).unwrap();
        assert_eq!(run(&again), run(&own));
        // Plans hold for their number of threads alone; the results are still right.
        let target = Some(Target::detect("cpu", Some(2)).unwrap());
        let other = Session::of_file(&path, SessionOptions { target, pinned: pinned.clone(), ..options }).unwrap();
        assert_ne!(other.pinned(), pinned);
        assert!(output_error(&run(&other), &run(&own)) <= 2.0 * max_error);
    }
}
