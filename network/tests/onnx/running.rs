//! Imported operators run on kernels with the reference's results.

use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::{Compiled, Tensor, rewrite};
use rten_onnx::onnx::{AttributeProto, GraphProto, ValueInfoProto};

use crate::build::{Model, f32s, i64s, int, node, subgraph};

/// Runs a model on kernels only, and compares with the reference.
fn run(model: &Model, inputs: &[Tensor]) -> Tensor {
    let graph = rewrite(&model.import().unwrap()).unwrap();
    let is_interpreted = |work: &StepWork| matches!(work, StepWork::Interpret(_));
    assert!(!Cut::of(&graph).steps.iter().any(|step| is_interpreted(&step.work)));
    let target = Target::detect("cpu", Some(1)).unwrap();
    let mut workspace = Compiled::new(&graph, None, &target).unwrap().workspace().unwrap();
    let found = workspace.run_tensors(inputs).unwrap();
    assert_eq!(found, model.run(inputs));
    found[0].clone()
}

#[test]
fn rows_are_counted_from_the_end_if_their_numbers_are_negative() {
    let cast = vec![int("to", 7)];
    let table = Tensor::f32(&[3, 2], vec![0.0, 1.0, 10.0, 11.0, 20.0, 21.0]).unwrap();
    let model = |axis: i64| {
        let model =
            Model::new(17).input("x", &[4]).constant("table", &table).node("Cast", "x", "numbers", cast.clone());
        model.node("Gather", "table numbers", "y", vec![int("axis", axis)]).output("y")
    };
    let numbers = |all: [f32; 4]| [Tensor::f32(&[4], all.to_vec()).unwrap()];
    let rows = run(&model(0), &numbers([-1.0, 0.0, 2.0, -3.0]));
    assert_eq!(rows.to_numbers(), [20.0, 21.0, 0.0, 1.0, 20.0, 21.0, 0.0, 1.0]);
    let columns = run(&model(1), &numbers([-1.0, 0.0, 1.0, -2.0]));
    assert_eq!(columns.to_numbers(), [1.0, 0.0, 1.0, 0.0, 11.0, 10.0, 11.0, 10.0, 21.0, 20.0, 21.0, 20.0]);
}

#[test]
fn places_of_the_largest_and_the_smallest() {
    let x = Tensor::f32(&[2, 4], vec![1.0, 3.0, 3.0, -1.0, -2.0, -2.0, -5.0, -2.0]).unwrap();
    let place = |operator: &str, attributes: Vec<AttributeProto>| {
        let model = Model::new(13).input("x", &[2, 4]).node(operator, "x", "y", attributes).output("y");
        let found = run(&model, std::slice::from_ref(&x));
        (found.shape().to_vec(), found.as_i64().unwrap().iter().copied().collect::<Vec<_>>())
    };
    let last = || int("select_last_index", 1);
    assert_eq!(place("ArgMax", vec![]), (vec![1, 4], vec![0, 0, 0, 0]));
    assert_eq!(place("ArgMin", vec![int("keepdims", 0)]), (vec![4], vec![1, 1, 1, 1]));
    assert_eq!(place("ArgMax", vec![int("axis", -1)]), (vec![2, 1], vec![1, 0]));
    assert_eq!(place("ArgMax", vec![int("axis", 1), last()]), (vec![2, 1], vec![2, 3]));
    assert_eq!(place("ArgMin", vec![int("axis", 1), int("keepdims", 0), last()]), (vec![2], vec![3, 2]));
}

/// For a known condition one branch is imported and the other ignored; names inside a branch are
/// not visible outside.
#[test]
fn branches_of_known_conditions() {
    let branch = |operator: &str| {
        let output = vec![ValueInfoProto { name: Some("inner".into()), r#type: None }];
        GraphProto { node: vec![node(operator, "x", "inner", vec![])], output, ..Default::default() }
    };
    let branches = |taken: &str, other: &str, condition: bool| {
        let [then, otherwise] = if condition { [taken, other] } else { [other, taken] };
        vec![subgraph("then_branch", branch(then)), subgraph("else_branch", branch(otherwise))]
    };
    let model = Model::new(17).input("x", &[3]).constant("a", &i64s(&[3])).constant("b", &i64s(&[4]));
    let model = model.node("Equal", "a a", "yes", vec![]).node("Equal", "a b", "no", vec![]);
    let model = model.node("If", "yes", "positive", branches("Relu", "Frobnicate", true));
    let model = model.node("If", "no", "negative", branches("Neg", "Loop", false));
    let model = model.node("Add", "positive negative", "y", vec![]).output("y");
    assert_eq!(run(&model, &[f32s(&[3], &[-2.0, 0.5, 3.0])]).to_numbers(), [2.0, 0.0, 0.0]);

    let outside = model.node("Abs", "inner", "z", vec![]).output("z").import().map(drop).unwrap_err().to_string();
    assert_eq!(outside, "node 'abs' (Abs): input 0: no earlier node computes 'inner'");
}
