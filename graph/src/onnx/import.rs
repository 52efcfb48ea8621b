//! Conversion of ONNX messages to a graph.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use autotune_ir::DType;
use rten_onnx::onnx::{GraphProto, ModelProto, NodeProto, ValueInfoProto};

use super::alone::find;
use super::call::{Call, Result as NodeResult, attribute};
use super::draft::{GraphDraft, ImportValue};
use super::error::{ImportError, NodeError};
use super::file::ModelFile;
use super::inputs::{DeclaredInput, DeclaredOutput, ImportOptions};
use super::layers::short_layers;
use super::limits::VERSIONS;
use super::nodes::{inputs_of, is_default, outputs_of, sort_nodes};
use super::operator::{Int8Reading, OnnxOperator};
use super::phase::{GraphPath, PhaseImport};
use super::sequences::{self, Made, TensorSequence};
use super::tensor;
use crate::graph::Graph;
use crate::operators;
use crate::text::{printable, visible};

/// A parsed model, of which graphs for several shapes are made.
///
/// Tensors are read once, and operations on them are computed once, while a graph has the result:
/// equal constants of the graphs are one ([`Identity`](crate::Identity)).
pub struct Model<'a> {
    /// Graph of the file. It is not changed, since the file knows tensors by their addresses.
    proto: GraphProto,
    /// Short layers of recurrent nodes.
    layers: HashMap<GraphPath, GraphProto>,
    version: i64,
    file: ModelFile<'a>,
    /// Default name of graphs.
    name: String,
    metadata: ModelMetadata,
}

/// Descriptions in a model's file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelMetadata {
    /// Name of the program that wrote the file.
    pub producer: String,
    /// Values that the producer added, by name.
    pub properties: Vec<(String, String)>,
}

impl Model<'static> {
    /// Maps and parses a file. Tensors stored in other files are read from the file's folder, and
    /// from nowhere else.
    ///
    /// Large tensors remain in their mapped files until they are packed or computed with. While the
    /// model or a graph exists, the files may be removed or replaced, but must not be modified in
    /// place.
    pub fn open(path: &Path) -> Result<Self, ImportError> {
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        Self::of_file(ModelFile::open(path)?, name)
    }

    /// Parses the bytes of a model without external tensor files.
    pub fn of_vec(bytes: Vec<u8>) -> Result<Self, ImportError> {
        Self::of_file(ModelFile::of_vec(bytes), None)
    }
}

impl<'a> Model<'a> {
    /// Parses the bytes of a model without external tensor files.
    pub fn of_bytes(bytes: &'a [u8]) -> Result<Self, ImportError> {
        Self::of_file(ModelFile::of_bytes(bytes), None)
    }

    fn of_file(file: ModelFile<'a>, name: Option<String>) -> Result<Self, ImportError> {
        let model = file.parse()?;
        let version = version(&model)?;
        let mut proto = model.graph.ok_or_else(|| ImportError::Malformed("the graph is missing".into()))?;
        sort_nodes(&mut proto);
        let properties = model.metadata_props.into_iter();
        let metadata = ModelMetadata {
            producer: model.producer_name.unwrap_or_default(),
            properties: properties.map(|one| (one.key.unwrap_or_default(), one.value.unwrap_or_default())).collect(),
        };
        let layers = short_layers(&proto, version);
        Ok(Self { proto, layers, version, file, name: name.unwrap_or_else(|| "network".into()), metadata })
    }

    /// Maps the files of all tensors now, instead of when a graph needs them. From then on, the
    /// files may be removed.
    pub fn map_tensors(&self) -> Result<(), ImportError> {
        for tensor in &self.proto.initializer {
            let name = || printable(tensor.name.as_deref().unwrap_or_default());
            self.file.tensor(tensor).map_err(|reason| ImportError::Tensor { tensor: name(), reason })?;
        }
        Ok(())
    }

