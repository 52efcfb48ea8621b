//! Parts of ONNX Runtime's graph as ONNX models.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;

use autotune_network::onnx::Model;
use ort_autotune::element;
use ort_sys::{OrtGraph, OrtNode, OrtOpAttr, OrtOpAttrType, OrtValue, OrtValueInfo};
use rten_onnx::onnx::{
    AttributeProto, AttributeType, DataType, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, TypeProtoTensor, ValueInfoProto,
};

use crate::attribute::{HostAttribute, numbers};
use crate::context_node::is_context;
use crate::exact::{NodeFacts, keeps_values};
use crate::folder::{ModelFolder, inline};
use crate::host::{Host, ask, bytes_of_text, list, text};
use crate::value::{HostValue, described, tensor_info, view};

/// Reason that nodes cannot be a model.
pub(crate) struct PartError {
    /// Number of the node at fault, if it is known.
    pub(crate) node: Option<usize>,
    pub(crate) message: String,
}

impl From<String> for PartError {
    fn from(message: String) -> Self {
        Self { node: None, message }
    }
}

/// A graph as a model, whose weights are in a folder.
pub(crate) struct WholeGraph {
    pub(crate) model: ModelProto,
    pub(crate) folder: ModelFolder,
    /// Names of the inputs and outputs, in the order of ONNX Runtime.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
}

/// A graph of ONNX Runtime during a call of it.
pub(crate) struct HostGraph {
    pub(crate) host: Host,
    graph: *const OrtGraph,
    pub(crate) nodes: Vec<HostNode>,
}

/// A node, with the values that it uses and computes.
pub(crate) struct HostNode {
    pub(crate) node: *const OrtNode,
    pub(crate) name: String,
    pub(crate) operator: String,
    pub(crate) domain: String,
    /// Operands; `None` for absent ones.
    pub(crate) inputs: Vec<Option<HostValue>>,
    pub(crate) outputs: Vec<Option<HostValue>>,
    /// Values of this graph that graphs inside the node use.
    implicit_inputs: Vec<HostValue>,
    has_graphs: bool,
}

impl HostGraph {
    /// Reads the nodes of a graph, which are in topological order.
    ///
    /// # Safety
    ///
    /// The graph comes from ONNX Runtime, and outlives this value.
    pub(crate) unsafe fn of(host: Host, graph: *const OrtGraph) -> Result<Self, String> {
        let nodes = list(
            // SAFETY: as for this function.
            |out| unsafe { ask!(host, Graph_GetNumNodes(graph, out)) },
            // SAFETY: as for this function.
            |out, count| unsafe { ask!(host, Graph_GetNodes(graph, out, count)) },
        )?;
        // SAFETY: as for this function.
        let nodes = nodes.into_iter().map(|node| unsafe { HostNode::of(host, node) });
        Ok(Self { host, graph, nodes: nodes.collect::<Result<_, _>>()? })
    }

    /// True if nodes of the graph may be fused. In ONNX Runtime 1.23, fused nodes of several graphs
    /// have the same name, so that only those of the outermost may be. It is told by its inputs,
    /// since that version does not tell the node around a graph.
    pub(crate) fn may_be_fused(&self) -> Result<bool, String> {
        let is_inner = self.nodes.iter().flat_map(|node| node.inputs.iter().flatten()).any(|value| value.is_outer);
        Ok(self.host.is_later() || (!is_inner && !self.values_of_graph(true)?.is_empty()))
    }

    /// Returns the nodes whose results each node uses.
    pub(crate) fn producers(&self) -> Vec<Vec<usize>> {
        let mut producer: HashMap<&str, usize> = HashMap::new();
        for (number, node) in self.nodes.iter().enumerate() {
            producer.extend(node.outputs.iter().flatten().map(|value| (&*value.name, number)));
        }
        let of = |node: &HostNode| {
            let used = node.inputs.iter().flatten().chain(&node.implicit_inputs);
            used.filter_map(|value| producer.get(&*value.name).copied()).collect()
        };
        self.nodes.iter().map(of).collect()
    }

    /// Returns whether each node may be taken: networks keep its values, there are no graphs
    /// inside, and it is not a part that was compiled earlier.
    pub(crate) fn eligible(&self) -> Vec<bool> {
        let facts: Vec<NodeFacts> = self.nodes.iter().map(HostNode::facts).collect();
        let may = |node: &HostNode| !node.has_graphs && !is_context(node);
        keeps_values(&facts).into_iter().zip(&self.nodes).map(|(keeps, node)| keeps && may(node)).collect()
    }

