//! Resolution of input shapes.

use std::collections::{BTreeMap, HashMap};

use autotune_ir::DType;
use rten_onnx::onnx::{Dimension, ValueInfoProto};

use super::error::ImportError;
use super::limits::MOST_AXES;
use super::operator::OnnxOperator;
use super::tensor;
use crate::graph::{Graph, GraphNode, NodeId, Output};
use crate::tensor::{DeclaredType, Tensor};
use crate::text::{listed, printable, visible};

/// Options for importing a file.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// Name of the graph.
    pub name: Option<String>,
    /// Shapes of inputs by name, for inputs whose shape the file leaves open.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Inputs with the same value in all runs, by name. They become constants, which shapes and the
    /// branch of an `If` may depend on.
    pub values: BTreeMap<String, Tensor>,
    /// Maximum number of constant elements and evaluation steps during import; further operations
    /// stay in the graph. It bounds the memory and time that a small file can cause.
    pub max_folded: usize,
    /// Maximum number of time steps of a recurrent layer that become nodes, about twenty each.
    /// Longer layers need [phases](super::Model::phase).
    pub max_unrolled: usize,
    /// Import rules of other crates. They take precedence over this crate's rules for the same
    /// domain and name.
    pub operators: Vec<&'static OnnxOperator>,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            name: None,
            shapes: BTreeMap::new(),
            values: BTreeMap::new(),
            max_folded: 1 << 29,
            max_unrolled: 256,
            operators: Vec::new(),
        }
    }
}

/// An input with its resolved shape.
pub(super) struct ImportInput {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// Type in the file, if it has 8 bits.
    pub(super) byte_type: Option<DType>,
    /// Constant value, if the caller specified one.
    pub(super) value: Option<Tensor>,
}

/// An input as declared in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredInput {
    /// Name in the file.
    pub name: String,
    /// Element type after import.
    pub dtype: DType,
    /// Element type in the file, if it is another.
    pub stored: Option<DeclaredType>,
    /// Extents; `None` where the file leaves them open.
    pub extents: Vec<Option<usize>>,
    /// Names of open extents, which are equal in all inputs.
    pub names: Vec<Option<String>>,
}

/// An output as declared in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredOutput {
    /// Name, as in every graph.
    pub name: String,
    /// Element type in the file; `None` if it states none that is supported.
    pub stored: Option<DeclaredType>,
    /// Extents, `None` where the file leaves them open; no value if it does not state the rank.
    pub extents: Option<Vec<Option<usize>>>,
    /// Names of open extents.
    pub names: Vec<Option<String>>,
}

impl DeclaredOutput {
    /// Returns the outputs of a graph, which has no open extents.
    pub fn of_graph(graph: &Graph) -> Vec<Self> {
        let of = |output: &Output| {
            let GraphNode { shape, dtype, .. } = graph.node(output.node);
            let stored = output.stored.unwrap_or(DeclaredType::Of(*dtype));
            let extents = shape.iter().copied().map(Some).collect();
            Self {
                name: output.name.clone(),
                stored: Some(stored),
                extents: Some(extents),
                names: vec![None; shape.len()],
            }
        };
        graph.outputs().iter().map(of).collect()
    }

    /// Returns the output that a file declares.
    pub(super) fn of_file(info: &ValueInfoProto) -> Self {
        let tensor = info.r#type.as_ref().and_then(|r#type| r#type.tensor_type.as_ref());
        let extents: Option<Vec<Extent>> =
            tensor.and_then(|tensor| tensor.shape.as_ref()).map(|shape| shape.dim.iter().map(extent).collect());
        Self {
            name: visible(info.name.as_deref().unwrap_or_default()).collect(),
            stored: tensor.and_then(|tensor| tensor.elem_type).and_then(tensor::declared),
            names: extents.iter().flatten().map(Extent::name).collect(),
            extents: extents.map(|extents| extents.iter().map(Extent::known).collect()),
        }
    }
}

impl DeclaredInput {
    /// Returns the element type in which callers have the input.
    pub fn declared(&self) -> DeclaredType {
        self.stored.unwrap_or(DeclaredType::Of(self.dtype))
    }

    /// Returns the inputs of a graph, which has no open extents.
    pub fn of_graph(graph: &Graph) -> Vec<Self> {
        let of = |&id: &NodeId| {
            let GraphNode { name, shape, dtype, .. } = graph.node(id);
            let extents = shape.iter().copied().map(Some).collect();
            Self { name: name.clone(), dtype: *dtype, stored: None, extents, names: vec![None; shape.len()] }
        };
        graph.inputs().iter().map(of).collect()
    }
}

