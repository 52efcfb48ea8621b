//! Shapes of calls out of a file, as a sample of those that a model gets.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use autotune_network::onnx::DeclaredInput;
use autotune_network::{Extents, ShapeRange, listed};

use super::Failure;

/// Shapes by the names of inputs.
pub(super) type NamedShapes = BTreeMap<String, Vec<usize>>;

/// Maximum number of different shapes among which those that stand for all are chosen.
const MOST_CANDIDATES: usize = 256;

/// Calls of a network: their shapes, and the number of calls with each, in the order of the file.
#[derive(Debug)]
pub(crate) struct Calls {
    file: String,
    of_shapes: Vec<(NamedShapes, usize)>,
}

impl Calls {
    /// Reads a file with the shapes of one call per line, such as `ids=1x12 mask=1x12`. Empty lines
    /// and those that begin with `#` do not count.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let file = path.display().to_string();
        let wrong = |why: String| Failure::Usage(format!("--shapes {file}: {why}"));
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;

        let mut of_shapes: Vec<(NamedShapes, usize)> = Vec::new();
        let mut places: HashMap<NamedShapes, usize> = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| wrong(format!("line {}: {why}", number + 1));
            let shapes = call(line).map_err(|why| wrong(&why))?;
            let first = of_shapes.first().map_or(&shapes, |(first, _)| first);
            if !are_of_same_inputs(first, &shapes) {
                return Err(wrong("other inputs or numbers of axes than in the first call"));
            }
            match places.get(&shapes) {
                Some(&place) => of_shapes[place].1 += 1,
                None => {
                    places.insert(shapes.clone(), of_shapes.len());
                    of_shapes.push((shapes, 1));
                }
            }
        }
        match of_shapes.is_empty() {
            true => Err(wrong("no calls: expected one per line, such as ids=1x12 mask=1x12".into())),
            false => Ok(Self { file, of_shapes }),
        }
    }

    /// Fails if a call has an input that the model lacks.
    pub(super) fn check(&self, declared: &[DeclaredInput]) -> Result<(), Failure> {
        let names: Vec<&str> = declared.iter().map(|input| &*input.name).collect();
        let given = self.of_shapes.iter().flat_map(|(shapes, _)| shapes.keys());
        let unknown = given.into_iter().find(|name| !names.contains(&&***name));
        let why = |name: &String| format!("'{name}': the inputs are {}", listed(&names));
        unknown.map_or(Ok(()), |name| Err(Failure::Usage(format!("--shapes {}: {}", self.file, why(name)))))
    }

    /// Returns for each input the extents that its axes have.
    pub(super) fn ranges(&self) -> BTreeMap<String, ShapeRange> {
        let mut extents: BTreeMap<&str, Vec<BTreeSet<usize>>> = BTreeMap::new();
        for (name, shape) in self.of_shapes.iter().flat_map(|(shapes, _)| shapes) {
            let axes = extents.entry(name).or_insert_with(|| vec![BTreeSet::new(); shape.len()]);
            axes.iter_mut().zip(shape).for_each(|(axis, &extent)| axis.extend([extent]));
        }
        let range = |axes: Vec<BTreeSet<usize>>| {
            ShapeRange(axes.into_iter().map(|axis| Extents::OneOf(axis.into_iter().collect())).collect())
        };
        extents.into_iter().map(|(name, axes)| (name.to_string(), range(axes))).collect()
    }

    /// Returns all different shapes; fails if there are more than `most`.
    pub(super) fn every(&self, most: usize) -> Result<Vec<NamedShapes>, Failure> {
        let found = self.of_shapes.len();
        match found <= most {
            true => Ok(self.of_shapes.iter().map(|(shapes, _)| shapes.clone()).collect()),
            false => Err(Failure::Usage(format!("--shapes {}: {found} different shapes, at most {most}", self.file))),
        }
    }

    /// Returns the shapes of a call at a fraction between 0 and 1 of all calls.
    pub(super) fn at(&self, fraction: f64) -> NamedShapes {
        let calls: usize = self.of_shapes.iter().map(|(_, calls)| calls).sum();
        let mut left = ((fraction * calls as f64) as usize).min(calls.saturating_sub(1));
        let found = self.of_shapes.iter().find(|(_, calls)| {
            let is_within = left < *calls;
            left = left.saturating_sub(*calls);
            is_within
        });
        found.map(|(shapes, _)| shapes.clone()).unwrap_or_default()
    }

    /// Returns at most `most` of the shapes, and the number of calls that each stands for: those to
    /// which it is the nearest.
    ///
    /// The sum of the distances from calls to their nearest shape, each times the call's elements
    /// as an estimate of its time, is made small by adding the best shape at a time (k-medoids,
    /// Kaufman and Rousseeuw, "Finding Groups in Data", 1990, section 2.4, phase BUILD).
    pub(super) fn representative(&self, most: usize) -> Vec<(NamedShapes, usize)> {
        let all = &self.of_shapes;
        let step = all.len().div_ceil(MOST_CANDIDATES);
        let weight = |(shapes, calls): &(NamedShapes, usize)| *calls as f64 * elements(shapes);
        let mut nearest = vec![f64::INFINITY; all.len()];
        let mut chosen: Vec<usize> = Vec::new();
        while chosen.len() < most && nearest.iter().any(|&distance| distance > 0.0) {
            let cost = |candidate: usize| -> f64 {
                let of = |(call, &known): (&(NamedShapes, usize), &f64)| {
                    weight(call) * distance(&call.0, &all[candidate].0).min(known)
                };
                all.iter().zip(&nearest).map(of).sum()
            };
            let open = (0..all.len()).step_by(step).filter(|candidate| !chosen.contains(candidate));
            let costs = open.map(|candidate| (cost(candidate), candidate));
            let Some((_, best)) = costs.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            for (call, nearest) in all.iter().zip(&mut nearest) {
                *nearest = nearest.min(distance(&call.0, &all[best].0));
            }
            chosen.push(best);
        }

        let mut calls = vec![0; chosen.len()];
        for (shapes, count) in all {
            let distances = chosen.iter().map(|&at| distance(shapes, &all[at].0)).enumerate();
            if let Some((nearest, _)) = distances.min_by(|a, b| a.1.total_cmp(&b.1)) {
                calls[nearest] += count;
            }
        }
        chosen.into_iter().zip(calls).map(|(at, calls)| (all[at].0.clone(), calls)).collect()
    }
}

