//! Shapes of what the caller brings.

use std::collections::{BTreeMap, HashMap};

use rten_onnx::onnx::{Dimension, ValueInfoProto};

use super::error::printable;
use super::{ImportError, tensor};
use crate::tensor::Element;

/// What the caller brings to every run.
pub(super) struct Input {
    pub(super) name: String,
    pub(super) element: Element,
    pub(super) shape: Vec<usize>,
}

/// Inputs with all their extents. Where the file leaves one open, the caller's shape for the input says it, or that of an input that has an
/// extent of the same name; the outermost is 1 if it is the only one left.
pub(super) fn resolve<'a>(
    inputs: impl Iterator<Item = &'a ValueInfoProto>,
    shapes: &BTreeMap<String, Vec<usize>>,
) -> Result<Vec<Input>, ImportError> {
    let declared: Result<Vec<Declared>, ImportError> = inputs.map(Declared::new).collect();
    let declared = declared?;
    if let Some(unknown) = shapes.keys().find(|name| declared.iter().all(|input| input.name != **name)) {
        let names: Vec<String> = declared.iter().map(|input| printable(input.name)).collect();
        let reason = format!("the model has none of the name, but {}", names.join(", "));
        return Err(ImportError::Shape { input: printable(unknown), reason });
    }

    let mut parameters = HashMap::new();
    for input in &declared {
        if let Some(shape) = shapes.get(input.name) {
            input.bind(shape, &mut parameters)?;
        }
    }
    declared.iter().map(|input| input.resolved(shapes.get(input.name), &parameters)).collect()
}

/// An extent as the file has it.
enum Extent<'a> {
    Known(usize),
    Named(&'a str),
    Open,
}

struct Declared<'a> {
    name: &'a str,
    element: Element,
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
        let element = tensor::element(tensor.elem_type).map_err(|reason| wrong(&reason))?;
        let shape = tensor.shape.as_ref().ok_or_else(|| wrong("the file does not say how many axes it has"))?;
        Ok(Self { name, element, extents: shape.dim.iter().map(extent).collect() })
    }

    /// Checks a shape that the caller gives, and notes what it says of named extents.
    fn bind(&self, shape: &[usize], parameters: &mut HashMap<&'a str, usize>) -> Result<(), ImportError> {
        let mut fits = shape.len() == self.extents.len();
        for (extent, &given) in self.extents.iter().zip(shape) {
            fits &= match extent {
                Extent::Known(known) => *known == given,
                Extent::Named(name) => *parameters.entry(name).or_insert(given) == given,
                Extent::Open => true,
            };
        }
        match fits {
            true => Ok(()),
            false => Err(self.wrong(format!("shape {} does not fit the model's {}", joined(shape), self.shape_text()))),
        }
    }

    fn resolved(&self, given: Option<&Vec<usize>>, parameters: &HashMap<&str, usize>) -> Result<Input, ImportError> {
        let known = |(axis, extent): (usize, &Extent)| match extent {
            _ if given.is_some() => given.map(|shape| shape[axis]),
            Extent::Known(known) => Some(*known),
            Extent::Named(name) => parameters.get(name).copied(),
            Extent::Open => None,
        };
        let mut extents: Vec<Option<usize>> = self.extents.iter().enumerate().map(known).collect();
        if let [batch @ None, rest @ ..] = &mut extents[..]
            && rest.iter().all(Option::is_some)
        {
            *batch = Some(1);
        }

        let shape: Option<Vec<usize>> = extents.iter().copied().collect();
        let missing = || {
            let example = extents.iter().map(|extent| extent.map_or("?".into(), |extent| extent.to_string()));
            let example: Vec<String> = example.collect();
            let (text, example) = (self.shape_text(), example.join("x"));
            self.wrong(format!("its shape {text} is not fixed: give it one, as {}={example}", self.name))
        };
        let shape = shape.ok_or_else(missing)?;
        let signed: Vec<i64> = shape.iter().map(|&extent| extent as i64).collect();
        tensor::extents(&signed).map_err(|reason| self.wrong(reason))?;
        Ok(Input { name: self.name.into(), element: self.element, shape })
    }

    fn shape_text(&self) -> String {
        let text = |extent: &Extent| match extent {
            Extent::Known(known) => known.to_string(),
            Extent::Named(name) => printable(name),
            Extent::Open => "?".into(),
        };
        self.extents.iter().map(text).collect::<Vec<_>>().join("x")
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

fn joined(shape: &[usize]) -> String {
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}
