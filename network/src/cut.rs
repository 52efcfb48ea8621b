//! Partition of a graph into steps that run one after the other: kernels of workloads with fused
//! epilogues, and copies.
//!
//! ```text
//! Conv(x, w, b) → Add(.., r) → Relu      one step, conv2d:..,bias,add,act=relu of x, w, b, r
//! Reshape, contiguous Slice              no step: the same memory
//! Concat                                 no step where its parts can be computed in place
//! ```

use std::collections::{HashMap, HashSet};

use autotune_ir::{DType, Target};
use autotune_workloads::Workload;
use xxhash_rust::xxh3::xxh3_64;

use autotune_graph::Precision;
use autotune_graph::memory_dtype;
use autotune_graph::op::Movement;
use autotune_graph::strides;
use autotune_graph::{Graph, NodeId};
use group::FusionGroups;

mod group;
mod rounded;
mod uniform;

pub use crate::strided::Strided;

/// Maximum size in bytes of constants that stay cached from run to run: the size of a core's
/// second-level cache, since the last level is shared.
const MOST_CACHED_BYTES: usize = 1 << 20;

/// A tensor in memory during a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryValue {
    /// Node that computes the tensor.
    pub node: NodeId,
    /// Extents of the tensor, the outermost axis first.
    pub shape: Vec<usize>,
    /// Element type in memory.
    pub dtype: DType,
    /// Value that this one is a part of, and the offset in it, in elements; `None` for a value with
    /// its own memory.
    pub within: Option<(ValueId, usize)>,
}

/// Position of a value in [`Cut::values`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// Operation of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepWork {
    /// Runs the kernel of a workload.
    Kernel(Workload),
    /// Copies elements between strided positions.
    Copy(Strided),
    /// Computes a node by the interpreter, as there is no workload for it.
    Interpret(NodeId),
}

/// A part of a network that runs as a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Name of the first node that the step computes.
    pub name: String,
    /// Operation of the step.
    pub work: StepWork,
    /// Operands, in the order of the workload's spec.
    pub operands: Vec<ValueId>,
    /// Tensor that the step computes.
    pub output: ValueId,
}

/// A graph as a sequence of steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cut {
    /// All tensors in memory.
    pub values: Vec<MemoryValue>,
    /// Steps in the order of execution.
    pub steps: Vec<Step>,
    /// Values of the graph's inputs.
    pub inputs: Vec<ValueId>,
    /// Values of the graph's outputs.
    pub outputs: Vec<ValueId>,
}

impl Cut {
    /// Partitions a graph into steps, for a target without tile instructions.
    pub fn of(graph: &Graph) -> Self {
        Self::of_groups(graph, None)
    }

    /// Partitions a graph into steps. In reduced precision, the target decides which products are
    /// rounded.
    pub fn for_target(graph: &Graph, target: &Target) -> Self {
        Self::of_groups(graph, Some(target))
    }

    fn of_groups(graph: &Graph, target: Option<&Target>) -> Self {
        let groups = FusionGroups::of(graph);
        let given_to_caller = graph.outputs().iter().map(|output| output.node).collect();
        let mut cutter = Cutter { graph, cut: Self::default(), of_nodes: HashMap::new(), given_to_caller };
        for id in needed(graph, &groups) {
            match groups.ending_at(id) {
                Some(group) => {
                    let operands = group.operands().into_iter().map(|operand| cutter.value(operand)).collect();
                    let output = cutter.add_root(id);
                    cutter.step(group.first(), StepWork::Kernel(group.workload()), operands, output);
                }
                None if graph.is_given(id) => drop(cutter.add_root(id)),
                None => cutter.place(id),
            }
        }

        cutter.cut.inputs = graph.inputs().iter().map(|&id| cutter.value(id)).collect();
        cutter.cut.outputs = graph.outputs().iter().map(|output| cutter.value(output.node)).collect();
        if graph.precision() != Precision::F32 {
            let dtype = graph.precision().dtype();
            match target.filter(|target| target.gpu().is_some()) {
                Some(gpu) => cutter.cut.round_uniformly(graph, dtype, gpu),
                None => cutter.cut.round_to(graph, dtype, target.and_then(Target::cpu)),
            }
        }
        cutter.cut.mark_cold(graph);
        cutter.cut
    }

