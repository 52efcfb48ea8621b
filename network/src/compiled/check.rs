//! Comparing what a network computes with the reference, step by step.
//!
//! Each step is compared with what the reference makes of the tensors that the steps in front of it computed, as they were then: errors do not add up on the
//! way, and what a step may differ by is what its kernel alone may ([`allowed`]). Copies and conversions of layouts change no number.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use autotune::Tuned;
use autotune_ir::DType;
use autotune_ir::layout::from_layout;
use autotune_schedules::tolerance;

use super::Workspace;
use crate::cut::{Strided, Value};
use crate::error::{CheckError, CompileError, GraphError, OpError};
use crate::evaluate::EvaluateError;
use crate::graph::{Graph, Node, NodeId};
use crate::op::{Binary, Op};
use crate::plan::{Action, Doing};
use crate::tensor::Tensor;

/// How far what a step computes is from what the reference makes of the same operands.
#[derive(Clone, Debug, PartialEq)]
pub struct StepError {
    /// The name of the first node that it computes.
    pub name: String,
    /// True if it only brings a tensor from one layout to another.
    pub is_conversion: bool,
    /// The largest difference of an element, by the largest element of the reference, or of the sums that what is fused behind them cuts off.
    pub max_rel_error: f64,
    /// The largest of these that is right.
    pub tolerance: f64,
}

impl StepError {
    /// True if the step computes what it should.
    pub fn is_right(&self) -> bool {
        self.max_rel_error <= self.tolerance
    }
}

impl Workspace {
    /// Runs the network on tensors and compares what every step computes with the reference; all tensors are in memory meanwhile.
    pub fn check(&mut self, inputs: &[Tensor]) -> Result<Vec<StepError>, CheckError> {
        let network = Arc::clone(&self.network);
        let (graph, plan) = (&network.graph, &network.plan);
        graph.check_inputs(inputs)?;
        let mut computed = Computed { graph, tensors: vec![None; graph.nodes().len()] };
        for ((tensor, &id), &span) in inputs.iter().zip(graph.inputs()).zip(&plan.inputs) {
            let numbers = tensor.to_numbers();
            self.elements(span, numbers.len()).copy_from_slice(&numbers);
            computed.put(id, &numbers)?;
        }

        let mut errors = Vec::new();
        for (number, action) in plan.actions.iter().enumerate() {
            self.start(number..number + 1)?;
            errors.push(self.step_error(action, &mut computed)?);
        }
        Ok(errors)
    }

    /// Compares what an action has just written.
    fn step_error(&self, action: &Action, computed: &mut Computed) -> Result<StepError, CheckError> {
        let network = &self.network;
        let ((value, layout), graph) = (action.value, &network.graph);
        let Value { node, shape, within } = network.cut.value(value);
        let is_whole = *shape == graph.node(*node).shape;
        let first = within.filter(|_| !is_whole).map_or(0, |(_, first)| first);

        let Wanted { numbers: wanted, most } = match action.is_conversion {
            true => Wanted::exactly(computed.tensor(*node)?.to_numbers()),
            false => computed.wanted(*node)?,
        };
        let (found, wanted) = match &action.work {
            Doing::Copy(strided) => {
                let places = written(strided);
                let found = self.result(action.output, places.iter().max().map_or(0, |last| last + 1));
                (at(found, 0, &places), at(&wanted, first, &places))
            }
            Doing::Kernel(_) | Doing::Interpret(_) => {
                let found = from_layout(self.result(action.output, shape.iter().product()), shape, layout)
                    .map_err(|source| CompileError::Constant { name: action.name.clone(), source })?;
                (found.into_iter().collect(), wanted)
            }
        };

        let tolerance = match action.work {
            Doing::Kernel(kernel) if !action.is_conversion => allowed(&network.plan.kernels[kernel]),
            _ => 0.0,
        };
        let (name, is_conversion) = (action.name.clone(), action.is_conversion);
        let max_rel_error = difference(&found, &wanted, most);
        if is_whole && !is_conversion {
            computed.put(*node, &found)?;
        }
        Ok(StepError { name, is_conversion, max_rel_error, tolerance })
    }
}

/// The relative error that a kernel may have on tensors of a network: what it may have on operands of random signs, by which it is tuned, and what a sum of as
/// many products of one sign may be off in any order, the unit roundoff for each.
fn allowed(tuned: &Tuned) -> f64 {
    let roundings = tuned.workload().spec().reduction_len() as f64;
    tolerance(tuned.workload(), tuned.config()) + roundings * DType::F32.unit_roundoff()
}

/// Tensors that steps have computed, by their nodes.
struct Computed<'a> {
    graph: &'a Graph,
    tensors: Vec<Option<Tensor>>,
}

/// What a node's tensor should be.
struct Wanted {
    numbers: Vec<f32>,
    /// What errors are relative to.
    most: f32,
}

impl Wanted {
    fn exactly(numbers: Vec<f32>) -> Self {
        let most = largest(&numbers);
        Self { numbers, most }
    }
}

