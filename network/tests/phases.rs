//! Models that run in phases: loops, branches, and shapes that depend on data.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use autotune_network::{DType, Session, SessionError, Tensor, onnx};
use rten_onnx::onnx::{AttributeProto, DataType, Dimension, GraphProto, ValueInfoProto};

use crate::build::{Model, difference, f32s, i64s, info, int, node, subgraph};
use crate::family::random;
use crate::session::options;

pub(crate) fn session(model: &Model) -> Result<Session, SessionError> {
    Session::of_model(onnx::Model::of_vec(model.bytes()).unwrap(), options())
}

/// Returns an input whose extents are open where they are 0.
pub(crate) fn open(name: &str, data_type: DataType, extents: &[i64]) -> ValueInfoProto {
    let dim = |&extent: &i64| Dimension { dim_value: (extent > 0).then_some(extent), dim_param: None };
    info(name, data_type, extents.iter().map(dim).collect())
}

fn value(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.into()), r#type: None }
}

/// Returns the body of a loop with nodes, inputs and outputs, each separated by spaces.
fn body(nodes: Vec<rten_onnx::onnx::NodeProto>, inputs: &str, outputs: &str) -> AttributeProto {
    let values = |names: &str| names.split_whitespace().map(value).collect();
    subgraph("body", GraphProto { node: nodes, input: values(inputs), output: values(outputs), ..Default::default() })
}

/// Sum that ends the loop of [`powers`].
const LIMIT: f32 = 1.0;

/// A loop with products by an outer weight that ends when a sum is large enough; and all states.
fn powers() -> Model {
    let nodes = vec![
        node("MatMul", "x w", "next", vec![]),
        node("ReduceSum", "next", "sum", vec![int("keepdims", 0)]),
        node("Less", "sum limit", "go_on", vec![]),
        node("Identity", "next", "seen", vec![]),
    ];
    let mut model = Model::new(17).constant("w", &random(&[48, 48], 1)).constant("limit", &Tensor::scalar(LIMIT));
    model.graph().input.extend([open("x0", DataType::FLOAT, &[0, 48]), open("most", DataType::INT64, &[])]);
    let body = body(nodes, "round condition x", "go_on next seen");
    model.node("Loop", "most _ x0", "last all", vec![body]).output("last").output("all")
}

/// Computes the results of [`powers`] without the library.
fn powers_of(x: &Tensor, most: i64) -> (usize, Vec<f32>) {
    let (w, mut x) = (random(&[48, 48], 1).to_numbers(), x.to_numbers());
    for round in 0..most as usize {
        let row = |row: &[f32], column: usize| -> f32 { (0..48).map(|k| row[k] * w[k * 48 + column]).sum() };
        x = x
            .chunks(48)
            .flat_map(|numbers| (0..48).map(move |column| row(numbers, column)).collect::<Vec<_>>())
            .collect();
        if x.iter().sum::<f32>() >= LIMIT {
            return (round + 1, x);
        }
    }
    (most as usize, x)
}

#[test]
fn a_loop_ends_by_its_condition_or_number_of_rounds() {
    let session = session(&powers()).unwrap();
    let early = AtomicUsize::new(0);
    thread::scope(|scope| {
        for worker in 0..3 {
            let (session, early) = (&session, &early);
            scope.spawn(move || {
                for (rows, most) in [(1, 9), (5, 4), (2, 0), (5, 12)] {
                    let x = random(&[rows, 48], 10 * worker + rows as u64);
                    let found = session.run(&[x.clone(), Tensor::i64(&[], vec![most]).unwrap()]).unwrap();
                    let (rounds, last) = powers_of(&x, most);
                    early.fetch_add(usize::from(rounds < most as usize), Ordering::Relaxed);
                    let wanted = Tensor::f32(&[rows, 48], last).unwrap();
                    assert_eq!(difference(&found[0], &wanted, 1e-4, 1e-4), None, "{rows} rows, {most} rounds");
                    let shape = if rounds == 0 { [0, 0, 0] } else { [rounds, rows, 48] };
                    assert_eq!(&found[1].shape()[..1], &shape[..1], "{rows} rows, {most} rounds");
                }
            });
        }
    });
    assert!((1..9).contains(&early.load(Ordering::Relaxed)), "all loops end alike");
}