/// Resolves the shapes of inputs. An open extent is taken from the caller's shape or value for the
/// input, or from other inputs with an extent of the same name, if these agree. If only the
/// outermost extent remains open, it is 1.
pub(super) fn resolve<'a>(
    inputs: impl Iterator<Item = &'a ValueInfoProto>,
    options: &ImportOptions,
) -> Result<Vec<ImportInput>, ImportError> {
    let declared = inputs.map(Declared::new).collect::<Result<Vec<Declared>, ImportError>>()?;
    let by_name: HashMap<&str, &Declared> = declared.iter().map(|input| (input.name, input)).collect();
    let mut given = options.shapes.keys().chain(options.values.keys());
    if let Some(unknown) = given.find(|name| !by_name.contains_key(name.as_str())) {
        let names: Vec<&str> = declared.iter().map(|input| input.name).collect();
        let reason = format!("no such input; the inputs are {}", listed(&names));
        return Err(ImportError::Shape { input: printable(unknown), reason });
    }

    // All given shapes come first, since an earlier input may use a name of a later one.
    let mut parameters = Parameters::default();
    for input in &declared {
        if let Some(shape) = input.given(options)? {
            input.bind(shape, &mut parameters)?;
        }
    }
    declared.iter().map(|input| input.resolved(options, &parameters)).collect()
}

/// Returns inputs as declared in the file.
pub(super) fn declared<'a>(
    inputs: impl Iterator<Item = &'a ValueInfoProto>,
) -> Result<Vec<DeclaredInput>, ImportError> {
    let of = |info| {
        let Declared { name, dtype, stored, extents, .. } = Declared::new(info)?;
        let (known, names) = (extents.iter().map(Extent::known).collect(), extents.iter().map(Extent::name).collect());
        Ok(DeclaredInput { name: name.into(), dtype, stored, extents: known, names })
    };
    inputs.map(of).collect()
}

/// An extent as declared in the file.
enum Extent<'a> {
    Known(usize),
    Named(&'a str),
    Open,
}

impl Extent<'_> {
    fn known(&self) -> Option<usize> {
        if let Self::Known(extent) = self { Some(*extent) } else { None }
    }

    fn name(&self) -> Option<String> {
        if let Self::Named(name) = self { Some(name.to_string()) } else { None }
    }
}

/// Values of named extents, collected from the shapes of inputs.
#[derive(Default)]
struct Parameters<'a> {
    /// First value for each name, with the input that it comes from.
    known: HashMap<&'a str, (usize, &'a str)>,
    /// A differing value for the same name, if there is one.
    others: HashMap<&'a str, (usize, &'a str)>,
}

impl<'a> Parameters<'a> {
    /// Records the value of a named extent. Conflicting values are allowed, as runtimes do not
    /// check names.
    fn record(&mut self, name: &'a str, extent: usize, input: &'a str) {
        let (first, _) = *self.known.entry(name).or_insert((extent, input));
        if first != extent {
            self.others.entry(name).or_insert((extent, input));
        }
    }

    /// Returns the value of a named extent; fails with a message if inputs disagree.
    fn of(&self, name: &str) -> Result<Option<usize>, String> {
        let Some(&(extent, input)) = self.known.get(name) else { return Ok(None) };
        match self.others.get(name) {
            None => Ok(Some(extent)),
            Some((other, another)) => {
                let [name, input, another] = [name, input, another].map(printable);
                Err(format!("extent {name} is {extent} in '{input}' and {other} in '{another}'"))
            }
        }
    }
}

struct Declared<'a> {
    name: &'a str,
    dtype: DType,
    stored: Option<DeclaredType>,
    byte_type: Option<DType>,
    extents: Vec<Extent<'a>>,
}

