//! Import in phases, for models whose shapes depend on the data of a run.
//!
//! A phase is the part of a graph whose shapes follow from the tensors that exist. The nodes after
//! it that compute a shape from data, or that repeat or choose a graph, run alone
//! ([`PhaseNode`]); with the shapes of their results, the next phase can be imported.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use autotune_ir::DType;
use rten_onnx::onnx::{GraphProto, NodeProto};

use super::alone::{NestedGraph, PhaseWork, layer, work};
use super::error::{ImportError, NodeError};
use super::import::{Import, Model};
use super::inputs::{DeclaredInput, ImportOptions};
use super::layers::{PART_STEPS, is_layer};
use super::nodes::{inputs_of, is_default, outputs_of};
use super::operator::Int8Reading;
use crate::constant::Constant;
use crate::graph::Graph;
use crate::tensor::{DeclaredType, Tensor};
use crate::text::printable;

/// Position of a graph in a model; by default the model's own graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GraphPath {
    /// Numbers of a node and of its attribute with a graph, for each graph on the way.
    inner: Vec<(usize, usize)>,
    /// Number of a recurrent node in that graph and of its direction, for a [short
    /// layer](super::layers).
    layer: Option<(usize, usize)>,
}

impl GraphPath {
    /// Returns the position of a graph inside a node.
    pub(super) fn inner(&self, node: usize, attribute: usize) -> Self {
        Self { inner: self.inner.iter().copied().chain([(node, attribute)]).collect(), layer: None }
    }

    /// Returns the position of the short layer of a recurrent node.
    pub(super) fn layer(&self, node: usize, direction: usize) -> Self {
        Self { layer: Some((node, direction)), ..self.clone() }
    }
}

/// Shape and element type of a tensor that exists when a phase begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorFacts {
    /// Element type of the tensor in memory.
    pub dtype: DType,
    /// Extents of the tensor, outermost first.
    pub shape: Vec<usize>,
    /// Type in the file, if it has 8 bits; the tensor is then i64.
    pub byte_type: Option<DType>,
}

/// A tensor of a run.
#[derive(Clone, Debug)]
pub struct RunTensor {
    /// Elements; 8-bit integers are i64.
    pub tensor: Arc<Tensor>,
    /// Type in the file, if it has 8 bits.
    pub byte_type: Option<DType>,
}

/// Tensors that are known when a phase begins, by the names in the file.
#[derive(Clone, Debug, Default)]
pub struct PhaseStart {
    /// Tensors that were computed or passed so far, also those that are no longer in memory.
    pub tensors: BTreeMap<String, TensorFacts>,
    /// Tensors with the same value in all runs.
    pub constants: BTreeMap<String, Constant>,
}

/// A part of a graph whose shapes are known, and the nodes that follow it.
#[derive(Clone, Debug)]
pub struct ModelPhase {
    /// Part that can be computed now. Inputs are tensors of the [start](PhaseStart); outputs are
    /// read later. Both have the names of the file.
    pub graph: Graph,
    /// Types in the file of outputs with 8 bits, by name.
    pub byte_types: HashMap<String, DType>,
    /// Nodes that can run after the graph, in order.
    pub nodes: Vec<PhaseNode>,
    /// Names of the tensors that the nodes and later phases read.
    pub reads: HashSet<String>,
    /// True if no phase follows: all outputs of the whole graph exist.
    pub is_last: bool,
}

/// A node that runs alone.
#[derive(Clone, Debug)]
pub struct PhaseNode {
    /// Name of the node, or of its first output, for messages.
    pub name: String,
    /// Operator of the node in the file.
    pub operator: String,
    /// Names of the operands; empty for absent ones.
    pub inputs: Vec<String>,
    /// Names of the results; empty for those that nothing reads.
    pub outputs: Vec<String>,
    /// Constants among the tensors that the node and its graphs read.
    pub constants: BTreeMap<String, Constant>,
    /// Computation of the results.
    pub work: PhaseWork,
}

