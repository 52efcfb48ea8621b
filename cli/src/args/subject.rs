//! Network or workload that a command works on, with its input shapes, input tensors and precision.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use anyhow::Result;
use autotune::Network;
use autotune_network::onnx::{self, DeclaredInput, ImportError, ImportOptions};
use autotune_network::{DType, Graph, Precision, ShapeRange, Subject, SubjectLoadError, Tensor, listed, rewrite};
use clap::{Args, ValueEnum};
use ndarray::{ArrayD, IxDyn};

use super::calls::Calls;
use super::phases::needs_phases;
use super::shapes::{ModelOfShapes, NetworkTypes};
use super::{Failure, TargetArgs};
use crate::npy;
use crate::output::say;

#[derive(Debug, Args)]
pub(crate) struct SubjectArgs {
    /// A network (resnet18, model.onnx) or a workload (conv2d:..., matmul:...)
    #[arg(value_name = "NETWORK|WORKLOAD", value_parser = Subject::of)]
    pub(crate) subject: Subject,
    #[command(flatten)]
    pub(crate) inputs: InputArgs,
}

impl SubjectArgs {
    /// Returns the tasks to tune for a target. Fails for `--precision auto`.
    pub(crate) fn tasks(&self, target: &TargetArgs) -> Result<Network> {
        let loaded = self.inputs.load_all(&self.subject)?;
        loaded.iter().try_for_each(LoadedNetwork::check_precision)?;
        Ok(target.tasks(&self.subject, &loaded)?)
    }

    /// Loads and rewrites a network; returns `None` for a workload.
    pub(crate) fn load(&self) -> Result<Option<LoadedNetwork>> {
        self.inputs.load(&self.subject)
    }

    /// Loads a network without rewriting it; returns `None` for a workload.
    pub(crate) fn import(&self) -> Result<Option<LoadedNetwork>> {
        self.inputs.import(&self.subject)
    }
}

/// Shapes and tensors of a network's inputs.
#[derive(Debug, Args)]
pub(crate) struct GivenArgs {
    /// Shape of an input whose extents are open in an ONNX file. To tune, run and compile networks,
    /// also several shapes: NAME=1x8..512, NAME=1x{16,32,64}
    #[arg(long, value_name = "NAME=1x3x224x224", value_parser = parse_shape)]
    shape: Vec<(String, ShapeRange)>,
    /// File with the shapes of the calls that a model gets, one call per line, such as `ids=1x12
    /// mask=1x12`: instead of --shape, to tune for these calls, run some of them, or compile for
    /// their shapes
    #[arg(long, value_name = "FILE", conflicts_with = "shape")]
    shapes: Option<PathBuf>,
    /// An input: a NumPy file, which also determines extents that are open in an ONNX file, or a
    /// constant number, so that an If that depends on it can be decided. The name of a single input
    /// may be omitted; inputs that are not specified are random when networks run
    #[arg(long, value_name = "[NAME=]FILE.npy|NAME=NUMBER")]
    input: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    #[command(flatten)]
    pub(super) given: GivenArgs,
    /// Element type of a network's intermediate tensors and of the factors of products: f32; bf16
    /// on CPUs and CUDA devices; f16 and tf32 (factors only) on CUDA devices; or auto for the
    /// fastest with outputs within --max-error, measured on these inputs
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = Precise::of)]
    pub(super) precision: Precise,
    /// Largest error of outputs for --precision auto, relative to the largest element of each
    /// output [default: 0.01]
    #[arg(long, value_name = "ERROR", value_parser = parse_error)]
    max_error: Option<f64>,
    /// Computation of quantised tensors of an ONNX file: in integers, or in floating point without
    /// rounding
    #[arg(long, value_name = "WAY", value_enum, default_value_t)]
    pub(super) quantised: Quantised,
}

/// Kinds of numbers that quantised tensors of a network are computed as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Quantised {
    /// Integers, as in the file.
    #[default]
    Int,
    /// Floating-point numbers, with weights dequantised ahead of time.
    Float,
}

