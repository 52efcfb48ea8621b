//! An operator defined outside the library: imported from an ONNX file, compiled, run and exported.

use autotune_ir::Target;
use autotune_network::cut::{Cut, StepWork};
use autotune_network::onnx::{
    self, Call, ExportError, ImportError, ImportOptions, ImportValue, NodeError, NodeWriter, OnnxOperator, attribute,
    float,
};
use autotune_network::op::{Anchor, Facts, NodeView, SubNode, shapes_of};
use autotune_network::operators::{Binary, Map};
use autotune_network::{Compiled, Constant, DType, Graph, OpError, Operator, Tensor, rewrite};
use autotune_workloads::{Activation, Function, Pointwise, PointwiseOp, Workload};
use rten_onnx::onnx::OperatorSetIdProto;

use crate::build::{Model, f32s};

/// `x` clamped from 0 to a number.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ramp {
    most: f32,
}

static RAMP: OnnxOperator = OnnxOperator::one("Ramp", import).in_domain("com.example");

fn import(call: &mut Call) -> Result<ImportValue, NodeError> {
    let x = call.only()?;
    let most = call.float("most")?.filter(|most| *most > 0.0);
    call.add(Ramp { most: most.ok_or_else(|| attribute("most", "is missing or not positive"))? }, &[x])
}

impl Operator for Ramp {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        Ok((shapes_of(operands, 1..=1, DType::F32)?[0].to_vec(), DType::F32))
    }

    fn workload(&self, node: &NodeView) -> Option<Anchor> {
        let clip = Activation::new("clip", &[0.0, self.most]).ok()?;
        let elements = node.shape(0).iter().product();
        let op = Pointwise::new(1, elements, PointwiseOp::Unary(Function::Activation(clip)));
        Some(Anchor::new(Workload::new(op).ok()?, node))
    }

    fn export(&self, to: &mut NodeWriter) -> Result<(), ExportError> {
        to.in_domain("com.example", 1);
        to.operator("Ramp", vec![float("most", self.most)])
    }
}

/// `exp(x) + 1`, which has neither a workload nor an ONNX operator.
#[derive(Clone, Copy, Debug, PartialEq)]
struct AboveOne;

impl Operator for AboveOne {
    fn output(&self, operands: &[Facts]) -> Result<(Vec<usize>, DType), OpError> {
        Ok((shapes_of(operands, 1..=1, DType::F32)?[0].to_vec(), DType::F32))
    }

    fn compute(&self, operands: &[&Tensor], shape: &[usize]) -> Result<Tensor, OpError> {
        Tensor::f32(shape, operands[0].to_numbers().into_iter().map(|x| (f64::from(x).exp() + 1.0) as f32).collect())
    }

    fn parts(&self, _: &NodeView) -> Option<Vec<SubNode>> {
        Some(vec![
            SubNode::new(Map(Function::Op(autotune_ir::program::UnaryOp::Exp)), vec![0]),
            SubNode::new(Constant::from(Tensor::scalar(1.0)), vec![]),
            SubNode::new(Binary::Add, vec![1, 2]),
        ])
    }
}

fn model(domain: &str) -> Model {
    let mut model = Model::new(13)
        .input("x", &[2, 3])
        .node("Abs", "x", "a", vec![])
        .node("Ramp", "a", "y", vec![crate::build::float("most", 1.5)])
        .output("y");
    model.graph().node[1].domain = Some(domain.into());
    let own = OperatorSetIdProto { domain: Some("com.example".into()), version: Some(1) };
    model.0.opset_import.push(own);
    model
}

fn run(graph: &Graph, input: &Tensor) -> Tensor {
    let graph = rewrite(graph).unwrap();
    assert!(Cut::of(&graph).steps.iter().all(|step| matches!(step.work, StepWork::Kernel(_))));
    let target = Target::detect("cpu", Some(1)).unwrap();
    let mut workspace = Compiled::new(&graph, None, &target).unwrap().workspace().unwrap();
    workspace.run_tensors(std::slice::from_ref(input)).unwrap().remove(0)
}

#[test]
fn an_operator_from_outside_is_read_run_and_written() {
    let options = ImportOptions { operators: vec![&RAMP], ..ImportOptions::default() };
    let read = |domain: &str, options: &ImportOptions| onnx::read_bytes(&model(domain).bytes(), options);
    let is_unknown = |domain: &str, options: &ImportOptions| {
        matches!(read(domain, options), Err(ImportError::Node { source: NodeError::Operator, .. }))
    };
    assert!(is_unknown("com.example", &ImportOptions::default()));
    // The same name in another domain is another operator.
    assert!(is_unknown("", &options));

    let graph = read("com.example", &options).unwrap();
    let node = graph.node(graph.outputs()[0].node);
    assert_eq!((node.op.of(), &node.shape[..]), (Some(&Ramp { most: 1.5 }), &[2, 3][..]));
    let x = f32s(&[2, 3], &[-3.0, -1.0, -0.0, 0.25, 1.5, 2.0]);
    let wanted = f32s(&[2, 3], &[1.5, 1.0, 0.0, 0.25, 1.5, 1.5]);
    assert_eq!(graph.evaluate(std::slice::from_ref(&x)).unwrap(), std::slice::from_ref(&wanted));
    assert_eq!(run(&graph, &x), wanted);

    let written = onnx::write(&graph).unwrap();
    let again = onnx::read_bytes(&written, &options).unwrap();
    assert!(again.node(again.outputs()[0].node).op == Ramp { most: 1.5 });
    assert_eq!(again.evaluate(std::slice::from_ref(&x)).unwrap(), [wanted]);
}

#[test]
fn an_operator_from_outside_is_read_in_place_of_one_of_the_library() {
    static ABS: OnnxOperator = OnnxOperator::one("Abs", |call| {
        let x = call.only()?;
        call.add(Ramp { most: 4.0 }, &[x])
    });
    let options = ImportOptions { operators: vec![&ABS, &RAMP], ..ImportOptions::default() };
    let graph = onnx::read_bytes(&model("com.example").bytes(), &options).unwrap();
    let ramps = graph.nodes().filter_map(|(_, node)| node.op.of::<Ramp>()).map(|ramp| ramp.most);
    assert_eq!(ramps.collect::<Vec<_>>(), [4.0, 1.5]);
}

#[test]
fn an_operator_without_a_workload_runs_as_its_parts() {
    let mut graph = Graph::new("parts");
    let x = graph.input("x", DType::F32, &[4]).unwrap();
    let y = graph.add("y", AboveOne, &[x]).unwrap();
    graph.output("y", y);

    let numbers = f32s(&[4], &[-1.0, 0.0, 0.5, 3.0]);
    let (found, wanted) = (run(&graph, &numbers), graph.evaluate(std::slice::from_ref(&numbers)).unwrap().remove(0));
    assert_eq!(crate::build::difference(&found, &wanted, 1e-6, 0.0), None);
    assert!(onnx::write(&graph).unwrap_err().to_string().contains("AboveOne"));
}
