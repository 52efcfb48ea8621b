//! Inputs whose shapes or values the caller specifies, and the types of outputs.

use autotune_graph::onnx::{self, DeclaredInput, ImportError, ImportOptions};
use autotune_graph::rewrite::Rewriter;
use autotune_graph::{DType, DeclaredType, Graph, Identity, Tensor, rewrite};
use rten_onnx::onnx::{DataType, Dimension, GraphProto, StringStringEntryProto, ValueInfoProto};

use crate::build::{Model, i64s, info, int, node, subgraph};

fn with(model: &Model, values: &[(&str, Tensor)]) -> Result<Graph, ImportError> {
    let values = values.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    onnx::read_bytes(&model.bytes(), &ImportOptions { values, ..ImportOptions::default() })
}

fn open(name: Option<&str>) -> Dimension {
    Dimension { dim_value: None, dim_param: name.map(Into::into) }
}

/// Returns `2 x` if `sr` is 16000, else `x` by an unknown operator, as in voice detectors.
fn by_rate() -> Model {
    let branch = |operator: &str| {
        let output = vec![ValueInfoProto { name: Some("inner".into()), r#type: None }];
        GraphProto { node: vec![node(operator, "x x", "inner", vec![])], output, ..Default::default() }
    };
    let branches = vec![subgraph("then_branch", branch("Add")), subgraph("else_branch", branch("Frobnicate"))];
    let mut model = Model::new(17).input("x", &[3]).constant("wide", &i64s(&[16000]));
    model.graph().input.push(info("sr", DataType::INT64, vec![]));
    let model = model.node("Equal", "sr wide", "is_wide", vec![]);
    model.node("If", "is_wide", "y", branches).output("y")
}

#[test]
fn an_input_that_is_known_decides() {
    let graph = with(&by_rate(), &[("sr", Tensor::i64(&[], vec![16000]).unwrap())]).unwrap();
    assert_eq!(graph.inputs().len(), 1);
    let x = Tensor::f32(&[3], vec![1.0, -2.0, 3.0]).unwrap();
    assert_eq!(graph.evaluate(&[x]).unwrap()[0].to_numbers(), [2.0, -4.0, 6.0]);

    let error = |values: &[(&str, Tensor)]| with(&by_rate(), values).map(drop).unwrap_err().to_string();
    let narrow = Tensor::i64(&[], vec![8000]).unwrap();
    assert_eq!(error(&[("sr", narrow)]), "node 'frobnicate' (Frobnicate): the operator is not supported");
    assert!(error(&[]).contains("input 0: must be a constant"), "{}", error(&[]));
    let wrong = "input 'sr': the value is f32, expected i64";
    assert_eq!(error(&[("sr", Tensor::scalar(16000.0))]), wrong);
    assert_eq!(error(&[("sr", i64s(&[1, 2]))]), "input 'sr': shape 2 does not fit the model's of rank 0");
    assert_eq!(error(&[("rate", i64s(&[1]))]), "input 'rate': no such input; the inputs are x, sr");
}

#[test]
fn a_value_says_what_a_shape_leaves_open() {
    let mut model = Model::new(17);
    model.graph().input.push(info("a", DataType::FLOAT, vec![open(Some("n")), open(None)]));
    model.graph().input.push(info("b", DataType::FLOAT, vec![open(Some("n"))]));
    let model = model.node("Relu", "b", "y", vec![]).output("y").node("Relu", "a", "z", vec![]).output("z");
    let graph = with(&model, &[("a", Tensor::f32(&[4, 1], vec![1.0; 4]).unwrap())]).unwrap();
    assert_eq!(graph.node(graph.inputs()[0]).shape, [4]);
}

#[test]
fn inputs_are_declared() {
    let mut model = by_rate();
    model.graph().input.push(info("mask", DataType::BOOL, vec![open(Some("n")), open(None)]));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model.bytes()).unwrap();
    let declared = |name: &str, dtype, extents: &[Option<usize>]| DeclaredInput {
        name: name.into(),
        dtype,
        stored: None,
        extents: extents.to_vec(),
        names: vec![None; extents.len()],
    };
    let mask = DeclaredInput { names: vec![Some("n".into()), None], ..declared("mask", DType::Bool, &[None, None]) };
    let wanted = vec![declared("x", DType::F32, &[Some(3)]), declared("sr", DType::I64, &[]), mask];
    assert_eq!(onnx::inputs(&path).unwrap(), wanted);
}

/// A model in memory tells the types of its file, open extents, and its producer's notes.
#[test]
fn a_model_describes_itself() {
    let mut model = Model::new(17);
    model.graph().input.push(info("ids", DataType::INT32, vec![open(Some("n"))]));
    let mut model = model.node("Cast", "ids", "y", vec![int("to", 11)]);
    model.graph().output.push(info("y", DataType::DOUBLE, vec![open(Some("n"))]));
    model.graph().output.push(ValueInfoProto { name: Some("ids".into()), r#type: None });
    model.0.producer_name = Some("tests".into());
    let property = StringStringEntryProto { key: Some("labels".into()), value: Some("a,b".into()) };
    model.0.metadata_props.push(property);

    let model = onnx::Model::of_vec(model.bytes()).unwrap();
    let inputs = model.inputs().unwrap();
    assert_eq!((inputs[0].dtype, inputs[0].stored), (DType::I64, Some(DeclaredType::Of(DType::I32))));
    let [y, ids] = &model.outputs()[..] else { panic!() };
    assert_eq!((y.stored, &y.extents, &y.names[0]), (Some(DeclaredType::F64), &Some(vec![None]), &Some("n".into())));
    assert_eq!((ids.stored, &ids.extents), (None, &None));
    assert_eq!((model.name(), &*model.metadata().producer), ("network", "tests"));
    assert_eq!(model.metadata().properties, [("labels".into(), "a,b".into())]);
    let shapes = [("ids".to_string(), vec![3])].into();
    let graph = model.graph(&ImportOptions { shapes, ..ImportOptions::default() }).unwrap();
    assert_eq!(graph.evaluate(&[i64s(&[1, 2, 3])]).unwrap()[0].to_numbers(), [1.0, 2.0, 3.0]);
}

/// Outputs have the file's type, whatever rewriting does; none where the element type is the same.
#[test]
fn outputs_have_the_types_of_the_file() {
    let types = [
        (DataType::INT32, Some(DeclaredType::Of(DType::I32))),
        (DataType::INT64, None),
        (DataType::UINT8, Some(DeclaredType::Of(DType::U8))),
        (DataType::BOOL, None),
        (DataType::FLOAT16, Some(DeclaredType::Of(DType::F16))),
        (DataType::DOUBLE, Some(DeclaredType::F64)),
        (DataType::FLOAT, None),
    ];
    let mut model = Model::new(17).input("x", &[2]);
    for (data_type, _) in types {
        let name = format!("y{}", data_type.0);
        model = model.node("Cast", "x", &name, vec![int("to", data_type.0.into())]);
        model.graph().output.push(info(&name, data_type, vec![]));
    }
    let graph = model.import().unwrap();
    let stored = |graph: &Graph| graph.outputs().iter().map(|output| output.stored).collect::<Vec<_>>();
    let wanted: Vec<Option<DeclaredType>> = types.iter().map(|(_, stored)| *stored).collect();
    assert_eq!(stored(&graph), wanted);
    assert_eq!(stored(&rewrite(&graph).unwrap()), wanted);
}

/// Graphs of one model for several shapes have the same constants, also after rewriting, where a
/// constant is transposed, scaled and shifted.
#[test]
fn graphs_of_a_model_share_constants() {
    let numbers: Vec<f32> = (0..200 * 100).map(|number| number as f32 / 3e4).collect();
    let mut model = Model::new(17);
    let wide = Dimension { dim_value: Some(100), dim_param: None };
    model.graph().input.push(info("x", DataType::FLOAT, vec![open(Some("n")), wide]));
    let model = model
        .constant("w", &Tensor::f32(&[200, 100], numbers).unwrap())
        .constant("scale", &Tensor::f32(&[200], vec![0.5; 200]).unwrap())
        .constant("shift", &Tensor::f32(&[100], vec![0.25; 100]).unwrap())
        .node("Add", "x shift", "shifted", vec![])
        .node("Transpose", "w", "turned", vec![])
        .node("MatMul", "shifted turned", "product", vec![])
        .node("Mul", "product scale", "y", vec![])
        .output("y");
    let bytes = model.bytes();
    let (model, mut rewriter) = (onnx::Model::of_bytes(&bytes).unwrap(), Rewriter::default());
    let mut graph = |n: usize| {
        let shapes = [("x".into(), vec![n, 100])].into();
        let imported = model.graph(&ImportOptions { shapes, ..ImportOptions::default() }).unwrap();
        rewriter.rewrite(&imported).unwrap().0
    };

    let constants = |graph: &Graph| -> Vec<Identity> {
        graph.nodes().filter_map(|(id, _)| Some(graph.constant_of(id)?.identity())).collect()
    };
    let first = graph(1);
    let second = graph(7);
    assert_eq!(constants(&first), constants(&second));
    assert_eq!(constants(&first).len(), 2);
    drop(first);
    assert_eq!(constants(&second), constants(&graph(1)));
    assert_eq!(second.node(second.outputs()[0].node).shape, [7, 200]);
}

/// Some programs write nodes in any order. A branch reads outer tensors, too.
#[test]
fn nodes_in_any_order() {
    let branch = |nodes: [&str; 2]| {
        let output = vec![ValueInfoProto { name: Some("inner".into()), r#type: None }];
        let nodes = nodes.map(|text| {
            let (operator, names) = text.split_once(' ').unwrap();
            let (inputs, output) = names.split_once(" -> ").unwrap();
            node(operator, inputs, output, vec![])
        });
        subgraph("then_branch", GraphProto { node: nodes.into(), output, ..Default::default() })
    };

    let otherwise = {
        let output = vec![ValueInfoProto { name: Some("other".into()), r#type: None }];
        subgraph(
            "else_branch",
            GraphProto { node: vec![node("Neg", "x", "other", vec![])], output, ..Default::default() },
        )
    };
    let condition = Tensor::of_numbers(&[], DType::Bool, &[1.0]).unwrap();
    let x = Tensor::f32(&[2], vec![1.0, -2.0]).unwrap();

    for inner in [["Add x a -> b", "Mul b b -> inner"], ["Mul b b -> inner", "Add x a -> b"]] {
        let mut model = Model::new(17).input("x", &[2]).constant("condition", &condition);
        model =
            model.node("Abs", "x", "a", vec![]).node("If", "condition", "c", vec![branch(inner), otherwise.clone()]);
        model = model.node("Add", "c a", "d", vec![]).node("Mul", "d a", "y", vec![]).output("y");
        let nodes = model.graph().node.clone();
        // All orders of four nodes.
        for order in 0..24 {
            let (mut rest, mut order) = (nodes.clone(), order);
            let take = |left: usize| {
                let next = rest.remove(order % left);
                order /= left;
                next
            };
            model.graph().node = (1..=4).rev().map(take).collect();
            assert_eq!(model.run(std::slice::from_ref(&x))[0].to_numbers(), [5.0, 4.0]);
        }
    }
}