/// Precision of a network, given or to be decided by running it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Precise {
    /// Given precision, used by every step that supports it.
    In(Precision),
    /// Fastest precision whose outputs stay within the allowed error.
    Auto,
}

impl Precise {
    fn of(word: &str) -> Result<Self, String> {
        let wrong = || format!("unknown precision '{word}': expected f32, tf32, f16, bf16 or auto");
        if word == "auto" { Ok(Self::Auto) } else { word.parse().map(Self::In).map_err(|_| wrong()) }
    }
}

/// Default for the largest relative error of outputs; deep networks in bf16 stay within it.
const MAX_ERROR: f64 = 0.01;

pub(super) fn parse_error(text: &str) -> Result<f64, String> {
    let error = text.parse().ok().filter(|error: &f64| *error >= 0.0 && error.is_finite());
    error.ok_or_else(|| format!("--max-error '{text}' is not a relative error: expected a number such as 0.01"))
}

/// Network with the tensors that are given for its inputs.
pub(crate) struct LoadedNetwork {
    pub(crate) graph: Graph,
    /// Given tensors by the names of the inputs.
    pub(crate) given: BTreeMap<String, InputFile>,
    /// Largest relative error of outputs if the precision is to be decided by running; else `None`.
    pub(crate) max_error: Option<f64>,
    /// True for a phase of a network, or for a graph inside.
    pub(crate) is_phase: bool,
    /// Number of calls that the network stands for, among several of one model.
    pub(crate) calls: usize,
}

impl LoadedNetwork {
    /// Fails for `--precision auto`, which is decided by running the network.
    pub(crate) fn check_precision(&self) -> Result<(), Failure> {
        let why = "not supported here, since it requires running the network: tune with --precision f32 and with --precision bf16";
        match self.max_error {
            Some(_) => Err(Failure::Usage(format!("--precision auto: {why}"))),
            None => Ok(()),
        }
    }
}

/// Tensor for an input, with the file that it was read from.
pub(crate) struct InputFile {
    pub(crate) path: PathBuf,
    pub(crate) tensor: Tensor,
}

/// Largest magnitude up to which every integer is exact as f32, the type in which networks compute
/// integers.
const MOST_EXACT: i64 = 1 << 24;

impl InputFile {
    /// Fails for integers of a file that are not exact as f32, and warns of those that may be
    /// rounded.
    pub(crate) fn check_exact(&self, option: &str) -> Result<(), Failure> {
        let path = self.path.display();
        let integers = self.tensor.as_i64().into_iter().flatten();
        let beyond: Vec<i64> = integers.copied().filter(|number| number.unsigned_abs() > MOST_EXACT as u64).collect();
        if let Some(number) = beyond.iter().find(|&&number| number as f32 as i128 != i128::from(number)) {
            let why = format!("{number} is not an exact integer of networks, which are at most 2^24 here");
            return Err(Failure::Usage(format!("{option} {path}: {why}")));
        }
        if let Some(number) = beyond.first() {
            say(format_args!("autotune: warning: {option} {path}: {number} exceeds 2^24: results may be rounded"));
        }
        Ok(())
    }
}

impl InputArgs {
    /// Loads a network with these shapes, inputs and types, [rewritten](rewrite()); returns `None`
    /// for a workload.
    pub(crate) fn load(&self, subject: &Subject) -> Result<Option<LoadedNetwork>> {
        let Some(loaded) = self.import(subject)? else { return Ok(None) };
        let graph = rewrite(&loaded.graph).map_err(SubjectLoadError::from)?;
        Ok(Some(LoadedNetwork { graph, ..loaded }))
    }

    /// Loads a network for each shape that stands for the shapes of its inputs, or for each phase
    /// if shapes depend on the data; none for a workload.
    pub(crate) fn load_all(&self, subject: &Subject) -> Result<Vec<LoadedNetwork>> {
        match self.of_shapes(subject)? {
            Some(model) => model.representative(),
            None => match self.load(subject) {
                Err(error) if needs_phases(&error) => self.of_phases(subject),
                loaded => Ok(loaded?.into_iter().collect()),
            },
        }
    }