    /// Returns the default name of graphs: that of the file, without its extension.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the inputs that the model declares and that the caller must provide in every run.
    pub fn inputs(&self) -> Result<Vec<DeclaredInput>, ImportError> {
        super::inputs::declared(runtime_inputs(&self.proto))
    }

    /// Returns the outputs that the model declares, in the order of every graph.
    pub fn outputs(&self) -> Vec<DeclaredOutput> {
        self.proto.output.iter().map(DeclaredOutput::of_file).collect()
    }

    /// Returns the descriptions in the file.
    pub fn metadata(&self) -> &ModelMetadata {
        &self.metadata
    }

    /// Returns the names and shapes of the inputs of [`graph`](Self::graph) with these options, in
    /// its order.
    pub fn shapes(&self, options: &ImportOptions) -> Result<Vec<(String, Vec<usize>)>, ImportError> {
        let inputs = super::inputs::resolve(runtime_inputs(&self.proto), options)?.into_iter();
        Ok(inputs.filter(|input| input.value.is_none()).map(|input| (input.name, input.shape)).collect())
    }

    /// Imports the graph for the shapes and values of the options.
    pub fn graph(&self, options: &ImportOptions) -> Result<Graph, ImportError> {
        let proto = &self.proto;
        let (nodes, wanted) = needed(proto);
        let mut import = self.import(options, wanted);
        import.initializers(proto)?;
        import.inputs(proto, options)?;
        for node in nodes {
            import.node(node)?;
        }
        import.outputs(proto)?;
        Ok(import.draft.finish())
    }

    /// Starts an import that keeps the wanted names.
    pub(super) fn import<'i>(&'i self, options: &'i ImportOptions, wanted: HashSet<&'i str>) -> Import<'i> {
        let name = options.name.as_ref().unwrap_or(&self.name);
        Import {
            draft: GraphDraft::new(name, options),
            values: HashMap::new(),
            sequences: HashMap::new(),
            byte_types: HashMap::new(),
            wanted,
            version: self.version,
            file: &self.file,
            layers: &self.layers,
            operators: &options.operators,
            existing: HashSet::new(),
            phase: None,
        }
    }

    /// Returns the short layers of recurrent nodes.
    pub(super) fn layers(&self) -> &HashMap<GraphPath, GraphProto> {
        &self.layers
    }

    /// Returns the graph of the file.
    pub(super) fn proto(&self) -> &GraphProto {
        &self.proto
    }
}

/// Returns the inputs without a tensor in the file.
pub(super) fn runtime_inputs(proto: &GraphProto) -> impl Iterator<Item = &ValueInfoProto> {
    let given: HashSet<&str> =
        proto.initializer.iter().map(|tensor| tensor.name.as_deref().unwrap_or_default()).collect();
    proto.input.iter().filter(move |input| !given.contains(input.name.as_deref().unwrap_or_default()))
}

fn version(model: &ModelProto) -> Result<i64, ImportError> {
    let is_default = |domain: Option<&str>| matches!(domain, None | Some("" | "ai.onnx"));
    let found = model.opset_import.iter().find(|opset| is_default(opset.domain.as_deref()));
    match found.map(|opset| opset.version.unwrap_or_default()) {
        Some(version) if VERSIONS.contains(&version) => Ok(version),
        Some(found) => Err(ImportError::Version { found }),
        None => Err(ImportError::Malformed("the opset version is missing".into())),
    }
}

/// Returns the nodes that outputs depend on, in order, and all names that they or outputs read.
/// Other nodes, such as parts for training, may be unsupported and are ignored.
fn needed(proto: &GraphProto) -> (Vec<&NodeProto>, HashSet<&str>) {
    let mut wanted: HashSet<&str> = outputs_of(proto).collect();
    let mut needed = Vec::new();
    // Backwards, since readers follow the nodes that they read.
    for node in proto.node.iter().rev() {
        if node.output.iter().any(|name| wanted.contains(&**name)) {
            wanted.extend(inputs_of(node));
            needed.push(node);
        }
    }
    needed.reverse();
    (needed, wanted)
}

