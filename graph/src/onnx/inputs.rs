//! Shapes of what the caller brings.

use std::collections::{BTreeMap, HashMap};

use autotune_ir::DType;
use rten_onnx::onnx::{Dimension, ValueInfoProto};

use super::error::ImportError;
use super::limits::MOST_AXES;
use super::operator::OnnxOperator;
use super::tensor;
use crate::tensor::Tensor;
use crate::text::{listed, printable};

/// How a file is read.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// What the graph is called.
    pub name: Option<String>,
    /// Shapes of inputs by their names, for those whose shapes the file leaves open.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Inputs that are the same in all runs, by their names: they become constants, which shapes
    /// and the branch of an `If` may depend on.
    pub values: BTreeMap<String, Tensor>,
    /// Elements of constants that are computed while the file is read, and steps of their
    /// computation, at most: what goes beyond stays to be computed when the network runs. Bounds
    /// memory and time that a small file may ask for.
    pub most_folded: usize,
    /// Operators of other crates. One that has the domain and the name of an operator of this crate
    /// is read in its place.
    pub operators: Vec<&'static OnnxOperator>,
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            name: None,
            shapes: BTreeMap::new(),
            values: BTreeMap::new(),
            most_folded: 1 << 29,
            operators: Vec::new(),
        }
    }
}

/// What the caller brings to every run.
pub(super) struct Input {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// Its type in the file, if that has 8 bits.
    pub(super) of_bytes: Option<DType>,
    /// What it is in all runs, if that is known.
    pub(super) value: Option<Tensor>,
}

/// An input as a file declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredInput {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// Its extents, `None` where the file leaves them open.
    pub extents: Vec<Option<usize>>,
}

/// Inputs with all their extents. Where the file leaves one open, the caller's shape or value for
/// the input says it, or those of other inputs that have an extent of the same name, if these
/// agree; the outermost is 1 if it is the only one left.
pub(super) fn resolve<'a>(
    inputs: impl Iterator<Item = &'a ValueInfoProto>,
    options: &ImportOptions,
) -> Result<Vec<Input>, ImportError> {
    let declared = inputs.map(Declared::new).collect::<Result<Vec<Declared>, ImportError>>()?;
    let by_name: HashMap<&str, &Declared> = declared.iter().map(|input| (input.name, input)).collect();
    let mut given = options.shapes.keys().chain(options.values.keys());
    if let Some(unknown) = given.find(|name| !by_name.contains_key(name.as_str())) {
        let names: Vec<&str> = declared.iter().map(|input| input.name).collect();
        let reason = format!("the model has none of the name, but {}", listed(&names));
        return Err(ImportError::Shape { input: printable(unknown), reason });
    }

    let mut parameters = Parameters::default();
    for input in &declared {
        if let Some(shape) = input.given(options)? {
            input.bind(shape, &mut parameters)?;
        }
    }
    declared.iter().map(|input| input.resolved(options, &parameters)).collect()
}

/// Inputs as the file declares them.
pub(super) fn declared<'a>(
    inputs: impl Iterator<Item = &'a ValueInfoProto>,
) -> Result<Vec<DeclaredInput>, ImportError> {
    let of = |info| {
        let Declared { name, dtype, extents, .. } = Declared::new(info)?;
        let known = |extent: Extent| if let Extent::Known(extent) = extent { Some(extent) } else { None };
        Ok(DeclaredInput { name: name.into(), dtype, extents: extents.into_iter().map(known).collect() })
    };
    inputs.map(of).collect()
}

/// An extent as the file has it.
enum Extent<'a> {
    Known(usize),
    Named(&'a str),
    Open,
}

/// Named extents, as the shapes of inputs say them.
#[derive(Default)]
struct Parameters<'a> {
    /// By their names those that were said first, each with the input that said it.
    said: HashMap<&'a str, (usize, &'a str)>,
    /// Others that were said of the same name.
    others: HashMap<&'a str, (usize, &'a str)>,
}

impl<'a> Parameters<'a> {
    /// Notes what an input says. Inputs that disagree may both be right: names are not checked when
    /// a model runs.
    fn say(&mut self, name: &'a str, extent: usize, input: &'a str) {
        let (first, _) = *self.said.entry(name).or_insert((extent, input));
        if first != extent {
            self.others.entry(name).or_insert((extent, input));
        }
    }

    /// The extent of a name; an error in words where inputs disagree.
    fn of(&self, name: &str) -> Result<Option<usize>, String> {
        let Some(&(extent, input)) = self.said.get(name) else { return Ok(None) };
        match self.others.get(name) {
            None => Ok(Some(extent)),
            Some((other, another)) => {
                let [name, input, another] = [name, input, another].map(printable);
                Err(format!("its extent {name} is {extent} in '{input}' and {other} in '{another}'"))
            }
        }
    }
}