/// State of an import in phases.
#[derive(Default)]
pub(super) struct PhaseImport<'a> {
    path: GraphPath,
    /// Names of tensors that this phase does not compute.
    later: HashSet<&'a str>,
    /// Names that later nodes read.
    reads: HashSet<&'a str>,
    nodes: Vec<PhaseNode>,
}

impl TensorFacts {
    /// Returns the facts of a tensor.
    pub fn of(tensor: &RunTensor) -> Self {
        let RunTensor { tensor, byte_type } = tensor;
        Self { dtype: tensor.dtype(), shape: tensor.shape().to_vec(), byte_type: *byte_type }
    }

    /// True if a tensor has these facts.
    pub fn are_of(&self, tensor: &RunTensor) -> bool {
        let RunTensor { tensor, byte_type } = tensor;
        (self.dtype, &*self.shape, self.byte_type) == (tensor.dtype(), tensor.shape(), *byte_type)
    }
}

impl DeclaredInput {
    /// Returns the type in the file, if it has 8 bits.
    pub fn byte_type(&self) -> Option<DType> {
        match self.stored {
            Some(DeclaredType::Of(dtype @ (DType::I8 | DType::U8))) => Some(dtype),
            _ => None,
        }
    }
}

impl Model<'_> {
    /// Imports the part of a graph whose shapes follow from the tensors that exist.
    pub fn phase(
        &self,
        path: &GraphPath,
        start: &PhaseStart,
        options: &ImportOptions,
    ) -> Result<ModelPhase, ImportError> {
        let graph = self.graph_at(path)?;
        let (nodes, wanted) = needed(graph, start);
        let phase = PhaseImport { path: path.clone(), ..PhaseImport::default() };
        // Parts of layers become nodes, whatever the options for whole layers are.
        let max_unrolled = if path.layer.is_some() { PART_STEPS } else { options.max_unrolled };
        let options = ImportOptions { max_unrolled, ..options.clone() };
        let mut import = self.import(&options, wanted);
        import.phase = Some(phase);

        import.initializers(graph)?;
        import.start(start)?;
        for (number, node) in nodes {
            import.node_in_phase(number, node, start)?;
        }
        import.finish_phase(graph, start)
    }

    /// Computes a node by the reference, from the tensors and constants that it reads. Results are
    /// in the order of the node's outputs, without those at the end that it does not name.
    pub fn run_node(
        &self,
        path: &GraphPath,
        number: usize,
        operands: &HashMap<String, RunTensor>,
        constants: &BTreeMap<String, Constant>,
        options: &ImportOptions,
    ) -> Result<Vec<(String, RunTensor)>, ImportError> {
        let node = self.graph_at(path)?.node.get(number).ok_or_else(malformed)?;
        let names: Vec<&str> = node.output.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
        let mut import = self.import(options, names.iter().copied().collect());
        for name in inputs_of(node) {
            if let Some(constant) = constants.get(name) {
                import.constant(name, constant.clone(), None);
            } else if let Some(operand) = operands.get(name) {
                import.constant(name, Arc::clone(&operand.tensor).into(), operand.byte_type);
            }
        }
        import.node(node)?;
        import.results(&names)
    }

    /// Returns the description of a graph.
    pub fn nested(&self, path: &GraphPath) -> Result<NestedGraph, ImportError> {
        Ok(NestedGraph::of(self.graph_at(path)?, path.clone()))
    }

    /// Returns a graph of the model.
    fn graph_at(&self, path: &GraphPath) -> Result<&GraphProto, ImportError> {
        if path.layer.is_some() {
            return self.layers().get(path).ok_or_else(malformed);
        }
        path.inner.iter().try_fold(self.proto(), |graph, &(node, attribute)| {
            let attribute = graph.node.get(node).and_then(|node| node.attribute.get(attribute));
            attribute.and_then(|attribute| attribute.g.as_ref()).ok_or_else(malformed)
        })
    }
}

fn malformed() -> ImportError {
    ImportError::Malformed("a graph inside a node is missing".into())
}

