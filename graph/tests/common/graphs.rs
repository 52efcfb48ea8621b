//! Construction and comparison of graphs.

use autotune_graph::Operator;
use autotune_graph::operators::{Binary, Map};
use autotune_graph::{DType, Graph, NodeId, Op, Tensor};
use autotune_ir::program::UnaryOp;
use autotune_workloads::{Activation, Function};
use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;

use super::{numbers, rng};

/// A graph under construction, with random constants.
pub(crate) struct Net<R = ChaCha8Rng> {
    pub(crate) graph: Graph,
    pub(crate) rng: R,
}

impl Net {
    pub(crate) fn new(seed: u64) -> Self {
        Self::drawn(rng(seed))
    }
}

impl<R: Rng> Net<R> {
    pub(crate) fn drawn(rng: R) -> Self {
        Self { graph: Graph::new("net"), rng }
    }

    pub(crate) fn input(&mut self, shape: &[usize]) -> NodeId {
        let name = format!("input{}", self.graph.inputs().len());
        self.graph.input(&name, DType::F32, shape).unwrap()
    }

    pub(crate) fn random(&mut self, shape: &[usize]) -> NodeId {
        let tensor = numbers(&mut self.rng, shape);
        self.graph.constant("random", tensor)
    }

    pub(crate) fn scalar(&mut self, value: f32) -> NodeId {
        self.graph.constant("scalar", Tensor::scalar(value))
    }

    pub(crate) fn add(&mut self, op: impl Into<Op>, operands: &[NodeId]) -> NodeId {
        let name = format!("n{}", self.graph.nodes().len());
        self.graph.add(name, op, operands).unwrap()
    }

    pub(crate) fn binary(&mut self, op: Binary, a: NodeId, b: NodeId) -> NodeId {
        self.add(op, &[a, b])
    }

    /// Adds an operation on a node and a number.
    pub(crate) fn with(&mut self, op: Binary, x: NodeId, value: f32) -> NodeId {
        let scalar = self.scalar(value);
        self.binary(op, x, scalar)
    }

    pub(crate) fn unary(&mut self, op: UnaryOp, x: NodeId) -> NodeId {
        self.add(Map(Function::Op(op)), &[x])
    }

    pub(crate) fn act(&mut self, word: &str, parameters: &[f32], x: NodeId) -> NodeId {
        self.add(Map(Function::Activation(Activation::new(word, parameters).unwrap())), &[x])
    }

    pub(crate) fn output(&mut self, node: NodeId) {
        let name = format!("output{}", self.graph.outputs().len());
        self.graph.output(name, node);
    }
}

/// Returns random tensors for the inputs of a graph.
pub(crate) fn brought(graph: &Graph, rng: &mut impl Rng) -> Vec<Tensor> {
    let of = |&id: &NodeId| {
        let node = graph.node(id);
        let count = node.shape.iter().product();
        match node.dtype {
            DType::F32 => numbers(rng, &node.shape),
            DType::I64 => Tensor::i64(&node.shape, (0..count).map(|_| rng.random_range(0..3)).collect()).unwrap(),
            DType::Bool => {
                let signs = numbers(rng, &node.shape);
                Binary::Less.evaluate(&[&signs, &Tensor::scalar(0.5)]).unwrap()
            }
            other => panic!("tensors of {other}"),
        }
    };
    graph.inputs().iter().map(of).collect()
}

/// Fails unless two graphs have the same inputs and outputs and compute nearly the same on random
/// tensors, moderate ones and those of [`brought_any`].
pub(crate) fn assert_same(before: &Graph, after: &Graph, seed: u64) {
    assert_same_by("all rules", before, after, seed);
}

/// Like [`assert_same`], for a graph that some rules have rewritten.
pub(crate) fn assert_same_by(rules: &str, before: &Graph, after: &Graph, seed: u64) {
    assert_same_on(before, after, &brought(before, &mut rng(seed)), &format!("seed {seed}, {rules}"));
    let inputs = brought_any(before, &mut rng(seed));
    if let Some(largest) = largest_if_moderate(before, &inputs) {
        // Merged functions may be finite where an intermediate result was infinite or NaN. After
        // cancellation, the error is that of the largest intermediate number.
        assert_near(before, after, &inputs, [0.0, 1e-6 * largest], &format!("seed {seed}, {rules}, all magnitudes"));
    }
}