/// A graph under construction, with the names of its values.
pub(super) struct Import<'a> {
    pub(super) draft: GraphDraft,
    /// Values by their names in the file.
    pub(super) values: HashMap<String, ImportValue>,
    /// Sequences by their names in the file.
    pub(super) sequences: HashMap<String, TensorSequence<'a>>,
    /// Original types of inputs that have 8 bits in the file.
    pub(super) byte_types: HashMap<ImportValue, DType>,
    /// Names that a needed node or an output reads.
    pub(super) wanted: HashSet<&'a str>,
    pub(super) version: i64,
    /// Source of tensor data.
    file: &'a ModelFile<'a>,
    /// Short layers of recurrent nodes.
    pub(super) layers: &'a HashMap<GraphPath, GraphProto>,
    /// Import rules of the caller.
    operators: &'a [&'static OnnxOperator],
    /// Results of the current node that have a value already.
    pub(super) existing: HashSet<String>,
    /// State of an import in phases.
    pub(super) phase: Option<PhaseImport<'a>>,
}

impl<'a> Import<'a> {
    /// Imports the file's tensors that are read.
    pub(super) fn initializers(&mut self, proto: &GraphProto) -> Result<(), ImportError> {
        for initializer in &proto.initializer {
            let name = initializer.name.as_deref().unwrap_or_default();
            let wrong = |reason| ImportError::Tensor { tensor: printable(name), reason };
            if !self.wanted.contains(name) {
                continue;
            }

            let tensor = self.file.tensor(initializer).map_err(wrong)?;
            let value = self.draft.constant(&printable(name), tensor);
            if self.values.insert(name.into(), value).is_some() {
                return Err(wrong("duplicate name".into()));
            }
        }
        Ok(())
    }

    /// Imports the inputs: values of the caller, or constants that it specified.
    fn inputs(&mut self, proto: &GraphProto, options: &ImportOptions) -> Result<(), ImportError> {
        for input in super::inputs::resolve(runtime_inputs(proto), options)? {
            let wrong = |reason: String| ImportError::Input { input: printable(&input.name), reason };
            let value = match input.value {
                Some(value) => Ok(self.draft.constant(&input.name, value)),
                None => self.draft.input(&input.name, input.dtype, &input.shape),
            };
            let value = value.map_err(|e| wrong(e.to_string()))?;
            self.byte_types.extend(input.byte_type.map(|dtype| (value, dtype)));
            if self.values.insert(input.name.clone(), value).is_some() {
                return Err(wrong("the name is already in use".into()));
            }
        }
        Ok(())
    }

    pub(super) fn node(&mut self, node: &'a NodeProto) -> Result<(), ImportError> {
        let first = node.output.iter().find(|name| !name.is_empty()).map_or("", String::as_str);
        // A node without a name is called like its first output.
        let name = node.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(first);
        let operator = node.op_type.as_deref().unwrap_or_default();
        let name = printable(name);
        let domain = node.domain.as_deref().filter(|_| !is_default(node));
        let full = || domain.map_or(operator.into(), |domain| format!("{domain}.{operator}"));
        let wrong = |source| ImportError::Node { node: name.clone(), operator: printable(&full()), source };
        match operator {
            "If" if is_default(node) => {
                let branch = self.branch(node).map_err(wrong)?;
                // Errors inside the branch name their own nodes.
                let computed = self.inlined(branch)?.map_err(wrong)?;
                self.outputs_are(node, &computed).map_err(wrong)
            }
            _ if self.sequence(node, &name).map_err(wrong)? => Ok(()),
            _ => self.converted(node, operator, &name).map_err(wrong),
        }
    }