    /// Loads a network as [`load`](Self::load) does, without rewriting it.
    fn import(&self, subject: &Subject) -> Result<Option<LoadedNetwork>> {
        let loaded = self.given.imported(subject, &BTreeMap::new()).map_err(|error| match needs_phases(&error) {
            true => error.context("a model that runs in phases is supported by run, tasks, tuning and report only"),
            false => error,
        })?;
        let (precision, max_error) = match self.precision {
            Precise::In(_) if self.max_error.is_some() => {
                return Err(Failure::Usage("--max-error: only supported with --precision auto".into()).into());
            }
            Precise::In(precision) => (precision, None),
            Precise::Auto => (Precision::F32, Some(self.max_error.unwrap_or(MAX_ERROR))),
        };
        if loaded.is_none() && self.precision != Precise::In(Precision::F32) {
            let word = if max_error.is_some() { "auto" } else { precision.word() };
            let why = "a workload contains its element type, such as ',dtype=bf16'";
            return Err(Failure::Usage(format!("--precision {word}: {why}")).into());
        }
        let Some(loaded) = loaded else { return Ok(None) };
        let types = NetworkTypes { precision, is_dequantised: self.quantised == Quantised::Float };
        let graph = types.of(loaded.graph).map_err(SubjectLoadError::from)?;
        Ok(Some(LoadedNetwork { graph, max_error, ..loaded }))
    }
}

impl InputArgs {
    /// Opens a model if an input has several shapes; returns `None` otherwise.
    pub(crate) fn of_shapes(&self, subject: &Subject) -> Result<Option<ModelOfShapes>> {
        let is_range = |(_, range): &(String, ShapeRange)| range.fixed().is_none();
        let (Subject::Model(path), Precise::In(precision)) = (subject, self.precision) else { return Ok(None) };
        let calls = self.given.shapes.as_deref().map(Calls::read).transpose()?;
        if calls.is_none() && !self.given.shape.iter().any(is_range) {
            return Ok(None);
        }
        let wrong = |source| refusal(SubjectLoadError::Import { path: path.clone(), source }, &BTreeMap::new());
        let model = onnx::Model::open(path).map_err(wrong)?;
        let declared = model.inputs().map_err(wrong)?;
        if let Some((input, file)) = self.given.words(&declared)?.into_iter().find(|(_, text)| !is_number(text)) {
            let why = "inputs of several shapes are random: give one shape instead";
            return Err(Failure::Usage(format!("--input {}={file}: {why}", input.name)).into());
        }

        calls.as_ref().map_or(Ok(()), |calls| calls.check(&declared))?;
        let ranges = calls.as_ref().map_or_else(|| self.given.ranges(), |calls| Ok(calls.ranges()))?;
        let import = ImportOptions { values: self.given.numbers(&declared)?, ..ImportOptions::default() };
        let types = NetworkTypes { precision, is_dequantised: self.quantised == Quantised::Float };
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Ok(Some(ModelOfShapes { name, model, import, ranges, calls, types }))
    }
}

impl GivenArgs {
    /// Reads a network in the types of its file, without rewriting it; returns `None` for a
    /// workload. Extents that the options leave open come from `shapes`.
    pub(crate) fn imported(
        &self,
        subject: &Subject,
        shapes: &BTreeMap<String, Vec<usize>>,
    ) -> Result<Option<LoadedNetwork>> {
        let Subject::Model(path) = subject else {
            let options = ImportOptions { shapes: self.shapes()?, ..ImportOptions::default() };
            let Some(graph) = subject.imported(&options).map_err(|error| refusal(error, &BTreeMap::new()))? else {
                return self.check_none().map(|()| None);
            };
            let given = self.of_own_inputs(&DeclaredInput::of_graph(&graph))?;
            return Ok(Some(LoadedNetwork { graph, given, max_error: None, is_phase: false, calls: 1 }));
        };

        let wrong = |source| SubjectLoadError::Import { path: path.clone(), source };
        let (mut options, given) = self.import_options(|| Ok(onnx::inputs(path).map_err(wrong)?))?;
        for (name, shape) in shapes {
            options.shapes.entry(name.clone()).or_insert_with(|| shape.clone());
        }
        let graph = subject.imported(&options).map_err(|error| refusal(error, &given))?;
        Ok(graph.map(|graph| LoadedNetwork { graph, given, max_error: None, is_phase: false, calls: 1 }))
    }