impl Computed<'_> {
    fn put(&mut self, id: NodeId, numbers: &[f32]) -> Result<(), EvaluateError> {
        let node = self.graph.node(id);
        let tensor = Tensor::of_numbers(&node.shape, node.element, numbers).map_err(|source| wrong(node, source))?;
        self.tensors[id.0 as usize] = Some(tensor);
        Ok(())
    }

    /// A node's tensor as it was computed; of a node that no step computes as a whole what the reference makes of those in front of it.
    fn tensor(&self, id: NodeId) -> Result<Cow<'_, Tensor>, EvaluateError> {
        match &self.tensors[id.0 as usize] {
            Some(tensor) => Ok(Cow::Borrowed(tensor)),
            None => {
                let mut made = self.made(id)?;
                made.pop_last().map(|(_, tensor)| tensor).ok_or_else(|| self.missing(id))
            }
        }
    }

    /// What the reference makes of the tensors in front of a node. Of sums, what is added to them and the functions that are applied to them have an error
    /// like that of the sums, however small they are: it is relative to these.
    fn wanted(&self, id: NodeId) -> Result<Wanted, EvaluateError> {
        let (mut most, mut is_of_sums, mut numbers) = (0f32, false, Vec::new());
        for (id, tensor) in self.made(id)? {
            numbers = tensor.to_numbers();
            let op = &self.graph.node(id).op;
            let keeps = matches!(op, Op::Binary(Binary::Add | Binary::Sub | Binary::Max | Binary::Min))
                || matches!(op, Op::Map(_) | Op::Prelu);
            let before = if is_of_sums && keeps { most } else { 0.0 };
            most = largest(&numbers).max(before);
            is_of_sums |= matches!(op, Op::Conv { .. } | Op::ConvTranspose { .. } | Op::MatMul);
        }
        Ok(Wanted { numbers, most })
    }

    /// The tensors that the reference computes on the way to that of a node, which is the last, from those that are there.
    fn made(&self, id: NodeId) -> Result<BTreeMap<NodeId, Cow<'_, Tensor>>, EvaluateError> {
        let (mut open, mut wanted) = (vec![id], BTreeSet::from([id]));
        while let Some(next) = open.pop() {
            for &operand in &self.graph.node(next).operands {
                if self.tensors[operand.0 as usize].is_none() && wanted.insert(operand) {
                    open.push(operand);
                }
            }
        }

        let mut made: BTreeMap<NodeId, Cow<Tensor>> = BTreeMap::new();
        for id in wanted {
            let node = self.graph.node(id);
            let tensor = match &node.op {
                Op::Constant(constant) => constant.read(),
                _ => {
                    let there = |id: &NodeId| self.tensors[id.0 as usize].as_ref().or_else(|| Some(&**made.get(id)?));
                    let operands = node.operands.iter().map(|id| there(id).ok_or_else(|| self.missing(*id)));
                    node.op.evaluate(&operands.collect::<Result<Vec<_>, _>>()?).map(Cow::Owned)
                }
            };
            made.insert(id, tensor.map_err(|source| wrong(node, source))?);
        }
        Ok(made)
    }

    fn missing(&self, id: NodeId) -> EvaluateError {
        wrong(self.graph.node(id), OpError::Unfit("it stands behind who reads it".into())).into()
    }
}

fn wrong(node: &Node, source: OpError) -> GraphError {
    GraphError { node: node.name.clone(), op: node.op.name(), source }
}

/// The elements that a copy writes, in the order of its extents.
fn written(strided: &Strided) -> Vec<usize> {
    let along = |places: Vec<usize>, (&extent, &write): (&usize, &usize)| {
        places.into_iter().flat_map(|place| (0..extent).map(move |i| place + i * write)).collect()
    };
    strided.extents.iter().zip(&strided.write).fold(vec![0], along)
}

/// Elements at places behind the first.
fn at(numbers: &[f32], first: usize, places: &[usize]) -> Vec<f32> {
    places.iter().map(|place| numbers[first + place]).collect()
}

/// The largest finite magnitude.
fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().filter(|x| x.is_finite()).fold(0f32, |most, x| most.max(x.abs()))
}