struct Declared<'a> {
    name: &'a str,
    dtype: DType,
    of_bytes: Option<DType>,
    extents: Vec<Extent<'a>>,
}

impl<'a> Declared<'a> {
    fn new(info: &'a ValueInfoProto) -> Result<Self, ImportError> {
        let name = info.name.as_deref().unwrap_or_default();
        let wrong = |reason: &str| ImportError::Input { input: printable(name), reason: reason.into() };
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(wrong("a name is at least one character, and none that controls a terminal"));
        }
        let tensor = info.r#type.as_ref().and_then(|r#type| r#type.tensor_type.as_ref());
        let tensor = tensor.ok_or_else(|| wrong("it is no tensor"))?;
        let dtype = tensor::dtype(tensor.elem_type).map_err(|reason| wrong(&reason))?;
        let shape = tensor.shape.as_ref().ok_or_else(|| wrong("the file does not say how many axes it has"))?;
        if shape.dim.len() > MOST_AXES {
            return Err(wrong(&format!("{} axes, where {MOST_AXES} at most are supported", shape.dim.len())));
        }
        let of_bytes = tensor::bytes_of(tensor.elem_type);
        Ok(Self { name, dtype, of_bytes, extents: shape.dim.iter().map(extent).collect() })
    }

    /// The shape that the caller gives, by itself or with a value.
    fn given<'o>(&self, options: &'o ImportOptions) -> Result<Option<&'o [usize]>, ImportError> {
        match options.values.get(self.name) {
            Some(value) if value.dtype() != self.dtype => {
                Err(self.wrong(format!("a value of {}, where it is of {}", value.dtype(), self.dtype)))
            }
            Some(value) => Ok(Some(value.shape())),
            None => Ok(options.shapes.get(self.name).map(Vec::as_slice)),
        }
    }

    /// Checks a shape that the caller gives, and notes what it says of named extents.
    fn bind(&self, shape: &[usize], parameters: &mut Parameters<'a>) -> Result<(), ImportError> {
        let fits = |(extent, &given): (&Extent, &usize)| !matches!(extent, Extent::Known(known) if *known != given);
        if shape.len() != self.extents.len() || !self.extents.iter().zip(shape).all(fits) {
            let given = by_x(shape.iter().take(MOST_AXES + 1).map(usize::to_string));
            return Err(self.wrong(format!("shape {given} does not fit the model's {}", self.shape_text())));
        }

        for (extent, &given) in self.extents.iter().zip(shape) {
            if let Extent::Named(name) = extent {
                parameters.say(name, given, self.name);
            }
        }
        Ok(())
    }

    fn resolved(&self, options: &ImportOptions, parameters: &Parameters) -> Result<Input, ImportError> {
        let shape = match self.given(options)? {
            Some(shape) => shape.to_vec(),
            None => self.without_shape(parameters)?,
        };
        let signed: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
        tensor::extents(&signed).map_err(|reason| self.wrong(reason))?;
        let value = options.values.get(self.name).cloned();
        Ok(Input { name: self.name.into(), dtype: self.dtype, shape, of_bytes: self.of_bytes, value })
    }

    /// The shape by what the file and the shapes of other inputs say.
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
        if let ([batch @ None, rest @ ..], None) = (&mut extents[..], &disagreement)
            && rest.iter().all(Option::is_some)
        {
            *batch = Some(1);
        }

        let missing = || {
            let example = by_x(extents.iter().map(|extent| extent.map_or("?".into(), |extent| extent.to_string())));
            let not_fixed = format!("its shape {} is not fixed", self.shape_text());
            let why = disagreement.unwrap_or(not_fixed);
            self.wrong(format!("{why}: give it one, as {}={example}", printable(self.name)))
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

/// Files of some exporters have 0, a negative number or `?` where they leave an extent open.
fn extent(dimension: &Dimension) -> Extent<'_> {
    match (dimension.dim_value, dimension.dim_param.as_deref()) {
        (Some(value), _) if value > 0 => usize::try_from(value).map_or(Extent::Open, Extent::Known),
        (_, Some(name)) if !matches!(name, "" | "?") => Extent::Named(name),
        _ => Extent::Open,
    }
}

fn by_x(extents: impl Iterator<Item = String>) -> String {
    let text = extents.collect::<Vec<_>>().join("x");
    if text.is_empty() { "of no axes".into() } else { text }
}