/// Parses the shapes of a call; fails with the reason.
fn call(line: &str) -> Result<NamedShapes, String> {
    let mut shapes = NamedShapes::new();
    for word in line.split_whitespace() {
        let wrong = || format!("'{word}' is not an input and its extents, such as ids=1x12");
        let (name, extents) = word.rsplit_once('=').ok_or_else(wrong)?;
        let shape: Option<Vec<usize>> = extents.parse().ok().and_then(|range: ShapeRange| range.fixed());
        if shapes.insert(name.to_string(), shape.ok_or_else(wrong)?).is_some() {
            return Err(format!("the shape of input '{name}' is specified twice"));
        }
    }
    Ok(shapes)
}

fn are_of_same_inputs(a: &NamedShapes, b: &NamedShapes) -> bool {
    let axes =
        |shapes: &NamedShapes| shapes.iter().map(|(name, shape)| (name.clone(), shape.len())).collect::<Vec<_>>();
    axes(a) == axes(b)
}

/// Returns the number of elements of all inputs.
fn elements(shapes: &NamedShapes) -> f64 {
    shapes.values().map(|shape| shape.iter().map(|&extent| extent as f64).product::<f64>()).sum()
}

/// Returns the sum of the logarithms of ratios of extents.
fn distance(a: &NamedShapes, b: &NamedShapes) -> f64 {
    let pairs = a.values().flatten().zip(b.values().flatten());
    pairs.map(|(&a, &b)| (a.max(1) as f64 / b.max(1) as f64).ln().abs()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(text: &str) -> Result<Calls, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("calls.txt");
        fs::write(&path, text).unwrap();
        Calls::read(&path).map_err(|error| error.to_string())
    }

    fn lengths(shapes: &[(NamedShapes, usize)]) -> Vec<(usize, usize)> {
        let mut all: Vec<_> = shapes.iter().map(|(shapes, calls)| (shapes["ids"][1], *calls)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn equal_calls_are_counted() {
        let calls = calls("# lengths of a day\nids=1x8\n\nids=1x16\n  ids=1x8\n").unwrap();
        assert_eq!(lengths(&calls.of_shapes), [(8, 2), (16, 1)]);
        assert_eq!(calls.ranges()["ids"], "{1}x{8,16}".parse().unwrap());
        let drawn: Vec<usize> = [0.0, 0.6, 0.7, 1.0].iter().map(|&at| calls.at(at)["ids"][1]).collect();
        assert_eq!(drawn, [8, 8, 16, 16]);
        assert!(calls.every(1).unwrap_err().to_string().contains("2 different shapes, at most 1"));
    }

    #[test]
    fn shapes_stand_for_the_calls_nearest_to_them() {
        let text: String = [10, 10, 10, 11, 12, 100, 101, 400].iter().map(|n| format!("ids=1x{n}\n")).collect();
        let calls = calls(&text).unwrap();
        assert_eq!(lengths(&calls.representative(3)), [(10, 5), (100, 2), (400, 1)]);
        // Each call stands for itself if there are few.
        assert_eq!(calls.representative(6).len(), 6);
        assert_eq!(lengths(&calls.representative(64)).iter().map(|(_, calls)| calls).sum::<usize>(), 8);
    }

    #[test]
    fn many_calls_have_few_representatives() {
        let text: String = (0..5000).map(|n| format!("ids=1x{} mask=1x{}\n", n % 977 + 1, n % 977 + 1)).collect();
        let found = calls(&text).unwrap().representative(6);
        assert_eq!((found.len(), found.iter().map(|(_, calls)| calls).sum::<usize>()), (6, 5000));
    }

    #[test]
    fn wrong_lines_are_refused() {
        for (text, reason) in [
            ("ids=1x8\nids\n", "line 2: 'ids' is not an input and its extents"),
            ("ids=1x8..16\n", "line 1: 'ids=1x8..16' is not an input and its extents"),
            ("ids=1x8 ids=1x9\n", "line 1: the shape of input 'ids' is specified twice"),
            ("ids=1x8\nmask=1x8\n", "line 2: other inputs or numbers of axes"),
            ("# nothing\n", "no calls: expected one per line"),
        ] {
            let error = calls(text).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
    }
}