    /// Returns the options for the import of an ONNX file, and the files for its inputs. Files also
    /// determine shapes. `declared` returns the inputs of the model; it is called if one is given.
    pub(super) fn import_options(
        &self,
        declared: impl FnOnce() -> Result<Vec<DeclaredInput>>,
    ) -> Result<(ImportOptions, BTreeMap<String, InputFile>)> {
        let mut options = ImportOptions { shapes: self.shapes()?, ..ImportOptions::default() };
        let mut given = BTreeMap::new();
        if !self.input.is_empty() {
            let declared = declared()?;
            options.values = self.numbers(&declared)?;
            given = self.files(&declared)?;
        }
        for (name, file) in &given {
            options.shapes.entry(name.clone()).or_insert_with(|| file.tensor.shape().to_vec());
        }
        Ok((options, given))
    }

    fn shapes(&self) -> Result<BTreeMap<String, Vec<usize>>, Failure> {
        let several = |option: String| {
            let why = "several shapes are supported by tuning, tasks, bench, run and compile only, for an ONNX \
                       file without --profile, --check, --output FOLDER and --precision auto";
            Failure::Usage(format!("{option}: {why}"))
        };
        if let Some(file) = &self.shapes {
            return Err(several(format!("--shapes {}", file.display())));
        }
        let fixed = |(name, range): (String, ShapeRange)| match range.fixed() {
            Some(shape) => Ok((name, shape)),
            None => Err(several(format!("--shape {name}={range}"))),
        };
        self.ranges()?.into_iter().map(fixed).collect()
    }

    /// Returns the shapes of inputs by name.
    fn ranges(&self) -> Result<BTreeMap<String, ShapeRange>, Failure> {
        let mut ranges = BTreeMap::new();
        for (name, range) in &self.shape {
            if ranges.insert(name.clone(), range.clone()).is_some() {
                return Err(Failure::Usage(format!(
                    "--shape {name}=..: the shape of input '{name}' is specified twice"
                )));
            }
        }
        Ok(ranges)
    }

    /// Returns the files for the inputs of a built-in network; constant inputs are a usage error
    /// there.
    fn of_own_inputs(&self, declared: &[DeclaredInput]) -> Result<BTreeMap<String, InputFile>, Failure> {
        match self.numbers(declared)?.first_key_value() {
            Some((name, _)) => {
                let why = "only an input of an ONNX file can be a constant";
                Err(Failure::Usage(format!("--input {name}: {why}")))
            }
            None => self.files(declared),
        }
    }

    /// Fails if an input is given: a workload has none.
    fn check_none(&self) -> Result<()> {
        match self.input.first() {
            Some(word) => Err(Failure::Usage(format!("--input {word}: a workload has no inputs")).into()),
            None => Ok(()),
        }
    }

    /// Returns the inputs that are given as numbers, by name.
    fn numbers(&self, declared: &[DeclaredInput]) -> Result<BTreeMap<String, Tensor>, Failure> {
        let all = self.words(declared)?.into_iter();
        let numbers = all.filter_map(|(input, text)| Some((input.name.clone(), number(input, text)?)));
        numbers.map(|(name, number)| Ok((name, number?))).collect()
    }

    /// Reads the inputs that are given as files, by name.
    fn files(&self, declared: &[DeclaredInput]) -> Result<BTreeMap<String, InputFile>, Failure> {
        let all = self.words(declared)?.into_iter().filter(|(_, text)| !is_number(text));
        let file = |(input, text): (&DeclaredInput, &str)| {
            let path = PathBuf::from(text);
            let tensor = npy::read("--input", &path, input.dtype)?;
            Ok((input.name.clone(), InputFile { path, tensor }))
        };
        all.map(file).collect()
    }