    /// Returns some nodes as a model: their operands from outside are its inputs, or constants in
    /// it, and results that others use are its outputs. Nodes are named by their numbers. Large
    /// constants are zeros.
    pub(crate) fn part(&self, numbers: &[usize]) -> Result<Model<'static>, PartError> {
        let members: HashSet<usize> = numbers.iter().copied().collect();
        let outside = self.nodes.iter().enumerate().filter(|(number, _)| !members.contains(number));
        let used = outside.flat_map(|(_, node)| node.inputs.iter().flatten().chain(&node.implicit_inputs));
        let mut wanted: HashSet<&str> = used.map(|value| &*value.name).collect();
        let results = self.values_of_graph(false)?;
        wanted.extend(results.iter().map(|value| &*value.name));

        let mut folder = ModelFolder::create(true)?;
        let model = self.model(numbers, &wanted, &mut folder)?;
        Ok(folder.open(&model)?)
    }

    /// Returns the whole graph as a model.
    pub(crate) fn whole(&self) -> Result<WholeGraph, String> {
        let [inputs, outputs] = self.names()?;
        let numbers: Vec<usize> = (0..self.nodes.len()).collect();
        let wanted = outputs.iter().map(|name| &**name).collect();
        let mut folder = ModelFolder::create(false)?;
        let model = self.model(&numbers, &wanted, &mut folder).map_err(|error| error.message)?;
        Ok(WholeGraph { model, folder, inputs, outputs })
    }

    /// Returns the names of the graph's inputs and outputs.
    pub(crate) fn names(&self) -> Result<[Vec<String>; 2], String> {
        let names = |values: Vec<HostValue>| values.into_iter().map(|value| value.name).collect();
        Ok([names(self.values_of_graph(true)?), names(self.values_of_graph(false)?)])
    }

    /// Returns the path of the model's file; empty for a model in memory.
    pub(crate) fn model_path(&self) -> Result<PathBuf, String> {
        let mut path = ptr::null();
        // SAFETY: the graph comes from ONNX Runtime, and its path lives as long.
        unsafe {
            ask!(self.host, Graph_GetModelPath(self.graph, &mut path))?;
            Ok(PathBuf::from(OsStr::from_bytes(bytes_of_text(path))))
        }
    }

    /// Returns some nodes as a model whose outputs are their wanted results.
    fn model(
        &self,
        numbers: &[usize],
        wanted: &HashSet<&str>,
        folder: &mut ModelFolder,
    ) -> Result<ModelProto, PartError> {
        let mut graph = GraphProto::default();
        let mut known: HashSet<&str> = HashSet::new();
        for &number in numbers {
            let node = &self.nodes[number];
            let at_node = |message| PartError { node: Some(number), message };
            for value in node.inputs.iter().flatten() {
                // A node may use a value several times.
                if !known.insert(&value.name) {
                    continue;
                }
                match self.constant(value, folder).map_err(at_node)? {
                    Some(constant) => graph.initializer.push(constant),
                    None => graph.input.push(self.described(value).map_err(at_node)?),
                }
            }
            graph.node.push(self.node(node, number).map_err(at_node)?);

            for value in node.outputs.iter().flatten() {
                known.insert(&value.name);
                if wanted.contains(&*value.name) {
                    graph.output.push(self.described(value).map_err(at_node)?);
                }
            }
        }

        Ok(ModelProto { ir_version: Some(10), graph: Some(graph), opset_import: self.opsets()?, ..Default::default() })
    }

    fn node(&self, node: &HostNode, number: usize) -> Result<NodeProto, String> {
        let names = |values: &[Option<HostValue>]| {
            let name = |value: &Option<HostValue>| value.as_ref().map_or(String::new(), |value| value.name.clone());
            values.iter().map(name).collect()
        };
        // SAFETY: the node belongs to the graph.
        let attributes = unsafe { HostAttribute::of_node(self.host, node.node) }?;
        Ok(NodeProto {
            domain: Some(node.domain.clone()),
            name: Some(node_name(number, &node.name)),
            input: names(&node.inputs),
            output: names(&node.outputs),
            op_type: Some(node.operator.clone()),
            attribute: attributes.iter().map(|one| self.attribute(one)).collect::<Result<_, _>>()?,
        })
    }

    fn attribute(&self, of: &HostAttribute) -> Result<AttributeProto, String> {
        let mut proto = AttributeProto { name: Some(of.name.clone()), ..Default::default() };
        let bytes = || of.bytes(self.host);

        proto.r#type = Some(match of.kind {
            OrtOpAttrType::ORT_OP_ATTR_INT => {
                proto.i = of.int(self.host)?;
                AttributeType::INT
            }
            OrtOpAttrType::ORT_OP_ATTR_INTS => {
                proto.ints = numbers(&bytes()?, i64::from_ne_bytes);
                AttributeType::INTS
            }
            OrtOpAttrType::ORT_OP_ATTR_FLOAT => {
                proto.f = numbers(&bytes()?, f32::from_ne_bytes).first().copied();
                AttributeType::FLOAT
            }
            OrtOpAttrType::ORT_OP_ATTR_FLOATS => {
                proto.floats = numbers(&bytes()?, f32::from_ne_bytes);
                AttributeType::FLOATS
            }
            OrtOpAttrType::ORT_OP_ATTR_STRING => {
                proto.s = Some(String::from_utf8_lossy(&bytes()?).trim_end_matches('\0').into());
                AttributeType::STRING
            }
            OrtOpAttrType::ORT_OP_ATTR_TENSOR => {
                proto.t = Some(self.attribute_tensor(of.attribute)?);
                AttributeType::TENSOR
            }
            other => return Err(format!("an attribute of type {other:?} is not supported")),
        });
        Ok(proto)
    }

    fn attribute_tensor(&self, attribute: *const OrtOpAttr) -> Result<TensorProto, String> {
        let mut value: *mut OrtValue = ptr::null_mut();
        // SAFETY: the attribute belongs to a node of the graph, and the value is released once.
        unsafe {
            ask!(self.host, OpAttr_GetTensorAttributeAsOrtValue(attribute, &mut value))?;
            let tensor = self.tensor("", value, |proto, bytes| {
                inline(proto, bytes);
                Ok(())
            });
            self.host.function(|api| (&raw const (*api).ReleaseValue).read())(value);
            tensor
        }
    }

    /// Returns the tensor of a value that is constant.
    fn constant(&self, value: &HostValue, folder: &mut ModelFolder) -> Result<Option<TensorProto>, String> {
        if !value.is_constant {
            return Ok(None);
        }
        let mut tensor: *const OrtValue = ptr::null();
        // SAFETY: the value belongs to the graph.
        unsafe {
            ask!(self.host, ValueInfo_GetInitializerValue(value.info, &mut tensor))?;
            if tensor.is_null() {
                return Err(format!("the constant '{}' has no value", value.name));
            }
            self.tensor(&value.name, tensor, |proto, bytes| folder.fill(proto, bytes)).map(Some)
        }
    }

    /// Describes a tensor, to which `fill` gives the elements.
    ///
    /// # Safety
    ///
    /// The tensor comes from ONNX Runtime.
    unsafe fn tensor(
        &self,
        name: &str,
        value: *const OrtValue,
        fill: impl FnOnce(&mut TensorProto, &[u8]) -> Result<(), String>,
    ) -> Result<TensorProto, String> {
        // SAFETY: as for this function.
        let (view, elements) = unsafe {
            let view = view(self.host, value)?;
            let elements = view.bytes()?;
            (view, elements)
        };
        let data_type = Some(DataType(view.element as i32));
        let mut proto = TensorProto { name: Some(name.into()), dims: view.shape, data_type, ..Default::default() };
        fill(&mut proto, elements)?;
        Ok(proto)
    }

    /// Describes a value by its element type and its shape, as far as that is known.
    fn described(&self, value: &HostValue) -> Result<ValueInfoProto, String> {
        // SAFETY: the value belongs to the graph.
        let info = unsafe { tensor_info(self.host, value.info) }?;
        let info = info.ok_or_else(|| format!("'{}' is not a tensor", value.name))?;
        // SAFETY: the description belongs to the value.
        let (element, dimensions) = unsafe { described(self.host, info) }?;
        element::size(element).map_err(|error| format!("'{}': {error}", value.name))?;
        let tensor = TypeProtoTensor {
            elem_type: Some(DataType(element as i32)),
            shape: dimensions.map(|dim| TensorShapeProto { dim }),
        };
        let of_tensor = TypeProto { tensor_type: Some(tensor), sequence: None };
        Ok(ValueInfoProto { name: Some(value.name.clone()), r#type: Some(of_tensor) })
    }

    /// Returns the inputs of the graph, or its outputs.
    fn values_of_graph(&self, is_input: bool) -> Result<Vec<HostValue>, String> {
        let (host, graph) = (self.host, self.graph);
        let infos = match is_input {
            true => list(
                // SAFETY: the graph comes from ONNX Runtime.
                |out| unsafe { ask!(host, Graph_GetNumInputs(graph, out)) },
                // SAFETY: the graph comes from ONNX Runtime.
                |out, count| unsafe { ask!(host, Graph_GetInputs(graph, out, count)) },
            ),
            false => list(
                // SAFETY: the graph comes from ONNX Runtime.
                |out| unsafe { ask!(host, Graph_GetNumOutputs(graph, out)) },
                // SAFETY: the graph comes from ONNX Runtime.
                |out, count| unsafe { ask!(host, Graph_GetOutputs(graph, out, count)) },
            ),
        };
        // SAFETY: the values belong to the graph.
        let values = infos?.into_iter().map(|info| unsafe { HostValue::of(host, info) });
        Ok(values.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    fn opsets(&self) -> Result<Vec<OperatorSetIdProto>, String> {
        let mut versions = Vec::new();
        let domains = list(
            // SAFETY: the graph comes from ONNX Runtime.
            |out| unsafe { ask!(self.host, Graph_GetNumOperatorSets(self.graph, out)) },
            |out, count| {
                versions = vec![0; count];
                // SAFETY: there is room for the texts and versions.
                unsafe { ask!(self.host, Graph_GetOperatorSets(self.graph, out, versions.as_mut_ptr(), count)) }
            },
        )?;
        let of = |(domain, version): (*const c_char, i64)| OperatorSetIdProto {
            // SAFETY: the text belongs to the graph.
            domain: Some(unsafe { text(domain) }),
            version: Some(version),
        };
        Ok(domains.into_iter().zip(versions).map(of).collect())
    }
}

/// Returns the name of a node in models: its number, and the name for messages.
pub(crate) fn node_name(number: usize, name: &str) -> String {
    format!("n{number}:{name}")
}

/// Returns the number of the node that a name, or one derived from it, is of.
pub(crate) fn node_number(name: &str) -> Option<usize> {
    name.strip_prefix('n')?.split_once(':')?.0.parse().ok()
}

impl HostNode {
    fn facts(&self) -> NodeFacts<'_> {
        let inputs = self.inputs.iter().map(|value| value.as_ref().map(HostValue::facts)).collect();
        let outputs = self.outputs.iter().flatten().map(HostValue::facts).collect();
        NodeFacts { operator: &self.operator, inputs, outputs }
    }

    /// Reads a node with its operands and results.
    ///
    /// # Safety
    ///
    /// The node belongs to a graph of ONNX Runtime.
    pub(crate) unsafe fn of(host: Host, node: *const OrtNode) -> Result<Self, String> {
        // SAFETY: as for this function.
        unsafe {
            let (mut operator, mut domain, mut graphs) = (ptr::null(), ptr::null(), 0);
            ask!(host, Node_GetOperatorType(node, &mut operator))?;
            ask!(host, Node_GetDomain(node, &mut domain))?;
            ask!(host, Node_GetNumSubgraphs(node, &mut graphs))?;
            let inputs = list(
                |out| ask!(host, Node_GetNumInputs(node, out)),
                |out, count| ask!(host, Node_GetInputs(node, out, count)),
            )?;
            let outputs = list(
                |out| ask!(host, Node_GetNumOutputs(node, out)),
                |out, count| ask!(host, Node_GetOutputs(node, out, count)),
            )?;
            let implicit = list(
                |out| ask!(host, Node_GetNumImplicitInputs(node, out)),
                |out, count| ask!(host, Node_GetImplicitInputs(node, out, count)),
            )?;

            let values = |infos: Vec<*const OrtValueInfo>| {
                infos.into_iter().map(|info| HostValue::of(host, info)).collect::<Result<Vec<_>, _>>()
            };
            let (inputs, outputs, implicit) = (values(inputs)?, values(outputs)?, values(implicit)?);
            let implicit_inputs = implicit.into_iter().flatten().collect();
            let (name, operator, domain) = (host_name(host, node)?, text(operator), text(domain));
            Ok(Self { node, name, operator, domain, inputs, outputs, implicit_inputs, has_graphs: graphs > 0 })
        }
    }
}

/// Returns the name that ONNX Runtime has for a node.
///
/// # Safety
///
/// The node belongs to ONNX Runtime.
pub(crate) unsafe fn host_name(host: Host, node: *const OrtNode) -> Result<String, String> {
    let mut name = ptr::null();
    // SAFETY: as for this function.
    unsafe {
        ask!(host, Node_GetName(node, &mut name))?;
        Ok(text(name))
    }
}
