//! Models that run on tensors of any shape, with nothing to manage.

use std::collections::BTreeMap;
use std::mem::{forget, replace};
use std::path::Path;
use std::process::id as process_id;
use std::slice;
use std::sync::{Arc, Mutex};

use autotune_db::Source;
use autotune_graph::onnx::{DeclaredInput, DeclaredOutput, ImportError, ImportOptions, Model};
use autotune_graph::rewrite::rewrite;
use autotune_graph::{DType, DeclaredType, Graph, NodeId, Output, Tensor, dequantised, listed};
use autotune_ir::Target;
use autotune_runtime::{Cpu, Waiting};

use crate::compiled::{Compiled, NetworkStore, StepSpan};
use crate::decide::decide;
use crate::device::NetworkOps;
use crate::error::{CompileError, RunError};
use crate::example::random_input;
use crate::family::{Family, FamilyError, FamilyWorkspace, InputShapes, ShapeRange};
use crate::phased::PhasedNetwork;
use crate::pinned::{PinnedNetwork, pinned_in};
use crate::session_phases::PhasedRuns;
use crate::subject::Subject;

mod error;
mod idle;
mod options;
mod process;
#[cfg(test)]
mod tests;

pub use error::SessionError;
pub(crate) use idle::IdleWorkspaces;
pub use options::{SessionOptions, SessionPrecision};
pub(crate) use process::with_threads;

/// An output of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOutput {
    /// Name, unique among outputs.
    pub name: String,
    /// Element type of the computed tensor.
    pub dtype: DType,
    /// Element type that the file declares, if it is another.
    pub stored: Option<DeclaredType>,
    /// Extents of the tensor.
    pub shape: Vec<usize>,
}

impl SessionOutput {
    /// Describes the result of a run for an output of the file.
    fn of(declared: &DeclaredOutput, result: &Tensor) -> Self {
        let (dtype, shape) = (result.dtype(), result.shape().to_vec());
        let stored = declared.stored.filter(|&stored| stored != DeclaredType::Of(dtype));
        Self { name: declared.name.clone(), dtype, stored, shape }
    }

    /// Returns the element type in which callers have the output.
    pub fn declared(&self) -> DeclaredType {
        self.stored.unwrap_or(DeclaredType::Of(self.dtype))
    }
}

/// Number of shapes for which recurrent layers of many steps become nodes. For others they run in
/// parts, which takes longer, and needs few new kernels.
const UNROLLED_SHAPES: usize = 2;

/// Number of steps of a layer that become nodes in any case.
const FEW_STEPS: usize = 8;

/// A network that runs on tensors of any shape that its inputs may have. The network for a shape is
/// made when the shape is first seen, within milliseconds ([`Family`]). Any number of threads may
/// run a session at a time.
///
/// ```no_run
/// use autotune_network::{Session, SessionOptions, Tensor};
///
/// let session = Session::open("model.onnx", SessionOptions::default())?;
/// let outputs = session.run(&[Tensor::f32(&[1, 3, 224, 224], vec![0.0; 3 * 224 * 224])?])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Processes that fork
///
/// A forked child may run sessions of its parent, and open others; threads are started again. No
/// thread of the parent may be making a network at the time of the fork.
pub struct Session {
    name: String,
    pub(crate) inputs: Vec<DeclaredInput>,
    outputs: Vec<DeclaredOutput>,
    pub(crate) family: Arc<Family>,
    /// Model for runs in phases; `None` if its graph is fixed.
    pub(crate) phased: Option<PhasedRuns>,
    pub(crate) waiting: Waiting,
    idle: IdleWorkspaces<FamilyWorkspace>,
}

impl Session {
    /// Opens a built-in network by name, or the ONNX file at a path.
    pub fn open(subject: &str, options: SessionOptions) -> Result<Self, SessionError> {
        match Subject::of(subject)? {
            Subject::Model(path) => Self::of_file(&path, options),
            Subject::Workload(workload) => Err(SessionError::Workload(workload.to_string())),
            network => {
                let import = ImportOptions { values: options.values.clone(), ..ImportOptions::default() };
                let graph = network.imported(&import)?.ok_or_else(|| SessionError::Workload(subject.into()))?;
                Self::of_graph(&graph, options)
            }
        }
    }