#[test]
fn slices_by_the_round_and_loops_in_loops() {
    let inner =
        body(vec![node("Add", "v step", "w2", vec![]), node("Identity", "c2", "d2", vec![])], "j c2 v", "d2 w2");
    let nodes = vec![
        node("Unsqueeze", "i zero", "from", vec![]),
        node("Add", "from one", "to", vec![]),
        node("Slice", "x from to zero", "row", vec![]),
        node("Loop", "i _ row", "moved", vec![inner]),
        node("Identity", "c", "d", vec![]),
    ];
    let mut model = Model::new(17).constant("zero", &i64s(&[0])).constant("one", &i64s(&[1]));
    model.graph().input.push(open("x", DataType::FLOAT, &[0, 3]));
    let model = model.constant("step", &f32s(&[1, 3], &[0.5, 1.0, 2.0]));
    let model = model.node("Shape", "x", "shape", vec![int("end", 1)]).node("Squeeze", "shape", "rows", vec![]);
    let model = model.node("Loop", "rows _", "y", vec![body(nodes, "i c", "d moved")]).output("y");

    let x = random(&[7, 3], 3);
    let found = session(&model).unwrap().run(std::slice::from_ref(&x)).unwrap().remove(0);
    let wanted = x.to_numbers().into_iter().enumerate().map(|(at, x)| x + (at / 3) as f32 * [0.5, 1.0, 2.0][at % 3]);
    assert_eq!(found.shape(), [7, 1, 3]);
    assert_eq!(difference(&found, &Tensor::f32(&[7, 1, 3], wanted.collect()).unwrap(), 1e-6, 1e-6), None);
}

#[test]
fn branches_are_chosen_by_data_and_may_have_other_shapes() {
    let branch = |nodes, output: &str| GraphProto { node: nodes, output: vec![value(output)], ..Default::default() };
    let found = vec![node("NonZero", "x", "places", vec![]), node("Cast", "places", "f", vec![int("to", 1)])];
    let branches = vec![
        subgraph("then_branch", branch(vec![node("Relu", "x", "r", vec![])], "r")),
        subgraph("else_branch", branch(found, "f")),
    ];
    let mut model = Model::new(17).constant("zero", &Tensor::scalar(0.0));
    model.graph().input.push(open("x", DataType::FLOAT, &[0, 2]));
    let model = model.node("ReduceSum", "x", "sum", vec![int("keepdims", 0)]);
    let model = model.node("Greater", "sum zero", "is_positive", vec![]);
    let model = model.node("If", "is_positive", "chosen", branches).node("Neg", "chosen", "y", vec![]).output("y");

    let session = session(&model).unwrap();
    let run = |x: Tensor| session.run(&[x]).unwrap().remove(0);
    assert_eq!(run(f32s(&[2, 2], &[4.0, -1.0, 0.0, 2.0])), f32s(&[2, 2], &[-4.0, -0.0, -0.0, -2.0]));
    assert_eq!(run(f32s(&[2, 2], &[-4.0, 0.0, 0.0, 2.0])), f32s(&[2, 2], &[-0.0, -1.0, -0.0, -1.0]));
    assert_eq!(run(f32s(&[1, 2], &[0.0, 0.0])).shape(), [2, 0]);
}

/// A branch that is known is imported as a part of the outer graph, unless it repeats something.
/// A sequence that a later phase reads is made anew, of tensors that are in memory for it.
#[test]
fn sequences_get_elements_with_shapes_of_data() {
    let nodes = |model: Model| {
        let model = model.node("Relu", "x", "r", vec![]).node("SplitToSequence", "r", "s", vec![]);
        let model = model.node("NonZero", "x", "places", vec![]).node("Cast", "places", "f", vec![int("to", 1)]);
        let model = model.node("SequenceInsert", "s f", "longer", vec![]).node("Neg", "f", "g", vec![]);
        model.node("SequenceAt", "longer first", "a", vec![]).node("SequenceAt", "longer last", "b", vec![])
    };
    let place = |number: i64| Tensor::i64(&[], vec![number]).unwrap();
    let model = Model::new(17).input("x", &[2, 3]).constant("first", &place(1)).constant("last", &place(-1));
    let session = session(&nodes(model).output("a").output("b").output("g")).unwrap();

    let x = f32s(&[2, 3], &[0.0, -1.0, 2.0, 3.0, 0.0, 0.0]);
    let found = session.run(&[x]).unwrap();
    let places = [0.0, 0.0, 1.0, 1.0, 2.0, 0.0];
    let wanted = [f32s(&[1, 3], &[3.0, 0.0, 0.0]), f32s(&[2, 3], &places), f32s(&[2, 3], &places.map(|x| -x))];
    for (found, wanted) in found.iter().zip(&wanted) {
        assert_eq!(difference(found, wanted, 0.0, 0.0), None);
    }
}