impl<'a> Declared<'a> {
    fn new(info: &'a ValueInfoProto) -> Result<Self, ImportError> {
        let name = info.name.as_deref().unwrap_or_default();
        let wrong = |reason: &str| ImportError::Input { input: printable(name), reason: reason.into() };
        // Names appear in messages and as options of commands.
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(wrong("the name must not be empty or contain control characters"));
        }
        let tensor = info.r#type.as_ref().and_then(|r#type| r#type.tensor_type.as_ref());
        let tensor = tensor.ok_or_else(|| wrong("is not a tensor"))?;
        let dtype = tensor::dtype(tensor.elem_type).map_err(|reason| wrong(&reason))?;
        let shape = tensor.shape.as_ref().ok_or_else(|| wrong("the file does not state the number of axes"))?;
        if shape.dim.len() > MOST_AXES {
            return Err(wrong(&format!("{} axes; at most {MOST_AXES} are supported", shape.dim.len())));
        }
        let byte_type = tensor::bytes_of(tensor.elem_type);
        let stored = tensor.elem_type.and_then(|of_file| tensor::stored(of_file, dtype));
        Ok(Self { name, dtype, stored, byte_type, extents: shape.dim.iter().map(extent).collect() })
    }

    /// Returns the shape of the caller's value or shape option.
    fn given<'o>(&self, options: &'o ImportOptions) -> Result<Option<&'o [usize]>, ImportError> {
        match options.values.get(self.name) {
            Some(value) if value.dtype() != self.dtype => {
                Err(self.wrong(format!("the value is {}, expected {}", value.dtype(), self.dtype)))
            }
            Some(value) => Ok(Some(value.shape())),
            None => Ok(options.shapes.get(self.name).map(Vec::as_slice)),
        }
    }

    /// Checks a shape from the caller, and records the named extents in it.
    fn bind(&self, shape: &[usize], parameters: &mut Parameters<'a>) -> Result<(), ImportError> {
        let fits = |(extent, &given): (&Extent, &usize)| !matches!(extent, Extent::Known(known) if *known != given);
        if shape.len() != self.extents.len() || !self.extents.iter().zip(shape).all(fits) {
            let given = by_x(shape.iter().take(MOST_AXES + 1).map(usize::to_string));
            return Err(self.wrong(format!("shape {given} does not fit the model's {}", self.shape_text())));
        }

        for (extent, &given) in self.extents.iter().zip(shape) {
            if let Extent::Named(name) = extent {
                parameters.record(name, given, self.name);
            }
        }
        Ok(())
    }

    fn resolved(&self, options: &ImportOptions, parameters: &Parameters) -> Result<ImportInput, ImportError> {
        let shape = match self.given(options)? {
            Some(shape) => shape.to_vec(),
            None => self.without_shape(parameters)?,
        };
        // Also rejects tensors that are too large.
        let signed: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
        tensor::extents(&signed).map_err(|reason| self.wrong(reason))?;
        let value = options.values.get(self.name).cloned();
        Ok(ImportInput { name: self.name.into(), dtype: self.dtype, shape, byte_type: self.byte_type, value })
    }

    /// Derives the shape from the file and the named extents of other inputs.
    fn without_shape(&self, parameters: &Parameters) -> Result<Vec<usize>, ImportError> {
        let mut extents = Vec::new();
        let mut disagreement = None;
        for extent in &self.extents {
            extents.push(match extent {
                Extent::Known(known) => Some(*known),
                Extent::Named(name) => parameters.of(name).unwrap_or_else(|reason| {
                    disagreement.get_or_insert(reason);
                    None
                }),
                Extent::Open => None,
            });
        }
        // A sole open outermost extent is taken for the batch size.
        if let ([batch @ None, rest @ ..], None) = (&mut extents[..], &disagreement)
            && rest.iter().all(Option::is_some)
        {
            *batch = Some(1);
        }

        let missing = || {
            let example = by_x(extents.iter().map(|extent| extent.map_or("?".into(), |extent| extent.to_string())));
            let not_fixed = format!("shape {} is not fixed", self.shape_text());
            let why = disagreement.unwrap_or(not_fixed);
            self.wrong(format!("{why}: specify one, such as {}={example}", printable(self.name)))
        };
        extents.iter().copied().collect::<Option<_>>().ok_or_else(missing)
    }

    fn shape_text(&self) -> String {
        printable(&by_x(self.extents.iter().map(|extent| match extent {
            Extent::Known(known) => known.to_string(),
            Extent::Named(name) => (*name).into(),
            Extent::Open => "?".into(),
        })))
    }

    fn wrong(&self, reason: String) -> ImportError {
        ImportError::Shape { input: printable(self.name), reason }
    }
}

/// Reads an extent. Some exporters write 0, a negative number or `?` for an open one.
fn extent(dimension: &Dimension) -> Extent<'_> {
    match (dimension.dim_value, dimension.dim_param.as_deref()) {
        (Some(value), _) if value > 0 => usize::try_from(value).map_or(Extent::Open, Extent::Known),
        (_, Some(name)) if !matches!(name, "" | "?") => Extent::Named(name),
        _ => Extent::Open,
    }
}

fn by_x(extents: impl Iterator<Item = String>) -> String {
    let text = extents.collect::<Vec<_>>().join("x");
    if text.is_empty() { "of rank 0".into() } else { text }
}