    /// Splits every `--input` into the declared input and its value. Names may contain `=`.
    fn words<'a>(&'a self, declared: &'a [DeclaredInput]) -> Result<Vec<(&'a DeclaredInput, &'a str)>, Failure> {
        let mut known = HashSet::new();
        let mut words = Vec::new();
        for word in &self.input {
            let named = |(at, _): (usize, &str)| {
                let input = declared.iter().find(|input| input.name == word[..at])?;
                Some((input, &word[at + 1..]))
            };
            let found = word.rmatch_indices('=').find_map(named).or(match declared {
                // Without a known name before `=`, the word is the value of the only input.
                [only] if !word.contains('=') || Path::new(word).exists() => Some((only, word)),
                _ => None,
            });
            let unknown = || {
                let names: Vec<&str> = declared.iter().map(|input| &*input.name).collect();
                let forms = "expected NAME=FILE.npy, or NAME=NUMBER for a constant";
                Failure::Usage(format!("--input {word}: {forms}, with one of the inputs {}", listed(&names)))
            };
            let (input, text) = found.ok_or_else(unknown)?;
            if !known.insert(&input.name) {
                return Err(Failure::Usage(format!("--input {word}: input {} is specified twice", input.name)));
            }
            words.push((input, text));
        }
        Ok(words)
    }
}

/// Converts an import error: a bad shape from `--shape` or from an input file is a usage error.
fn refusal(error: SubjectLoadError, given: &BTreeMap<String, InputFile>) -> anyhow::Error {
    match &error {
        SubjectLoadError::Import { source: ImportError::Shape { input, .. }, .. } => {
            let file = given.get(input).map(|file| format!("--input {}", file.path.display()));
            Failure::Usage(format!("{}: {error}", file.unwrap_or_else(|| "--shape".into()))).into()
        }
        SubjectLoadError::Fixed { .. } => Failure::Usage(format!("--shape: {error}")).into(),
        _ => error.into(),
    }
}

fn is_number(text: &str) -> bool {
    matches!(text, "true" | "false") || text.parse::<f64>().is_ok()
}

/// Parses a constant input; returns `None` if the text is not a number.
fn number(input: &DeclaredInput, text: &str) -> Option<Result<Tensor, Failure>> {
    if !is_number(text) {
        return None;
    }
    let name = &input.name;
    let wrong = |why: &str| Failure::Usage(format!("--input {name}={text}: {why}"));
    if input.extents.iter().any(|extent| extent.is_some_and(|extent| extent != 1)) {
        return Some(Err(wrong("the input has more than one element: use NAME=FILE.npy")));
    }

    let shape = IxDyn(&vec![1; input.extents.len()]);
    let tensor = match input.dtype {
        DType::F32 => text.parse().ok().map(|number| Tensor::F32(ArrayD::from_elem(shape, number))),
        DType::I64 => text.parse().ok().map(|number| Tensor::I64(ArrayD::from_elem(shape, number))),
        DType::Bool => match text {
            "true" | "1" => Some(Tensor::Bool(ArrayD::from_elem(shape, true))),
            "false" | "0" => Some(Tensor::Bool(ArrayD::from_elem(shape, false))),
            _ => None,
        },
        _ => None,
    };
    Some(tensor.ok_or_else(|| wrong(&format!("the input is {}", input.dtype))))
}

/// Parses a shape argument such as `NAME=1x3x224x224`.
fn parse_shape(text: &str) -> Result<(String, ShapeRange), String> {
    let bad = || format!("--shape '{text}' is not an input and its extents, such as image=1x3x224x224 or ids=1x8..512");
    let (name, extents) = text.rsplit_once('=').ok_or_else(bad)?;
    Ok((name.to_string(), extents.parse().map_err(|_| bad())?))
}