#[test]
fn known_branches_may_repeat() {
    let inner = body(vec![node("Add", "v v", "w", vec![]), node("Identity", "c", "d", vec![])], "i c v", "d w");
    let branch = |nodes| GraphProto { node: nodes, output: vec![value("z")], ..Default::default() };
    let branches = vec![
        subgraph("then_branch", branch(vec![node("Loop", "three _ x", "z", vec![inner])])),
        subgraph("else_branch", branch(vec![node("Neg", "x", "z", vec![])])),
    ];
    for (wanted, condition) in [([8.0, -4.0], true), ([-1.0, 0.5], false)] {
        let condition = Tensor::of_numbers(&[], DType::Bool, &[f32::from(condition)]).unwrap();
        let model = Model::new(17).input("x", &[2]).constant("three", &Tensor::i64(&[], vec![3]).unwrap());
        let model = model.constant("condition", &condition).node("If", "condition", "y", branches.clone()).output("y");
        let found = session(&model).unwrap().run(&[f32s(&[2], &[1.0, -0.5])]).unwrap();
        assert_eq!(found, [f32s(&[2], &wanted)]);
    }
}

#[test]
fn plans_of_many_shapes_are_dropped() {
    let session = session(&powers()).unwrap();
    for rows in 1..=100 {
        session.run(&[random(&[rows, 48], 1), Tensor::i64(&[], vec![1]).unwrap()]).unwrap();
    }
    assert!(session.phases().len() <= 64);
}

#[test]
fn kernels_agree_with_the_interpreter_alone() {
    let session = session(&powers()).unwrap();
    let inputs = [random(&[6, 48], 2), Tensor::i64(&[], vec![5]).unwrap()];
    let found = session.run(&inputs).unwrap();
    assert!(!session.phases().is_empty(), "nothing was compiled");
    for (found, wanted) in found.iter().zip(&session.run_reference(&inputs).unwrap()) {
        assert_eq!(difference(found, wanted, 1e-4, 1e-5), None);
    }
}

#[test]
fn wrong_models_and_inputs_are_refused_in_one_line() {
    let refused = |model: Model, inputs: &[Tensor]| {
        session(&model).and_then(|session| session.run(inputs).map(drop)).unwrap_err().to_string()
    };
    let rounds = |most: i64| Tensor::i64(&[], vec![most]).unwrap();

    assert_eq!(refused(powers(), &[random(&[6, 47], 2), rounds(1)]), "input 'x0': extent 47 of axis 1 is not 48");

    let with = |nodes, inputs: &str, outputs: &str| {
        let mut model = Model::new(17);
        model.graph().input.push(open("x0", DataType::FLOAT, &[0, 48]));
        model = model.constant("two", &i64s(&[2, 2]));
        model.node("Loop", "two _ x0", "y", vec![body(nodes, inputs, outputs)]).output("y")
    };
    let same = || vec![node("Identity", "c", "d", vec![]), node("Identity", "x", "y2", vec![])];
    assert_eq!(
        refused(with(same(), "i c x", "d y2"), &[random(&[2, 48], 1)]),
        "node 'loop' (Loop): the number of rounds is not one integer"
    );
    assert_eq!(
        refused(with(same(), "i c", "d y2"), &[random(&[2, 48], 1)]),
        "node 'loop' (Loop): attribute 'body': has other inputs or outputs than the state of the loop"
    );
    let inner = vec![node("Identity", "c", "d", vec![]), node("SequenceAt", "s i", "y2", vec![])];
    let mut model = with(inner, "i c x", "d y2");
    model.graph().node.insert(0, node("SequenceConstruct", "x0", "s", vec![]));
    assert_eq!(
        refused(model, &[random(&[2, 48], 1)]),
        "node 'loop' (Loop): 's' is a sequence, which this operator does not read"
    );
    let unknown = vec![node("Identity", "c", "d", vec![]), node("Frobnicate", "x", "y2", vec![])];
    let mut model = with(unknown, "i c x", "d y2");
    model.graph().initializer.clear();
    let model = model.constant("two", &i64s(&[2]));
    assert_eq!(refused(model, &[random(&[2, 48], 1)]), "node 'frobnicate' (Frobnicate): the operator is not supported");
}
