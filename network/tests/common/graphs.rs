//! Graphs that are made and compared.

use autotune_ir::program::UnaryOp;
use autotune_network::op::Binary;
use autotune_network::{Element, Graph, NodeId, Op, Tensor};
use autotune_schedules::workload::{Activation, Function};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;

use super::{numbers, rng};

/// A graph in the making, with random constants.
pub(crate) struct Net {
    pub(crate) graph: Graph,
    pub(crate) rng: ChaCha8Rng,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        Self { graph: Graph::new("net"), rng: rng(seed) }
    }

    pub(crate) fn input(&mut self, shape: &[usize]) -> NodeId {
        let name = format!("input{}", self.graph.inputs().len());
        self.graph.input(&name, Element::F32, shape).unwrap()
    }

    pub(crate) fn random(&mut self, shape: &[usize]) -> NodeId {
        let tensor = numbers(&mut self.rng, shape);
        self.graph.constant("random", tensor)
    }

    pub(crate) fn scalar(&mut self, value: f32) -> NodeId {
        self.graph.constant("scalar", Tensor::scalar(value))
    }

    pub(crate) fn add(&mut self, op: Op, operands: &[NodeId]) -> NodeId {
        let name = format!("n{}", self.graph.nodes().len());
        self.graph.add(name, op, operands).unwrap()
    }

    pub(crate) fn binary(&mut self, op: Binary, a: NodeId, b: NodeId) -> NodeId {
        self.add(Op::Binary(op), &[a, b])
    }

    /// An operation on a node and a number.
    pub(crate) fn with(&mut self, op: Binary, x: NodeId, value: f32) -> NodeId {
        let scalar = self.scalar(value);
        self.binary(op, x, scalar)
    }

    pub(crate) fn unary(&mut self, op: UnaryOp, x: NodeId) -> NodeId {
        self.add(Op::Map(Function::Op(op)), &[x])
    }

    pub(crate) fn act(&mut self, word: &str, parameters: &[f32], x: NodeId) -> NodeId {
        self.add(Op::Map(Function::Activation(Activation::new(word, parameters).unwrap())), &[x])
    }

    pub(crate) fn output(&mut self, node: NodeId) {
        let name = format!("output{}", self.graph.outputs().len());
        self.graph.output(name, node);
    }
}

/// Random tensors for the inputs of a graph.
pub(crate) fn brought(graph: &Graph, rng: &mut impl Rng) -> Vec<Tensor> {
    let of = |&id: &NodeId| {
        let node = graph.node(id);
        let count = node.shape.iter().product();
        match node.element {
            Element::F32 => numbers(rng, &node.shape),
            Element::I64 => Tensor::i64(&node.shape, (0..count).map(|_| rng.random_range(0..3)).collect()).unwrap(),
            Element::Bool => {
                let signs = numbers(rng, &node.shape);
                Op::Binary(Binary::Less).evaluate(&[&signs, &Tensor::scalar(0.5)]).unwrap()
            }
        }
    };
    graph.inputs().iter().map(of).collect()
}

/// Fails unless two graphs have the same inputs and outputs, and compute nearly the same.
pub(crate) fn assert_same(before: &Graph, after: &Graph, seed: u64) {
    let inputs = |graph: &Graph| -> Vec<_> { graph.inputs().iter().map(|&id| graph.node(id).clone()).collect() };
    let names = |graph: &Graph| -> Vec<_> { graph.outputs().iter().map(|output| output.name.clone()).collect() };
    assert_eq!((inputs(before), names(before)), (inputs(after), names(after)), "{seed}");

    let inputs = brought(before, &mut rng(seed));
    let (wanted, found) = (before.evaluate(&inputs).unwrap(), after.evaluate(&inputs).unwrap());
    for (wanted, found) in wanted.iter().zip(&found) {
        assert_eq!((wanted.shape(), wanted.element()), (found.shape(), found.element()), "{seed}");
        let (Some(wanted), Some(found)) = (wanted.as_f32(), found.as_f32()) else {
            assert_eq!(wanted, found, "{seed}");
            continue;
        };
        let largest = wanted.iter().copied().filter(|x| x.is_finite()).fold(1.0, |most: f32, x| most.max(x.abs()));
        for (a, b) in wanted.iter().zip(found) {
            let is_same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-4 * largest;
            assert!(is_same, "{b} instead of {a}, seed {seed}\n{before:#?}\n{after:#?}");
        }
    }
}

/// Operations in order, without inputs and constants.
pub(crate) fn ops(graph: &Graph) -> Vec<&'static str> {
    let all = graph.nodes().map(|(_, node)| node.op.name());
    all.filter(|name| !["Input", "Constant"].contains(name)).collect()
}

/// The only node of an operation.
pub(crate) fn only<'a>(graph: &'a Graph, name: &str) -> &'a Op {
    let mut all = graph.nodes().filter(|(_, node)| node.op.name() == name);
    let found = all.next().unwrap_or_else(|| panic!("no {name} in {:?}", ops(graph)));
    assert!(all.next().is_none(), "several of {name}");
    &found.1.op
}
