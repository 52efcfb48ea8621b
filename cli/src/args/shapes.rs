//! Models whose inputs have several shapes.

use std::collections::BTreeMap;

use anyhow::Result;
use autotune_network::onnx::{self, DeclaredInput, ImportError, ImportOptions};
use autotune_network::rewrite::Rewriter;
use autotune_network::{Extents, Graph, GraphError, InputShapes, Precision, ShapeRange, dequantised, listed};

use super::calls::{Calls, NamedShapes};
use super::{Failure, LoadedNetwork};

/// Maximum number of shapes that a library is compiled for.
const MOST_VARIANTS: usize = 64;

/// Number of shapes that are tuned if there are more.
const TUNED_SHAPES: usize = 6;

/// Element types of a network on the command line.
#[derive(Clone, Copy)]
pub(crate) struct NetworkTypes {
    pub(crate) precision: Precision,
    /// True if quantised tensors are computed in floating point.
    pub(crate) is_dequantised: bool,
}

impl NetworkTypes {
    /// Returns an imported graph in these types.
    pub(crate) fn of(self, graph: Graph) -> Result<Graph, GraphError> {
        let graph = if self.is_dequantised { dequantised(&graph)? } else { graph };
        Ok(graph.with_precision(self.precision))
    }
}

/// Model whose inputs have several shapes.
pub(crate) struct ModelOfShapes {
    pub(crate) name: String,
    pub(crate) model: onnx::Model<'static>,
    /// Values of inputs that are constants.
    pub(crate) import: ImportOptions,
    /// Shapes of inputs on the command line.
    pub(crate) ranges: BTreeMap<String, ShapeRange>,
    /// Calls whose shapes are in a file.
    pub(crate) calls: Option<Calls>,
    pub(crate) types: NetworkTypes,
}

impl ModelOfShapes {
    /// Returns the inputs that are not constants.
    pub(crate) fn declared(&self) -> Result<Vec<DeclaredInput>, ImportError> {
        let mut declared = self.model.inputs()?;
        declared.retain(|input| !self.import.values.contains_key(&input.name));
        Ok(declared)
    }

    /// Returns all shapes of the calls or ranges, in the order of the model's inputs.
    pub(crate) fn every(&self) -> Result<Vec<InputShapes>> {
        let every = match &self.calls {
            Some(calls) => calls.every(MOST_VARIANTS)?,
            None => every(&self.declared()?, &self.ranges)?,
        };
        every.into_iter().map(|shapes| self.of_inputs(shapes)).collect()
    }

    /// Draws the shapes of `count` calls, or shapes in the ranges, at fractions of them.
    pub(crate) fn drawn(&self, count: usize, fraction: &mut dyn FnMut() -> f64) -> Result<Vec<InputShapes>> {
        let declared = self.declared()?;
        let mut draw = || match &self.calls {
            Some(calls) => Ok(calls.at(fraction())),
            None => drawn(&declared, &self.ranges, fraction),
        };
        (0..count).map(|_| self.of_inputs(draw()?)).collect()
    }

    /// Returns the shapes of all inputs, in their order, from those on the command line.
    fn of_inputs(&self, shapes: NamedShapes) -> Result<InputShapes> {
        let inputs = self.model.shapes(&self.of(shapes)).map_err(refusal)?;
        Ok(inputs.into_iter().map(|(_, shape)| shape).collect())
    }

    /// Loads the network for shapes that stand for all: each of a few, or else those nearest to
    /// most calls, or shapes at equal distances in the ranges.
    pub(crate) fn representative(&self) -> Result<Vec<LoadedNetwork>> {
        let shapes: Vec<(NamedShapes, usize)> = match &self.calls {
            Some(calls) => calls.representative(TUNED_SHAPES),
            None => {
                let declared = self.declared()?;
                let few = every(&declared, &self.ranges).ok().filter(|shapes| shapes.len() <= TUNED_SHAPES);
                let shapes = few.map_or_else(|| spread(&declared, &self.ranges), Ok)?;
                shapes.into_iter().map(|shapes| (shapes, 1)).collect()
            }
        };
        // Constants that the graphs have in common are in memory once.
        let mut rewriter = Rewriter::default();
        let load = |(shapes, calls): (NamedShapes, usize)| {
            let graph = self.model.graph(&self.of(shapes)).map_err(refusal)?;
            let (graph, _) = rewriter.rewrite(&self.types.of(graph)?)?;
            Ok(LoadedNetwork { graph, given: BTreeMap::new(), max_error: None, is_phase: false, calls })
        };
        shapes.into_iter().map(load).collect()
    }