    /// Marks kernels with constants as [cold](Workload::is_cold) (uncached) if all constants
    /// together exceed a core's cache.
    fn mark_cold(&mut self, graph: &Graph) {
        let is_constant =
            |values: &[MemoryValue], id: &ValueId| graph.constant_of(values[id.0 as usize].node).is_some();
        let mut constants: Vec<NodeId> = Vec::new();
        let mut cold: Vec<&mut Workload> = Vec::new();
        for step in &mut self.steps {
            let StepWork::Kernel(workload) = &mut step.work else { continue };
            let own = step.operands.iter().filter(|id| is_constant(&self.values, id));
            let before = constants.len();
            constants.extend(own.map(|id| self.values[id.0 as usize].node));
            cold.extend((constants.len() > before).then_some(workload));
        }

        // A constant with several readers counts once.
        constants.sort_unstable();
        constants.dedup();
        let bytes = |id: &NodeId| {
            let node = graph.node(*id);
            memory_dtype(node.dtype).bytes() * node.shape.iter().product::<usize>()
        };
        if constants.iter().map(bytes).sum::<usize>() > MOST_CACHED_BYTES {
            cold.into_iter().for_each(|workload| *workload = workload.with_cold(true));
        }
    }

    /// Returns a number that identifies networks with equal steps and data flow, independent of
    /// names and constant values.
    pub(crate) fn fingerprint(&self, graph: &Graph) -> u64 {
        // Values are numbered in order of appearance, independent of names.
        let mut numbers: HashMap<ValueId, usize> = HashMap::new();
        let mut place = |id: ValueId| {
            let ((root, first), next) = (self.root(id), numbers.len());
            (*numbers.entry(root).or_insert(next), first)
        };
        let mut text = format!("{:?}", self.inputs.iter().map(|&input| place(input)).collect::<Vec<_>>());
        for Step { work, operands, output, .. } in &self.steps {
            let work = match work {
                StepWork::Kernel(workload) => workload.to_string(),
                StepWork::Copy(strided) => format!("{strided:?}"),
                StepWork::Interpret(_) => format!("{:?}", self.value(*output).shape),
            };
            let is_constant = |id: &ValueId| graph.constant_of(self.value(*id).node).is_some();
            let operands: Vec<_> = operands.iter().map(|id| (!is_constant(id)).then(|| place(*id))).collect();
            text += &format!("\n{work} {operands:?} {:?}", place(*output));
        }
        text += &format!("\n{:?}", self.outputs.iter().map(|&output| place(output)).collect::<Vec<_>>());
        xxh3_64(text.as_bytes())
    }

    /// Returns a value by its number in the order of creation.
    pub fn value(&self, id: ValueId) -> &MemoryValue {
        &self.values[id.0 as usize]
    }

    /// Returns the value whose memory contains a value, and the offset in it, in elements.
    pub fn root(&self, id: ValueId) -> (ValueId, usize) {
        let (mut root, mut first) = (id, 0);
        while let Some((outer, offset)) = self.value(root).within {
            (root, first) = (outer, first + offset);
        }
        (root, first)
    }
}

/// Returns a number that identifies a step of a network, distinct from the numbers of networks.
pub(crate) fn step_number(network: u64, step: usize) -> u64 {
    xxh3_64(format!("{network:x} step {step}").as_bytes())
}

/// Returns the nodes whose tensors are needed, in order: neither intermediate results of a group
/// nor unread nodes.
fn needed(graph: &Graph, groups: &FusionGroups) -> Vec<NodeId> {
    let mut is_needed = vec![false; graph.nodes().len()];
    let given = graph.outputs().iter().map(|output| output.node);
    for id in given.chain(graph.inputs().iter().copied()) {
        is_needed[id.0 as usize] = true;
    }
    // Backwards, so that readers come before what they read.
    for (id, _) in graph.nodes().rev() {
        if is_needed[id.0 as usize] {
            groups.read_by(graph, id).into_iter().for_each(|read| is_needed[read.0 as usize] = true);
        }
    }
    graph.nodes().map(|(id, _)| id).filter(|id| is_needed[id.0 as usize]).collect()
}

/// State while a graph is partitioned.
struct Cutter<'a> {
    graph: &'a Graph,
    cut: Cut,
    of_nodes: HashMap<NodeId, ValueId>,
    /// Nodes that are outputs of the network.
    given_to_caller: HashSet<NodeId>,
}