    /// Opens an ONNX file.
    pub fn of_file(path: &Path, options: SessionOptions) -> Result<Self, SessionError> {
        let opened = || Self::of_model(Model::open(path).map_err(FamilyError::from)?, options);
        opened().map_err(|error| error.located(path))
    }

    /// Opens a parsed model.
    pub fn of_model(model: Model<'static>, options: SessionOptions) -> Result<Self, SessionError> {
        with_threads(|| Self::opened(model, options))?
    }

    fn opened(model: Model<'static>, options: SessionOptions) -> Result<Self, SessionError> {
        let of_import = |error: ImportError| SessionError::Family(error.into());
        let mut inputs = model.inputs().map_err(of_import)?;
        check_names(&inputs, options.names().chain(options.values.keys()))?;
        inputs.retain(|input| !options.values.contains_key(&input.name));
        let (name, outputs) = (model.name().to_string(), model.outputs());
        let ranges = ShapeRange::of_inputs(&inputs, &options.shapes);
        let import = ImportOptions { values: options.values.clone(), ..ImportOptions::default() };

        let (target, source, waiting) = (options.target()?, options.source()?, options.waiting);
        let mut phased = None;
        let family = match options.precision {
            SessionPrecision::In(precision) => {
                let is_dequantised = options.is_dequantised;
                let prepare = move |graph: Graph| {
                    let graph = if is_dequantised { dequantised(&graph)? } else { graph };
                    Ok(graph.with_precision(precision))
                };
                let model = Arc::new(Mutex::new(model));
                // Layers become nodes only for a few shapes, as this takes long.
                let in_parts = ImportOptions { max_unrolled: FEW_STEPS, ..import.clone() };
                let is_open = fixed(&ranges).is_err();
                let (shared, in_phases) = (Arc::clone(&model), if is_open { &in_parts } else { &import }.clone());
                let network =
                    PhasedNetwork::of_model(shared, in_phases, Box::new(prepare), Arc::clone(&source), &target)?;
                phased = Some(PhasedRuns::of(network));
                let mut left = UNROLLED_SHAPES;
                let import = move || {
                    let options = if left > 0 { &import } else { &in_parts };
                    left = left.saturating_sub(1);
                    options.clone()
                };
                Family::of_shared(model, import, prepare, options.family(ranges), source, &target)?
            }
            SessionPrecision::Fastest { .. } => {
                let shapes = fixed(&ranges)?;
                let graph = model.graph(&ImportOptions { shapes, ..import }).map_err(of_import)?;
                Family::of_network(compiled(graph, &options, &*source, &target)?, source, &target)?
            }
        };
        Self { name, inputs, outputs, family, phased, waiting, idle: IdleWorkspaces::new() }.checked()
    }

    /// Opens a graph that is not rewritten; its shapes are fixed.
    pub fn of_graph(graph: &Graph, options: SessionOptions) -> Result<Self, SessionError> {
        with_threads(|| Self::opened_graph(graph, options))?
    }

    fn opened_graph(graph: &Graph, options: SessionOptions) -> Result<Self, SessionError> {
        let inputs = DeclaredInput::of_graph(graph);
        check_names(&inputs, options.names())?;
        for ((name, range), &input) in ShapeRange::of_inputs(&inputs, &options.shapes).iter().zip(graph.inputs()) {
            let outside = |source| FamilyError::Outside { input: name.clone(), source };
            range.check(&graph.node(input).shape).map_err(outside)?;
        }
        let (target, source) = (options.target()?, options.source()?);
        let network = compiled(graph.clone(), &options, &*source, &target)?;
        let name = network.graph().name().to_string();
        let outputs = DeclaredOutput::of_graph(network.graph());
        let family = Family::of_network(network, source, &target)?;
        let (idle, waiting) = (IdleWorkspaces::new(), options.waiting);
        Self { name, inputs, outputs, family, phased: None, waiting, idle }.checked()
    }

    /// Makes the only network, if all shapes are fixed, so that its errors do not wait for a run.
    fn checked(self) -> Result<Self, SessionError> {
        let only: Option<InputShapes> = self.family.inputs().iter().map(|(_, range)| range.fixed()).collect();
        if let Some(shapes) = only {
            match self.family.network(&shapes) {
                Err(error) if self.is_phased_after(&error) => {}
                network => drop(network?),
            }
        }
        Ok(self)
    }