    fn of(&self, shapes: NamedShapes) -> ImportOptions {
        ImportOptions { shapes, ..self.import.clone() }
    }
}

/// Converts an import error: a bad shape is a usage error.
pub(crate) fn refusal(error: ImportError) -> anyhow::Error {
    match error {
        ImportError::Shape { .. } => Failure::Usage(format!("--shape: {error}")).into(),
        _ => error.into(),
    }
}

/// Shapes as far as they are chosen.
#[derive(Clone, Default)]
struct ChosenShapes<'a> {
    shapes: NamedShapes,
    /// Extents of axes by their names in the file.
    named: BTreeMap<&'a str, usize>,
}

impl<'a> ChosenShapes<'a> {
    /// Returns the extent of earlier axes of the same name, if it is permitted.
    fn known(&self, axis: Option<&str>, extents: &Extents) -> Option<usize> {
        let known = axis.and_then(|axis| self.named.get(axis)).copied();
        known.filter(|&extent| extents.contains(extent))
    }

    /// Adds the extent of the next axis of an input.
    fn push(&mut self, input: &str, axis: Option<&'a str>, extent: usize) {
        axis.map(|axis| self.named.entry(axis).or_insert(extent));
        self.shapes.entry(input.into()).or_default().push(extent);
    }
}

/// Returns the name of an axis, if the file has one.
fn axis_name(input: &DeclaredInput, axis: usize) -> Option<&str> {
    input.names.get(axis)?.as_deref()
}

/// Returns shapes at equal distances in the ranges. Ranges of several axes are passed in different
/// orders, so that the shapes are spread in all of them (as in Latin hypercube sampling).
fn spread(declared: &[DeclaredInput], ranges: &BTreeMap<String, ShapeRange>) -> Result<Vec<NamedShapes>, Failure> {
    let mut shapes = Vec::new();
    for number in 0..TUNED_SHAPES {
        let mut axes = 0;
        // The number of shapes is one less than a prime, so each product is another remainder.
        let mut fraction = || {
            axes = axes % TUNED_SHAPES + 1;
            let place = (number + 1) * axes % (TUNED_SHAPES + 1) - 1;
            (place as f64 + 0.5) / TUNED_SHAPES as f64
        };
        let drawn = drawn(declared, ranges, &mut fraction)?;
        if !shapes.contains(&drawn) {
            shapes.push(drawn);
        }
    }
    Ok(shapes)
}

/// Draws shapes in the ranges at fractions of them. Axes of one name have equal extents.
fn drawn(
    declared: &[DeclaredInput],
    ranges: &BTreeMap<String, ShapeRange>,
    fraction: &mut dyn FnMut() -> f64,
) -> Result<NamedShapes, Failure> {
    let mut chosen = ChosenShapes::default();
    for (name, range) in ranges {
        let input = declared_input(declared, name, range)?;
        for (axis, extents) in range.0.iter().enumerate() {
            let axis_name = axis_name(input, axis);
            let open = || Failure::Usage(format!("--shape {name}={range}: axis {axis} needs a range, such as 1..512"));
            let extent = match chosen.known(axis_name, extents).or_else(|| extents.fixed()) {
                Some(extent) => extent,
                None => extents.at(fraction()).ok_or_else(open)?,
            };
            chosen.push(name, axis_name, extent);
        }
    }
    Ok(chosen.shapes)
}