impl Cutter<'_> {
    /// Returns the value of a node. Needed nodes are visited in topological order, so it exists.
    fn value(&self, node: NodeId) -> ValueId {
        self.of_nodes[&node]
    }

    /// Creates a value with its own memory for a node.
    fn add_root(&mut self, node: NodeId) -> ValueId {
        let shape = self.graph.node(node).shape.clone();
        let value = self.add(node, shape, None);
        self.of_nodes.insert(node, value);
        value
    }

    fn add(&mut self, node: NodeId, shape: Vec<usize>, within: Option<(ValueId, usize)>) -> ValueId {
        let dtype = memory_dtype(self.graph.node(node).dtype);
        self.cut.values.push(MemoryValue { node, shape, dtype, within });
        ValueId(self.cut.values.len() as u32 - 1)
    }

    fn step(&mut self, node: NodeId, work: StepWork, operands: Vec<ValueId>, output: ValueId) {
        let name = self.graph.node(node).name.clone();
        self.cut.steps.push(Step { name, work, operands, output });
    }

    /// Assigns memory to a node without a workload, and adds the steps that fill it.
    fn place(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let movement = node.op.movement(&self.graph.view(id));
        match movement.filter(|movement| self.is_inside(id, movement)) {
            Some(Movement::Piece(first)) => self.within(id, first),
            Some(Movement::Strided { from, steps }) => {
                let (extents, write) = (node.shape.clone(), strides(&node.shape));
                let work = StepWork::Copy(Strided { extents, from, read: steps, write });
                let operand = self.value(node.operands[0]);
                let output = self.add_root(id);
                self.step(id, work, vec![operand], output);
            }
            Some(Movement::Parts(axis)) => self.concat(id, axis),
            None => {
                let operands = node.operands.iter().map(|&operand| self.value(operand)).collect();
                let output = self.add_root(id);
                self.step(id, StepWork::Interpret(id), operands, output);
            }
        }
    }

    /// True if a movement is valid: elements have the same representation as in the operands, and a
    /// piece or parts are within them. Strided positions are checked when the copy is created.
    fn is_inside(&self, id: NodeId, movement: &Movement) -> bool {
        let node = self.graph.node(id);
        let count = |id: &NodeId| self.graph.node(*id).shape.iter().product::<usize>();
        let has_same_bits =
            |id: &NodeId| memory_dtype(self.graph.node(*id).dtype).has_same_bits_as(memory_dtype(node.dtype));
        if !node.operands.iter().all(has_same_bits) {
            return false;
        }
        match *movement {
            Movement::Piece(first) => node.operands.first().is_some_and(|from| first + count(&id) <= count(from)),
            Movement::Parts(axis) => {
                axis < node.shape.len() && node.operands.iter().map(count).sum::<usize>() == count(&id)
            }
            Movement::Strided { .. } => !node.operands.is_empty(),
        }
    }

    /// Makes the node's tensor a part of its operand, from element `first` on.
    fn within(&mut self, id: NodeId, first: usize) {
        let outer = self.value(self.graph.node(id).operands[0]);
        // The part refers to the root value, so that long chains of parts have no depth.
        let within = self.cut.value(outer).within.map_or((outer, first), |(root, before)| (root, before + first));
        let shape = self.graph.node(id).shape.clone();
        let value = self.add(id, shape, Some(within));
        self.of_nodes.insert(id, value);
    }

    /// Computes the parts of a concatenation in place where they are contiguous and not placed
    /// otherwise, else copies them.
    fn concat(&mut self, id: NodeId, axis: usize) {
        let node = self.graph.node(id);
        let output = self.add_root(id);
        let write = strides(&node.shape);
        // A part is contiguous in the result only if no axis before the concatenated one iterates
        // over it.
        let is_dense = node.shape[..axis].iter().all(|&extent| extent == 1);
        let mut first = 0;
        for &operand in &node.operands {
            let extents = self.graph.node(operand).shape.clone();
            let part = self.value(operand);
            let elements = extents[axis] * write[axis];
            // The part's producer then writes directly to its place in the result.
            if is_dense && self.can_move(part) {
                self.cut.values[part.0 as usize].within = Some((output, first));
            } else {
                let value = self.add(id, extents.clone(), Some((output, first)));
                let read = strides(&extents).into_iter().map(|stride| stride as isize).collect();
                let work = StepWork::Copy(Strided { extents, from: 0, read, write: write.clone() });
                self.step(id, work, vec![part], value);
            }
            first += elements;
        }
    }

    /// True if a value is computed by steps, and its memory may be placed inside another value.
    fn can_move(&self, value: ValueId) -> bool {
        let MemoryValue { node, within, .. } = self.cut.value(value);
        // Inputs and constants have no producer that could write elsewhere, and callers read
        // outputs from memory of their own.
        within.is_none() && !self.graph.is_given(*node) && !self.given_to_caller.contains(node)
    }
}