    /// Returns the name of the network.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the inputs of a run, in order, as the file declares them.
    pub fn inputs(&self) -> &[DeclaredInput] {
        &self.inputs
    }

    /// Returns the outputs, in order, as the file declares them.
    pub fn outputs(&self) -> &[DeclaredOutput] {
        &self.outputs
    }

    /// Returns the shapes that the inputs may have, in order.
    pub fn shapes(&self) -> impl Iterator<Item = &ShapeRange> {
        self.family.inputs().iter().map(|(_, range)| range)
    }

    /// Returns the plans of the networks in memory, for [`SessionOptions::pinned`] of another
    /// session. Models that run in phases have none.
    pub fn pinned(&self) -> Vec<PinnedNetwork> {
        self.family.pinned()
    }

    /// Runs the network, and allocates the outputs. Inputs are in the order of
    /// [`inputs`](Self::inputs).
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, SessionError> {
        let shapes: InputShapes = inputs.iter().map(|input| input.shape().to_vec()).collect();
        match self.prepare(&shapes) {
            Err(SessionError::InPhases) => self.run_in_phases(&shapes, inputs),
            run => Ok(run?.workspace.run_tensors(inputs)?),
        }
    }

    /// Runs the network on row-major numbers of tensors of some shapes, and allocates and describes
    /// the outputs. Integers and booleans are passed as f32 numbers.
    pub fn run_numbers(
        &self,
        shapes: &[Vec<usize>],
        numbers: &[&[f32]],
    ) -> Result<Vec<(SessionOutput, Tensor)>, SessionError> {
        self.family.check(shapes)?;
        let (found, wanted) = (numbers.len(), shapes.len());
        if found != wanted {
            return Err(FamilyError::from(RunError::Count { what: "inputs", found, wanted }).into());
        }

        let tensor = |((input, shape), numbers): ((&DeclaredInput, &Vec<usize>), &&[f32])| {
            let wrong = |source| SessionError::Input { name: input.name.clone(), source };
            Tensor::f32(shape, numbers.to_vec()).map_err(wrong)
        };
        let inputs = self.inputs.iter().zip(shapes).zip(numbers).map(tensor).collect::<Result<Vec<_>, _>>()?;
        let results = self.run(&inputs)?;
        Ok(self.described(&results).into_iter().zip(results).collect())
    }

    /// Describes the results of [`run`](Self::run).
    pub fn described(&self, results: &[Tensor]) -> Vec<SessionOutput> {
        self.outputs.iter().zip(results).map(|(declared, result)| SessionOutput::of(declared, result)).collect()
    }

    /// Prepares a run on inputs of some shapes: makes their network if it is new, and takes a
    /// workspace. Fails with [`SessionError::InPhases`] if the shapes of the outputs are known
    /// only after a run: such models have [`run`](Self::run) and
    /// [`run_numbers`](Self::run_numbers) alone.
    pub fn prepare(&self, shapes: &[Vec<usize>]) -> Result<SessionRun<'_>, SessionError> {
        if self.phased.as_ref().is_some_and(PhasedRuns::are_needed) {
            return Err(SessionError::InPhases);
        }
        let taken = self.idle.take();
        let new = || {
            let mut workspace = self.family.workspace();
            workspace.set_waiting(self.waiting);
            workspace
        };
        let mut run = SessionRun {
            session: self,
            process: process_id(),
            shapes: shapes.to_vec(),
            workspace: taken.unwrap_or_else(new),
        };

        match with_threads(|| run.workspace.of(shapes).map(drop))? {
            Err(error) if self.is_phased_after(&error) => Err(SessionError::InPhases),
            Err(error) => Err(error.into()),
            Ok(()) => Ok(run),
        }
    }
}

/// A run of a session on inputs of fixed shapes. Dropping it returns its memory and threads to the
/// session.
pub struct SessionRun<'a> {
    session: &'a Session,
    process: u32,
    shapes: InputShapes,
    workspace: FamilyWorkspace,
}