/// Returns all shapes in the ranges. Axes of one name have equal extents.
fn every(declared: &[DeclaredInput], ranges: &BTreeMap<String, ShapeRange>) -> Result<Vec<NamedShapes>, Failure> {
    let mut all = vec![ChosenShapes::default()];
    for (name, range) in ranges {
        let input = declared_input(declared, name, range)?;
        let wrong = |why: &str| Failure::Usage(format!("--shape {name}={range}: {why}"));
        for (axis, extents) in range.0.iter().enumerate() {
            let permitted = extents.first(MOST_VARIANTS + 1);
            let permitted = permitted.ok_or_else(|| wrong(&format!("axis {axis} needs extents, such as {{16,32}}")))?;
            let axis_name = axis_name(input, axis);
            let mut longer = Vec::new();
            for chosen in all {
                let known = chosen.known(axis_name, extents);
                for &extent in known.as_ref().map_or(&permitted[..], std::slice::from_ref) {
                    let mut chosen = chosen.clone();
                    chosen.push(name, axis_name, extent);
                    longer.push(chosen);
                }
            }

            all = longer;
            if all.len() > MOST_VARIANTS {
                let why = format!("more than {MOST_VARIANTS} shapes: list the extents, as in {{16,32,64}}");
                return Err(wrong(&why));
            }
        }
    }
    Ok(all.into_iter().map(|chosen| chosen.shapes).collect())
}

/// Returns the input of a name on the command line.
fn declared_input<'a>(
    declared: &'a [DeclaredInput],
    name: &str,
    range: &ShapeRange,
) -> Result<&'a DeclaredInput, Failure> {
    let names: Vec<&str> = declared.iter().map(|input| &*input.name).collect();
    let unknown = || Failure::Usage(format!("--shape {name}={range}: the inputs are {}", listed(&names)));
    declared.iter().find(|input| input.name == *name).ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use autotune_network::DType;

    use super::*;

    fn input(name: &str, axes: &[&str]) -> DeclaredInput {
        let axis = |name: &&str| (!name.is_empty()).then(|| name.to_string());
        DeclaredInput {
            name: name.into(),
            dtype: DType::I64,
            stored: None,
            names: axes.iter().map(axis).collect(),
            extents: vec![None; axes.len()],
        }
    }

    fn shapes(texts: &[(&str, &str)]) -> Result<Vec<Vec<Vec<usize>>>, String> {
        let declared = [input("ids", &["batch", "length"]), input("mask", &["batch", "length"])];
        let parsed = texts.iter().map(|(name, text)| (name.to_string(), text.parse().unwrap())).collect();
        let all = every(&declared, &parsed).map_err(|error| error.to_string())?;
        Ok(all.into_iter().map(|shapes| shapes.into_values().collect()).collect())
    }

    #[test]
    fn axes_of_one_name_are_equal() {
        let all = shapes(&[("ids", "1x{16,32}"), ("mask", "1x{16,32}")]);
        assert_eq!(all, Ok(vec![vec![vec![1, 16], vec![1, 16]], vec![vec![1, 32], vec![1, 32]]]));
        let all = shapes(&[("ids", "{2,1}x3..4")]).unwrap().concat();
        assert_eq!(all, [[1, 3], [1, 4], [2, 3], [2, 4]]);
    }

    #[test]
    fn spread_shapes_differ_in_every_range() {
        let declared = [input("ids", &["batch", "length"])];
        let ranges = [("ids".to_string(), "1..60x100..699".parse().unwrap())].into();
        let all: Vec<Vec<usize>> =
            spread(&declared, &ranges).unwrap().into_iter().flat_map(BTreeMap::into_values).collect();
        for axis in 0..2 {
            let mut extents: Vec<usize> = all.iter().map(|shape| shape[axis]).collect();
            extents.sort_unstable();
            let expected = [[6, 16, 26, 36, 46, 56], [150, 250, 350, 450, 550, 650]][axis];
            assert_eq!(extents, expected);
        }

        // Few extents give fewer shapes, each once.
        let ranges = [("ids".to_string(), "{1,2}x{3,4,5,6}".parse().unwrap())].into();
        let all = spread(&declared, &ranges).unwrap();
        assert!((4..=6).contains(&all.len()) && (1..all.len()).all(|at| !all[..at].contains(&all[at])), "{all:?}");
    }

    #[test]
    fn too_many_shapes_are_refused() {
        assert_eq!(shapes(&[("ids", "1x1..64")]).unwrap().len(), MOST_VARIANTS);
        let refused = |text| shapes(&[("ids", text)]).unwrap_err();
        assert!(refused("1x1..65").contains("--shape ids=1x1..65: more than 64 shapes"));
        assert!(refused("1..9x1..9").contains("more than 64 shapes"));
        assert!(refused("1x?").contains("axis 1 needs extents"));
        assert!(shapes(&[("x", "1x2")]).unwrap_err().contains("the inputs are"));
    }
}