/// The largest difference of two tensors' elements, by `most`; infinite where either is no number alone.
fn difference(found: &[f32], wanted: &[f32], most: f32) -> f64 {
    let most = f64::from(most.max(f32::MIN_POSITIVE));
    let error = |(&x, &y): (&f32, &f32)| match x == y || x.is_nan() && y.is_nan() {
        true => 0.0,
        false if x.is_finite() && y.is_finite() => (f64::from(x) - f64::from(y)).abs() / most,
        false => f64::INFINITY,
    };
    found.iter().zip(wanted).map(error).fold(0.0, f64::max)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use autotune_ir::Target;
    use autotune_ir::program::Layout;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::builder::{Builder, Conv, Seeded};
    use crate::compiled::Compiled;
    use crate::op::Sliding;
    use crate::testing::{known, random_graph};

    fn target() -> Target {
        Target::detect("cpu", Some(1)).unwrap()
    }

    /// Numbers between -1 and 1 for every input of a graph.
    fn inputs(graph: &Graph) -> Vec<Tensor> {
        let tensor = |&id: &NodeId| {
            let shape = &graph.node(id).shape;
            let numbers = (0..shape.iter().product()).map(|i: usize| (i * 37 % 101) as f32 / 50.0 - 1.0);
            Tensor::f32(shape, numbers.collect()).unwrap()
        };
        graph.inputs().iter().map(tensor).collect()
    }

    fn wrong_steps(network: Arc<Compiled>) -> Vec<String> {
        let inputs = inputs(&network.graph);
        let errors = network.workspace().unwrap().check(&inputs).unwrap();
        errors.into_iter().filter(|step| !step.is_right()).map(|step| step.name).collect()
    }

    /// Layers one behind the other, of which one has the weights that its name has it have.
    fn chain(second: &str) -> Graph {
        let net = Builder::new("chain", Seeded { seed: 1 });
        let mut x = net.input("x", &[1, 16, 8, 8]);
        for name in ["first", second, "third"] {
            x = x.conv(name, Conv::new(16, Sliding::new(3).pad(1))).relu();
        }
        net.output("y", x);
        net.finish().unwrap()
    }

    #[test]
    fn every_step_and_conversion_is_compared() {
        let (mut conversions, mut parts) = (0, 0);
        for seed in 0..20 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let graph = random_graph(&mut rng, 12);
            let db = known(&graph, &target(), &mut rng, 2);
            let network = Compiled::new(&graph, Some(&db), &target()).unwrap();
            let errors = network.workspace().unwrap().check(&inputs(&graph)).unwrap();
            assert_eq!(errors.len(), network.plan.actions.len());
            let wrong: Vec<_> = errors.iter().filter(|step| !step.is_right()).collect();
            assert!(wrong.is_empty(), "seed {seed}: {wrong:?}");

            conversions += errors.iter().filter(|step| step.is_conversion).count();
            let is_part = |action: &&Action| {
                let Value { node, shape, .. } = network.cut.value(action.value.0);
                *shape != graph.node(*node).shape
            };
            parts += network.plan.actions.iter().filter(is_part).count();
        }
        assert!(conversions > 10 && parts > 5, "{conversions} conversions, {parts} parts");
    }

    /// What follows a wrong step is right on what that gives it.
    #[test]
    fn a_step_with_other_weights_is_told_alone() {
        assert_eq!(wrong_steps(Compiled::new(&chain("second"), None, &target()).unwrap()), [""; 0]);
        let mut network = Compiled::new(&chain("second"), None, &target()).unwrap();
        Arc::get_mut(&mut network).unwrap().graph = chain("other");
        assert_eq!(wrong_steps(network).len(), 1);
    }

    #[test]
    fn a_conversion_to_another_layout_than_it_says_is_told() {
        let found = (0..20).find_map(|seed| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let graph = random_graph(&mut rng, 12);
            let db = known(&graph, &target(), &mut rng, 2);
            let mut network = Compiled::new(&graph, Some(&db), &target()).unwrap();
            let plan = &mut Arc::get_mut(&mut network).unwrap().plan;
            let conversion = plan.actions.iter_mut().find(|action| action.is_conversion)?;
            conversion.value.1 = match conversion.value.1 {
                Layout::Plain => Layout::ChannelBlocked(8),
                _ => Layout::Plain,
            };
            let name = conversion.name.clone();
            Some((wrong_steps(network), name))
        });
        let (wrong, name) = found.unwrap();
        assert_eq!(wrong, [name]);
    }

    #[test]
    fn errors_are_relative_to_sums_that_were_cut_off() {
        let net = Builder::new("dead", Seeded { seed: 1 });
        let x = net.input("x", &[1, 16, 8, 8]);
        net.output("y", x.conv("conv", Conv::new(16, Sliding::new(3).pad(1))).relu());
        let graph = net.finish().unwrap();
        let mut computed = Computed { graph: &graph, tensors: vec![None; graph.nodes().len()] };
        let x = inputs(&graph)[0].to_numbers();
        computed.put(graph.inputs()[0], &x).unwrap();
        let relu = graph.outputs()[0].node;
        let sums = computed.wanted(graph.node(relu).operands[0]).unwrap();
        assert!(sums.most > 0.0 && sums.numbers.iter().any(|x| *x == -sums.most || *x == sums.most));
        assert_eq!(computed.wanted(relu).unwrap().most, sums.most);
    }

    #[test]
    fn numbers_that_are_none_differ() {
        assert_eq!(difference(&[1.0, -2.5], &[1.0, -2.0], 2.0), 0.25);
        assert_eq!(difference(&[f32::NAN, f32::INFINITY], &[f32::NAN, f32::INFINITY], 1.0), 0.0);
        assert_eq!(difference(&[f32::NAN], &[1.0], 1.0), f64::INFINITY);
        assert_eq!(difference(&[1.0], &[f32::INFINITY], 1.0), f64::INFINITY);
        assert_eq!(difference(&[0.0], &[0.0], 0.0), 0.0);
    }
}