/// Returns the numbered nodes that outputs depend on and that are not computed yet, in order, and
/// all names that they or outputs read.
fn needed<'a>(graph: &'a GraphProto, start: &PhaseStart) -> (Vec<(usize, &'a NodeProto)>, HashSet<&'a str>) {
    let mut wanted: HashSet<&str> = outputs_of(graph).collect();
    let mut needed = Vec::new();
    for (number, node) in graph.node.iter().enumerate().rev() {
        let is_wanted = |name: &String| wanted.contains(&**name) && !start.tensors.contains_key(name);
        if node.output.iter().any(is_wanted) {
            wanted.extend(inputs_of(node));
            needed.push((number, node));
        }
    }
    needed.reverse();
    (needed, wanted)
}

impl<'a> Import<'a> {
    fn constant(&mut self, name: &str, constant: Constant, byte_type: Option<DType>) {
        let value = self.draft.constant(&printable(name), constant);
        self.byte_types.extend(byte_type.map(|dtype| (value, dtype)));
        self.values.insert(name.into(), value);
    }

    /// Adds the tensors and constants that exist.
    fn start(&mut self, start: &PhaseStart) -> Result<(), ImportError> {
        for (name, TensorFacts { dtype, shape, byte_type }) in &start.tensors {
            let wrong = |reason: String| ImportError::Input { input: printable(name), reason };
            let value = self.draft.input(name, *dtype, shape).map_err(|e| wrong(e.to_string()))?;
            self.byte_types.extend(byte_type.map(|dtype| (value, dtype)));
            self.values.insert(name.clone(), value);
        }
        start.constants.iter().for_each(|(name, constant)| self.constant(name, constant.clone(), None));
        Ok(())
    }

    /// Imports a node, unless it has to wait for data.
    fn node_in_phase(&mut self, number: usize, node: &'a NodeProto, start: &PhaseStart) -> Result<(), ImportError> {
        let reads = inputs_of(node);
        let Some(phase) = &mut self.phase else { return self.node(node) };

        if reads.iter().any(|name| phase.later.contains(name)) {
            // A later phase makes the sequences that it reads anew, from the same tensors.
            let of_sequences = reads.iter().filter_map(|name| self.sequences.get(*name)).flat_map(|it| &it.reads);
            phase.reads.extend(of_sequences.copied());
            phase.postpone(node, reads);
            return Ok(());
        }

        let repeats = is_default(node) && matches!(node.op_type.as_deref(), Some("Loop" | "Scan"));
        let mut is_long = false;
        if !repeats {
            // A result that exists is an input of the phase, and not computed again.
            self.existing = node.output.iter().filter(|name| start.tensors.contains_key(*name)).cloned().collect();
            let result = self.node(node);
            self.existing.clear();
            match result {
                Err(error) if error.needs_phases() => {
                    let is_too_long = matches!(error, ImportError::Node { source: NodeError::TooLong { .. }, .. });
                    is_long = is_too_long && is_layer(node);
                    // A node in a branch of an `If` may be the reason, too.
                    if is_too_long && !is_long && node.op_type.as_deref() != Some("If") {
                        return Err(error);
                    }
                }
                result => return result,
            }
        }
        self.run_alone(number, node, reads, is_long)
    }

    /// Leaves a node, whose operands exist after this phase, to the caller.
    fn run_alone(
        &mut self,
        number: usize,
        node: &'a NodeProto,
        reads: Vec<&'a str>,
        is_long: bool,
    ) -> Result<(), ImportError> {
        let first = || node.output.iter().find(|name| !name.is_empty()).cloned();
        let name = node.name.clone().filter(|name| !name.is_empty()).or_else(first).unwrap_or_default();
        let operator = node.op_type.clone().unwrap_or_default();
        let wrong = |source| ImportError::Node { node: printable(&name), operator: printable(&operator), source };
        self.check_reads_no_sequence(node).map_err(wrong)?;
        let constant = |name: &&str| {
            let value = *self.values.get(*name)?;
            Some((name.to_string(), self.draft.constant_of(value)?.clone()))
        };
        let constants = reads.iter().filter_map(constant).collect();
        let wanted = |name: &String| if self.wanted.contains(&**name) { name.clone() } else { String::new() };
        let outputs = node.output.iter().map(wanted).collect();

        let Some(phase) = &mut self.phase else { return Ok(()) };
        let work = match is_long {
            true => {
                let weights = node.input.get(2).and_then(|name| self.values.get(name));
                // The other of the last two axes is several times as long.
                let extents = weights.and_then(|&value| self.draft.shape(value).last_chunk::<2>().copied());
                let hidden = extents.map_or(0, |[a, b]| a.min(b));
                Ok(layer(node, number, hidden, &phase.path, self.layers))
            }
            false => work(node, number, &phase.path, self.version),
        };
        let work = work.map_err(wrong)?;
        let inputs = node.input.clone();
        phase.nodes.push(PhaseNode { name, operator, inputs, outputs, constants, work });
        phase.postpone(node, reads);
        Ok(())
    }

    fn finish_phase(mut self, graph: &'a GraphProto, start: &PhaseStart) -> Result<ModelPhase, ImportError> {
        let Some(PhaseImport { later, mut reads, nodes, .. }) = self.phase.take() else { return Err(malformed()) };
        let results: HashSet<&str> = outputs_of(graph).collect();
        if let Some(missing) = results.iter().find(|name| !self.values.contains_key(**name) && !later.contains(*name)) {
            let reason = "no node computes it".into();
            return Err(ImportError::Output { output: printable(missing), reason });
        }

        reads.extend(&results);
        let mut byte_types = HashMap::new();
        // In the order of their names, so that equal phases are equal graphs.
        let mut computed: Vec<&str> = reads.iter().copied().filter(|name| !start.tensors.contains_key(*name)).collect();
        computed.sort_unstable();
        for name in computed {
            let Some(&value) = self.values.get(name) else { continue };
            let is_constant = self.draft.constant_of(value).is_some();
            if is_constant && !results.contains(name) {
                continue;
            }
            let byte_type = byte_dtype(self.draft.dtype(value));
            let wrong = |source: crate::error::OpError| ImportError::Output {
                output: printable(name),
                reason: source.to_string(),
            };
            let value = self.draft.read_as(&printable(name), value, None, Int8Reading::Widened).map_err(wrong)?;
            byte_types.extend(byte_type.map(|dtype| (name.to_string(), dtype)));
            self.draft.output(name, value, None);
        }

        let is_last = nodes.is_empty();
        let reads = reads.into_iter().map(String::from).collect();
        Ok(ModelPhase { graph: self.draft.finish().pruned(), byte_types, nodes, reads, is_last })
    }

    /// Returns the tensors of values that were imported from constants alone.
    fn results(mut self, names: &[&str]) -> Result<Vec<(String, RunTensor)>, ImportError> {
        let wrong = |name: &str, reason: String| ImportError::Output { output: printable(name), reason };
        let mut results = Vec::new();
        for &name in names {
            let value = self.values.get(name).copied().ok_or_else(|| wrong(name, "no node computes it".into()))?;
            let byte_type = byte_dtype(self.draft.dtype(value));
            let value = self.draft.read_as(name, value, None, Int8Reading::Widened);
            let value = value.map_err(|e| wrong(name, e.to_string()))?;
            // Mostly folded; but the budget may not suffice, or an operator waits for rewriting.
            self.draft.output(name, value, None);
            results.push((name, byte_type));
        }

        let graph = self.draft.finish().pruned();
        let tensors =
            graph.evaluate(&[]).map_err(|e| wrong(names.first().copied().unwrap_or_default(), e.to_string()))?;
        let named = results.into_iter().zip(tensors);
        Ok(named
            .map(|((name, byte_type), tensor)| (name.into(), RunTensor { tensor: tensor.into(), byte_type }))
            .collect())
    }
}

impl<'a> PhaseImport<'a> {
    /// Leaves a node to a later phase.
    fn postpone(&mut self, node: &'a NodeProto, reads: Vec<&'a str>) {
        self.later.extend(node.output.iter().map(String::as_str).filter(|name| !name.is_empty()));
        self.reads.extend(reads);
    }
}

fn byte_dtype(dtype: DType) -> Option<DType> {
    matches!(dtype, DType::I8 | DType::U8).then_some(dtype)
}