/// Returns random tensors of very different magnitudes, with zeros of either sign, infinities and
/// NaN.
pub(crate) fn brought_any(graph: &Graph, rng: &mut impl Rng) -> Vec<Tensor> {
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let mut tensors = brought(graph, rng);
    for numbers in
        tensors.iter_mut().filter_map(|tensor| if let Tensor::F32(numbers) = tensor { Some(numbers) } else { None })
    {
        let (size, spread) = (rng.random_range(-16..=16), rng.random_range(0..=8));
        let share = [0.0, 0.0, 0.02, 0.3][rng.random_range(0..4)];
        numbers.mapv_inplace(|x| match rng.random_bool(share) {
            true => special[rng.random_range(0..special.len())],
            false => x * f32::powi(2.0, size + rng.random_range(-spread..=spread)),
        });
    }
    tensors
}

/// Returns the largest intermediate number, if all are within the range that rewriting preserves:
/// magnitudes from 2^-64 to 2^64, and infinities only where an operand has some.
fn largest_if_moderate(graph: &Graph, inputs: &[Tensor]) -> Option<f32> {
    let range = f32::powi(2.0, -64)..=f32::powi(2.0, 64);
    let (mut infinite, mut is_moderate, mut largest) = (Vec::new(), true, f32::MIN_POSITIVE);
    let visit = |id: NodeId, tensor: &Tensor| {
        let node = graph.node(id);
        let numbers = tensor.to_numbers();
        let may_be_infinite = node.operands.is_empty() || node.operands.iter().any(|id| infinite[id.0 as usize]);
        let is_infinite = numbers.iter().any(|x| !x.is_finite());
        let is_within = |x: &f32| *x == 0.0 || !x.is_finite() || range.contains(&x.abs());
        is_moderate &= (may_be_infinite || !is_infinite) && numbers.iter().all(is_within);
        infinite.push(is_infinite);
        largest = numbers.iter().filter(|x| x.is_finite()).fold(largest, |most, x| most.max(x.abs()));
    };
    graph.evaluate_each(inputs, visit).unwrap();
    is_moderate.then_some(largest)
}

/// Fails unless two graphs have the same inputs and outputs and compute nearly the same on given
/// tensors.
pub(crate) fn assert_same_on(before: &Graph, after: &Graph, brought: &[Tensor], what: &str) {
    let least = if brought.iter().all(is_usual) { 1.0 } else { 0.0 };
    assert_near(before, after, brought, [least, 0.0], what);
}

/// Compares two graphs with a tolerance of 1e-4 of the largest output or of `least`, plus `off`. If
/// `off` is not 0, infinite and NaN outputs may become finite.
fn assert_near(before: &Graph, after: &Graph, brought: &[Tensor], [least, off]: [f32; 2], what: &str) {
    let inputs = |graph: &Graph| -> Vec<_> { graph.inputs().iter().map(|&id| graph.node(id).clone()).collect() };
    let names = |graph: &Graph| -> Vec<_> { graph.outputs().iter().map(|output| output.name.clone()).collect() };
    assert_eq!((inputs(before), names(before)), (inputs(after), names(after)), "{what}");

    let (wanted, found) = (before.evaluate(brought).unwrap(), after.evaluate(brought).unwrap());
    for (wanted, found) in wanted.iter().zip(&found) {
        assert_eq!((wanted.shape(), wanted.dtype()), (found.shape(), found.dtype()), "{what}");
        let (Some(wanted), Some(found)) = (wanted.as_f32(), found.as_f32()) else {
            assert_eq!(wanted, found, "{what}");
            continue;
        };
        let may_be =
            1e-4 * wanted.iter().copied().filter(|x| x.is_finite()).fold(least, |most, x| most.max(x.abs())) + off;
        for (a, b) in wanted.iter().zip(found) {
            let is_defined = off > 0.0 && (a.is_nan() || a.is_infinite() && b.is_finite());
            let is_same = a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= may_be;
            assert!(is_same || is_defined, "{b} instead of {a}, {what}\n{before:#?}\n{after:#?}");
        }
    }
}

/// True for numbers from -2 to 2, like those of [`numbers`].
fn is_usual(tensor: &Tensor) -> bool {
    tensor.to_numbers().iter().all(|x| x.abs() <= 2.0)
}

/// Returns the operators in order, without inputs and constants.
pub(crate) fn ops(graph: &Graph) -> Vec<&'static str> {
    let all = graph.nodes().map(|(_, node)| node.op.name());
    all.filter(|name| !["Input", "Constant"].contains(name)).collect()
}

/// Returns the only node with an operator of this name.
pub(crate) fn only<'a>(graph: &'a Graph, name: &str) -> &'a Op {
    let mut all = graph.nodes().filter(|(_, node)| node.op.name() == name);
    let found = all.next().unwrap_or_else(|| panic!("no {name} in {:?}", ops(graph)));
    assert!(all.next().is_none(), "several of {name}");
    &found.1.op
}