impl SessionRun<'_> {
    /// Returns the outputs, in order.
    pub fn outputs(&mut self) -> Result<Vec<SessionOutput>, SessionError> {
        let graph = self.workspace.of(&self.shapes)?.network().graph();
        let of = |output: &Output| {
            let node = graph.node(output.node);
            SessionOutput {
                name: output.name.clone(),
                dtype: node.dtype,
                stored: output.stored,
                shape: node.shape.clone(),
            }
        };
        Ok(graph.outputs().iter().map(of).collect())
    }

    /// Runs the network on the caller's memory. Inputs and outputs are row-major; integers and
    /// booleans are passed as f32 numbers. Fails if a count or a size does not fit.
    pub fn run(&mut self, inputs: &[&[f32]], outputs: &mut [&mut [f32]]) -> Result<(), SessionError> {
        let workspace = self.workspace.of(&self.shapes)?;
        Ok(workspace.run(inputs, outputs).map_err(FamilyError::from)?)
    }

    /// Runs the network as [`run`](Self::run) does, step by step, and tells when each step ran.
    pub fn run_spans(&mut self, inputs: &[&[f32]], outputs: &mut [&mut [f32]]) -> Result<Vec<StepSpan>, SessionError> {
        let workspace = self.workspace.of(&self.shapes)?;
        Ok(workspace.run_spans(inputs, outputs).map_err(FamilyError::from)?)
    }
}

impl Drop for SessionRun<'_> {
    fn drop(&mut self) {
        let workspace = replace(&mut self.workspace, self.session.family.workspace());
        match self.process == process_id() {
            true => self.session.idle.put(workspace),
            false => forget(workspace),
        }
    }
}

/// Fails unless all names are those of inputs.
fn check_names<'a>(inputs: &[DeclaredInput], mut names: impl Iterator<Item = &'a String>) -> Result<(), SessionError> {
    let is_known = |name: &&String| inputs.iter().any(|input| input.name == **name);
    match names.find(|name| !is_known(name)) {
        Some(name) => {
            let inputs: Vec<&str> = inputs.iter().map(|input| &*input.name).collect();
            Err(SessionError::NoInput { name: name.clone(), inputs: listed(&inputs).to_string() })
        }
        None => Ok(()),
    }
}

/// Returns the shapes of inputs that have only one.
fn fixed(ranges: &[(String, ShapeRange)]) -> Result<BTreeMap<String, Vec<usize>>, SessionError> {
    let of = |(name, shape): &(String, ShapeRange)| match shape.fixed() {
        Some(fixed) => Ok((name.clone(), fixed)),
        None => Err(SessionError::Open { name: name.clone(), shape: shape.clone() }),
    };
    ranges.iter().map(of).collect()
}

/// Compiles a graph that is not rewritten, in the precision of the options.
fn compiled(
    graph: Graph,
    options: &SessionOptions,
    source: &dyn Source,
    target: &Target,
) -> Result<Arc<Compiled>, SessionError> {
    let graph = if options.is_dequantised { dequantised(&graph).map_err(FamilyError::from)? } else { graph };
    let graph = rewrite(&graph).map_err(FamilyError::from)?;
    if let Some(network) = by_pinned(&graph, options, target)? {
        return Ok(network);
    }
    let (max_error, examples) = match &options.precision {
        SessionPrecision::In(precision) => {
            let network = Compiled::new(&graph.with_precision(*precision), Some(source), target);
            return Ok(network.map_err(FamilyError::from)?);
        }
        SessionPrecision::Fastest { max_error, examples } => (*max_error, examples),
    };

    let example = |(number, &id): (usize, &NodeId)| {
        let node = graph.node(id);
        match examples.get(&node.name) {
            Some(given) => Ok(given.clone()),
            None => random_input(node, number as u64),
        }
    };
    let inputs = graph.inputs().iter().enumerate().map(example);
    let inputs: Vec<Tensor> = inputs.collect::<Result<_, _>>().map_err(FamilyError::from)?;
    Ok(decide(&graph, Some(source), target, &inputs, max_error)?.network)
}

/// Compiles a rewritten graph with a plan of the options, in the plan's precision; `None` if there
/// is none that is valid.
fn by_pinned(graph: &Graph, options: &SessionOptions, target: &Target) -> Result<Option<Arc<Compiled>>, FamilyError> {
    let origin = Cpu::origin(target).map_err(CompileError::from)?;
    let store = Arc::new(NetworkStore::new(origin));
    for pinned in &options.pinned {
        let Some(graph) = pinned.in_precision(graph).filter(|graph| options.permits(graph.precision())) else {
            continue;
        };
        if let Some(network) = pinned_in(&store, &graph, slice::from_ref(pinned), target)? {
            return Ok(Some(network));
        }
    }
    Ok(None)
}
