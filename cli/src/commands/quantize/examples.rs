//! Examples of a network's inputs, from files or random.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use autotune_network::onnx::{self, DeclaredInput};
use autotune_network::{Graph, GraphNode, NodeId, Subject, SubjectLoadError, Tensor, listed, printable, random_input};

use super::super::run::checked;
use crate::args::{Failure, InputFile};
use crate::npy;

/// Number of random examples, where no data are given.
const RANDOM: usize = 8;

/// Files of examples by the names of their inputs.
pub(super) struct DataFiles(BTreeMap<String, (DeclaredInput, Vec<InputFile>)>);

impl DataFiles {
    /// Reads the files of `--data`.
    pub(super) fn of(words: &[String], subject: &Subject) -> Result<Self> {
        let mut files = BTreeMap::new();
        if words.is_empty() {
            return Ok(Self(files));
        }
        for word in words {
            let (input, path) = split(word, &declared(subject)?)?;
            let (_, known) = files.entry(input.name.clone()).or_insert_with(|| (input.clone(), Vec::new()));
            for path in files_at(&path)? {
                let tensor = npy::read("--data", &path, input.dtype)?;
                check_finite(&path, &tensor)?;
                known.push(InputFile { path, tensor });
            }
        }
        Ok(Self(files))
    }

    /// Returns the shapes of inputs with open extents: of one example.
    pub(super) fn shapes(&self) -> BTreeMap<String, Vec<usize>> {
        let of = |(name, (input, files)): (&String, &(DeclaredInput, Vec<InputFile>))| {
            let found = files.first()?.tensor.shape();
            let open = input.extents.iter().any(Option::is_none);
            // A file without the outermost axis is one example.
            let missing = input.extents.len().checked_sub(found.len()).filter(|&missing| open && missing <= 1)?;
            let mut shape = [&vec![1; missing], found].concat();
            if let [outermost, ..] = &mut shape[..] {
                *outermost = input.extents[0].unwrap_or(1);
            }
            Some((name.clone(), shape))
        };
        self.0.iter().filter_map(of).collect()
    }

    /// Returns the inputs of each example. Inputs are the same in all of them if they are in
    /// `given`, and random without data.
    pub(super) fn examples(
        &self,
        graph: &Graph,
        given: &BTreeMap<String, InputFile>,
    ) -> Result<Vec<Vec<Tensor>>, anyhow::Error> {
        let all = graph.inputs().iter().map(|&id| self.of_input(graph.node(id)));
        let all = all.collect::<Result<Vec<Option<Vec<Tensor>>>, Failure>>()?;
        let counts: Vec<usize> = all.iter().flatten().map(Vec::len).collect();
        let count = counts.first().copied().unwrap_or(RANDOM);
        if counts.iter().any(|&other| other != count) {
            let why = format!("inputs have different numbers of examples: {counts:?}");
            return Err(Failure::Usage(format!("--data: {why}")).into());
        }

        let tensor = |example: usize, number: usize, id: NodeId| -> Result<Tensor> {
            let node = graph.node(id);
            match (&all[number], given.get(&node.name)) {
                (Some(tensors), _) => Ok(tensors[example].clone()),
                (None, Some(file)) => Ok(checked(node, file)?),
                (None, None) if self.0.is_empty() => Ok(random_input(node, (example * all.len() + number) as u64)?),
                (None, None) => {
                    let why = format!("no examples of input '{}'", printable(&node.name));
                    Err(Failure::Usage(format!("--data: {why}")).into())
                }
            }
        };
        let of_example =
            |example| graph.inputs().iter().enumerate().map(|(number, &id)| tensor(example, number, id)).collect();
        (0..count).map(of_example).collect()
    }

    /// Returns the examples of an input, if there are files for it.
    fn of_input(&self, node: &GraphNode) -> Result<Option<Vec<Tensor>>, Failure> {
        let Some((_, files)) = self.0.get(&node.name) else { return Ok(None) };
        let mut tensors = Vec::new();
        for file in files {
            file.check_exact("--data")?;
            let found = file.tensor.shape();
            let is_one = found == node.shape || node.shape.first() == Some(&1) && found == &node.shape[1..];
            let are_several = match (found, &node.shape[..]) {
                ([all, rest @ ..], [each, own @ ..]) => rest == own && *each > 0 && all % each == 0,
                _ => false,
            };
            if !is_one && !are_several {
                let why = format!("shape {found:?}, but '{}' has {:?}", printable(&node.name), node.shape);
                return Err(Failure::Usage(format!("--data {}: {why}", file.path.display())));
            }

            let size = node.shape.iter().product::<usize>().max(1);
            for numbers in file.tensor.to_numbers().chunks(size) {
                let tensor = Tensor::of_numbers(&node.shape, node.dtype, numbers);
                tensors.push(tensor.map_err(|error| Failure::Usage(error.to_string()))?);
            }
        }
        Ok(Some(tensors))
    }
}

/// Returns the inputs that a network declares.
fn declared(subject: &Subject) -> Result<Vec<DeclaredInput>> {
    match subject {
        Subject::Model(path) => {
            let wrong = |source| SubjectLoadError::Import { path: path.clone(), source };
            Ok(onnx::inputs(path).map_err(wrong)?)
        }
        _ => Ok(subject.imported(&Default::default())?.as_ref().map(DeclaredInput::of_graph).unwrap_or_default()),
    }
}

/// Splits a word of `--data` into the input and the path of its examples.
fn split(word: &str, declared: &[DeclaredInput]) -> Result<(DeclaredInput, PathBuf), Failure> {
    let named = word.rmatch_indices('=').find_map(|(at, _)| {
        let input = declared.iter().find(|input| input.name == word[..at])?;
        Some((input.clone(), PathBuf::from(&word[at + 1..])))
    });
    let only = || match declared {
        [only] => Some((only.clone(), PathBuf::from(word))),
        _ => None,
    };
    named.or_else(only).ok_or_else(|| {
        let names: Vec<&str> = declared.iter().map(|input| &*input.name).collect();
        let why = format!("expected NAME=DIR or NAME=FILE.npy, with one of the inputs {}", listed(&names));
        Failure::Usage(format!("--data {word}: {why}"))
    })
}

/// Returns a file, or the `.npy` files of a folder in the order of their names.
fn files_at(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let entries = fs::read_dir(path).with_context(|| format!("--data {}", path.display()))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    let is_npy = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "npy");
    let mut files: Vec<PathBuf> = paths.into_iter().filter(is_npy).collect();
    files.sort();
    if files.is_empty() {
        return Err(Failure::Usage(format!("--data {}: the folder has no .npy file", path.display())).into());
    }
    Ok(files)
}

/// Fails if an element is infinite or not a number.
fn check_finite(path: &Path, tensor: &Tensor) -> Result<(), Failure> {
    let numbers = tensor.as_f32().into_iter().flatten();
    match numbers.enumerate().find(|(_, number)| !number.is_finite()) {
        Some((at, number)) => {
            Err(Failure::Usage(format!("--data {}: element {at} is {number}, expected finite numbers", path.display())))
        }
        None => Ok(()),
    }
}