    /// Returns the branch of an `If` that is taken; the condition must be known at import.
    fn branch(&self, node: &'a NodeProto) -> NodeResult<&'a GraphProto> {
        let [condition] = &node.input[..] else { return Err(NodeError::Unfit("expected exactly one input".into())) };
        let condition = self.operand(0, condition)?.and_then(|value| self.draft.number(value));
        let unknown = || NodeError::Unknown { input: 0, advice: ": give the input that it depends on as a number" };
        let is_true = condition.ok_or_else(unknown)? != 0.0;

        let name = if is_true { "then_branch" } else { "else_branch" };
        let branch = find(node, name).and_then(|attribute| attribute.g.as_ref());
        let branch = branch.ok_or_else(|| attribute(name, "is missing"))?;
        match branch.input.is_empty() {
            true => Ok(branch),
            false => Err(attribute(name, "a branch must not have inputs")),
        }
    }

    /// Imports the nodes of a nested graph and returns its outputs. The nested graph sees outer
    /// names; its own names are removed afterwards.
    fn inlined(&mut self, graph: &'a GraphProto) -> Result<NodeResult<Vec<ImportValue>>, ImportError> {
        let (nodes, wanted) = needed(graph);
        // While the nested graph is imported, only its own needs count.
        let outer = std::mem::replace(&mut self.wanted, wanted);
        let imported = self.initializers(graph).and_then(|()| nodes.iter().try_for_each(|node| self.node(node)));
        let value = |(output, name): (usize, &str)| self.values.get(name).copied().ok_or(NodeError::Output { output });
        let values = outputs_of(graph).enumerate().map(value).collect();

        // Names of the nested graph are not visible outside.
        let constants = graph.initializer.iter().filter_map(|initializer| initializer.name.as_deref());
        let own = constants.chain(nodes.iter().flat_map(|node| node.output.iter().map(String::as_str)));
        for name in own.filter(|name| self.wanted.contains(name)) {
            self.values.remove(name);
            self.sequences.remove(name);
        }
        self.wanted = outer;
        imported.map(|()| values)
    }

    fn converted(&mut self, node: &NodeProto, operator: &str, name: &str) -> NodeResult<()> {
        let domain = node.domain.as_deref().filter(|_| !is_default(node));
        let found = operators::find(self.operators, domain.unwrap_or_default(), operator).ok_or(NodeError::Operator)?;

        let mut operands = Vec::with_capacity(node.input.len());
        for (input, given) in node.input.iter().enumerate() {
            let operand = self.operand(input, given)?;
            let read = |value| self.draft.read_as(name, value, self.byte_types.get(&value).copied(), found.bytes);
            operands.push(operand.map(read).transpose()?);
        }
        let mut call = self.call(node, name, operands)?;
        let computed = found.outputs(&mut call, node.output.len())?;
        call.check_all_read()?;
        self.outputs_are(node, &computed)
    }

    /// Imports a node that makes or reads a sequence. Returns false if the node does neither.
    fn sequence(&mut self, node: &'a NodeProto, name: &str) -> NodeResult<bool> {
        let operator = node.op_type.as_deref().unwrap_or_default();
        let found = sequences::find(operator).filter(|_| is_default(node));
        let first = node.input.first().and_then(|first| self.sequences.get(first));
        let Some(operator) = found else { return self.check_reads_no_sequence(node).map(|()| false) };
        let given = match (operator.reads_sequence, first) {
            (true, Some(given)) => given.clone(),
            (true, None) if operator.reads_tensors() => return Ok(false),
            (true, None) => return Err(NodeError::Input { input: 0, reason: "is no sequence".into() }),
            (false, _) => TensorSequence::default(),
        };

        let mut operands = Vec::with_capacity(node.input.len());
        for (input, given) in node.input.iter().enumerate() {
            let is_sequence = input == 0 && operator.reads_sequence;
            operands.push(if is_sequence { None } else { self.operand(input, given)? });
        }
        let mut call = self.call(node, name, operands)?;
        let made = (operator.convert)(&mut call, given.elements)?;
        call.check_all_read()?;

        match made {
            Made::Tensor(value) => self.outputs_are(node, &[value])?,
            Made::Sequence(elements) => {
                // Chains of sequences would otherwise need memory that is quadratic in the file.
                self.draft.spend(elements.len(), &[elements.len()])?;
                let tensors = inputs_of(node).into_iter().filter(|name| !self.sequences.contains_key(*name));
                let reads = given.reads.iter().copied().chain(tensors).collect();
                self.keep_sequence(node, TensorSequence { elements, reads })?;
            }
        }
        Ok(true)
    }

    /// Fails if a node or a graph inside it reads a sequence, for operators that read tensors only.
    pub(super) fn check_reads_no_sequence(&self, node: &NodeProto) -> NodeResult<()> {
        match inputs_of(node).into_iter().find(|name| self.sequences.contains_key(*name)) {
            Some(name) => {
                Err(NodeError::Unfit(format!("'{}' is a sequence, which this operator does not read", printable(name))))
            }
            None => Ok(()),
        }
    }

    fn keep_sequence(&mut self, node: &NodeProto, sequence: TensorSequence<'a>) -> NodeResult<()> {
        let Some(name) = node.output.first().filter(|name| self.wanted.contains(&***name)) else { return Ok(()) };
        let is_in_use = self.values.contains_key(name) || self.sequences.insert(name.clone(), sequence).is_some();
        match is_in_use {
            true => Err(NodeError::Unfit(format!("tensor name '{}' is already in use", printable(name)))),
            false => Ok(()),
        }
    }

    /// Starts the import of a node from its operands.
    pub(super) fn call<'c>(
        &'c mut self,
        node: &'c NodeProto,
        name: &'c str,
        operands: Vec<Option<ImportValue>>,
    ) -> NodeResult<Call<'c>> {
        Call::new(&mut self.draft, self.file, self.version, name, node, operands)
    }

    /// Records the names of a node's outputs that are read.
    pub(super) fn outputs_are(&mut self, node: &NodeProto, computed: &[ImportValue]) -> NodeResult<()> {
        for (output, name) in node.output.iter().enumerate() {
            if !self.wanted.contains(&**name) || self.existing.contains(name) {
                continue;
            }
            let &value = computed.get(output).ok_or(NodeError::Output { output })?;
            if self.values.insert(name.clone(), value).is_some() {
                return Err(NodeError::Unfit(format!("tensor name '{}' is already in use", printable(name))));
            }
        }
        Ok(())
    }

    pub(super) fn operand(&self, input: usize, name: &str) -> NodeResult<Option<ImportValue>> {
        if name.is_empty() {
            return Ok(None);
        }
        let missing = || format!("no earlier node computes '{}'", printable(name));
        let found = self.values.get(name).copied();
        found.map(Some).ok_or_else(|| NodeError::Input { input, reason: missing() })
    }

    fn outputs(&mut self, proto: &GraphProto) -> Result<(), ImportError> {
        let mut names = HashSet::new();
        for info in &proto.output {
            let name = info.name.as_deref().unwrap_or_default();
            let wrong = |reason: &str| ImportError::Output { output: printable(name), reason: reason.into() };
            let reason = match self.sequences.contains_key(name) {
                true => "is a sequence; only tensors are supported",
                false => "no node computes it",
            };
            let &value = self.values.get(name).ok_or_else(|| wrong(reason))?;
            if !names.insert(name) {
                return Err(wrong("duplicate name"));
            }

            // Callers get 8-bit integers as i64.
            let value = self
                .draft
                .read_as(&printable(name), value, None, Int8Reading::Widened)
                .map_err(|e| wrong(&e.to_string()))?;
            let tensor = info.r#type.as_ref().and_then(|r#type| r#type.tensor_type.as_ref());
            let declared = tensor.and_then(|tensor| tensor.elem_type);
            let stored = declared.and_then(|declared| tensor::stored(declared, self.draft.dtype(value)));
            self.draft.output(&visible(name).collect::<String>(), value, stored);
        }
        match names.is_empty() {
            true => Err(ImportError::Malformed("the graph has no outputs".into())),
            false => Ok(()),
        }
    }
}
